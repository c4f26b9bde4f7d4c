"""The overview of the dashboard, the days of a scope, who has read, and reviews that a person
decides.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.scripted import concluder

from tallystick import Actor
from tallystick.errors import Denied
from tallystick.records import NewMemory, Scope
from tallystick.settings import Settings
from tallystick.tally import BoundTally
from tallystick_imports import import_memories
from tallystick_learning import Learning
from tallystick_work import Work

from .dashboard import HOSTILE, Browser, Page, play, rows_of
from .served import ADA, BOB, ROOT, Served, served

DECISION = "We decided to fire the kiln on Tuesdays."


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("days")
    with served(
        folder, settings=Settings(reflection="review"), learning_model=concluder()
    ) as there:
        yield there


@pytest.fixture(scope="module")
def ada(there: Served) -> Iterator[Browser]:
    with Browser(there.tcp, there.token(ADA, token_class="session")) as browser:
        yield browser


def suggest(there: Served, text: str, actor: Actor = ADA) -> tuple[BoundTally, str]:
    """A proposal that waits for a person."""
    bound = there.tally.bind(actor)
    memory = bound.remember(text, kind="episode")
    [proposal] = Learning(bound).reflect([memory.id]).proposals
    return bound, proposal.id


def test_the_overview_shows_what_waits_and_what_happened_lately(
    there: Served, ada: Browser
) -> None:
    bound, _ = suggest(there, "We decided to paint the shed green.")
    play(there.tally, ADA)
    agent = there.tally.bind(ADA.replace(agent="scribe"))
    agent.recall("Which colour has the shed?")
    page = ada.get("")

    assert page.url.endswith("/overview")
    for text in (
        "Waits for you",
        "paint the shed green",
        "Somebody wrote",
        "scribe for ada",
        "recall private:ada",
        "birdwatcher",
    ):
        assert text in page.text, text
    recalls = ada.get("reads?operation=recall")
    assert "ada scribe" in recalls.text
    assert "inspect private" not in recalls.text
    assert bound.recordings.reads(operation="recall", limit=1)[0].agent == "scribe"


def test_imports_and_reflections_are_listed_with_their_numbers(
    there: Served, tmp_path: Path
) -> None:
    eva = Actor(user="eva")
    lines = [{"content": f"Boat {n} is {HOSTILE} blue."} for n in range(3)]
    file = tmp_path / "boats.jsonl"
    file.write_text("\n".join([*map(json.dumps, lines), "no json"]))
    bound, _ = suggest(there, DECISION, eva)
    with Browser(there.tcp, there.token(eva, token_class="session")) as browser:
        before = browser.get("imports")
        import_memories(bound, "jsonl", file)
        previewed = browser.get("imports")
        import_memories(bound, "jsonl", file, mode="apply")
        import_memories(bound, "jsonl", file, mode="apply")
        imports, reflections = browser.get("imports"), browser.get("reflections")
        overview = browser.get("overview")

    assert "Nothing was imported" in before.text
    assert "Nothing was imported" in previewed.text
    assert "jsonl private:eva 3 0 1 eva" in imports.text
    assert "jsonl private:eva 0 3 1 eva" in imports.text
    assert "private:eva 1 1 1 eva" in reflections.text
    assert "3 from jsonl" in overview.text
    assert "1 suggested of 1 read" in overview.text
    facts = [event.facts for event in bound.recordings.activity(events=["memory.imported"])]
    assert [each["created"] for each in facts] == [3, 0]
    assert bound.recordings.activity(events=["memory.none"]) == []


def test_another_user_sees_nothing_of_it(there: Served, ada: Browser) -> None:
    _, proposal_id = suggest(there, "We decided to sell the barn.")
    there.tally.bind(ADA).recall("barn")
    with Browser(there.tcp, there.token(BOB, token_class="session")) as browser:
        pages = [
            browser.get(path)
            for path in (
                "",
                "reads",
                "imports",
                "reflections",
                "diary",
                "reviews",
                "diary?scope=private:ada",
                f"reviews/{proposal_id}",
            )
        ]
        own = browser.get("reviews")
        form = own.form("/sign-out")
        form.action = form.action.replace("sign-out", f"reviews/{proposal_id}")
        forged = browser.send(form, decision="accept", reason="mine")

    assert [page.status for page in pages] == [200, 200, 200, 200, 200, 200, 403, 404]
    assert forged.status == 404
    for page in (*pages, forged):
        assert "barn" not in page.source
        assert page.url.endswith("private:ada") or "private:ada" not in page.text
    with pytest.raises(Denied):
        there.tally.bind(BOB, "private:ada").recordings.activity()


def test_a_day_tells_captures_runs_and_decisions_in_order(there: Served) -> None:
    dora = Actor(user="dora")
    bound, proposal_id = suggest(there, DECISION, dora)
    note = bound.remember(f"A note, {HOSTILE}", kind="fact")
    with bound.run("potter", goal="Fire the kiln."):
        pass
    bound.forget(note.id, reason="it was a joke about HERONS")
    with Browser(there.tcp, there.token(dora, token_class="session")) as browser:
        page = browser.get("diary")
        before = browser.get("diary?day=2001-01-01")
        odd = browser.get("diary?day=soon")

    said = [page.text.index(text) for text in ("captured We decided", "suggested", "ran potter")]
    assert said == sorted(said)
    assert any(link.endswith(f"/reviews/{proposal_id}") for link in page.links)
    assert "forgot not shown" in page.text
    assert "HERONS" not in page.source  # a reason may quote what nobody is shown any more
    assert "A note" not in page.source
    assert "Nothing happened" in before.text
    assert odd.status == 422


def test_a_long_day_is_read_page_by_page(there: Served) -> None:
    eli = Actor(user="eli")
    there.tally.bind(eli).remember_many([f"Event n{number} of many." for number in range(450)])
    with Browser(there.tcp, there.token(eli, token_class="session")) as browser:
        first = browser.get("diary")
        second = browser.get(next(link for link in first.links if "after=" in link))

    numbers = [[n for n in range(450) if f"n{n} of" in page.text] for page in (first, second)]
    assert numbers[0][0] == 0
    assert sorted({*numbers[0], *numbers[1]}) == list(range(450))


def _decided(ada: Browser, proposal_id: str, decision: str, **fields: str) -> Page:
    page = ada.get(f"reviews/{proposal_id}")
    return ada.send(page.form(f"/{proposal_id}"), decision=decision, **fields)


def test_a_person_accepts_edits_defers_and_rejects(there: Served, ada: Browser) -> None:
    texts = [
        f"We decided to {do}." for do in ("buy a lamp", "sell a rug", "keep a cat", "cut wood")
    ]
    bound = there.tally.bind(ADA)
    ids = [suggest(there, text)[1] for text in texts]
    listed = ada.get("reviews")
    assert all(any(link.endswith(proposal_id) for link in listed.links) for proposal_id in ids)

    accepted = _decided(ada, ids[0], "accept", reason="yes")
    edited = _decided(ada, ids[1], "accept", reason="rather", content="Sell the red rug.")
    deferred = _decided(ada, ids[2], "defer", reason="ask Bo")
    rejected = _decided(ada, ids[3], "reject", reason="no")

    states = [bound.reviews.get(proposal_id).proposal for proposal_id in ids]
    assert [each.state for each in states] == ["accepted", "edited", "deferred", "rejected"]
    assert [each.decided_reason for each in states] == ["yes", "rather", "ask Bo", "no"]
    assert bound.get(states[1].made or "").content == "Sell the red rug."
    assert "is a memory now" in accepted.text
    assert "Sell the red rug." in edited.text
    assert "It waits on." in deferred.text
    assert "was rejected" in rejected.text
    assert bound.reviews.get(ids[0]).history[-1].surface == "dashboard"


@pytest.mark.parametrize(
    ("fields", "status"),
    [({"reason": " "}, 422), ({"decision": "burn"}, 422), ({"form_key": "x"}, 403)],
)
def test_a_malformed_decision_changes_nothing(
    there: Served, ada: Browser, fields: dict[str, str], status: int
) -> None:
    bound, proposal_id = suggest(there, f"We decided to try {status} {sorted(fields)[0]}.")
    form = ada.get(f"reviews/{proposal_id}").form(f"/{proposal_id}")

    assert ada.send(form, **{"decision": "accept", "reason": "so", **fields}).status == status
    assert bound.reviews.get(proposal_id).proposal.state == "pending"
    assert ada.get("reviews/nothing").status == 404
    assert ada.get("reviews?state=odd").status == 422


def test_what_a_run_keeps_in_working_memory_is_on_its_page(there: Served, ada: Browser) -> None:
    bound = there.tally.bind(ADA)
    with bound.run("planner") as run:
        bound.working.set("plan", ["fetch water", HOSTILE])
    page = ada.get(f"runs/{run.id}/working")

    assert "fetch water" in page.text
    assert page.elements["script"] == 2
    with Browser(there.tcp, there.token(BOB, token_class="session")) as bob:
        assert bob.get(f"runs/{run.id}/working").status == 404


def test_what_a_session_is_shown_is_on_the_page_of_its_runs(there: Served, ada: Browser) -> None:
    bound = there.tally.bind(ADA)
    kept = bound.remember("Hedgehogs sleep from November to March.", kind="fact").id
    bound.working_set("Hello", conversation="winter")
    with bound.run("planner", metadata={"thread_id": "winter"}) as run:
        pass
    page = ada.get(f"runs/{run.id}/working")

    assert "Hedgehogs sleep from November" in page.text
    assert "fact, profile" in page.text
    assert ada.get(f"memories/{kept}").status == 200
    bound.forget(kept, reason="they do not")
    assert "Hedgehogs" not in ada.get(f"runs/{run.id}/working").text


def test_reading_these_pages_changes_nothing(there: Served, ada: Browser, tmp_path: Path) -> None:
    folder = Path(there.tally.location)
    suggest(there, "We decided to read a book.")
    there.tally.bind(ADA).recordings.reads()
    ada.get("")
    before = rows_of(folder)
    for path in ("overview", "reads", "imports", "reflections", "diary", "reviews"):
        assert ada.get(path).status == 200
    assert rows_of(folder) == before


def test_an_operator_reads_who_has_read_and_no_memory_of_others(there: Served) -> None:
    there.tally.bind(ADA).recall("kiln")
    root = there.tally.bind(ROOT)

    assert {each.user for each in root.recordings.reads(limit=500)} >= {"ada"}
    with pytest.raises(Denied):
        there.tally.bind(ROOT, Scope.parse("private:ada")).recordings.activity()


def test_work_is_a_board_with_what_blocks_whom_and_the_dependencies_drawn(tmp_path: Path) -> None:
    with served(tmp_path) as there:
        bound = there.tally.bind(ADA)
        work = Work(bound)
        first = bound.remember("Order the timber.", kind="task").id
        second = bound.remember(
            "Build the shed <b>now</b>.",
            kind="task",
            depends_on=[first],
            attributes={"assignee": "Ann", "priority": "high"},
        ).id
        third = bound.remember("Paint the boat.", kind="task").id
        work.start(third)
        work.block(third, "The paint is frozen.")
        with Browser(there.tcp, there.token(ADA, token_class="session")) as browser:
            page = browser.get("work")
            of_ann = browser.get("work?assignee=Ann")
            memory = browser.get(f"memories/{second}")
        with Browser(there.tcp, there.token(BOB, token_class="session")) as bob:
            foreign = bob.get("work")
            closed = bob.get("work?scope=private:ada")

    assert page.elements["circle"] == 2
    assert page.elements["line"] == 1
    assert "The paint is frozen." in page.text
    assert "waits for" in page.text
    assert "<b>now" not in page.source
    assert "Paint the boat." not in of_ann.text
    assert "high" in memory.text
    assert closed.status == 403
    assert "timber" not in foreign.source + closed.source


def test_no_open_task_leaves_the_board_for_those_that_are_over(tmp_path: Path) -> None:
    with served(tmp_path) as there:
        bound = there.tally.bind(ADA)
        work = Work(bound)
        oldest = bound.remember("Mend the roof.", kind="task").id
        work.start(oldest)
        work.block(oldest, "The ladder is lent.")
        bound.remember_many(
            [
                NewMemory(content=f"Errand {number}", kind="task", attributes={"status": "done"})
                for number in range(201)
            ]
        )
        with Browser(there.tcp, there.token(ADA, token_class="session")) as browser:
            board = browser.get("work")
            work.unblock(oldest)
            going_on = browser.get("work")

    assert "blocked 1" in board.text
    assert "The ladder is lent." in board.text
    assert "doing 1" in going_on.text
    assert "The ladder is lent." not in going_on.text


def test_communities_are_a_picture_with_words(tmp_path: Path) -> None:
    pytest.importorskip("graspologic_native")
    with served(tmp_path, settings=Settings(graph=True)) as there:
        bound = there.tally.bind(ADA)
        bound.remember_many(
            [
                NewMemory(
                    content="Anna Schmidt sails the Seeadler from Hamburg.",
                    entities=("Anna Schmidt", "Seeadler", "Hamburg"),
                ),
                "In Hamburg we met Anna Schmidt at the harbour.",
                "The Seeadler left Hamburg with Anna Schmidt at dawn.",
            ]
        )
        there.tally.drain()
        with Browser(there.tcp, there.token(ADA, token_class="session")) as browser:
            page = browser.get("communities")
            named = browser.get("communities?q=Anna+Schmidt")
            none = browser.get("communities?q=quarterly+tax+declaration")
        with Browser(there.tcp, there.token(BOB, token_class="session")) as bob:
            foreign = bob.get("communities")
            closed = bob.get("communities?scope=private:ada")

    for each in (page, named):
        assert "3 memories. About Anna Schmidt, Hamburg, Seeadler." in each.text
        assert each.elements["circle"] == 1
    assert "None about" in none.text
    assert closed.status == 403
    assert "Anna" not in foreign.source + closed.source
