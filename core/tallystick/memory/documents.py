"""Documents and nodes of runtimes as new memories, recognised by their methods.

No runtime is imported here: a LlamaIndex node has `get_content` and `node_id`, a LangChain document
has `page_content`, and each has `metadata`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Protocol, TypeAlias

from pydantic import SkipValidation, TypeAdapter

from tallystick.errors import InvalidInput
from tallystick.records import JsonObject, NewMemory, Several, SourceRef
from tallystick.records.framing import OPEN
from tallystick.records.memory import SourceType
from tallystick.records.wire import Wire


class _Page(Protocol):
    """A document of LangChain."""

    page_content: str

    @property
    def metadata(self) -> Mapping[str, Any]: ...


class _Node(Protocol):
    """A document or node of LlamaIndex."""

    @property
    def node_id(self) -> str: ...

    @property
    def metadata(self) -> Mapping[str, Any]: ...

    def get_content(self) -> str: ...


Document: TypeAlias = _Page | _Node
"""A LangChain Document, or a LlamaIndex Document, node or NodeWithScore."""


NewMemories = Annotated[
    Iterable[NewMemory | Document | Mapping[str, Any] | str],
    SkipValidation,
    Several,
    Wire(tuple[NewMemory, ...]),
]
"""Memories to be: records, mappings of their fields, documents, or texts."""

_ADDRESSES = ("file_path", "url", "URL", "source_url", "source", "path")
"""Metadata in which readers note where a document is from, the most exact first."""
_TITLES = ("title", "file_name")
_MEDIA = ("image", "image_path", "image_url", "image_resource", "audio_resource", "video_resource")
_json: TypeAdapter[JsonObject] = TypeAdapter(JsonObject)


def is_document(item: object) -> bool:
    """Return True for what `memory_of_document` reads."""
    return not isinstance(item, str | Mapping) and (
        hasattr(item, "page_content") or (hasattr(item, "get_content") and hasattr(item, "node_id"))
    )


def memory_of_document(item: Any) -> NewMemory:
    """Return a document as a new memory of the kind `document`.

    Its source is the file or address that the metadata name. Attributes are `document_id`, for a
    piece of a LlamaIndex document `ref_doc_id`, and `metadata`. Raises InvalidInput for a document
    without text, one with a picture, sound or film, metadata that are not JSON, and a node that was
    recalled from a tally.
    """
    document = getattr(item, "node", item)
    identity = getattr(document, "node_id", None) or getattr(document, "id", None)
    name = "A document" if identity is None else f"Document {identity}"
    media = next((field for field in _MEDIA if getattr(document, field, None)), None)
    if media is not None:
        raise InvalidInput(
            f"{name} has {media.partition('_')[0]} data. A memory is text: describe it in words, "
            f"and remember these."
        )
    if str(getattr(document, "text_template", "")).startswith(OPEN):
        raise InvalidInput(f"{name} was recalled from a tally, which has it already.")
    text = _text_of(document)
    if not text.strip():
        raise InvalidInput(f"{name} has no text, so that there is nothing to remember.")
    metadata = _checked_metadata(name, document.metadata)
    reference = getattr(document, "ref_doc_id", None)
    attributes: JsonObject = {
        **({} if identity is None else {"document_id": str(identity)}),
        **({} if reference is None else {"ref_doc_id": str(reference)}),
        **({"metadata": metadata} if metadata else {}),
    }
    return NewMemory.load(
        {
            "content": text,
            "kind": "document",
            "source": _source_of(document, metadata),
            "attributes": attributes,
        }
    )


def _text_of(document: Any) -> str:
    page = getattr(document, "page_content", None)
    return str(document.get_content() if page is None else page)


def _checked_metadata(name: str, metadata: Mapping[str, Any]) -> JsonObject:
    checked: JsonObject = {}
    for key, value in metadata.items():
        try:
            entry = _json.validate_python({key: value}, strict=True)
            json.dumps(entry, allow_nan=False)
        except ValueError as error:
            raise InvalidInput(
                f"{name}: metadata[{str(key)[:60]!r}] is a {type(value).__name__}, which JSON "
                f"cannot hold. Make it a text or a number."
            ) from error
        checked |= entry
    return checked


def _source_of(document: Any, metadata: JsonObject) -> SourceRef:
    addresses = (metadata.get(key) for key in _ADDRESSES)
    uri = next((text for text in addresses if isinstance(text, str) and text), None)
    titles = (metadata.get(key) for key in _TITLES)
    title = next((text for text in titles if isinstance(text, str) and text), None)
    start, end = (getattr(document, f"{edge}_char_idx", None) for edge in ("start", "end"))
    kind: SourceType = "other"
    if uri is not None:
        kind = "retrieval" if "://" in uri and not uri.startswith("file:") else "file"
    return SourceRef(
        source_type=kind,
        uri=uri,
        title=title,
        positions=() if start is None or end is None else ((start, end),),
    )
