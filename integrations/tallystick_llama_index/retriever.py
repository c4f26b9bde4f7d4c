"""TallyRetriever: recall as a LlamaIndex retriever, whose nodes have their sources and the reason
for which they are visible.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import (
    MetadataMode,
    NodeRelationship,
    NodeWithScore,
    QueryBundle,
    RelatedNodeInfo,
    TextNode,
)

from tallystick.aio import in_thread
from tallystick.kit import ActorSource, TallyElsewhere, binder_of, check_count, check_names
from tallystick.kit.binder import id_text
from tallystick.kit.rendering import codes_of, hits_for_model
from tallystick.records import Hit, Scope
from tallystick.records.escaping import as_item, as_name
from tallystick.records.framing import CLOSE, NOTICE, OPEN
from tallystick.tally import BoundTally, Tally
from tallystick_llama_index.actors import call_of_tags
from tallystick_llama_index.conversations import session_under_way

_FOR_MODELS = ("notice", "kind", "speaker", "occurred_at")
"""Metadata of a node that a model reads; the rest is for the application."""
_BODY = "\n{metadata_str}\n\n{content}\n"
"""Template of a node between the marks of its frame; its metadata begin with the notice."""


class TallyRetriever(BaseRetriever):
    """Recalls memories: `RetrieverQueryEngine.from_args(TallyRetriever(tally,
    similarity_top_k=8))`.

    It fills no memory. What it finds was remembered by `bound.remember` or `remember_many`, which
    takes documents and nodes too, or by a piece with `capture`, such as
    `TallyInstrumentation(tally, capture="user")`.
    """

    def __init__(
        self,
        tally: Tally | BoundTally | TallyElsewhere,
        *,
        similarity_top_k: int = 8,
        actor: ActorSource | None = None,
        scope: str | Scope | None = None,
        kinds: Sequence[str] = (),
        outside_of: str | int | UUID | None = None,
        **kwargs: Any,
    ) -> None:
        """`actor` says who acts, by default what the call names in its instrument tags
        (docs/who-acts.md); `kinds` are the kinds of memories that are recalled, by
        default all. `outside_of` is the session whose turns are left out, because they are in the
        prompt: by default that of the chat which a TallyInstrumentation watches.
        """
        self._binder = binder_of(
            tally, runtime="llama_index", piece="TallyRetriever", actor=actor, scope=scope
        )
        check_count("similarity_top_k", similarity_top_k, least=1)
        check_names("kinds", kinds)
        self._limit = similarity_top_k
        self._kinds = tuple(kinds)
        self._outside_of = None if outside_of is None else id_text(outside_of)
        super().__init__(**kwargs)

    def __repr__(self) -> str:
        return self._binder.describe(
            similarity_top_k=self._limit, kinds=list(self._kinds) if self._kinds else None
        )

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        bound = self._binder.bound(call_of_tags(self._binder))
        text = query_bundle.query_str
        # Without a query nothing is retrieved: kinds alone would list the newest of them.
        kinds = self._kinds if text.strip() else ()
        session = self._outside_of or session_under_way()
        # Twice as many are asked for, because some may be left out.
        limit = self._limit if session is None else 2 * self._limit
        recalled = bound.recall(text, limit=limit, kinds=kinds)
        others = [hit for hit in recalled if session is None or hit.memory.conversation != session]
        hits = hits_for_model(bound, others[: self._limit])
        nodes = [_node(hit) for hit in hits]
        with_codes(bound, nodes)
        return [
            NodeWithScore(node=node, score=hit.score) for node, hit in zip(nodes, hits, strict=True)
        ]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await in_thread(self._retrieve, query_bundle)


def with_codes(bound: BoundTally | TallyElsewhere, nodes: Sequence[TextNode]) -> None:
    """Give nodes whose template is a frame the code of their text and metadata."""
    framed = [node for node in nodes if node.text_template.startswith(OPEN)]
    bodies = [
        _BODY.format(
            metadata_str=node.get_metadata_str(mode=MetadataMode.LLM).strip(), content=node.text
        )
        for node in framed
    ]
    for node, code in zip(framed, codes_of(bound, bodies), strict=True):
        node.text_template = f'{OPEN} code="{code}">{_BODY}{CLOSE}'


def _node(hit: Hit) -> TextNode:
    """Return a memory as a node. Metadata of the document that it was stand beside ours, under
    their own names unless these are ours, and no model reads them.
    """
    memory = hit.memory
    stored, document = memory.attributes.get("metadata"), memory.attributes.get("ref_doc_id")
    metadata: dict[str, Any] = {
        "notice": NOTICE,
        "kind": memory.kind,
        "speaker": None if memory.speaker is None else as_name(memory.speaker),
        "occurred_at": None if memory.occurred_at is None else _iso(memory.occurred_at),
        "version": memory.version,
        "tags": list(memory.tags),
        "source_ids": list(hit.source_ids),
        "sources": list(
            dict.fromkeys(
                source.uri or source.title or source.source_type for source in hit.sources
            )
        ),
        "visible_to": str(hit.visible_to),
        "access_reason": hit.access_reason,
        "signals": dict(hit.signals),
    }
    fields = {
        **(stored if isinstance(stored, dict) else {}),
        **{name: value for name, value in metadata.items() if value is not None},
    }
    hidden = [name for name in fields if name not in _FOR_MODELS]
    return TextNode(
        id_=memory.id,
        text=as_item(memory.content),
        text_template=f"{OPEN}>{_BODY}{CLOSE}",
        metadata=fields,
        excluded_llm_metadata_keys=hidden,
        excluded_embed_metadata_keys=list(fields),
        relationships=(
            {NodeRelationship.SOURCE: RelatedNodeInfo(node_id=document)}
            if isinstance(document, str)
            else {}
        ),
    )


def _iso(micros: int) -> str:
    return datetime.fromtimestamp(micros / 1_000_000, tz=UTC).isoformat(timespec="seconds")
