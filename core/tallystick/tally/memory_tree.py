"""MemoryTree: the memories that an actor may read as files in folders, and six commands on them.

At the top of each scope stands a file for each kind of its memories, such as `preferences.md`: a
view with one line for each memory. Editing a line is `modify`, removing one `forget`, adding one
`remember`. Every other file is a document of its own, and comes back byte for byte. The texts of
the answers and errors are those of Anthropic's memory tool.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from tallystick.errors import (
    Blocked,
    Conflict,
    Denied,
    InvalidInput,
    InvalidScope,
    NotFound,
    StateConflict,
    VersionConflict,
)
from tallystick.memory import files
from tallystick.memory.files import Add, Alter, Drop, Edit, Edited, File, Lines
from tallystick.memory.tree_lines import Line, edits_of, lines_of, read_line
from tallystick.memory.tree_paths import (
    FOLDERS,
    ROOT,
    Place,
    file_of_kind,
    parse_path,
    path_of,
    place_of,
)
from tallystick.records import JsonObject, Limited, Memory, NewMemory, Scope
from tallystick.records.escaping import escape_own_marks
from tallystick.records.framing import NOTICE, frame, frame_code
from tallystick.tally.memory_view import MemoryView

_WIDTH = 6
"""Characters of a line number."""
_LEVELS = 2
_AROUND = 2
"""Lines of a snippet before and behind the change."""
_MOST_SEEN = 20_000
_REASON = "memory tool"
_LIMITS: Mapping[type, Limited] = {Add: "write", Alter: "modify", Drop: "forget"}


class Permission(Protocol):
    """Decides over what a command reads and changes, as over the memory tools."""

    def read(self, tool: str, arguments: JsonObject, text: str) -> str:
        """Return what may be shown of a text that a memory tool would read. Raises Blocked."""
        ...

    def changes(self, edits: Sequence[Edit], *, is_file: bool) -> list[Edit]:
        """Return edits as they may be made; those of a whole file, or of memories. Raises Blocked
        and Denied.
        """
        ...


class SeenVersions:
    """The versions of memories that each actor was shown by one tool. Thread-safe."""

    def __init__(self) -> None:
        """Know of none yet."""
        self._guard = threading.Lock()
        self._versions: OrderedDict[tuple[str, str], int] = OrderedDict()

    def note(self, actor: str, versions: Mapping[str, int]) -> None:
        """Note what an actor was shown, by id."""
        with self._guard:
            for memory_id, version in versions.items():
                self._versions[actor, memory_id] = version
                self._versions.move_to_end((actor, memory_id))
            while len(self._versions) > _MOST_SEEN:
                self._versions.popitem(last=False)

    def among(self, actor: str, memories: Iterable[Memory]) -> dict[str, int]:
        """Return the versions of those of these memories that an actor was shown, by id."""
        with self._guard:
            return {
                memory.id: version
                for memory in memories
                if (version := self._versions.get((actor, memory.id))) is not None
            }


@dataclass(frozen=True)
class _View:
    """The lines of a file of one kind."""

    kind: str
    lines: tuple[Line, ...]
    is_whole: bool

    @property
    def text(self) -> str:
        return "".join(f"{line}\n" for line in self.lines)


class MemoryTree:
    """The tree of one actor. Each command is one transaction; an error changes nothing."""

    def __init__(
        self,
        view: MemoryView,
        seen: SeenVersions | None = None,
        permission: Permission | None = None,
    ) -> None:
        """Make the tree of the actor of a view. `seen` outlives it where each call has a view of
        its own; without `permission` the gate decides alone.
        """
        self._view = view
        self._actor = view.actor
        self._context = view._services.memory
        self._seen = SeenVersions() if seen is None else seen
        self._permission = permission
        self._reader = f"{self._actor.user}\x00{self._actor.agent or ''}"

    # Commands

    def view(self, path: str, view_range: Sequence[int] | None = None) -> str:
        """Return the lines of a file with their numbers, or what a folder holds, in a frame. Raises
        InvalidInput and NotFound.
        """
        place = self._place(path)
        self._view._admit("read")
        with self._view._observe_call("memory_read", "files.view") as call:
            if self._is_folder(place, path):
                shown: list[Memory] = []
                answer = self._show_folder(place, path)
            else:
                text, shown, note = self._read(place, path)
                answer = self._show_text(place, path, text, view_range, note)
            answer = self._allowed(place, shown, answer)
            self._note(shown)
            summary = {"memories": [[memory.id, memory.version] for memory in shown]}
            call.record("memory_read", {"path": path}, summary=summary)
        return answer

    def create(self, path: str, file_text: str) -> str:
        """Create a file. Raises InvalidInput, NotFound, Conflict and Denied."""
        place = self._file_place(path)
        if place.kind is not None:
            if self._lines(place).lines:
                raise Conflict(f"File {path} already exists")
            edits = self._added_lines(place, file_text.split("\n"))
        else:
            self._require_no_file_above(place, path)
            edits = [self._new_file(place, path, file_text)]
        try:
            edited = self._commit("create", place, edits)
        except Conflict as error:
            raise Conflict(f"File {path} already exists") from error
        return f"File created successfully at: {path}{_warnings(edited)}"

    def str_replace(self, path: str, old_str: str, new_str: str = "") -> str:
        """Replace a text that appears once in a file. Raises as `create`, and VersionConflict where
        the file changed since it was shown.
        """
        place = self._existing(path)
        view = self._lines(place) if place.kind is not None else None
        file = self._file(place, path) if view is None else None
        text = view.text if view is not None else file.text if file is not None else ""
        position = self._position(path, text, old_str, view)
        changed = f"{text[:position]}{new_str}{text[position + len(old_str) :]}"
        first = text.count("\n", 0, position)
        if view is not None:
            last = text.count("\n", 0, position + len(old_str))
            before = view.lines[first : last + 1]
            tail = len(view.lines) - (last + 1)
            after = changed.split("\n")
            after = after[first : len(after) - 1 - max(tail, 0)]
            seen = self._seen.among(self._reader, [line.memory for line in before])
            edited = self._commit("str_replace", place, edits_of(view.kind, before, after, seen))
            view = self._lines(place)
            changed, shown = view.text, [line.memory for line in view.lines]
        else:
            assert file is not None
            edited = self._rewrite("str_replace", place, file, changed)
            file = self._file(place, path)
            changed, shown = file.text, [file.memory]
        try:
            snippet = self._allowed(place, shown, self._snippet(place, changed, first))
            said = f"Here is the snippet showing the change (with line numbers):\n{snippet}"
        except Blocked:  # what a rule lets nobody read is changed all the same
            said = "It is not shown: a rule keeps it from being read."
        return f"The memory file has been edited. {said}{_warnings(edited)}"

    def insert(self, path: str, insert_line: int, insert_text: str) -> str:
        """Insert a text behind a line, 0 for the beginning; a line of a view goes to its end.
        Raises as `str_replace`.
        """
        place = self._existing(path)
        if place.kind is not None:
            count = len(self._lines(place).lines)
            _require_line(insert_line, count)
            edited = self._commit(
                "insert", place, self._added_lines(place, insert_text.split("\n"))
            )
            return f"The file {path} has been edited.{_warnings(edited)}"
        file = self._file(place, path)
        lines = file.text.split("\n")
        if lines[-1] == "":
            lines.pop()
        _require_line(insert_line, len(lines))
        lines.insert(insert_line, insert_text.rstrip("\n"))
        text = "\n".join(lines)
        edited = self._rewrite("insert", place, file, text if text.endswith("\n") else f"{text}\n")
        return f"The file {path} has been edited.{_warnings(edited)}"

    def delete(self, path: str) -> str:
        """Forget a file, a folder of files, or all memories of a kind. Raises as `str_replace`."""
        place = self._place(path)
        if place.scope is None or not place.path:
            raise InvalidInput(
                f"Cannot delete the {path} directory itself"
                if path.rstrip("/") == ROOT
                else f"{path} is the folder of a scope. Delete the files in it one by one."
            )
        gone = self._beneath(place, f"The path {path} does not exist")
        self._commit("delete", place, [Drop(self._as_seen(memory)) for _, memory in gone])
        return f"Successfully deleted {path}"

    def rename(self, old_path: str, new_path: str) -> str:
        """Rename a file or a folder of files within its scope; renaming the file of a kind changes
        the kind of its memories. Raises as `str_replace`.
        """
        old, new = self._place(old_path), self._file_place(new_path)
        if old.scope is None or not old.path:
            raise InvalidInput(
                f"Cannot rename the {old_path} directory itself"
                if old_path.rstrip("/") == ROOT
                else f"{old_path} is the folder of a scope, which has no other name."
            )
        moved = self._beneath(old, f"The path {old_path} does not exist")
        if new.scope != old.scope:
            raise InvalidInput(
                f"{old_path} and {new_path} are in two scopes, with other readers. Nothing moves "
                "there by a rename: ask a person to promote or share the memory, with a preview."
            )
        if (old.kind is None) != (new.kind is None):
            kind_file = old_path if old.kind is not None else new_path
            raise InvalidInput(
                f"{kind_file} is the file of all memories of one kind, and the other path is none. "
                "Create a file with the text instead."
            )
        if self._exists(new) or f"{new.path}/".startswith(f"{old.path}/"):
            raise Conflict(f"The destination {new_path} already exists")
        if new.kind is None:
            self._require_no_file_above(new, new_path)
        edits: list[Edit] = [
            self._moved(memory, {"kind": new.kind})
            if path is None
            else self._moved_file(File(path, memory), new.path + path[len(old.path) :])
            for path, memory in moved
        ]
        try:
            self._commit("rename", old, edits)
        except (VersionConflict, StateConflict):
            raise
        except Conflict as error:
            raise Conflict(f"The destination {new_path} already exists") from error
        return f"Successfully renamed {old_path} to {new_path}"

    def scope_of(self, path: object) -> Scope | None:
        """Return the scope that a path is in; None for none that the actor may read."""
        try:
            scope = place_of(self._actor, parse_path(path)).scope
        except (InvalidInput, InvalidScope):
            return None
        return scope if scope is not None and self._may_read(scope) else None

    def paths(self) -> list[str]:
        """Return the path of every file that the actor may read, by scope."""
        self._view._admit("read")
        return [path for scope in self._scopes() for path, _ in self._entries_of(scope, "")]

    # Places

    def _place(self, path: str) -> Place:
        """Return a place that the actor may read. Raises InvalidInput, and NotFound alike for a
        scope that is hidden and for one that is not there.
        """
        names = parse_path(path)
        try:
            place = place_of(self._actor, names)
        except InvalidScope:
            raise _absent(path) from None
        if names and place.scope is not None:
            try:
                self._view._services.gate.require(self._actor, "read", place.scope)
            except Denied as error:
                if error.reason == "missing_actor":
                    raise  # about the call, whatever the path
                raise _absent(path) from None
        return place

    def _file_place(self, path: str) -> Place:
        place = self._place(path)
        if place.scope is None or not place.path:
            raise InvalidInput(
                f"{path} is a folder. Name a file in it; a file beside those of your own goes "
                f"under {ROOT}."
            )
        redactor = self._context.redactor
        if redactor.redact_text(place.path).text != place.path:
            raise InvalidInput("The path holds a secret. Choose a name without it.")
        return place

    def _existing(self, path: str) -> Place:
        """Return the place of a file that is there. Raises NotFound and InvalidInput."""
        place = self._place(path)
        if self._is_folder(place, path):
            raise InvalidInput(f"The path {path} is not a file.")
        if not self._exists(place):
            raise _absent(path)
        return place

    def _is_folder(self, place: Place, path: str) -> bool:
        if place.scope is None or not place.path:
            return True
        return place.kind is None and any(
            path.startswith(f"{place.path}/") for path in self._paths(place)
        )

    def _exists(self, place: Place) -> bool:
        if place.kind is not None:
            return bool(self._lines(place).lines)
        return any(
            path == place.path or path.startswith(f"{place.path}/") for path in self._paths(place)
        )

    def _paths(self, place: Place) -> list[str]:
        assert place.scope is not None
        return files.list_paths(self._context, self._actor, place.scope)

    def _files(self, place: Place) -> list[File]:
        assert place.scope is not None
        return files.list_files(self._context, self._actor, place.scope)

    def _require_no_file_above(self, place: Place, path: str) -> None:
        for above in self._paths(place):
            if place.path.startswith(f"{above}/"):
                raise InvalidInput(f"{path} goes through {above}, which is a file.")

    def _file(self, place: Place, path: str) -> File:
        assert place.scope is not None
        file = files.get_file(self._context, self._actor, place.scope, place.path)
        if file is None:
            raise _absent(path)
        return file

    def _lines(self, place: Place) -> _View:
        assert place.scope is not None
        assert place.kind is not None
        lines = files.list_lines(self._context, self._actor, place.scope, [place.kind])
        return self._view_of(place.kind, lines.get(place.kind, Lines(())))

    def _view_of(self, kind: str, lines: Lines) -> _View:
        shown = tuple(lines_of(lines.memories, self._context.redactor))
        return _View(kind, shown, lines.is_whole)

    def _beneath(self, place: Place, absence: str) -> list[tuple[str | None, Memory]]:
        """Return the memories of a file or folder, each with the path of its file; None for a line
        of a view. Raises NotFound.
        """
        if place.kind is not None:
            view = self._lines(place)
            if not view.is_whole:
                raise InvalidInput(
                    f"{place.path} has more memories than it shows. Remove lines of it instead."
                )
            located: list[tuple[str | None, Memory]] = [(None, line.memory) for line in view.lines]
        else:
            located = [
                (file.path, file.memory)
                for file in self._files(place)
                if file.path == place.path or file.path.startswith(f"{place.path}/")
            ]
        if not located:
            raise NotFound(absence)
        return located

    # Reading

    def _read(self, place: Place, path: str) -> tuple[str, list[Memory], str]:
        """Return the text of a file, the memories in it, and a note for its reader."""
        if place.kind is None:
            file = self._file(place, path)
            return self._shown(file.text), [file.memory], ""
        view = self._lines(place)
        if not view.lines:
            raise _absent(path)
        note = "" if view.is_whole else "\nOlder memories of this kind are not shown: search them."
        return view.text, [line.memory for line in view.lines], note

    def _allowed(self, place: Place, shown: Sequence[Memory], text: str) -> str:
        """Return what the rules let be shown of a text from these memories. Raises Blocked."""
        if self._permission is None:
            return text
        return self._permission.read(*_reading(place, shown), text)

    def _show_text(
        self, place: Place, path: str, text: str, view_range: Sequence[int] | None, note: str
    ) -> str:
        lines, start = text.split("\n"), 0
        if view_range is not None and len(view_range) == 2:
            first, last = view_range
            start = max(1, first) - 1
            lines = lines[start:] if last == -1 else lines[start:last]
        numbered = _numbered(lines, start)
        return (
            f"Here's the content of {path} with line numbers:\n"
            f"{self._framed(place, numbered + note)}"
        )

    def _shown(self, text: str) -> str:
        """Return the text of a file as a model is shown it: without secrets and marks of ours."""
        return escape_own_marks(self._context.redactor.redact_text(text).text)

    def _snippet(self, place: Place, text: str, line: int) -> str:
        lines = self._shown(text).split("\n")
        start = max(0, min(line, len(lines) - 1) - _AROUND)
        return self._framed(place, _numbered(lines[start : line + _AROUND + 1], start))

    def _framed(self, place: Place, text: str) -> str:
        """Return text of memory in a frame, by which it is recognised when it comes back."""
        scope = place.scope or self._actor.private_scope
        # No answer can be sent with half a character, which a file may hold.
        body = f"\n{NOTICE}\n{text.encode('utf-8', 'replace').decode()}\n"
        return frame(body, frame_code(self._context.frame_keys.signing(scope), body))

    def _show_folder(self, place: Place, path: str) -> str:
        base = path.rstrip("/")
        sizes: dict[str, int] = {}
        total = 0
        for entry, size in self._entries(place):
            names = entry.removeprefix(f"{base}/").split("/")
            if any(name.startswith(".") for name in names):
                continue
            total += size
            for depth in range(1, min(len(names), _LEVELS) + 1):
                is_file = depth == len(names) and names[-1] != ""
                shown = "/".join(names[:depth]) + ("" if is_file else "/")
                if names[depth - 1]:
                    sizes[shown] = sizes.get(shown, 0) + size
        rows = [f"{_size(total)}\t{base}"]
        rows += [f"{_size(size)}\t{base}/{name}" for name, size in sorted(sizes.items())]
        header = f"Here're the files and directories up to {_LEVELS} levels deep in {base}, "
        return f"{header}excluding hidden items:\n{self._framed(place, chr(10).join(rows))}"

    def _scopes(self) -> list[Scope]:
        """Return the scopes with a folder, that of the actor first."""
        own = self._actor.private_scope
        others = files.readable_scopes(self._context, self._actor)
        return ([own] if self._may_read(own) else []) + [
            scope for scope in others if scope != own and path_of(self._actor, scope) is not None
        ]

    def _may_read(self, scope: Scope) -> bool:
        gate = self._view._services.gate
        return gate.require_or_none(self._actor, "read", scope) is not None

    def _entries(self, place: Place) -> Iterator[tuple[str, int]]:
        """Yield each file in a folder, and each folder of a scope, with its size in bytes."""
        own = self._actor.private_scope
        if place.scope is not None and (place.scope != own or self._may_read(own)):
            yield from self._entries_of(place.scope, place.path)
        if place.path and place.scope is not None:
            return
        if place.scope is not None and place.scope != own:
            return
        for scope in self._scopes():
            path = path_of(self._actor, scope)
            if scope == own or path is None:
                continue
            if place.scope is None and scope.kind != FOLDERS[place.path]:
                continue
            yield f"{path}/", 0
            if place.scope is None or scope.kind == "public":
                yield from self._entries_of(scope, "")

    def _entries_of(self, scope: Scope, within: str) -> Iterator[tuple[str, int]]:
        for file in files.list_files(self._context, self._actor, scope):
            if not within or file.path.startswith(f"{within}/"):
                path = path_of(self._actor, scope, file.path)
                yield path or "", len(file.text.encode("utf-8", "surrogatepass"))
        if within:
            return
        for kind, lines in files.list_lines(self._context, self._actor, scope).items():
            path = path_of(self._actor, scope, file_of_kind(kind))
            yield path or "", len(self._view_of(kind, lines).text.encode("utf-8", "surrogatepass"))

    # Changing

    def _position(self, path: str, text: str, old_str: str, view: _View | None) -> int:
        """Return the place of the one appearance of a text. Raises InvalidInput, and
        VersionConflict where it names a line as it was.
        """
        count = text.count(old_str) if old_str else 0
        if count == 1:
            return text.index(old_str)
        if count:
            numbers = [text.count("\n", 0, place) + 1 for place in _places(text, old_str)]
            raise InvalidInput(
                f"No replacement was performed. Multiple occurrences of old_str `{old_str}` in "
                f"lines: {', '.join(map(str, numbers))}. Please ensure it is unique"
            )
        handles = {line.handle: line.memory for line in view.lines} if view is not None else {}
        for named in old_str.split("\n"):
            written = read_line(named) if view is not None else None
            memory = None if written is None else handles.get(written.handle or "")
            if written is not None and memory is not None and written.version != memory.version:
                raise VersionConflict(
                    memory.id, expected=written.version or 0, actual=memory.version
                )
        raise InvalidInput(
            f"No replacement was performed, old_str `{old_str}` did not appear verbatim in {path}."
        )

    def _added_lines(self, place: Place, texts: Sequence[str]) -> list[Edit]:
        """Return the edits that add lines to a view: a line with a handle changes its kind."""
        edits: list[Edit] = []
        for written in filter(None, map(read_line, texts)):
            if written.handle is None:
                edits.append(Add(NewMemory(content=written.text, kind=place.kind or "")))
                continue
            memory = self._line_elsewhere(place, written.handle)
            if written.version is not None and written.version != memory.version:
                raise VersionConflict(memory.id, expected=written.version, actual=memory.version)
            edits.append(self._moved(memory, {"kind": place.kind}))
        if not edits:
            raise InvalidInput("Each line of this file is one memory; there is no line with text.")
        return edits

    def _line_elsewhere(self, place: Place, handle: str) -> Memory:
        """Return the memory of a line of another file of the same scope. Raises InvalidInput."""
        assert place.scope is not None
        memory_id = self._view._full_id(("memory",), handle)
        with suppress(NotFound):
            memory = self._view.get(memory_id)
            lines = files.list_lines(self._context, self._actor, place.scope, [memory.kind])
            shown = lines.get(memory.kind, Lines(())).memories
            if memory.scope == place.scope and memory.id in {each.id for each in shown}:
                return memory
        raise InvalidInput(
            f"The handle {handle} is that of no line in another file of this scope. Write a new "
            "line without a handle; to bring a memory to other readers, promote or share it."
        )

    def _moved(self, memory: Memory, changes: Mapping[str, Any]) -> Edit:
        return Alter(self._as_seen(memory), changes)

    def _moved_file(self, file: File, path: str) -> Edit:
        content = files.file_content(path, file.text)
        return Alter(self._as_seen(file.memory), {"content": content}, path, file.path)

    def _new_file(self, place: Place, path: str, text: str) -> Edit:
        content = files.file_content(place.path, text)
        self._require_size(path, content)
        return Add(NewMemory(content=content, kind=files.FILE_KIND), place.path)

    def _rewrite(self, command: str, place: Place, file: File, text: str) -> list[Edited]:
        content = files.file_content(file.path, text)
        self._require_size(place.path, content)
        return self._commit(
            command, place, [Alter(self._as_seen(file.memory), {"content": content})]
        )

    def _require_size(self, path: str, content: str) -> None:
        most = self._context.longest_memory_kb * 1_024
        size = len(content.encode("utf-8", "surrogatepass"))
        if size > most:
            raise InvalidInput(
                f"File {path} would have {size:,} bytes, and a file may have {most:,} "
                "(`longest_memory_kb`). Nothing was written. Write it in several files."
            )

    def _as_seen(self, memory: Memory) -> Memory:
        """Return a memory with the version that the actor was shown, which a change expects."""
        seen = self._seen.among(self._reader, [memory])
        return memory.model_copy(update={"version": seen.get(memory.id, memory.version)})

    def _commit(self, command: str, place: Place, edits: Sequence[Edit]) -> list[Edited]:
        assert place.scope is not None
        name = f"files.{command}"
        with self._view._observe_call("memory_write", name) as call:
            for kind, limited in _LIMITS.items():
                if count := sum(isinstance(each, kind) for each in edits):
                    self._view._admit(limited, count=count)
            if self._permission is not None:
                edits = self._permission.changes(edits, is_file=place.kind is None)
            edited = files.edit(
                self._context,
                self._view._traced_actor,
                place.scope,
                edits,
                reason=f"{_REASON}: {command}",
                correlation_id=call.correlation_id,
            )
            self._note(edited)
            changed = [{"id": each.id, "status": each.status} for each in edited]
            call.record("memory_write", {"path": place.path}, summary={"memories": changed})
        self._view._wake_worker()
        return edited

    def _note(self, shown: Iterable[Memory | Edited]) -> None:
        self._seen.note(self._reader, {each.id: each.version for each in shown})


def _reading(place: Place, shown: Sequence[Memory]) -> tuple[str, JsonObject]:
    """Return the memory tool that reads the same, with its arguments."""
    if place.kind is None and shown:
        return "memory_get", {"memory_id": shown[0].id}
    return "memory_list", {"limit": max(1, len(shown)), "before": None}


def _absent(path: str) -> NotFound:
    return NotFound(f"The path {path} does not exist. Please provide a valid path.")


def _places(text: str, part: str) -> Iterator[int]:
    place = text.find(part)
    while place >= 0:
        yield place
        place = text.find(part, place + 1)


def _numbered(lines: Sequence[str], start: int) -> str:
    return "\n".join(
        f"{number:>{_WIDTH}}\t{line}" for number, line in enumerate(lines, start=start + 1)
    )


def _require_line(line: int, count: int) -> None:
    if isinstance(line, bool) or not isinstance(line, int) or not 0 <= line <= count:
        raise InvalidInput(
            f"Invalid `insert_line` parameter: {line}. It should be within the range [0, {count}]."
        )


def _warnings(edited: Sequence[Edited]) -> str:
    warnings = dict.fromkeys(warning for each in edited for warning in each.warnings)
    duplicates = sum(each.status == "duplicate" for each in edited)
    lines = [*warnings, *([f"{duplicates} of these were known already"] if duplicates else [])]
    return "".join(f"\n({line})" for line in lines)


def _size(count: int) -> str:
    """Return a number of bytes as the memory tool shows it."""
    if count == 0:
        return "0B"
    step = min((count.bit_length() - 1) // 10, 3)
    size = count / 1_024**step
    unit = "BKMG"[step]
    return f"{int(size)}{unit}" if size == int(size) else f"{size:.1f}{unit}"
