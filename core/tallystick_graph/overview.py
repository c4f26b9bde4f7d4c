"""Overview: the communities of a scope, each told by the memories that the actor may see.

What is shown of a community is drawn from its memories at each call. So what was forgotten, hidden
or erased since the scope was divided is neither named nor quoted, and no entity is shown for what
only such a memory says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tallystick.errors import InvalidInput, NotFound, require
from tallystick.memory import MemoryContext
from tallystick.memory.explore import memory_views, scope_around
from tallystick.ranking import analyze, from_float16_bytes, query_terms
from tallystick.records import Actor, Explored, ExploredCommunity, Scope
from tallystick.storage import Connection
from tallystick.storage.index import communities
from tallystick.storage.rows import memories, scopes
from tallystick_graph.about import Walk
from tallystick_graph.communities import MOST_TEXTS, members_of_texts
from tallystick_graph.concepts import Text, concepts_of
from tallystick_graph.name_forms import normal_name

_NEAR = 0.35
"""The cosine of a question and what a community is about, from which on it is about it."""
_SHARED = 0.5
"""The share of the words of a question that the memories of a community have which is about it."""
_NEAREST = 5
"""Communities that are given for words which name none."""


class Shown(NamedTuple):
    """A community as far as it may be seen, with the memories that tell of it, oldest first."""

    row: communities.Community
    names: Mapping[int, str]
    texts: tuple[Text, ...]


def communities_in(
    context: MemoryContext,
    actor: Actor,
    scope: Scope,
    around: str | Scope | None,
    depth: int,
    limit: int,
) -> Explored:
    """Return the communities of a scope, in as many levels as `depth`; or, where `around` is no
    scope, those of the entity that it names, of the community with this id, or those that are about
    these words, in every level.

    Raises Denied, InvalidInput, MissingExtra, and NotFound where nothing is about it.
    """
    require("graspologic_native", extra="graph")
    middle = scope_around(actor, around)
    scope = middle or scope
    context.gate.require(actor, "read", scope)
    words = None if middle is not None or around is None else str(around).strip()
    if words == "":
        raise InvalidInput(
            "The mode communities takes a scope, a name or words as `around`.", argument="around"
        )
    vector = None if words is None else context.vectors_for([normal_name(words)]).blobs[0]
    with context.store.database.read() as connection:
        if not context.gate.decide(connection, actor, "read", scope).allowed:
            raise NotFound(_nothing(scope, words))
        ids = [row.id for row in scopes.find(connection, [scope])]
        every = communities.of_scopes(connection, ids)
        if words is None:
            chosen = [each for each in every if each.level < depth]
        else:
            walk = Walk(connection, context, actor, ids, limit)
            chosen = _about(every, words, walk.find_entity(words, normal_name(words), vector))
        shown = shown_communities(connection, context, chosen)
        if words is not None and not shown:
            shown = _near(context, shown_communities(connection, context, every), words, vector)
            if not shown:
                raise NotFound(_nothing(scope, words))
        explored = _explored_communities(connection, context, actor, scope, shown[:limit])
    context.gate.log_read(actor, "explore", [scope], results=len(explored.communities))
    return explored.model_copy(
        update={"around": words or str(scope), "more": len(shown) > limit},
    )


def _nothing(scope: Scope, words: str | None) -> str:
    return (
        f"No community of {scope} is about {(words or '')[:80]!a}. They are made once the setting "
        "`graph` is on: `recall` finds memories without it."
    )


def _about(
    every: Sequence[communities.Community],
    words: str,
    entities: Sequence[int],
) -> list[communities.Community]:
    """Return the communities with this id, or with one of these entities."""
    entity_docs = set(entities)
    return [each for each in every if each.id == words or entity_docs.intersection(each.members)]


def _near(
    context: MemoryContext, every: Sequence[Shown], words: str, vector: bytes | None
) -> list[Shown]:
    """Return the communities that are about some words, the nearest first: those whose memories
    have half of the words at least, and those whose vector is near.
    """
    query_words = set(query_terms(words))
    fingerprint = context.embedder.fingerprint
    scored = []
    for each in every:
        terms = {term for text in each.texts for term in analyze(text.content)}
        share = len(query_words & terms) / len(query_words) if query_words else 0.0
        near = 0.0
        if vector and each.row.vector and each.row.fingerprint == fingerprint:
            blobs = [vector, each.row.vector[: len(vector)]]
            first, second = from_float16_bytes(blobs)
            near = float(first @ second)
        if share >= _SHARED or near >= _NEAR:
            scored.append((-(share + near), each.row.id, each))
    return [each for _, _, each in sorted(scored, key=lambda entry: entry[:2])[:_NEAREST]]


def shown_communities(
    connection: Connection, context: MemoryContext, chosen: Sequence[communities.Community]
) -> list[Shown]:
    """Return those of these communities of which active memories tell, in their order."""
    by_scope = {each.scope_id for each in chosen}
    together = [text for scope in sorted(by_scope) for text in members_of_texts(connection, scope)]
    plans = []
    for each in chosen:
        members = frozenset(each.members)
        shared = [
            text._replace(entities=tuple(members.intersection(text.entities)))
            for text in together
            if len(members.intersection(text.entities)) > 1
        ]
        plans.append((each, shared[-MOST_TEXTS:]))
    docs = {doc for each, texts in plans for doc in each.members}
    docs |= {text.doc for _, texts in plans for text in texts}
    stored = memories.get_docs(connection, docs)
    shown = []
    for each, texts in plans:
        names = {
            doc: stored[doc].memory.content
            for doc in each.members
            if doc in stored and stored[doc].memory.state == "active"
        }
        redacted_texts = tuple(
            Text(
                text.doc,
                context.redactor.redact_text(stored[text.doc].memory.content).text,
                frozenset(text.entities).intersection(names),
            )
            for text in texts
            if text.doc in stored
        )
        redacted_texts = tuple(text for text in redacted_texts if len(text.entities) > 1)
        if redacted_texts:
            shown.append(Shown(each, names, redacted_texts))
    return shown


def _explored_communities(
    connection: Connection,
    context: MemoryContext,
    actor: Actor,
    scope: Scope,
    shown: Sequence[Shown],
) -> Explored:
    summaries = _summaries(connection, shown)
    explored: list[ExploredCommunity] = []
    cited: dict[int, memories.Stored] = {}
    for each in shown:
        concepts = concepts_of(each.names, each.texts)
        summary = summaries.get(each.row.id)
        sources = concepts.sources if summary is None else summary.sources
        stored = memories.get_docs(connection, [*concepts.order, *sources])
        cited |= {doc: stored[doc] for doc in sources}
        explored.append(
            ExploredCommunity(
                id=each.row.id,
                parent=each.row.parent,
                level=each.row.level,
                scope=scope,
                entities=tuple(stored[doc].memory.id for doc in concepts.order),
                names=tuple(each.names[doc] for doc in concepts.order),
                key_concepts=concepts.key_concepts,
                summary=" ".join(concepts.summary) if summary is None else summary.text,
                summarized_by=None if summary is None else summary.model,
                sources=tuple(stored[doc].memory.id for doc in sources),
                memory_count=len(each.texts),
            )
        )
    views = memory_views(connection, context, actor, list(cited.values()), {})
    return Explored(communities=tuple(explored), memories=views)


class _Summary(NamedTuple):
    text: str
    model: str | None
    sources: tuple[int, ...]


def _summaries(connection: Connection, shown: Sequence[Shown]) -> dict[str, _Summary]:
    """Return the summaries that a model wrote of these communities, where all that they were made
    from is among what is shown.
    """
    made_from = communities.read_summaries(connection, {each.row.scope_id for each in shown})
    stored = memories.get_docs(connection, made_from)
    by_community = {stored[doc].memory.attributes.get("community"): doc for doc in sorted(stored)}
    summaries = {}
    for each in shown:
        doc = by_community.get(each.row.id)
        if doc is not None and made_from[doc] <= {text.doc for text in each.texts}:
            memory = stored[doc].memory
            sources = tuple(sorted(made_from[doc]))
            summaries[each.row.id] = _Summary(memory.content, memory.extraction_model, sources)
    return summaries
