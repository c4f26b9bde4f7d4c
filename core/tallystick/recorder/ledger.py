"""A ledger: one file of entries in order, each a line of JSON, chained as receipts are.

The digest of a line is the journal's (`storage.rows.journal.chain_entry`), and so is the check of
the chain; a ledger has no tally, so whoever has the file and its head can verify it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock

from tallystick.errors import InvalidInput, TallystickError
from tallystick.ports import Ids, UuidIds
from tallystick.records import Actor, Foil, JournalEntry, Record, VerificationProblem
from tallystick.records.canonical import canonical_json, strict_json
from tallystick.storage.rows import journal

STREAM = "ledger"
_BEGINS = b'{"body":{'
"""The bytes with which every line begins: what is torn has at least their beginning."""
_FIELDS = {"body", "digest", "position", "previous"}
_WAIT_SECONDS = 60.0

Ending = Literal["whole", "torn", "empty"]


class Ledger(Record):
    """A ledger as it was read, and what does not match in it."""

    ok: bool
    """True if nothing was changed: the chain holds, and passes through the head that was given."""
    ending: Ending
    """`torn` where the last append was cut off, as by a crash, before it was acknowledged. It is
    told from tampering, and leaves `ok` True.
    """
    entries: tuple[JournalEntry, ...] = ()
    foil: Foil
    """Count and head of the chain: keep them elsewhere, such as in the notes of a release."""
    problems: tuple[VerificationProblem, ...] = ()


@dataclass(frozen=True)
class _Line:
    """A line as `journal.chain_problems` and `journal.read_row` take it."""

    position: int
    previous: str
    digest: str
    body: str
    audit_id: str | None
    event: str | None
    subject_id: str | None
    stream: str = STREAM
    sequence: int = 0


def read_ledger(path: Path, *, foil: Foil | None = None) -> Ledger:
    """Read and verify a ledger; with `foil`, that it passes through the head that was kept. Raises
    OSError.
    """
    lines, tail, problems = _lines(path.read_bytes())
    anchor = journal.Anchor(0, journal.genesis(STREAM))
    stated = journal.End(len(lines), lines[-1].digest if lines else anchor.head)
    if not problems:
        problems += journal.chain_problems(STREAM, lines, anchor, stated)
    entries: list[JournalEntry] = []
    try:
        entries += map(journal.read_row, lines)
    except TallystickError as error:
        problems.append(journal.ChainProblem(STREAM, f"an entry is not readable: {error}"))
    if foil is not None and not _passes(lines, foil, anchor.head):
        cut = foil.count > len(lines)
        cut_text = "it has fewer entries than the head that you kept: its end was cut off"
        other = "it does not pass through the head that you kept: it was written anew"
        problems.append(journal.ChainProblem(STREAM, cut_text if cut else other))
    return Ledger(
        ok=not problems,
        ending="torn" if tail else "whole" if lines else "empty",
        entries=tuple(entries),
        foil=Foil(run_id=STREAM, count=stated.length, head=stated.head),
        problems=tuple(VerificationProblem(where=w, problem=p) for w, p in problems),
    )


def _passes(lines: list[_Line], foil: Foil, genesis: str) -> bool:
    if foil.count == 0:
        return foil.head == genesis
    return foil.count <= len(lines) and lines[foil.count - 1].digest == foil.head


def _lines(content: bytes) -> tuple[list[_Line], bytes, list[journal.ChainProblem]]:
    """Return the lines of a ledger, the torn one at its end, and the lines that are no entries."""
    *whole, tail = content.split(b"\n")
    lines: list[_Line] = []
    for number, text in enumerate(whole):
        line = _line(text)
        if line is None:
            problem = journal.ChainProblem(f"{STREAM}#{number}", "is no entry, or has other bytes")
            return lines, b"", [problem]
        lines.append(line)
    if tail and (line := _line(tail)) is not None:
        lines.append(line)  # only the end of its line is missing
    elif tail and not _BEGINS.startswith(tail[: len(_BEGINS)]):
        problem = journal.ChainProblem(f"{STREAM}#{len(lines)}", "is no entry, and none cut off")
        return lines, tail, [problem]
    return lines, tail, []


def _line(text: bytes) -> _Line | None:
    """Return a line, or None for bytes that `append` does not write."""
    try:
        fields: Any = strict_json(text)
        if (
            not isinstance(fields, dict)
            or fields.keys() != _FIELDS
            or canonical_json(fields) != text
        ):
            return None
        body = fields["body"]
        kinds = (
            type(fields["position"]),
            type(fields["previous"]),
            type(fields["digest"]),
            type(body),
        )
        if kinds != (int, str, str, dict):
            return None
        return _Line(
            fields["position"],
            fields["previous"],
            fields["digest"],
            canonical_json(body).decode(),
            *(body.get(name) for name in ("audit_id", "event", "subject_id")),
        )
    except (ValueError, TallystickError):
        return None


@contextmanager
def appending(path: Path) -> Iterator[Appender]:
    """Hold a ledger: nobody else appends to it meanwhile. It is made where there is none. Raises
    InvalidInput where it does not verify, OSError, filelock.Timeout.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{path}.lock", timeout=_WAIT_SECONDS):
        path.touch()
        yield Appender(path)


class Appender:
    """Appends to a ledger that `appending` holds."""

    def __init__(self, path: Path) -> None:
        self._path = path
        ledger = read_ledger(path)
        if not ledger.ok:
            [first, *_] = ledger.problems
            raise InvalidInput(
                f"{path} was changed: {first.where} {first.problem}. Nothing is appended to it: "
                "keep it as it is, and name another file."
            )
        self._mend_torn()
        self.entries: list[JournalEntry] = list(ledger.entries)
        self._end = journal.End(ledger.foil.count, ledger.foil.head)

    def append(
        self,
        event: str,
        *,
        by: str,
        subject_id: str | None = None,
        details: Mapping[str, Any] | None = None,
        at: int | None = None,
        ids: Ids | None = None,
    ) -> JournalEntry:
        """Append an entry, and return it once it is on disk. `details` have no floats; `at` is in
        microseconds UTC, by default now. Raises InvalidInput, OSError.
        """
        moment = time.time_ns() // 1_000 if at is None else at
        audit_id = (ids or UuidIds()).new()
        actor = Actor(user=by)
        entry = journal.chain_entry(
            journal.Event(
                STREAM, event, actor, moment, audit_id, subject_id=subject_id, details=details
            ),
            self._end,
        )
        fields = {
            "body": strict_json(entry.text),
            "digest": entry.digest,
            "position": entry.position,
            "previous": entry.previous,
        }
        _write(self._path, canonical_json(fields) + b"\n")
        self._end = journal.End(entry.position + 1, entry.digest)
        line = _Line(
            entry.position, entry.previous, entry.digest, entry.text, audit_id, event, None
        )
        self.entries.append(journal.read_row(line))
        return self.entries[-1]

    def _mend_torn(self) -> None:
        """Cut what an append left half written; an entry that is whole gets the end of its line."""
        content = self._path.read_bytes()
        tail = content.rpartition(b"\n")[2]
        if tail and _line(tail) is not None:
            _write(self._path, b"\n")
        elif tail:
            with self._path.open("r+b") as file:
                file.truncate(len(content) - len(tail))
                os.fsync(file.fileno())


def _write(path: Path, text: bytes) -> None:
    with path.open("ab") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def latest(entries: Iterable[JournalEntry], event: str) -> dict[str, JournalEntry]:
    """Return the last entry of an event about each subject."""
    return {str(each.subject_id): each for each in entries if each.event == event}
