"""The documents of a ref come from its archive, and nothing of it is trusted."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Iterator

import pytest
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from tallystick.testing.source_contract import Source, SourceContract
from tallystick_ingest.contract import (
    AuthorizationNeeded,
    NotOfFormat,
    RateLimitReached,
    Skipped,
    SourceRecord,
)
from tallystick_sources.github import GitHubSource

COMMIT = "a" * 40
REPOSITORY = "/repos/octo/handbook"


@pytest.fixture(scope="module")
def site() -> Iterator[HTTPServer]:
    with HTTPServer(host="127.0.0.1") as server:
        yield server


@pytest.fixture
def server(site: HTTPServer) -> Iterator[HTTPServer]:
    site.clear()
    yield site
    site.clear()


def _archive(files: dict[str, bytes], *special: tarfile.TarInfo) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mtime = len(content), 1_770_000_000
            archive.addfile(member, io.BytesIO(content))
        for member in special:
            archive.addfile(member)
    return packed.getvalue()


def _serve(server: HTTPServer, archive: bytes, commit: str = COMMIT) -> None:
    def commits(request: Request) -> Response:
        if request.headers.get("If-None-Match") == f'"{commit}"':
            return Response(status=304)
        return Response(commit, headers={"ETag": f'"{commit}"'})

    server.expect_request(f"{REPOSITORY}/commits/main").respond_with_handler(commits)
    server.expect_request(f"{REPOSITORY}/commits/HEAD").respond_with_handler(commits)
    moved = {"Location": server.url_for(f"/codeload/{commit}")}
    server.expect_request(f"{REPOSITORY}/tarball/{commit}").respond_with_data("", 302, moved)
    server.expect_request(f"/codeload/{commit}").respond_with_data(archive)
    server.expect_request("/user").respond_with_json({"login": "octo"})
    repositories = [{"full_name": "octo/handbook"}, {"full_name": "octo/other"}]
    server.expect_request("/user/repos").respond_with_json(repositories)
    server.expect_request("/repos/octo/none/commits/HEAD").respond_with_data("", 404)


def _open(server: HTTPServer) -> GitHubSource:
    return GitHubSource("ghp_token", base_url=server.url_for("/"))


def _pages(count: int) -> dict[str, bytes]:
    return {f"octo-handbook-aaa/docs/{number:03}.md": b"# %d" % number for number in range(count)}


class TestContract(SourceContract):
    @pytest.fixture
    def source(self, server: HTTPServer) -> Source:
        outside = {"octo-handbook-aaa/../../etc/passwd.md": b"x"}
        _serve(server, _archive({**_pages(230), **outside}))
        return Source(
            lambda: _open(server),
            "octo/handbook@main",
            not_of_format=("no repository", "octo/none", "../..", "octo"),
            skipped=frozenset({"../../etc/passwd.md"}),
        )


def test_a_document_has_its_path_its_commit_and_where_a_person_finds_it(
    server: HTTPServer,
) -> None:
    files = {"x/docs/a.md": b"# A", "x/docs/deep/b.rst": b"B", "x/src/c.py": b"c", "x/d.md": b"d"}
    _serve(server, _archive(files))

    items = list(_open(server).records("octo/handbook@main:docs", None, lambda _: None))

    records = [item for item in items if isinstance(item, SourceRecord)]
    assert [record.record_id for record in records] == ["docs/a.md", "docs/deep/b.rst"]
    assert records[0].url == "https://github.com/octo/handbook/blob/main/docs/a.md"
    # What `git hash-object` says of it.
    assert records[0].version == "ebe81cb3ac2961a046a0dd300989f3935ddff5d1"
    assert records[0].metadata == {
        "repository": "octo/handbook",
        "commit": COMMIT,
        "path": "docs/a.md",
    }


def test_a_ref_that_did_not_move_is_asked_with_its_tag(server: HTTPServer) -> None:
    _serve(server, _archive(_pages(2)))
    source = _open(server)

    assert source.corpus("octo/handbook@main") == source.corpus("octo/handbook@main")
    assert [response.status_code for _, response in server.log] == [200, 304]


def test_an_import_goes_on_in_the_commit_in_which_it_began(server: HTTPServer) -> None:
    _serve(server, _archive(_pages(3)))
    cursor = json.dumps([COMMIT, "docs/000.md"])
    server.expect_request(f"{REPOSITORY}/commits/main").respond_with_data("b" * 40)

    items = list(_open(server).records("octo/handbook@main", cursor, lambda _: None))

    ids = [item.record_id for item in items if isinstance(item, SourceRecord)]
    assert ids == ["docs/001.md", "docs/002.md"]


def test_links_devices_and_paths_that_lead_out_of_an_archive_are_skipped(
    server: HTTPServer,
) -> None:
    link, hard, pipe = (tarfile.TarInfo(f"x/{name}.md") for name in ("link", "hard", "pipe"))
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    hard.type, hard.linkname = tarfile.LNKTYPE, "/etc/passwd"
    pipe.type = tarfile.FIFOTYPE
    files = {"x/../up.md": b"x", "/abs/root.md": b"x", "x/C:/windows.md": b"x", "x/fine.md": b"x"}
    _serve(server, _archive(files, link, hard, pipe))

    items = list(_open(server).records("octo/handbook", None, lambda _: None))

    assert {item.record_id: item.reason for item in items if isinstance(item, Skipped)} == {
        "../up.md": "outside",
        "/abs/root.md": "outside",
        "C:/windows.md": "outside",
        "hard.md": "outside",
        "link.md": "outside",
        "pipe.md": "unsupported_type",
    }
    assert [item.record_id for item in items if isinstance(item, SourceRecord)] == ["fine.md"]


@pytest.mark.parametrize(
    "archive",
    [
        gzip.compress(b"\x00" * 300_000_000, 9),
        b"no archive",
        gzip.compress(b"no tar" * 500),
        _archive(_pages(50))[:-40],
    ],
    ids=["bomb", "text", "gzip of a text", "cut off"],
)
def test_an_archive_that_is_none_or_expands_too_far_is_refused(
    server: HTTPServer, archive: bytes
) -> None:
    _serve(server, archive)

    with pytest.raises(NotOfFormat, match="archive"):
        list(_open(server).records("octo/handbook", None, lambda _: None))


@pytest.mark.parametrize(
    ("status", "headers", "error", "seconds"),
    [
        (401, {}, AuthorizationNeeded, None),
        (403, {}, AuthorizationNeeded, None),
        (403, {"Retry-After": "30"}, RateLimitReached, 30.0),
        (403, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1"}, RateLimitReached, 0.0),
        (429, {}, RateLimitReached, None),
    ],
)
def test_a_refusal_says_whether_to_wait_or_to_sign_in_without_the_token(
    server: HTTPServer,
    status: int,
    headers: dict[str, str],
    error: type[Exception],
    seconds: float | None,
) -> None:
    server.expect_request(f"{REPOSITORY}/commits/HEAD").respond_with_data("", status, headers)

    with pytest.raises(error) as refused:
        _open(server).corpus("octo/handbook")

    assert getattr(refused.value, "retry_after", None) == seconds
    assert "ghp_token" not in str(refused.value)


def test_the_token_goes_to_no_other_host(server: HTTPServer) -> None:
    _serve(server, _archive(_pages(1)))
    elsewhere = {"Location": server.url_for("/codeload/x").replace("127.0.0.1", "localhost")}
    server.clear()
    server.expect_request(f"{REPOSITORY}/commits/HEAD").respond_with_data(COMMIT)
    server.expect_request(f"{REPOSITORY}/tarball/{COMMIT}").respond_with_data("", 302, elsewhere)
    server.expect_request("/codeload/x").respond_with_data(_archive(_pages(1)))

    list(_open(server).records("octo/handbook", None, lambda _: None))

    sent = [request.headers.get("Authorization") for request, _ in server.log]
    assert sent == ["Bearer ghp_token", "Bearer ghp_token", None]
