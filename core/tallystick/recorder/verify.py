"""Do stock and foil match? Checks every byte that a run's chain covers and says what it cannot
prove.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from sqlalchemy import Connection

from tallystick.errors import TallystickError
from tallystick.recorder.chain import run_stream
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
from tallystick.storage import journal, recordings
from tallystick.storage.payloads import Payloads
from tallystick.storage.recordings import EntryRow

__all__ = [
    "NOT_COVERED",
    "PURGED",
    "RUN_FACTS",
    "Stock",
    "Stored",
    "gaps_in",
    "verify",
]

PURGED = "run.purge"
"""Entry with which the chain of a run begins whose recording was past its window and went."""
RUN_FACTS = (
    "agent_name",
    "domain",
    "retention",
    "scope",
    "started_at",
    "ended_at",
    "status",
    "gaps",
)
"""What the chain says of a run itself."""

NOT_COVERED = (
    "runs.user_goal",
    "runs.metadata",
    "runs.schema_version",
    "runs.process",
    "steps.metadata",
    "steps.parent_step_id",
    "steps.schema_version",
    "step_entries.at",
    "step_entries.id",
    "journal.sequence",
)
"""Fields of a run that no chain covers."""

_GONE = "what the receipts said that were purged with their run"
_CANNOT = (
    "that nothing happened which was never recorded",
    "that the end was not cut off together with its head, unless you give a foil that you kept "
    "elsewhere",
    "that somebody with write access did not rewrite the whole chain, unless you give such a foil",
)


class Stock(Protocol):
    """A stored run, wherever it stands: in a tally, or in a bundle."""

    run: RunRecord
    scope_id: int

    def chain_problems(self) -> list[tuple[str, str]]:
        """What does not match in the chain itself, as (where, problem)."""
        ...

    def end(self) -> Foil:
        """Where the chain ends, as the stock says."""
        ...

    def chain(self) -> list[JournalEntry]:
        """The entries of the chain, in order. Raises CorruptTally, InvalidRecord."""
        ...

    def steps(self) -> list[StepRecord]:
        """The steps. Raises CorruptTally."""
        ...

    def entries(self, step_id: str) -> Sequence[EntryRow]:
        """What was recorded in a step, in order."""
        ...

    def payload(self, row: EntryRow) -> bytes | None:
        """The bytes of a payload, or None where they are not there."""
        ...


class Stored:
    """A run as it stands in a tally."""

    def __init__(self, connection: Connection, run: RunRecord, scope_id: int) -> None:
        self.run = run
        self.scope_id = scope_id
        self._connection = connection
        self._stream = run_stream(run.run_id)
        self._payloads = Payloads(connection)

    def chain_problems(self) -> list[tuple[str, str]]:
        """Same as `Stock.chain_problems`."""
        return journal.verify_stream(self._connection, self._stream)

    def end(self) -> Foil:
        """Same as `Stock.end`."""
        return journal.foil(self._connection, self._stream, self.run.run_id)

    def chain(self) -> list[JournalEntry]:
        """Same as `Stock.chain`."""
        return list(journal.entries(self._connection, self._stream))

    def steps(self) -> list[StepRecord]:
        """Same as `Stock.steps`."""
        return recordings.steps_of(self._connection, self.run.run_id)

    def entries(self, step_id: str) -> Sequence[EntryRow]:
        """Same as `Stock.entries`."""
        return recordings.entries_of(self._connection, step_id)

    def payload(self, row: EntryRow) -> bytes | None:
        """Same as `Stock.payload`."""
        return self._payloads.of(row)


def verify(stock: Stock, foil: Foil | None) -> Verification:
    """Check chain, rows and payload bytes of one run against one another, and against `foil` if
    given.
    """
    run = stock.run
    stream = run_stream(run.run_id)
    found = [_problem(where, problem) for where, problem in stock.chain_problems()]
    checked = absent = 0
    chain: list[JournalEntry] = []
    receipts: list[Receipt] = []
    try:
        chain = stock.chain()
        receipts = [receipt for _, receipt in receipts_in(chain)]
        found += _run_problems(chain, receipts, run)
    except TallystickError as error:
        found.append(_problem(stream, f"an entry is not readable: {error}"))
    try:
        listed = stock.steps()
    except TallystickError as error:
        found.append(_problem(f"run {run.run_id}", str(error)))
    else:
        steps = {step.step_id: step for step in listed}
        if len(steps) != len(listed):
            found.append(_problem(f"run {run.run_id}", "has a step that stands twice"))
        found += _step_problems(chain, receipts, steps, run)
        erased = _erased_in(chain)
        for receipt in receipts:
            problems, present, missing = _receipt_problems(
                stock, receipt, steps.get(receipt.step_id), erased
            )
            found += problems
            checked += present
            absent += missing
    purged = _purged(chain)
    matches = None if foil is None else _foil_matches(chain, stream, foil, purged)
    if matches is False:
        found.append(_problem(stream, "the foil you gave does not match what is stored"))
    return Verification(
        run_id=run.run_id,
        ok=not found,
        receipts=len(receipts),
        payloads_checked=checked,
        payloads_absent=absent,
        foil=stock.end(),
        foil_matches=matches,
        problems=tuple(found),
        gaps=gaps_in(chain, receipts),
        not_covered=NOT_COVERED,
        purged=purged,
        cannot_prove=(_CANNOT if matches is None else _CANNOT[:1])
        + (() if purged is None else (_GONE,)),
    )


def _purged(chain: Sequence[JournalEntry]) -> PurgedRun | None:
    """What went of a run whose recording was past its window, as its chain says where it begins
    now.
    """
    if not chain or chain[0].event != PURGED:
        return None
    told = chain[0].details
    count, steps, payloads, before = (
        told.get(name) for name in ("count", "steps", "payloads", "before")
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
        head=str(told.get("head")),
        before=before,
    )


def _foil_matches(
    chain: list[JournalEntry], stream: str, foil: Foil, purged: PurgedRun | None
) -> bool | None:
    """Whether the chain passes through the foil: more may have been added after it, nothing before
    it changed.

    None where the foil names an entry that went: only the last of those is known by its digest.
    """
    if foil.count == 0:
        return foil.head == journal.genesis(stream)
    if purged is not None and foil.count <= purged.entries:
        return foil.head == purged.head if foil.count == purged.entries else None
    return any(entry.position == foil.count - 1 and entry.digest == foil.head for entry in chain)


def gaps_in(
    chain: Iterable[JournalEntry], receipts: Iterable[Receipt]
) -> dict[str, dict[str, int]]:
    """What could not be recorded, by where it is missing and by the reason, as receipts and the
    chain of a run say.
    """
    told = [
        (f"step {receipt.step_id}", entry.summary.get("missed"))
        for receipt in receipts
        for entry in receipt.entries
        if entry.kind == "gap"
    ]
    told += [
        (f"run {entry.subject_id}", entry.details.get("missed"))
        for entry in chain
        if entry.event in {"run.gap", "run.end"}
    ]
    found: dict[str, dict[str, int]] = {}
    for where, missed in told:
        if isinstance(missed, dict):
            counts = found.setdefault(where, {})
            for reason, count in missed.items():
                if isinstance(count, int):
                    counts[reason] = counts.get(reason, 0) + count
    return found


def _run_problems(
    chain: list[JournalEntry], receipts: list[Receipt], run: RunRecord
) -> list[VerificationProblem]:
    where = f"run {run.run_id}"
    if chain and chain[0].event == PURGED:
        return _purge_problems(chain[0], run)
    start = next((entry for entry in chain if entry.event == "run.start"), None)
    if start is None:
        return [_problem(where, "its start is not in the journal")]
    end = _end_of(chain)
    said = {
        **start.details,
        "started_at": start.at,
        "ended_at": end.at if end else None,
        "status": end.details.get("status") if end else "running",
        "gaps": sum(sum(told.values()) for told in gaps_in(chain, receipts).values()),
    }
    stored = run.dump()
    if end is None and not any(entry.event == "run.gap" for entry in chain):
        # As it was recorded first, the row of a run told of its gaps once it had ended.
        said["gaps"] = said["gaps"] if stored["gaps"] else 0
    return [
        _problem(where, f"{name} differs from what the journal says")
        for name in RUN_FACTS
        if stored[name] != said.get(name)
    ]


def _purge_problems(entry: JournalEntry, run: RunRecord) -> list[VerificationProblem]:
    """What the entry that tells of a purge says otherwise than the run's row, or than the anchor
    behind it.
    """
    where, stored = f"run {run.run_id}", run.dump()
    found = [
        _problem(where, f"{name} differs from what the journal says")
        for name in RUN_FACTS
        if stored[name] != entry.details.get(name)
    ]
    if (entry.details.get("count"), entry.details.get("head")) != (entry.position, entry.previous):
        found.append(
            _problem(where, "what its journal says of the purge is not where its chain begins")
        )
    return found


def _step_problems(
    chain: list[JournalEntry], receipts: list[Receipt], steps: dict[str, StepRecord], run: RunRecord
) -> list[VerificationProblem]:
    """Steps that no receipt answers for, and a number of steps other than the one that the run
    ended with.
    """
    answered = {receipt.step_id for receipt in receipts}
    end = _end_of(chain)
    found = []
    for step in steps.values():
        if step.step_id in answered:
            continue
        if step.ended_at is not None:
            found.append(_problem(f"step {step.step_id}", "has ended but has no receipt"))
        elif end is not None:
            found.append(
                _problem(f"step {step.step_id}", "has no receipt, though its run has ended")
            )
    if end is not None and end.details.get("steps") != len(steps):
        said = end.details.get("steps")
        found.append(
            _problem(f"run {run.run_id}", f"has {len(steps)} steps where the journal says {said}")
        )
    return found


def _end_of(chain: list[JournalEntry]) -> JournalEntry | None:
    return next((entry for entry in reversed(chain) if entry.event == "run.end"), None)


def _erased_in(chain: Iterable[JournalEntry]) -> set[tuple[str, int]]:
    """(step id, position) of every payload that the chain says was erased."""
    told = [entry.details.get("steps") for entry in chain if entry.event == "payload.erase"]
    return {
        (step_id, position)
        for steps in told
        if isinstance(steps, dict)
        for step_id, positions in steps.items()
        if isinstance(positions, list)
        for position in positions
        if isinstance(position, int)
    }


def _receipt_problems(
    stock: Stock, receipt: Receipt, step: StepRecord | None, erased_in: set[tuple[str, int]]
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
            "name",
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
        here = f"{where} entry {place}"
        kept = {
            "kind": row.kind,
            "commitment": row.commitment,
            "payload_state": row.payload_state,
            "redactions": _json(row.redactions),
            "summary": _json(row.summary),
        }
        said = entry.dump()
        erased = row.payload_state == "erased"
        problems += [
            _problem(here, f"{name} differs from the receipt")
            for name, value in kept.items()
            if value != said[name] and not (name == "payload_state" and erased)
        ]
        if row.position != place:
            problems.append(_problem(here, f"stands at position {row.position}"))
        if row.scope_id != stock.scope_id:
            problems.append(_problem(here, "belongs to another scope than its run"))
        wrong = _payload_problem(stock, row, entry)
        if wrong is None and erased and (receipt.step_id, place) not in erased_in:
            wrong = "is called erased, but no entry of the chain tells of it"
        if wrong is not None:
            problems.append(_problem(here, wrong))
        elif erased or entry.payload_state == "not_kept":
            absent += 1
        else:
            checked += 1
    return problems, checked, absent


def _payload_problem(stock: Stock, row: EntryRow, entry: ReceiptEntry) -> str | None:
    """What is wrong with the payload of an entry, or with the absence of one."""
    if (row.base_id is None) != (row.head is None) or (row.base_id is None) != (row.tail is None):
        return "says of its payload that it rests on another and that it does not"
    if row.payload_state == "erased":
        still = row.part_key is not None or row.salt is not None
        return "is called erased, but its payload or salt is still there" if still else None
    body: bytes | None
    if entry.payload_state == "not_kept":
        if row.part_key is not None:
            return "names a payload where its receipt says that none was kept"
        if not entry.commitment:
            return (
                None
                if row.salt is None
                else "holds a salt where its receipt says that no payload was kept"
            )
        body = b""  # as recordings of the first schema have it: a commitment to nothing
    else:
        body = stock.payload(row)
    if body is None or row.salt is None:
        return "its payload is missing"
    if commitment(DOMAIN, bytes(row.salt), body) != entry.commitment:
        return "its payload does not match its commitment"
    return None


def _problem(where: str, text: str) -> VerificationProblem:
    return VerificationProblem(where=where, problem=text)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
