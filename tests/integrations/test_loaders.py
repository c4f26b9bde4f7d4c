"""Loaders of LangChain and readers of LlamaIndex as importers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.document_loaders import BaseLoader
from langchain_core.documents import Document
from llama_index.core import SimpleDirectoryReader
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.schema import ImageNode, TextNode

import tallystick_langchain
import tallystick_llama_index
from tallystick.errors import Denied
from tallystick.records import Actor, ImportCounters
from tallystick.tally import Tally
from tallystick_ingest import Ingest
from tallystick_llama_index import TallySink

OpenTally = Callable[..., Tally]
ADA = Actor(user="ada", projects=frozenset({"apollo"}))


class Pages(BaseLoader):
    """A loader as the ecosystem has hundreds: pages of a file, with a new id each time."""

    def __init__(self, *texts: str, fails: bool = False) -> None:
        self.texts, self.fails = texts, fails

    def lazy_load(self) -> Iterator[Document]:
        for number, text in enumerate(self.texts):
            metadata: dict[str, Any] = {"source": "birds.pdf", "page": number, "title": "Birds"}
            yield Document(text, metadata=metadata)
        if self.fails:
            raise OSError("the disk is gone")


def test_a_loader_of_langchain_is_an_importer(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        ada = tally.bind(ADA)
        texts = ["The heron nests in March.", "The stork sleeps on the chimney."]
        done = tallystick_langchain.ingest(ada, Pages(*texts))
        assert (done.state, done.adapter, done.title) == ("completed", "langchain", "Pages")
        assert done.counters == ImportCounters(seen=2, stored=2, chunks=2)
        [hit] = ada.recall("Where does the stork sleep?", limit=1)
        assert (hit.content, hit.memory.attributes["title"]) == (texts[1], "Birds")
        again = tallystick_langchain.ingest(ada, Pages(*texts))
        assert again.counters == ImportCounters(seen=2, unchanged=2)
        changed = tallystick_langchain.ingest(ada, Pages(texts[0], "The stork sleeps on a tower."))
        assert changed.counters == ImportCounters(seen=2, stored=1, unchanged=1, chunks=1)
        [document, _] = Ingest(ada).documents()
        assert document.metadata["page"] in (0, 1)


def test_a_named_corpus_says_what_vanished_from_it(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        ada = tally.bind(ADA)
        tallystick_langchain.ingest(ada, Pages("The heron.", "The stork."), name="birds")
        done = tallystick_langchain.ingest(ada, Pages("The heron."), name="birds")
        assert done.vanished == 1
        preview = Ingest(ada).remove_vanished(done.id, reason="gone")
        assert [each.record_id for each in preview.records] == ["birds.pdf#1"]


def test_what_a_loader_stored_before_it_failed_stays_and_is_not_stored_again(
    open_sqlite: OpenTally,
) -> None:
    texts = [f"The heron number {number} nests." for number in range(150)]
    with open_sqlite() as tally:
        ada = tally.bind(ADA)
        with pytest.raises(OSError, match="gone"):
            tallystick_langchain.ingest(ada, Pages(*texts, fails=True))
        [failed] = Ingest(ada).imports()
        assert (failed.state, failed.error_code, failed.counters.stored) == (
            "failed",
            "OSError",
            125,
        )
        done = tallystick_langchain.ingest(ada, Pages(*texts))
        assert (done.counters.stored, done.counters.unchanged) == (25, 125)


def test_a_loader_fills_a_private_scope_alone(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        apollo = tally.bind(ADA, scope="project:apollo")
        with pytest.raises(Denied, match="promote or share from there"):
            tallystick_langchain.ingest(apollo, Pages("The heron."))


def test_a_reader_of_llama_index_is_an_importer(open_tally: OpenTally, tmp_path: Path) -> None:
    for name in ("heron", "stork"):
        (tmp_path / f"{name}.md").write_text(f"# {name.title()}\n\nThe {name} nests in March.")
    with open_tally() as tally:
        ada = tally.bind(ADA)
        reader = SimpleDirectoryReader(str(tmp_path))
        done = tallystick_llama_index.ingest(ada, reader)
        assert (done.state, done.counters.stored) == ("completed", 2)
        again = tallystick_llama_index.ingest(ada, SimpleDirectoryReader(str(tmp_path)))
        assert (again.counters.stored, again.counters.unchanged) == (0, 2)
        [hit] = ada.recall("When does the stork nest?", limit=1)
        assert str(hit.sources[0].uri).endswith("stork.md")


def test_a_node_that_is_no_text_is_skipped_with_its_reason(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        ada = tally.bind(ADA)
        nodes = [TextNode(text="The heron."), ImageNode(image="aGVyb24="), TextNode()]
        done = tallystick_llama_index.ingest(ada, nodes)
        assert (done.counters.stored, done.counters.skipped) == (1, {"unsupported_type": 2})


def test_a_pipeline_ends_in_a_tally(open_tally: OpenTally, tmp_path: Path) -> None:
    (tmp_path / "birds.txt").write_text(
        "\n".join(f"Heron {number} nests in March." for number in range(60))
    )
    documents = SimpleDirectoryReader(str(tmp_path)).load_data()
    with open_tally() as tally:
        ada = tally.bind(ADA)
        pipeline = IngestionPipeline(transformations=[_splitter(), TallySink(ada)])
        nodes = pipeline.run(documents=documents)
        assert len(nodes) == len(Ingest(ada).documents()) > 1
        before = ada.memories(limit=100)
        pipeline.run(documents=documents)
        IngestionPipeline(transformations=pipeline.transformations, disable_cache=True).run(
            documents=documents
        )
        assert ada.memories(limit=100) == before


def _splitter() -> SentenceSplitter:
    """Without the data of nltk."""
    return SentenceSplitter(
        chunk_size=100,
        chunk_overlap=10,
        tokenizer=str.split,
        chunking_tokenizer_fn=lambda text: text.split("\n"),
    )
