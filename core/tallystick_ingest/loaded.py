"""Loaded: what a loader or a reader of a runtime yields, as a source like any other."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from tallystick.errors import InvalidInput
from tallystick.memory.documents import memory_of_document
from tallystick_ingest.contract import Corpus, Known, PrivacyClass, Skipped, SourceRecord, Yielded
from tallystick_ingest.pacing import with_checkpoints


class LoadedSource:
    """Reads documents of LangChain, or documents and nodes of LlamaIndex.

    A record is named by the file or address that its metadata name, with its place among those of
    the same one; without any by its text. So it is the same record whenever it is loaded, whatever
    id the runtime gave it.
    """

    version = "1"
    privacy_class: PrivacyClass = "personal"
    reads_paths = False
    """A target is no path of this machine."""
    metadata_schema: Mapping[str, Any] = {"type": "object"}

    def __init__(
        self, runtime: str, load: Callable[[], Iterable[Any]], *, title: str, lists_all: bool
    ) -> None:
        """`load` yields the documents; `lists_all` says that these are all there are."""
        self.name, self._load = runtime, load
        self._title, self._lists_all = title, lists_all

    def corpus(self, target: str) -> Corpus:
        """Same as `SourceAdapter.corpus`."""
        return Corpus(id=target, title=self._title, lists_all=self._lists_all)

    def records(self, target: str, checkpoint: str | None, known: Known) -> Iterator[Yielded]:
        """Same as `SourceAdapter.records`. A loader has no place to go on from: all is yielded, and
        what is stored already is not stored again.
        """
        return with_checkpoints(self._items(known), "0")

    def _items(self, known: Known) -> Iterator[tuple[str, Yielded]]:
        places: Counter[str] = Counter()
        for number, item in enumerate(self._load(), start=1):
            yield str(number), _record(item, number, places)


def _record(item: Any, number: int, places: Counter[str]) -> Yielded:
    try:
        memory = memory_of_document(item)
    except InvalidInput as error:
        return Skipped(f"document {number}", "unsupported_type", str(error))
    source = memory.source
    assert source is not None
    digest = hashlib.sha256(memory.content.encode("utf-8", "surrogatepass")).hexdigest()
    place = source.uri or digest
    before = places[place]
    places[place] += 1
    metadata = memory.attributes.get("metadata")
    return SourceRecord(
        record_id=place if not before else f"{place}#{before}",
        version=digest,
        dedupe_key=f"sha256:{digest}",
        body=memory.content,
        media_type="text/markdown",
        title=source.title or "",
        url=source.uri,
        metadata=metadata if isinstance(metadata, dict) else {},
    )
