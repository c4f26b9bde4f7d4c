"""TallySessionStore: the transcripts of the Claude Agent SDK, kept as they came in threads.

Each `append` is one entry of the thread of its session, so that two processes that write at once
lose nothing. Transcripts are live state, as checkpoints are: nothing in them is redacted.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple, cast
from weakref import WeakKeyDictionary

from claude_agent_sdk import (
    SessionKey,
    SessionListSubkeysKey,
    SessionStore,
    SessionStoreEntry,
    SessionStoreListEntry,
    SessionSummaryEntry,
    fold_session_summary,
)

from tallystick.aio import in_thread
from tallystick.checkpoints import NewCheckpoint, Summary
from tallystick.errors import InvalidInput
from tallystick.kit import ActorSource, Binder
from tallystick.kit.thread_entries import json_entry, next_id, place_of, value_of
from tallystick.records import Scope
from tallystick.records.canonical import digest, text_digest
from tallystick.tally import BoundTally, Tally

_NAMESPACE = "claude_agent"
"""The namespace of a transcript in its thread; that of a subagent has its path behind a slash."""
_PLACE, _TRANSCRIPT = "claude_agent", "claude_agent_transcript"
"""Keys of the metadata of an entry: project, session, time and summary; and the digest of the key
of its transcript, by which it is removed.
"""


class _Append(NamedTuple):
    """An append that may not have reached the database: tried again, it takes the same place."""

    content: str
    id: str


class TallySessionStore(SessionStore):
    """Transcripts off the disk: `ClaudeAgentOptions(session_store=TallySessionStore(tally))`.

    A session belongs to the scope: its id gives nobody the authority of who made it. Thread-safe,
    each thread with an event loop of its own.
    """

    def __init__(
        self,
        tally: Tally | BoundTally,
        *,
        actor: ActorSource | None = None,
        scope: str | Scope | None = None,
    ) -> None:
        """`actor` says who acts, by default the owner or the view's (docs/who-acts.md); one store
        is for one user, since the SDK tells a store nothing but keys. Raises InvalidInput.
        """
        self._binder = Binder(
            tally, runtime="claude_agent", piece="TallySessionStore", actor=actor, scope=scope
        )
        self._turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = (
            WeakKeyDictionary()
        )
        """Whose turn it is to append, by event loop: a lock of one wakes nobody in another."""
        self._appending = threading.Lock()
        self._under_way: dict[tuple[str, str], _Append] = {}

    def __repr__(self) -> str:
        return self._binder.describe()

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Add lines to a transcript in one transaction; return after the commit. Raises Denied, and
        InvalidInput for a line that JSON does not know.
        """
        if not entries:
            return
        async with self._turns.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            # In the order of the calls.
            await in_thread(self._append, _checked(key), entries)

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """Return a transcript, each line once, in its order; None for one that was never written.
        Raises Denied.
        """
        return await in_thread(self._load, self._bound(key), _checked(key))

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """Return the sessions of a project with their last change, milliseconds UTC."""
        newest = await in_thread(lambda: list(self._newest(project_key)))
        return [
            {"session_id": str(place["session_id"]), "mtime": int(place["mtime"])}
            for place in map(_place_of, newest)
        ]

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """Return the summaries of the sessions of a project, as the SDK folds them."""

        def read() -> list[SessionSummaryEntry]:
            return [self._summary_of(each) for each in self._newest(project_key)]

        return await in_thread(read)

    async def delete(self, key: SessionKey) -> None:
        """Remove a session with its subagents, or the transcript of one subagent. Raises Denied."""
        await in_thread(self._delete, _checked(key))

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """Return the paths of the subagents of a session."""

        def read() -> list[str]:
            bound = self._bound(key)
            namespaces = bound.threads.namespaces(_thread_of(key))
            within = f"{_NAMESPACE}/"
            return [each.removeprefix(within) for each in namespaces if each.startswith(within)]

        return await in_thread(read)

    def _bound(self, key: SessionKey | SessionListSubkeysKey | None = None) -> BoundTally:
        session = None if key is None else key["session_id"]
        return self._binder.bound(self._binder.call(session=session))

    def _append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        entry = json_entry(_namespace_of(key), "", entries, allow_nan=False)
        with self._appending:
            self._put(key, entries, entry)

    def _put(self, key: SessionKey, entries: list[SessionStoreEntry], entry: NewCheckpoint) -> None:
        bound, thread, namespace = self._bound(key), _thread_of(key), entry.namespace
        newest = self._newest_two(bound, thread, namespace)
        content, place = text_digest("claude-agent-append", entry.body.body), (thread, namespace)
        again = self._under_way.get(place)
        if again is not None and again.content == content:
            id = again.id
            newest = [each for each in newest if each.id != id]
        else:
            id = next_id(bound, newest[0].id if newest else None)
        self._under_way[place] = _Append(content, id)
        metadata: dict[str, Any] = {
            "project_key": key["project_key"],
            "session_id": key["session_id"],
            "mtime": bound.tally.now() // 1_000,
        }
        if key.get("subpath") is None:
            before = self._folded(newest)
            metadata["summary"] = fold_session_summary(before, key, entries)["data"]
        places = {_PLACE: metadata, _TRANSCRIPT: _transcript(key)}
        bound.threads.put(thread, replace(entry, id=id, metadata=places))
        del self._under_way[place]

    def _newest_two(self, bound: BoundTally, thread: str, namespace: str) -> list[Summary]:
        return list(bound.threads.history(thread, namespace=namespace, limit=2))

    def _newest(self, project_key: str) -> Iterator[Summary]:
        """Yield the newest entry of each session of a project."""
        bound = self._bound()
        for thread in bound.threads.names():
            if not thread.startswith(f"{project_key}/"):
                continue
            for each in bound.threads.history(thread, namespace=_NAMESPACE, limit=1):
                if _place_of(each).get("project_key") == project_key:
                    yield each

    def _summary_of(self, newest: Summary) -> SessionSummaryEntry:
        place = _place_of(newest)
        bound = self._bound()
        folded = self._folded(self._newest_two(bound, newest.thread, _NAMESPACE))
        data = {} if folded is None else folded["data"]
        session_id = str(place["session_id"])
        return {"session_id": session_id, "mtime": int(place["mtime"]), "data": data}

    def _folded(self, newest: list[Summary]) -> SessionSummaryEntry | None:
        """Return the summary up to the newest entry. Where two processes wrote at once, each has
        folded its own lines alone: then all are folded anew.
        """
        if not newest:
            return None
        place = _place_of(newest[0])
        positions = [place_of(each.id) for each in newest]
        data = dict(place.get("summary") or {})
        session_id, mtime = str(place["session_id"]), int(place["mtime"])
        if len(set(positions)) < len(positions):
            key: SessionKey = {"project_key": str(place["project_key"]), "session_id": session_id}
            lines = self._load(self._bound(key), key) or []
            data = fold_session_summary(None, key, lines)["data"]
        return {"session_id": session_id, "mtime": mtime, "data": data}

    def _load(self, bound: BoundTally, key: SessionKey) -> list[SessionStoreEntry] | None:
        thread, namespace = _thread_of(key), _namespace_of(key)
        batches = [
            cast(list[SessionStoreEntry], value_of(each))
            for each in bound.threads.checkpoints(thread, namespace=namespace)
        ]
        if not batches:
            return None
        lines: list[SessionStoreEntry] = []
        known: set[str] = set()
        for line in (line for batch in reversed(batches) for line in batch):
            uuid = line.get("uuid")
            if uuid in known:
                continue
            if uuid is not None:
                known.add(uuid)
            lines.append(line)
        return lines

    def _delete(self, key: SessionKey) -> None:
        threads = self._bound(key).threads
        if key.get("subpath") is None:
            threads.delete(_thread_of(key))
            return
        threads.delete_where({_TRANSCRIPT: _transcript(key)})


def _checked(key: SessionKey) -> SessionKey:
    """Return a key. Raises InvalidInput for one without a project or a session."""
    if not (key.get("project_key") and key.get("session_id")):
        raise InvalidInput("A key of a session has a `project_key` and a `session_id`.")
    return key


def _thread_of(key: SessionKey | SessionListSubkeysKey) -> str:
    return f"{key['project_key']}/{key['session_id']}"


def _namespace_of(key: SessionKey) -> str:
    subpath = key.get("subpath")
    return _NAMESPACE if subpath is None else f"{_NAMESPACE}/{subpath}"


def _transcript(key: SessionKey) -> str:
    return digest("claude-agent-transcript", [_thread_of(key), _namespace_of(key)])


def _place_of(entry: Summary) -> dict[str, Any]:
    return cast(dict[str, Any], entry.metadata.get(_PLACE) or {})
