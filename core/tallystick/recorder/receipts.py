"""Receipts: the body of a step's receipt is made here, and a receipt read back from its chain.

The body is the `details` of a journal entry `receipt` in the run's stream. The name of the step and
the summaries of its entries are not in it: the entry commits to the rows in which they are.
`storage.rows.journal.chain_entry` makes its digest: over the stream, the position, the digest
before it, and the entry as canonical JSON. A receipt is that entry read back, so that no second
digest exists.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tallystick.records import JournalEntry, Receipt, Retention
from tallystick.storage import Connection
from tallystick.storage.rows import journal, recordings
from tallystick.storage.rows.journal import run_stream

NOT_COUNTED = "not counted"
"""Token method of a step whose tokens nobody counted; such a receipt omits the field."""


def receipt_body(
    row: Mapping[str, Any],
    retention: Retention,
    token_method: str,
    entries: Sequence[Mapping[str, Any]],
    *,
    continues: str | None = None,
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
        **({} if continues is None else {"continues": continues}),
    }


def without_texts(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of a receipt as the chain has it: without the name of the step and without
    summaries, but for the counts of a gap.
    """
    chained = {name: value for name, value in body.items() if name != "name"}
    chained["entries"] = [
        entry
        if "summary" not in entry or entry["kind"] == "gap"
        else {name: value for name, value in entry.items() if name != "summary"}
        for entry in body["entries"]
    ]
    return chained


def receipt_of(body: Mapping[str, Any], entry: journal.Appended) -> Receipt:
    """Return the receipt that was appended to a run's chain in this process."""
    event = entry.event
    return _receipt(
        body, event.stream, event.subject_id, event.at, entry.previous, entry.digest, entry.position
    )


def receipt_about(connection: Connection, run_id: str, step_id: str) -> Receipt | None:
    """Return the receipt of one step, or None. Raises InvalidRecord where it is not readable."""
    chain = [entry for entry in journal.about(connection, step_id) if entry.event == "receipt"]
    return next(iter(with_texts(connection, run_id, chain, step_id=step_id)), None)


def receipts_in(chain: Iterable[JournalEntry]) -> list[tuple[JournalEntry, Receipt]]:
    """Return the receipts of a chain as it has them, each with its journal entry: without the texts
    that are in rows. Raises InvalidRecord.
    """
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
                texts_erased=entry.texts_erased,
            ),
        )
        for entry in chain
        if entry.event == "receipt"
    ]


def receipts_of(connection: Connection, run_id: str) -> list[Receipt]:
    """Return the receipts of a run in the order of its chain. Raises InvalidRecord where one is not
    readable.
    """
    return with_texts(connection, run_id, journal.entries(connection, run_stream(run_id)))


def with_texts(
    connection: Connection,
    run_id: str,
    chain: Iterable[JournalEntry],
    *,
    step_id: str | None = None,
) -> list[Receipt]:
    """Return the receipts of a run, or of one of its steps, with their texts, as the rows have them
    now. Raises InvalidRecord.
    """
    stored = recordings.step_texts(connection, run_id, step_id)
    receipts = []
    for _, receipt in receipts_in(chain):
        texts = stored.get(receipt.step_id)
        if texts is not None:
            receipt = _complete(receipt, texts)
        receipts.append(receipt)
    return receipts


def _complete(receipt: Receipt, texts: Mapping[str, Any]) -> Receipt:
    entries = [
        entry if summary == "{}" else entry.model_copy(update={"summary": json.loads(summary)})
        for entry, summary in zip(receipt.entries, texts["summaries"], strict=False)
    ]
    # A row that is missing is for `verify` to find.
    entries += receipt.entries[len(entries) :]
    return receipt.model_copy(update={"name": texts["name"], "entries": tuple(entries)})


def _receipt(
    body: Mapping[str, Any],
    stream: str,
    step_id: str | None,
    at: int,
    previous: str,
    digest: str,
    position: int,
    *,
    texts_erased: bool = False,
) -> Receipt:
    identity = {"step_id": step_id, "run_id": stream.removeprefix(run_stream("")), "ended_at": at}
    return Receipt.load(
        {
            **identity,
            **body,
            "previous": previous,
            "digest": digest,
            "position": position,
            "texts_erased": texts_erased,
        }
    )
