"""What a person sees of memories, previews, proofs and findings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tallystick.records import (
    AccessPreview,
    Affected,
    Change,
    Correction,
    Crossing,
    Erasure,
    Explored,
    Finding,
    Forgetting,
    HistoryEntry,
    Inspection,
    Memory,
    MemorySpace,
    Proof,
    Purge,
    Transfer,
)
from tallystick_cli.render import short

__all__ = [
    "change_line",
    "correction_view",
    "crossing_view",
    "doctor_table",
    "erasure_view",
    "explored_view",
    "forgetting_view",
    "history_table",
    "inspection_view",
    "memory_table",
    "preview_table",
    "proof_view",
    "purge_view",
    "space_table",
    "transfer_view",
]

_IMPACT = {
    "leaves_recall": "it leaves recall",
    "returns": "it is recalled as before",
    "history": "it is recalled as what held once",
    "below_replacement": "it stands below its replacement",
    "under_canonical": "the other memory stands for it",
    "metadata_only": "the replacement stands in its place",
    "field_redacted": "the field shows its replacement",
    "local_only": "it is labelled, and goes to no distant embedder or reranker",
    "unchanged": "nothing changes",
}
_USES = 5
"""Steps that are named as users of a memory."""
_TIMES = ("valid_from", "valid_until", "expires_at", "freshness_ts")
_LINKS = {
    ("SUPERSEDES", "from"): "replaced by",
    ("SUPERSEDES", "to"): "replaces",
    ("DUPLICATE_OF", "to"): "repeats",
    ("DUPLICATE_OF", "from"): "repeated by",
    ("DERIVED_FROM", "to"): "concluded from",
    ("DERIVED_FROM", "from"): "used by",
    ("SHARES", "to"): "shared from",
    ("SHARES", "from"): "shared as",
}
_STATE = {
    "active": "green",
    "superseded": "yellow",
    "duplicate": "yellow",
    "redacted": "magenta",
    "hidden": "dim",
    "deleted": "red",
}
_FINDING = {
    "ok": ("✓", "green"),
    "notice": ("!", "yellow"),
    "problem": ("✗", "red"),
    "repaired": ("✓", "cyan"),
}


def memory_table(memories: Iterable[Memory]) -> Table:
    """Memories, newest first."""
    table = _table("id", "state", "kind", "v", "says")
    for memory in memories:
        table.add_row(
            Text(short(memory.id), style="cyan"),
            _state(memory.state),
            memory.kind,
            str(memory.version),
            Text(_line(memory.content) or "(not shown)", style="" if memory.content else "dim"),
        )
    return table


def explored_view(explored: Explored) -> RenderableType:
    """What one comes across: scopes with counts, memories, and how they hang together."""
    parts: list[RenderableType] = []
    if explored.scopes:
        scopes = _table("scope", "read", "why", "memories", "kinds")
        for scope in explored.scopes:
            scopes.add_row(
                f"{scope.scope}{f' ({scope.name})' if scope.name else ''}",
                Text(
                    "yes" if scope.readable else "no", style="green" if scope.readable else "yellow"
                ),
                scope.reason,
                _counts(scope.states),
                _counts(scope.kinds),
            )
        parts.append(scopes)
    if explored.memories:
        table = _table("id", "state", "kind", "says", "links")
        for memory in explored.memories:
            links = {
                _LINKS.get((link.kind, link.direction), link.kind.lower()): link.count
                for link in memory.links
            }
            table.add_row(
                Text("  " * memory.distance + short(memory.memory_id), style="cyan"),
                _state(memory.state),
                memory.kind,
                Text(
                    _line(memory.preview or "") or "(not shown)",
                    style="" if memory.preview else "dim",
                ),
                _counts(links),
            )
        parts.append(table)
    for link in explored.links:
        says = _LINKS.get((link.kind, "to"), link.kind.lower())
        parts.append(Text(f"{short(link.from_id)} {says} {short(link.to_id)}", style="dim"))
    if explored.elsewhere:
        parts.append(Text(f"{explored.elsewhere} more stand where you may not look.", style="dim"))
    if explored.more:
        parts.append(
            Text("There is more: raise --limit, or give the last id as --before.", style="dim")
        )
    return Group(*parts) if parts else Text("There is nothing that you may see.", style="dim")


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())


def inspection_view(inspection: Inspection) -> RenderableType:
    """One memory with everything about it, and the newest recorded steps that used it."""
    facts = _pairs()
    facts.add_row("memory", Text(inspection.memory_id, style="cyan"))
    facts.add_row(
        "state",
        Text.assemble(
            _state(inspection.state), f"  version {inspection.version}, {inspection.kind}"
        ),
    )
    facts.add_row(
        "says",
        Text(
            inspection.preview if inspection.preview is not None else "(not shown)",
            style="bold" if inspection.preview else "dim",
        ),
    )
    facts.add_row(
        "recalled",
        Text(
            f"{'yes' if inspection.shown else 'no'}: {inspection.why}",
            style="green" if inspection.shown else "yellow",
        ),
    )
    facts.add_row("visible to", ", ".join(inspection.readers) or str(inspection.scope))
    facts.add_row("written", f"{_when(inspection.created_at)} by {inspection.created_by}")
    if inspection.tags:
        facts.add_row("tags", ", ".join(inspection.tags))
    if inspection.locked_until:
        facts.add_row("locked until", _when(inspection.locked_until))
    facts.add_row("holds", _holds(inspection))
    facts.add_row("sources", ", ".join(short(source) for source in inspection.sources))
    _touched(facts, inspection.affected)
    if inspection.promoted:
        facts.add_row("copies", ", ".join(short(use) for use in inspection.promoted))
    for use in inspection.uses[:_USES]:
        facts.add_row(
            "used by", f"step {short(use.step.step_id)}: {', '.join(use.how).replace('_', ' ')}"
        )
    can = [
        action.name + ("*" if action.previewed else "")
        for action in inspection.actions
        if action.allowed
    ]
    facts.add_row("you may", ", ".join(can) or "nothing")
    facts.add_row("", Text("* is previewed first", style="dim"))
    parts: list[RenderableType] = [
        Panel(facts, title="Memory", title_align="left", border_style="dim")
    ]
    if inspection.history:
        parts.append(history_table(inspection.history))
    return Group(*parts)


def history_table(entries: Sequence[HistoryEntry]) -> Table:
    """What happened, oldest first."""
    table = _table("when", "what", "who", "why", "change")
    for entry in entries:
        what = f"{entry.event} {entry.correction}" if entry.correction else entry.event
        agent = entry.actor.get("agent")
        who = f"{entry.actor.get('user')}{f' ({agent})' if agent else ''} via {entry.surface}"
        table.add_row(
            _when(entry.at), Text(what, style="bold"), who, entry.reason or "", _changes(entry)
        )
    return table


def change_line(change: Change) -> Text:
    """What became of a change."""
    if change.status == "unchanged":
        return Text(
            f"– nothing changed: {short(change.memory_id)} is {change.state}, version "
            f"{change.version}"
        )
    until = getattr(change, "recoverable_until", None)
    text = f"✓ {short(change.memory_id)} is {change.state}, version {change.version}"
    return Text(text + (f"; recoverable until {_when(until)}" if until else ""), style="green")


def correction_view(correction: Correction) -> RenderableType:
    """What a correction would do, or that it is done."""
    if correction.result is not None:
        return change_line(correction.result)
    facts = _pairs()
    facts.add_row("memory", Text(correction.memory_id, style="cyan"))
    facts.add_row("correction", Text(correction.correction, style="bold"))
    facts.add_row(
        "state", Text.assemble(_state(correction.before), " → ", _state(correction.after))
    )
    facts.add_row("recall", _IMPACT[correction.recall])
    if correction.other_id:
        facts.add_row("other memory", Text(correction.other_id, style="cyan"))
    _touched(facts, correction.affected)
    until = (
        ""
        if correction.reversible_until is None
        else f" until {_when(correction.reversible_until)}"
    )
    facts.add_row("reversible", f"yes{until}" if correction.reversible else "no")
    return _previewed(facts)


def crossing_view(crossing: Crossing) -> RenderableType:
    """What a way into another scope would make, or made."""
    if crossing.copy_id is not None:
        return Text(f"✓ {short(crossing.copy_id)} stands in {crossing.into}", style="green")
    facts = _pairs()
    facts.add_row("memory", Text(crossing.memory_id, style="cyan"))
    facts.add_row("into", str(crossing.into))
    facts.add_row("readers there", ", ".join(crossing.readers) or "nobody yet")
    facts.add_row("allowed by", ", ".join(decision.reason for decision in crossing.decisions))
    return _previewed(facts)


def proof_view(proof: Proof) -> RenderableType:
    """What was looked at, what speaks against the claim, and what stays open."""
    facts = _pairs()
    claim = "nothing reaches it" if proof.claim == "unreachable" else "nothing holds it"
    facts.add_row("memory", Text(proof.memory_id, style="cyan"))
    facts.add_row(
        "claim",
        Text(f"{'✓' if proof.holds else '✗'} {claim}", style="green" if proof.holds else "red"),
    )
    facts.add_row("looked at", ", ".join(proof.checked))
    for problem in proof.problems:
        facts.add_row("but", Text(problem, style="red"))
    if proof.searched is not None:
        where = f"{_when(proof.searched.at)}, found in {proof.searched.problems} places"
        facts.add_row("last search", where)
    for copy in proof.copies:
        facts.add_row("kept", copy)
    facts.add_row("cannot prove", Text("\n".join(proof.cannot_prove), style="dim"))
    return Panel(facts, title="Proof", title_align="left", border_style="dim")


def forgetting_view(forgetting: Forgetting) -> RenderableType:
    """What a query would forget, or forgot."""
    if forgetting.mode == "execute":
        return Text(f"✓ {len(forgetting.results)} memories forgotten", style="green")
    if not forgetting.matches:
        return Text("Nothing matches well enough.", style="dim")
    table = _table("id", "score", "what")
    for match in forgetting.matches:
        what = Text("forget") if match.action == "forget" else Text("keep: pinned", style="yellow")
        table.add_row(Text(short(match.memory_id), style="cyan"), f"{match.score:.2f}", what)
    return _previewed(table)


def erasure_view(erasure: Erasure) -> RenderableType:
    """What would be destroyed, or was, with the proof."""
    facts = _pairs()
    facts.add_row("memories", ", ".join(short(memory_id) for memory_id in erasure.memory_ids))
    facts.add_row("versions", str(erasure.versions))
    facts.add_row(
        "sources",
        ", ".join(short(memory_id) for memory_id in erasure.sources) or "none of their own",
    )
    facts.add_row(
        "recorded steps", ", ".join(short(memory_id) for memory_id in erasure.payloads) or "none"
    )
    facts.add_row("threads", ", ".join(erasure.threads) or "none")
    if erasure.runs:
        facts.add_row("goals of runs", ", ".join(short(memory_id) for memory_id in erasure.runs))
    if erasure.elsewhere:
        facts.add_row(
            "stays in",
            Text(", ".join(short(memory_id) for memory_id in erasure.elsewhere), style="yellow"),
        )
    for proof in erasure.proofs:
        verdict = Text("✓ erased: nothing of it was found", style="green")
        if not proof.holds:
            verdict = Text("✗ " + "; ".join(proof.problems), style="red")
        facts.add_row("proof", verdict)
    facts.add_row("cannot prove", Text("\n".join(erasure.cannot_prove), style="dim"))
    if erasure.mode == "apply":
        return Panel(facts, title="Erased", title_align="left", border_style="dim")
    return _previewed(facts, more=" This cannot be taken back.")


def preview_table(preview: AccessPreview) -> Table:
    """What somebody could recall, scope by scope."""
    table = _table("scope", "may recall", "why", "visible", "hidden", "denied")
    for scope in preview.scopes:
        allowed = scope.decision.allowed
        table.add_row(
            str(scope.scope),
            Text("yes" if allowed else "no", style="green" if allowed else "red"),
            scope.decision.reason,
            str(len(scope.visible)),
            ", ".join(f"{count} {state}" for state, count in scope.hidden.items()) or "0",
            str(len(scope.denied)),
        )
    table.title = (
        f"What {preview.user}{f' with {preview.agent}' if preview.agent else ''} could recall"
    )
    table.title_justify = "left"
    return table


def space_table(spaces: Iterable[MemorySpace]) -> Table:
    """Spaces with their members."""
    table = _table("scope", "name", "state", "members")
    for space in spaces:
        members = "\n".join(
            f"{member.principal_type}:{member.principal_id} {member.role}"
            + (f" until {_when(member.expires_at)}" if member.expires_at else "")
            for member in space.members
        )
        table.add_row(str(space.scope), space.name, space.state, members)
    return table


def purge_view(purge: Purge) -> RenderableType:
    """What is past its window, or went."""
    facts = _pairs()
    facts.add_row("expired memories", f"{purge.expired} (forgotten, recoverable for their window)")
    facts.add_row("forgotten memories", str(purge.tombstones))
    facts.add_row("journal entries", f"{purge.journal} of {len(purge.streams)} journals")
    facts.add_row("recorded runs", str(len(purge.runs)))
    facts.add_row("access log", str(purge.reads))
    facts.add_row("jobs", str(purge.jobs))
    facts.add_row("first answers", f"{purge.answers} (of calls under an idempotency key)")
    facts.add_row("working memory", str(purge.working))
    if purge.journal_window_days is None:
        facts.add_row("journal", Text("kept: no window was chosen, or for ever", style="dim"))
    title = "Past their window" if purge.mode == "preview" else "Removed"
    return Panel(facts, title=title, title_align="left", border_style="dim")


def transfer_view(transfer: Transfer, *, verb: str, folder: Path) -> Text:
    """What was taken along."""
    return Text(
        f"✓ {len(transfer.scopes)} scopes {verb} {folder}: {transfer.memories} memories, {transfer.sources} "
        f"sources, "
        f"{transfer.entries} journal entries, {transfer.blobs} blobs\n  {transfer.digest}",
        style="green",
    )


def doctor_table(findings: Iterable[Finding]) -> Table:
    """Findings, one a line."""
    table = _table("", "check", "finding")
    for finding in findings:
        sign, style = _FINDING[finding.status]
        table.add_row(
            Text(sign, style=style),
            finding.check,
            Text(finding.text, style="" if sign == "✓" else style),
        )
    return table


def _touched(facts: Table, affected: Affected) -> None:
    if affected.links:
        facts.add_row(
            "links",
            "\n".join(
                f"{_LINKS.get((link.kind, link.direction), link.kind.lower())} "
                f"{short(link.memory_id)}"
                for link in affected.links
            ),
        )
    if affected.elsewhere:
        facts.add_row("elsewhere", f"{affected.elsewhere} linked memories that you may not see")


def _previewed(body: RenderableType, *, more: str = "") -> RenderableType:
    notice = f"Nothing was changed.{more}"
    return Panel(
        body,
        title="Preview",
        title_align="left",
        border_style="dim",
        subtitle=notice,
        subtitle_align="left",
    )


def _changes(entry: HistoryEntry) -> Text:
    text = Text()
    for name in dict.fromkeys((*entry.old, *entry.new)):
        if name == "corrected" or (entry.event == "ADD" and name != "content"):
            continue
        old, new = entry.old.get(name), entry.new.get(name)
        text.append(f"{name}: ", style="dim")
        if old not in (None, [], {}):
            text.append(_line(old), style="red")
            text.append(" → ")
        shown = _when(new) if isinstance(new, int) and name in _TIMES else _line(new)
        text.append(shown + "\n", style="green")
    if entry.erased_at:
        text.append("erased", style="red")
    elif entry.withheld:
        text.append(f"not shown: {', '.join(entry.withheld)}", style="dim")
    text.rstrip()
    return text


def _holds(inspection: Inspection) -> Text:
    fresh = inspection.freshness
    if fresh.current:
        return Text(
            "now" + (f", known {_when(fresh.known_at)}" if fresh.known_at else ""), style="green"
        )
    why = [f"replaced by {short(fresh.replaced_by)}"] if fresh.replaced_by else []
    why += [f"until {_when(fresh.valid_until)}"] if fresh.valid_until else []
    why += [
        f"{short(memory_id)} changed, from which it was concluded"
        for memory_id in fresh.origins_changed
    ]
    return Text("no longer" + (f": {'; '.join(why)}" if why else ""), style="yellow")


def _state(state: str) -> Text:
    return Text(state, style=_STATE.get(state, ""))


def _pairs() -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    return table


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in columns[:-1]:
        table.add_column(name, overflow="fold")
    table.add_column(columns[-1], overflow="fold", ratio=1)
    return table


def _line(value: Any) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= 90 else text[:89] + "…"


def _when(micros: int) -> str:
    return (
        datetime.fromtimestamp(micros / 1_000_000, tz=UTC).astimezone().strftime("%Y-%m-%d %H:%M")
    )
