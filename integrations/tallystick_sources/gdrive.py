"""Google Drive: all files at first, and its feed of changes from then on."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tallystick.errors import require
from tallystick_ingest.contract import (
    AuthorizationNeeded,
    Corpus,
    Known,
    NotOfFormat,
    PrivacyClass,
    Removed,
    Resource,
    Skipped,
    SourceRecord,
    Unchanged,
    Yielded,
)
from tallystick_ingest.pacing import with_checkpoints
from tallystick_sources.answers import Answer, NotThere, TooLarge, fetch

require("httpx2", extra="gdrive")

import httpx2  # noqa: E402 - behind the guard

LARGEST_FILE = 50_000_000
SCOPE = "https://www.googleapis.com/auth/drive.readonly"
OWN_DRIVE = "my-drive"
"""The target that is the drive of the account; any other is the id of a shared drive."""
_EXPORTS = {
    "application/vnd.google-apps.document": "text/markdown",
    "application/vnd.google-apps.presentation": "text/plain",
    "application/vnd.google-apps.spreadsheet": "text/csv",
}
_GOOGLE = "application/vnd.google-apps."
_LEFT_OUT = frozenset((f"{_GOOGLE}folder", f"{_GOOGLE}shortcut"))
_FILE = (
    "id,name,mimeType,version,modifiedTime,size,md5Checksum,trashed,webViewLink,parents,"
    "owners(displayName,emailAddress),driveId"
)
_PAGE = "100"


class GoogleDriveSource:
    """Reads the files of a drive; documents of Google are exported, texts as Markdown.

    The credential is `token`, else the file of `credentials`, of a user or a service account, by
    default that of `GOOGLE_APPLICATION_CREDENTIALS`; it is used for reading only.
    """

    name = "gdrive"
    version = "1"
    privacy_class: PrivacyClass = "personal"
    reads_paths = False
    """A target is no path of this machine."""
    metadata_schema: Mapping[str, Any] = {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "media_type": {"type": "string"},
            "parents": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["name", "media_type", "parents"],
        "additionalProperties": False,
    }

    def __init__(
        self,
        token: str | None = None,
        *,
        credentials: str | os.PathLike[str] | None = None,
        base_url: str = "https://www.googleapis.com/drive/v3",
    ) -> None:
        self._base = base_url.rstrip("/")
        self._token = token
        self._file = credentials or os.environ.get("GOOGLE_APPLICATION_CREDENTIALS")
        self._credentials: Any = None
        self._client = httpx2.Client(
            headers={"User-Agent": "tallystick"}, timeout=60, trust_env=False
        )

    def corpus(self, target: str) -> Corpus:
        """Same as `SourceAdapter.corpus`. Later imports follow the feed of changes, which says what
        is gone; the version is where the feed stands.
        """
        if target == OWN_DRIVE:
            user = self._get("about", fields="user(permissionId,displayName)")["user"]
            identity, title = f"gdrive:user:{user['permissionId']}", user.get("displayName", "")
        else:
            try:
                drive = self._get(f"drives/{quote(target, safe='')}", fields="id,name")
            except NotThere as error:
                said = f"{target!r} is no shared drive that the credential opens, nor {OWN_DRIVE!r}"
                raise NotOfFormat(said) from error
            identity, title = f"gdrive:drive:{drive['id']}", drive["name"]
        return Corpus(id=identity, version=self._start_token(target), title=title, lists_all=False)

    def records(self, target: str, checkpoint: str | None, known: Known) -> Iterator[Yielded]:
        """Same as `SourceAdapter.records`.

        A cursor is a page of the list of files, or of the feed, and the last file of it. The place
        in the feed is taken before the list is read, so that no change falls between them.
        """
        place = json.loads(checkpoint) if checkpoint else {"start": self._start_token(target)}
        return with_checkpoints(self._after(target, place, known), json.dumps(place))

    def authorize(self) -> None:
        """Same as `Connector.authorize`."""
        self._get("about", fields="user(permissionId)")

    def list_resources(self) -> Iterator[Resource]:
        """Same as `Connector.list_resources`: the drive of the account, and shared ones."""
        user = self._get("about", fields="user(displayName)")["user"]
        yield Resource(target=OWN_DRIVE, title=user.get("displayName") or OWN_DRIVE)
        page = ""
        while True:
            found = self._get("drives", pageSize=_PAGE, pageToken=page)
            for drive in found.get("drives", ()):
                yield Resource(target=drive["id"], title=drive["name"])
            page = found.get("nextPageToken", "")
            if not page:
                return

    def replay(self, target: str, record_id: str, from_version: str | None) -> Iterator[Yielded]:
        """Same as `Connector.replay`: a file as it is now."""
        try:
            file = self._get(
                f"files/{quote(record_id, safe='')}", fields=_FILE, supportsAllDrives="true"
            )
        except NotThere:
            yield Removed(record_id)
            return
        yield Removed(record_id) if file.get("trashed") else self._item(file, lambda _: None)

    def _after(
        self, target: str, place: dict[str, str], known: Known
    ) -> Iterator[tuple[str, Yielded | None]]:
        while "start" in place:
            page = self._files(target, place.get("page", ""))
            yield from self._page(place, page.get("files", ()), known)
            if "nextPageToken" in page:
                place = {"start": place["start"], "page": page["nextPageToken"]}
            else:
                place = {"changes": place["start"]}
            yield json.dumps(place), None
        while True:
            try:
                page = self._changes(target, place["changes"])
            except NotThere:  # the feed forgot the place: all files are read again
                yield from self._after(target, {"start": self._start_token(target)}, known)
                return
            yield from self._page(place, page.get("changes", ()), known)
            place = {"changes": page.get("nextPageToken") or page["newStartPageToken"]}
            yield json.dumps(place), None
            if "nextPageToken" not in page:
                return

    def _page(
        self, place: dict[str, str], entries: list[dict[str, Any]], known: Known
    ) -> Iterator[tuple[str, Yielded]]:
        ids = [entry.get("fileId") or entry.get("id", "") for entry in entries]
        skipped = ids.index(place["after"]) + 1 if place.get("after") in ids else 0
        for identity, entry in list(zip(ids, entries, strict=True))[skipped:]:
            item = self._changed(identity, entry, known)
            if item is not None:
                yield json.dumps({**place, "after": identity}), item

    def _changed(self, identity: str, entry: dict[str, Any], known: Known) -> Yielded | None:
        """Return what an entry of the list or of the feed says of a file; None for folders."""
        is_change = "fileId" in entry
        file = entry.get("file", {}) if is_change else entry
        if not identity or entry.get("changeType", "file") != "file":
            return None
        if entry.get("removed") or file.get("trashed"):
            return Removed(identity)
        return None if file.get("mimeType") in _LEFT_OUT else self._item(file, known)

    def _item(self, file: Mapping[str, Any], known: Known) -> Yielded:
        identity, kind = file["id"], file["mimeType"]
        if known(identity) == str(file["version"]):
            return Unchanged(identity)
        export = _EXPORTS.get(kind)
        if export is None and kind.startswith(_GOOGLE):
            return Skipped(identity, "unsupported_type", f"{kind} cannot be exported as a text")
        if int(file.get("size") or 0) > LARGEST_FILE:
            return Skipped(identity, "too_large", f"a file of {file['size']} bytes")
        path = f"files/{quote(identity, safe='')}"
        try:
            if export:
                answer = self._ask(f"{path}/export", {"mimeType": export})
            else:
                answer = self._ask(path, {"alt": "media", "supportsAllDrives": "true"})
        except TooLarge as error:
            return Skipped(identity, "too_large", str(error))
        except NotThere as error:
            return Skipped(identity, "not_found", str(error))
        owners = [f"{each['displayName']} <{each['emailAddress']}>" for each in _owners(file)]
        return SourceRecord(
            record_id=identity,
            version=str(file["version"]),
            dedupe_key=f"sha256:{hashlib.sha256(answer.body).hexdigest()}",
            body=answer.body,
            media_type=export or kind,
            title=file["name"],
            url=file.get("webViewLink"),
            occurred_at=_microseconds(file.get("modifiedTime")),
            participants=tuple(owners),
            metadata={
                "name": file["name"],
                "media_type": kind,
                "parents": list(file.get("parents", ())),
            },
            transforms=(f"gdrive-export/{export}",) if export else (),
        )

    def _files(self, target: str, page: str) -> Any:
        return self._get(
            "files",
            **_drive(target),
            q="trashed = false",
            orderBy="createdTime",
            pageSize=_PAGE,
            pageToken=page,
            fields=f"nextPageToken,files({_FILE})",
        )

    def _changes(self, target: str, page: str) -> Any:
        arguments = _drive(target)
        arguments.pop("corpora", None)
        return self._get(
            "changes",
            **arguments,
            pageSize=_PAGE,
            pageToken=page,
            includeRemoved="true",
            fields=f"nextPageToken,newStartPageToken,changes(changeType,removed,fileId,file({_FILE}))",
        )

    def _start_token(self, target: str) -> str:
        arguments = {} if target == OWN_DRIVE else {"driveId": target, "supportsAllDrives": "true"}
        return str(self._get("changes/startPageToken", **arguments)["startPageToken"])

    def _get(self, path: str, **parameters: str) -> Any:
        return self._ask(path, parameters).json()

    def _ask(self, path: str, parameters: Mapping[str, str]) -> Answer:
        given = {name: value for name, value in parameters.items() if value}
        headers = {"Authorization": f"Bearer {self._secret()}"}
        url = f"{self._base}/{path}"
        return fetch(
            self._client, "Google Drive", url, params=given, headers=headers, largest=LARGEST_FILE
        )

    def _secret(self) -> str:
        """Return a token that is valid now. Raises AuthorizationNeeded, MissingExtra."""
        if self._token:
            return self._token
        if not self._file:
            raise AuthorizationNeeded("no token and no file of credentials for Google Drive")
        try:
            if self._credentials is None:
                self._credentials = _credentials(json.loads(Path(self._file).read_bytes()))
            if not self._credentials.valid:
                self._credentials.refresh(self._refresh)
        except (OSError, ValueError) as error:
            raise AuthorizationNeeded("no credentials for Google Drive in their file") from error
        except import_module("google.auth.exceptions").GoogleAuthError as error:
            raise AuthorizationNeeded("the credentials for Google Drive open nothing") from error
        return str(self._credentials.token)

    def _refresh(
        self,
        url: str,
        method: str = "GET",
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        **_: Any,
    ) -> _Refreshed:
        """Same as `google.auth.transport.Request`, on the client of this source."""
        answer = self._client.request(
            method, url, content=body, headers=headers, timeout=timeout or 60
        )
        return _Refreshed(answer.status_code, answer.headers, answer.content)


class _Refreshed:
    """Same as `google.auth.transport.Response`."""

    def __init__(self, status: int, headers: Mapping[str, str], data: bytes) -> None:
        self.status, self.headers, self.data = status, headers, data


def _credentials(stored: Mapping[str, Any]) -> Any:
    """Return the credentials of a user or a service account: what others name is not fetched.

    Raises ValueError, MissingExtra.
    """
    require("google.auth", extra="gdrive")
    # google-auth says nothing of its types.
    if stored.get("type") == "service_account":
        account: Any = import_module("google.oauth2.service_account")
        return account.Credentials.from_service_account_info(stored, scopes=[SCOPE])
    if stored.get("type") == "authorized_user":
        user: Any = import_module("google.oauth2.credentials")
        return user.Credentials.from_authorized_user_info(stored, scopes=[SCOPE])
    raise ValueError("credentials of another kind")


def _drive(target: str) -> dict[str, str]:
    if target == OWN_DRIVE:
        return {"corpora": "user"}
    return {
        "corpora": "drive",
        "driveId": target,
        "includeItemsFromAllDrives": "true",
        "supportsAllDrives": "true",
    }


def _owners(file: Mapping[str, Any]) -> list[dict[str, str]]:
    return [each for each in file.get("owners", ()) if {"displayName", "emailAddress"} <= set(each)]


def _microseconds(moment: str | None) -> int | None:
    return None if moment is None else round(datetime.fromisoformat(moment).timestamp() * 1_000_000)
