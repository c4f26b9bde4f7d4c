"""What `tally` prints: groups of commands, tables that keep ids, empty answers, errors as JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.integrations.cli_tally import GOAL, FilledTally, fill
from tests.terminals import run_at_terminal, run_piped

from tallystick import Tally, __version__
from tallystick.errors import Denied, NotFound, TallyNotFound, VersionConflict
from tallystick.records import AccessDecision
from tallystick_cli.app import GROUPS, build_command
from tallystick_cli.output import failure_of

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> FilledTally:
    return fill(tmp_path_factory.mktemp("cli") / "tally")


@pytest.fixture
def run(filled: FilledTally) -> Run:
    return lambda *arguments, **options: run_piped(
        *arguments, "--tally", str(filled.place), **options
    )


def test_every_command_is_in_one_group_and_help_lists_the_groups() -> None:
    grouped = [name for names in GROUPS.values() for name in names]
    assert sorted(grouped) == sorted(build_command().commands)

    for arguments in ((), ("--help",), ("help",)):
        code, output, errors = run_piped(*arguments, columns=100)
        assert (code, errors) == (0, "")
        places = [output.index(f"─ {group} ─") for group in GROUPS]
        assert places == sorted(places)


def test_help_shows_the_options_of_a_command_and_suggests_one_that_is_near() -> None:
    assert "--occurred-at" in run_piped("help", "remember")[1]
    code, output, errors = run_piped("help", "remembr")
    assert (code, output, "Did you mean 'remember'" in errors) == (2, "", True)
    assert run_piped("--version") == (0, f"tallystick {__version__}\n", "")


def test_every_command_takes_json() -> None:
    without = [
        name
        for name, command in build_command().commands.items()
        if "--json" not in {option for each in command.params for option in each.opts}
    ]
    assert without == ["help"]


@pytest.mark.parametrize("columns", [60, 80, 100])
def test_tables_keep_ids_and_states_whole(run: Run, filled: FilledTally, columns: int) -> None:
    ids = {name: identity[-8:] for name, identity in filled.ids.items()}
    apollo = ("--scope", "project:apollo")
    tables: list[tuple[tuple[str, ...], list[str]]] = [
        (("runs",), [ids["run"], "completed", "invoice-mender"]),
        (("show", ids["run"]), [ids["run"], ids["first"], ids["second"], "completed"]),
        (("memories", *apollo), [ids["fact"], ids["old"], "active"]),
        (("explore", "project:apollo"), [ids["fact"], ids["old"], "active"]),
        (("recall", "how is money rounded"), [ids["fact"], ids["old"]]),
        (("approvals",), [ids["approval"], "pending"]),
        (("state", "billing"), [ids["checkpoint"]]),
        (("uses", ids["fact"]), [ids["first"], ids["second"]]),
        (("spaces",), ["team:core"]),
        (("preview-agent", "bob"), ["project:apollo", "private:local"]),
        (("diff", ids["first"], ids["second"]), [ids["first"], ids["second"]]),
        (("forget", "--matching", "money", "--reason", "x", *apollo), [ids["fact"], ids["old"]]),
    ]
    for arguments, whole in tables:
        code, output, errors = run(*arguments, columns=columns)
        assert (code, errors) == (0, ""), arguments
        assert [text for text in whole if text not in output] == [], (arguments, output)
        table = [line for line in output.splitlines() if not line.startswith("--apply")]
        assert max(map(len, table)) <= columns

    shown = " ".join(run("runs", columns=columns)[1].split())
    assert all(word in shown for word in GOAL.split())
    decisions = run("show", ids["first"], columns=columns)[1]
    assert ids["fact"] in decisions


def test_an_empty_answer_says_what_is_empty_and_where_there_is_something(run: Run) -> None:
    assert run("memories")[1] == (
        "Nothing is remembered in private:local.\n"
        "There are memories in project:apollo (3): look there with --scope.\n"
    )
    assert (
        "Nothing in private:local answers this.\nThere are memories in project:apollo"
        in (run("recall", "zebra", "--scope", "private:local")[1])
    )
    assert (
        "project:apollo answers this, with these filters"
        in (run("recall", "money", "--kind", "plan")[1])
    )
    assert "Nothing active is remembered in private:local." in run("explore", "private:local")[1]
    assert "some in private:local, project:apollo" in run("runs", "--scope", "team:core")[1]
    assert "`tally approvals --state all`" in run("approvals", "--state", "denied")[1]
    assert "its threads: billing" in run("state", "shipping")[2]
    assert "no threads in project:apollo" in (run("verify-threads", "--scope", "project:apollo")[1])


def test_a_tally_that_is_empty_or_absent_says_how_to_begin(tmp_path: Path) -> None:
    empty = str(tmp_path / "empty")
    Tally.open(empty, background=False).close()
    for arguments in (("explore",), ("memories",), ("recall", "x"), ("wake",)):
        code, output, _ = run_piped(*arguments, "--tally", empty)
        assert (code, "This tally is empty. Remember something:" in output) == (0, True), output
    assert "No runs are recorded here yet" in run_piped("runs", "--tally", empty)[1]

    code, output, errors = run_piped("runs", "--tally", str(tmp_path / "none"))
    assert (code, output) == (2, "")
    assert f"`tally remember TEXT --tally {tmp_path / 'none'}` makes one" in errors


def test_a_list_of_a_tally_with_many_users_names_them_and_says_whose_a_run_is(
    tmp_path: Path,
) -> None:
    place = str(tmp_path / "many")
    with Tally.open(place, background=False) as tally:
        bob = tally.user("bob")
        bob.remember("I am allergic to nuts.")
        bob.run("cook", goal="What can I eat?", metadata={"thread_id": "7"}).end()
    told = run_piped("memories", "--tally", place)[1]
    assert "There are memories of bob: look as one of them, tally --as bob …" in " ".join(
        told.split()
    )
    listed = run_piped("runs", "--tally", place)[1]
    assert "What can I eat?" in listed
    assert "bob, conversation 7, cook" in listed


def test_a_review_without_a_terminal_lists_what_waits(tmp_path: Path) -> None:
    place = str(tmp_path / "none")
    Tally.open(place, background=False).close()
    code, output, errors = run_piped("review", "--tally", place)
    assert (code, output, errors) == (0, "Nothing waits for a person.\n", "")
    assert run_piped("review", "--tally", place, "--json")[1].strip() == "[]"


def test_what_keeps_something_makes_the_tally_and_says_where(tmp_path: Path) -> None:
    place = tmp_path / "new"
    code, output, errors = run_piped("remember", "We indent with tabs.", "--tally", str(place))
    assert (code, errors) == (0, f"A new tally: {place}\n")
    assert "is remembered" in output
    assert run_piped("remember", "We dedent.", "--tally", str(place))[2] == ""


def test_an_id_goes_by_its_beginning_or_its_end_everywhere(run: Run, filled: FilledTally) -> None:
    for name, command in {
        "fact": "inspect",
        "run": "verify",
        "first": "why",
        "second": "recompile",
    }.items():
        for part in (filled.ids[name][-6:], filled.ids[name][:35]):
            assert run(command, part)[0] == 0, (command, part)
    assert "at least 6 characters" in run("inspect", filled.ids["fact"][-5:])[2]
    assert "Give more of it" in run("inspect", filled.ids["fact"][:6])[2]
    checkpoint = filled.ids["checkpoint"]
    [shown] = json.loads(run("state", "billing", checkpoint[-8:], "--json")[1])
    assert shown["checkpoint"] == checkpoint
    listed = json.loads(run("memories", "--scope", "project:apollo", "--json")[1])
    older = json.loads(
        run("memories", "--scope", "project:apollo", "--json", "--before", listed[0]["id"][-8:])[1]
    )
    assert older == listed[1:]
    dropped = run("recompile", filled.ids["first"], "--drop", filled.ids["fact"][-8:], "--json")
    [removed] = json.loads(dropped[1])["diff"]["removed"]
    assert removed["item_id"] == filled.ids["fact"]


def test_a_step_is_compiled_anew_with_other_weights_and_another_provider(
    run: Run, filled: FilledTally, tmp_path: Path
) -> None:
    step = filled.ids["first"]
    file = tmp_path / "weights.toml"
    file.write_text("[compile_weights]\ntrust = 0\n")
    again = json.loads(
        run(
            *("recompile", step, "--provider", "anthropic", "--json"),
            *("--weights", "importance=0", "--weights", str(file)),
        )[1]
    )
    assert again["recipe"]["provider_override"] == "anthropic"
    assert again["request"]["messages"][0]["role"] == "user"
    for more, message in (
        (("--send",), "Name the provider to send to"),
        (("--send", "--provider", "nobody"), "nobody is no provider that is installed"),
        (
            ("--send", "--provider", "openai", "--model", "gpt5"),
            "no model that the installed SDK of OpenAI knows. Did you mean gpt-5",
        ),
    ):
        code, _, errors = run("recompile", step, *more)
        assert code != 0
        assert message in " ".join(errors.split())
    assert again["recipe"]["score_weights"] == {"importance": 0, "trust": 0}
    [note] = [
        change
        for change in again["diff"]["rescored"]
        if change["item_id"] == "invoices/rounding_of_money.py"
    ]
    assert note["before"]["score_breakdown"]["importance"] > 0
    assert note["after"]["score_breakdown"]["importance"] == 0
    assert note["after"]["score_breakdown"]["trust"] == 0
    assert "~ score" in run("recompile", step, "--weights", "importance=0")[1]

    for weights, expected in (
        ("imprtance=0", "there is no such score weight; there are relevance, freshness"),
        ("trust=high", "a score weight is a whole number"),
        (str(tmp_path / "none.toml"), "No such file"),
    ):
        code, output, errors = run("recompile", step, "--weights", weights)
        assert (code, output, expected in errors) == (2, "", True), errors


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("show", "12345678"), "not_found", "no run or step"),
        (("memories", "--scope", "private:ada"), "denied", "tally --as USER"),
        (("remember", "x", "--scope", "project:zeus"), "denied", "tally --project NAME"),
        (("remember", "x", "--occurred-at", "soon"), "invalid_input", "ISO 8601 text such as"),
        (("recall", "x", "--scope", "nonsense"), "invalid_scope", "is not a scope"),
        (("recompile", "12345678", "--rules", "/none/rules.toml"), "not_found", "12345678"),
        (("export-receipt", "RUN", "--out", "/none/receipt"), "os_error", "/none/receipt: No such"),
        (("approve", "APPROVAL", "--reason", "x"), "invalid_input", "person at a terminal"),
        (("recall",), "usage", "Missing argument"),
        (("recover", "x"), "usage", 'Write: tally recover MEMORY --reason "…"'),
        (("recall", "x", "--limt", "3"), "usage", "--limit"),
        (("recall", "x", "--limit", "many"), "usage", "--limit"),
        (("memores",), "usage", "Did you mean 'memories'"),
        (("show", "STEP", "--budget", "half"), "usage", "No such option"),
        (("recompile", "STEP", "--budget", "half"), "invalid_input", "50%"),
        (("explore", "--depth", "7"), "usage", "--depth"),
    ],
)
def test_an_error_is_one_line_for_a_person_and_one_object_for_a_program(
    run: Run, filled: FilledTally, arguments: tuple[str, ...], code: str, words: str
) -> None:
    names = {"RUN": "run", "STEP": "first", "APPROVAL": "approval"}
    command = [filled.ids[names[word]] if word in names else word for word in arguments]
    exit_code, output, errors = run(*command)
    assert (exit_code, output) == (2, "")
    assert words in errors
    assert errors.startswith("tally: ")
    assert "Traceback" not in errors

    exit_code, output, errors = run(*command, "--json")
    assert (exit_code, errors) == (2, "")
    error = json.loads(output)
    assert set(error) == {"error"}
    assert set(error["error"]) == {"code", "message", "facts"}
    assert error["error"]["code"] == code
    assert words in error["error"]["message"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("task", "block", "12345678"), "Write: tally task block TASK BLOCKER"),
        (("document", "add"), "Write: tally document add FILE"),
        (("source-import", "replay", "12345678"), "source-import replay IMPORT RECORD"),
        (("jobs", "list", "12345678"), "Write: tally jobs list"),
        (("token", "list", "--user", "bob"), "tally token takes no --user here"),
        (("synthesize", "list", "--later"), "tally synthesize takes no --later here"),
        (("task", "start", "123"), "at least 6 characters"),
        (("source-import", "replay", "12345678", "a.md"), "There is no import"),
        (("working", "put"), "'put' is not one of"),
    ],
)
def test_an_action_says_how_it_is_written_and_takes_only_its_own_options(
    run: Run, arguments: tuple[str, ...], words: str
) -> None:
    code, output, errors = run(*arguments)
    assert (code, output, words in " ".join(errors.split())) == (2, "", True), errors


def test_columns_stand_where_they_are_named(run: Run) -> None:
    heads = {
        ("explore",): "scope read why memories kinds",
        ("preview-agent", "bob"): "scope may recall why visible hidden denied",
        ("approvals",): "id state when what",
    }
    for arguments, columns in heads.items():
        assert columns in " ".join(run(*arguments, columns=120)[1].split())


def test_facts_of_an_error_go_along_and_options_before_the_command_are_named() -> None:
    decision = AccessDecision(
        allowed=False, reason="missing_actor", operation="read", surface="cli"
    )
    assert failure_of(Denied(decision)).facts["reason"] == "missing_actor"
    assert failure_of(VersionConflict("id", expected=1, actual=2)).facts["actual"] == 2
    assert failure_of(NotFound("no")).code == "not_found"
    assert failure_of(TallyNotFound("no")).exit_code == 2
    assert failure_of(OSError("full")).message == "full."

    _, output, _ = run_piped("--json", "runs")
    assert "--json comes after the command" in json.loads(output)["error"]["message"]


def test_no_command_has_an_option_twice() -> None:
    commands = build_command().commands
    for name in commands:
        spelled = [spelling for each in commands[name].params for spelling in each.opts]
        assert len(spelled) == len({*spelled}), name


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        (("search", "tea"), "Write: tally recall QUERY."),
        (("add", "tea"), "Write: tally remember CONTENT."),
        (("get-all",), "Write: tally memories."),
        (("delete", "01"), 'Write: tally forget MEMORY|QUERY --reason "…".'),
        (("delete-user", "ada"), 'Write: tally erase-user USER --reason "…".'),
        (("memories", "--as", "ada"), "Write: tally --as … memories …"),
        (("recall", "tea", "--user", "ada"), "Write: tally --as … recall …"),
    ],
)
def test_what_users_of_other_memories_type_is_answered_with_the_line(
    typed: tuple[str, ...], line: str
) -> None:
    _, output, _ = run_piped(*typed, "--json")
    assert json.loads(output)["error"]["message"].endswith(line)


def test_the_help_that_an_error_names_is_the_command_by_whatever_name_it_was_called() -> None:
    command = [sys.executable, "-m", "tallystick_cli", "recall"]
    answer = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    assert answer.stderr.rstrip().endswith("All options: tally help recall")


def test_a_person_who_says_no_is_code_1_and_nothing_is_done(filled: FilledTally) -> None:
    arguments = ("deny", filled.ids["approval"], "--reason", "x", "--tally", str(filled.place))
    code, _, errors = run_at_terminal("no", *arguments)
    assert (code, "Nothing was done." in errors) == (1, True)
    code, output, _ = run_at_terminal("no", *arguments, "--json")
    assert (code, json.loads(output)["error"]["code"]) == (1, "aborted")


def test_a_text_is_remembered_with_its_moment_and_its_source(tmp_path: Path) -> None:
    place = str(tmp_path / "tally")
    assert run_piped("init", "--tally", place)[0] == 0
    stored = json.loads(
        run_piped(
            *("remember", "--json", "--tally", place, "--kind", "decision", "--tag", "kiln"),
            *("--speaker", "Ada", "--subject", "kiln", "--pin", "--importance", "80"),
            *("--occurred-at", "2026-03-01", "--source-uri", "https://kiln.example/log"),
            piped="The kiln fires\nat noon.\n",
        )[1]
    )
    assert stored["status"] == "created"
    [memory] = json.loads(run_piped("memories", "--kind", "decision", "--json", "-t", place)[1])
    assert memory["content"] == "The kiln fires\nat noon."
    assert (memory["pinned"], memory["importance"], memory["tags"]) == (True, 80, ["kiln"])
    assert memory["occurred_at"] == 1_772_323_200_000_000
    [hit] = json.loads(run_piped("recall", "kiln", "--json", "--tally", place)[1])["hits"]
    assert hit["sources"][0]["uri"] == "https://kiln.example/log"

    code, output, errors = run_piped("wake", "--tally", place)
    assert (code, "at noon." in output, "1 memory, " in errors) == (0, True, True)
    packed = json.loads(run_piped("pack", "when does it fire", "--json", "-t", place)[1])
    assert packed["items"][0]["id"].endswith(stored["id"][-8:])
    for since, count in (("2026-02-28T23:00", 1), ("2026-03-01T01:00+00:00", 0)):
        found = json.loads(run_piped("recall", "kiln", "--since", since, "--json", "-t", place)[1])
        assert len(found["hits"]) == count
    again = run_piped("remember", "The kiln fires\nat noon.", "--kind", "decision", "-t", place)
    assert f"{stored['id'][-8:]} in private:local says this already" in again[1]
    assert "`content` is empty" in run_piped("remember", "-t", place)[2]
    apollo = run_piped("--project", "apollo", "remember", "x", "-s", "project:apollo", "-t", place)
    assert (apollo[0], "is remembered in project:apollo" in apollo[1]) == (0, True)


def test_init_asks_once_at_a_terminal_and_writes_settings_beside_what_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / ".tally" / "tallystick.toml"
    file.parent.mkdir()
    file.write_text("# ours\n[compile_weights]\ntrust = 100\n")
    code, output, errors = run_at_terminal(
        "full_payloads\n90\n60\n14\nkeep\nEurope/Zurich", "init", "--json"
    )
    summary = json.loads(output)
    assert code == 0
    assert (summary["retention"], summary["journal_days"]) == ("full_payloads", 90)
    assert summary["tombstones_days"] == 60
    assert summary["written"] == {"retention": "full_payloads", "time_zone": "Europe/Zurich"}
    assert "The journal lists every change" in " ".join(errors.split())
    assert file.read_text() == (
        'time_zone = "Europe/Zurich"\nretention = "full_payloads"\n'
        "# ours\n[compile_weights]\ntrust = 100\n"
    )

    code, output, errors = run_at_terminal("", "init")
    assert (code, errors) == (0, "")
    assert "written to" not in output
    assert "until you choose" not in output
    stored = run_piped("remember", "x", "--occurred-at", "2026-07-01T12:00", "--json")
    [memory] = json.loads(run_piped("memories", "--json")[1])
    assert stored[0] == 0
    assert memory["occurred_at"] == 1_782_900_000_000_000

    code, _, errors = run_piped("init", "--retention", "metadata_only")
    assert (code, "already has retention = 'full_payloads'" in errors) == (2, True)
    code, output, _ = run_piped("init", "--tally", "other")
    assert (code, "until you choose: tally init --journal-days" in output) == (0, True)
    assert "names no time zone" in run_piped("init", "--time-zone", "Mars/Base")[2]


def test_a_person_trusts_a_settings_file_after_seeing_what_it_sets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    file = tmp_path / "tallystick.toml"
    file.write_text('readers = 2\nchroma = "http://elsewhere:8000"\n')
    assert "sets chroma, and whoever" in run_piped("init")[2]
    assert "needs a person at a terminal" in run_piped("trust")[2]
    code, _, errors = run_at_terminal("no", "trust")
    assert (code, "chroma = 'http://elsewhere:8000'" in errors, "readers" in errors) == (
        1,
        True,
        False,
    )
    assert "sets chroma, and whoever" in run_piped("init")[2]
    code, output, _ = run_at_terminal("trust", "trust")
    assert (code, "is trusted as it is now" in output) == (0, True)
    assert run_piped("init")[0] == 0
    assert "There is no file" in run_piped("trust", "nowhere.toml")[2]


def test_init_writes_to_the_file_that_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    named = tmp_path / "mine.toml"
    named.write_bytes(b"\xef\xbb\xbfreaders = 2\n")  # with the mark that some editors write
    monkeypatch.setenv("TALLYSTICK_SETTINGS", str(named))
    assert run_piped("init", "--retention", "metadata_only")[0] == 0
    assert named.read_text() == 'retention = "metadata_only"\nreaders = 2\n'
    assert not (tmp_path / ".tally" / "tallystick.toml").exists()


@pytest.mark.parametrize("command", ["runs", "approvals"])
def test_a_list_tells_how_to_see_what_is_older(run: Run, command: str) -> None:
    every = [each["id"] for each in json.loads(run(command, "--json")[1])]
    _, page, _ = run(command, "--limit", "1")
    following = json.loads(run(command, "--limit", "1", "--before", every[0][-8:], "--json")[1])

    assert f"There may be more: --before {every[0][-8:]}, or --limit." in page
    assert [each["id"] for each in following] == every[1:2]
    assert "There may be more" not in run(command, "--limit", str(len(every) + 1))[1]


def test_the_version_loads_nothing_that_a_command_needs() -> None:
    code = """
import sys
sys.argv = ["tally", "--version"]
from tallystick_cli import main
main()
heavy = ("pydantic", "typer", "rich", "sqlalchemy", "tallystick.records", "importlib.metadata")
print([name for name in heavy if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"tallystick {__version__}", "[]"]


def test_a_command_builds_itself_alone_and_loads_nothing_that_it_does_not_need(
    filled: FilledTally,
) -> None:
    code = """
import sys
from tallystick_cli import main
main()
from tallystick.operations import OPERATIONS
heavy = ("alembic", "chromadb", "numpy", "tokenizers", "tiktoken", "mcp", "fastapi", "jinja2")
files = ("access", "doors", "foreign", "memory", "receipts", "runs", "setup", "upkeep")
rooms = ("compiler.compile", "jobs.runner", "kit.rendering", "memory.correct", "memory.packs")
rooms += ("recorder.recordings", "tally.operator", "upkeep.backup", "upkeep.erase")
parts = ("graph.graph", "ingest.ingest", "learning.learner", "steward.steward", "work.work")
parts += ("comparing.comparing", "steward.alerts")
loaded = [*heavy, *(f"tallystick_cli.{name}" for name in files)]
loaded += [*(f"tallystick.{name}" for name in rooms), *(f"tallystick_{name}" for name in parts)]
built = [name for name in OPERATIONS if "arguments" in vars(OPERATIONS[name])]
print([name for name in loaded if name in sys.modules], built)
"""
    arguments = ["memories", "--json", "--tally", str(filled.place)]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[] ['memories']"
