"""Collecting: what each section may use, by the retrieval of packs.

Policy is asked before any text is read, and once more by the snapshot that the texts come from.
"""

from __future__ import annotations

from collections.abc import Sequence

from tallystick.access import require_no_widening
from tallystick.memory import MemoryContext, RecallRequest, newest, pack, recall
from tallystick.memory.correct import affected_by
from tallystick.memory.packs import hits_of
from tallystick.ranking import query_terms
from tallystick.recorder import Step
from tallystick.records import Actor, ContextPack, Hit, PackItem, Scope
from tallystick.records.synthesis import (
    CollectedSection,
    PlannedSection,
    SectionItem,
    SynthesisRequest,
    SynthesisRun,
)
from tallystick.storage import Connection
from tallystick.storage.rows import edges, memories, scopes
from tallystick_synthesis.desk import Desk, digest_of, digest_of_memory
from tallystick_synthesis.reading import NO_EVIDENCE, asked_docs, is_evidence, scopes_of

_ITEMS = {1: 6, 2: 12, 3: 24}
"""Items of a section at most, by the depth of the document."""
_LOOKED_AT, _HIDDEN = 60, 200
_LEAST_SCORE = 0.05
_OUT_OF_RECALL = ("hidden", "deleted")


def collect(desk: Desk, run_id: str) -> SynthesisRun:
    """Return a run with the sections that its plan names, stored. Raises NotFound, Denied,
    StateConflict.
    """
    run = desk.load(run_id, own=True)
    with desk.step("sections", run.id) as step:
        sections = collect_sections(desk, run.request, run.plan)
        require_home(desk, run.request, sections)
        note_read(step, sections)
        changed = run.replace(
            stage="collected",
            sections=sections,
            draft=(),
            draft_digest="",
            verification=None,
            recordings=(*run.recordings, step.run.id),
        )
        return desk.store(changed, known_at=run.updated_at, event="synthesis.sections")


def require_home(
    desk: Desk, request: SynthesisRequest, sections: Sequence[CollectedSection]
) -> None:
    """Raise Denied where text would be stored in a scope with more readers than its own."""
    origins = [item.scope for section in sections for item in section.items]
    gate = desk.context.gate
    with gate.journaling(desk.actor), desk.context.store.database.read() as connection:
        require_no_widening(
            connection,
            gate,
            desk.actor,
            origins,
            desk.scope,
            operation="write",
            remedy="Make the document in the scope with the fewest readers.",
        )


def note_read(step: Step, sections: Sequence[CollectedSection]) -> None:
    """Record which memories were read, without their text."""
    read = {item.memory_id: item.version for section in sections for item in section.items}
    summary = {
        "memories": [[memory_id, version] for memory_id, version in sorted(read.items())],
        "sections": [section.digest for section in sections],
    }
    step.record("memory_read", None, summary=summary)


def collect_sections(
    desk: Desk,
    request: SynthesisRequest,
    planned: Sequence[PlannedSection],
    others: Sequence[CollectedSection] = (),
) -> tuple[CollectedSection, ...]:
    """Return what some sections may use. A memory is quoted where it fits best, and not in one
    section after the other; what `others` quote stays theirs. Raises Denied.
    """
    readable, reader = scopes_of(desk, request), desk.reader(request)
    found = {each.number: _hits(desk, request, each, readable, reader) for each in planned}
    best: dict[str, tuple[float, int]] = {}
    for each in planned:
        for hit in found[each.number]:
            rank = (_affinity(each, hit), -each.number)
            best[hit.memory.id] = max(best.get(hit.memory.id, rank), rank)
    taken = {item.memory_id for section in others for item in section.items}
    sections = []
    for each in planned:
        hits = [
            hit
            for at, hit in enumerate(found[each.number])
            if (best[hit.memory.id][1] == -each.number and hit.memory.id not in taken)
            or (at == 0 and _affinity(each, hit) >= 1)
        ]
        chosen = _with_both_sides(desk.context, reader, hits[: _ITEMS[request.depth]])
        sections.append(_collect_section(desk, request, each, chosen))
    return tuple(sections)


def _affinity(planned: PlannedSection, hit: Hit) -> float:
    """Return how well a memory fits a section: the words that it shares with what the section
    itself asks, and how well it answers. One of a kind that the section names belongs there.
    """
    if planned.kinds:
        return 100.0 + hit.score
    own = set(query_terms(f"{planned.path[-1]} {planned.topic}"))
    return len(own.intersection(query_terms(hit.memory.content))) + hit.score


def _collect_section(
    desk: Desk, request: SynthesisRequest, planned: PlannedSection, hits: list[Hit]
) -> CollectedSection:
    context, reader = desk.context, desk.reader(request)
    readable = scopes_of(desk, request)
    packed = pack(
        context,
        reader,
        readable,
        planned.query,
        budget_tokens=request.section_tokens,
        counter=desk.outbound.counter(None),
        home=desk.scope,
        found=hits,
    )
    by_id = {hit.memory.id: hit for hit in hits}
    items, too_old = _items(desk, request, packed, by_id)
    allowed = desk.visible_ids([each.memory_id for each in items])
    items = [each for each in items if each.memory_id in allowed]
    items = [each.replace(handle=number) for number, each in enumerate(items, 1)]
    reasons = sorted({item.access_reason for item in packed.items})
    reasons += ["stale_left_out"] if too_old else []
    reasons += ["budget"] if packed.left_out else []
    section = CollectedSection(
        number=planned.number,
        path=planned.path,
        items=tuple(items),
        source_ids=tuple(dict.fromkeys(each for item in items for each in item.source_ids)),
        unresolved=tuple(each.memory_id for each in items if each.contradicted_by),
        redacted=sum(each.holds == "redacted" for each in items),
        redactions=packed.redactions,
        stale=tuple(each.memory_id for each in items if each.is_stale),
        gap=None if items or planned.gap is None else planned.gap,
        reasons=tuple(reasons),
    )
    if not items and planned.evidence:
        section = section.replace(gap="stale_sources" if too_old else NO_EVIDENCE)
    section = _with_counts(desk, reader, readable, planned, section)
    return section.replace(digest=digest_of(section.dump()))


def _hits(
    desk: Desk,
    request: SynthesisRequest,
    planned: PlannedSection,
    readable: Sequence[Scope],
    reader: Actor,
) -> list[Hit]:
    context, docs = desk.context, asked_docs(desk, request)
    asked = RecallRequest(limit=_LOOKED_AT, kinds=planned.kinds, docs=docs)
    found: Sequence[Hit] = ()
    if planned.query:
        found = [
            hit
            for hit in recall(context, reader, readable, planned.query, asked)
            if hit.score >= _LEAST_SCORE
        ]
    if not found and (planned.kinds or docs is not None or not planned.query):
        found = newest(context, reader, readable, asked)
    return [hit for hit in found if is_evidence(hit.memory)]


def _with_both_sides(context: MemoryContext, reader: Actor, chosen: list[Hit]) -> list[Hit]:
    """Return the hits, each followed by those that contradict it: both are named or neither."""
    against: dict[str, set[str]] = {}
    for hit in chosen:
        for rival in hit.contradicted_by:
            against.setdefault(hit.memory.id, set()).add(rival)
            against.setdefault(rival, set()).add(hit.memory.id)
    known = {hit.memory.id for hit in chosen}
    missing = sorted(set(against) - known)
    rivals = {hit.memory.id: hit for hit in hits_of(context, reader, missing)}
    placed: dict[str, Hit] = {}
    for hit in chosen:
        placed.setdefault(hit.memory.id, hit)
        for rival in hit.contradicted_by:
            if rival in rivals:
                others = tuple(sorted(against[rival]))
                joined = rivals[rival].model_copy(update={"contradicted_by": others})
                placed.setdefault(rival, joined)
    return list(placed.values())


def _items(
    desk: Desk, request: SynthesisRequest, packed: ContextPack, by_id: dict[str, Hit]
) -> tuple[list[SectionItem], int]:
    """Return the items of a section, and the number of those that were too old for it."""
    now, rules = desk.context.store.clock.now(), request.freshness
    ids = {item.id for item in packed.items}
    items: list[SectionItem] = []
    too_old = 0
    for item in packed.items:
        hit = by_id[item.id]
        since = item.known_at or hit.memory.updated_at
        is_aged = rules.max_age is not None and now - since > rules.max_age * 1_000_000
        is_over = item.fresh in ("history", "origin_gone", "stale") and hit.replaced_by is None
        if hit.memory.state == "superseded" and hit.replaced_by is None:
            continue
        if (is_aged or is_over) and rules.stale == "gap":
            too_old += 1
            continue
        items.append(_item(item, hit, ids, is_stale=is_aged or is_over))
    return items, too_old


def _item(item: PackItem, hit: Hit, ids: set[str], *, is_stale: bool) -> SectionItem:
    memory = hit.memory
    text = item.text
    if memory.speaker and text.startswith(f"{memory.speaker}: "):
        text = text[len(memory.speaker) + 2 :]
    is_redacted = item.fresh == "redacted"
    return SectionItem(
        handle=1,
        memory_id=memory.id,
        version=memory.version,
        source_ids=item.source_ids,
        scope=memory.scope,
        kind=memory.kind,
        state=memory.state,
        text="" if is_redacted else text.removesuffix("…") if item.cut else text,
        attributes={} if is_redacted else item.attributes,
        holds=item.fresh,
        known_at=item.known_at,
        replaced_by=hit.replaced_by,
        duplicates=tuple(dict.fromkeys((*hit.duplicates, *item.folded))),
        contradicted_by=tuple(each for each in item.contradicted_by if each in ids),
        is_stale=is_stale,
        digest=digest_of_memory(memory),
    )


def _with_counts(
    desk: Desk,
    reader: Actor,
    readable: Sequence[Scope],
    planned: PlannedSection,
    section: CollectedSection,
) -> CollectedSection:
    """Return a section with what was concluded among its items; for who may inspect every scope
    also how many relevant memories are hidden, and how many linked ones are denied.
    """
    context, ids = desk.context, [item.memory_id for item in section.items]
    with context.store.database.read() as connection:
        stored = memories.get_many(connection, ids) if ids else []
        derived = [
            each.memory.id
            for each in stored
            if each.memory.kind not in ("turn", "note") and _is_derived(connection, each.doc)
        ]
        section = section.replace(derived_ids=tuple(sorted(derived)))
        may_inspect = all(
            context.gate.decide(connection, actor, "inspect", scope).allowed
            for scope in readable
            for actor in (desk.actor, reader)
        )
        if not may_inspect:
            return section
        rows = scopes.find(connection, readable)
        hidden = memories.latest(
            connection,
            [row.id for row in rows],
            kinds=planned.kinds,
            states=_OUT_OF_RECALL,
            limit=_HIDDEN,
        )
        words = set(query_terms(planned.query))
        count = sum(
            not words or not words.isdisjoint(query_terms(each.memory.content)) for each in hidden
        )
        denied = sum(affected_by(connection, context, reader, each).elsewhere for each in stored)
    return section.replace(hidden=count, denied=denied)


def _is_derived(connection: Connection, doc: int) -> bool:
    return any(
        edge.kind == "DERIVED_FROM" and edge.from_doc == doc for edge in edges.of(connection, doc)
    )
