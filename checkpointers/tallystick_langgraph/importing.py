"""Checkpoints of LangGraph's SQLite and PostgreSQL savers, copied into a tally and compared tuple
by tuple.

The source is only read, with its tables as those savers make them; their packages are not needed.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.types import TASKS

from tallystick.checkpoints import Leaf, PendingWrite
from tallystick.errors import CorruptTally, InvalidInput, MissingExtra
from tallystick_langgraph.saver import TallySaver

__all__ = ["Imported", "import_checkpoints"]


@dataclass(frozen=True)
class Imported:
    """How much was copied; every checkpoint was read back and compared."""

    threads: int
    checkpoints: int
    writes: int


@dataclass(frozen=True)
class _Write:
    task_id: str
    task_path: str
    position: int
    channel: str
    value: Any


@dataclass(frozen=True)
class _Found:
    """A checkpoint of the source."""

    thread: str
    namespace: str
    id: str
    parent_id: str | None
    checkpoint: dict[str, Any]
    metadata: dict[str, Any]
    writes: tuple[_Write, ...]


class _Source(Protocol):
    def threads(self) -> list[str]: ...

    def checkpoints(self, thread: str) -> Iterator[_Found]: ...


def import_checkpoints(
    source: str | Path,
    saver: TallySaver,
    *,
    serde: SerializerProtocol | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Imported:
    """Copy every thread of a SqliteSaver's file or a PostgresSaver's database (`postgresql://…`)
    through `saver`.

    They become threads of the saver's bound actor; a thread that is there already gets what it
    lacks. `serde` reads the source, by default the saver's own. `progress` is told how many threads
    are done, and of how many. Raises InvalidInput where the source is none, BlockedType for types
    that are not allowed, and CorruptTally when what was stored does not read back as what the
    source holds; then that thread is incomplete.
    """
    reader = serde or saver.serde
    opened = (
        _postgres(str(source), reader) if "://" in str(source) else _sqlite(Path(source), reader)
    )
    threads = checkpoints = writes = 0
    with opened as found:
        names = found.threads()
        for name in names:
            for one in found.checkpoints(name):
                _copy(one, saver)
                _compare(one, saver)
                checkpoints += 1
                writes += len(one.writes)
            threads += 1
            progress(threads, len(names))
    return Imported(threads, checkpoints, writes)


def _config(one: _Found, id: str | None) -> RunnableConfig:
    named = {} if id is None else {"checkpoint_id": id}
    return {"configurable": {"thread_id": one.thread, "checkpoint_ns": one.namespace, **named}}


def _copy(one: _Found, saver: TallySaver) -> None:
    threads = saver._threads(None)
    values = one.checkpoint["channel_values"]
    rest = {
        name: value
        for name, value in one.checkpoint.items()
        if name not in {"channel_values", "id"}
    }
    threads.put(
        one.thread,
        namespace=one.namespace,
        checkpoint_id=one.id,
        parent_id=one.parent_id,
        metadata=one.metadata,
        body=Leaf(*saver._inner.dumps_typed(rest)),
        values=lambda before: {
            name: saver._planted(name, value, before.get(name)) for name, value in values.items()
        },
        lifetime=saver._lifetime,
    )
    pending = [
        PendingWrite(
            write.task_id,
            write.task_path,
            write.position,
            write.channel,
            saver._planted(write.channel, write.value, None),
        )
        for write in one.writes
    ]
    threads.put_writes(one.thread, namespace=one.namespace, checkpoint_id=one.id, writes=pending)


def _compare(one: _Found, saver: TallySaver) -> None:
    stored = saver.get_tuple(_config(one, one.id))
    if stored is None:
        raise CorruptTally(f"Checkpoint {one.id} of thread {one.thread!r} was not stored.")
    above: Any = stored.parent_config
    parent = above["configurable"]["checkpoint_id"] if above else None
    ordered = sorted(one.writes, key=lambda write: (write.task_path, write.task_id, write.position))
    theirs, ours = one.checkpoint["channel_values"], stored.checkpoint["channel_values"]
    pairs: list[tuple[str, Any, Any]] = [
        ("its parent", one.parent_id or None, parent),
        ("its metadata", one.metadata, dict(stored.metadata)),
        (
            "its pending writes",
            [[write.task_id, write.channel, write.value] for write in ordered],
            [list(write) for write in stored.pending_writes or []],
        ),
        *((f"channel {name!r}", theirs.get(name), ours.get(name)) for name in {*theirs, *ours}),
        *(
            (name, one.checkpoint.get(name), dict(stored.checkpoint).get(name))
            for name in {*one.checkpoint, *stored.checkpoint} - {"channel_values"}
        ),
    ]
    serde = saver._inner
    for what, source, copy in pairs:
        if source != copy and serde.dumps_typed(source) != serde.dumps_typed(copy):
            raise CorruptTally(
                f"Checkpoint {one.id} of thread {one.thread!r} differs from its source in "
                f"{what}. Nothing of the "
                "source was changed."
            )


class _Sqlite:
    def __init__(self, connection: sqlite3.Connection, serde: SerializerProtocol) -> None:
        self._connection = connection
        self._serde = serde
        columns = {row[1] for row in connection.execute("PRAGMA table_info(writes)")}
        self._path = "task_path" if "task_path" in columns else "''"

    def threads(self) -> list[str]:
        rows = self._connection.execute(
            "SELECT DISTINCT thread_id FROM checkpoints ORDER BY thread_id"
        )
        return [row[0] for row in rows]

    def checkpoints(self, thread: str) -> Iterator[_Found]:
        rows = self._connection.execute(
            "SELECT checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, "
            "metadata FROM checkpoints "
            "WHERE thread_id = ? ORDER BY checkpoint_id, checkpoint_ns",
            (thread,),
        )
        for namespace, id, parent, kind, body, metadata in rows:
            checkpoint = self._serde.loads_typed((kind, body))
            yield _Found(
                thread,
                namespace,
                id,
                parent or None,
                {**checkpoint, "id": id},
                json.loads(metadata or b"{}"),
                tuple(self._writes(thread, namespace, id)),
            )

    def _writes(self, thread: str, namespace: str, id: str) -> Iterator[_Write]:
        rows = self._connection.execute(
            f"SELECT task_id, {self._path}, idx, channel, type, value FROM writes "
            "WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?",
            (thread, namespace, id),
        )
        for task_id, path, position, channel, kind, value in rows:
            yield _Write(task_id, path, position, channel, self._serde.loads_typed((kind, value)))


class _Opened:
    """A source that is closed at the end of its `with` block."""

    def __init__(self, source: _Source, close: Callable[[], None]) -> None:
        self._source = source
        self._close = close

    def __enter__(self) -> _Source:
        return self._source

    def __exit__(self, *_: object) -> None:
        self._close()


def _sqlite(path: Path, serde: SerializerProtocol) -> _Opened:
    if not path.is_file():
        raise InvalidInput(
            f"There is no file {path}. Give the file of a SqliteSaver, or postgresql://…"
        )
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    try:
        source = _Sqlite(connection, serde)
        source.threads()
    except sqlite3.DatabaseError as error:
        connection.close()
        raise InvalidInput(f"{path} holds no checkpoints of a SqliteSaver ({error}).") from error
    return _Opened(source, connection.close)


class _Postgres:
    def __init__(self, connection: Any, serde: SerializerProtocol) -> None:
        self._connection = connection
        self._serde = serde

    def threads(self) -> list[str]:
        rows = self._connection.execute(
            "SELECT DISTINCT thread_id FROM checkpoints ORDER BY thread_id"
        )
        return [row[0] for row in rows.fetchall()]

    def checkpoints(self, thread: str) -> Iterator[_Found]:
        rows = self._connection.execute(
            "SELECT checkpoint_ns, checkpoint_id, parent_checkpoint_id, checkpoint, metadata "
            "FROM checkpoints "
            'WHERE thread_id = %s ORDER BY checkpoint_id COLLATE "C", checkpoint_ns',
            (thread,),
        ).fetchall()
        for namespace, id, parent, checkpoint, metadata in rows:
            yield _Found(
                thread,
                namespace,
                id,
                parent or None,
                {**checkpoint, "id": id, **self._values(thread, namespace, parent, checkpoint)},
                metadata,
                tuple(self._writes(thread, namespace, id)),
            )

    def _values(
        self, thread: str, namespace: str, parent: str | None, checkpoint: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Inlined values, those of the blobs of the channels' versions, and sends of the time
        before they had one.
        """
        versions = {name: str(version) for name, version in checkpoint["channel_versions"].items()}
        blobs = self._connection.execute(
            "SELECT b.channel, b.type, b.blob FROM checkpoint_blobs b "
            "JOIN unnest(%s::text[], %s::text[]) AS wanted(channel, version) "
            "ON wanted.channel = b.channel AND wanted.version = b.version "
            "WHERE b.thread_id = %s AND b.checkpoint_ns = %s",
            (list(versions), list(versions.values()), thread, namespace),
        ).fetchall()
        values = {
            **(checkpoint.get("channel_values") or {}),
            **{
                name: self._serde.loads_typed((kind, bytes(blob or b"")))
                for name, kind, blob in blobs
                if kind != "empty"
            },
        }
        found: dict[str, Any] = {"channel_values": values}
        if checkpoint.get("v", 1) < 4 and parent:
            sends = [
                write for write in self._writes(thread, namespace, parent) if write.channel == TASKS
            ]
            sends.sort(key=lambda write: (write.task_path, write.task_id, write.position))
            if sends:
                values[TASKS] = [write.value for write in sends]
                newest = max(checkpoint["channel_versions"].values(), default="1")
                found["channel_versions"] = {**checkpoint["channel_versions"], TASKS: newest}
        return found

    def _writes(self, thread: str, namespace: str, id: str) -> Iterator[_Write]:
        rows = self._connection.execute(
            "SELECT task_id, task_path, idx, channel, type, blob FROM checkpoint_writes "
            "WHERE thread_id = %s AND checkpoint_ns = %s AND checkpoint_id = %s",
            (thread, namespace, id),
        ).fetchall()
        for task_id, path, position, channel, kind, value in rows:
            yield _Write(
                task_id, path, position, channel, self._serde.loads_typed((kind, bytes(value)))
            )


def _postgres(url: str, serde: SerializerProtocol) -> _Opened:
    try:
        import psycopg
    except ModuleNotFoundError as error:
        raise MissingExtra("psycopg", "postgres") from error
    try:
        connection = psycopg.connect(url)
        connection.read_only = True
        source = _Postgres(connection, serde)
        source.threads()
    except psycopg.Error as error:
        raise InvalidInput(
            f"This database holds no checkpoints of a PostgresSaver ({type(error).__name__})."
        ) from error
    return _Opened(source, connection.close)
