"""A change that learning applied is taken back in one step through every door, and a change that is
held is read beside what it would change.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.core.learning.test_applied import NEW, OLD, QUOTED, SAID, known, learner, say
from tests.terminals import invoke, run_at_terminal

from tallystick import Actor, Tally
from tallystick.operations.tools import MEMORY_TOOLS
from tallystick.settings import Settings
from tallystick.tally import BoundTally
from tallystick_learning import Learning
from tallystick_mcp import serve

from .dashboard import Browser
from .mcp_clients import Person, connected, payload
from .served import ADA, Served, served

APPLY = Settings(learning="apply")
QUESTION = "Where does Anna live?"


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(
        tmp_path_factory.mktemp("learned"), settings=APPLY, learning_model=learner(), embedder=None
    ) as there:
        yield there


def learned(bound: BoundTally, text: str, session: str) -> str:
    """Let a tally learn from one turn; return the proposal."""
    if not any(each.content == OLD for each in bound.memories(kinds=["fact"])):
        known(bound)
    say(bound, text, session)
    [proposal] = Learning(bound).end_session(session).proposals
    return proposal.id


def over_python(there: Served, proposal_id: str) -> None:
    there.tally.bind(ADA).reviews.decide(proposal_id, "undo", reason="no")


def over_http(there: Served, proposal_id: str) -> None:
    with there.remote(ADA, token_class="session") as remote:
        remote.reviews.decide(proposal_id, "undo", reason="no")


def over_mcp(there: Served, proposal_id: str) -> None:
    async def undo() -> None:
        async with connected(serve(there.tally, actor=ADA), "auto", Person()) as client:
            done = await client.call_tool(
                "manage", {"action": "undo", "id": proposal_id, "reason": "no", "mode": "apply"}
            )
            assert not done.is_error, payload(done)

    asyncio.run(undo())


def over_the_dashboard(there: Served, proposal_id: str) -> None:
    with Browser(there.tcp, there.token(ADA, token_class="session")) as browser:
        page = browser.get(f"reviews/{proposal_id}")
        assert f"Said as: {SAID}" in page.text
        done = browser.send(page.form(f"/{proposal_id}"), decision="undo", reason="no")
        assert "The change was taken back." in done.text


@pytest.mark.parametrize("undo", [over_python, over_http, over_mcp, over_the_dashboard])
def test_an_applied_change_is_undone_in_one_step(
    there: Served, undo: Callable[[Served, str], None]
) -> None:
    bound = there.tally.bind(ADA)
    proposal_id = learned(bound, SAID, undo.__name__)
    assert bound.reviews.get(proposal_id).proposal.state == "applied"
    undo(there, proposal_id)
    assert bound.reviews.get(proposal_id).proposal.state == "undone"
    assert [hit.content for hit in bound.recall(QUESTION, kinds=["fact"])] == [OLD]


@pytest.fixture
def place(tmp_path: Path) -> tuple[str, str]:
    """A folder in which a change is applied."""
    folder = str(tmp_path / "tally")
    with Tally.open(folder, settings=APPLY, learning_model=learner(), background=False) as tally:
        bound = tally.bind()
        return folder, learned(bound, SAID, "monday")


def test_a_person_undoes_a_change_at_a_terminal(place: tuple[str, str]) -> None:
    folder, applied = place
    code, output, _ = run_at_terminal("undo\nno\n", "review", applied, "--tally", folder)
    assert (code, "1 of 1 proposals were decided" in output) == (0, True), output
    with Tally.open(folder, background=False) as tally:
        assert tally.bind().reviews.get(applied).proposal.state == "undone"


def test_a_held_change_is_read_beside_its_memory(tmp_path: Path) -> None:
    folder = str(tmp_path / "tally")
    with Tally.open(folder, settings=APPLY, learning_model=learner(), background=False) as tally:
        bound = tally.bind()
        learned(bound, QUOTED, "monday")
        answer = MEMORY_TOOLS["memory_search"].function(bound, QUESTION)
        [found] = [each for each in answer["memories"] if each["text"] == OLD]
        assert [(each["text"], each["action"]) for each in found["held"]] == [(SAID, "UPDATE")]
    shown = invoke(["recall", QUESTION, "--tally", folder], env={"COLUMNS": "200"}).output
    assert f"quoted, not confirmed: {SAID}" in shown


def test_the_memory_tool_replaces_a_memory_where_the_user_said_so(tmp_path: Path) -> None:
    store = MEMORY_TOOLS["memory_store"].function
    with Tally.open(
        tmp_path, settings=APPLY, learning_model=learner(None), background=False
    ) as tally:
        person, agent = tally.bind(Actor(user="anna")), tally.bind(Actor(user="anna", agent="bot"))
        old = known(person)
        refused = store(agent, NEW, span=SAID)
        assert refused["error"] == "InvalidInput"
        say(person, SAID)
        done = store(agent, NEW, kind="fact", span=SAID, replaces=old)
        assert done["change"] == "applied"
        for kind in ("pattern", "rule", "tool", "concept", "warning"):
            assert store(agent, f"A {kind} of the code.", kind=kind)["status"] == "created"


def test_a_shadow_is_a_table_that_a_person_reads(tmp_path: Path) -> None:
    folder = str(tmp_path / "tally")
    settings = Settings(learning="shadow")
    with Tally.open(folder, settings=settings, learning_model=learner(), background=False) as tally:
        bound = tally.bind()
        known(bound)
        say(bound, SAID)
        say(bound, QUOTED)
        Learning(bound).end_session("monday")
    arguments = ["reviews", "--state", "shadow", "--tally", folder]
    table = invoke(arguments, env={"COLUMNS": "200"}).output
    [row] = [line for line in table.splitlines() if NEW in line]
    assert ("shadow" in row, "update" in row, "yes" in row, OLD in row) == (True,) * 4
    shown: list[dict[str, Any]] = json.loads(invoke([*arguments, "--json"]).output)
    assert [(each["state"], each["content"]["span"]) for each in shown] == [("shadow", SAID)]


@pytest.mark.parametrize(("said", "change"), [(SAID, "applied"), (QUOTED, "held")])
def test_an_agent_over_mcp_is_told_what_became_of_its_change(
    tmp_path: Path, said: str, change: str
) -> None:
    async def add(tally: Tally, old: str) -> dict[str, Any]:
        async with connected(serve(tally, actor=Actor(user="anna")), "auto", Person()) as client:
            given = {"content": NEW, "kind": "fact", "replaces": old, "span": SAID}
            return payload(await client.call_tool("add", given))

    with Tally.open(
        tmp_path, settings=APPLY, learning_model=learner(None), background=False
    ) as tally:
        person = tally.bind(Actor(user="anna"))
        old = known(person)
        say(person, said)
        assert asyncio.run(add(tally, old))["change"] == change
