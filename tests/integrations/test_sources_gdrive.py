"""A drive is read whole once, and by its feed of changes from then on."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from tallystick.testing.source_contract import Source, SourceContract
from tallystick_ingest.contract import (
    AuthorizationNeeded,
    Checkpoint,
    NotOfFormat,
    RateLimitReached,
    Removed,
    Skipped,
    SourceRecord,
    Unchanged,
    Yielded,
)
from tallystick_sources.gdrive import OWN_DRIVE, GoogleDriveSource

_DOCUMENT = "application/vnd.google-apps.document"


_REFUSED = {b"too large": "exportSizeLimitExceeded", b"withheld": "cannotDownloadFile"}


class Drive:
    """A drive as the third version of the interface shows it, in memory."""

    def __init__(self, server: HTTPServer) -> None:
        self.files: dict[str, dict[str, Any]] = {}
        self.bodies: dict[str, bytes] = {}
        self.feed: list[dict[str, Any]] = []
        self.refusal: Response | None = None
        self.downloads: list[str] = []
        server.clear()
        server.expect_request("/about").respond_with_handler(self._about)
        server.expect_request("/drives").respond_with_json({"drives": [{"id": "0A", "name": "T"}]})
        server.expect_request("/drives/0A").respond_with_json({"id": "0A", "name": "Team"})
        server.expect_request(re.compile("/drives/.+")).respond_with_data("", 404)
        server.expect_request("/changes/startPageToken").respond_with_handler(
            lambda _: _json({"startPageToken": str(len(self.feed))})
        )
        server.expect_request("/changes").respond_with_handler(self._changes)
        server.expect_request("/files").respond_with_handler(self._list)
        server.expect_request(re.compile("/files/.+")).respond_with_handler(self._file)
        self.url = server.url_for("/")

    def put(self, identity: str, body: bytes, kind: str = "text/markdown", **more: Any) -> None:
        """Make or change a file."""
        version = int(self.files.get(identity, {"version": 0})["version"]) + 1
        self.files[identity] = {
            "id": identity,
            "name": f"{identity}.md",
            "mimeType": kind,
            "version": str(version),
            "modifiedTime": "2026-03-02T10:00:00.000Z",
            "parents": ["root"],
            "owners": [{"displayName": "Ada", "emailAddress": "ada@example.org"}],
            **more,
        }
        self.bodies[identity] = body
        self.feed.append(
            {"changeType": "file", "fileId": identity, "file": dict(self.files[identity])}
        )

    def remove(self, identity: str) -> None:
        """Take a file away."""
        del self.files[identity]
        self.feed.append({"changeType": "file", "fileId": identity, "removed": True})

    def _about(self, request: Request) -> Response:
        return self.refusal or _json({"user": {"permissionId": "42", "displayName": "Ada"}})

    def _list(self, request: Request) -> Response:
        start = int(request.args.get("pageToken", 0))
        page = list(self.files.values())[start : start + 100]
        more = start + 100 < len(self.files)
        return _json({"files": page, **({"nextPageToken": str(start + 100)} if more else {})})

    def _changes(self, request: Request) -> Response:
        if request.args["pageToken"] == "forgotten":
            return Response(status=404)
        start = int(request.args["pageToken"])
        page = self.feed[start : start + 100]
        more = start + 100 < len(self.feed)
        token = "nextPageToken" if more else "newStartPageToken"
        return _json({"changes": page, token: str(start + len(page))})

    def _file(self, request: Request) -> Response:
        identity = unquote(request.path.split("/")[2])
        if identity not in self.files:
            return Response(status=404)
        if request.path.endswith("/export") or request.args.get("alt") == "media":
            self.downloads.append(f"{request.path}?{request.args.get('mimeType', '')}")
            if self.bodies[identity] in _REFUSED:
                reasons = [{"reason": _REFUSED[self.bodies[identity]]}]
                return _json({"error": {"errors": reasons}}, 403)
            return Response(self.bodies[identity])
        return _json(self.files[identity])


def _json(value: Any, status: int = 200) -> Response:
    return Response(json.dumps(value), status=status, content_type="application/json")


@pytest.fixture(scope="module")
def site() -> Iterator[HTTPServer]:
    with HTTPServer(host="127.0.0.1") as server:
        yield server


@pytest.fixture
def drive(site: HTTPServer) -> Drive:
    return Drive(site)


def _read(drive: Drive, checkpoint: str | None = None, **known: str) -> list[Yielded]:
    source = GoogleDriveSource("token", base_url=drive.url)
    return list(source.records(OWN_DRIVE, checkpoint, known.get))


def _ids(items: list[Yielded]) -> list[str]:
    return [item.record_id for item in items if isinstance(item, SourceRecord)]


def _last(items: list[Yielded]) -> str:
    last = items[-1]
    assert isinstance(last, Checkpoint)
    return last.cursor


class TestContract(SourceContract):
    @pytest.fixture
    def source(self, drive: Drive) -> Source:
        for number in range(230):
            drive.put(f"f{number:03}", b"# %d" % number)
        drive.put("form", b"", "application/vnd.google-apps.form")
        drive.put("folder", b"", "application/vnd.google-apps.folder")
        drive.feed.clear()
        return Source(
            lambda: GoogleDriveSource("token", base_url=drive.url),
            OWN_DRIVE,
            not_of_format=("no drive",),
            skipped=frozenset({"form"}),
        )


def test_a_document_of_google_is_exported_as_markdown(drive: Drive) -> None:
    drive.put("doc", b"# Herons", _DOCUMENT, webViewLink="https://docs.google.com/doc")
    drive.put("sheet", b"a,b", "application/vnd.google-apps.spreadsheet")
    drive.put("note", b"plain", "text/plain")
    drive.feed.clear()

    doc, sheet, note = [item for item in _read(drive) if isinstance(item, SourceRecord)]

    assert (doc.body, doc.media_type, doc.url) == (
        b"# Herons",
        "text/markdown",
        "https://docs.google.com/doc",
    )
    assert doc.participants == ("Ada <ada@example.org>",)
    assert doc.occurred_at == 1_772_445_600_000_000
    assert doc.transforms == ("gdrive-export/text/markdown",)
    assert (sheet.media_type, note.media_type, note.transforms) == ("text/csv", "text/plain", ())


def test_the_feed_tells_what_is_new_changed_and_gone(drive: Drive) -> None:
    for name in ("a", "b", "c"):
        drive.put(name, b"first")
    cursor = _last(_read(drive))

    drive.put("b", b"second")
    drive.put("d", b"new")
    drive.remove("a")
    drive.put("c", b"first", trashed=True)
    items = _read(drive, cursor)

    assert _ids(items) == ["b", "d"]
    assert [item for item in items if isinstance(item, Removed)] == [Removed("a"), Removed("c")]
    assert [item for item in _read(drive, _last(items)) if not isinstance(item, Checkpoint)] == []


def test_a_change_while_the_list_is_read_is_in_the_feed(drive: Drive) -> None:
    for number in range(150):
        drive.put(f"f{number:03}", b"x")
    source = GoogleDriveSource("token", base_url=drive.url)
    items = source.records(OWN_DRIVE, None, lambda _: None)
    first = [next(items) for _ in range(10)]

    drive.put("f000", b"changed meanwhile")
    rest = list(items)

    assert _ids(first)[0] == "f000"
    assert "f000" in _ids(rest)


def test_what_is_stored_is_not_downloaded_again(drive: Drive) -> None:
    drive.put("a", b"x")
    drive.feed.clear()

    items = _read(drive, a="1")

    assert [item for item in items if not isinstance(item, Checkpoint)] == [Unchanged("a")]
    assert drive.downloads == []


def test_a_feed_that_forgot_the_place_is_read_from_the_list_again(drive: Drive) -> None:
    drive.put("a", b"x")

    assert _ids(_read(drive, json.dumps({"changes": "forgotten"}))) == ["a"]


def test_a_file_that_is_too_large_or_went_away_is_skipped(drive: Drive) -> None:
    drive.put("huge", b"x", size="60000000")
    drive.put("doc", b"too large", _DOCUMENT)
    drive.put("view only", b"withheld")
    drive.feed.clear()

    skipped = [item for item in _read(drive) if isinstance(item, Skipped)]

    assert [(item.record_id, item.reason) for item in skipped] == [
        ("huge", "too_large"),
        ("doc", "too_large"),
        ("view only", "not_found"),
    ]


@pytest.mark.parametrize(
    ("refusal", "error", "seconds"),
    [
        (Response(status=401), AuthorizationNeeded, None),
        (Response(status=429, headers={"Retry-After": "7"}), RateLimitReached, 7.0),
        (
            _json({"error": {"errors": [{"reason": "userRateLimitExceeded"}]}}, 403),
            RateLimitReached,
            None,
        ),
        (
            _json({"error": {"errors": [{"reason": "insufficientPermissions"}]}}, 403),
            AuthorizationNeeded,
            None,
        ),
    ],
)
def test_a_refusal_says_whether_to_wait_or_to_sign_in(
    drive: Drive, refusal: Response, error: type[Exception], seconds: float | None
) -> None:
    drive.refusal = refusal

    with pytest.raises(error) as refused:
        GoogleDriveSource("token", base_url=drive.url).authorize()

    assert getattr(refused.value, "retry_after", None) == seconds


def test_a_shared_drive_is_a_corpus_of_its_own(drive: Drive) -> None:
    source = GoogleDriveSource("token", base_url=drive.url)

    assert source.corpus("0A").id == "gdrive:drive:0A"
    assert source.corpus(OWN_DRIVE).id == "gdrive:user:42"
    assert not source.corpus("0A").lists_all
    with pytest.raises(NotOfFormat):
        source.corpus("unknown")


def test_a_replayed_file_is_as_it_is_now(drive: Drive) -> None:
    drive.put("a", b"first")
    drive.put("a", b"second")
    source = GoogleDriveSource("token", base_url=drive.url)

    [item] = source.replay(OWN_DRIVE, "a", "1")

    assert isinstance(item, SourceRecord)
    assert item.body == b"second"
    assert list(source.replay(OWN_DRIVE, "gone", None)) == [Removed("gone")]


def test_without_a_credential_the_import_asks_for_one(
    drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)

    with pytest.raises(AuthorizationNeeded, match="no token"):
        GoogleDriveSource(base_url=drive.url).authorize()


def test_a_credential_of_google_is_refreshed_on_the_loopback(
    drive: Drive, site: HTTPServer, tmp_path: Any
) -> None:
    site.expect_request("/token", method="POST").respond_with_json(
        {"access_token": "fresh", "expires_in": 3600}
    )
    key = rsa.generate_private_key(65_537, 2_048)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    file = tmp_path / "credentials.json"
    file.write_text(
        json.dumps(
            {
                "type": "service_account",
                "client_email": "ada@example.org",
                "private_key": pem.decode(),
                "token_uri": site.url_for("/token"),
            }
        )
    )
    source = GoogleDriveSource(credentials=file, base_url=drive.url)
    site.clear_log()

    source.authorize()
    source.authorize()

    sent = [request.headers.get("Authorization") for request, _ in site.log]
    assert sent == [None, "Bearer fresh", "Bearer fresh"]
