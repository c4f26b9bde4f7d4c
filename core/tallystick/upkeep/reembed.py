"""Embedding every text anew: what it takes before it begins, and the work, which goes on where it
was cut off.

Vectors of an embedder that is not the tally's own are stored beside those by which it recalls, and
no question is compared with them until the tally is opened with that embedder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from tallystick.embedding import GuardedEmbedder
from tallystick.errors import EmbeddingError
from tallystick.jobs.embedding import Unembedded, unembedded
from tallystick.memory import MemoryContext
from tallystick.ports import TokenCounter
from tallystick.ranking.vectors import slices_to_embed
from tallystick.records import Actor, Memory, Reembedding
from tallystick.storage.rows import memories
from tallystick.tokens.prices import PriceTable, cost_of
from tallystick.upkeep.retention import require_operator

_PAGE = 500


@dataclass(frozen=True)
class EmbeddingAnew:
    """Every text of a tally, for one embedder. Raises Denied for whoever is no operator of it."""

    context: MemoryContext
    """That of the tally, with its own embedder."""
    embedder: GuardedEmbedder
    """The one to embed by."""
    actor: Actor

    def __post_init__(self) -> None:
        require_operator(self.context, self.actor)

    def preview(self, counter: TokenCounter, prices: PriceTable | None) -> Reembedding:
        """Return what it takes, by a table of prices of one's own or the published ones; nothing
        is sent but what finds out the dimension. Raises EmbeddingError.
        """
        target = self._target
        tokens = sum(
            counter.count(piece)
            for scope in self._scopes()
            for memory in _texts(scope)
            for piece in slices_to_embed(
                target.searchable(memory.scope, memory.content, memory.attributes)
            )
        )
        provider, _, model = self.embedder.name.partition(":")
        usage = {"input_tokens": tokens, "output_tokens": 0}
        cost = None if self.embedder.local else cost_of(provider, [model], usage, table=prices)
        return self._describe("preview").model_copy(update={"tokens": tokens, "cost": cost})

    def apply(
        self, progress: Callable[[int, int], None], is_pausing: Callable[[], bool]
    ) -> Reembedding:
        """Embed page by page, each in commits of its own, until nothing is missing or `is_pausing`
        returns True. An embedder that is away cuts it off, with the `problem`. Raises
        EmbeddingError where it was away from the beginning.
        """
        described, embedded, refused = self._describe("apply"), 0, 0
        total, finished, problem = described.texts, 0, None
        progress(0, total)
        for scope in self._scopes():
            commit = scope.committing("vectors.reembed")
            try:
                while not is_pausing() and scope.embed_page(commit, is_pausing):
                    progress(finished + scope.finished, max(total, finished + scope.finished))
            except EmbeddingError as error:
                problem = str(error)
            finished += scope.finished
            embedded += scope.vectors
            refused += sum(each.retry == "never" for each in scope.failures)
            if problem is not None or is_pausing():
                break
        left = sum(len(scope.docs()) for scope in self._scopes()) - refused
        return described.model_copy(
            update={
                "embedded": embedded,
                "refused": refused,
                "left": max(0, left),
                "problem": problem,
            }
        )

    @property
    def _target(self) -> MemoryContext:
        """The context with the embedder to embed by."""
        return replace(self.context, embedder=self.embedder, local_embedder=self.embedder.local)

    @cached_property
    def _is_own(self) -> bool:
        """True if the tally recalls by this embedder: jobs that wait embed by it then."""
        try:
            return self.embedder.fingerprint == self.context.embedder.fingerprint
        except EmbeddingError:
            return self.embedder is self.context.embedder

    def _scopes(self, *, local: bool | None = None) -> list[Unembedded]:
        """Return the scopes that have texts without a vector; with `local` those too that stay
        here.
        """
        target = replace(self._target, local_embedder=self.embedder.local or bool(local))
        with self.context.store.database.read() as connection:
            return unembedded(connection, target, beside_jobs=not self._is_own)

    def _describe(self, mode: Literal["preview", "apply"]) -> Reembedding:
        texts = sum(len(scope.docs()) for scope in self._scopes())
        try:
            reads_by = getattr(self.context.embedder, "name", "") or (
                self.context.embedder.fingerprint
            )
        except EmbeddingError:
            reads_by = None
        return Reembedding(
            mode=mode,
            embedder=self.embedder.name,
            dimension=self.embedder.dimension,
            local=self.embedder.local,
            is_own=self._is_own,
            reads_by=reads_by,
            texts=texts,
            stays=sum(len(scope.docs()) for scope in self._scopes(local=True)) - texts,
        )


def _texts(scope: Unembedded) -> Iterator[Memory]:
    docs = scope.docs()
    for start in range(0, len(docs), _PAGE):
        with scope.context.store.database.read() as connection:
            stored = memories.get_docs(connection, docs[start : start + _PAGE])
        yield from (each.memory for each in stored.values())
