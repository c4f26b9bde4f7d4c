"""Views of memories: hits of a recall, lists, exploration, inspection and history."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tallystick.records import (
    Explored,
    HistoryEntry,
    Hit,
    Inspection,
    Memory,
    Remembered,
    Scope,
    SourceInspection,
)
from tallystick_cli.views.common import (
    LINKS,
    add_affected,
    cut_text,
    fact_table,
    local_time,
    one_line,
    plain_table,
    short,
    state_text,
    titled_table,
)


def remembered_line(stored: Remembered, scope: Scope) -> Text:
    """Return what was remembered, in a line."""
    if stored.status == "skipped":
        return Text("– nothing to remember: all of it was recalled from here", style="yellow")
    if stored.status == "duplicate":
        return Text(f"– {short(stored.id)} in {scope} says this already")
    return Text(f"✓ {short(stored.id)} is remembered in {scope}", style="green")


def hit_table(hits: Sequence[Hit], *, query: str) -> Table:
    """Return recalled memories with their scores, sources and reasons."""
    table = titled_table(f"Recall: {query}", "id", "score", "memory")
    for hit in hits:
        memory = hit.memory
        signals = ", ".join(f"{name} {value:.2f}" for name, value in hit.signals.items() if value)
        sources = ", ".join(
            dict.fromkeys(
                source.uri or source.title or source.source_type for source in hit.sources
            )
        )
        standing = ""
        if hit.history:
            standing = "holds no longer" + (
                f", replaced by {short(hit.replaced_by)}" if hit.replaced_by else ""
            )
        facts = [
            standing,
            memory.kind,
            memory.speaker,
            f"from {sources}",
            f"visible to {hit.visible_to}",
            f"{signals} ({hit.path})",
        ]
        table.add_row(
            Text(short(memory.id), style="cyan"),
            Text(f"{hit.score:.2f}", style="green"),
            Text.assemble(
                cut_text(memory.content, 300), "\n", (" · ".join(filter(None, facts)), "dim")
            ),
        )
    return table


_USES = 5
"""Number of steps that are listed as users of a memory."""


_TIMES = ("valid_from", "valid_until", "expires_at", "freshness_ts")


def memory_table(memories: Iterable[Memory]) -> Table:
    """Return memories, newest first."""
    table = plain_table("id", "state", "v", "kind", "says")
    for memory in memories:
        table.add_row(
            Text(short(memory.id), style="cyan"),
            state_text(memory.state),
            str(memory.version),
            memory.kind,
            Text(one_line(memory.content) or "(not shown)", style="" if memory.content else "dim"),
        )
    return table


def explored_view(explored: Explored) -> RenderableType:
    """Return the result of exploring: scopes with counts, memories, and their links."""
    parts: list[RenderableType] = []
    if explored.scopes:
        scopes = plain_table("scope", "read", "why", "memories", "kinds")
        for scope in explored.scopes:
            scopes.add_row(
                f"{scope.scope}{f' ({scope.name})' if scope.name else ''}",
                Text(
                    "yes" if scope.readable else "no", style="green" if scope.readable else "yellow"
                ),
                scope.access_reason,
                _counts(scope.states),
                _counts(scope.kinds),
            )
        parts.append(scopes)
    for community in explored.communities:
        more = "…" if len(community.names) > _NAMES else ""
        names = Text(f"{'  ' * community.level}{', '.join(community.names[:_NAMES])}{more}")
        names.stylize("bold")
        count = "1 memory" if community.memory_count == 1 else f"{community.memory_count} memories"
        about = f"{community.summary} ({count}; {short(community.id)})"
        parts += [names, Text(f"{'  ' * community.level}  {about}")]
    if explored.memories:
        table = plain_table("id", "state", "kind", "says", "links")
        for memory in explored.memories:
            links = {
                LINKS.get((link.kind, link.direction), link.kind.lower()): link.count
                for link in memory.links
            }
            table.add_row(
                Text("  " * memory.distance + short(memory.id), style="cyan"),
                state_text(memory.state),
                memory.kind,
                Text(
                    one_line(memory.preview or "") or "(not shown)",
                    style="" if memory.preview else "dim",
                ),
                _counts(links),
            )
        parts.append(table)
    for link in explored.links:
        says = LINKS.get((link.kind, "to"), link.kind.lower())
        parts.append(Text(f"{short(link.from_id)} {says} {short(link.to_id)}", style="dim"))
    said = {memory.id: one_line(memory.preview or "") for memory in explored.memories}
    for relation in explored.relations:
        line = f"{said[relation.from_id]} {relation.relation} {said[relation.to_id]}"
        parts.append(Text(f"{line} ({len(relation.mentions)} say so)"))
    for circle in explored.cycles:
        parts.append(Text(f"in a circle: {', '.join(map(short, circle))}", style="yellow"))
    if explored.unfinished:
        unfinished = ", ".join(map(short, explored.unfinished))
        parts.append(Text(f"not finished: {unfinished}", style="yellow"))
    if explored.elsewhere:
        parts.append(Text(f"{explored.elsewhere} more stand where you may not look.", style="dim"))
    if explored.more:
        parts.append(
            Text("There is more: raise --limit, or give the last id as --before.", style="dim")
        )
    return Group(*parts)


def inspection_view(inspection: Inspection) -> RenderableType:
    """Return one memory with everything about it, and the newest recorded steps that used it."""
    facts = fact_table()
    is_source = isinstance(inspection, SourceInspection)
    facts.add_row("source" if is_source else "memory", Text(inspection.id, style="cyan"))
    facts.add_row(
        "state",
        Text.assemble(
            state_text(inspection.state), f"  version {inspection.version}, {inspection.kind}"
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
            f"{'yes' if inspection.shown else 'no'}: {inspection.access_reason}",
            style="green" if inspection.shown else "yellow",
        ),
    )
    facts.add_row("visible to", ", ".join(inspection.readers) or str(inspection.scope))
    facts.add_row("written", f"{local_time(inspection.created_at)} by {inspection.created_by}")
    if inspection.tags:
        facts.add_row("tags", ", ".join(inspection.tags))
    if inspection.locked_until:
        facts.add_row("locked until", local_time(inspection.locked_until))
    if isinstance(inspection, SourceInspection):
        facts.add_row("changed", local_time(inspection.updated_at))
        for derived in inspection.derived:
            facts.add_row(
                "drawn from it",
                Text.assemble(short(derived.id), "  ", state_text(derived.state)),
            )
    else:
        facts.add_row("holds", _validity(inspection))
        facts.add_row("sources", ", ".join(short(source) for source in inspection.sources))
    add_affected(facts, inspection.affected)
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
    """Return the history of a memory, oldest first."""
    table = plain_table("when", "what", "who", "why", "change")
    for entry in entries:
        what = f"{entry.event} {entry.correction}" if entry.correction else entry.event
        agent = entry.actor.get("agent")
        who = f"{entry.actor.get('user')}{f' ({agent})' if agent else ''} via {entry.surface}"
        table.add_row(
            local_time(entry.at),
            Text(what, style="bold"),
            who,
            entry.reason or "",
            _change_text(entry),
        )
    return table


_NAMES = 8
"""Names of a community that are shown."""


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())


def _change_text(entry: HistoryEntry) -> Text:
    text = Text()
    for name in dict.fromkeys((*entry.old, *entry.new)):
        if name == "corrected" or (entry.event == "ADD" and name != "content"):
            continue
        old, new = entry.old.get(name), entry.new.get(name)
        text.append(f"{name}: ", style="dim")
        if old not in (None, [], {}):
            text.append(one_line(old), style="red")
            text.append(" → ")
        shown = local_time(new) if isinstance(new, int) and name in _TIMES else one_line(new)
        text.append(shown + "\n", style="green")
    if entry.erased_at:
        text.append("erased", style="red")
    elif entry.withheld:
        text.append(f"not shown: {', '.join(entry.withheld)}", style="dim")
    text.rstrip()
    return text


def _validity(inspection: Inspection) -> Text:
    fresh = inspection.freshness
    if fresh.current:
        return Text(
            "now" + (f", known {local_time(fresh.known_at)}" if fresh.known_at else ""),
            style="green",
        )
    why = [f"replaced by {short(fresh.replaced_by)}"] if fresh.replaced_by else []
    why += [f"until {local_time(fresh.valid_until)}"] if fresh.valid_until else []
    why += [
        f"{short(memory_id)} changed, from which it was concluded"
        for memory_id in fresh.origins_changed
    ]
    return Text("no longer" + (f": {'; '.join(why)}" if why else ""), style="yellow")
