"""Memory in the dashboard: found, inspected, and changed by a preview and then its token."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tallystick import Actor
from tallystick.errors import NotFound
from tallystick_server.dashboard.changes import CHANGES

from .dashboard import HOSTILE, Browser, play, rows_of
from .served import ADA, BOB, Served, served

EVE = Actor(user="eve", projects={"apollo"}, role="operator")


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("memory")) as there:
        yield there


@pytest.fixture(scope="module")
def ada(there: Served) -> Iterator[Browser]:
    with Browser(there.tcp, there.token(ADA, token_class="session")) as browser:
        yield browser


def remember(there: Served, text: str, actor: Actor = ADA, scope: str | None = None) -> str:
    return there.tally.bind(actor, scope).remember(text, kind="fact").id


def test_a_scope_lists_its_memories_page_by_page(there: Served) -> None:
    dora = Actor(user="dora")
    for number in range(90):
        remember(there, f"Note n{number} of many.", dora)
    with Browser(there.tcp, there.token(dora, token_class="session")) as browser:
        pages = [browser.get("memory")]
        while older := [link for link in pages[-1].links if re.search(r"before=[\w-]+$", link)]:
            pages.append(browser.get(older[0]))

    numbers = [re.findall(r"\bn(\d+) of", page.text) for page in pages]
    assert [len(page) for page in numbers] == [40, 40, 10]
    assert [n for page in numbers for n in page] == [str(n) for n in range(89, -1, -1)]


def test_a_search_shows_hits_with_the_signals_that_ranked_them(there: Served, ada: Browser) -> None:
    memory_id = remember(there, "The kiln is fired on Tuesdays.")
    remember(there, "Something about the kiln of the project.", ADA, "project:apollo")
    page = ada.send(ada.get("memory").form("/memory"), q="When is the kiln fired?")

    assert any(memory_id in link for link in page.links)
    assert "visible to private:ada" in page.text
    assert "visible to project:apollo" in page.text
    assert re.search(r"0\.\d\d .*(words|text|vector) \d\.\d\d", page.text)
    inside = ada.get("memory?q=kiln&scope=project:apollo")
    assert "Tuesdays" not in inside.text
    assert ada.get("memory?scope=nonsense:x").status == 422
    assert ada.get("memory?scope=private:bob").status == 403


def test_inspecting_says_what_it_is_who_sees_it_and_what_used_it(
    there: Served, ada: Browser
) -> None:
    played = play(there.tally, ADA)
    page = ada.get(f"memories/{played.memory_id}")

    for text in ("The heron nests in March", "Visible to", "private:ada", "Used by", "in context"):
        assert text in page.text, text
    assert any(link.endswith(f"/steps/{played.step_id}") for link in page.links)
    source = ada.get(f"sources/{played.source_id}")
    assert "As it arrived The heron nests in March, in the reeds." in source.text
    assert any(link.endswith(f"/memories/{played.memory_id}") for link in source.links)


def test_a_correction_is_previewed_and_then_changes_recall(tmp_path: Path) -> None:
    with served(tmp_path) as there:
        wrong = remember(there, "The vat holds ninety litres.")
        right = remember(there, "The vat holds eighty litres.")
        bound = there.tally.bind(ADA)
        with Browser(there.tcp, there.token(ADA, token_class="session")) as ada:
            before = rows_of(tmp_path / "tally")
            asked = ada.get(f"memories/{wrong}/supersede")
            preview = ada.send(asked.form("/supersede"), reason="measured", by=right)
            unchanged = rows_of(tmp_path / "tally")
            applied = ada.send(preview.form("/supersede"))

        assert before == unchanged
        assert "active → replaced" in preview.text
        assert "Nothing has been changed yet" in preview.text
        assert (applied.status, "The correction was applied" in applied.text) == (200, True)
        hits = bound.recall("How much does the vat hold?")
        assert [hit.memory.id for hit in hits] == [right]
        assert bound.history(wrong)[-1].surface == "dashboard"
        assert bound.history(wrong)[-1].reason == "measured"


@pytest.mark.parametrize("change", [name for name in CHANGES if name not in ("erase", "recover")])
def test_each_change_is_previewed_and_then_applied_once(
    there: Served, ada: Browser, change: str
) -> None:
    bound = there.tally.bind(ADA)
    memory_id = remember(there, f"Something to {change}.")
    other = remember(there, f"Another beside {change}.")
    if change == "restore":
        bound.corrections.make(
            memory_id,
            "hide",
            reason="first",
            mode="apply",
            confirm_token=bound.corrections.make(memory_id, "hide", reason="first").confirm_token,
        )
    fields = {
        "modify": {"content": f"Said anew about {change}.", "tags": "a, b", "importance": "70"},
        "mark_duplicate": {"by": other},
        "supersede": {"by": other},
        "redact": {"field": "content", "replacement": "[gone]"},
        "promote": {"into": "project:apollo"},
        "share": {"into": "project:apollo"},
    }.get(change, {})
    entries = len(bound.inspect(memory_id).history)
    preview, applied = ada.correct(memory_id, change, **fields)
    again = ada.send(preview.form(f"/{change}"))

    assert preview.status == 200, preview.text
    assert applied is not None
    assert applied.status == 200, applied.text
    assert applied.url.endswith(f"note={CHANGES[change].note}")
    assert again.status == 200, again.text
    assert len(bound.inspect(memory_id).history) == entries + 1


def test_what_was_forgotten_is_recovered(there: Served, ada: Browser) -> None:
    memory_id = remember(there, "Keep the ladder dry.")
    ada.correct(memory_id, "delete")
    with pytest.raises(NotFound):
        there.tally.bind(ADA).get(memory_id)
    assert "Keep the ladder dry" not in ada.get("memory?q=ladder").text
    _, applied = ada.correct(memory_id, "recover")

    assert applied is not None
    assert "was recovered" in applied.text
    assert there.tally.bind(ADA).get(memory_id).content == "Keep the ladder dry."


def test_an_operator_erases_with_a_preview_and_no_page_has_the_text_again(tmp_path: Path) -> None:
    with served(tmp_path) as there:
        memory_id = remember(there, "The quokka sleeps at dawn.", EVE)
        bound = there.tally.bind(EVE)
        with bound.run("zoo") as run, run.step("model_call", name="ask") as step:
            bound.compile(list(bound.recall("quokka")), budget=500, query="quokka")
        with Browser(there.tcp, there.token(EVE, token_class="session")) as eve:
            assert "quokka" in eve.get(f"steps/{step.id}").text
            preview, applied = eve.correct(memory_id, "erase")
            assert "payloads of 1 recorded steps" in preview.text
            assert applied is not None
            assert "was erased" in applied.text
            for page in eve.crawl("", f"steps/{step.id}", f"memories/{memory_id}", "memory"):
                assert "quokka" not in page.source.replace("q=quokka", ""), page.url
        with Browser(there.tcp, there.token(EVE)) as personal:
            kept = remember(there, "The wombat digs.", EVE)
            _, refused = personal.correct(kept, "erase")
        assert refused is not None
        assert (refused.status, "person" in refused.text) == (403, True)


def test_a_preview_of_what_has_changed_since_is_refused(there: Served, ada: Browser) -> None:
    memory_id = remember(there, "The gate is green.")
    asked = ada.get(f"memories/{memory_id}/hide")
    hide = ada.send(asked.form("/hide"), reason="so").form("/hide")
    edit = ada.get(f"memories/{memory_id}/modify").form("/modify")
    edited = ada.send(edit, reason="so", content="The gate is blue.").form("/modify")
    there.tally.bind(ADA).modify(memory_id, reason="meanwhile", content="The gate is red.")

    assert ada.send(hide).status == 409
    assert ada.send(edited).status == 409
    assert there.tally.bind(ADA).get(memory_id).content == "The gate is red."


def test_a_preview_is_good_for_what_it_showed_alone(there: Served, ada: Browser) -> None:
    first = remember(there, "The first of two.")
    second = remember(there, "The second of two.")
    form = ada.send(ada.get(f"memories/{first}/hide").form("/hide"), reason="so").form("/hide")
    form.action = form.action.replace(first, second)

    assert ada.send(form).status in (403, 409)
    assert ada.send(form, confirm_token="").status == 403
    assert there.tally.bind(ADA).get(second).content == "The second of two."


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"reason": " "}, 422),
        ({"reason": "so", "by": "nothing-there"}, 404),
        ({"reason": "so", "by": ""}, 422),
        ({"reason": "so", "by": "x", "valid_from": "soon"}, 422),
    ],
)
def test_a_malformed_form_gets_a_plain_page(
    there: Served, ada: Browser, fields: dict[str, str], status: int
) -> None:
    memory_id = remember(there, "As it is.")
    form = ada.get(f"memories/{memory_id}/supersede").form("/supersede")
    page = ada.send(form, **fields)

    assert (page.status, "Traceback" in page.source) == (status, False)
    assert there.tally.bind(ADA).get(memory_id).version == 1


def test_another_user_finds_and_changes_none_of_it(there: Served, ada: Browser) -> None:
    memory_id = remember(there, "The safe is behind the painting.")
    [source_id] = there.tally.bind(ADA).inspect(memory_id).sources
    with Browser(there.tcp, there.token(BOB, token_class="session")) as bob:
        own = remember(there, "Mine.", BOB)
        form = bob.get(f"memories/{own}/hide").form("/hide")
        form.action = form.action.replace(own, memory_id)
        pages = [
            bob.get("memory?q=painting"),
            bob.get("spaces?user=ada"),
            bob.get("spaces/access?user=ada"),
            bob.get(f"memories/{memory_id}"),
            bob.get(f"memories/{memory_id}/modify"),
            bob.get(f"sources/{source_id}"),
            bob.send(form, reason="so"),
        ]

    assert [page.status for page in pages] == [200, 200, 200, 404, 404, 404, 404]
    for page in pages:
        assert "behind the" not in page.source
        assert page.url.endswith(memory_id) or memory_id[-8:] not in page.text.replace(
            memory_id, ""
        )


def test_a_token_for_one_scope_is_shown_that_one_alone(there: Served, ada: Browser) -> None:
    remember(there, "The anvil is private.")
    remember(there, "The anvil of apollo.", ADA, "project:apollo")
    assert "private:ada" in ada.get("memory").text
    narrow = there.token(ADA, token_class="session", scopes=["project:apollo"])
    with Browser(there.tcp, narrow) as browser:
        pages = [browser.get("memory"), browser.get("memory?q=anvil"), browser.get("approvals")]

    for page in pages:
        assert page.status == 200, page.url
        assert "is private" not in page.text
        assert "private:ada" not in page.text
    assert "The anvil of apollo." in pages[1].text


def test_what_is_hidden_or_redacted_is_on_no_page_of_memory(there: Served, ada: Browser) -> None:
    hidden = remember(there, "The xylophone is borrowed.")
    redacted = remember(there, "The marimba is stolen.")
    ada.correct(hidden, "hide")
    ada.correct(redacted, "redact", replacement="[an instrument]")
    sources = [there.tally.bind(ADA).inspect(each).sources[0] for each in (hidden, redacted)]

    for path in (
        "memory?q=xylophone+marimba",
        "memory",
        "memory?state=hidden",
        "memory?state=redacted",
        f"memories/{hidden}",
        f"memories/{redacted}",
        *(f"sources/{source}" for source in sources),
    ):
        page = ada.get(path)
        assert page.status == 200, path
        assert "is borrowed" not in page.source, path
        assert "is stolen" not in page.source, path


def test_a_memory_names_what_contradicts_it(there: Served, ada: Browser) -> None:
    open_ = remember(there, "The pond is open on Sundays.")
    closed = there.tally.bind(ADA).remember("The pond is closed.", contradicts=[open_]).id

    page = ada.get(f"memories/{open_}")
    assert "Contradicted by" in page.text
    assert any(link.endswith(f"memories/{closed}") for link in page.links)
    ada.correct(closed, "hide")
    assert "Contradicted by" not in ada.get(f"memories/{open_}").text


def test_text_that_means_harm_is_text_in_every_form(there: Served, ada: Browser) -> None:
    memory_id = remember(there, HOSTILE)
    for change in CHANGES:
        page = ada.get(f"memories/{memory_id}/{change}")
        assert page.elements.get("script") == 2, change
        assert "<b>49" not in page.source
    form = ada.get(f"memories/{memory_id}/modify").form("/modify")
    assert form.fields["content"] == HOSTILE
    _, applied = ada.correct(memory_id, "modify", content=f"{HOSTILE}\nand more")

    assert applied is not None
    assert there.tally.bind(ADA).get(memory_id).content == f"{HOSTILE}\nand more"


def test_what_somebody_could_recall_is_counted_scope_by_scope(there: Served, ada: Browser) -> None:
    remember(there, "For all of apollo.", ADA, "project:apollo")
    remember(there, "For ada alone.", ADA)
    asked = ada.get("spaces?user=ada&projects=apollo")
    page = ada.get(next(link for link in asked.links if "/spaces/access?" in link))
    export = ada.get("export?scope=private:ada")
    counts = ada.get(next(link for link in export.links if "/export/counts?" in link))

    assert re.search(r"project:apollo yes allowed project \d", page.text)
    assert "tally export FOLDER" in export.text
    assert re.search(r"Memories [1-9]", counts.text)
    assert ada.get("export/counts?scope=private:bob").status == 403
    assert ada.get("spaces/access").status == 422
