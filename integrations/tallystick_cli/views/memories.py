"""Views of memories: what was recalled, what there is, one in full, changes, and proposals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tallystick.records import (
    Change,
    Correction,
    Crossing,
    Explored,
    ExploredCommunity,
    ExploredMemory,
    Forgetting,
    HistoryEntry,
    Hit,
    Inspection,
    Memory,
    Proposal,
    Remembered,
    Scope,
    SourceInspection,
)
from tallystick_cli.views.common import (
    affected_facts,
    counts,
    cut_text,
    done,
    facts,
    id_text,
    link_name,
    local_time,
    one_line,
    panel,
    plain_table,
    preview_panel,
    says,
    short,
    short_list,
    state_text,
    titled_table,
)

_USES = 5
"""Number of steps that are listed as users of a memory."""
_NAMES = 8
"""Names of a community that are shown."""
_TIMES = ("valid_from", "valid_until", "expires_at", "freshness_ts")
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


def remembered_line(stored: Remembered, scope: Scope) -> Text:
    """Return what was remembered, in a line."""
    if stored.status == "skipped":
        return Text("– nothing to remember: all of it was recalled from here", style="yellow")
    if stored.status == "duplicate":
        return Text(f"– {short(stored.id)} in {scope} says this already")
    return done(f"{short(stored.id)} is remembered in {scope}")


def hit_table(hits: Sequence[Hit], *, query: str) -> Table:
    """Return recalled memories with their scores, sources and reasons."""
    rows = []
    for hit in hits:
        memory = hit.memory
        signals = ", ".join(f"{name} {value:.2f}" for name, value in hit.signals.items() if value)
        sources = [each.uri or each.title or each.source_type for each in hit.sources]
        replaced = f", replaced by {short(hit.replaced_by)}" if hit.replaced_by else ""
        about = [
            f"holds no longer{replaced}" if hit.history else "",
            memory.kind,
            memory.speaker,
            f"from {', '.join(dict.fromkeys(sources))}",
            f"visible to {hit.visible_to}",
            f"{signals} ({hit.path})",
        ]
        score = Text(f"{hit.score:.2f}", style="green")
        text = cut_text(memory.content, 300), "\n", (" · ".join(filter(None, about)), "dim")
        rows.append((id_text(memory.id), score, Text.assemble(*text)))
    return titled_table(f"Recall: {query}", ("id", "score", "memory"), rows)


def memory_table(memories: Iterable[Memory]) -> Table:
    """Return memories, newest first."""
    return plain_table(
        ("id", "state", "v", "kind", "says"),
        (
            (
                id_text(memory.id),
                state_text(memory.state),
                str(memory.version),
                memory.kind,
                says(memory.content),
            )
            for memory in memories
        ),
    )


def explored_view(explored: Explored) -> RenderableType:
    """Return the result of exploring: scopes with counts, memories, and their links."""
    parts: list[RenderableType] = []
    if explored.scopes:
        rows = [
            (
                f"{each.scope}{f' ({each.name})' if each.name else ''}",
                Text("yes", style="green") if each.readable else Text("no", style="yellow"),
                each.access_reason,
                counts(each.states),
                counts(each.kinds),
            )
            for each in explored.scopes
        ]
        parts.append(plain_table(("scope", "read", "why", "memories", "kinds"), rows))
    parts += [_community_text(community) for community in explored.communities]
    if explored.memories:
        columns = ("id", "state", "kind", "says", "links")
        parts.append(plain_table(columns, map(_explored_row, explored.memories)))
    parts += [
        Text(f"{short(link.from_id)} {link_name(link.kind)} {short(link.to_id)}", style="dim")
        for link in explored.links
    ]
    said = {memory.id: one_line(memory.preview or "") for memory in explored.memories}
    for relation in explored.relations:
        line = f"{said[relation.from_id]} {relation.relation} {said[relation.to_id]}"
        parts.append(Text(f"{line} ({len(relation.mentions)} say so)"))
    warnings = [f"in a circle: {short_list(circle)}" for circle in explored.cycles]
    if explored.unfinished:
        warnings.append(f"not finished: {short_list(explored.unfinished)}")
    parts += [Text(warning, style="yellow") for warning in warnings]
    if explored.elsewhere:
        parts.append(Text(f"{explored.elsewhere} more stand where you may not look.", style="dim"))
    if explored.more:
        more = "There is more: raise --limit, or give the last id as --before."
        parts.append(Text(more, style="dim"))
    return Group(*parts)


def _community_text(community: ExploredCommunity) -> Text:
    indent = "  " * community.level
    more = "…" if len(community.names) > _NAMES else ""
    count = "1 memory" if community.memory_count == 1 else f"{community.memory_count} memories"
    return Text.assemble(
        (f"{indent}{', '.join(community.names[:_NAMES])}{more}", "bold"),
        f"\n{indent}  {community.summary} ({count}; {short(community.id)})",
    )


def _explored_row(memory: ExploredMemory) -> tuple[RenderableType, ...]:
    links = {link_name(link.kind, link.direction): link.count for link in memory.links}
    return (
        Text("  " * memory.distance) + id_text(memory.id),
        state_text(memory.state),
        memory.kind,
        says(memory.preview),
        counts(links),
    )


def inspection_view(inspection: Inspection) -> RenderableType:
    """Return one memory with everything about it, and the newest recorded steps that used it."""
    is_source = isinstance(inspection, SourceInspection)
    version = f"  version {inspection.version}, {inspection.kind}"
    recalled = f"{'yes' if inspection.shown else 'no'}: {inspection.access_reason}"
    preview = inspection.preview
    rows = [
        ("source" if is_source else "memory", Text(inspection.id, style="cyan")),
        ("state", Text.assemble(state_text(inspection.state), version)),
        ("says", Text("(not shown)" if preview is None else preview, "bold" if preview else "dim")),
        ("recalled", Text(recalled, style="green" if inspection.shown else "yellow")),
        ("visible to", ", ".join(inspection.readers) or str(inspection.scope)),
        ("written", f"{local_time(inspection.created_at)} by {inspection.created_by}"),
        ("tags", ", ".join(inspection.tags)),
    ]
    if inspection.locked_until:
        rows.append(("locked until", local_time(inspection.locked_until)))
    if isinstance(inspection, SourceInspection):
        rows.append(("changed", local_time(inspection.updated_at)))
        for derived in inspection.derived:
            drawn = Text.assemble(short(derived.id), "  ", state_text(derived.state))
            rows.append(("drawn from it", drawn))
    else:
        rows += [("holds", _validity(inspection)), ("sources", short_list(inspection.sources))]
    rows += affected_facts(inspection.affected)
    rows.append(("copies", short_list(inspection.promoted)))
    for use in inspection.uses[:_USES]:
        how = ", ".join(use.how).replace("_", " ")
        rows.append(("used by", f"step {short(use.step.step_id)}: {how}"))
    can = [
        f"{each.name}{'*' if each.previewed else ''}" for each in inspection.actions if each.allowed
    ]
    rows.append(("you may", ", ".join(can) or "nothing"))
    rows.append((" ", Text("* is previewed first", style="dim")))
    parts: list[RenderableType] = [panel("Memory", facts(*rows))]
    return Group(*parts, *([history_table(inspection.history)] if inspection.history else []))


def _validity(inspection: Inspection) -> Text:
    fresh = inspection.freshness
    if fresh.current:
        known = f", known {local_time(fresh.known_at)}" if fresh.known_at else ""
        return Text(f"now{known}", style="green")
    why = [f"replaced by {short(fresh.replaced_by)}"] if fresh.replaced_by else []
    why += [f"until {local_time(fresh.valid_until)}"] if fresh.valid_until else []
    why += [f"{short(id)} changed, from which it was concluded" for id in fresh.origins_changed]
    return Text("no longer" + (f": {'; '.join(why)}" if why else ""), style="yellow")


def history_table(entries: Sequence[HistoryEntry]) -> Table:
    """Return the history of a memory, oldest first."""
    rows = []
    for entry in entries:
        agent = entry.actor.get("agent")
        who = f"{entry.actor.get('user')}{f' ({agent})' if agent else ''} via {entry.surface}"
        what = Text(f"{entry.event} {entry.correction or ''}".rstrip(), style="bold")
        rows.append((local_time(entry.at), what, who, entry.reason or "", _change_text(entry)))
    return plain_table(("when", "what", "who", "why", "change"), rows)


def _change_text(entry: HistoryEntry) -> Text:
    text = Text()
    for name in dict.fromkeys((*entry.old, *entry.new)):
        if name == "corrected" or (entry.event == "ADD" and name != "content"):
            continue
        old, new = entry.old.get(name), entry.new.get(name)
        text.append(f"{name}: ", style="dim")
        if old not in (None, [], {}):
            text.append(one_line(old), style="red").append(" → ")
        shown = local_time(new) if isinstance(new, int) and name in _TIMES else one_line(new)
        text.append(shown + "\n", style="green")
    if entry.erased_at:
        text.append("erased", style="red")
    elif entry.withheld:
        text.append(f"not shown: {', '.join(entry.withheld)}", style="dim")
    text.rstrip()
    return text


def change_line(change: Change) -> Text:
    """Return the result of a change in one line."""
    text = f"{short(change.id)} is {change.state}, version {change.version}"
    if change.status == "unchanged":
        return Text(f"– nothing changed: {text}")
    until = getattr(change, "recoverable_until", None)
    return done(text + (f"; recoverable until {local_time(until)}" if until else ""))


def correction_view(correction: Correction) -> RenderableType:
    """Return the preview of a correction, or its result."""
    if correction.result is not None:
        return change_line(correction.result)
    until = correction.reversible_until
    reversible = "yes" + (f" until {local_time(until)}" if until is not None else "")
    states = state_text(correction.before), " → ", state_text(correction.after)
    return preview_panel(
        facts(
            ("memory", Text(correction.id, style="cyan")),
            ("correction", Text(correction.correction, style="bold")),
            ("state", Text.assemble(*states)),
            ("recall", _IMPACT[correction.recall]),
            ("other memory", correction.other_id and Text(correction.other_id, style="cyan")),
            *affected_facts(correction.affected),
            ("reversible", reversible if correction.reversible else "no"),
        )
    )


def crossing_view(crossing: Crossing) -> RenderableType:
    """Return the preview of promoting or sharing, or its result."""
    if crossing.copy_id is not None:
        return done(f"{short(crossing.copy_id)} stands in {crossing.into}")
    reach = crossing.reach
    seen = f"{reach.visible} visible, {reach.redacted} redacted, {reach.hidden} hidden"
    return preview_panel(
        facts(
            ("memory", Text(crossing.id, style="cyan")),
            ("into", str(crossing.into)),
            ("readers there", ", ".join(crossing.readers) or "nobody yet"),
            ("what they see", f"{seen}, {reach.denied} denied"),
            ("allowed by", ", ".join(decision.reason for decision in crossing.decisions)),
        )
    )


def forgetting_view(forgetting: Forgetting) -> RenderableType:
    """Return the memories that a query forgets or would forget."""
    if forgetting.mode == "apply":
        return done(f"{len(forgetting.results)} memories forgotten")
    if not forgetting.matches:
        return Text("Nothing matches well enough.", style="dim")
    kept = Text("keep: pinned", style="yellow")
    rows = [
        (
            id_text(match.id),
            "" if match.score is None else f"{match.score:.2f}",
            Text("forget") if match.action == "forget" else kept,
        )
        for match in forgetting.matches
    ]
    return preview_panel(plain_table(("id", "score", "what"), rows))


def proposal_table(proposals: Iterable[Proposal]) -> Table:
    """Return proposals, one in a row."""
    rows = (
        (
            id_text(proposal.id),
            proposal.state,
            proposal.reason,
            proposal.action.lower(),
            proposal.kind,
            _proposed(proposal),
        )
        for proposal in proposals
    )
    return plain_table(("id", "state", "why", "what", "kind", "says"), rows)


def proposal_view(proposal: Proposal) -> RenderableType:
    """Return everything that a person needs to decide."""
    return facts(
        ("proposal", id_text(proposal.id)),
        ("what", f"{proposal.action.lower()} {proposal.kind} in {proposal.scope}"),
        ("says", _proposed(proposal)),
        ("about", proposal.target and short(proposal.target)),
        ("why it waits", proposal.reason),
        ("confidence", f"{proposal.confidence} of 100"),
        ("drawn from", short_list(proposal.derived_from)),
        ("by", f"{proposal.provider} {proposal.prompt_version or ''}".strip()),
        ("when", local_time(proposal.created_at)),
        ("suggested", proposal.suggested_scope),
    )


def _proposed(proposal: Proposal) -> Text:
    return says(None if proposal.content is None else proposal.content.content)
