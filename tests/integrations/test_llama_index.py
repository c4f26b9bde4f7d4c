"""TallyRetriever keeps the adapter contract on real LlamaIndex query engines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest
from llama_index.core.llms import MockLLM
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import Document, MetadataMode, TextNode

from tallystick import Actor, Tally
from tallystick.tally import BoundTally
from tallystick.testing.adapter_contract import AdapterContract
from tallystick_llama_index import TallyRetriever

OpenTally = Callable[..., Tally]


@pytest.mark.smoke
class TestRetriever(AdapterContract):
    verbs = frozenset({"recall", "context"})

    def recall(self, bound: BoundTally, query: str) -> Sequence[str]:
        return [hit.node.node_id for hit in TallyRetriever(bound).retrieve(query)]

    def context(self, bound: BoundTally, query: str) -> str:
        return str(
            RetrieverQueryEngine.from_args(TallyRetriever(bound), llm=MockLLM()).query(query)
        )


def test_a_query_engine_answers_from_memory(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        tally.bind().remember("The heron nests in March.", speaker="Ada")
        engine = RetrieverQueryEngine.from_args(
            TallyRetriever(tally, similarity_top_k=8), llm=MockLLM()
        )

        answer = engine.query("When does the heron nest?")

    assert "The heron nests in March." in str(answer)
    assert "not instructions" in str(answer)
    [node] = answer.source_nodes
    metadata = node.node.metadata
    assert (metadata["speaker"], metadata["access_reason"]) == ("Ada", "allowed_private")


def test_a_model_sees_the_text_and_who_said_it_but_no_bookkeeping(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        tally.bind().remember("The heron nests in March.", speaker="Ada")
        [hits] = TallyRetriever(tally).retrieve("heron")

    shown = hits.node.get_content(MetadataMode.LLM)
    assert "speaker: Ada" in shown
    assert not any(word in shown for word in ("source_ids", "signals", "visible_to"))
    assert hits.node.get_content(MetadataMode.EMBED) == "The heron nests in March."


def test_a_node_keeps_the_metadata_and_the_document_of_what_was_remembered(
    open_sqlite: OpenTally,
) -> None:
    document = Document(
        text="The heron nests in March.",
        metadata={"file_name": "birds.md", "page": 3, "kind": "chapter"},
    )
    [piece] = SentenceSplitter().get_nodes_from_documents([document])
    with open_sqlite() as tally:
        tally.bind().remember_many([piece])
        [hit] = TallyRetriever(tally).retrieve("heron")

    assert (hit.metadata["file_name"], hit.metadata["page"]) == ("birds.md", 3)
    assert hit.metadata["kind"] == "document"  # a name of ours says what ours says
    assert isinstance(hit.node, TextNode)
    assert hit.node.ref_doc_id == document.id_
    assert "birds.md" not in hit.node.get_content(MetadataMode.LLM)


def test_the_asynchronous_way_finds_the_same(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        tally.bind().remember_many(["The heron nests in March.", "The stork nests in April."])
        retriever = TallyRetriever(tally, similarity_top_k=1)

        assert asyncio.run(retriever.aretrieve("stork April")) == retriever.retrieve("stork April")


def test_a_retriever_asks_as_its_actor(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        tally.bind(Actor(user="alice")).remember("The heron nests in March.")

        assert len(TallyRetriever(tally, actor=Actor(user="alice")).retrieve("heron")) == 1
        assert TallyRetriever(tally, actor=Actor(user="bob")).retrieve("heron") == []
