"""Lines: the memories of one kind as the text of a file, and an edit of that text as edits of them.

Each memory is one line that ends with its handle: the end of its id, and its version. A text with
marks, line breaks or hidden characters is shown with escapes, and an edited line is read back with
them: what is compared is what was shown.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tallystick.errors import InvalidInput
from tallystick.memory.files import Add, Alter, Drop, Edit
from tallystick.policy.redaction import Redactor
from tallystick.records import Memory, NewMemory
from tallystick.records.escaping import UNSEEN, as_field

_HANDLE = re.compile(r"<!-- ([0-9a-f]{6,36}|[0-9a-f-]{36})@(\d{1,9}) -->")
_LINE = re.compile(rf"\s*(?:[-*] +)?(.*?)(?:\s*{_HANDLE.pattern})?\s*")
_ESCAPE = re.compile(r"\\(n|r|t|\\|u[0-9a-f]{4}|U[0-9a-f]{8})")
_PLAIN = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\"}
_SHORT = 8


@dataclass(frozen=True)
class Line:
    """A memory as a line."""

    memory: Memory
    handle: str
    shown: str
    """Its text as it is shown."""
    is_exact: bool
    """False where the shown text stands for another, because a secret was replaced."""

    def __str__(self) -> str:
        return f"- {self.shown} <!-- {self.handle}@{self.memory.version} -->"


def lines_of(memories: Sequence[Memory], redactor: Redactor) -> list[Line]:
    """Return memories as lines, in their order."""
    ends = [memory.id[-_SHORT:] for memory in memories]
    counts = Counter(ends)
    lines = []
    for memory, end in zip(memories, ends, strict=True):
        clean, _ = redactor.redact_text(memory.content)
        handle = end if counts[end] == 1 else memory.id
        lines.append(Line(memory, handle, encode(clean), clean == memory.content))
    return lines


def encode(text: str) -> str:
    """Return a text as one line that holds no mark of structure; `decode` gives it back."""
    plain = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    plain = plain.replace("\t", "\\t")
    line = f"- {plain}"
    is_plain = plain == plain.strip() and "<!--" not in plain and plain[:2] not in ("- ", "* ")
    if is_plain and as_field(line) == line:
        return plain
    last = len(plain) - 1
    return "".join(
        each if _is_plain(each) and not (place in (0, last) and each in " -") else _number(each)
        for place, each in enumerate(plain)
    )


def _is_plain(character: str) -> bool:
    return character in " .,;'?\\-_/" or (character.isalnum() and not UNSEEN.match(character))


def _number(character: str) -> str:
    number = ord(character)
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def decode(shown: str) -> str:
    """Return the text that is shown so."""

    def plain(escape: re.Match[str]) -> str:
        code = escape.group(1)
        return _PLAIN[code] if code in _PLAIN else chr(int(code[1:], 16))

    return _ESCAPE.sub(plain, shown)


@dataclass(frozen=True)
class Written:
    """A line that somebody wrote."""

    text: str
    handle: str | None = None
    version: int | None = None


def read_line(line: str) -> Written | None:
    """Return a line in its parts; None for an empty one. Raises InvalidInput for one with a handle
    within.
    """
    match = _LINE.fullmatch(line)
    if match is None:
        raise InvalidInput("A memory of this file is one line; this one holds a line break.")
    text, handle, version = match.groups()
    if _HANDLE.search(text):
        raise InvalidInput(
            "Each line of this file is one memory and keeps its handle at its end; here one stands "
            "within. Write each memory on a line of its own."
        )
    if not text.strip():
        return None
    return Written(text, handle, None if version is None else int(version))


def edits_of(
    kind: str, before: Sequence[Line], after: Sequence[str], seen: Mapping[str, int]
) -> list[Edit]:
    """Return the edits that make of the lines `before` those that stand in their place.

    A line with a handle is that memory. Where as many lines stand in their place, one without a
    handle is the memory whose place it has; else it is a new one. `seen` has the version of each
    memory that was shown, by id. Raises InvalidInput.
    """
    by_handle = {line.handle: line for line in before}
    paired = len(before) == len(after)
    written = [read_line(line) for line in after]
    edits: list[Edit] = []
    kept: set[str] = set()
    named = {each.handle for each in written if each is not None and each.handle is not None}
    for place, each in enumerate(written):
        if each is None:
            continue
        line = None
        if each.handle is not None:
            line = by_handle.get(each.handle)
            if line is None or each.version != line.memory.version or line.handle in kept:
                raise InvalidInput(
                    f"The handle {each.handle}@{each.version} is none of these lines. Keep the "
                    "handle of a line as it was shown, and write a new line without one."
                )
        elif paired and before[place].handle not in named:
            line = before[place]
        if line is None:
            edits.append(Add(NewMemory(content=each.text, kind=kind)))
            continue
        kept.add(line.handle)
        content = _content_of(line, each.text)
        if content != line.memory.content:
            edits.append(Alter(_as_seen(line.memory, seen), {"content": content}))
    gone: list[Edit] = [
        Drop(_as_seen(line.memory, seen)) for line in before if line.handle not in kept
    ]
    return [*gone, *edits]


def _content_of(line: Line, text: str) -> str:
    """Return the text of a memory whose line says `text` now. Raises InvalidInput."""
    if text == line.shown:
        return line.memory.content
    if not line.is_exact:
        raise InvalidInput(
            f"A secret in the line {line.handle} is not shown. Remove the line, or write another."
        )
    return text if line.shown == line.memory.content else decode(text)


def _as_seen(memory: Memory, seen: Mapping[str, int]) -> Memory:
    return memory.model_copy(update={"version": seen.get(memory.id, memory.version)})
