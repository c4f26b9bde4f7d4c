"""Collecting: what each section may use, by the retrieval of packs.

Policy is asked before any text is read, and once more by the snapshot that the texts come from.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tallystick.access import require_no_widening
from tallystick.memory import MemoryContext, RecallRequest, newest, pack, recall_each
from tallystick.memory.packs import hits_of
from tallystick.memory.passages import document_place
from tallystick.ranking import analyze, query_terms
from tallystick.recorder import Step
from tallystick.records import Actor, ContextPack, Hit, PackItem, Scope
from tallystick.records.synthesis import (
    CollectedSection,
    PlannedSection,
    SectionItem,
    SynthesisRequest,
    SynthesisRun,
)
from tallystick.storage.rows import edges, memories, scopes
from tallystick_synthesis.desk import Desk, digest_of, digest_of_memory, read_many
from tallystick_synthesis.reading import (
    NO_EVIDENCE,
    asked_docs,
    is_aged,
    is_evidence,
    scopes_of,
    told_by_communities,
)

_ITEMS = {1: 3, 2: 5, 3: 10}
"""Items of a section at most, by the depth of the document."""
_HIDDEN, _LINKS = 100, 1_000
_LEAST_SCORE = 0.05
_SPARE = 3
"""Memories that are found beyond those that fit: some are quoted elsewhere."""
_OF_KIND = 100
"""How much better a memory fits a section that names its kind than one that shares its words."""
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
    docs = asked_docs(desk, request)
    most = _ITEMS[request.depth] + _SPARE
    found = _hits(desk, planned, docs, readable, reader, most)
    told_ids = told_by_communities(desk, request, planned, most // 2)
    of_communities = hits_of(desk.context, reader, told_ids) if told_ids else []
    for each in (each for each in planned if each.communities):
        merged = {hit.memory.id: hit for hit in (*of_communities, *found[each.number])}
        found[each.number] = [hit for hit in merged.values() if is_evidence(hit.memory)]
    affinities = _affinities(planned, found, frozenset(told_ids))
    best: dict[str, tuple[float, int]] = {}
    for (number, memory_id), affinity in affinities.items():
        rank = (affinity, -number)
        best[memory_id] = max(best.get(memory_id, rank), rank)
    used = {item.memory_id for section in others for item in section.items}
    sections = []
    for each in planned:
        hits = [
            hit
            for at, hit in enumerate(found[each.number])
            if (best[hit.memory.id][1] == -each.number and hit.memory.id not in used)
            or (at == 0 and affinities[each.number, hit.memory.id] >= 1)
        ]
        chosen = _with_both_sides(desk.context, reader, hits[: _ITEMS[request.depth]])
        sections.append(_collect_section(desk, request, each, chosen, readable, reader))
    return _counted(desk, reader, readable, planned, sections)


def _affinities(
    planned: Sequence[PlannedSection], found: Mapping[int, Sequence[Hit]], told_ids: Collection[str]
) -> dict[tuple[int, str], float]:
    """Return how well each memory fits each section that found it: the words that it shares with
    what the section itself asks, and how well it answers. One of a kind that the section names
    belongs there, and so does what was `told` by communities where these have a place.
    """
    terms: dict[str, set[str]] = {}
    affinities: dict[tuple[int, str], float] = {}
    for each in planned:
        own = set(query_terms(f"{each.path[-1]} {each.topic}"))
        for hit in found[each.number]:
            memory = hit.memory
            if memory.id not in terms:
                terms[memory.id] = set(analyze(memory.content))
            belongs = each.kinds or (each.communities and memory.id in told_ids)
            shared = len(own & terms[memory.id])
            affinities[each.number, memory.id] = shared + hit.score + (_OF_KIND if belongs else 0)
    return affinities


def _collect_section(
    desk: Desk,
    request: SynthesisRequest,
    planned: PlannedSection,
    hits: list[Hit],
    readable: Sequence[Scope],
    reader: Actor,
) -> CollectedSection:
    packed = pack(
        desk.context,
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
    reasons = sorted({item.access_reason for item in packed.items})
    reasons += ["stale_left_out"] if too_old else []
    reasons += ["budget"] if packed.left_out else []
    section = CollectedSection(
        number=planned.number,
        path=planned.path,
        topic=planned.topic,
        items=tuple(items),
        redactions=packed.redactions,
        gap=None if items or planned.gap is None else planned.gap,
        reasons=tuple(reasons),
    )
    if not items and planned.evidence:
        section = section.replace(gap="stale_sources" if too_old else NO_EVIDENCE)
    return section


def _closed(section: CollectedSection, shown: set[str]) -> CollectedSection:
    """Return a section as it is drafted from: with the items that may be seen, numbered, and its
    digest.
    """
    items = [each for each in section.items if each.memory_id in shown]
    items = [each.replace(handle=number) for number, each in enumerate(items, 1)]
    section = section.replace(
        items=tuple(items),
        source_ids=tuple(dict.fromkeys(each for item in items for each in item.source_ids)),
        unresolved=tuple(each.memory_id for each in items if each.contradicted_by),
        redacted=sum(each.holds == "redacted" for each in items),
        stale=tuple(each.memory_id for each in items if each.is_stale),
    )
    return section.replace(digest=digest_of(section.dump()))


def _hits(
    desk: Desk,
    planned: Sequence[PlannedSection],
    docs: frozenset[int] | None,
    readable: Sequence[Scope],
    reader: Actor,
    most: int,
) -> dict[int, list[Hit]]:
    """Return by section the memories that answer it; the newest of its kinds where none does."""
    requests = {
        each.number: RecallRequest(limit=most, kinds=each.kinds, docs=docs) for each in planned
    }
    questions = [(each.number, each.query) for each in planned if each.query]
    recalled = recall_each(
        desk.context, reader, readable, [(query, requests[number]) for number, query in questions]
    )
    hits = {
        number: [hit for hit in hits if hit.score >= _LEAST_SCORE]
        for (number, _), hits in zip(questions, recalled, strict=True)
    }
    for each in planned:
        if not hits.get(each.number) and (each.kinds or docs is not None or not each.query):
            found = newest(desk.context, reader, readable, requests[each.number])
            hits[each.number] = list(found)
    return {
        each.number: [
            _without_headings(hit) for hit in hits[each.number] if is_evidence(hit.memory)
        ]
        for each in planned
    }


def _without_headings(hit: Hit) -> Hit:
    """Return a hit as it is; a passage without what stands under the same heading: it says more of
    one subject, and nothing against it.
    """
    is_passage = hit.memory.kind == "document" and "document_id" in hit.memory.attributes
    return hit.model_copy(update={"contradicted_by": ()}) if is_passage else hit


def _with_both_sides(context: MemoryContext, reader: Actor, chosen: list[Hit]) -> list[Hit]:
    """Return the hits, each followed by those that contradict it: both are named or neither."""
    against: dict[str, set[str]] = {}
    for hit in chosen:
        for rival in hit.contradicted_by:
            against.setdefault(hit.memory.id, set()).add(rival)
            against.setdefault(rival, set()).add(hit.memory.id)
    chosen_ids = {hit.memory.id for hit in chosen}
    missing = sorted(set(against) - chosen_ids)
    if not against:
        return chosen
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
        is_old = is_aged(rules, item.known_at or hit.memory.updated_at, now)
        is_over = item.fresh in ("history", "origin_gone", "stale") and hit.replaced_by is None
        if hit.memory.state == "superseded" and hit.replaced_by is None:
            continue
        if (is_old or is_over) and rules.stale == "gap":
            too_old += 1
            continue
        items.append(_item(desk, item, hit, ids, is_stale=is_old or is_over))
    return items, too_old


def _item(desk: Desk, item: PackItem, hit: Hit, ids: set[str], *, is_stale: bool) -> SectionItem:
    memory = hit.memory
    text = item.text
    if memory.speaker and text.startswith(f"{memory.speaker}: "):
        text = text[len(memory.speaker) + 2 :]
    is_redacted = item.fresh == "redacted"
    place = document_place(memory)
    if place is not None:
        place = desk.context.redactor.redact_text(place).text
    return SectionItem(
        handle=1,
        memory_id=memory.id,
        version=memory.version,
        source_ids=item.source_ids,
        scope=memory.scope,
        kind=memory.kind,
        state=memory.state,
        text="" if is_redacted else text.removesuffix("…") if item.cut else text,
        place=None if is_redacted else place,
        attributes={} if is_redacted else item.attributes,
        holds=item.fresh,
        known_at=item.known_at,
        replaced_by=hit.replaced_by,
        duplicates=tuple(dict.fromkeys((*hit.duplicates, *item.folded))),
        contradicted_by=tuple(each for each in item.contradicted_by if each in ids),
        is_stale=is_stale,
        digest=digest_of_memory(memory),
    )


def _counted(
    desk: Desk,
    reader: Actor,
    readable: Sequence[Scope],
    planned: Sequence[PlannedSection],
    sections: Sequence[CollectedSection],
) -> tuple[CollectedSection, ...]:
    """Return the sections with what may be seen now: policy is asked once more, by one snapshot for
    all that was read. Each says what was concluded among their items; for who may inspect every
    scope also how many relevant memories are hidden, and how many linked ones are denied.
    """
    decide, ids = desk.context.gate.decide, {i.memory_id for s in sections for i in s.items}
    counted = []
    with desk.context.store.database.read() as connection:
        stored = read_many(connection, sorted(ids))
        docs = {each.memory.id: each.doc for each in stored}
        shown = desk.shown(connection, stored)
        links = edges.touching(connection, list(docs.values()), most=_LINKS)
        ends = {doc for link in links for doc in (link.from_doc, link.to_doc)}
        linked = memories.get_docs(connection, ends - set(docs.values()))
        is_open = {
            scope: decide(connection, reader, "read", scope).allowed
            for scope in {each.memory.scope for each in linked.values()}
        }
        closed = {doc for doc, each in linked.items() if not is_open[each.memory.scope]}
        may_inspect = all(
            decide(connection, actor, "inspect", scope).allowed
            for scope in readable
            for actor in (desk.actor, reader)
        )
        scope_ids = [row.id for row in scopes.find(connection, readable)] if may_inspect else []
        out = memories.latest(connection, scope_ids, states=_OUT_OF_RECALL, limit=_HIDDEN)
    words = [(each.memory.kind, set(analyze(each.memory.content))) for each in out]
    derived = {link.from_doc for link in links if link.kind == "DERIVED_FROM"}
    for each, section in zip(planned, sections, strict=True):
        own = {docs[item.memory_id] for item in section.items if item.memory_id in docs}
        concluded = sorted(i.memory_id for i in section.items if docs.get(i.memory_id) in derived)
        section = section.replace(derived_ids=tuple(concluded))
        if may_inspect:
            terms = set(query_terms(each.query))
            hidden = sum(
                (not each.kinds or kind in each.kinds) and (not terms or bool(terms & said))
                for kind, said in words
            )
            near = {
                doc
                for link in links
                if own & {link.from_doc, link.to_doc}
                for doc in (link.from_doc, link.to_doc)
            }
            section = section.replace(hidden=hidden, denied=len(near & closed))
        counted.append(_closed(section, shown))
    return tuple(counted)
