"""Import of checkpoints from LangGraph's SQLite and PostgreSQL savers, compared tuple by tuple.

The source is only read, with its tables as those savers create them; their packages are not needed.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.types import TASKS

from tallystick.checkpoints import Leaf, NewCheckpoint, PendingWrite
from tallystick.errors import CorruptTally, InvalidInput, MissingExtra
from tallystick.kit import describe_value, require_tables
from tallystick_langgraph.saver import TallySaver


@dataclass(frozen=True)
class Imported:
    """Counts of what was copied; every checkpoint was read back and compared."""

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
class _SourceCheckpoint:
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

    def checkpoints(self, thread: str) -> Iterator[_SourceCheckpoint]: ...


def import_checkpoints(
    source: str | Path,
    saver: TallySaver,
    *,
    serde: SerializerProtocol | None = None,
    progress: Callable[[int, int], None] = lambda copied, total: None,
) -> Imported:
    """Copy every thread of a SqliteSaver's file or a PostgresSaver's database (`postgresql://…`)
    through `saver`.

    They become threads of the saver's bound actor; a thread that exists already gets what it lacks.
    `serde` reads the source, by default the saver's own. `progress` is called with the number of
    threads copied and of all. Raises InvalidInput where the source has no checkpoints, BlockedType
    for types that are not allowed, and CorruptTally when a stored checkpoint does not read back as
    the source has it; then that thread is incomplete.
    """
    if not isinstance(source, str | Path) or not isinstance(saver, TallySaver):
        raise InvalidInput(
            f"import_checkpoints takes an address and a saver, not {describe_value(source)} and "
            f"{describe_value(saver)}: "
            f"import_checkpoints('checkpoints.sqlite', TallySaver(tally))."
        )
    reader = serde or saver.serde
    open_source = (
        _postgres(str(source), reader) if "://" in str(source) else _sqlite(Path(source), reader)
    )
    threads = checkpoints = writes = 0
    with open_source as tables:
        names = tables.threads()
        for name in names:
            try:
                for checkpoint in tables.checkpoints(name):
                    _copy(checkpoint, saver)
                    _compare(checkpoint, saver)
                    checkpoints += 1
                    writes += len(checkpoint.writes)
            except RecursionError as error:
                raise InvalidInput(
                    f"Thread {name!r} has a checkpoint that is nested too deeply to be read. "
                    f"Copied were {checkpoints} checkpoints before it."
                ) from error
            threads += 1
            progress(threads, len(names))
    return Imported(threads, checkpoints, writes)


def _copy(source: _SourceCheckpoint, saver: TallySaver) -> None:
    threads, _ = saver._acting(None)
    values = source.checkpoint["channel_values"]
    rest = {
        name: value
        for name, value in source.checkpoint.items()
        if name not in {"channel_values", "id"}
    }
    threads.put(
        source.thread,
        NewCheckpoint(
            namespace=source.namespace,
            id=source.id,
            parent_id=source.parent_id,
            metadata=source.metadata,
            body=Leaf(*saver._inner.dumps_typed(rest)),
            values=lambda base: {
                name: saver._split(name, value, base.get(name)) for name, value in values.items()
            },
            lifetime=saver._lifetime,
        ),
    )
    pending = [
        PendingWrite(
            write.task_id,
            write.task_path,
            write.position,
            write.channel,
            saver._split(write.channel, write.value, None),
        )
        for write in source.writes
    ]
    threads.put_writes(
        source.thread, namespace=source.namespace, checkpoint_id=source.id, writes=pending
    )


def _compare(source: _SourceCheckpoint, saver: TallySaver) -> None:
    place = {
        "thread_id": source.thread,
        "checkpoint_ns": source.namespace,
        "checkpoint_id": source.id,
    }
    stored = saver.get_tuple({"configurable": place})
    if stored is None:
        raise CorruptTally(f"Checkpoint {source.id} of thread {source.thread!r} was not stored.")
    parent_config: Any = stored.parent_config
    parent_id = parent_config["configurable"]["checkpoint_id"] if parent_config else None
    ordered = sorted(
        source.writes, key=lambda write: (write.task_path, write.task_id, write.position)
    )
    values, stored_values = source.checkpoint["channel_values"], stored.checkpoint["channel_values"]
    pairs: list[tuple[str, Any, Any]] = [
        ("its parent", source.parent_id or None, parent_id),
        ("its metadata", source.metadata, dict(stored.metadata)),
        (
            "its pending writes",
            [[write.task_id, write.channel, write.value] for write in ordered],
            [list(write) for write in stored.pending_writes or []],
        ),
        *(
            (f"channel {name!r}", values.get(name), stored_values.get(name))
            for name in {*values, *stored_values}
        ),
        *(
            (name, source.checkpoint.get(name), dict(stored.checkpoint).get(name))
            for name in {*source.checkpoint, *stored.checkpoint} - {"channel_values"}
        ),
    ]
    serde = saver._inner
    for part, expected, copy in pairs:
        if expected != copy and serde.dumps_typed(expected) != serde.dumps_typed(copy):
            raise CorruptTally(
                f"Checkpoint {source.id} of thread {source.thread!r} differs from its source in "
                f"{part}. Nothing of the source was changed."
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

    def checkpoints(self, thread: str) -> Iterator[_SourceCheckpoint]:
        rows = self._connection.execute(
            "SELECT checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, "
            "metadata FROM checkpoints "
            "WHERE thread_id = ? ORDER BY checkpoint_id, checkpoint_ns",
            (thread,),
        )
        for namespace, id, parent, kind, body, metadata in rows:
            checkpoint = self._serde.loads_typed((kind, body))
            yield _SourceCheckpoint(
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


class _OpenSource:
    """A source that is closed at the end of its `with` block."""

    def __init__(self, source: _Source, close: Callable[[], None]) -> None:
        self._source = source
        self._close = close

    def __enter__(self) -> _Source:
        return self._source

    def __exit__(self, *_: object) -> None:
        self._close()


def _sqlite(path: Path, serde: SerializerProtocol) -> _OpenSource:
    if not path.is_file():
        raise InvalidInput(
            f"There is no file {path}. Give the file of a SqliteSaver, or postgresql://…"
        )
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    try:
        require_tables(connection, "checkpoints", "writes")
        source = _Sqlite(connection, serde)
        source.threads()
    except sqlite3.DatabaseError as error:
        connection.close()
        raise InvalidInput(f"{path} holds no checkpoints of a SqliteSaver ({error}).") from error
    return _OpenSource(source, connection.close)


class _Postgres:
    def __init__(self, connection: Any, serde: SerializerProtocol) -> None:
        self._connection = connection
        self._serde = serde

    def threads(self) -> list[str]:
        rows = self._connection.execute(
            "SELECT DISTINCT thread_id FROM checkpoints ORDER BY thread_id"
        )
        return [row[0] for row in rows.fetchall()]

    def checkpoints(self, thread: str) -> Iterator[_SourceCheckpoint]:
        rows = self._connection.execute(
            "SELECT checkpoint_ns, checkpoint_id, parent_checkpoint_id, checkpoint, metadata "
            "FROM checkpoints "
            'WHERE thread_id = %s ORDER BY checkpoint_id COLLATE "C", checkpoint_ns',
            (thread,),
        ).fetchall()
        for namespace, id, parent, checkpoint, metadata in rows:
            yield _SourceCheckpoint(
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
        """Return inlined values, those of the blobs of the channels' versions, and sends of old
        versions, which had no blob.
        """
        versions = {name: str(version) for name, version in checkpoint["channel_versions"].items()}
        blobs = self._connection.execute(
            "SELECT b.channel, b.type, b.blob FROM checkpoint_blobs b "
            "JOIN unnest(%s::text[], %s::text[]) AS current(channel, version) "
            "ON current.channel = b.channel AND current.version = b.version "
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
        parts: dict[str, Any] = {"channel_values": values}
        if checkpoint.get("v", 1) < 4 and parent:
            sends = [
                write for write in self._writes(thread, namespace, parent) if write.channel == TASKS
            ]
            sends.sort(key=lambda write: (write.task_path, write.task_id, write.position))
            if sends:
                values[TASKS] = [write.value for write in sends]
                newest = max(checkpoint["channel_versions"].values(), default="1")
                parts["channel_versions"] = {**checkpoint["channel_versions"], TASKS: newest}
        return parts

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


def _postgres(url: str, serde: SerializerProtocol) -> _OpenSource:
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
    return _OpenSource(source, connection.close)
