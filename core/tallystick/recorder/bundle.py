"""Bundles: one file with everything that verifying a run needs, checked without the tally.

A bundle is a zip archive of four members. `run.json` contains the run, the beginning of
its chain, and the foil; `chain.jsonl` the journal's entries as they are stored; `steps.jsonl` and
`entries.jsonl` the rows; `payloads.bin` the bytes of the payloads. docs/receipts.md describes how
to check a bundle with other tools.
"""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tallystick.errors import InvalidInput, InvalidRecord
from tallystick.recorder.chain import run_stream
from tallystick.recorder.signing import check
from tallystick.recorder.verify import Stored, verify
from tallystick.records import (
    Foil,
    JournalEntry,
    RunRecord,
    StepRecord,
    Verification,
    VerificationProblem,
)
from tallystick.storage import journal

__all__ = ["FORMAT", "bundle", "is_bundle", "verify_bundle"]

FORMAT = "tallystick-receipt/1"
_MEMBERS = ("run.json", "chain.jsonl", "steps.jsonl", "entries.jsonl", "payloads.bin")
_MAX_BYTES = 4 * 1024**3
"""Size to which a bundle may decompress: a hostile one cannot take all memory."""
_EPOCH = (1980, 1, 1, 0, 0, 0)
_ENTRY = ("position", "kind", "at", "payload_state", "commitment", "redactions", "summary")


def bundle(stored: Stored, rows: Sequence[Any], anchor: journal.Anchor, foil: Foil) -> bytes:
    """Return the bundle of a run; the same run gives the same bytes."""
    payloads = io.BytesIO()
    last: dict[str, bytes] = {}
    entries = []
    for step in stored.steps():
        for row in stored.entries(step.step_id):
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
        "run": stored.run.dump(),
        "begins": {"count": anchor.count, "previous": anchor.head},
        "foil": foil.dump(),
    }
    chain = [
        {"position": row.position, "previous": row.previous, "digest": row.digest, "body": row.body}
        for row in rows
    ]
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        contents = (
            json.dumps(run, indent=1, sort_keys=True).encode(),
            _lines(chain),
            _lines([step.dump() for step in stored.steps()]),
            _lines(entries),
            payloads.getvalue(),
        )
        for name, content in zip(_MEMBERS, contents, strict=True):
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), content, zipfile.ZIP_DEFLATED)
    return out.getvalue()


def is_bundle(path: Path) -> bool:
    """Return True if a file looks like a bundle."""
    return path.is_file() and zipfile.is_zipfile(path)


def verify_bundle(
    source: str | Path | bytes, *, foil: Foil | None = None, public_key: bytes | None = None
) -> Verification:
    """Check that everything in a bundle matches, and matches the foil that you kept and a key,
    where they are given.

    No tally is needed. Raises InvalidInput for anything but a bundle.
    """
    stock = _read(source if isinstance(source, bytes) else _bytes_of(Path(source)))
    verification = verify(stock, foil)
    stated_foil = stock.stated_foil
    signature_ok = check(stated_foil, public_key)
    problems = [*verification.problems, *stock.stray_entries()]
    if (stated_foil.run_id, stated_foil.count, stated_foil.head) != (stock.run.run_id, *stock.last):
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
    scope_id: int = 0
    base_id: None = None
    head: None = None
    tail: None = None


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
        payloads: Mapping[int, bytes],
    ) -> None:
        self.run = run
        self.stated_foil = foil
        self._links = links
        self._anchor = anchor
        self._steps = steps
        self._rows = rows
        self._payloads = payloads

    @property
    def last(self) -> tuple[int, str]:
        """Number of entries of the chain, and the digest of the last."""
        if not self._links:
            return self._anchor.count, self._anchor.head
        return self._links[-1].position + 1, self._links[-1].digest

    def chain_problems(self) -> list[journal.ChainProblem]:
        """Same as `Stock.chain_problems`."""
        problems = journal.chain_problems(
            run_stream(self.run.run_id),
            self._links,
            self._anchor,
            journal.End(self.stated_foil.count, self.stated_foil.head),
        )
        genesis = journal.genesis(run_stream(self.run.run_id))
        if self._anchor.count == 0 and self._anchor.head != genesis:
            problems.append(
                journal.ChainProblem(
                    run_stream(self.run.run_id), "does not begin where the chain of this run begins"
                )
            )
        return problems

    def stray_entries(self) -> list[VerificationProblem]:
        """Return entries of steps that this run does not have, which a tally cannot contain."""
        unknown = sorted(set(self._rows) - {step.step_id for step in self._steps})
        return [
            VerificationProblem(where=f"step {step_id}", problem="has entries but is no step")
            for step_id in unknown
        ]

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

    def payload(self, row: Any) -> bytes | None:
        """Same as `Stock.payload`."""
        return self._payloads.get(id(row))


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}.") from error


def _read(content: bytes) -> _Bundled:
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            sizes = [archive.getinfo(name).file_size for name in _MEMBERS]
            if sum(sizes) > _MAX_BYTES:
                raise InvalidInput("This bundle says that it unfolds to more than may be held.")
            head, chain, steps, entries, payloads = (archive.read(name) for name in _MEMBERS)
        header = json.loads(head)
        if header.get("format") != FORMAT:
            raise InvalidInput(
                f"This bundle is of the format {header.get('format')!r}; {FORMAT} can be read."
            )
        run = RunRecord.load(header["run"])
        stream = run_stream(run.run_id)
        links = [_link(stream, fields) for fields in _json_lines(chain)]
        rows: dict[str, list[_Row]] = {}
        bodies: dict[int, bytes] = {}
        for row, body in _rows(_json_lines(entries), payloads):
            rows.setdefault(row.step_id, []).append(row)
            if body is not None:
                bodies[id(row)] = body
        start = header["begins"]
        anchor = journal.Anchor(int(start["count"]), str(start["previous"]))
        return _Bundled(
            run,
            links,
            anchor,
            Foil.load(header["foil"]),
            [StepRecord.load(fields) for fields in _json_lines(steps)],
            rows,
            bodies,
        )
    except (
        zipfile.BadZipFile,
        zlib.error,
        KeyError,
        ValueError,
        TypeError,
        AttributeError,
        NotImplementedError,
        EOFError,
        InvalidRecord,
    ) as error:
        if isinstance(error, InvalidInput) and not isinstance(error, InvalidRecord):
            raise
        raise InvalidInput("This is no bundle of a receipt, or a damaged one.") from error


def _link(stream: str, fields: Mapping[str, Any]) -> _Link:
    try:
        body = json.loads(fields["body"])
    except ValueError:
        body = {}
    entry = body if isinstance(body, dict) else {}
    return _Link(
        stream,
        int(fields["position"]),
        str(fields["previous"]),
        str(fields["digest"]),
        str(fields["body"]),
        entry.get("audit_id"),
        entry.get("event"),
        entry.get("subject_id"),
        int(fields["position"]),
    )


def _rows(
    entries: Iterator[Mapping[str, Any]], payloads: bytes
) -> Iterator[tuple[_Row, bytes | None]]:
    last: dict[str, bytes] = {}
    stop = 0
    for fields in entries:
        place = fields["payload"]
        body = None
        if place is not None:
            base, kind = last.get(fields["kind"], b""), fields["kind"]
            start, size = int(place["start"]), int(place["size"])
            head, tail = int(place["head"]), int(place["tail"])
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
            stop = start + size
            body = last[kind] = (
                base[:head] + payloads[start : start + size] + base[len(base) - tail :]
            )
        salt = fields["salt"]
        row = _Row(
            str(fields["step_id"]),
            **{name: fields[name] for name in _ENTRY},
            salt=None if salt is None else bytes.fromhex(salt),
            part_key=None if body is None else "bundled",
        )
        yield row, body


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
    for line in lines.splitlines():
        yield json.loads(line)
