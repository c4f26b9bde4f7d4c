"""GitHub: the documents of a ref, from its archive."""

from __future__ import annotations

import hashlib
import json
import os
import re
import tarfile
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any, NamedTuple
from urllib.parse import quote

from tallystick.errors import require
from tallystick_ingest.contract import (
    Corpus,
    Known,
    NotOfFormat,
    PrivacyClass,
    Resource,
    Skipped,
    SourceRecord,
    Unchanged,
    Yielded,
)
from tallystick_ingest.pacing import with_checkpoints
from tallystick_sources.answers import NotThere, TooLarge, fetch
from tallystick_sources.media_types import media_type

require("httpx2", extra="github")

import httpx2  # noqa: E402 - behind the guard

LARGEST_ARCHIVE = 200_000_000
"""Bytes of an archive, packed and expanded."""
LARGEST_FILE = 10_000_000
DOCUMENTS = (".md", ".markdown", ".mdx", ".rst", ".txt", ".adoc", ".html", ".htm", ".pdf")
"""Ends of the names of documents."""
_EXPANSION = 100
_SMALL = 1_000_000
"""Bytes that any archive may expand to."""
_BLOCK = 65_536
_TARGET = re.compile(
    r"(?P<owner>[\w.-]+)/(?P<name>[\w.-]+)(?:@(?P<ref>[^\s:]+))?(?::(?P<folder>[^\s:]+))?"
)
_SHA = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


class _Target(NamedTuple):
    repository: str
    ref: str
    folder: str


class GitHubSource:
    """Reads the documents of a repository at a ref. A target is `owner/name`, with `@ref` for a
    branch, a tag or a commit and `:folder` for a part of it.

    The token is that of the argument, else of `GITHUB_TOKEN`; public repositories need none. A
    request that was answered before is asked with its ETag, which costs nothing of the rate limit.
    """

    name = "github"
    version = "1"
    privacy_class: PrivacyClass = "internal"
    reads_paths = False
    """A target is no path of this machine."""
    metadata_schema: Mapping[str, Any] = {
        "type": "object",
        "properties": {
            "repository": {"type": "string"},
            "commit": {"type": "string"},
            "path": {"type": "string"},
        },
        "required": ["repository", "commit", "path"],
        "additionalProperties": False,
    }

    options_schema: Mapping[str, Any] = {
        "type": "object",
        "properties": {
            "ref": {"type": "string", "minLength": 1, "maxLength": 255},
            "folder": {"type": "string", "maxLength": 1_000},
            "documents": {"type": "array", "items": {"type": "string"}, "minItems": 1},
        },
        "additionalProperties": False,
    }

    def __init__(
        self,
        token: str | None = None,
        *,
        ref: str = "HEAD",
        folder: str = "",
        base_url: str = "https://api.github.com",
        web_url: str = "https://github.com",
        documents: Sequence[str] = DOCUMENTS,
    ) -> None:
        self._ref, self._folder = ref, folder.strip("/")
        self._base, self._web = base_url.rstrip("/"), web_url.rstrip("/")
        self._documents = tuple(documents)
        self._commits: dict[str, tuple[str, str]] = {}
        secret = token or os.environ.get("GITHUB_TOKEN", "")
        # The client leaves out the token where an answer leads to another host.
        self._client = httpx2.Client(
            headers={
                "Authorization": f"Bearer {secret}" if secret else "",
                "X-GitHub-Api-Version": "2022-11-28",
                "User-Agent": "tallystick",
                "Accept-Encoding": "identity",
            },
            follow_redirects=True,
            max_redirects=5,
            timeout=60,
            trust_env=False,
        )
        if not secret:
            del self._client.headers["Authorization"]

    def corpus(self, target: str) -> Corpus:
        """Same as `SourceAdapter.corpus`; the version is the commit of the ref."""
        place = self._place(target)
        commit = self._commit(place)
        suffix = f":{place.folder}" if place.folder else ""
        identity = f"github:{place.repository.lower()}@{place.ref}{suffix}"
        return Corpus(id=identity, version=commit, title=f"{place.repository}@{place.ref}{suffix}")

    def records(self, target: str, checkpoint: str | None, known: Known) -> Iterator[Yielded]:
        """Same as `SourceAdapter.records`; a cursor is a commit and a path, so that an import goes
        on in the commit in which it began. Raises NotOfFormat for an archive that expands too far.
        """
        place = self._place(target)
        commit, after = json.loads(checkpoint) if checkpoint else (self._commit(place), "")
        start = json.dumps([commit, after])
        return with_checkpoints(self._after(place, commit, after, known), start)

    def _place(self, target: str) -> _Target:
        """Return what a target names; what it does not say is by the options."""
        place = _parse(target)
        return _Target(place.repository, place.ref or self._ref, place.folder or self._folder)

    def authorize(self) -> None:
        """Same as `Connector.authorize`; without a token there is nothing to prove."""
        place = "user" if "Authorization" in self._client.headers else "rate_limit"
        fetch(self._client, "GitHub", f"{self._base}/{place}")

    def list_resources(self) -> Iterator[Resource]:
        """Same as `Connector.list_resources`: the repositories of the token."""
        page = 1
        while True:
            params = {"per_page": "100", "page": str(page), "sort": "full_name"}
            found = fetch(self._client, "GitHub", f"{self._base}/user/repos", params=params).json()
            for each in found:
                yield Resource(target=each["full_name"], title=each["full_name"])
            if len(found) < 100:
                return
            page += 1

    def replay(self, target: str, record_id: str, from_version: str | None) -> Iterator[Yielded]:
        """Same as `Connector.replay`: a file as it is at the ref now."""
        place = self._place(target)
        commit = self._commit(place)
        for _, item in self._after(place, commit, "", lambda _: None):
            if getattr(item, "record_id", None) == record_id:
                yield item
                return
        yield Skipped(record_id, "not_found", "no document of the ref has this path")

    def _commit(self, place: _Target) -> str:
        url = f"{self._base}/repos/{place.repository}/commits/{quote(place.ref, safe='')}"
        etag, commit = self._commits.get(url, ("", ""))
        headers = {"Accept": "application/vnd.github.sha"}
        if etag:
            headers["If-None-Match"] = etag
        try:
            answer = fetch(self._client, "GitHub", url, headers=headers)
        except NotThere as error:
            said = f"GitHub shows no {place.repository} at {place.ref} with this credential"
            raise NotOfFormat(said) from error
        if answer.status == 304:
            return commit
        commit = answer.body.decode("ascii", "replace").strip()
        if not _SHA.fullmatch(commit):
            raise NotOfFormat(f"{self._base} answered no commit, so it is no GitHub")
        if "etag" in answer.headers:
            self._commits[url] = (answer.headers["etag"], commit)
        return commit

    def _after(
        self, place: _Target, commit: str, after: str, known: Known
    ) -> Iterator[tuple[str, Yielded]]:
        url = f"{self._base}/repos/{place.repository}/tarball/{commit}"
        with tempfile.TemporaryFile() as packed, tempfile.TemporaryFile() as expanded:
            try:
                fetch(self._client, "GitHub", url, largest=LARGEST_ARCHIVE, into=packed)
            except TooLarge as error:
                raise NotOfFormat(f"the archive of {place.repository} is {error}") from error
            _expand(packed, expanded)
            expanded.seek(0)
            try:
                with tarfile.open(fileobj=expanded, mode="r:") as archive:
                    members = _members(archive, place.folder, self._documents)
                    for path, member in sorted(members.items()):
                        if path > after:
                            item = self._item(place, commit, path, archive, member, known)
                            yield json.dumps([commit, path]), item
            except (tarfile.TarError, EOFError, ValueError) as error:
                raise NotOfFormat(f"no archive of a ref: {error}") from error

    def _item(
        self,
        place: _Target,
        commit: str,
        path: str,
        archive: tarfile.TarFile,
        member: tarfile.TarInfo,
        known: Known,
    ) -> Yielded:
        if not _is_inside(path) or member.issym() or member.islnk():
            return Skipped(path, "outside", "a path or a link that leads out of the archive")
        if not member.isreg() or member.issparse():
            return Skipped(path, "unsupported_type", "a device, a pipe or a file with holes")
        if member.size > LARGEST_FILE:
            return Skipped(path, "too_large", f"a file of {member.size} bytes")
        file = archive.extractfile(member)
        body = file.read() if file is not None else b""
        # The name that git has for the content.
        blob = hashlib.sha1(b"blob %d\0" % len(body) + body, usedforsecurity=False).hexdigest()
        if known(path) == blob:
            return Unchanged(path)
        return SourceRecord(
            record_id=path,
            version=blob,
            dedupe_key=f"sha256:{hashlib.sha256(body).hexdigest()}",
            body=body,
            media_type=media_type(path, body),
            url=f"{self._web}/{place.repository}/blob/{quote(place.ref)}/{quote(path)}",
            occurred_at=int(member.mtime) * 1_000_000,
            metadata={"repository": place.repository, "commit": commit, "path": path},
        )


def _parse(target: str) -> _Target:
    match = _TARGET.fullmatch(target.strip())
    if match is None or {match["owner"], match["name"]} & {".", ".."}:
        raise NotOfFormat(f"{target!r} is no repository; it is owner/name, owner/name@ref:folder")
    folder = (match["folder"] or "").strip("/")
    return _Target(f"{match['owner']}/{match['name']}", match["ref"] or "", folder)


def _members(
    archive: tarfile.TarFile, folder: str, documents: tuple[str, ...]
) -> dict[str, tarfile.TarInfo]:
    """Return the documents of an archive by their path below its one folder.

    A name is never a path of this machine: it names a record, and nothing is written by it.
    """
    members: dict[str, tarfile.TarInfo] = {}
    for member in archive:
        raw = member.name.encode("utf-8", "backslashreplace").decode("utf-8")
        path = raw.partition("/")[2] if not raw.startswith(("/", "..")) else raw
        is_listed = path.lower().endswith(documents) and not member.isdir()
        if is_listed and (not folder or path.startswith(f"{folder}/") or not _is_inside(path)):
            members.setdefault(path, member)
    return members


def _is_inside(path: str) -> bool:
    parts = path.replace("\\", "/").split("/")
    return not path.startswith(("/", "\\")) and ".." not in parts and ":" not in parts[0]


def _expand(packed: IO[bytes], expanded: IO[bytes]) -> None:
    """Write the bytes of a gzip file to another. Raises NotOfFormat beyond its limits."""
    limit = min(max(packed.tell() * _EXPANSION, _SMALL), LARGEST_ARCHIVE)
    packed.seek(0)
    unpacker = zlib.decompressobj(wbits=31)
    size = 0
    try:
        while block := unpacker.unconsumed_tail or packed.read(_BLOCK):
            piece = unpacker.decompress(block, _BLOCK * 16)
            size += expanded.write(piece)
            if size > limit:
                raise NotOfFormat(f"an archive that expands to more than {limit} bytes")
            if unpacker.eof:
                return
    except zlib.error as error:
        raise NotOfFormat(f"an archive that is no gzip file: {error}") from error
    raise NotOfFormat("an archive that is cut off")
