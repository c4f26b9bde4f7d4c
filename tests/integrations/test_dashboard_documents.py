"""Documents in the dashboard: imports with their counters, a document with its passages, a form."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tallystick.records import JsonObject
from tallystick.settings import Settings
from tallystick_ingest import Ingest
from tallystick_server.guard import COOKIE

from .dashboard import Browser
from .served import ADA, BOB, Served, served


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("documents")) as there:
        yield there


@pytest.fixture(scope="module")
def ada(there: Served) -> Iterator[Browser]:
    with Browser(there.tcp, there.token(ADA, token_class="session")) as browser:
        yield browser


@pytest.fixture(scope="module")
def birds(there: Served, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that was imported."""
    folder = tmp_path_factory.mktemp("birds")
    (folder / "heron.md").write_text("# Birds\n\n## Herons\n\nThe heron nests in <b>March</b>.")
    (folder / "empty.md").write_text("")
    Ingest(there.tally.bind(ADA)).start_import(folder, adapter="files")
    there.tally.drain()
    return folder


def test_imports_and_documents_of_a_scope_are_listed(ada: Browser, birds: Path) -> None:
    page = ada.get("documents")
    assert birds.name in page.text
    assert "1 empty" in page.text
    [link] = [each for each in page.links if "/source-imports/" in each]
    shown = ada.get(link)
    assert "completed" in shown.text
    assert "empty.md empty nothing" in shown.text


def test_a_document_shows_its_passages_as_text(ada: Browser, birds: Path) -> None:
    [link] = [each for each in ada.get("documents").links if "/ui/documents/" in each]
    page = ada.get(link)
    assert page.text.count("Birds") >= 1
    assert "Herons 9 words" in page.text
    assert "The heron nests in <b>March</b>." in page.text
    assert any("/memories/" in each for each in page.links)


def test_a_text_is_added_after_a_preview(ada: Browser) -> None:
    form = ada.get("make/document").form("/make/document")
    preview = ada.send(form, content="## Storks\n\nThe stork sleeps.", name="storks.md")
    assert "Passages" in preview.text
    added = ada.send(preview.form("/make/document"))
    assert "The stork sleeps." in added.text
    assert "It is remembered." in added.text


def test_a_file_is_added_by_the_form_of_a_browser(there: Served, ada: Browser) -> None:
    form = ada.get("documents").form("/documents/file")
    file = ("rails.md", b"# Rails\n\nThe rail hides in the reeds.", "application/octet-stream")
    headers = {"sec-fetch-site": "same-origin", "origin": there.tcp}
    headers["cookie"] = f"{COOKIE}={ada.secret}"
    sent = ada.http.post(
        "/ui/documents/file",
        data={"form_key": form.fields["form_key"]},
        files={"file": file},
        headers=headers,
    )
    assert sent.status_code == 303, sent.text
    assert "The rail hides in the reeds." in ada.get(sent.headers["location"]).text
    refused = ada.http.post("/ui/documents/file", files={"file": file}, headers=headers)
    assert refused.status_code in (403, 409)


def test_a_schedule_is_shown_and_ended_by_its_page(
    there: Served, ada: Browser, tmp_path: Path
) -> None:
    ingest = Ingest(there.tally.bind(ADA))
    options: JsonObject = {"exclude": ["*.tmp"]}
    started = ingest.start_import(tmp_path, adapter="files", options=options, schedule="0 3 1 1 *")
    there.tally.drain()
    page = ada.get(f"source-imports/{started.id}")
    assert "0 3 1 1 *" in page.text
    assert "*.tmp" in page.text
    ada.send(page.form(f"/source-imports/{started.id}"), action="cancel")
    assert ingest.import_status(started.id).due_at is None


def test_an_import_is_paused_and_ended_by_its_page(
    there: Served, ada: Browser, tmp_path: Path
) -> None:
    started = Ingest(there.tally.bind(ADA)).start_import(tmp_path, adapter="files")
    page = ada.get(f"source-imports/{started.id}")
    form = page.form(f"/source-imports/{started.id}")
    assert "paused" in ada.send(form, action="pause").text
    assert ada.send(form, action="explode").status == 422
    assert "cancelled" in ada.send(form, action="cancel").text


def test_nobody_else_sees_a_document_or_an_import(there: Served, ada: Browser, birds: Path) -> None:
    links = [
        each
        for each in ada.get("documents").links
        if "/ui/documents/" in each or "/source-imports/" in each
    ]
    with Browser(there.tcp, there.token(BOB, token_class="session")) as bob:
        assert birds.name not in bob.get("documents").text
        assert {bob.get(each).status for each in links} == {404}


def test_a_source_is_imported_after_a_preview_and_again(tmp_path: Path) -> None:
    (tmp_path / "birds").mkdir()
    (tmp_path / "birds" / "owl.md").write_text("# Owls\n\nThe owl hunts at night.")
    settings = Settings.read(source_roots=(str(tmp_path / "birds"),))
    ask = {"adapter": "files", "target": str(tmp_path / "birds"), "schedule": "0 3 * * *"}
    with (
        served(tmp_path, settings=settings) as there,
        Browser(there.tcp, there.token(ADA, token_class="session")) as ada,
    ):
        preview = ada.send(ada.get("make/import").form("/make/import"), **ask)
        assert "1 records owl.md" in preview.text
        assert Ingest(there.tally.bind(ADA)).imports() == []
        started = ada.send(preview.form("/make/import"))
        assert "0 3 * * *" in started.text
        there.tally.drain()
        [done] = Ingest(there.tally.bind(ADA)).imports()
        assert done.counters.stored == 1
        [link] = [each for each in ada.get(f"source-imports/{done.id}").links if "/make/" in each]
        again = ada.get(link).form("/make/import")
        assert again.fields["target"] == ask["target"]
        assert "Unchanged 1 records" in ada.send(again).text


def test_a_source_outside_of_the_roots_is_refused_on_the_page(ada: Browser, tmp_path: Path) -> None:
    form = ada.get("make/import").form("/make/import")
    assert "source_roots" in ada.send(form, adapter="files", target=str(tmp_path)).text
