"""Pages of a tally with many users: whose a run is, and whose memories a step has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tallystick import Actor, ContextItem, Tally
from tallystick.storage.rows import journal
from tallystick.tally.services import services_of

from .dashboard import Browser, Page
from .served import ROOT, Served, served

MIA, BOB = Actor(user="mia"), Actor(user="bob")
SECRET = "The flour comes from Berger."


def ask(tally: Tally, actor: Actor, thread: str, question: str) -> str:
    """Record a run that recalls and compiles; return the id of its step."""
    bound = tally.bind(actor)
    run = bound.run("baker", goal=question, metadata={"thread_id": thread})
    with run, run.step("model_call", name="model") as step:
        hits = bound.recall(question, limit=2)
        item = ContextItem(id="ask", kind="user_msg", content=question)
        bound.compile([item, *hits], budget=2_000)
        step.record("request", {"messages": [hit.content for hit in hits]})
    run.end()
    return step.id


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("people")) as there:
        there.tally.bind(MIA).remember(SECRET)
        ask(there.tally, MIA, "1", "Good morning")
        ask(there.tally, BOB, "1", "Am I allergic to anything?")
        ask(there.tally, MIA, "1", "Where does our flour come from?")
        yield there


@pytest.fixture(scope="module")
def owner(there: Served) -> Iterator[Browser]:
    with Browser(there.tcp, there.token(ROOT, token_class="session")) as browser:
        yield browser


def test_runs_stand_by_conversation_with_their_user_and_first_words(owner: Browser) -> None:
    page = owner.get("runs")

    listed = re.findall(r"(?:mia|bob) , conversation 1|2 runs", page.text)
    assert listed == ["mia , conversation 1", "2 runs", "bob , conversation 1"]
    words = ["Where does our flour come from?", "Good morning", "Am I allergic to anything?"]
    assert [page.text.index(each) for each in words] == sorted(map(page.text.index, words))


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("user=bob", {"Am I allergic"}),
        ("user=mia&thread=1", {"Where does", "Good morning"}),
        ("q=flour", {"Where does"}),
        ("q=mia", {"Where does", "Good morning"}),
        ("agent=nobody", set()),
    ],
)
def test_runs_are_filtered_by_user_conversation_agent_and_words(
    owner: Browser, query: str, found: set[str]
) -> None:
    text = owner.get(f"runs?{query}").text
    assert {
        each for each in ("Where does", "Good morning", "Am I allergic") if each in text
    } == found


def test_the_memory_of_another_is_closed_until_it_is_opened_which_is_journaled(
    there: Served, owner: Browser
) -> None:
    run = there.tally.bind(MIA).recordings.runs()[0]
    [step] = there.tally.bind(MIA).recordings.steps(run.id)

    closed = owner.get(f"steps/{step.id}")
    before = looks(there.tally)
    assert "a memory of mia" in closed.text
    assert SECRET not in closed.source
    [link] = [
        link for link in closed.links if "/items/" in link and "a memory" in _text(closed, link)
    ]
    opened = owner.get(link, site="same-origin")
    assert SECRET in opened.text
    after = looks(there.tally)
    assert after > before
    [memory] = opened_memories(there.tally)
    assert there.tally.bind(MIA).get(memory or "").content in opened.text

    with Browser(there.tcp, there.token(MIA, token_class="session")) as mia:
        assert SECRET in mia.get(f"steps/{step.id}").text
    assert looks(there.tally) == after
    assert opened_memories(there.tally) == [memory]


def opened_memories(tally: Tally) -> list[str | None]:
    """Ids of the memories of mia that the journal says somebody else has opened."""
    with services_of(tally).store.database.read() as connection:
        entries = journal.entries(connection, "scope:private:mia")
        return [entry.subject_id for entry in entries if entry.event == "memory.opened"]


def _text(page: Page, link: str) -> str:
    """What a link of a page says."""
    tail = link.rpartition("/ui/")[2].removeprefix("steps/")
    said: list[str] = re.findall(rf'href="{re.escape(tail)}">([^<]*)<', page.source)
    assert len(said) == 1
    return said[0]


def looks(tally: Tally) -> int:
    with services_of(tally).store.database.read() as connection:
        entries = journal.entries(connection, "scope:private:mia")
        return sum(entry.event == "recording.read" for entry in entries)


def test_the_steps_of_a_long_run_are_searched(there: Served, owner: Browser) -> None:
    with there.tally.bind(ROOT).run("long") as run:
        for number in range(1_203):
            run.step("tool_call", name="search" if number % 400 else f"pay {number}").end(
                wait=False
            )
    run.end()

    page = owner.get(f"runs/{run.id}?q=pay")
    assert re.findall(r"pay \d+", page.text) == ["pay 0", "pay 400", "pay 800", "pay 1200"]
    assert "pay 0" not in owner.get(f"runs/{run.id}?q=nothing").text


def test_a_search_within_a_run_reads_what_was_said_and_names_the_step_where_it_comes_up(
    there: Served, owner: Browser
) -> None:
    with there.tally.bind(ROOT).run("long") as run:
        messages = ["Hello."]
        for said in ("The heron nests in “Märch”.", "Nothing new.", "A gull came."):
            messages.append(said)
            with run.step("model_call", name=f"after {said.split()[1]}") as step:
                step.record("request", {"messages": [*messages, "word " * 300]})
                step.record("response", {"text": "Noted."})
    run.end()

    def steps(query: str) -> list[str]:
        return re.findall(r"after (?:heron|new|gull)", owner.get(f"runs/{run.id}?q={query}").text)

    assert steps("nests+in+“märch”") == ["after heron"]
    assert steps("GULL") == ["after gull"]
    assert steps("noted") == ["after heron", "after new", "after gull"]
    assert steps("stork") == []


def test_an_empty_tally_shows_the_lines_to_paste_with_its_place(tmp_path: Path) -> None:
    with served(tmp_path) as there:
        secret = there.token(ROOT, token_class="session")
        with Browser(there.tcp, secret) as browser:
            for room in ("overview", "runs"):
                page = browser.get(room)
                assert f"Tally.open('{tmp_path / 'tally'}')" in page.text
                for line in (
                    "TallySaver(tally)",
                    "TallyMiddleware(tally, capture=",
                    "TallyRetriever",
                ):
                    assert line in page.text


def test_a_text_is_remembered_after_a_preview(there: Served) -> None:
    with Browser(there.tcp, there.token(MIA, token_class="session")) as mia:
        form = mia.get("make/remember").form("/make/remember")
        preview = mia.send(form, content="We open at six.", kind="fact", tags="hours, shop")
        assert "Nothing has been changed yet." in preview.text
        assert "Read by mia" in preview.text
        assert "We open at six." not in [each.content for each in there.tally.bind(MIA).memories()]
        done = mia.send(preview.form("/make/remember"))
        assert "It is remembered." in done.text
    newest = there.tally.bind(MIA).memories()[0]
    assert (newest.content, newest.kind, set(newest.tags)) == (
        "We open at six.",
        "fact",
        {"hours", "shop"},
    )


def test_a_space_is_opened_and_its_members_changed_after_a_preview(
    there: Served, owner: Browser
) -> None:
    def change(**fields: str) -> str:
        preview = owner.send(
            owner.get("make/space").form("/make/space"), reason="new team", **fields
        )
        assert preview.status == 200, preview.text
        owner.send(preview.form("/make/space"))
        return preview.text

    told = change(scope="team:bakers", name="Bakers", member="user:mia", role="writer")
    assert "Could then" in told
    assert "user mia as writer" in told
    change(scope="team:bakers", member="bob")
    assert members(there.tally) == {"mia": "writer", "bob": "reader"}
    assert "No longer in it bob" in change(scope="team:bakers", member="bob", role="none")
    assert members(there.tally) == {"mia": "writer"}


def members(tally: Tally) -> dict[str, str]:
    space = tally.bind(ROOT).spaces.get("team:bakers")
    return {member.principal_id: member.role for member in space.members}


def test_a_conversation_is_reflected_on_after_a_preview_and_only_where_reflection_is_on(
    there: Served,
) -> None:
    there.tally.bind(MIA).remember("We bake on Mondays.", kind="turn", conversation="plan-1")
    with Browser(there.tcp, there.token(MIA, token_class="session")) as mia:
        form = mia.get("make/reflect").form("/make/reflect")
        preview = mia.send(form, conversation="plan-1")
        assert "A model reads 1 memories" in preview.text
        assert "We bake on Mondays." in preview.text
        assert "Reflection is off." in mia.send(preview.form("/make/reflect")).text
        assert mia.send(form, conversation="nowhere").status == 404
