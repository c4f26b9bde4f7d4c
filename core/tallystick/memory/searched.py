"""The scopes that a question is looked for in: their corpora as they are now, and what is asked of
Chroma instead.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from tallystick.errors import EmbeddingError
from tallystick.memory.candidates import CandidateSource
from tallystick.memory.context import MemoryContext
from tallystick.ranking import Corpus
from tallystick.records import Scope
from tallystick.storage import Connection
from tallystick.storage.index import search
from tallystick.storage.index.chroma import NAME, state_of
from tallystick.storage.index.marks import marks_of
from tallystick.storage.rows import scopes


class SearchedScopes(NamedTuple):
    """What a question is looked for in."""

    corpora: dict[int, Corpus]
    revisions: dict[int, int]
    scopes: dict[int, Scope]
    by_chroma: frozenset[int] = frozenset()
    """The scopes of which Chroma is asked for the nearest vectors."""
    fallback: str | None = None
    """Why Chroma is not asked for others that belong there."""


def searched_scopes(
    connection: Connection, context: MemoryContext, scope_list: Sequence[Scope]
) -> SearchedScopes:
    """Return the corpora of scopes by their numbers, as they are now; those that nothing was
    written to are left out.
    """
    rows = scopes.revisions(connection, scope_list)
    revisions = {row.id: revision for row, revision in rows}
    by_chroma, fallback = _asked_of_chroma(connection, context, list(revisions))
    corpora = corpora_of(connection, context, revisions, by_chroma)
    scope_of = {row.id: row.scope for row, _ in rows}
    return SearchedScopes(corpora, revisions, scope_of, by_chroma, fallback)


def corpora_of(
    connection: Connection,
    context: MemoryContext,
    revisions: Mapping[int, int],
    by_chroma: Collection[int],
) -> dict[int, Corpus]:
    """Return the corpora of scopes at these revisions, with vectors of those that Chroma is not
    asked of; without any where the embedder does not work.
    """
    embedder = ("", 0)
    try:
        embedder = (context.embedder.fingerprint, context.embedder.dimension)
    except EmbeddingError:
        by_chroma = revisions.keys()
    source: CandidateSource = context.corpora
    corpora = {}
    for scope_id, revision in sorted(revisions.items()):
        # Signs of vectors are little: a large scope has them also where Chroma is asked.
        wanted = scope_id not in by_chroma or source.is_large(connection, scope_id, dimension=0)
        fingerprint, dimension = embedder if wanted else ("", 0)
        corpora[scope_id] = source.corpus(
            connection, scope_id, revision, fingerprint=fingerprint, dimension=dimension
        )
    return corpora


def prepare_scope(connection: Connection, context: MemoryContext, scope_id: int) -> bool:
    """Analyse a scope beside the questions, where nothing of it is kept or much was written since;
    return whether its segment was made. What was not in memory before is not left there.
    """
    try:
        fingerprint, dimension = context.embedder.fingerprint, context.embedder.dimension
    except EmbeddingError:
        return False
    by_chroma, _ = _asked_of_chroma(connection, context, [scope_id])
    if by_chroma and not context.corpora.is_large(connection, scope_id, dimension=0):
        fingerprint, dimension = "", 0
    if not context.corpora.lacks_segment(
        connection, scope_id, fingerprint=fingerprint, dimension=dimension
    ):
        return False
    revision = scopes.all_revisions(connection)[scope_id]
    return context.corpora.prepare(
        connection, scope_id, revision, fingerprint=fingerprint, dimension=dimension
    )


def _asked_of_chroma(
    connection: Connection, context: MemoryContext, ids: Sequence[int]
) -> tuple[frozenset[int], str | None]:
    """Return the scopes of which Chroma is asked, and why it is not asked of others that belong
    there, as far as that is known before.

    A scope that is scanned is loaded with its vectors at once, and not first without them.
    """
    wanted = {
        scope_id
        for scope_id in (ids if context.uses_chroma else ())
        if context.vector_search == "chroma" or _is_large(connection, context, scope_id)
    }
    if not wanted:
        return frozenset(), None
    if context.index is None:
        return frozenset(), "this tally has no Chroma index"
    if not context.index.owned:
        return frozenset(), "another process owns this tally's Chroma folder"
    try:
        fingerprint = context.embedder.fingerprint
    except EmbeddingError:
        return frozenset(), None  # there is no vector to search with, which is said
    layout = state_of(connection, fingerprint).layout
    here = frozenset(scope_id for scope_id in wanted if layout.includes(scope_id))
    marks = marks_of(connection, NAME, here)
    filled = frozenset(each for each in here if each not in marks or not marks[each].filling)
    if filled == wanted:
        return filled, None
    return filled, "it is being filled" if here != filled else "it was not filled yet"


def _is_large(connection: Connection, context: MemoryContext, scope_id: int) -> bool:
    size = context.corpora.size(scope_id)
    if size is None:
        size = search.count_rows(connection, scope_id)
    return size > context.large_scope
