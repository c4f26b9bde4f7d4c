"""Planning: the sections of a document, from its outline or the template of its type, each with
the evidence that it needs and the gap where none is there.

One recall serves the whole plan; whether a section is really supported, its own recall says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

from tallystick.errors import InvalidInput
from tallystick.memory import RecallRequest, newest
from tallystick.memory.recall import recall
from tallystick.ranking import analyze, query_terms
from tallystick.records import Hit, is_storable
from tallystick.records.kinds import KINDS
from tallystick.records.synthesis import (
    OutlineSection,
    PlannedSection,
    SynthesisRequest,
    SynthesisRun,
)
from tallystick_synthesis.desk import Desk, digest_of
from tallystick_synthesis.reading import (
    NO_EVIDENCE,
    asked_docs,
    is_evidence,
    scopes_of,
    told_by_communities,
)
from tallystick_synthesis.templates import output_types, template_of

MOST_SECTIONS, MOST_LEVELS = 24, 4
_LOOKED_AT = 60
_LATEST = 40
"""Memories that a plan looks at: answers, and the newest of each kind."""


class _Flat(NamedTuple):
    path: tuple[str, ...]
    section: OutlineSection


def require_request(request: SynthesisRequest) -> None:
    """Raise InvalidInput for a request that nothing could answer."""
    types = output_types()
    if request.output_type not in types:
        raise InvalidInput(
            f"`output_type` {request.output_type!a} is none. Use one of {', '.join(types)}.",
            argument="output_type",
        )
    if request.output_type == "custom" and not request.outline:
        raise InvalidInput("A custom document needs an `outline`.", argument="outline")
    if not (request.query.strip() or request.source_ids or request.entity_ids or request.outline):
        raise InvalidInput(
            "There is nothing to go on: give a `query`, `source_ids`, `entity_ids` or an "
            "`outline`.",
            argument="query",
        )
    flat = list(_flatten(request.outline, ()))
    if len(flat) > MOST_SECTIONS or any(len(each.path) > MOST_LEVELS for each in flat):
        raise InvalidInput(
            f"`outline` has at most {MOST_SECTIONS} sections in {MOST_LEVELS} levels.",
            argument="outline",
        )
    if not all(each.section.title.strip() and is_storable(each.section.title) for each in flat):
        raise InvalidInput(
            "`outline` has a title that is blank, or holds a NUL.", argument="outline"
        )
    unknown = sorted({kind for each in flat for kind in each.section.kinds}.difference(KINDS))
    if unknown:
        raise InvalidInput(
            f"`outline` names no kind {unknown[0]!a}. There are {', '.join(sorted(KINDS))}.",
            argument="outline",
        )


def plan(desk: Desk, request: SynthesisRequest) -> SynthesisRun:
    """Return a new run with its plan, stored. Raises Denied, InvalidInput."""
    require_request(request)
    sections = plan_sections(desk, request)
    run = SynthesisRun(
        id=desk.context.store.ids.new(),
        scope=desk.scope,
        stage="planned",
        request=request,
        plan=sections,
        plan_digest=digest_of([request.dump(), [each.dump() for each in sections]]),
        created_by=desk.actor.user,
        created_at=0,
        updated_at=0,
    )
    with desk.step("plan", run.id) as step:
        summary = {"digest": run.plan_digest, "sections": len(sections)}
        step.record("memory_read", None, summary=summary)
        recorded = run.replace(recordings=(step.run.id,))
        return desk.store(recorded, known_at=None, event="synthesis.plan")


def plan_sections(desk: Desk, request: SynthesisRequest) -> tuple[PlannedSection, ...]:
    """Return the sections of a document, each with the evidence that the tally has for it."""
    outline = request.outline or template_of(request.output_type).outline
    flat = list(_flatten(outline, ()))
    found = _evidence(desk, request, flat)
    told_ids = told_by_communities(desk, request, [each.section for each in flat], _LATEST)
    every = (request.query, *(each.section.query for each in flat))
    planned = []
    for number, (path, section) in enumerate(flat, 1):
        query = section_query(request, section)
        hits = _fitting(section, found, is_only=not any(every))
        support = {each.memory.id for each in hits}.union(told_ids if section.communities else ())
        gap = None if support or section.sections else NO_EVIDENCE
        planned.append(
            PlannedSection(
                number=number,
                path=path,
                query=query,
                topic=section.query,
                kinds=section.kinds,
                communities=section.communities,
                evidence=len(support),
                gap=gap,
            )
        )
    return tuple(planned)


def section_query(request: SynthesisRequest, section: OutlineSection) -> str:
    """Return what a section answers: its own question, else its title, with that of the request.
    A section of some kinds of memories that asks nothing lists the newest of them.
    """
    own = section.query or ("" if section.kinds else section.title)
    return " ".join(each for each in (own.strip(), request.query.strip()) if each)


def _evidence(desk: Desk, request: SynthesisRequest, flat: Sequence[_Flat]) -> list[Hit]:
    readable, reader = scopes_of(desk, request), desk.reader(request)
    docs = asked_docs(desk, request)
    texts = [request.query, *(section_query(request, each.section) for each in flat)]
    query = " ".join(dict.fromkeys(each for each in texts if each.strip()))
    hits: dict[str, Hit] = {}
    if query:
        looked = RecallRequest(limit=_LOOKED_AT, docs=docs)
        hits = {
            each.memory.id: each for each in recall(desk.context, reader, readable, query, looked)
        }
    kinds = sorted({kind for each in flat for kind in each.section.kinds})
    for kind in kinds:
        latest = RecallRequest(limit=_LATEST, docs=docs, kinds=(kind,))
        for hit in newest(desk.context, reader, readable, latest, logged=False):
            hits.setdefault(hit.memory.id, hit)
    return [each for each in hits.values() if is_evidence(each.memory)]


def _fitting(section: OutlineSection, hits: Sequence[Hit], *, is_only: bool) -> list[Hit]:
    """Return the memories that may support a section: of its kinds, or with a word of its own."""
    hits = [each for each in hits if not section.kinds or each.memory.kind in section.kinds]
    if section.kinds or is_only:
        return hits
    words = set(query_terms(f"{section.title} {section.query}"))
    return [each for each in hits if not words.isdisjoint(_terms(each.memory.content))]


@cache
def _terms(text: str) -> frozenset[str]:
    return frozenset(analyze(text))


def _flatten(sections: Sequence[OutlineSection], above: tuple[str, ...]) -> Iterator[_Flat]:
    for section in sections:
        path = (*above, section.title)
        yield _Flat(path, section)
        yield from _flatten(section.sections, path)
