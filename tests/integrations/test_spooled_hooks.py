"""Hooks that only tell: their events wait beside the tally, and the next process that opens it
takes them through the function that answers hooks, in order, once.
"""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tallystick import Actor, Tally
from tallystick.spool import FOLDER, list_events
from tallystick.tally import BoundTally
from tallystick.testing.tally_contract import effects
from tallystick_hooks import event_from
from tallystick_hooks.taking import leave_event

SECRET = "ghp_" + "a8Kd02JdLs93Mf7QpXz41VbNcTgHyUeWo6Ri"
HEAVY = {"typer", "pydantic", "sqlalchemy", "numpy", "tallystick.tally", "http.client"}
_HOOK = f"""
import sys
from tallystick_cli import main
try:
    main()
finally:
    print(sorted({HEAVY!r} & set(sys.modules)), file=sys.stderr)
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    with Tally.open(tmp_path / "t", background=False) as tally:
        tally.bind()
    return tmp_path / "t"


def hook(place: Path | str, event: str, *options: str, **payload: Any) -> dict[str, Any]:
    """Answer an event in a process of its own, without a server."""
    ended = subprocess.run(
        [sys.executable, "-c", _HOOK, "hook", event, "-t", str(place), *options],
        input=json.dumps({"session": "s1", **payload}),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    *told, heavy = ended.stderr.splitlines()
    assert told == []
    assert heavy == "[]"
    answer: dict[str, Any] = json.loads(ended.stdout) if ended.stdout else {}
    return answer


def tools_of(bound: BoundTally) -> list[str | None]:
    """Names of the tool calls that were recorded to their end, in order."""
    runs = bound.recordings.runs()
    return [
        step.name
        for run in reversed(runs)
        for step in bound.recordings.steps(run.id)
        if step.step_kind == "tool_call" and step.status == "completed"
    ]


def test_telling_loads_no_core_and_is_taken_in_order_once(place: Path) -> None:
    answers = [
        hook(place, "after-tool", tool="ls", result="a"),
        hook(place, "turn-end", turns=[{"speaker": "user", "text": "We moved to Zurich."}]),
        hook(place, "after-tool", tool="cat", result="b", arguments={"n": [1, None]}),
        hook(place, "session-end", turns=[{"speaker": "user", "text": "We moved to Zurich."}]),
    ]
    waiting = list_events(str(place))
    assert [f"{each['facts']['spooled']}.json" for each in answers] == waiting

    for _ in range(2):
        with Tally.open(place, background=False) as tally:
            bound = tally.bind()
            assert tools_of(bound) == ["ls", "cat"]
            assert [turn.content for turn in bound.memories(kinds=("turn",))] == [
                "We moved to Zurich."
            ]
            events = [run.metadata["event"] for run in reversed(bound.recordings.runs())]
            assert events == ["after-tool", "turn-end", "after-tool", "session-end"]
            assert all(bound.recordings.verify(run.id).ok for run in bound.recordings.runs())
        assert list_events(str(place)) == []


def test_a_turn_has_the_time_at_which_it_was_told(place: Path) -> None:
    told = hook(place, "turn-end", turns=[{"speaker": "user", "text": "We moved to Zurich."}])
    moment = int(told["facts"]["spooled"].partition("-")[0]) // 1_000

    with Tally.open(place, background=False) as tally:
        [turn] = tally.bind().memories(kinds=("turn",))

    assert turn.occurred_at == moment
    assert turn.created_at > moment


def test_without_rules_nobody_is_asked_before_a_tool(place: Path) -> None:
    assert hook(place, "before-tool", tool="ls") == {}
    assert list_events(str(place)) == []


def test_the_scope_and_the_agent_of_a_hook_are_kept_with_its_event(tmp_path: Path) -> None:
    owner = Actor(user="ann", projects={"apollo"}, role="operator")
    with Tally.open(tmp_path / "t", background=False, owner=owner):
        pass
    options = ("--boundary", "project:apollo", "--agent", "scribe")
    hook(tmp_path / "t", "after-tool", *options, tool="ls", result="a")

    with Tally.open(tmp_path / "t", background=False) as tally:
        [run] = tally.bind(None, "project:apollo").recordings.runs()
        assert str(run.scope) == "project:apollo"
        assert "scribe" in {each["actor"]["agent"] for each in effects(tally)}


def test_secrets_are_replaced_when_an_event_is_taken_and_its_file_is_removed(place: Path) -> None:
    hook(place, "after-tool", tool="env", result=f"TOKEN={SECRET}")
    hook(place, "turn-end", turns=[{"speaker": "user", "text": f"The token is {SECRET}."}])
    assert all(SECRET in file.read_text() for file in (place / FOLDER).glob("*.json"))

    with Tally.open(place, background=False):
        pass

    assert not any(
        SECRET.encode() in file.read_bytes() for file in place.rglob("*") if file.is_file()
    )


def test_erasing_a_user_reaches_what_waits_while_the_tally_is_open(place: Path) -> None:
    with Tally.open(place, background=False) as tally:
        tally.bind().remember("Rain is due.")
        hook(place, "turn-end", turns=[{"speaker": "user", "text": "We moved to Zurich."}])
        operator = tally.bind().operator
        preview = operator.erase_user("local", reason="left")
        hook(place, "turn-end", turns=[{"speaker": "user", "text": "And then to Basel."}])
        preview = operator.erase_user("local", reason="left")
        operator.erase_user(
            "local", reason="left", mode="apply", confirm_token=preview.confirm_token
        )

        assert tally.bind().memories() == []
    assert list_events(str(place)) == []
    assert not any(b"Zurich" in file.read_bytes() for file in place.rglob("*") if file.is_file())


def test_an_event_that_is_refused_is_counted_and_the_doctor_says_so(place: Path) -> None:
    with Tally.open(place, background=False) as tally:
        tally.bind().operator.freeze(reason="audit")
    hook(place, "turn-end", turns=[{"speaker": "user", "text": "We moved to Zurich."}])
    hook(place, "after-tool", "--boundary", "project:of-others", tool="ls", result="a")
    hook(place, "after-tool", tool="cat", result="a")

    with Tally.open(place, background=False) as tally:
        bound = tally.bind()
        assert [run.gaps for run in reversed(bound.recordings.runs())] == [0, 1, 0]
        assert tools_of(bound) == ["cat"]
        [finding] = [each for each in bound.operator.doctor() if each.check == "recorder"]
    assert finding.status == "notice"
    assert "1 thing could not be recorded" in finding.text
    assert "1 event of no run could not be recorded" in finding.text
    assert list_events(str(place)) == []


def test_an_event_of_a_later_release_waits_with_those_after_it(place: Path) -> None:
    hook(place, "after-tool", tool="ls", result="a")
    hook(place, "after-tool", tool="cat", result="a")
    first, second = list_events(str(place))
    event = json.loads((place / FOLDER / first).read_text())
    (place / FOLDER / first).write_text(json.dumps({**event, "v": event["v"] + 1}))

    with Tally.open(place, background=False) as tally:
        [finding] = [each for each in tally.bind().operator.doctor() if each.check == "spool"]
        assert tally.bind().recordings.runs() == []
    assert (finding.status, finding.text[:14]) == ("notice", "2 events wait ")
    assert list_events(str(place)) == [first, second]


def test_an_event_of_an_earlier_release_is_taken(place: Path) -> None:
    """Events had neither a path nor an id of their own."""
    hook(place, "after-tool", tool="ls", result="a", call_id="c1")
    [name] = list_events(str(place))
    event = json.loads((place / FOLDER / name).read_text())
    told = {key: v for key, v in event["body"]["event"].items() if key not in ("path", "event_id")}
    older = {**event, "v": 1, "body": {**event["body"], "event": told}}
    (place / FOLDER / name).write_text(json.dumps(older))

    with Tally.open(place, background=False) as tally:
        assert tools_of(tally.bind()) == ["ls"]


def test_many_processes_that_open_at_once_take_each_event_once(place: Path) -> None:
    for number in range(6):
        hook(place, "after-tool", tool=f"tool-{number}", result="a")

    def open_it() -> None:
        command = "import sys; from tallystick import Tally; Tally.open(sys.argv[1]).close()"
        subprocess.run([sys.executable, "-c", command, str(place)], timeout=120, check=True)

    with ThreadPoolExecutor(3) as pool:
        for each in [pool.submit(open_it) for _ in range(3)]:
            each.result()

    with Tally.open(place, background=False) as tally:
        assert tools_of(tally.bind()) == [f"tool-{number}" for number in range(6)]


_TAKER = """
import os, signal, sys
from pathlib import Path
from tallystick.tally import spooled, Tally
def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)
at = sys.argv[2]
if at == "before":
    spooled.import_module = die
elif at == "begun":
    import tallystick_hooks.taking
    tallystick_hooks.taking.take = die
elif at == "half":
    import tallystick_hooks.handling
    tallystick_hooks.handling.record_tool_result = die
elif at == "run":
    from tallystick.recorder import Run
    Run.end = die
else:
    Path.unlink = die
Tally.open(sys.argv[1], background=False)
"""


@pytest.mark.slow
@pytest.mark.parametrize("at", ["before", "begun", "half", "run", "committed"])
def test_a_process_that_is_killed_while_it_takes_an_event_loses_none_and_doubles_none(
    place: Path, at: str
) -> None:
    """Before anything of the event, with its mark, within its run, and after its commit."""
    hook(place, "after-tool", tool="ls", result="a", call_id="c1")
    hook(place, "turn-end", turns=[{"speaker": "user", "text": "We moved to Zurich."}])
    killed = subprocess.run([sys.executable, "-c", _TAKER, str(place), at], timeout=120)
    assert killed.returncode == -9
    assert len(list_events(str(place))) == 2

    with Tally.open(place, background=False) as tally:
        bound = tally.bind()
        assert tools_of(bound) == ["ls"]
        assert [turn.content for turn in bound.memories(kinds=("turn",))] == ["We moved to Zurich."]
    assert list_events(str(place)) == []


def test_memories_that_an_agent_gives_are_answered_and_do_not_wait(place: Path) -> None:
    told = {"session": "s1", "memories": [{"content": "Anna has a dog."}]}
    event = event_from(told, "session-end")

    assert leave_event(str(place), event, boundary=None, agent=None) is None
    assert list_events(str(place)) == []
