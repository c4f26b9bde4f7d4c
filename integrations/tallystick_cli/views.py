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


def explored_view(found: Explored) -> RenderableType:
    """What one comes across: scopes with counts, memories, and how they hang together."""
    parts: list[RenderableType] = []
    if found.scopes:
        scopes = _table("scope", "read", "why", "memories", "kinds")
        for one in found.scopes:
            scopes.add_row(
                f"{one.scope}{f' ({one.name})' if one.name else ''}",
                Text("yes" if one.readable else "no", style="green" if one.readable else "yellow"),
                one.reason,
                _counts(one.states),
                _counts(one.kinds),
            )
        parts.append(scopes)
    if found.memories:
        table = _table("id", "state", "kind", "says", "links")
        for memory in found.memories:
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
    for link in found.links:
        says = _LINKS.get((link.kind, "to"), link.kind.lower())
        parts.append(Text(f"{short(link.from_id)} {says} {short(link.to_id)}", style="dim"))
    if found.elsewhere:
        parts.append(Text(f"{found.elsewhere} more stand where you may not look.", style="dim"))
    if found.more:
        parts.append(
            Text("There is more: raise --limit, or give the last id as --before.", style="dim")
        )
    return Group(*parts) if parts else Text("There is nothing that you may see.", style="dim")


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())


def inspection_view(found: Inspection) -> RenderableType:
    """One memory with everything about it, and the newest recorded steps that used it."""
    facts = _pairs()
    facts.add_row("memory", Text(found.memory_id, style="cyan"))
    facts.add_row(
        "state", Text.assemble(_state(found.state), f"  version {found.version}, {found.kind}")
    )
    facts.add_row(
        "says",
        Text(
            found.preview if found.preview is not None else "(not shown)",
            style="bold" if found.preview else "dim",
        ),
    )
    facts.add_row(
        "recalled",
        Text(
            f"{'yes' if found.shown else 'no'}: {found.why}",
            style="green" if found.shown else "yellow",
        ),
    )
    facts.add_row("visible to", ", ".join(found.readers) or str(found.scope))
    facts.add_row("written", f"{_when(found.created_at)} by {found.created_by}")
    if found.tags:
        facts.add_row("tags", ", ".join(found.tags))
    if found.locked_until:
        facts.add_row("locked until", _when(found.locked_until))
    facts.add_row("holds", _holds(found))
    facts.add_row("sources", ", ".join(short(source) for source in found.sources))
    _touched(facts, found.affected)
    if found.promoted:
        facts.add_row("copies", ", ".join(short(one) for one in found.promoted))
    for one in found.uses[:_USES]:
        facts.add_row(
            "used by", f"step {short(one.step.step_id)}: {', '.join(one.how).replace('_', ' ')}"
        )
    can = [
        action.name + ("*" if action.previewed else "")
        for action in found.actions
        if action.allowed
    ]
    facts.add_row("you may", ", ".join(can) or "nothing")
    facts.add_row("", Text("* is previewed first", style="dim"))
    parts: list[RenderableType] = [
        Panel(facts, title="Memory", title_align="left", border_style="dim")
    ]
    if found.history:
        parts.append(history_table(found.history))
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


def correction_view(found: Correction) -> RenderableType:
    """What a correction would do, or that it is done."""
    if found.result is not None:
        return change_line(found.result)
    facts = _pairs()
    facts.add_row("memory", Text(found.memory_id, style="cyan"))
    facts.add_row("correction", Text(found.correction, style="bold"))
    facts.add_row("state", Text.assemble(_state(found.before), " → ", _state(found.after)))
    facts.add_row("recall", _IMPACT[found.recall])
    if found.other_id:
        facts.add_row("other memory", Text(found.other_id, style="cyan"))
    _touched(facts, found.affected)
    until = "" if found.reversible_until is None else f" until {_when(found.reversible_until)}"
    facts.add_row("reversible", f"yes{until}" if found.reversible else "no")
    return _previewed(facts)


def crossing_view(found: Crossing) -> RenderableType:
    """What a way into another scope would make, or made."""
    if found.copy_id is not None:
        return Text(f"✓ {short(found.copy_id)} stands in {found.into}", style="green")
    facts = _pairs()
    facts.add_row("memory", Text(found.memory_id, style="cyan"))
    facts.add_row("into", str(found.into))
    facts.add_row("readers there", ", ".join(found.readers) or "nobody yet")
    facts.add_row("allowed by", ", ".join(decision.reason for decision in found.decisions))
    return _previewed(facts)


def proof_view(found: Proof) -> RenderableType:
    """What was looked at, what speaks against the claim, and what stays open."""
    facts = _pairs()
    claim = "nothing reaches it" if found.claim == "unreachable" else "nothing holds it"
    facts.add_row("memory", Text(found.memory_id, style="cyan"))
    facts.add_row(
        "claim",
        Text(f"{'✓' if found.holds else '✗'} {claim}", style="green" if found.holds else "red"),
    )
    facts.add_row("looked at", ", ".join(found.checked))
    for problem in found.problems:
        facts.add_row("but", Text(problem, style="red"))
    if found.searched is not None:
        where = f"{_when(found.searched.at)}, found in {found.searched.problems} places"
        facts.add_row("last search", where)
    for copy in found.copies:
        facts.add_row("kept", copy)
    facts.add_row("cannot prove", Text("\n".join(found.cannot_prove), style="dim"))
    return Panel(facts, title="Proof", title_align="left", border_style="dim")


def forgetting_view(found: Forgetting) -> RenderableType:
    """What a query would forget, or forgot."""
    if found.mode == "execute":
        return Text(f"✓ {len(found.results)} memories forgotten", style="green")
    if not found.matches:
        return Text("Nothing matches well enough.", style="dim")
    table = _table("id", "score", "what")
    for match in found.matches:
        what = Text("forget") if match.action == "forget" else Text("keep: pinned", style="yellow")
        table.add_row(Text(short(match.memory_id), style="cyan"), f"{match.score:.2f}", what)
    return _previewed(table)


def erasure_view(found: Erasure) -> RenderableType:
    """What would be destroyed, or was, with the proof."""
    facts = _pairs()
    facts.add_row("memories", ", ".join(short(one) for one in found.memory_ids))
    facts.add_row("versions", str(found.versions))
    facts.add_row("sources", ", ".join(short(one) for one in found.sources) or "none of their own")
    facts.add_row("recorded steps", ", ".join(short(one) for one in found.payloads) or "none")
    facts.add_row("threads", ", ".join(found.threads) or "none")
    if found.runs:
        facts.add_row("goals of runs", ", ".join(short(one) for one in found.runs))
    if found.elsewhere:
        facts.add_row(
            "stays in", Text(", ".join(short(one) for one in found.elsewhere), style="yellow")
        )
    for proof in found.proofs:
        told = Text("✓ erased: nothing of it was found", style="green")
        if not proof.holds:
            told = Text("✗ " + "; ".join(proof.problems), style="red")
        facts.add_row("proof", told)
    facts.add_row("cannot prove", Text("\n".join(found.cannot_prove), style="dim"))
    if found.mode == "apply":
        return Panel(facts, title="Erased", title_align="left", border_style="dim")
    return _previewed(facts, more=" This cannot be taken back.")


def preview_table(found: AccessPreview) -> Table:
    """What somebody could recall, scope by scope."""
    table = _table("scope", "may recall", "why", "visible", "hidden", "denied")
    for scope in found.scopes:
        allowed = scope.decision.allowed
        table.add_row(
            str(scope.scope),
            Text("yes" if allowed else "no", style="green" if allowed else "red"),
            scope.decision.reason,
            str(len(scope.visible)),
            ", ".join(f"{count} {state}" for state, count in scope.hidden.items()) or "0",
            str(len(scope.denied)),
        )
    table.title = f"What {found.user}{f' with {found.agent}' if found.agent else ''} could recall"
    table.title_justify = "left"
    return table


def space_table(found: Iterable[MemorySpace]) -> Table:
    """Spaces with their members."""
    table = _table("scope", "name", "state", "members")
    for space in found:
        members = "\n".join(
            f"{member.principal_type}:{member.principal_id} {member.role}"
            + (f" until {_when(member.expires_at)}" if member.expires_at else "")
            for member in space.members
        )
        table.add_row(str(space.scope), space.name, space.state, members)
    return table


def purge_view(found: Purge) -> RenderableType:
    """What is past its window, or went."""
    facts = _pairs()
    facts.add_row("expired memories", f"{found.expired} (forgotten, recoverable for their window)")
    facts.add_row("forgotten memories", str(found.tombstones))
    facts.add_row("journal entries", f"{found.journal} of {len(found.streams)} journals")
    facts.add_row("recorded runs", str(len(found.runs)))
    facts.add_row("access log", str(found.reads))
    facts.add_row("jobs", str(found.jobs))
    facts.add_row("first answers", f"{found.answers} (of calls under an idempotency key)")
    facts.add_row("working memory", str(found.working))
    if found.journal_window_days is None:
        facts.add_row("journal", Text("kept: no window was chosen, or for ever", style="dim"))
    title = "Past their window" if found.mode == "preview" else "Removed"
    return Panel(facts, title=title, title_align="left", border_style="dim")


def transfer_view(done: Transfer, *, verb: str, folder: Path) -> Text:
    """What was taken along."""
    return Text(
        f"✓ {len(done.scopes)} scopes {verb} {folder}: {done.memories} memories, {done.sources} "
        f"sources, "
        f"{done.entries} journal entries, {done.blobs} blobs\n  {done.digest}",
        style="green",
    )


def doctor_table(found: Iterable[Finding]) -> Table:
    """Findings, one a line."""
    table = _table("", "check", "finding")
    for finding in found:
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


def _previewed(what: RenderableType, *, more: str = "") -> RenderableType:
    said = f"Nothing was changed.{more}"
    return Panel(
        what,
        title="Preview",
        title_align="left",
        border_style="dim",
        subtitle=said,
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


def _holds(found: Inspection) -> Text:
    fresh = found.freshness
    if fresh.current:
        return Text(
            "now" + (f", known {_when(fresh.known_at)}" if fresh.known_at else ""), style="green"
        )
    why = [f"replaced by {short(fresh.replaced_by)}"] if fresh.replaced_by else []
    why += [f"until {_when(fresh.valid_until)}"] if fresh.valid_until else []
    why += [f"{short(one)} changed, from which it was concluded" for one in fresh.origins_changed]
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
