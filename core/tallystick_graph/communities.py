"""Communities: entities that texts mention together, grouped in levels by the Leiden algorithm.

Two entities are linked by each text that mentions both, with the weight 1 / (entities of the text -
1), so that a list of names weighs no more than a sentence about two. The algorithm is that of
Traag, Waltman and van Eck, "From Louvain to Leiden" (2019), by `graspologic-native`; it starts from
the communities that a scope had, so that a few new texts change a few of them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from tallystick.errors import require
from tallystick.memory import MemoryContext
from tallystick.storage import Connection
from tallystick.storage.index import communities, graph
from tallystick.storage.rows import edges, memories
from tallystick_graph.concepts import Text, concepts_of

_LEAST = 3
"""Entities of a community at least."""
_LARGEST = 30
"""Entities of a community at most that is not divided further, where it can be divided."""
_MOST_OF_A_TEXT = 20
"""Entities of one text that are linked, the first ones."""
_ANEW = 50
"""A scope is divided anew when more than one in so many of its texts are new."""
_SAME = 0.5
"""The share of members from which on a community is taken for an earlier one."""
MOST_TEXTS = 200
"""Texts of a community, the newest, that say what it is about."""
LEAST_TO_SUMMARIZE = 4
"""Texts of a community at least that a model summarizes: fewer are read as they are."""
_SEED = 1


class Group(NamedTuple):
    """Entities that belong together, at one level."""

    level: int
    parent: int | None
    """The place of the broader group in the list."""
    members: frozenset[int]


class Division(NamedTuple):
    """The communities of a scope, made before the transaction that stores them."""

    scope_id: int
    texts: int
    communities: tuple[communities.Community, ...]


def read_division(context: MemoryContext, scope_id: int) -> Division | None:
    """Return how a scope divides into communities now; None where little is new since it was
    divided last.

    Raises MissingExtra without `graspologic-native`.
    """
    with context.store.database.read() as connection:
        texts = graph.count_texts(connection, scope_id)
        before = communities.divided_texts(connection, scope_id)
        if before is not None and abs(texts - before) * _ANEW < max(before, _ANEW):
            return None
        together = members_of_texts(connection, scope_id)
        earlier = communities.of_scopes(connection, [scope_id])
        groups = group_entities(together, [each.members for each in earlier if each.level == 0])
        named = _name_groups(groups, earlier, context.store.ids.new)
        about = [_about(connection, each.members, together) for each in groups]
    blobs = context.vectors_for(about).blobs
    fingerprint = context.embedder.fingerprint
    return Division(
        scope_id,
        texts,
        tuple(
            communities.Community(
                name,
                scope_id,
                group.level,
                None if group.parent is None else named[group.parent],
                tuple(sorted(group.members)),
                None if blob is None else fingerprint,
                blob,
            )
            for name, group, blob in zip(named, groups, blobs, strict=True)
        ),
    )


def divide(tx: Connection, division: Division, *, at: int) -> int:
    """Store how a scope divides, without entities that are gone since; return the number of
    communities.
    """
    every = {doc for each in division.communities for doc in each.members}
    there = memories.get_docs(tx, every)
    living = [
        each._replace(members=tuple(doc for doc in each.members if doc in there))
        for each in division.communities
    ]
    large = [each for each in living if len(each.members) >= _LEAST]
    ids = {each.id for each in large}
    large = [each._replace(parent=each.parent if each.parent in ids else None) for each in large]
    communities.replace(tx, division.scope_id, large, texts=division.texts, at=at)
    return len(large)


def wants_summary(made_from: frozenset[int] | None, texts: Sequence[int]) -> bool:
    """Return True if a community of these texts has no summary, or one that was made from others
    for the most part.
    """
    if len(texts) < LEAST_TO_SUMMARIZE:
        return False
    every = frozenset(texts)
    return made_from is None or 2 * len(made_from & every) < len(made_from | every)


def members_of_texts(connection: Connection, scope_id: int) -> list[communities.Togetherness]:
    """Return the texts of a scope with the entities that they mention, forms of one name as one."""
    together = communities.together_in(connection, scope_id)
    every = {entity for text in together for entity in text.entities}
    main = edges.follow_to_end(connection, "DUPLICATE_OF", every, forward=True)
    return [
        text._replace(entities=tuple(dict.fromkeys(main.get(each, each) for each in text.entities)))
        for text in together
    ]


def group_entities(
    together: Iterable[communities.Togetherness], before: Sequence[Iterable[int]] = ()
) -> list[Group]:
    """Return the groups of entities that texts mention together: broad ones first, each before
    those within it. `before` are the groups to start from. The same texts give the same groups.
    """
    weights: dict[tuple[int, int], float] = defaultdict(float)
    for text in together:
        entities = sorted(text.entities[:_MOST_OF_A_TEXT])
        for doc, other in combinations(entities, 2):
            weights[doc, other] += 1 / (len(entities) - 1)
    if not weights:
        return []
    require("graspologic_native", extra="graph")
    from graspologic_native import hierarchical_leiden  # type: ignore[import-untyped]

    clusters = hierarchical_leiden(
        edges=[(str(doc), str(other), weight) for (doc, other), weight in sorted(weights.items())],
        starting_communities=_start(weights, before) if before else None,
        iterations=2,
        max_cluster_size=_LARGEST,
        seed=_SEED,
    )
    members: dict[tuple[int, int], set[int]] = defaultdict(set)
    parents: dict[tuple[int, int], int | None] = {}
    for each in clusters:
        members[each.level, each.cluster].add(int(each.node))
        parents[each.level, each.cluster] = each.parent_cluster
    order = sorted(
        (key for key in members if len(members[key]) >= _LEAST),
        key=lambda key: (key[0], -len(members[key]), min(members[key])),
    )
    place = {key: number for number, key in enumerate(order)}
    return [
        Group(
            level,
            None if (parent := parents[level, cluster]) is None else place.get((level - 1, parent)),
            frozenset(members[level, cluster]),
        )
        for level, cluster in order
    ]


def _start(
    weights: Mapping[tuple[int, int], float], before: Sequence[Iterable[int]]
) -> dict[str, int]:
    """Return for each entity the community to start in: the one that it had, else that of the
    entity with which it is mentioned most, else one of its own.
    """
    nodes = {node for pair in weights for node in pair}
    start = {node: number for number, group in enumerate(before) for node in group if node in nodes}
    heaviest: dict[int, tuple[float, int]] = {}
    for (doc, other), weight in sorted(weights.items()):
        for node, neighbour in ((doc, other), (other, doc)):
            if node not in start and neighbour in start:
                heaviest[node] = max(heaviest.get(node, (0.0, 0)), (weight, start[neighbour]))
    number = len(before)
    for node in sorted(nodes - set(start)):
        if node in heaviest:
            start[node] = heaviest[node][1]
        else:
            start[node], number = number, number + 1
    return {str(node): group for node, group in start.items()}


def _name_groups(
    groups: Sequence[Group], earlier: Sequence[communities.Community], new_id: Callable[[], str]
) -> list[str]:
    """Return the id of each group: that of the earlier community that it continues, or a new
    one.
    """
    ids: dict[int, list[communities.Community]] = defaultdict(list)
    for each in earlier:
        for doc in each.members:
            ids[doc].append(each)
    pairs = []
    for place, group in enumerate(groups):
        shared = Counter(each.id for doc in group.members for each in ids[doc])
        sizes = {each.id: each for doc in group.members for each in ids[doc]}
        for name, count in shared.items():
            share = count / (len(group.members) + len(sizes[name].members) - count)
            if sizes[name].level == group.level and share >= _SAME:
                pairs.append((-share, place, name))
    names: dict[int, str] = {}
    used_names: set[str] = set()
    for _, place, name in sorted(pairs):
        if place not in names and name not in used_names:
            names[place] = name
            used_names.add(name)
    return [names.get(place) or new_id() for place in range(len(groups))]


def _about(
    connection: Connection,
    members: frozenset[int],
    together: Sequence[communities.Togetherness],
) -> str:
    """Return what a community is about, as one text to embed."""
    shared = [text for text in together if len(members.intersection(text.entities)) > 1]
    newest = shared[-MOST_TEXTS:]
    stored = memories.get_docs(connection, [*members, *(text.doc for text in newest)])
    names = {doc: stored[doc].memory.content for doc in members if doc in stored}
    texts = [
        Text(text.doc, stored[text.doc].memory.content, frozenset(text.entities) & set(names))
        for text in newest
        if text.doc in stored
    ]
    concepts = concepts_of(names, texts)
    return ". ".join([", ".join(concepts.key_concepts), *concepts.summary])
