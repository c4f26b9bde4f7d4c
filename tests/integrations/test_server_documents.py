"""Documents over HTTP: the client has the verbs of `Ingest`, and a file comes as base64."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tallystick.errors import InvalidInput, NotFound, NotOfFormat
from tallystick.settings import Settings
from tallystick_server import RemoteTally

from .served import ADA, BOB, Served, served

SOURCE = "tests.core.ingest.folder_source:Folder"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("birds")
    for number in range(12):
        (folder / f"{number:02}.md").write_text(f"## Heron\n\nHeron {number} nests here.")
    return folder


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Iterator[Served]:
    settings = Settings(
        sources={"folder": SOURCE}, source_roots=(folder,), served_sources=("folder",)
    )
    with served(tmp_path_factory.mktemp("documents"), settings=settings) as there:
        yield there


@pytest.fixture
def ada(there: Served) -> Iterator[RemoteTally]:
    with there.remote(ADA) as ada:
        yield ada


def test_a_document_is_added_and_read_over_http(ada: RemoteTally, there: Served) -> None:
    added = ada.ingest.add_document("## Storks\n\nThe stork sleeps.", name="storks.md")
    assert [each.section_path for each in ada.ingest.chunks(added.id)] == [("Storks",)]
    assert ada.ingest.document(added.id).title == "storks.md"
    data = base64.b64encode(b"## Cranes\n\nThe crane calls.").decode()
    sent = ada.ingest.add_document(data=data, name="cranes.md")
    assert (sent.outcome, sent.chunks) == ("created", 1)
    assert {each.id for each in ada.ingest.documents()} == {added.id, sent.id}
    with there.remote(BOB) as bob, pytest.raises(NotFound):
        bob.ingest.document(added.id)


def test_an_import_is_started_followed_and_steered_over_http(
    ada: RemoteTally, there: Served, folder: Path
) -> None:
    started = ada.ingest.start_import(str(folder), adapter="folder")
    assert ada.ingest.pause(started.id).state == "paused"
    assert ada.ingest.resume(started.id).state == "pending"
    there.tally.drain()
    done = ada.ingest.import_status(started.id)
    assert (done.state, done.counters.stored) == ("completed", 12)
    assert [each.state for each in ada.ingest.import_records(started.id, limit=2)] == [
        "indexed",
        "indexed",
    ]
    (folder / "03.md").unlink()
    synced = ada.ingest.start_import(str(folder), adapter="folder")
    there.tally.drain()
    preview = ada.ingest.remove_vanished(synced.id, reason="gone")
    removed = ada.ingest.remove_vanished(
        synced.id, reason="gone", mode="apply", confirm_token=preview.confirm_token
    )
    assert removed.forgotten == 1


def test_what_may_not_be_read_is_refused_over_http(ada: RemoteTally, folder: Path) -> None:
    with pytest.raises(InvalidInput, match="source_roots"):
        ada.ingest.start_import("/etc", adapter="folder")
    with pytest.raises(NotOfFormat):
        ada.ingest.start_import(str(folder / "04.md"), adapter="mailbox")


async def test_the_same_is_awaited(ada: RemoteTally) -> None:
    added = await ada.aio.ingest.add_document("The ibis walks.", name="ibis.md")
    assert added.outcome == "created"


def test_a_file_is_added_by_a_form_over_http(there: Served) -> None:
    token = there.token(ADA)
    file = (
        "cranes.md",
        b"# Cranes\n\nThe crane calls at \xe2\x98\xba dawn.\r\n--x\r\n",
        "text/markdown",
    )
    with httpx2.Client(base_url=there.tcp, headers={"Authorization": f"Bearer {token}"}) as client:
        sent = client.post(
            "/v1/documents/file", files={"file": file}, data={"url": "https://birds.example/c"}
        )
        assert sent.status_code == 200, sent.text
        added = sent.json()["result"]
        assert (added["title"], added["media_type"]) == ("Cranes", "text/markdown")
        assert added["url"] == "https://birds.example/c"
        for content, status in ((b"--x", 422), (b"--x\r\n\r\n", 422), (b"", 422)):
            headers = {"content-type": "multipart/form-data; boundary=x"}
            answer = client.post("/v1/documents/file", content=content, headers=headers)
            assert answer.status_code == status, answer.text
        assert client.post("/v1/memories", files={"file": file}).status_code == 415
