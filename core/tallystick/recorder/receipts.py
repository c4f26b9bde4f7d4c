"""Receipts: the body of a step's receipt is made here, and a receipt read back from its chain.

The body is the `details` of a journal entry `receipt` in the run's stream.
`storage.journal.chain_entry` makes its digest: over the stream, the position, the digest before it,
and the entry as canonical JSON. A receipt is that entry read back, so that no second digest exists.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tallystick.recorder.chain import run_stream
from tallystick.records import JournalEntry, Receipt, Retention
from tallystick.storage import Connection, journal

__all__ = [
    "NOT_COUNTED",
    "receipt_about",
    "receipt_body",
    "receipt_of",
    "receipts_in",
    "receipts_of",
]

NOT_COUNTED = "not counted"
"""Token method of a step whose tokens nobody counted; such a receipt omits the field."""


def receipt_body(
    row: Mapping[str, Any],
    retention: Retention,
    token_method: str,
    entries: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """Return the body of the receipt of a step that ended.

    `row` is the step's, as storage has it. The chain adds step, run, time of the end, and place.
    """
    return {
        "step_index": row["step_index"],
        "step_kind": row["step_kind"],
        "name": row["name"],
        "status": row["status"],
        "started_at": row["started_at"],
        "retention": retention,
        "entries": list(entries),
        **({} if token_method == NOT_COUNTED else {"token_method": token_method}),
    }


def receipt_of(body: Mapping[str, Any], entry: journal.Appended) -> Receipt:
    """Return the receipt that was appended to a run's chain in this process."""
    event = entry.event
    return _receipt(
        body, event.stream, event.subject_id, event.at, entry.previous, entry.digest, entry.position
    )


def receipt_about(connection: Connection, step_id: str) -> Receipt | None:
    """Return the receipt of one step, or None. Raises InvalidRecord where it is not readable."""
    return next((receipt for _, receipt in receipts_in(journal.about(connection, step_id))), None)


def receipts_in(chain: Iterable[JournalEntry]) -> list[tuple[JournalEntry, Receipt]]:
    """Return the receipts of a chain, each with its journal entry. Raises InvalidRecord."""
    return [
        (
            entry,
            _receipt(
                entry.details,
                entry.stream,
                entry.subject_id,
                entry.at,
                entry.previous,
                entry.digest,
                entry.position,
            ),
        )
        for entry in chain
        if entry.event == "receipt"
    ]


def receipts_of(connection: Connection, run_id: str) -> list[Receipt]:
    """Return the receipts of a run in the order of its chain. Raises InvalidRecord where one is not
    readable.
    """
    chain = journal.entries(connection, run_stream(run_id))
    return [receipt for _, receipt in receipts_in(chain)]


def _receipt(
    body: Mapping[str, Any],
    stream: str,
    step_id: str | None,
    at: int,
    previous: str,
    digest: str,
    position: int,
) -> Receipt:
    identity = {"step_id": step_id, "run_id": stream.removeprefix(run_stream("")), "ended_at": at}
    return Receipt.load(
        {**identity, **body, "previous": previous, "digest": digest, "position": position}
    )
