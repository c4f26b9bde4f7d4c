"""Do stock and foil match? Checks every byte that a run's chain covers and says what it cannot prove."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Connection

from tallystick.errors import InvalidRecord, TallystickError
from tallystick.recorder.room import DOMAIN
from tallystick.recorder.run import run_stream
from tallystick.records import (
    Foil,
    Receipt,
    RunRecord,
    StepRecord,
    Verification,
    VerificationProblem,
    commitment,
)
from tallystick.storage import journal, parts, recordings

__all__ = ["NOT_COVERED", "receipts_of", "verify"]

NOT_COVERED = (
    "runs.user_goal", "runs.metadata", "steps.metadata", "steps.parent_step_id", "step_entries.at", "step_entries.id",
)  # fmt: skip
"""Fields of a run that no chain covers."""

_CANNOT = (
    "that nothing happened which was never recorded",
    "that the end was not cut off together with its head, unless you give a foil that you kept elsewhere",
    "that somebody with write access did not rewrite the whole chain, unless you give such a foil",
)


def receipts_of(connection: Connection, run_id: str) -> list[Receipt]:
    """The receipts of a run in the order of its chain. Raises InvalidRecord where one is not readable."""
    return [
        Receipt.load({**entry.details, "previous": entry.previous, "digest": entry.digest, "position": entry.position})
        for entry in journal.entries(connection, run_stream(run_id))
        if entry.event == "receipt"
    ]


def verify(connection: Connection, run: RunRecord, scope_id: int, foil: Foil | None) -> Verification:
    """Check chain, rows and payload bytes of one run against one another, and against `foil` if given."""
    stream = run_stream(run.run_id)
    found = [
        VerificationProblem(where=where, problem=problem)
        for where, problem in journal.verify_stream(connection, stream)
    ]
    stock = journal.foil(connection, stream, run.run_id)
    checked = absent = 0
    receipts: list[Receipt] = []
    try:
        receipts = receipts_of(connection, run.run_id)
        found += _run_problems(connection, run)
    except (InvalidRecord, TallystickError) as error:
        found.append(VerificationProblem(where=stream, problem=f"a receipt is not readable: {error}"))
    answered = {receipt.step_id for receipt in receipts}
    steps = {step.step_id: step for step in recordings.steps_of(connection, run.run_id)}
    for receipt in receipts:
        problems, present, missing = _receipt_problems(connection, receipt, steps.get(receipt.step_id), scope_id)
        found += problems
        checked += present
        absent += missing
    found += [
        VerificationProblem(where=f"step {step.step_id}", problem="has ended but has no receipt")
        for step in steps.values()
        if step.ended_at is not None and step.step_id not in answered
    ]
    matches = None if foil is None else _foil_matches(connection, stream, foil)
    if matches is False:
        found.append(VerificationProblem(where=stream, problem="the foil you gave does not match what is stored"))
    return Verification(
        run_id=run.run_id,
        ok=not found,
        receipts=len(receipts),
        payloads_checked=checked,
        payloads_absent=absent,
        foil=stock,
        foil_matches=matches,
        problems=tuple(found),
        not_covered=NOT_COVERED,
        cannot_prove=_CANNOT if foil is None else _CANNOT[:1],
    )


def _foil_matches(connection: Connection, stream: str, foil: Foil) -> bool:
    """Whether the chain passes through the foil: more may have been added after it, nothing before it changed."""
    if foil.count == 0:
        return foil.head == journal.genesis(stream)
    return any(
        entry.position == foil.count - 1 and entry.digest == foil.head for entry in journal.entries(connection, stream)
    )


def _run_problems(connection: Connection, run: RunRecord) -> list[VerificationProblem]:
    facts: dict[str, Any] = {}
    for entry in journal.entries(connection, run_stream(run.run_id)):
        if entry.event == "run.start":
            facts |= {"started_at": entry.at, **entry.details}
        if entry.event == "run.end":
            facts |= {"ended_at": entry.at, "status": entry.details["status"]}
    if not facts:
        return [VerificationProblem(where=f"run {run.run_id}", problem="its start is not in the journal")]
    stored = run.dump()
    names = ("agent_name", "domain", "retention", "scope", "started_at", "ended_at", "status")
    expected = {"ended_at": None, "status": "running", **facts}
    return [
        VerificationProblem(where=f"run {run.run_id}", problem=f"{name} differs from what the journal says")
        for name in names
        if stored[name] != expected[name]
    ]


def _receipt_problems(
    connection: Connection, receipt: Receipt, step: StepRecord | None, scope_id: int
) -> tuple[list[VerificationProblem], int, int]:
    where = f"step {receipt.step_id}"

    def problem(text: str, place: str = where) -> VerificationProblem:
        return VerificationProblem(where=place, problem=text)

    if step is None:
        return [problem("has a receipt but is gone")], 0, 0
    problems = [
        problem(f"{name} differs from the receipt")
        for name in ("run_id", "step_index", "step_kind", "name", "status", "started_at", "ended_at")
        if getattr(step, name) != getattr(receipt, name)
    ]
    rows = recordings.entries_of(connection, receipt.step_id)
    if len(rows) != len(receipt.entries):
        problems.append(problem(f"has {len(rows)} entries where its receipt names {len(receipt.entries)}"))
    checked = absent = 0
    for place, (row, entry) in enumerate(zip(rows, receipt.entries, strict=False)):
        here = f"{where} entry {place}"
        kept = {
            "kind": row.kind, "commitment": row.commitment, "payload_state": row.payload_state,
            "redactions": _json(row.redactions), "summary": _json(row.summary),
        }  # fmt: skip
        said = entry.dump()
        erased = row.payload_state == "erased"
        problems += [
            problem(f"{name} differs from the receipt", here)
            for name, value in kept.items()
            if value != said[name] and not (name == "payload_state" and erased)
        ]
        if row.position != place:
            problems.append(problem(f"stands at position {row.position}", here))
        if erased or entry.payload_state == "not_kept":
            absent += 1
            continue
        body = None if row.part_key is None else parts.get(connection, scope_id, row.part_key)
        if body is None or row.salt is None:
            problems.append(problem("its payload is missing", here))
        elif commitment(DOMAIN, bytes(row.salt), body) != entry.commitment:
            problems.append(problem("its payload does not match its commitment", here))
        else:
            checked += 1
    return problems, checked, absent


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
