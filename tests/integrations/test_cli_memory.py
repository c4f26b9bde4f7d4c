"""The commands that look after memory, as a person runs them."""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.terminals import invoke, run_at_terminal, run_piped

from tallystick import Actor, Tally
from tallystick.errors import InvalidInput, StateConflict, TallystickError
from tallystick.jobs.background import Drained
from tallystick.jobs.runner import FailedJob
from tallystick.settings import Settings

OWNER = Actor(user="local", projects={"apollo"}, role="operator")
Command = Callable[..., tuple[int, str]]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    with Tally.open(tmp_path / "tally", owner=OWNER, background=False) as tally:
        apollo = tally.bind(OWNER, scope="project:apollo")
        apollo.remember("We deploy by hand.", kind="decision", speaker="Ada")
        apollo.remember("We deploy by pipeline.", kind="decision")
        tally.bind(OWNER).remember("The gate code is 7341, said the pelican.")
    return tmp_path / "tally"


@pytest.fixture
def run(place: Path) -> Command:
    def run(*arguments: str) -> tuple[int, str]:
        result = invoke([*arguments, "--tally", str(place)], env={"COLUMNS": "160"})
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.exit_code, result.output

    return run


def _id(run: Command, words: str, scope: str = "project:apollo") -> str:
    listed = json.loads(run("memories", "--json", "--scope", scope)[1])
    return str(next(memory["id"] for memory in listed if words in memory["content"]))


def test_what_contradicts_a_memory_is_said_where_it_is_found_and_inspected(run: Command) -> None:
    old = _id(run, "by hand")
    assert "contradicted by" not in run("inspect", old)[1]
    code, _ = run(
        *("remember", "Nobody deploys by hand.", "--scope", "project:apollo", "--contradicts", old)
    )
    assert code == 0
    new = _id(run, "Nobody")
    assert f"contradicted by  {new[-8:]}" in re.sub(r" {2,}", "  ", run("inspect", old)[1])
    recalled = run("recall", "do we deploy by hand?")[1]
    assert f"contradicted by {new[-8:]}" in recalled
    assert f"contradicted by {old[-8:]}" in recalled
    told = json.loads(run("recall", "do we deploy by hand?", "--json")[1])
    hits = told["hits"] if isinstance(told, dict) else told
    assert {hit["memory"]["id"]: hit["contradicted_by"] for hit in hits}[old] == [new]


def test_a_correction_is_previewed_then_applied_with_its_token(run: Command) -> None:
    old, new = _id(run, "by hand"), _id(run, "pipeline")
    arguments = ("correct", old[-8:], "supersede", "--by", new, "--reason", "we moved")

    code, shown = run(*arguments)
    assert (code, "active → superseded" in shown, "--apply --token" in shown) == (0, True, True)
    token = json.loads(run(*arguments, "--json")[1])["confirm_token"]
    assert "is superseded, version 2" in run(*arguments, "--apply", "--token", token)[1]

    inspected = run("inspect", old)[1]
    assert "replaced by" in inspected
    assert "restore*" in inspected
    recalled = run("recall", "how do we deploy")[1]
    assert ("pipeline" in recalled, "by hand" in recalled) == (True, False)
    history = run("recall", "how do we deploy", "--state", "active", "--state", "superseded")[1]
    assert history.index("pipeline") < history.index("by hand")
    assert "holds no longer" in history
    assert "CORRECT supersede" in run("history", old[-8:])[1]


def test_a_memory_is_changed_forgotten_and_recovered(run: Command) -> None:
    memory = _id(run, "by hand")
    assert (
        "version 2"
        in run("modify", memory, "--content", "We deploy by robot.", "--reason", "new")[1]
    )
    assert "Preview" in run("forget", memory, "--reason", "old", "--preview")[1]
    assert "recoverable until" in run("forget", memory, "--reason", "old")[1]
    assert "(not shown)" in run("memories", "--scope", "project:apollo", "--state", "deleted")[1]
    assert "is active" in run("recover", memory, "--reason", "it was right")[1]

    matching = (
        "forget",
        "deploy",
        "--matching",
        "--reason",
        "old",
        "--threshold",
        "0.1",
        "--scope",
        "project:apollo",
    )
    token = json.loads(run(*matching, "--json")[1])["confirm_token"]
    assert "2 memories forgotten" in run(*matching, "--apply", "--token", token)[1]


def test_a_pinned_memory_is_forgotten_by_a_person_at_a_terminal_who_saw_its_preview(
    run: Command, place: Path
) -> None:
    memory = _id(run, "by hand")
    assert run("modify", memory, "--pin", "--reason", "r")[0] == 0
    with pytest.raises(StateConflict, match="pinned_memory"):
        run("forget", memory, "--reason", "old")
    arguments = ("forget", memory, "--reason", "old", "--force")
    code, shown = run(*arguments)
    assert (code, "--apply --token" in shown) == (0, True)
    token = json.loads(run(*arguments, "--json")[1])["confirm_token"]
    applied = (*arguments, "--apply", "--token", token)
    with pytest.raises(InvalidInput, match="needs a person at a terminal"):
        run(*applied)
    assert run_at_terminal("no", *applied, "--tally", str(place))[0] == 1
    assert _id(run, "by hand") == memory
    assert "recoverable until" in run_at_terminal("force", *applied, "--tally", str(place))[1]
    with pytest.raises(InvalidInput, match="not for --matching"):
        run("forget", "deploy", "--matching", "--reason", "r", "--force")


def test_an_erasure_is_shown_done_and_proved(run: Command, place: Path) -> None:
    memory = _id(run, "pelican", "private:local")
    shown = run("erase", memory, "--reason", "asked for")[1]
    assert "This cannot be taken back." in shown
    assert "backups" in shown
    token = json.loads(run("erase", memory, "--reason", "asked for", "--json")[1])["confirm_token"]
    arguments = ("erase", memory, "--reason", "asked for", "--apply", "--token", token)
    with pytest.raises(InvalidInput, match="needs a person at a terminal"):
        run(*arguments)
    code, _, errors = run_at_terminal("no", *arguments, "--tally", str(place))
    assert (code, "Nothing was done." in errors) == (1, True)
    code, output, _ = run_at_terminal("erase", *arguments, "--tally", str(place))
    assert (code, "nothing of it was found" in " ".join(output.split())) == (0, True)
    assert b"said the pelican" not in b"".join(
        file.read_bytes() for file in place.rglob("*") if file.is_file()
    )


def test_a_tally_is_made_its_journal_s_window_chosen_and_its_health_told(
    tmp_path: Path, run: Command
) -> None:
    fresh = str(tmp_path / "fresh")
    result = invoke(["init", "--owner", "ada", "--journal-days", "90", "--tally", fresh])
    assert (result.exit_code, "belongs to ada" in " ".join(result.output.split())) == (0, True)
    findings = json.loads(invoke(["doctor", "--json", "--tally", fresh]).output)
    assert {finding["check"]: finding["text"] for finding in findings}[
        "journal window"
    ] == "90 days"
    assert {finding["status"] for finding in findings} == {"ok"}
    code, output = run("doctor")
    assert (code, "no window was chosen" in " ".join(output.split())) == (0, True)
    assert "forgotten memories" in run("purge")[1]


def test_who_could_recall_what_is_shown(run: Command) -> None:
    shown = run("preview-agent", "bob", "--agent", "coder", "--project", "apollo")[1]
    assert "allowed_project" in shown
    assert "principal_mismatch" in shown
    assert "No space" in run("spaces")[1]


def test_scopes_are_exported_and_imported(tmp_path: Path, run: Command) -> None:
    out, other = str(tmp_path / "out"), str(tmp_path / "other")
    assert "3 memories" in " ".join(run("export", out)[1].split())
    brought = invoke(["import", out, "--tally", other])
    assert "3 memories" in " ".join(brought.output.split())
    again = invoke(["recall", "pipeline", "--scope", "private:local", "--tally", other])
    assert "pelican" in again.output or "Nothing" in again.output


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("inspect", "zzzzzzzz"), "There is no memory zzzzzzzz"),
        (("inspect", "zz"), "at least 6 characters"),
        (("init", "--journal-days", "many"), "number of days"),
        (("correct", "zzzzzzzz", "hide", "--reason", "r"), "There is no memory"),
    ],
)
def test_a_mistake_is_one_line(place: Path, arguments: tuple[str, ...], expected: str) -> None:
    code, _, errors = run_piped(*arguments, "--tally", str(place))
    assert (code, expected in errors, "Traceback" in errors) == (2, True, False)


def test_what_is_inspected_names_the_steps_that_used_it(run: Command, place: Path) -> None:
    memory = _id(run, "by hand")
    assert "used by" not in run("inspect", memory)[1]
    with Tally.open(place, background=False) as tally:
        apollo = tally.bind(OWNER, scope="project:apollo")
        with apollo.run("planner") as started, started.step("model_call") as step:
            apollo.compile([*apollo.recall("how do we deploy by hand?")], budget=500)
    shown = " ".join(run("inspect", memory)[1].split())
    assert f"step {step.id[-8:]}: recalled, in context" in shown
    [used] = json.loads(run("inspect", memory, "--json")[1])["uses"]
    assert used["step"]["id"] == step.id


def test_one_looks_around_from_scopes_to_a_memory(run: Command, place: Path) -> None:
    memory = _id(run, "by hand")
    with Tally.open(place, background=False) as tally:
        apollo = tally.bind(OWNER, scope="project:apollo")
        apollo.remember("So keep the list of steps.", derived_from=[memory])
    assert "project:apollo" in run("explore")[1]
    shown = run("explore", "project:apollo")[1]
    assert "concluded from" in shown
    near = json.loads(run("explore", memory, "--json")[1])
    assert [link["kind"] for link in near["links"]] == ["DERIVED_FROM"]
    assert "concluded from" in run("explore", memory[-8:])[1]


def test_a_command_that_is_given_again_under_one_key_answers_as_at_first(run: Command) -> None:
    memory = _id(run, "by hand")
    outputs = [
        run("modify", memory, "--tag", "t", "-r", "r", "--key", "request-1", "--json")[1]
        for _ in range(2)
    ]
    assert outputs[0] == outputs[1]
    assert json.loads(outputs[0])["version"] == 2


def test_a_memory_is_promoted_with_the_token_that_the_preview_gave(run: Command) -> None:
    memory = _id(run, "pelican", "private:local")
    code, shown = run("promote", memory, "project:apollo", "-r", "all of us need it")
    assert (code, "project:apollo" in shown, "Nothing was changed" in shown) == (0, True, True)
    token = shown.split("--token ")[1].split()[0]
    output = run(
        "promote", memory, "project:apollo", "-r", "all of us need it", "--apply", "--token", token
    )[1]
    assert "stands in project:apollo" in output
    assert _id(run, "pelican")


def test_a_copy_says_that_secrets_were_replaced(run: Command, place: Path) -> None:
    with Tally.open(place, settings=Settings.read(secrets_in_memory="keep")) as tally:
        kept = tally.bind(Actor(user="local")).remember(
            "The token is ghp_a8Kd02JdLs93Mf7QpXz41VbNcTgHyUeWo6Ri"
        )
    shown = run("promote", kept.id, "project:apollo", "-r", "r")[1]
    token = shown.split("--token ")[1].split()[0]
    arguments = ("promote", kept.id, "project:apollo", "-r", "r", "--apply", "--token", token)
    assert ["1 github_token" in text for text in (shown, run(*arguments)[1])] == [True, True]


def test_what_is_gone_is_proved_and_what_is_not_says_so(run: Command, place: Path) -> None:
    memory = _id(run, "by hand")
    run("forget", memory, "-r", "r")
    code, proof_text = run("prove", memory)
    assert (code, "nothing reaches it" in proof_text) == (0, True)
    token = run("erase", memory, "-r", "r")[1].split("--token ")[1].split()[0]
    arguments = ("erase", memory, "-r", "r", "--apply", "--token", token, "-t", str(place))
    assert run_at_terminal("erase", *arguments)[0] == 0
    proof_text = " ".join(run("prove", memory)[1].split())
    assert "nothing holds it" in proof_text
    assert "found in 0 places" in proof_text
    assert run("prove", memory, "--text", "We deploy by pipeline.")[0] == 1


def test_an_operator_suspends_changes_from_the_command_line(run: Command) -> None:
    from tallystick.errors import Denied

    run("freeze", "-r", "an incident")
    with pytest.raises(Denied, match="mutations_frozen"):
        run("forget", _id(run, "by hand"), "-r", "r")
    run("thaw", "-r", "over")
    assert run("forget", _id(run, "by hand"), "-r", "r")[0] == 0


def test_a_scope_is_opened_to_members_and_closed_again(run: Command) -> None:
    code, shown = run(
        "space",
        "team:core",
        "--name",
        "Core",
        "--member",
        "user:a=b@example.org=writer@2030-01-31",
        "--member",
        "agent:coder=reader",
        "--reason",
        "we begin",
    )
    assert (code, "a=b@example.org writer until 2030-01-31" in " ".join(shown.split())) == (0, True)
    stored = json.loads(
        run(
            "space",
            "team:core",
            "--without",
            "agent:coder",
            "--member",
            "user:bob=steward",
            "--close",
            "--if-version",
            "1",
            "--reason",
            "r",
            "--json",
        )[1]
    )
    assert (
        stored["state"],
        stored["version"],
        [(member["principal_id"], member["role"]) for member in stored["members"]],
    ) == (
        "closed",
        2,
        [("a=b@example.org", "writer"), ("bob", "steward")],
    )
    assert [space["scope"] for space in json.loads(run("spaces", "--json")[1])] == ["team:core"]


def test_what_a_new_member_would_recall_is_shown_before_it_is_one(run: Command) -> None:
    opening = ("space", "team:core", "--reason", "r")
    run(*opening, "--name", "Core", "--member", "user:local=steward")
    run("remember", "The heron nests in March.", "--scope", "team:core")
    member = (*opening, "--member", "user:bob=reader", "--preview")
    [told] = json.loads(run(*member, "--json")[1])
    shown = " ".join(run(*member)[1].split())
    [space] = json.loads(run("spaces", "--json")[1])

    assert (told["before"]["decision"]["allowed"], len(told["gained"])) == (False, 1)
    assert "user:bob reader" in shown
    assert [each["principal_id"] for each in space["members"]] == ["local"]
    with pytest.raises(InvalidInput, match="each --member"):
        run(*opening, "--preview")


def _told(place: Path, *arguments: str) -> tuple[int, str]:
    """What `tally` itself says and exits with."""
    from tallystick_cli import main

    stream, argv = io.StringIO(), sys.argv
    sys.argv = ["tally", *arguments, "--tally", str(place)]
    try:
        with (
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(stream),
            pytest.raises(SystemExit) as end,
        ):
            main()
    finally:
        sys.argv = argv
    return int(end.value.code or 0), " ".join(stream.getvalue().split())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["init", "--owner", " "], "user"),
        (["init", "--journal-days", "²"], "number of days"),
        (["memories", "--state", "nope"], "states.0: Input should be 'active'"),
        (["memories", "--scope", "nope"], "no scope"),
        (["memories", "--scope", "private:eve"], "belongs to somebody else"),
        (["modify", "x" * 40, "--reason", "r"], "Say what is to change"),
        (["inspect", "x" * 40], "no memory"),
        (["inspect", "ab"], "6 characters"),
        (["preview-agent", ""], "user"),
        (["freeze", "--reason", ""], "Say why"),
        (["space", "team:x", "--reason", "r"], "no space"),
        (["space", "team:x", "--name", "x", "--member", "bob", "--reason", "r"], "names no member"),
        (["space", "team:x", "--name", "x", "--member", "user:bob=king", "--reason", "r"], "role"),
        (
            ["space", "team:x", "--name", "x", "--member", "user:bob=reader@soon", "--reason", "r"],
            "ISO 8601 text such as",
        ),
        (["space", "private:x", "--name", "x", "--reason", "r"], "unsupported_scope"),
        (
            [
                "forget",
                "deploy",
                "--matching",
                "--reason",
                "r",
                "--scope",
                "project:apollo",
                "--apply",
            ],
            "Preview it",
        ),
    ],
)
def test_wrong_input_is_one_line_that_says_what_to_do(
    place: Path, arguments: list[str], says: str
) -> None:
    code, output = _told(place, *arguments)
    assert (code, output.startswith("tally: "), "Traceback" in output) == (2, True, False)
    assert says.replace("no scope", "is not a scope") in output


def test_stored_text_does_not_steer_the_terminal(place: Path, run: Command) -> None:
    with Tally.open(place, background=False) as tally:
        stored = tally.bind(OWNER, scope="project:apollo").remember(
            "A \x1b[31mred\x1b]0;title\x07 \u202eherring\x9b2J."
        )
    for arguments in (
        ("memories", "--scope", "project:apollo"),
        ("inspect", stored.id),
        ("history", stored.id),
        ("recall", "herring"),
        ("explore", "project:apollo"),
    ):
        shown = run(*arguments)[1]
        assert "herring" in shown
        assert not {"\x1b", "\x07", "\u202e", "\x9b"} & set(shown)


def test_on_a_tally_without_an_owner_one_says_who_acts(postgres_url: str) -> None:
    with Tally.open(postgres_url, background=False) as tally:
        stored = tally.bind(OWNER, scope="project:apollo").remember("We deploy by ferry.").id

    def run(*arguments: str) -> tuple[int, str]:
        result = invoke([*arguments, "--tally", postgres_url])
        return result.exit_code, f"{result.output}{result.exception}"

    code, output = run("memories", "--scope", "project:apollo")
    assert (code, "tally --as ada" in output) == (1, True)
    assert (
        "by ferry"
        in run("--as", "local", "--project", "apollo", "memories", "--scope", "project:apollo")[1]
    )
    code, output = run("--as", "eve", "memories", "--scope", "project:apollo")
    assert "unverified_membership" in output
    changed = run(
        "--as",
        "ada",
        "--project",
        "apollo",
        "modify",
        stored,
        "--tag",
        "water",
        "--reason",
        "r",
        "--json",
    )[1]
    assert json.loads(changed.removesuffix("None"))["version"] == 2
    history = json.loads(
        run("--as", "ada", "--project", "apollo", "history", stored, "--json")[1].removesuffix(
            "None"
        )
    )
    assert [(entry["actor"]["user"], entry["surface"]) for entry in history] == [
        ("local", "python"),
        ("ada", "cli"),
    ]


def test_memories_are_forgotten_by_filters(run: Command) -> None:
    filters = ("--kind", "decision", "--speaker", "Ada", "--scope", "project:apollo")
    arguments = ("forget", "--matching", *filters, "-r", "r")
    preview = json.loads(run(*arguments, "--json")[1])
    assert [match["id"] for match in preview["matches"]] == [_id(run, "by hand")]
    code, shown = run(*arguments, "--apply", "--token", preview["confirm_token"])
    assert (code, "1 memories forgotten" in shown) == (0, True)
    with pytest.raises(InvalidInput, match="give --matching"):
        run("forget", "--kind", "decision", "-r", "r")
    with pytest.raises(InvalidInput, match="Name the memory"):
        run("forget", "-r", "r")


def test_a_source_is_inspected_and_an_export_previewed(run: Command) -> None:
    memory = _id(run, "by hand")
    [source] = json.loads(run("inspect", memory, "--json")[1])["sources"]
    code, shown = run("inspect", source)
    assert (code, "drawn from it" in shown, "We deploy by hand." in shown) == (0, True, True)
    assert memory[-8:] in shown
    code, shown = run("export", "--preview", "--scope", "project:apollo")
    assert (code, "2 memories (2 active), 2 sources" in shown) == (0, True)


def test_every_argument_of_an_operation_is_an_option(run: Command) -> None:
    stored = json.loads(
        run("remember", "A kiln.", "--attributes", '{"status": "todo"}', "--json")[1]
    )
    changes = ("--changes", '{"subject": "kiln"}', "--lock", "-r", "r")
    run("modify", stored["id"], *changes)
    [memory] = json.loads(run("memories", "--status", "todo", "--json")[1])
    assert (memory["subject"], memory["attributes"]) == ("kiln", {"status": "todo"})
    assert memory["locked_until"] is not None

    run("forget", stored["id"], "-r", "r", "--if-version", "2")
    assert stored["id"][-8:] not in run("memories")[1]
    assert stored["id"][-8:] in run("memories", "--state", "all")[1]
    for expires_in, seconds in (("8h", 28_800), ("PT30M", 1_800), ("90", 90)):
        token = json.loads(run("token", "make", "x", "--expires-in", expires_in, "--json")[1])
        assert (token["expires_at"] - token["created_at"]) // 1_000_000 == seconds


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("remember", "x", "--attributes", "nope"), "`attributes` takes JSON"),
        (("token", "list", "--reason", "r"), "tally token takes no --reason here"),
        (("jobs", "drain", "--state", "dead"), "tally jobs takes no --state here"),
        (("token", "list", "--scope", "public"), "tally token takes no --scope here"),
        (("doctor", "--sizes", "--repair"), "tally doctor takes no --repair here"),
        (("token", "revoke", "x" * 36), "There is no token"),
        (("show", "x" * 36, "--limit", "1"), "no run or step"),
    ],
)
def test_an_option_that_cannot_be_honoured_is_refused(
    run: Command, arguments: tuple[str, ...], says: str
) -> None:
    with pytest.raises(TallystickError, match=says):
        run(*arguments)


def test_a_drain_lists_what_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = FailedJob("0" * 36, "learn", "dead", "model_refused", "m refused the text.")
    place = str(tmp_path / "tally")
    Tally.open(place, background=False).close()
    monkeypatch.setattr(
        Tally, "drain", lambda self, progress: Drained(0, 0, 0, jobs=2, failed=(failed,))
    )
    code, output, _ = run_piped("jobs", "drain", "--tally", place)
    assert (code, "! 2 jobs" in output) == (1, True)
    assert "✗ learn 00000000 dead: m refused the text." in output
