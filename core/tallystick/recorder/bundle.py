"""Bundles: one file with everything that verifying a run needs, checked without the tally.

A bundle is a zip archive of five members. `run.json` contains the run, the beginning of
its chain, and the foil; `chain.jsonl` the journal's entries as they are stored; `steps.jsonl` and
`entries.jsonl` the rows; `payloads.bin` the bytes of the payloads. docs/reference/receipts.md
describes how to check a bundle with other tools. A page for people may hold a bundle: it is read
out of it.
"""

from __future__ import annotations

import base64
import binascii
import io
import json
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

from tallystick.errors import CorruptTally, InvalidInput, InvalidRecord
from tallystick.recorder.payloads import DOMAIN
from tallystick.recorder.receipts import receipts_in
from tallystick.recorder.signing import check
from tallystick.recorder.verify import Stored, verify
from tallystick.records import (
    Foil,
    JournalEntry,
    Receipt,
    Record,
    RunRecord,
    StepEntry,
    StepRecord,
    Verification,
    VerificationProblem,
    commitment,
    strict_json,
)
from tallystick.storage.rows import journal
from tallystick.storage.rows.journal import run_stream

R = TypeVar("R", bound=Record)

FORMAT = "tallystick-receipt/2"
_MEMBERS = ("run.json", "chain.jsonl", "steps.jsonl", "entries.jsonl", "payloads.bin")
_SPARE_UNFOLDED, _UNFOLDED = 2**26, 64
"""Bytes to which the members of a bundle may decompress: so many, and so many times those of the
file. A hostile one cannot take all memory.
"""
_SPARE_LINES, _LINE = 10_000, 16
"""Lines that a member may have: so many, and one for so many bytes of the file. The digest of an
entry alone takes twice that, which nothing compresses.
"""
_SPARE_BYTES, _GROWTH = 2**28, 1_000
"""Bytes that all payloads together may have once they are put together: so many, and so many times
those of the file. A prompt that grows by a line with each call is far below.
"""
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_DAMAGED = (
    # What reading and checking bytes that somebody else wrote may raise, one by one: a bundle is
    # refused by an error of ours, whatever is in it. ValueError has UnicodeError and InvalidRecord
    # beneath it, ArithmeticError has OverflowError, LookupError has KeyError.
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    AttributeError,
    NotImplementedError,
    RecursionError,
    RuntimeError,
    MemoryError,
    EOFError,
    OSError,
    InvalidRecord,
    CorruptTally,
)
_LINK_BEGINS = "data:application/zip;base64,"
"""How the link of a page begins that holds a bundle."""
_EPOCH = (1980, 1, 1, 0, 0, 0)
_NAMES: Mapping[type, Mapping[str, str]] = {
    RunRecord: {"id": "run_id", "goal": "user_goal"},
    StepRecord: {"id": "step_id"},
}
"""The names of fields in the format, where they differ from those of the records."""
_ENTRY = ("position", "kind", "at", "payload_state", "commitment", "redactions", "summary")


def bundle(stored: Stored, rows: Sequence[Any], anchor: journal.Anchor, foil: Foil) -> bytes:
    """Return the bundle of a run; the same run gives the same bytes."""
    payloads = io.BytesIO()
    last: dict[str, bytes] = {}
    entries = []
    for step in stored.steps():
        for row in stored.entries(step.id):
            body = stored.payload(row)
            entry = {"step_id": row.step_id, **{name: getattr(row, name) for name in _ENTRY}}
            entry["salt"] = None if row.salt is None else bytes(row.salt).hex()
            entry["payload"] = (
                None if body is None else _write_payload(payloads, body, last.get(row.kind, b""))
            )
            if body is not None:
                last[row.kind] = body
            entries.append(entry)
    run = {
        "format": FORMAT,
        "run": _fields_of(stored.run),
        "begins": {"count": anchor.count, "previous": anchor.head},
        "foil": foil.dump(),
    }
    chain = [_link_fields(stored, row) for row in rows]
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        contents = (
            json.dumps(run, indent=1, sort_keys=True).encode(),
            _lines(chain),
            _lines([_fields_of(step) for step in stored.steps()]),
            _lines(entries),
            payloads.getvalue(),
        )
        for name, content in zip(_MEMBERS, contents, strict=True):
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), content, zipfile.ZIP_DEFLATED)
    return out.getvalue()


def _link_fields(stored: Stored, row: Any) -> dict[str, Any]:
    """Return an entry of the chain, with what its commitment to texts in rows is checked by: their
    salt, and the metadata as they are stored.
    """
    entry = journal.read_row(row)
    metadata = stored.metadata_of(entry) if entry.row_texts is not None else None
    salt = None if metadata is None or row.salt is None else bytes(row.salt)
    return {
        "position": row.position,
        "previous": row.previous,
        "digest": row.digest,
        "body": row.body,
        "salt": None if salt is None else journal.row_salt(salt).hex(),
        "metadata": None if salt is None else metadata,
    }


@dataclass(frozen=True)
class BundledStep:
    """A step of a bundle, with its entries and their payloads."""

    step: StepRecord
    receipt: Receipt | None
    """Its receipt as the chain has it: names and summaries are in the step and its entries."""
    entries: tuple[StepEntry, ...]


@dataclass(frozen=True)
class BundledRun:
    """What a bundle contains."""

    run: RunRecord
    foil: Foil
    step_count: int
    _stock: _Bundled

    def steps(self) -> Iterator[BundledStep]:
        """Yield the steps in their order. Payloads rest on one another: those of one step at a time
        are put together. Raises InvalidInput for a damaged one.
        """
        with _refusing():
            yield from self._stock.bundled_steps()


def is_bundle(path: Path) -> bool:
    """Return True if a file looks like a bundle, or like a page that holds one."""
    if not path.is_file():
        return False
    return zipfile.is_zipfile(path) or _LINK_BEGINS.encode() in path.read_bytes()


def bundle_link(content: bytes) -> str:
    """Return the address of a link that holds a bundle, for a page."""
    return _LINK_BEGINS + base64.b64encode(content).decode()


def bundle_in(content: bytes) -> bytes:
    """Return the bundle that a file is, or that the page in it holds. Raises InvalidInput for a
    page that holds several, or a broken one.
    """
    if content.startswith(b"PK") or _LINK_BEGINS.encode() not in content:
        return content
    first, *others = content.split(_LINK_BEGINS.encode())[1:]
    if others:
        raise InvalidInput("This page holds more than one bundle: nobody can tell which it shows.")
    try:
        return base64.b64decode(first.partition(b'"')[0], validate=True)
    except binascii.Error as error:
        raise InvalidInput("The bundle in this page is damaged.") from error


def read_bundle(source: str | Path | bytes) -> BundledRun:
    """Return what a bundle contains, unchecked: `verify_bundle` says whether it is true. Raises
    InvalidInput for anything but a bundle.
    """
    content = source if isinstance(source, bytes) else _bytes_of(Path(source))
    with _refusing():
        stock = _read(bundle_in(content))
        return BundledRun(stock.run, stock.stated_foil, len(stock.steps()), stock)


def verify_bundle(
    source: str | Path | bytes, *, foil: Foil | None = None, public_key: bytes | None = None
) -> Verification:
    """Check that everything in a bundle matches, and matches the foil that you kept and a key,
    where they are given.

    No tally is needed. Raises InvalidInput for anything but a bundle, whatever it contains: each
    member once and no other, each key once, values of exactly their types, and no more bytes than
    the page on receipts allows.
    """
    content = source if isinstance(source, bytes) else _bytes_of(Path(source))
    with _refusing():
        return _verify_bundle(_read(bundle_in(content)), foil, public_key)


@contextmanager
def _refusing() -> Iterator[None]:
    """Raise InvalidInput for whatever else reading hostile bytes raises."""
    try:
        yield
    except _DAMAGED as error:
        if isinstance(error, InvalidInput) and not isinstance(error, InvalidRecord):
            raise
        raise InvalidInput("This is no bundle of a receipt, or a damaged one.") from error


def _verify_bundle(stock: _Bundled, foil: Foil | None, public_key: bytes | None) -> Verification:
    verification = verify(stock, foil)
    stated_foil = stock.stated_foil
    signature_ok = check(stated_foil, public_key)
    problems = [*verification.problems, *stock.stray_entries()]
    if (stated_foil.run_id, stated_foil.count, stated_foil.head) != (stock.run.id, *stock.last):
        problems.append(
            VerificationProblem(where="run.json", problem="its foil is not the end of its chain")
        )
    if signature_ok is False:
        problem = (
            "it is not signed"
            if stated_foil.signature is None
            else "its signature is not that of the key"
        )
        problems.append(VerificationProblem(where="run.json", problem=problem))
    return verification.model_copy(
        update={"problems": tuple(problems), "ok": not problems, "signature_ok": signature_ok}
    )


@dataclass(frozen=True)
class _Row:
    """A row of the bundle, with the field names that it has in a tally."""

    step_id: str
    position: int
    kind: str
    at: int
    payload_state: str
    commitment: str
    redactions: str
    summary: str
    salt: bytes | None
    part_key: str | None
    committed: str | None
    """The commitment to its payload: of payloads that rest on one another only the last of each
    kind is in memory.
    """
    body: bytes | None = None
    """Its payload, where a reader asks for it."""
    scope_id: int = 0
    base_id: None = None
    copied: None = None


@dataclass(frozen=True)
class _Link:
    stream: str
    position: int
    previous: str
    digest: str
    body: str
    audit_id: str | None
    event: str | None
    subject_id: str | None
    sequence: int
    salt: bytes | None = None
    """That of the commitment to texts in rows."""
    metadata: str | None = None
    """The metadata of the run or step, as they are stored."""


class _Bundled:
    """A run in a bundle."""

    scope_id = 0

    def __init__(
        self,
        run: RunRecord,
        links: Sequence[_Link],
        anchor: journal.Anchor,
        foil: Foil,
        steps: list[StepRecord],
        rows: Mapping[str, list[_Row]],
        with_bodies: Callable[[], Iterator[_Row]],
    ) -> None:
        self.run = run
        self.stated_foil = foil
        self._links = links
        self._by_position = {link.position: link for link in links}
        self._anchor = anchor
        self._steps = steps
        self._rows = rows
        self._with_bodies = with_bodies

    @property
    def last(self) -> tuple[int, str]:
        """Number of entries of the chain, and the digest of the last."""
        if not self._links:
            return self._anchor.count, self._anchor.head
        return self._links[-1].position + 1, self._links[-1].digest

    def chain_problems(self) -> list[journal.ChainProblem]:
        """Same as `Stock.chain_problems`."""
        problems = journal.chain_problems(
            run_stream(self.run.id),
            self._links,
            self._anchor,
            journal.End(self.stated_foil.count, self.stated_foil.head),
        )
        genesis = journal.genesis(run_stream(self.run.id))
        if self._anchor.count == 0 and self._anchor.head != genesis:
            problems.append(
                journal.ChainProblem(
                    run_stream(self.run.id), "does not begin where the chain of this run begins"
                )
            )
        return problems

    def stray_entries(self) -> list[VerificationProblem]:
        """Return entries of steps that this run does not have, which a tally cannot contain."""
        unknown = sorted(set(self._rows) - {step.id for step in self._steps})
        return [
            VerificationProblem(where=f"step {step_id}", problem="has entries but is no step")
            for step_id in unknown
        ]

    def bundled_steps(self) -> Iterator[BundledStep]:
        """Yield the steps with their receipts, entries and payloads. Raises InvalidInput where the
        entries stand in another order than the steps.
        """
        receipts = {receipt.step_id: receipt for _, receipt in receipts_in(self.chain())}
        groups = groupby(self._with_bodies(), key=lambda row: row.step_id)
        ahead = next(groups, None)
        for step in self._steps:
            entries: tuple[StepEntry, ...] = ()
            if ahead is not None and ahead[0] == step.id:
                entries = tuple(map(_step_entry, ahead[1]))
                ahead = next(groups, None)
            yield BundledStep(step, receipts.get(step.id), entries)
        if ahead is not None:
            raise InvalidInput("The entries of this bundle stand in another order than its steps.")

    def end(self) -> Foil:
        """Same as `Stock.end`."""
        return self.stated_foil

    def chain(self) -> list[JournalEntry]:
        """Same as `Stock.chain`."""
        return [journal.read_row(link) for link in self._links]

    def steps(self) -> list[StepRecord]:
        """Same as `Stock.steps`."""
        return self._steps

    def entries(self, step_id: str) -> Sequence[_Row]:
        """Same as `Stock.entries`."""
        return self._rows.get(step_id, [])

    def row_salt(self, entry: JournalEntry) -> bytes | None:
        """Same as `Stock.row_salt`."""
        return self._by_position[entry.position].salt

    def metadata_of(self, entry: JournalEntry) -> str | None:
        """Same as `Stock.metadata_of`."""
        return self._by_position[entry.position].metadata

    def commitment_of(self, row: Any) -> str | None:
        """Same as `Stock.commitment_of`."""
        committed: str | None = row.committed
        return committed


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}.") from error


def _step_entry(row: _Row) -> StepEntry:
    return StepEntry.load(
        {
            "id": f"{row.step_id}/{row.position}",
            "step_id": row.step_id,
            "position": row.position,
            "kind": row.kind,
            "at": row.at,
            "commitment": row.commitment,
            "payload": None if row.body is None else strict_json(row.body),
            "payload_state": row.payload_state,
            "redactions": strict_json(row.redactions),
            "summary": strict_json(row.summary),
        }
    )


def _read(content: bytes) -> _Bundled:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {info.filename: info for info in archive.infolist()}
        if len(archive.infolist()) != len(_MEMBERS) or set(members) != set(_MEMBERS):
            raise InvalidInput(
                f"This is no bundle of a receipt, which has {', '.join(_MEMBERS)}, each once."
            )
        if any(info.compress_type not in _COMPRESSIONS for info in members.values()):
            raise InvalidInput("A member of this bundle is compressed in a way that none is.")
        unfolded = sum(info.file_size for info in members.values())
        if unfolded > _SPARE_UNFOLDED + _UNFOLDED * len(content):
            raise InvalidInput("This bundle says that it unfolds to more than may be held.")
        packed = sum(info.compress_size for info in members.values())
        head, chain, steps, entries, payloads = (archive.read(name) for name in _MEMBERS)
    most_lines = _SPARE_LINES + len(content) // _LINE
    if any(member.count(b"\n") > most_lines for member in (chain, steps, entries)):
        raise InvalidInput("This bundle has more lines than its bytes can say something by.")
    header = strict_json(head)
    if header.get("format") != FORMAT:
        raise InvalidInput(
            f"This bundle is of the format {header.get('format')!a}; this release reads {FORMAT}."
        )
    _require_fields(header, {"format": str, "run": dict, "begins": dict, "foil": dict})
    run, start = _exactly(RunRecord, header["run"]), header["begins"]
    _require_fields(start, {"count": int, "previous": str})
    stream = run_stream(run.id)
    rows: dict[str, list[_Row]] = {}
    most = _SPARE_BYTES + _GROWTH * packed

    def read_rows(with_bodies: bool) -> Iterator[_Row]:
        return _rows(_json_lines(entries), payloads, most, with_bodies=with_bodies)

    for row in read_rows(False):
        rows.setdefault(row.step_id, []).append(row)
    return _Bundled(
        run,
        [_link(stream, fields) for fields in _json_lines(chain)],
        journal.Anchor(start["count"], start["previous"]),
        _exactly(Foil, header["foil"]),
        [_exactly(StepRecord, fields) for fields in _json_lines(steps)],
        rows,
        partial(read_rows, True),
    )


def _exactly(kind: type[R], fields: Mapping[str, Any]) -> R:
    """Return a record whose fields are those of the file to the type: a record accepts "5" for 5.
    Raises InvalidRecord, ValueError.
    """
    names = {name: field for field, name in _NAMES.get(kind, {}).items()}
    record = kind.load({names.get(name, name): value for name, value in fields.items()})
    if json.dumps(_fields_of(record), sort_keys=True) != json.dumps(fields, sort_keys=True):
        raise ValueError("a field has a value of another type, or is missing")
    return record


def _fields_of(record: Record) -> dict[str, Any]:
    """Return the fields of a record under their names in the format."""
    names = _NAMES.get(type(record), {})
    return {names.get(name, name): value for name, value in record.dump().items()}


def _require_fields(fields: Any, types: Mapping[str, type | tuple[type, ...]]) -> None:
    """Raise ValueError unless `fields` has these fields and no other, each of exactly its type."""
    if type(fields) is not dict or fields.keys() != types.keys():
        raise ValueError("an object has other fields")
    for name, expected in types.items():
        if type(fields[name]) not in (expected if isinstance(expected, tuple) else (expected,)):
            raise ValueError(f"{name} has another type")


_LINK: dict[str, type | tuple[type, ...]] = {
    "position": int,
    "previous": str,
    "digest": str,
    "body": str,
    "salt": (str, type(None)),
    "metadata": (str, type(None)),
}
_PLACE = {"start": int, "size": int, "head": int, "tail": int}
_ROW: dict[str, type | tuple[type, ...]] = {
    "step_id": str,
    "position": int,
    "kind": str,
    "at": int,
    "payload_state": str,
    "commitment": str,
    "redactions": str,
    "summary": str,
    "salt": (str, type(None)),
    "payload": (dict, type(None)),
}


def _link(stream: str, fields: Any) -> _Link:
    _require_fields(fields, _LINK)
    salt, metadata = fields["salt"], fields["metadata"]
    if (salt is None) != (metadata is None):
        raise ValueError("an entry has a salt without metadata, or metadata without a salt")
    if metadata is not None:
        strict_json(metadata)
    body = strict_json(fields["body"])
    entry = body if isinstance(body, dict) else {}
    return _Link(
        stream,
        fields["position"],
        fields["previous"],
        fields["digest"],
        fields["body"],
        entry.get("audit_id"),
        entry.get("event"),
        entry.get("subject_id"),
        fields["position"],
        None if salt is None else bytes.fromhex(salt),
        metadata,
    )


def _rows(
    entries: Iterator[Any], payloads: bytes, most: int, *, with_bodies: bool
) -> Iterator[_Row]:
    """Yield the rows with the commitments to their payloads, whose bytes together are at most
    `most`; with the payloads themselves only where they are asked for.
    """
    last: dict[str, bytes] = {}
    stop = total = 0
    for fields in entries:
        _require_fields(fields, _ROW)
        strict_json(fields["redactions"])
        strict_json(fields["summary"])
        place, kind = fields["payload"], fields["kind"]
        salt = None if fields["salt"] is None else bytes.fromhex(fields["salt"])
        committed = body = None
        if place is not None:
            _require_fields(place, _PLACE)
            base = last.get(kind, b"")
            start, size, head, tail = (place[name] for name in _PLACE)
            # Payloads follow one another without gaps: another place with equal bytes is refused.
            if (
                min(size, head, tail) < 0
                or head + tail > len(base)
                or start != stop
                or start + size > len(payloads)
            ):
                raise InvalidInput(
                    "A payload of this bundle says that it stands where it does not."
                )
            stop, total = start + size, total + head + size + tail
            if total > most:
                raise InvalidInput("The payloads of this bundle are more than may be checked.")
            body = base[:head] + payloads[start:stop] + base[len(base) - tail :]
            last[kind] = body
            committed = None if salt is None else commitment(DOMAIN, salt, body)
        yield _Row(
            fields["step_id"],
            **{name: fields[name] for name in _ENTRY},
            salt=salt,
            part_key=None if place is None else "bundled",
            committed=committed,
            body=body if with_bodies else None,
        )
    if stop != len(payloads):
        raise InvalidInput("This bundle has bytes that belong to no payload.")


def _write_payload(payloads: io.BytesIO, body: bytes, base: bytes) -> dict[str, int]:
    """Write a payload without the bytes that it shares with the one of its kind before; return its
    place.
    """
    head = _common(base, body)
    tail = _common(base[head:][::-1], body[head:][::-1])
    own = body[head : len(body) - tail]
    place = {"start": payloads.tell(), "size": len(own), "head": head, "tail": tail}
    payloads.write(own)
    return place


def _common(first: bytes, second: bytes) -> int:
    """Return the number of equal bytes at the beginning."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _lines(values: Sequence[Any]) -> bytes:
    return b"".join(json.dumps(value, sort_keys=True).encode() + b"\n" for value in values)


def _json_lines(lines: bytes) -> Iterator[Any]:
    for line in io.BytesIO(lines):
        yield strict_json(line)
