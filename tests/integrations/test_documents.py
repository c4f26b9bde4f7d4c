"""Documents and nodes of LangChain and LlamaIndex are remembered as they are handed over."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Any

import pytest
from langchain_core.documents import Document as LangChainDocument
from llama_index.core import Document
from llama_index.core.schema import (
    ImageNode,
    NodeRelationship,
    NodeWithScore,
    RelatedNodeInfo,
    TextNode,
)

from tallystick import Tally
from tallystick.errors import InvalidInput
from tallystick_llama_index import TallyRetriever

OpenTally = Callable[..., Tally]
METADATA = {"file_path": "rules/gate.txt", "file_name": "gate.txt", "page": 3, "share": 0.5}


def _node() -> TextNode:
    """A piece of a document, as a splitter of LlamaIndex makes it."""
    return TextNode(
        text="The gate closes at six.",
        metadata=METADATA,
        start_char_idx=20,
        end_char_idx=43,
        relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id="gate")},
    )


def test_nodes_keep_their_ids_metadata_address_and_place(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        mine = tally.bind()
        node = _node()
        whole = Document(text="The bell rings twice.", id_="bell", metadata=METADATA)

        stored = mine.remember_many([whole, node, NodeWithScore(node=node, score=0.4)])
        assert [result.status for result in stored] == ["created", "created", "duplicate"]

        memory = mine.get(stored[1].id)
        assert (memory.kind, memory.content) == ("document", node.text)
        assert memory.attributes == {
            "document_id": node.node_id,
            "ref_doc_id": "gate",
            "metadata": METADATA,
        }
        assert mine.get(stored[0].id).attributes == {
            "document_id": "bell",
            "metadata": METADATA,
        }
        [hit] = mine.recall("when does the gate close", limit=1)
        assert {(source.uri, source.title, source.source_type) for source in hit.sources} == {
            ("rules/gate.txt", "gate.txt", "file")
        }


def test_a_langchain_document_is_remembered_with_its_address(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        mine = tally.bind()
        page = LangChainDocument(
            "Herons nest in March.", metadata={"source": "https://birds.example/heron"}, id="p1"
        )
        [stored] = mine.remember_many([page])
        assert mine.get(stored.id).attributes["document_id"] == "p1"
        [hit] = mine.recall("herons")
        assert [(source.uri, source.source_type) for source in hit.sources] == [
            ("https://birds.example/heron", "retrieval")
        ]


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (ImageNode(image="aGVyb24="), "image"),
        (TextNode(text="  "), "no text"),
        (LangChainDocument(""), "no text"),
        (TextNode(text="x", metadata={"day": date(2026, 1, 1)}), r"metadata\['day'\] is a date"),
        (TextNode(text="x", metadata={"share": float("nan")}), "JSON"),
    ],
)
def test_what_is_no_text_is_refused_and_nothing_is_stored(
    open_sqlite: OpenTally, document: Any, reason: str
) -> None:
    with open_sqlite() as tally:
        mine = tally.bind()
        with pytest.raises(InvalidInput, match=reason):
            mine.remember_many([Document(text="The gate."), document])
        assert mine.memories() == []


def test_a_node_that_was_recalled_is_not_remembered_again(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        mine = tally.bind()
        mine.remember("The gate closes at six.")
        with pytest.raises(InvalidInput, match="recalled"):
            mine.remember_many(TallyRetriever(tally).retrieve("gate"))
