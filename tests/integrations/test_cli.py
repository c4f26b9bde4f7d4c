"""The `tally` command, as a person runs it, on a real tally: its own entry, and once in a process
of its own.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

import pytest

from tallystick import Actor, ContextItem, Tally
from tallystick.errors import TapeDiverged
from tallystick.recorder import Player, read_tape
from tallystick.recorder.signing import new_key
from tallystick_cli.app import main

OWNER = Actor(user="local", projects={"apollo"}, role="operator")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A tally with a memory, a run and Chroma filled."""
    with Tally.open(tmp_path / "tally", owner=OWNER, background=False) as tally:
        apollo = tally.bind(OWNER, scope="project:apollo")
        apollo.remember("We indent with tabs.", kind="preference", speaker="Ada")
        with (
            apollo.run("coder", goal="mend the test") as run,
            run.step("model_call", name="patch") as step,
        ):
            request_item = ContextItem(id="ask", kind="user_msg", content="Mend it.")
            notes = [
                ContextItem(id=f"note-{n}", kind="retrieval_doc", content=f"Note {n} of the test.")
                for n in (1, 2)
            ]
            apollo.compile([*notes, request_item], budget=1_000)
            step.record("request", {"prompt": "Mend it."})
        tally.drain()
    return tmp_path / "tally"


def entered(*arguments: str) -> subprocess.CompletedProcess[str]:
    """What `tally` with these arguments prints and answers: its entry called, because a process
    takes two seconds.
    """
    out, errors = io.StringIO(), io.StringIO()
    with (
        patch.object(sys, "argv", ["tally", *arguments]),
        redirect_stdout(out),
        redirect_stderr(errors),
    ):
        try:
            main()
            code = 0
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else int(left.code is not None)
    return subprocess.CompletedProcess(
        ["tally", *arguments], code, out.getvalue(), errors.getvalue()
    )


@pytest.fixture
def tally_command(place: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs `tally` with arguments on that tally."""
    return lambda *arguments: entered(*arguments, "--tally", str(place))


Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.smoke
def test_a_run_is_listed_shown_and_verified(tally_command: Command) -> None:
    listed = tally_command("runs")
    assert "coder" in listed.stdout
    assert "mend the test" in listed.stdout

    [run] = json.loads(tally_command("runs", "--json").stdout)
    steps = tally_command("show", run["id"][-8:])
    assert "patch" in steps.stdout
    [step] = json.loads(tally_command("show", run["id"], "--json").stdout)["steps"]
    shown = tally_command("show", step["id"][-8:])
    assert "latest request" in shown.stdout
    assert "sha256:" in shown.stdout

    verified = tally_command("verify", run["id"])
    assert (verified.returncode, "the chain holds" in verified.stdout) == (0, True)
    foil = json.loads(tally_command("verify", run["id"], "--json").stdout)["foil"]
    of_step = json.loads(tally_command("verify", step["id"], "--json").stdout)
    assert of_step["run_id"] == run["id"]
    matched = tally_command("verify", run["id"], "--foil", f"{foil['count']}:{foil['head']}")
    assert "stock and foil match" in matched.stdout
    other = tally_command("verify", run["id"], "--foil", f"{foil['count']}:sha256:{'0' * 64}")
    assert (other.returncode, "does not match" in other.stdout) == (1, True)


def test_a_step_is_compiled_anew_with_a_change(tally_command: Command, tmp_path: Path) -> None:
    (run,) = json.loads(tally_command("runs", "--json").stdout)
    shown = json.loads(tally_command("show", run["id"], "--json").stdout)
    step = shown["steps"][0]["id"]

    dropped = tally_command("recompile", step, "--drop", "note-1")
    assert dropped.returncode == 0, dropped.stderr
    assert "-- Note 1 of the test." in dropped.stdout
    assert "note-1" in dropped.stdout

    smaller = json.loads(tally_command("recompile", step, "--budget", "2%", "--json").stdout)
    assert {change["item_id"] for change in smaller["diff"]["removed"]} == {"note-1", "note-2"}
    assert "-- Note 1 of the test." in smaller["prompt_diff"]

    rules = tmp_path / "rules.toml"
    rules.write_text(
        '[[rules]]\nid = "no-notes"\nname = "No notes"\neffect = "deny"\nconditions = { kind = '
        '["retrieval_doc"] }\n'
    )
    ruled = json.loads(tally_command("recompile", step, "--rules", str(rules), "--json").stdout)
    assert {change["after"]["reason_code"] for change in ruled["diff"]["removed"]} == {
        "policy_denied"
    }

    recorded = json.loads(
        tally_command("recompile", step, "--drop", "note-1", "--keep", "--json").stdout
    )
    again = json.loads(tally_command("show", recorded["run_id"], "--json").stdout)
    assert [step_record["id"] for step_record in again["steps"]] == [recorded["step_id"]]

    refused = tally_command("recompile", step, "--budget", "half")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "50%" in refused.stderr


def test_recall_shows_what_was_remembered_and_why(tally_command: Command) -> None:
    output = tally_command("recall", "how do we indent")
    assert "We indent with tabs." in output.stdout
    assert "visible to project:apollo" in " ".join(output.stdout.split())
    assert (
        json.loads(tally_command("recall", "indent", "--json").stdout)["hits"][0]["memory"][
            "speaker"
        ]
        == "Ada"
    )
    assert (
        "Nothing in private:local answers this.\nThere are memories in project:apollo (1)"
        in tally_command("recall", "zebra", "--scope", "private:local").stdout
    )


def test_the_index_is_checked_and_rebuilt(tally_command: Command) -> None:
    assert "matches the database" in tally_command("rebuild-index", "--check").stdout
    assert (
        tally_command("rebuild-index", "--reason", "after a crash").stdout
        == "✓ 0 vectors in Chroma\n"
    )
    assert tally_command("rebuild-index", "--check").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("show", "nosuchid"), "no run or step nosuchid"),
        (("show", "x"), "at least 6 characters"),
        (("recall", "x", "--scope", "nonsense"), "is not a scope"),
        (("recall", "x", "--scope", "private:ada"), "principal_mismatch"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_to_do(
    tally_command: Command, arguments: tuple[str, ...], expected: str
) -> None:
    failed = tally_command(*arguments)

    assert failed.returncode == 2
    assert expected in failed.stderr
    assert "Traceback" not in failed.stderr


def test_a_place_without_a_tally_is_named(tmp_path: Path) -> None:
    command = Path(sys.executable).with_name("tally")
    failed = subprocess.run(
        [str(command), "runs", "-t", str(tmp_path / "none")],
        text=True,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (failed.returncode, "There is no tally" in failed.stderr) == (2, True)
    assert not (tmp_path / "none").exists()


def test_a_receipt_goes_out_signed_and_is_verified_without_the_tally(
    tally_command: Command, tmp_path: Path
) -> None:
    [run] = json.loads(tally_command("runs", "--json").stdout)
    key, bundle = tmp_path / "key.pem", tmp_path / "run.receipt"
    output = entered("keygen", str(key))
    assert "keep it secret" in output.stdout
    assert key.stat().st_mode & 0o077 == 0
    again = entered("keygen", str(key))
    assert (again.returncode, "is there already" in again.stderr) == (2, True)
    written = tally_command("export-receipt", run["id"], "--out", str(bundle), "--sign", str(key))
    assert "signed" in written.stdout
    checked = entered("verify", str(bundle), "--public-key", f"{key}.pub")
    assert (checked.returncode, "signed by" in checked.stdout) == (0, True), checked.stderr


def test_a_step_is_asked_why_and_compared(tally_command: Command) -> None:
    [run] = json.loads(tally_command("runs", "--json").stdout)
    [step] = json.loads(tally_command("show", run["id"], "--json").stdout)["steps"]
    answer = json.loads(tally_command("why", step["id"], "--json").stdout)
    assert {item["item_id"] for item in answer["knew"]} == {"ask", "note-1", "note-2"}
    assert answer["unseen"] == []
    assert "Note 1 of the test." in tally_command("trace", step["id"], "note 1 OF").stdout
    assert "nothing differs" in tally_command("diff", step["id"], step["id"]).stdout
    assert (
        "No recorded step" in tally_command("uses", "01900000-0000-7000-8000-000000000000").stdout
    )


def test_a_tape_is_written_and_plays(tally_command: Command, place: Path, tmp_path: Path) -> None:
    run_id = json.loads(tally_command("runs", "--json").stdout)[0]["id"]
    out = tmp_path / "tapes" / "patch.json"
    result = tally_command("tape", run_id[-8:], "--out", str(out))
    assert result.returncode == 0, result.stderr
    assert "1 model call, 0 tool calls (exact)" in result.stdout

    tape = read_tape(out)
    assert (tape.run_id, [call.request for call in tape.calls]) == (
        run_id,
        [{"prompt": "Mend it."}],
    )
    with pytest.raises(TapeDiverged):
        Player(tape).model({"prompt": "Break it."})


def test_a_tape_of_what_was_not_kept_is_refused_with_the_reason(
    tally_command: Command, place: Path, tmp_path: Path
) -> None:
    with (
        Tally.open(place, background=False) as tally,
        tally.bind().run("coder", retention="metadata_only") as run,
        run.step("model_call") as step,
    ):
        step.record("request", {"prompt": "Mend it."})
    refused = tally_command("tape", run.id, "--out", str(tmp_path / "tape.json"))
    assert refused.returncode != 0
    assert "its request was not kept (retention metadata_only)" in " ".join(refused.stderr.split())
    assert not (tmp_path / "tape.json").exists()


def test_a_step_without_a_context_says_what_changed_and_what_it_wrote(
    tally_command: Command, place: Path
) -> None:
    with Tally.open(place, background=False) as tally:
        bound = tally.bind(OWNER)
        with bound.run("writer", retention="metadata_only") as run:
            stored = bound.remember("The kiln is hot.")
            with run.step("model_call", name="quiet") as step:
                step.record("request", {"prompt": "secret plans"}, summary={"model": "m-1"})
        [wrote, quiet] = bound.recordings.steps(run.id)
    why = tally_command("why", wrote.id)
    assert why.returncode == 0
    assert f"wrote ADD {stored.id} by local" in " ".join(why.stdout.split())
    assert json.loads(tally_command("why", quiet.id, "--json").stdout)["knew"] == []
    shown = tally_command("show", quiet.id).stdout
    assert "payload not kept" in shown
    assert "m-1" in shown
    assert "commitment" not in shown
    used = tally_command("uses", stored.id[-8:])
    assert "written" in used.stdout


def test_a_difference_in_the_budget_alone_is_a_difference(
    tally_command: Command, place: Path
) -> None:
    with Tally.open(place, background=False) as tally:
        bound = tally.bind(OWNER)
        with bound.run("coder") as run:
            for budget in (500, 900):
                with run.step("model_call"):
                    bound.compile(
                        [ContextItem(id="ask", kind="user_msg", content="Mend it.")], budget=budget
                    )
            with run.step("tool_call") as step:
                step.record("tool_call", {"name": "look", "arguments": {}})
        first, other, tool = (step.id for step in bound.recordings.steps(run.id))
    assert "nothing differs" not in tally_command("diff", first, other).stdout
    assert "= nothing differs" in tally_command("diff", first, first).stdout
    unlike = tally_command("diff", first, tool).stdout
    assert "only one of them compiled a context" in unlike
    assert "nothing differs" not in unlike


def test_a_file_or_an_id_that_is_wrong_is_told_in_one_line(
    tally_command: Command, place: Path, tmp_path: Path
) -> None:
    junk, bundle, key = tmp_path / "junk", tmp_path / "b", tmp_path / "k.pub"
    junk.write_text("junk")
    key.write_bytes(new_key()[1])
    with Tally.open(place, background=False) as tally:
        [run] = tally.bind(OWNER, scope="project:apollo").recordings.runs()
        bundle.write_bytes(tally.bind(OWNER).recordings.export_receipt(run.id))
    wrong: list[tuple[str, ...]] = [
        (
            "/nowhere/run.receipt: No such file",
            "export-receipt",
            run.id,
            "--out",
            "/nowhere/run.receipt",
        ),
        ("is no bundle of a receipt", "verify", str(junk)),
        ("This is no public key", "verify", str(bundle), "--public-key", str(junk)),
        ("it is not signed", "verify", str(bundle), "--public-key", str(key)),
        ("at least 6 characters", "uses", "nope"),
        ("There is no memory no-such-memory", "uses", "no-such-memory"),
    ]
    for expected, *command in wrong:
        result = tally_command(*command)
        assert result.returncode in (1, 2)
        assert expected in " ".join((result.stdout + result.stderr).split())
        assert "Traceback" not in result.stderr
