"""The questions that a recording answers, as functions over what was recorded."""

from __future__ import annotations

import json
from bisect import bisect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import unified_diff
from itertools import accumulate
from typing import Any

from tallystick import compiler
from tallystick.records import (
    CompilationRequest,
    CompiledContext,
    ContextCandidate,
    Json,
    Provenance,
    Receipt,
    RecordedWrite,
    SourceRef,
    StepDiff,
    StepEntry,
)
from tallystick.storage import Connection
from tallystick.storage.rows import recordings

_AROUND = 60
"""Characters quoted on either side of the words."""
_EVENTS = {"created": "ADD", "duplicate": "DUPLICATE", "skipped": "SKIP"}
_LONG = 400
"""Characters from which a text of a request is split into lines, so that a diff names the line that
changed.
"""


def candidates_of(request: CompilationRequest, compiled: CompiledContext) -> list[ContextCandidate]:
    """Return every candidate of a compile in the order of its decisions, with its text unless
    policy withheld it.
    """
    included = {item.id: item.content for item in compiled.selected_items}
    memories = {memory.id: memory for memory in request.memory_records}
    items = {item.id: item for item in request.context_items}
    candidates = []
    for decision in compiled.decisions:
        memory, item = memories.get(decision.item_id), items.get(decision.item_id)
        text = included.get(decision.item_id)
        if text is None and not decision.reason_code.startswith("policy_"):
            text = (
                item.content if item is not None else memory.content if memory is not None else None
            )
        reference = None if item is None or item.source_ref == SourceRef() else item.source_ref
        candidates.append(
            ContextCandidate(
                item_id=decision.item_id,
                decision=decision,
                says=text,
                memory_id=memory.id if memory else None,
                source_ids=tuple(source.source_id for source in memory.sources) if memory else (),
                source=reference,
            )
        )
    return candidates


def quotes_of(items: Iterable[ContextCandidate], text: str) -> list[tuple[ContextCandidate, str]]:
    """Return the items that went in and contain `text`, each with the words around it; white space
    and case do not count.
    """
    needle = " ".join(text.split()).casefold()
    quotes = []
    for item in items:
        if item.decision.decision == "exclude" or not item.says:
            continue
        flat = " ".join(item.says.split())
        # A letter may fold to two: each folded letter is counted back to its own.
        folded = [letter.casefold() for letter in flat]
        place = "".join(folded).find(needle)
        if needle and place >= 0:
            ends = list(accumulate(map(len, folded)))
            place, last = bisect(ends, place), bisect(ends, place + len(needle) - 1)
            start, end = max(0, place - _AROUND), min(len(flat), last + 1 + _AROUND)
            quotes.append(
                (item, f"{'…' if start else ''}{flat[start:end]}{'…' if end < len(flat) else ''}")
            )
    return quotes


def changes_in(receipt: Receipt, by: Mapping[str, Any]) -> Iterator[RecordedWrite]:
    """Yield the changes of memory that a step's receipt names, in order."""
    for entry in receipt.entries:
        if entry.kind == "memory_write":
            for memory_id, event in _changes(entry.summary):
                yield RecordedWrite(
                    step_id=receipt.step_id,
                    memory_id=memory_id,
                    event=event,
                    by=dict(by),
                    at=receipt.ended_at,
                )


def _changes(summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (memory id, event) for each memory in the summary of a write."""
    many = summary.get("memories")
    for change in many if isinstance(many, list) else [summary]:
        if isinstance(change, dict):
            memory_id = change.get("id") or change.get("memory_id")
            event = change.get("event") or _EVENTS.get(
                str(change.get("status")), str(change.get("status", "changed"))
            )
            if memory_id:
                yield str(memory_id), str(event)


def uses_of(connection: Connection, memory_id: str) -> list[tuple[str, tuple[str, ...]]]:
    """Return (step id, how) of every step whose receipt names a memory, oldest first."""
    uses_by_step: dict[str, list[str]] = {}
    for row in recordings.entries_naming(connection, memory_id):
        for how in _uses(row.kind, json.loads(row.summary), memory_id):
            uses = uses_by_step.setdefault(row.step_id, [])
            if how not in uses:
                uses.append(how)
    return [(step_id, tuple(uses)) for step_id, uses in uses_by_step.items() if uses]


def _uses(kind: str, summary: Mapping[str, Any], memory_id: str) -> Iterator[str]:
    if kind == "memory_write":
        yield "written"
    elif kind == "memory_read":
        yield "recalled"
    elif kind == "compiled":
        # Whoever records a step writes its summaries, also those that name a memory of another.
        decisions = summary.get("decisions")
        for decision in decisions if isinstance(decisions, list) else ():
            if isinstance(decision, list) and len(decision) > 1 and decision[0] == memory_id:
                yield "left_out" if decision[1] == "exclude" else "in_context"


def diff_steps(
    before: tuple[str, Sequence[StepEntry]], after: tuple[str, Sequence[StepEntry]]
) -> StepDiff:
    """Compare two recorded steps, given as id and entries."""
    old, new = _by_kind(before[1]), _by_kind(after[1])
    notes: list[str] = []
    compiles = [_load_compiled(entries) for entries in (old, new)]
    compared = None
    if compiles[0] is not None and compiles[1] is not None:
        compared = compiler.diff_compiled(compiles[0], compiles[1])
    elif any("compiled" in entries for entries in (old, new)):
        notes.append("only one of them compiled a context that is kept")
    lines = {}
    for kind in ("request", "response"):
        old_entry, new_entry = old.get(kind), new.get(kind)
        is_kept = [
            entry is not None and entry.payload_state in {"kept", "redacted"}
            for entry in (old_entry, new_entry)
        ]
        if all(is_kept):
            assert old_entry is not None
            assert new_entry is not None
            lines[kind] = tuple(
                diff_lines(old_entry.payload, new_entry.payload, before[0], after[0])
            )
        elif old_entry is not None or new_entry is not None:
            notes.append(
                f"the {kind} of only one of them is kept"
                if any(is_kept)
                else f"their {kind}s were not kept"
            )
    compaction = new["compaction"].payload if "compaction" in new else None
    prefix = compaction.get("prefix") if isinstance(compaction, dict) else None
    dropped = prefix.get("left") if isinstance(prefix, dict) else None
    return StepDiff(
        before=before[0],
        after=after[0],
        compile=compared,
        request=lines.get("request", ()),
        response=lines.get("response", ()),
        compaction=tuple(map(str, dropped)) if isinstance(dropped, list) else (),
        notes=tuple(notes),
    )


def diff_lines(before: Json, after: Json, old: str = "recorded", new: str = "now") -> list[str]:
    """Return a unified diff of two JSON values, a line for each field; empty if they are equal."""
    return list(unified_diff(lines_of(before), lines_of(after), old, new, lineterm="", n=2))


def lines_of(value: Json) -> list[str]:
    """Return a JSON value as lines with sorted keys; a long text is split at its line breaks."""
    lines: list[str] = []
    for line in json.dumps(value, ensure_ascii=False, indent=2, sort_keys=True).splitlines():
        if len(line) < _LONG or "\\n" not in line:
            lines.append(line)
        else:
            indent = " " * (len(line) - len(line.lstrip()))
            first, *rest = line.split("\\n")
            lines += [first, *(f"{indent}    {part}" for part in rest)]
    return lines


def _by_kind(entries: Sequence[StepEntry]) -> dict[str, StepEntry]:
    return {entry.kind: entry for entry in entries}


def _load_compiled(entries: Mapping[str, StepEntry]) -> CompiledContext | None:
    entry = entries.get("compiled")
    return None if entry is None or entry.payload is None else CompiledContext.load(entry.payload)


def provenance(
    item: ContextCandidate,
    quote: str,
    source_id: str | None,
    source: SourceRef | None,
    raw: str | None,
) -> Provenance:
    """Return one origin of a sentence."""
    return Provenance(
        item_id=item.item_id,
        quote=quote,
        memory_id=item.memory_id,
        source_id=source_id,
        source=source,
        raw=raw,
    )
