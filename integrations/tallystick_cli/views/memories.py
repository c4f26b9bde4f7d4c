"""Views of memories: what was recalled, what there is, one in full, changes, and proposals."""

from __future__ import annotations

import json
from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tallystick import records
from tallystick.memory.held_changes import words_of_held
from tallystick_cli.views import common
from tallystick_cli.views.common import (
    facts,
    join_ids,
    local_time,
    report,
    rows,
    short,
    state_text,
    table,
)
from tallystick_html import words

_USES = 5
"""Number of steps that are listed as users of a memory."""
_NAMES = 8
"""Names of a community that are shown."""
_TIMES = ("valid_from", "valid_until", "expires_at", "freshness_ts")


def remembered_line(stored: records.Remembered, scope: records.Scope) -> Text:
    """Return what was remembered, in a line."""
    if stored.status == "skipped":
        return Text("– nothing to remember: all of it was recalled from here", style="yellow")
    if stored.status == "duplicate":
        return Text(f"– {short(stored.id)} in {scope} says this already")
    return report(f"{short(stored.id)} is remembered in {scope}")


def working_table(values: Iterable[records.WorkingValue]) -> Table:
    """Return what is kept in mind, one value in a row."""

    def value(each: records.WorkingValue) -> str:
        is_text = isinstance(each.value, str)
        return str(each.value) if is_text else json.dumps(each.value, ensure_ascii=False)

    return table(values, "name lifetime until=expires_at", value=value)


def hit_table(hits: Iterable[records.Hit], *, query: str) -> Table:
    """Return recalled memories with their scores, sources and reasons."""
    return table(
        hits,
        "id=memory.id",
        f"Recall: {query}",
        score=lambda hit: Text(f"{hit.score:.2f}", style="green"),
        memory=_hit_text,
    )


def _hit_text(hit: records.Hit) -> Text:
    memory = hit.memory
    signals = ", ".join(f"{name} {value:.2f}" for name, value in hit.signals.items() if value)
    sources = [each.uri or each.title or each.source_type for each in hit.sources]
    replaced = f", replaced by {short(hit.replaced_by)}" if hit.replaced_by else ""
    past = f"holds no longer{replaced}" if hit.history else ""
    origin = f"from {', '.join(dict.fromkeys(sources))}"
    rivals = f"contradicted by {join_ids(hit.contradicted_by)}" if hit.contradicted_by else ""
    waits = "; ".join(
        f"{words_of_held(each)}: {common.cut_text(each.text, 90)}" for each in hit.held
    )
    about = [
        past,
        rivals,
        waits,
        memory.kind,
        memory.speaker,
        origin,
        f"visible to {hit.visible_to}",
    ]
    line = " · ".join(filter(None, [*about, f"{signals} ({hit.path})"]))
    return Text.assemble(common.cut_text(memory.content, 300), "\n", (line, "dim"))


memory_table = rows("id state v=version kind says=content")


def explored_view(explored: records.Explored) -> RenderableType:
    """Return the result of exploring: scopes with counts, memories, and their links."""
    parts: list[RenderableType] = []
    if explored.scopes:
        parts.append(
            table(
                explored.scopes,
                "scope read why=access_reason memories=states kinds",
                scope=lambda each: f"{each.scope}{f' ({each.name})' if each.name else ''}",
                read=lambda each: state_text("yes" if each.readable else "no"),
            )
        )
    parts += [_community_text(community) for community in explored.communities]
    if explored.memories:
        parts.append(
            table(
                explored.memories,
                "id state kind says=preview",
                id=lambda each: Text("  " * each.distance) + common.id_text(each.id),
                links=lambda each: common.counts(
                    {words.link(link.kind, link.direction): link.count for link in each.links}
                ),
            )
        )
    parts += [
        Text(f"{short(each.from_id)} {words.link(each.kind, 'to')} {short(each.to_id)}", "dim")
        for each in explored.links
    ]
    texts = {memory.id: common.one_line(memory.preview or "") for memory in explored.memories}
    for relation in explored.relations:
        line = f"{texts[relation.from_id]} {relation.relation} {texts[relation.to_id]}"
        parts.append(Text(f"{line} ({len(relation.mentions)} say so)"))
    warnings = [f"in a circle: {join_ids(circle)}" for circle in explored.cycles]
    warnings += [f"not finished: {join_ids(explored.unfinished)}"] if explored.unfinished else []
    parts += [Text(warning, style="yellow") for warning in warnings]
    if explored.elsewhere:
        parts.append(Text(f"{explored.elsewhere} more stand where you may not look.", style="dim"))
    if explored.more:
        more = "There is more: raise --limit, or give the last id as --before."
        parts.append(Text(more, style="dim"))
    return Group(*parts)


def _community_text(community: records.ExploredCommunity) -> Text:
    indent = "  " * community.level
    more = "…" if len(community.names) > _NAMES else ""
    count = "1 memory" if community.memory_count == 1 else f"{community.memory_count} memories"
    names = f"{indent}{', '.join(community.names[:_NAMES])}{more}"
    about = f"{community.summary} ({count}; {short(community.id)})"
    return Text.assemble((names, "bold"), f"\n{indent}  {about}")


def inspection_view(inspection: records.Inspection) -> RenderableType:
    """Return one memory with everything about it, and the newest recorded steps that used it."""
    preview = inspection.preview
    version = f"  version {inspection.version}, {inspection.kind}"
    recalled = f"{'yes' if inspection.shown else 'no'}: {inspection.access_reason}"
    can = [
        f"{each.name}{'*' if each.previewed else ''}" for each in inspection.actions if each.allowed
    ]
    rows: dict[str, common.Cell] = {
        "state": lambda each: Text.assemble(state_text(each.state), version),
        "says": lambda _: Text(preview or "(not shown)", style="bold" if preview else "dim"),
        "recalled": lambda each: Text(recalled, style="green" if each.shown else "yellow"),
        "visible_to": lambda each: ", ".join(each.readers) or each.scope,
        "written": lambda each: f"{local_time(each.created_at)} by {each.created_by}",
        "tags": lambda each: ", ".join(each.tags),
        "locked_until": lambda each: each.locked_until and local_time(each.locked_until),
    }
    if isinstance(inspection, records.SourceInspection):
        rows["changed"] = lambda source: local_time(source.updated_at)
        rows["drawn_from_it"] = lambda source: [
            Text.assemble(short(each.id), "  ", state_text(each.state)) for each in source.derived
        ]
    else:
        rows |= {"holds": _validity, "sources": lambda each: join_ids(each.sources)}
        rows["attributes"] = lambda each: [
            f"{name}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
            for name, value in each.attributes.items()
        ]
    shown = facts(
        inspection,
        "",
        **{"source" if isinstance(inspection, records.SourceInspection) else "memory": _whole_id},
        **rows,
        links=lambda each: common.affected_links(each.affected),
        copies=lambda each: join_ids(each.promoted),
        contradicted_by=lambda each: join_ids(each.contradicted_by),
        used_by=lambda each: [
            f"step {short(use.step.id)}: {', '.join(use.how).replace('_', ' ')}"
            for use in each.uses[:_USES]
        ],
        you_may=lambda _: f"{', '.join(can) or 'nothing'} (* is previewed first)",
    )
    history = [history_table(inspection.history)] if inspection.history else []
    return Group(common.panel("Memory", shown), *history)


def _whole_id(record: records.Inspection | records.Correction | records.Crossing) -> Text:
    return Text(record.id, style="cyan")


def _validity(inspection: records.Inspection) -> Text:
    fresh = inspection.freshness
    if fresh.current:
        since = f", known {local_time(fresh.known_at)}" if fresh.known_at else ""
        return Text(f"now{since}", style="green")
    why = [f"replaced by {short(fresh.replaced_by)}"] if fresh.replaced_by else []
    why += [f"until {local_time(fresh.valid_until)}"] if fresh.valid_until else []
    why += [f"{short(id)} changed, from which it was concluded" for id in fresh.origins_changed]
    return Text("no longer" + (f": {'; '.join(why)}" if why else ""), style="yellow")


def _change_text(entry: records.HistoryEntry) -> Text:
    text = Text()
    for name in dict.fromkeys((*entry.old, *entry.new)):
        if name == "corrected" or (entry.event == "ADD" and name != "content"):
            continue
        old, new = entry.old.get(name), entry.new.get(name)
        text.append(f"{name}: ", style="dim")
        if old not in (None, [], {}):
            text.append(common.one_line(old), style="red").append(" → ")
        is_time = isinstance(new, int) and name in _TIMES
        shown = local_time(new) if is_time and isinstance(new, int) else common.one_line(new)
        text.append(shown + "\n", style="green")
    if entry.erased_at:
        text.append("erased", style="red")
    elif entry.withheld:
        text.append(f"not shown: {', '.join(entry.withheld)}", style="dim")
    text.rstrip()
    return text


history_table = rows(
    "when=at",
    what=lambda each: Text(f"{each.event} {each.correction or ''}".rstrip(), style="bold"),
    who=lambda each: f"{common.actor_text(each.actor)} via {each.surface}",
    why=lambda each: each.reason,
    change=_change_text,
)


def change_line(change: records.Change) -> Text:
    """Return the result of a change in one line."""
    text = f"{short(change.id)} is {change.state}, version {change.version}"
    if change.status == "unchanged":
        return Text(f"– nothing changed: {text}")
    until = getattr(change, "recoverable_until", None)
    text += f"; recoverable until {local_time(until)}" if until else ""
    derived = ", ".join(map(short, getattr(change, "derived", ())))
    return report(text + (f"; concluded from it: {derived}" if derived else ""))


def correction_view(correction: records.Correction) -> RenderableType:
    """Return the preview of a correction, or its result."""
    if correction.result is not None:
        return change_line(correction.result)
    until = correction.reversible_until
    reversible = "yes" + (f" until {local_time(until)}" if until is not None else "")
    shown = facts(
        correction,
        "",
        memory=_whole_id,
        correction=lambda each: Text(each.correction, style="bold"),
        state=lambda each: state_text(each.before) + Text(" → ") + state_text(each.after),
        recall=lambda each: words.IMPACTS[each.recall],
        other_memory=lambda each: each.other_id and Text(each.other_id, style="cyan"),
        links=lambda each: common.affected_links(each.affected),
        reversible=lambda each: reversible if each.reversible else "no",
    )
    return common.preview_panel(shown)


def crossing_view(crossing: records.Crossing) -> RenderableType:
    """Return the preview of promoting or sharing, or its result."""
    if crossing.copy_id is not None:
        copied = report(f"{short(crossing.copy_id)} stands in {crossing.into}")
        return common.with_warnings(copied, crossing.warnings)
    reach = crossing.reach
    seen = f"{reach.visible} visible, {reach.redacted} redacted, {reach.hidden} hidden"
    shown = facts(
        crossing,
        "into",
        memory=_whole_id,
        readers_there=lambda each: ", ".join(each.readers) or "nobody yet",
        what_they_see=lambda _: f"{seen}, {reach.denied} denied",
        allowed_by=lambda each: ", ".join(decision.reason for decision in each.decisions),
    )
    return common.with_warnings(common.preview_panel(shown), crossing.warnings)


def forgetting_view(forgetting: records.Forgetting) -> RenderableType:
    """Return the memories that a query forgets or would forget."""
    if forgetting.mode == "apply":
        return report(f"{len(forgetting.results)} memories forgotten")
    if not forgetting.matches:
        return Text("Nothing matches well enough.", style="dim")
    pinned = Text("keep: pinned", style="yellow")
    shown = table(
        forgetting.matches,
        "id",
        score=lambda match: "" if match.score is None else f"{match.score:.2f}",
        what=lambda match: "forget" if match.action == "forget" else pinned,
    )
    return common.preview_panel(shown)


def _describe_target(proposal: records.Proposal) -> str:
    was = "" if proposal.content is None else proposal.content.explanation
    return was or (short(proposal.target) if proposal.target else "")


def _describe_proposal(proposal: records.Proposal) -> Text:
    kind = Text(f"{proposal.kind}: ", style="dim")
    return kind + common.says(None if proposal.content is None else proposal.content.content)


proposal_table = rows(
    "id state why=reason what passes=passed",
    what=lambda each: each.action.lower(),
    says=_describe_proposal,
    in_place_of=_describe_target,
)


def proposal_view(proposal: records.Proposal) -> RenderableType:
    """Return everything that a person needs to decide."""
    return facts(
        proposal,
        "proposal=id why_it_waits=reason drawn_from=derived_from when=created_at "
        "suggested=suggested_scope",
        what=lambda each: f"{each.action.lower()} {each.kind} in {each.scope}",
        says=_describe_proposal,
        about=lambda each: each.target and short(each.target),
        confidence=lambda each: f"{each.confidence} of 100",
        by=lambda each: f"{each.provider} {each.prompt_version or ''}".strip(),
    )
