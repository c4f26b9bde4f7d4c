"""A tally of every schema version still opens, verifies, plays, replays and goes on.

Each was made by the code of its time: tests/fixtures/recordings/make.py says how. None is missing: there never was a
version 0005. Version 0009 is the newest, and its tally was made before its release.
"""

from __future__ import annotations

import re
import sqlite3
import tarfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tallystick import Actor, Tally
from tallystick.records import RunRecord
from tallystick.storage import migrate

FIXTURES = Path(__file__).parents[1] / "fixtures" / "recordings"
ARCHIVES = sorted(FIXTURES.glob("schema-*.tar.xz"))
KEY = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD"
OTHER_KEY = "sk-proj-0123456789abcdefghijklmnopqrstuvwxyzABCD"

pytestmark = pytest.mark.skipif(not ARCHIVES, reason="the fixtures are out of reach here")


def _version(place: Path) -> str:
    """The schema version that stands in a tally's file."""
    with closing(sqlite3.connect(place / "tally.db")) as database:
        (version,) = database.execute("SELECT version_num FROM alembic_version").fetchone()
    return str(version)


@pytest.fixture(params=ARCHIVES, ids=lambda path: path.name.removesuffix(".tar.xz"))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of an old tally."""
    with tarfile.open(request.param) as archive:
        # Early releases of Python 3.11 know no filter; the archive is our own.
        options: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        archive.extractall(tmp_path / "tally", **options)
    assert request.param.name == f"schema-{_version(tmp_path / 'tally')}.tar.xz"
    return tmp_path / "tally"


@pytest.fixture
def tally(place: Path) -> Iterator[Tally]:
    """An old tally, opened by the code of today."""
    with Tally.open(place, background=False) as opened:
        yield opened


def _run(tally: Tally) -> RunRecord:
    [run] = tally.bind().runs()
    return run


def test_every_schema_version_is_kept() -> None:
    versions = Path(migrate.__file__).parent / "migrations" / "versions"
    known = {path.name[:4] for path in versions.glob("0*.py")}
    assert max(known) == migrate.HEAD
    assert {re.sub(r"\D", "", path.name.removesuffix(".tar.xz")) for path in ARCHIVES} == known
    assert max(path.stat().st_size for path in ARCHIVES) < 40_000


def test_an_old_tally_opens_and_is_brought_to_the_schema_of_today(place: Path) -> None:
    with Tally.open(place, background=False) as tally:
        assert tally.owner is not None
        assert tally.owner.user == "anna"
        run = _run(tally)
        assert (run.agent_name, run.user_goal, run.status, run.retention) == (
            "keeper", "feed the heron", "completed", "redacted_payloads",
        )  # fmt: skip
    assert _version(place) == migrate.HEAD


def test_an_old_run_verifies_and_its_receipt_goes_out(tally: Tally, tmp_path: Path) -> None:
    from tallystick.recorder import verify_bundle

    run = _run(tally)
    answer = tally.recorder.verify(run.run_id)
    assert (answer.ok, answer.problems, answer.gaps) == (True, (), {})
    assert (answer.receipts, answer.payloads_absent) == (3, 0)
    assert answer.payloads_checked >= 8

    bundle = tmp_path / "run.receipt"
    bundle.write_bytes(tally.recorder.export_receipt(run.run_id))
    assert verify_bundle(bundle, foil=answer.foil).ok


def test_what_was_tampered_with_in_an_old_run_is_found(place: Path) -> None:
    with closing(sqlite3.connect(place / "tally.db")) as database, database:
        changed = database.execute("UPDATE step_entries SET summary = '{\"tool\":\"other\"}' WHERE kind = 'tool_call'")
        assert changed.rowcount == 1
    with Tally.open(place, background=False) as tally:
        assert not tally.recorder.verify(_run(tally).run_id).ok


def test_an_old_run_plays_as_a_tape(tally: Tally) -> None:
    def asked(key: str, *more: dict[str, str]) -> dict[str, Any]:
        said = [
            {"role": "system", "content": f"You help Anna. The key is {key}."},
            {"role": "user", "content": "What does my heron eat?"},
        ]
        return {"model": "scripted", "messages": [*said, *more]}

    result = {"role": "tool", "content": "fish", "tool_call_id": "call_1"}
    for key in (KEY, OTHER_KEY):
        player = tally.recorder.player(_run(tally).run_id)
        first: Any = player.model(asked(key))
        assert first["answer"] == {"content": "I look it up."}
        assert player.tool("look_up", {"arguments": {"bird": "heron"}}) == "fish"
        last: Any = player.model(asked(key, result))
        assert last["answer"] == {"content": "It eats fish."}
        report = player.finish()
        assert (report.fidelity, report.matches) == ("exact_redacted", True)


def test_an_old_step_is_made_again_and_compiled_anew(tally: Tally) -> None:
    step = tally.recorder.steps(_run(tally).run_id)[0]
    exact = tally.recorder.replay(step.step_id, call=lambda request: {"answer": {"content": "I look it up."}})
    assert (exact.fidelity, exact.request_matches, exact.response_matches) == ("exact_redacted", True, True)

    known = tally.recorder.knew(step.step_id)
    assert {item.says for item in known} >= {"The heron eats three fish a day."}
    eaten = next(item for item in known if item.says == "The heron eats three fish a day.")
    changed = tally.recorder.replay(step.step_id, context_mutations={eaten.item_id: None})
    assert changed.diff is not None
    assert eaten.item_id in [one.item_id for one in changed.diff.removed]


def test_an_old_memory_is_recalled_and_leads_to_its_source(tally: Tally) -> None:
    anna = tally.bind()
    best = anna.recall("How many fish does the heron eat?")[0]
    assert best.memory.content == "The heron eats three fish a day."
    step = tally.recorder.steps(_run(tally).run_id)[0]
    [origin] = tally.recorder.trace(step.step_id, "three fish a day")
    assert (origin.memory_id, origin.raw) == (best.memory.id, "The heron eats three fish a day.")
    assert step.step_id in [use.step.step_id for use in tally.recorder.uses(best.memory.id)]


def test_work_goes_on_in_an_old_tally(tally: Tally) -> None:
    anna = tally.bind()
    stored = anna.remember("The heron moved to the harbour.")
    assert anna.recall("Where is the heron?")[0].memory.id == stored.memory_id
    with anna.run("keeper") as run, run.step("model_call") as step:
        step.record("request", {"prompt": "Where is it?"})
        step.record("response", {"answer": "At the harbour."})
    assert [tally.recorder.verify(one.run_id).ok for one in anna.runs()] == [True, True]
    findings = tally.bind(Actor(user="anna", role="operator")).doctor()
    assert [finding.text for finding in findings if finding.status == "problem"] == []


def test_an_old_thread_of_checkpoints_is_read_and_goes_on(tally: Tally) -> None:
    pytest.importorskip("langgraph")
    from langgraph.graph import START, MessagesState, StateGraph

    from tallystick_langgraph import TallySaver

    graph: Any = StateGraph(MessagesState)
    graph.add_node("answer", lambda state: {"messages": [("ai", f"answer {len(state['messages'])}")]})
    graph.add_edge(START, "answer")
    chat = graph.compile(checkpointer=TallySaver(tally))
    config = {"configurable": {"thread_id": "birds"}}

    said = ["one", "answer 1", "two", "answer 3"]
    assert [message.content for message in chat.get_state(config).values["messages"]] == said
    histories = [len(state.values.get("messages", ())) for state in chat.get_state_history(config)]
    assert histories == [4, 3, 2, 2, 1, 0]
    after = chat.invoke({"messages": [("user", "three")]}, config)
    assert [message.content for message in after["messages"]] == [*said, "three", "answer 5"]
