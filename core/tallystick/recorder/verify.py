"""Verification: check every byte that a run's chain covers against stock and foil, and name what
that cannot prove.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from tallystick.errors import TallystickError
from tallystick.recorder.payloads import DOMAIN
from tallystick.recorder.receipts import receipts_in
from tallystick.records import (
    Foil,
    JournalEntry,
    PurgedRun,
    Receipt,
    ReceiptEntry,
    RunRecord,
    StepRecord,
    Verification,
    VerificationProblem,
    commitment,
)
from tallystick.storage import Connection
from tallystick.storage.engine.packing import damage_read
from tallystick.storage.rows import journal, recordings
from tallystick.storage.rows.journal import run_stream
from tallystick.storage.rows.payloads import Payloads
from tallystick.storage.rows.recordings import EntryRow

PURGED = "run.purge"
"""Entry with which the chain of a run begins whose recording was past its window and went."""
RUN_FACTS = ("retention", "scope", "started_at", "ended_at", "status", "gaps")
"""Fields of a run that its chain contains."""

NOT_COVERED = (
    "runs.schema_version",
    "runs.process",
    "steps.parent_step_id",
    "steps.schema_version",
    "step_entries.at",
    "step_entries.id",
    "journal.sequence",
)
"""Fields of a run that no chain covers."""

_PURGED_CLAIMS = "what the receipts said that were purged with their run"
_CANNOT_PROVE = (
    "that nothing happened which was never recorded",
    "that the end was not cut off together with its head, unless you give a foil that you kept "
    "elsewhere",
    "that somebody with write access did not rewrite the whole chain, unless you give such a foil",
)


class Stock(Protocol):
    """A stored run, in a tally or in a bundle."""

    run: RunRecord
    scope_id: int

    def chain_problems(self) -> list[journal.ChainProblem]:
        """Return the problems of the chain itself."""
        ...

    def end(self) -> Foil:
        """Return the head of the chain, as the stock has it."""
        ...

    def chain(self) -> list[JournalEntry]:
        """Return the entries of the chain, in order. Raises CorruptTally, InvalidRecord."""
        ...

    def steps(self) -> list[StepRecord]:
        """Return the steps. Raises CorruptTally."""
        ...

    def entries(self, step_id: str) -> Sequence[EntryRow]:
        """Return the entries of a step, in order."""
        ...

    def commitment_of(self, row: EntryRow) -> str | None:
        """Return the commitment to a payload under its salt, or None where one of them is
        missing.
        """
        ...

    def row_salt(self, entry: JournalEntry) -> bytes | None:
        """Return the salt under which an entry commits to texts in rows; None where it is gone."""
        ...

    def metadata_of(self, entry: JournalEntry) -> str | None:
        """Return the metadata of the run or step that an entry is about, as they are stored."""
        ...


class Stored:
    """A run in a tally."""

    def __init__(self, connection: Connection, run: RunRecord, scope_id: int) -> None:
        self.run = run
        self.scope_id = scope_id
        self._connection = connection
        self._stream = run_stream(run.id)
        self._payloads = Payloads(connection)
        self._salts: dict[int, bytes | None] = {}
        self._metadata: dict[str, str] | None = None

    def chain_problems(self) -> list[journal.ChainProblem]:
        """Same as `Stock.chain_problems`."""
        return journal.verify_stream(self._connection, self._stream)

    def end(self) -> Foil:
        """Same as `Stock.end`."""
        return journal.foil(self._connection, self._stream, self.run.id)

    def chain(self) -> list[JournalEntry]:
        """Same as `Stock.chain`."""
        rows = journal.rows_of(self._connection, self._stream)
        self._salts = {row.position: row.salt for row in rows}
        return [journal.read_row(row) for row in rows]

    def steps(self) -> list[StepRecord]:
        """Same as `Stock.steps`."""
        return recordings.steps_of(self._connection, self.run.id)

    def entries(self, step_id: str) -> Sequence[EntryRow]:
        """Same as `Stock.entries`."""
        return recordings.entries_of(self._connection, step_id)

    def payload(self, row: EntryRow) -> bytes | None:
        """Return the bytes of a payload, or None where they are missing."""
        return self._payloads.of(row)

    def commitment_of(self, row: EntryRow) -> str | None:
        """Same as `Stock.commitment_of`."""
        body = self.payload(row)
        if body is None or row.salt is None:
            return None
        return commitment(DOMAIN, bytes(row.salt), body)

    def row_salt(self, entry: JournalEntry) -> bytes | None:
        """Same as `Stock.row_salt`."""
        salt = self._salts.get(entry.position)
        if salt is None or entry.row_texts is None:
            return None
        return journal.row_salt(bytes(salt))

    def metadata_of(self, entry: JournalEntry) -> str | None:
        """Same as `Stock.metadata_of`."""
        if self._metadata is None:
            self._metadata = recordings.metadata_of(self._connection, self.run.id)
        subject = entry.subject_id if entry.event == "receipt" else self.run.id
        return self._metadata.get(subject or "")


@damage_read()
def verify(stock: Stock, foil: Foil | None) -> Verification:
    """Check chain, rows and payload bytes of one run against one another, and against `foil` if
    given.
    """
    run = stock.run
    stream = run_stream(run.id)
    problems = [_problem(where, problem) for where, problem in stock.chain_problems()]
    checked = absent = 0
    chain: list[JournalEntry] = []
    receipts: list[Receipt] = []
    try:
        chain = stock.chain()
        receipts = [receipt for _, receipt in receipts_in(chain)]
        problems += _run_problems(chain, receipts, run)
    except TallystickError as error:
        problems.append(_problem(stream, f"an entry is not readable: {error}"))
    try:
        listed = stock.steps()
    except TallystickError as error:
        problems.append(_problem(f"run {run.id}", str(error)))
    else:
        steps = {step.id: step for step in listed}
        if len(steps) != len(listed):
            problems.append(_problem(f"run {run.id}", "has a step that stands twice"))
        problems += _step_problems(chain, receipts, steps, run)
        problems += _text_problems(stock, chain, steps)
        erased = _erased_in(chain)
        for receipt in receipts:
            receipt_problems, present, missing = _receipt_problems(
                stock, receipt, steps.get(receipt.step_id), erased
            )
            problems += receipt_problems
            checked += present
            absent += missing
    purged = _purge_facts(chain)
    matches = None if foil is None else _foil_matches(chain, stream, foil, purged)
    if matches is False:
        problems.append(_problem(stream, "the foil you gave does not match what is stored"))
    return Verification(
        run_id=run.id,
        ok=not problems,
        receipts=len(receipts),
        payloads_checked=checked,
        payloads_absent=absent,
        foil=stock.end(),
        foil_matches=matches,
        problems=tuple(problems),
        gaps=gaps_in(chain, receipts),
        not_covered=NOT_COVERED,
        texts_erased=tuple(
            f"{stream}#{entry.position}"
            for entry in chain
            if entry.row_texts is not None and stock.row_salt(entry) is None
        ),
        purged=purged,
        cannot_prove=(_CANNOT_PROVE if matches is None else _CANNOT_PROVE[:1])
        + (() if purged is None else (_PURGED_CLAIMS,)),
    )


def _purge_facts(chain: Sequence[JournalEntry]) -> PurgedRun | None:
    """Return the facts about a purge, from the entry with which a purged run's chain begins; None
    for other runs.
    """
    if not chain or chain[0].event != PURGED:
        return None
    details = chain[0].details
    count, steps, payloads, before = (
        details.get(name) for name in ("count", "steps", "payloads", "before")
    )
    if not (isinstance(count, int) and isinstance(steps, int) and isinstance(payloads, int)):
        return None
    if not isinstance(before, int):
        return None
    return PurgedRun(
        at=chain[0].at,
        entries=count,
        steps=steps,
        payloads=payloads,
        head=str(details.get("head")),
        before=before,
    )


def _foil_matches(
    chain: list[JournalEntry], stream: str, foil: Foil, purged: PurgedRun | None
) -> bool | None:
    """Return True if the chain passes through the foil: entries may have been added after it, none
    before it changed.

    None where the foil names a purged entry other than the last, whose digest alone is known.
    """
    if foil.count == 0:
        return foil.head == journal.genesis(stream)
    if purged is not None and foil.count <= purged.entries:
        return foil.head == purged.head if foil.count == purged.entries else None
    return any(entry.position == foil.count - 1 and entry.digest == foil.head for entry in chain)


def gaps_in(
    chain: Iterable[JournalEntry], receipts: Iterable[Receipt]
) -> dict[str, dict[str, int]]:
    """Return the gaps that the receipts and the chain of a run name: number of events by where they
    are missing and by reason.
    """
    summaries = [
        (f"step {receipt.step_id}", entry.summary.get("missed"))
        for receipt in receipts
        for entry in receipt.entries
        if entry.kind == "gap"
    ]
    summaries += [
        (f"run {entry.subject_id}", entry.details.get("missed"))
        for entry in chain
        if entry.event in {"run.gap", "run.end"}
    ]
    gaps: dict[str, dict[str, int]] = {}
    for where, reasons in summaries:
        if isinstance(reasons, dict):
            counts = gaps.setdefault(where, {})
            for reason, count in reasons.items():
                if isinstance(count, int):
                    counts[reason] = counts.get(reason, 0) + count
    return gaps


def _run_problems(
    chain: list[JournalEntry], receipts: list[Receipt], run: RunRecord
) -> list[VerificationProblem]:
    where = f"run {run.id}"
    if chain and chain[0].event == PURGED:
        return _purge_problems(chain[0], run)
    start = next((entry for entry in chain if entry.event == "run.start"), None)
    if start is None:
        return [_problem(where, "its start is not in the journal")]
    end = end_of(chain)
    stated = {
        **start.details,
        "started_at": start.at,
        "ended_at": end.at if end else None,
        "status": end.details.get("status") if end else "running",
        "gaps": sum(sum(counts.values()) for counts in gaps_in(chain, receipts).values()),
    }
    stored = run.dump()
    if end is None and not any(entry.event == "run.gap" for entry in chain):
        # Early recordings wrote the gaps into the row of a run only when it ended.
        stated["gaps"] = stated["gaps"] if stored["gaps"] else 0
    return [
        _problem(where, f"{name} differs from what the journal says")
        for name in RUN_FACTS
        if stored[name] != stated.get(name)
    ]


def _text_problems(
    stock: Stock, chain: Sequence[JournalEntry], steps: Mapping[str, StepRecord]
) -> list[VerificationProblem]:
    """Return where names, goal, metadata and summaries in rows differ from the commitments of the
    chain, or are missing though no entry of it tells of their erasure.
    """
    erased = _texts_erased_in(chain)
    problems = []
    for entry in chain:
        where = f"run {stock.run.id}"
        if entry.row_texts is None:
            if entry.event in journal.WITH_ROW_TEXTS:
                problems.append(_problem(where, f"{_texts_of(entry)} are not committed to"))
            continue
        if entry.event == "receipt":
            step = steps.get(entry.subject_id or "")
            if step is None:
                continue  # a problem already
            where = f"step {step.id}"
            rows = stock.entries(step.id)
            texts: dict[str, Any] = {
                "metadata": stock.metadata_of(entry),
                "name": step.name,
                "summaries": [row.summary for row in rows],
            }
            metadata = step.metadata
            is_empty = (step.name, metadata) == (None, {}) and all(
                row.kind == "gap" or _json(row.summary) == {} for row in rows
            )
        elif entry.event in journal.WITH_ROW_TEXTS:
            run = stock.run
            texts = {
                "agent_name": run.agent_name,
                "domain": run.domain,
                "metadata": stock.metadata_of(entry),
                "user_goal": run.goal,
            }
            metadata = run.metadata
            fields = (run.agent_name, run.domain, run.goal, metadata)
            is_empty = fields == ("", None, None, {})
        else:
            problems.append(_problem(where, "an entry of its chain commits to texts of no row"))
            continue
        salt = stock.row_salt(entry)
        if salt is None:
            if entry.position not in erased:
                problems.append(
                    _problem(where, "its texts are called erased, but no entry tells of it")
                )
            elif not is_empty:
                problems.append(
                    _problem(where, "its texts are called erased, but some are still there")
                )
        elif entry.position in erased:
            problems.append(
                _problem(where, "its texts are called erased, but their salt is still there")
            )
        elif texts["metadata"] is None or not _same(_json(texts["metadata"]), metadata):
            problems.append(_problem(where, "its metadata are not as they are stored"))
        elif entry.row_texts != journal.row_texts_commitment(salt, journal.row_text_bytes(texts)):
            problems.append(_problem(where, f"{_texts_of(entry)} do not match their commitment"))
    return problems


def _texts_of(entry: JournalEntry) -> str:
    if entry.event == "receipt":
        return "its name, metadata and the summaries of its entries"
    return "its agent, domain, goal and metadata"


def _texts_erased_in(chain: Iterable[JournalEntry]) -> set[int]:
    """Return the position of every entry of which the chain says that its texts were erased."""
    erasures = [entry.details.get("texts") for entry in chain if entry.event == "payload.erase"]
    return {
        position
        for positions in erasures
        if isinstance(positions, list)
        for position in positions
        if type(position) is int
    }


def _purge_problems(entry: JournalEntry, run: RunRecord) -> list[VerificationProblem]:
    """Return where the entry of a purge differs from the run's row, or from the anchor before
    it.
    """
    where, stored = f"run {run.id}", run.dump()
    problems = [
        _problem(where, f"{name} differs from what the journal says")
        for name in RUN_FACTS
        if stored[name] != entry.details.get(name)
    ]
    if (entry.details.get("count"), entry.details.get("head")) != (entry.position, entry.previous):
        problems.append(
            _problem(where, "what its journal says of the purge is not where its chain begins")
        )
    return problems


def _step_problems(
    chain: list[JournalEntry], receipts: list[Receipt], steps: dict[str, StepRecord], run: RunRecord
) -> list[VerificationProblem]:
    """Return the steps that have ended without a receipt, and a number of steps that differs from
    the one at the run's end.
    """
    with_receipt = {receipt.step_id for receipt in receipts}
    end = end_of(chain)
    problems = []
    for step in steps.values():
        if step.id in with_receipt:
            continue
        if step.ended_at is not None:
            problems.append(_problem(f"step {step.id}", "has ended but has no receipt"))
        elif end is not None:
            problems.append(_problem(f"step {step.id}", "has no receipt, though its run has ended"))
    if end is not None and end.details.get("steps") != len(steps):
        stated = end.details.get("steps")
        problems.append(
            _problem(f"run {run.id}", f"has {len(steps)} steps where the journal says {stated}")
        )
    return problems


def end_of(chain: list[JournalEntry]) -> JournalEntry | None:
    """Return the entry with which a run ended; None where it goes on, as after a process that was
    taken for dead.
    """
    events = ("run.end", "run.resume")
    last = next((entry for entry in reversed(chain) if entry.event in events), None)
    return last if last is not None and last.event == "run.end" else None


def _erased_in(chain: Iterable[JournalEntry]) -> set[tuple[str, int]]:
    """Return (step id, position) of every payload that the chain names as erased."""
    erasures = [entry.details.get("steps") for entry in chain if entry.event == "payload.erase"]
    return {
        (step_id, position)
        for steps in erasures
        if isinstance(steps, dict)
        for step_id, positions in steps.items()
        if isinstance(positions, list)
        for position in positions
        if isinstance(position, int)
    }


def _receipt_problems(
    stock: Stock,
    receipt: Receipt,
    step: StepRecord | None,
    erased_in: set[tuple[str, int]],
) -> tuple[list[VerificationProblem], int, int]:
    where = f"step {receipt.step_id}"
    if step is None:
        return [_problem(where, "has a receipt but is gone")], 0, 0
    problems = [
        _problem(where, f"{name} differs from the receipt")
        for name in (
            "run_id",
            "step_index",
            "step_kind",
            "status",
            "started_at",
            "ended_at",
        )
        if getattr(step, name) != getattr(receipt, name)
    ]
    rows = stock.entries(receipt.step_id)
    if len(rows) != len(receipt.entries):
        problems.append(
            _problem(
                where, f"has {len(rows)} entries where its receipt names {len(receipt.entries)}"
            )
        )
    checked = absent = 0
    for place, (row, entry) in enumerate(zip(rows, receipt.entries, strict=False)):
        entry_name = f"{where} entry {place}"
        stored = {
            "kind": row.kind,
            "commitment": row.commitment,
            "payload_state": row.payload_state,
            "redactions": _json(row.redactions),
        }
        if row.kind == "gap":
            stored["summary"] = _json(row.summary)
        stated = entry.dump()
        erased = row.payload_state == "erased"
        problems += [
            _problem(entry_name, f"{name} differs from the receipt")
            for name, value in stored.items()
            if not _same(value, stated[name]) and not (name == "payload_state" and erased)
        ]
        if row.position != place:
            problems.append(_problem(entry_name, f"stands at position {row.position}"))
        if row.scope_id != stock.scope_id:
            problems.append(_problem(entry_name, "belongs to another scope than its run"))
        payload_problem = _payload_problem(stock, row, entry)
        if payload_problem is None and erased and (receipt.step_id, place) not in erased_in:
            payload_problem = "is called erased, but no entry of the chain tells of it"
        if payload_problem is not None:
            problems.append(_problem(entry_name, payload_problem))
        elif erased or entry.payload_state == "not_kept":
            absent += 1
        else:
            checked += 1
    return problems, checked, absent


def _payload_problem(stock: Stock, row: EntryRow, entry: ReceiptEntry) -> str | None:
    """Return the problem with the payload of an entry, or with its absence, or None."""
    if (row.base_id is None) != (row.copied is None):
        return "says of its payload that it rests on another and that it does not"
    if row.payload_state == "erased":
        still = row.part_key is not None or row.salt is not None
        return "is called erased, but its payload or salt is still there" if still else None
    if entry.payload_state == "not_kept":
        if row.part_key is not None:
            return "names a payload where its receipt says that none was kept"
        if row.salt is not None or entry.commitment:
            return "has a salt or a commitment where its receipt says that no payload was kept"
        return None
    commits = stock.commitment_of(row)
    if commits is None:
        return "its payload is missing"
    if commits != entry.commitment:
        return "its payload does not match its commitment"
    return None


def _problem(where: str, text: str) -> VerificationProblem:
    return VerificationProblem(where=where, problem=text)


def _same(value: Any, other: Any) -> bool:
    """Return True for equal JSON of equal types: 1, 1.0 and true are three values."""
    return json.dumps(value, sort_keys=True) == json.dumps(other, sort_keys=True)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
