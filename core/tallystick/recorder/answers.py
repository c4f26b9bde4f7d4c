"""The questions that a recording answers, as functions over what was recorded."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import unified_diff
from typing import Any

from sqlalchemy import Connection

from tallystick.compiler import diff_compiled
from tallystick.records import (
    CompilationRequest,
    CompiledContext,
    Json,
    Known,
    Provenance,
    Receipt,
    SourceRef,
    StepDiff,
    StepEntry,
    Written,
)
from tallystick.storage import recordings

__all__ = [
    "diff_lines",
    "diff_steps",
    "known",
    "lines_of",
    "provenance",
    "quoted",
    "uses_of",
    "written_in",
]

_AROUND = 60
"""Characters of an item that are quoted on either side."""
_EVENTS = {"created": "ADD", "duplicate": "DUPLICATE", "skipped": "SKIP"}
_LONG = 400
"""Characters from which a text of a request is shown in several lines, so that a diff names the one
that changed.
"""


def known(request: CompilationRequest, compiled: CompiledContext) -> list[Known]:
    """Every candidate of a compile in the order of its decisions, with what it says unless policy
    withheld it.
    """
    shown = {item.id: item.content for item in compiled.selected_items}
    memories = {memory.id: memory for memory in request.memory_records}
    given = {item.id: item for item in request.context_items}
    found = []
    for decision in compiled.decisions:
        memory, item = memories.get(decision.item_id), given.get(decision.item_id)
        says = shown.get(decision.item_id)
        if says is None and not decision.reason_code.startswith("policy_"):
            says = (
                item.content if item is not None else memory.content if memory is not None else None
            )
        reference = None if item is None or item.source_ref == SourceRef() else item.source_ref
        found.append(
            Known(
                item_id=decision.item_id,
                decision=decision,
                says=says,
                memory_id=memory.id if memory else None,
                source_ids=tuple(source.source_id for source in memory.sources) if memory else (),
                source=reference,
            )
        )
    return found


def quoted(items: Iterable[Known], text: str) -> list[tuple[Known, str]]:
    """The items that went in and hold `text`, each with the words around it; white space and case
    do not count.
    """
    wanted = " ".join(text.split()).casefold()
    found = []
    for item in items:
        if item.decision.decision == "exclude" or not item.says:
            continue
        flat = " ".join(item.says.split())
        # A letter may fold to two, so that places in the folded text are looked up in what it was
        # folded from.
        folded = flat.casefold() if len(flat.casefold()) == len(flat) else flat.lower()
        place = (
            folded.find(wanted) if len(folded) == len(flat) else flat.find(" ".join(text.split()))
        )
        if wanted and place >= 0:
            start, end = max(0, place - _AROUND), min(len(flat), place + len(wanted) + _AROUND)
            found.append(
                (item, f"{'…' if start else ''}{flat[start:end]}{'…' if end < len(flat) else ''}")
            )
    return found


def written_in(receipt: Receipt, by: Mapping[str, Any]) -> Iterator[Written]:
    """The changes of memory that a step's receipt tells of, in order."""
    for entry in receipt.entries:
        if entry.kind == "memory_write":
            for memory_id, event in _changes(entry.summary):
                yield Written(
                    step_id=receipt.step_id,
                    memory_id=memory_id,
                    event=event,
                    by=dict(by),
                    at=receipt.ended_at,
                )


def _changes(told: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(memory id, event) of what the summary of a write says."""
    many = told.get("memories")
    for one in many if isinstance(many, list) else [told]:
        if isinstance(one, dict):
            memory_id = one.get("id") or one.get("memory_id")
            event = one.get("event") or _EVENTS.get(
                str(one.get("status")), str(one.get("status", "changed"))
            )
            if memory_id:
                yield str(memory_id), str(event)


def uses_of(connection: Connection, memory_id: str) -> list[tuple[str, tuple[str, ...]]]:
    """(step id, how) of every step whose receipt names a memory, oldest first."""
    found: dict[str, list[str]] = {}
    for row in recordings.naming(connection, memory_id):
        for how in _uses(row.kind, json.loads(row.summary), memory_id):
            uses = found.setdefault(row.step_id, [])
            if how not in uses:
                uses.append(how)
    return [(step_id, tuple(uses)) for step_id, uses in found.items() if uses]


def _uses(kind: str, summary: Mapping[str, Any], memory_id: str) -> Iterator[str]:
    if kind == "memory_write":
        yield "written"
    elif kind == "memory_read":
        yield "recalled"
    elif kind == "compiled":
        for decision in summary.get("decisions") or ():
            if decision and decision[0] == memory_id:
                yield "left_out" if decision[1] == "exclude" else "in_context"


def diff_steps(
    before: tuple[str, Sequence[StepEntry]], after: tuple[str, Sequence[StepEntry]]
) -> StepDiff:
    """How two recorded steps differ, given as id and entries."""
    old, new = _by_kind(before[1]), _by_kind(after[1])
    notes: list[str] = []
    compiles = [_compiled(one) for one in (old, new)]
    compared = None
    if compiles[0] is not None and compiles[1] is not None:
        compared = diff_compiled(compiles[0], compiles[1])
    elif any("compiled" in one for one in (old, new)):
        notes.append("only one of them compiled a context that is kept")
    lines = {}
    for kind in ("request", "response"):
        one, other = old.get(kind), new.get(kind)
        kept = [
            entry is not None and entry.payload_state in {"kept", "redacted"}
            for entry in (one, other)
        ]
        if all(kept):
            assert one is not None
            assert other is not None
            lines[kind] = tuple(diff_lines(one.payload, other.payload, before[0], after[0]))
        elif one is not None or other is not None:
            notes.append(
                f"the {kind} of only one of them is kept"
                if any(kept)
                else f"their {kind}s were not kept"
            )
    told = new["compaction"].payload if "compaction" in new else None
    prefix = told.get("prefix") if isinstance(told, dict) else None
    left = prefix.get("left") if isinstance(prefix, dict) else None
    return StepDiff(
        before=before[0],
        after=after[0],
        compile=compared,
        request=lines.get("request", ()),
        response=lines.get("response", ()),
        compaction=tuple(map(str, left)) if isinstance(left, list) else (),
        notes=tuple(notes),
    )


def diff_lines(before: Json, after: Json, old: str = "recorded", new: str = "now") -> list[str]:
    """A unified diff of two JSON values, one line for each field; empty where they are equal."""
    return list(unified_diff(lines_of(before), lines_of(after), old, new, lineterm="", n=2))


def lines_of(value: Json) -> list[str]:
    """A JSON value as lines with sorted keys; a long text takes a line for each of its own."""
    found: list[str] = []
    for line in json.dumps(value, ensure_ascii=False, indent=2, sort_keys=True).splitlines():
        if len(line) < _LONG or "\\n" not in line:
            found.append(line)
        else:
            indent = " " * (len(line) - len(line.lstrip()))
            first, *rest = line.split("\\n")
            found += [first, *(f"{indent}    {one}" for one in rest)]
    return found


def _by_kind(entries: Sequence[StepEntry]) -> dict[str, StepEntry]:
    return {entry.kind: entry for entry in entries}


def _compiled(entries: Mapping[str, StepEntry]) -> CompiledContext | None:
    entry = entries.get("compiled")
    return None if entry is None or entry.payload is None else CompiledContext.load(entry.payload)


def provenance(
    item: Known, quote: str, source_id: str | None, source: SourceRef | None, raw: str | None
) -> Provenance:
    """One answer to where a sentence came from."""
    return Provenance(
        item_id=item.item_id,
        quote=quote,
        memory_id=item.memory_id,
        source_id=source_id,
        source=source,
        raw=raw,
    )
