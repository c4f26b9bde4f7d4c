"""Ingesting: every reader of LlamaIndex as an importer, and a pipeline that ends in a tally."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from llama_index.core.readers.base import BaseReader
from llama_index.core.schema import BaseNode, TransformComponent
from pydantic import PrivateAttr

from tallystick.kit import ActorSource, Binder
from tallystick.records import Import, Scope
from tallystick.tally import BoundTally, Tally
from tallystick_ingest import Ingest
from tallystick_llama_index.actors import call_of_tags


def ingest(
    tally: Tally | BoundTally,
    reader: BaseReader | Iterable[BaseNode],
    *,
    name: str | None = None,
    actor: ActorSource | None = None,
    scope: str | Scope | None = None,
) -> Import:
    """Same as `ingest` of `tallystick_langchain`, of a reader of LlamaIndex, or documents and
    nodes.
    """
    binder = Binder(
        tally,
        runtime="llama_index",
        piece="ingest",
        actor=actor,
        scope=scope,
        usage="ingest({}, reader)",
    )
    is_reader = isinstance(reader, BaseReader)
    return _bound(binder).load(
        lambda: _documents(reader),
        runtime="llama_index",
        name=name or (type(reader).__name__ if is_reader else "documents"),
        is_whole=name is not None,
    )


def _documents(reader: BaseReader | Iterable[BaseNode]) -> Iterable[BaseNode]:
    if not isinstance(reader, BaseReader):
        return reader
    is_lazy = type(reader).lazy_load_data is not BaseReader.lazy_load_data
    return reader.lazy_load_data() if is_lazy else reader.load_data()


class TallySink(TransformComponent):
    """The last transformation of an `IngestionPipeline`: the nodes that reach it are stored in a
    tally, which gives them vectors of its own, and pass on as they are.

    What the pipeline's cache or docstore leaves out was stored before.
    """

    name: str = "pipeline"
    """What the nodes come from."""
    _binder: Any = PrivateAttr()

    def __init__(
        self,
        tally: Tally | BoundTally,
        *,
        name: str = "pipeline",
        actor: ActorSource | None = None,
        scope: str | Scope | None = None,
    ) -> None:
        super().__init__()
        self.name = name
        self._binder = Binder(
            tally, runtime="llama_index", piece="TallySink", actor=actor, scope=scope
        )

    def __repr__(self) -> str:
        return str(self._binder.describe(name=self.name))

    @classmethod
    def class_name(cls) -> str:
        """The name by which the pipeline's cache knows it."""
        return "TallySink"

    def __call__(self, nodes: Sequence[BaseNode], **kwargs: Any) -> Sequence[BaseNode]:
        """Store the nodes. Raises Denied."""
        _bound(self._binder).load(lambda: nodes, runtime="llama_index", name=self.name)
        return nodes


def _bound(binder: Binder) -> Ingest:
    return Ingest(binder.bound(call_of_tags(binder)))
