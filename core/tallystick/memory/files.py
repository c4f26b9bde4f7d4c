"""Files: documents with a path for an address, and the edits of many memories in one transaction.

The text of a file's memory is the path in its first line and the text of the file below it, so that
recall shows whence the words are, two files with the same text are two memories, and an empty file
is one. Path and memory are written in one transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from tallystick.access import is_expired, visible_docs
from tallystick.errors import Conflict, InvalidInput
from tallystick.memory.change import (
    admit_changes,
    apply_changes,
    apply_modify,
    forget_one,
    require_active,
    require_reason,
    require_version,
)
from tallystick.memory.context import MemoryContext, is_made_by_extension
from tallystick.memory.fields import STORE_ITEM
from tallystick.memory.memory_write import MemoryWrite
from tallystick.memory.remember import (
    PreparedMemory,
    check_new,
    ingest_one,
    own_words,
    prepare_new,
)
from tallystick.policy import PolicyState, decide
from tallystick.records import Actor, Memory, NewMemory, Scope, is_storable
from tallystick.storage import Connection, ScopeRow
from tallystick.storage.engine.writes import Writes
from tallystick.storage.rows import items, memories, scopes, spaces

FILE_KIND = "document"
"""The kind of the memory of a file."""
MOST_LINES = 2_000
"""Memories of one kind that are read as lines, at most; the newest."""
_MOST_CHARACTERS = 400_000
"""Characters of these memories together, but for the newest one."""
_PAGE = 500


@dataclass(frozen=True)
class File:
    """A file of a scope."""

    path: str
    """Its path within the scope, such as `notes/todo.xml`."""
    memory: Memory

    @property
    def text(self) -> str:
        """The text as it was written; of a memory that somebody changed by its id all of it."""
        return self.memory.content.removeprefix(f"{self.path}\n")


@dataclass(frozen=True)
class Add:
    """A memory to remember; with a path it is a file."""

    new: NewMemory
    path: str | None = None


@dataclass(frozen=True)
class Alter:
    """A memory to modify at the version that was read; a file with a path is moved there."""

    memory: Memory
    changes: Mapping[str, Any]
    path: str | None = None
    old_path: str | None = None


@dataclass(frozen=True)
class Drop:
    """A memory to forget at the version that was read."""

    memory: Memory


Edit = Add | Alter | Drop


@dataclass(frozen=True)
class Edited:
    """A memory after its edit."""

    id: str
    version: int
    status: str
    """`created`, `duplicate`, `changed`, `unchanged` or `forgotten`."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Lines:
    """The loose memories of one kind, oldest first."""

    memories: tuple[Memory, ...]
    is_whole: bool = True
    """False where older ones are left out."""


def file_content(path: str, text: str) -> str:
    """Return the text of the memory of a file."""
    return f"{path}\n{text}"


def readable_scopes(context: MemoryContext, actor: Actor) -> list[Scope]:
    """Return the scopes that were written to, have a space, or are projects of the actor, as far
    as the actor may read them; by name.
    """
    own = {
        Scope(kind="project", key=key, organization=actor.organization) for key in actor.projects
    }
    with context.store.database.read() as connection:
        stored = {space.scope: space for space in spaces.all_spaces(connection)}
        every = {*scopes.all_scopes(connection), *stored, *own}
    state = PolicyState(stored, context.store.clock.now())
    return sorted((each for each in every if decide(actor, "read", each, state).allowed), key=str)


def list_files(context: MemoryContext, actor: Actor, scope: Scope) -> list[File]:
    """Return the files of a scope, by path. Raises Denied."""
    context.gate.require(actor, "read", scope)
    now = context.store.clock.now()
    with context.store.database.read() as connection:
        rows = [
            row
            for place in scopes.find(connection, [scope])
            for row in items.files(connection, place.id, now)
        ]
        stored = memories.get_docs(connection, [row.doc for row in rows])
    files = [File(row.key, stored[row.doc].memory) for row in rows if row.doc in stored]
    context.gate.log_read(actor, "list", [scope], results=len(files))
    return files


def list_paths(context: MemoryContext, actor: Actor, scope: Scope) -> list[str]:
    """Return the paths of the files of a scope, without reading one. Raises Denied."""
    context.gate.require(actor, "read", scope)
    now = context.store.clock.now()
    with context.store.database.read() as connection:
        return [
            row.key
            for place in scopes.find(connection, [scope])
            for row in items.files(connection, place.id, now)
        ]


def get_file(context: MemoryContext, actor: Actor, scope: Scope, path: str) -> File | None:
    """Return the file at a path; None where there is none. Raises Denied."""
    context.gate.require(actor, "read", scope)
    now = context.store.clock.now()
    with context.store.database.read() as connection:
        rows = scopes.find(connection, [scope])
        stored = _file_at(connection, rows[0].id, path, now) if rows else None
    context.gate.log_read(actor, "get", [scope], results=int(stored is not None))
    return None if stored is None else File(path, stored.memory)


def _file_at(connection: Connection, scope_id: int, path: str, now: int) -> memories.Stored | None:
    row = items.find(connection, scope_id, items.FILES, path) if is_storable(path) else None
    stored = None if row is None else memories.get_docs(connection, [row.doc]).get(row.doc)
    if stored is None or stored.memory.state != "active":
        return None
    return None if is_expired(stored.memory.expires_at, now) else stored


def list_lines(
    context: MemoryContext, actor: Actor, scope: Scope, kinds: Sequence[str] = ()
) -> dict[str, Lines]:
    """Return the loose memories of a scope by kind, without turns of conversations, items of
    stores, files, and what an extension made. Raises Denied.
    """
    context.gate.require(actor, "read", scope)
    now = context.store.clock.now()
    lines: dict[str, Lines] = {}
    with context.store.database.read() as connection:
        for row in scopes.find(connection, [scope]):
            files = {each.doc for each in items.files(connection, row.id, now)}
            for kind in memories.loose_kinds(connection, row.id):
                if kind == STORE_ITEM or (kinds and kind not in kinds):
                    continue
                view = _lines(connection, context, actor, row.id, kind, files, now)
                if view.memories:
                    lines[kind] = view
    results = sum(len(each.memories) for each in lines.values())
    context.gate.log_read(actor, "list", [scope], results=results)
    return lines


def _lines(
    connection: Connection,
    context: MemoryContext,
    actor: Actor,
    scope_id: int,
    kind: str,
    files: set[int],
    now: int,
) -> Lines:
    chosen: list[Memory] = []
    before_doc = None
    while len(chosen) <= MOST_LINES:
        page = memories.latest(
            connection,
            [scope_id],
            kinds=[kind],
            states=["active"],
            limit=_PAGE,
            before_doc=before_doc,
        )
        visible = visible_docs(connection, context.gate, actor, page, now)
        chosen += [
            stored.memory
            for stored in page
            if stored.doc in visible
            and stored.doc not in files
            and stored.memory.conversation is None
            and not is_made_by_extension(stored.memory)
            and not is_expired(stored.memory.expires_at, now)
        ]
        if len(page) < _PAGE:
            break
        before_doc = page[-1].doc
    sizes = accumulate(len(memory.content) for memory in chosen)
    fitting = sum(size <= _MOST_CHARACTERS for size in sizes)
    newest = chosen[: min(MOST_LINES, max(1, fitting))]
    return Lines(tuple(reversed(newest)), is_whole=len(newest) == len(chosen))


def edit(
    context: MemoryContext,
    actor: Actor,
    scope: Scope,
    edits: Sequence[Edit],
    *,
    reason: str,
    correlation_id: str | None = None,
) -> list[Edited]:
    """Carry out edits of one scope in one transaction, in order, all or none.

    Raises Denied, NotFound, InvalidInput, InvalidRecord, VersionConflict, StateConflict, or
    Conflict for a path at which a file stands; then nothing changed.
    """
    require_reason(reason)
    prepared = [_prepare(context, actor, scope, each) for each in edits]

    def unit(tx: Connection) -> list[Edited]:
        write = MemoryWrite(tx, context, actor, context.store.clock.now(), correlation_id)
        return [each.apply(write, reason) for each in prepared]

    with context.gate.journaling(actor):
        return context.store.database.write_mostly(unit, name="files.edit", writes=Writes.of(scope))


@dataclass(frozen=True)
class _Addition:
    scope: Scope
    item: PreparedMemory
    path: str | None

    def apply(self, write: MemoryWrite, reason: str) -> Edited:
        write.context.gate.confirm(write.tx, write.actor, "write", self.scope)
        row = scopes.ensure(write.tx, self.scope)
        if self.path is not None:
            _require_free(write, row, self.path)
        stored = ingest_one(write, row, self.item)
        if self.path is not None:
            added = memories.get(write.tx, stored.id)
            assert added is not None
            items.set_item(write.tx, row.id, items.Row(items.FILES, self.path, added.doc, None))
        return Edited(stored.id, stored.version, stored.status, stored.warnings)


@dataclass(frozen=True)
class _Alteration:
    edit: Alter
    fields: Mapping[str, Any]
    vector: bytes | None
    warnings: tuple[str, ...]

    def apply(self, write: MemoryWrite, reason: str) -> Edited:
        before = self.edit.memory
        current = write.context.visible(write.tx, write.actor, before.id, "correct", sources=False)
        require_version(current.memory, before.version)
        require_active(current.memory)
        path, old_path = self.edit.path, self.edit.old_path
        if path is not None:
            _require_free(write, current.scope, path)
            items.set_item(
                write.tx, current.scope_id, items.Row(items.FILES, path, current.doc, None)
            )
        if old_path is not None:
            items.drop(write.tx, current.scope_id, items.FILES, old_path)
        memory = apply_changes(current.memory, self.fields)
        if memory == current.memory:
            return Edited(before.id, before.version, "unchanged", self.warnings)
        permitted = write.permit(current, "correct")
        names = sorted(self.edit.changes)
        change = apply_modify(write, permitted, memory, self.vector, names, reason)
        return Edited(change.id, change.version, "changed", self.warnings)


@dataclass(frozen=True)
class _Removal:
    memory: Memory

    def apply(self, write: MemoryWrite, reason: str) -> Edited:
        current = write.context.visible(
            write.tx, write.actor, self.memory.id, "delete", sources=False
        )
        require_version(current.memory, self.memory.version)
        gone = forget_one(write, write.permit(current, "delete"), reason)
        return Edited(gone.id, gone.version, "forgotten")


def _require_free(write: MemoryWrite, scope: ScopeRow, path: str) -> None:
    """Raise Conflict for a path at which a file stands, or that goes through one or a folder."""
    for row in items.files(write.tx, scope.id, write.now):
        if row.key == path or row.key.startswith(f"{path}/"):
            raise Conflict(f"{path} is there already.")
        if path.startswith(f"{row.key}/"):
            raise Conflict(f"{row.key} is a file, and no folder.")


def _prepare(
    context: MemoryContext, actor: Actor, scope: Scope, each: Edit
) -> _Addition | _Alteration | _Removal:
    """Make what an edit needs before the transaction, which no embedder holds up."""
    if isinstance(each, Drop):
        with context.store.database.read() as connection:
            context.visible(connection, actor, each.memory.id, "delete", sources=False)
        return _Removal(each.memory)
    if isinstance(each, Add):
        context.gate.require_early(actor, "write", scope)
        check_new(context, each.new)
        own = own_words(context, actor, scope, each.new)
        if own is None or own.content != each.new.content:
            raise InvalidInput(_RECALLED)
        [item] = prepare_new(context, actor, scope, [own], learn=True)
        if each.path is not None and not item.new.content.startswith(f"{each.path}\n"):
            raise InvalidInput("The path holds what may not be stored. Choose another name.")
        return _Addition(scope, item, each.path)
    with context.store.database.read() as connection:
        context.visible(connection, actor, each.memory.id, "correct", sources=False)
    changed = apply_changes(each.memory, each.changes)
    if "content" in each.changes:
        new = NewMemory(content=changed.content)
        if own_words(context, actor, scope, new) != new:
            raise InvalidInput(_RECALLED)
    admitted = admit_changes(context, changed, each.changes)
    fields = {**each.changes, **admitted.fields}
    changed, vector = apply_changes(each.memory, fields), None
    if "content" in fields:
        context.require_content(changed.content)
        vector = context.vector_for(changed)
    return _Alteration(each, fields, vector, admitted.warnings)


_RECALLED = (
    "The text holds what was recalled from here, with its frame. Write what is to be kept in words "
    "of its own."
)
