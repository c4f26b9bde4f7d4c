"""Approvals on the command line: a person at a terminal decides, and nothing skips the question."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from tests.terminals import invoke, run_at_terminal

from tallystick import Actor, PolicyRule, Tally
from tallystick.errors import ActionDenied, ApprovalRequired, Denied, InvalidInput, NotFound
from tallystick.records import Approval

OWNER = Actor(user="local", role="operator")
BOT = Actor(user="local", agent="bot")
ASK = PolicyRule(
    id="ask",
    name="Payments",
    description="Payments are approved",
    effect="require_approval",
    applies_to="tool_call",
)
PAY = {"amount": 3, "note": "for Zoë\u202e"}


def opened(place: Path, owner: Actor = OWNER) -> Tally:
    return Tally.open(place, owner=owner, rules=[ASK], background=False)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "tally"


@pytest.fixture(autouse=True)
def _wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")


@pytest.fixture
def waiting(place: Path) -> Approval:
    """A payment that waits."""
    with opened(place) as tally:
        bot = tally.bind(BOT)
        with pytest.raises(ApprovalRequired) as blocked, bot.run("agent"):
            bot.check_tool_call("pay", PAY)
        return tally.bind(OWNER).approvals.get(blocked.value.approvals[0].id)


def test_what_waits_is_listed_and_shown_with_exactly_its_arguments(
    place: Path, waiting: Approval
) -> None:
    listed = invoke(["approvals", "--json", "--tally", str(place)])
    assert [each["id"] for each in json.loads(listed.output)] == [waiting.id]
    table = invoke(["approvals", "--tally", str(place)])
    assert waiting.id[-8:] in table.output

    code, shown, errors = run_at_terminal(
        "no", "approve", waiting.id[-8:], "--reason", "r", "--tally", str(place)
    )
    assert (code, "Nothing was done." in errors) == (1, True)
    for part in (
        "tool_call pay",
        '"amount": 3',
        '"note": "for Zoë\\u202e"',
        "Payments are approved",
        "local with agent bot",
        *waiting.receipts,
    ):
        assert part in shown
    with opened(place) as tally:
        assert tally.bind(OWNER).approvals.get(waiting.id).state == "pending"


def test_a_person_grants_it_and_the_same_action_runs_once(place: Path, waiting: Approval) -> None:
    arguments = ("approve", waiting.id[-8:], "--reason", "the invoice is right")
    code, shown, errors = run_at_terminal("approve", *arguments, "--tally", str(place))
    assert (code, "is granted, once, until" in shown) == (0, True), errors
    with opened(place) as tally:
        approval = (
            tally.bind(BOT).check_tool_call("pay", PAY, approval_token=shown.split()[-1]).approval
        )
        assert approval is not None
        assert (approval.decided_reason, approval.decided_by) == (
            "the invoice is right",
            {"user": "local", "role": "operator"},
        )
    used = invoke(["approvals", "--state", "used", "--json", "-t", str(place)])
    assert [each["id"] for each in json.loads(used.output)] == [waiting.id]


def test_a_person_denies_it_and_takes_that_back(place: Path, waiting: Approval) -> None:
    end = ("--tally", str(place))
    assert run_at_terminal("deny", "deny", waiting.id, "-r", "too dear", *end)[0] == 0
    with opened(place) as tally, pytest.raises(ActionDenied, match="too dear"):
        tally.bind(BOT).check_tool_call("pay", PAY)
    assert run_at_terminal("revoke", "revoke", waiting.id, "-r", "wrong", *end)[0] == 0
    with opened(place) as tally, pytest.raises(ApprovalRequired):
        tally.bind(BOT).check_tool_call("pay", PAY)


@pytest.mark.parametrize("command", ["approve", "deny", "revoke"])
def test_without_a_terminal_nothing_is_decided_and_no_option_skips_the_question(
    place: Path, waiting: Approval, command: str
) -> None:
    arguments = [command, waiting.id, "--reason", "r", "--tally", str(place)]
    refused = invoke(arguments, input=f"{command}\n")
    assert isinstance(refused.exception, InvalidInput)
    assert "needs a person at a terminal" in str(refused.exception)
    assert invoke([*arguments, "--yes"]).exit_code == 2
    with opened(place) as tally:
        assert tally.bind(OWNER).approvals.get(waiting.id).state == "pending"


def test_an_agent_at_a_terminal_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "tally"
    with opened(place, owner=BOT) as tally:
        with pytest.raises(ApprovalRequired) as blocked:
            tally.bind(BOT).check_tool_call("pay", PAY)
        waiting = blocked.value.approvals[0].id
    code, _, errors = run_at_terminal(
        "approve", "approve", waiting, "--reason", "r", "--tally", str(place)
    )
    assert code == 2
    assert "missing_permission" in errors
    with opened(place, owner=BOT) as tally:
        assert tally.bind(BOT).approvals.get(waiting).state == "pending"
        with pytest.raises(Denied):
            tally.bind(BOT).approvals.approve(waiting, reason="r")


def test_an_unknown_approval_is_not_found(place: Path, waiting: Approval) -> None:
    code, _, errors = run_at_terminal("deny", "deny", "01234567", "-r", "r", "-t", str(place))
    assert (code, "There is no approval 01234567" in errors) == (2, True)
    with opened(place) as tally, pytest.raises(NotFound):
        tally.bind(OWNER).approvals.get("01234567")


def test_the_command_in_a_process_of_its_own_asks_at_its_terminal(
    place: Path, waiting: Approval
) -> None:
    person, program = pty.openpty()
    entry = "from tallystick_cli.app import main; main()"
    command = [sys.executable, "-c", entry, "approve", waiting.id, "--reason", "r"]
    process = subprocess.Popen(
        [*command, "--tally", str(place)], stdin=program, stdout=program, stderr=program
    )
    os.close(program)
    printed = b""
    try:
        while b"Type approve" not in printed:
            printed += os.read(person, 4_096)
        os.write(person, b"approve\n")
        assert process.wait(timeout=120) == 0, printed
    finally:
        process.kill()
        process.wait()
        os.close(person)
    with opened(place) as tally:
        assert tally.bind(OWNER).approvals.get(waiting.id).state == "granted"
