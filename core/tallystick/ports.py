"""Ports, through which time, ids and models enter: small protocols, each with a default elsewhere.

A port is passed in, never looked up; tests pass the fakes of `tallystick.testing`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from time import time_ns
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, runtime_checkable

from tallystick.errors import InsideTransaction

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from pydantic import BaseModel

    from tallystick.records import (
        CompiledContext,
        DraftRequest,
        Extraction,
        LearningRequest,
        ModelAnswer,
        ProviderDeclaration,
    )

__all__ = [
    "BlobStore",
    "Clock",
    "Drafter",
    "Embedder",
    "Ids",
    "Learner",
    "ModelEvent",
    "ModelProvider",
    "ModelResponse",
    "ModelResponseStream",
    "Reranker",
    "StructuredAnswer",
    "StructuredModel",
    "Summarizer",
    "SystemClock",
    "TokenCounter",
    "UuidIds",
    "forbid_inside_transaction",
    "write_transaction",
]


@runtime_checkable
class BlobStore(Protocol):
    """Stores large bodies outside of the database, by names that are never given twice.

    Each call raises StorageError where the store is away. Thread-safe.
    """

    @property
    def place(self) -> str:
        """Where it is, for a person, without credentials."""
        ...

    def put(self, name: str, body: bytes) -> None:
        """Store a body; it survives a loss of power when this returns."""
        ...

    def get(self, name: str) -> bytes | None:
        """Return a body; None where there is none."""
        ...

    def delete(self, name: str) -> None:
        """Remove a body; one that is not there is no error."""
        ...

    def names(self, prefix: str, *, older_than: float = 0.0) -> Iterator[str]:
        """Yield the names that begin with `prefix`, of what is older than some seconds."""
        ...


@runtime_checkable
class Clock(Protocol):
    """Tells the time. Order never comes from here, only from the journal's sequence."""

    def now(self) -> int:
        """Microseconds since 1970-01-01 UTC."""
        ...


@runtime_checkable
class Ids(Protocol):
    """Makes identifiers. The default gives UUIDv7, which sort roughly by time."""

    def new(self) -> str:
        """Return a fresh identifier, never returned before."""
        ...


@runtime_checkable
class Embedder(Protocol):
    """Turns texts into vectors. Two embedders with one fingerprint must agree on every text."""

    @property
    def fingerprint(self) -> str:
        """Name, version and dimension in one short string; vectors of two fingerprints never
        mix.
        """
        ...

    @property
    def dimension(self) -> int:
        """Length of every vector."""
        ...

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return unit vectors, shape (len(texts), dimension), in the order of the texts. Raises
        EmbeddingError.
        """
        ...


@runtime_checkable
class TokenCounter(Protocol):
    """Counts tokens as the target model would, or says that it estimates."""

    @property
    def method(self) -> str:
        """The method of counting, such as `tiktoken:o200k_base` or `estimate:pieces`; part of
        receipts.
        """
        ...

    @property
    def exact(self) -> bool:
        """False when the count is an estimate (which does not undercount)."""
        ...

    def count(self, text: str) -> int:
        """Return the tokens in `text`. Pure: the same text always gives the same number."""
        ...


@runtime_checkable
class Learner(Protocol):
    """Draws facts out of what was said, and says what each does to the facts that are known. It
    proposes: checks and people decide. Runs only where the developer turned it on.
    """

    @property
    def declaration(self) -> ProviderDeclaration:
        """What it says of itself: its name, whether it is local, its limits."""
        ...

    def learn(self, request: LearningRequest) -> Extraction:
        """Return what the new turns say. An empty result is no failure, and a failure raises
        ExtractionError.
        """
        ...


class StructuredAnswer(NamedTuple):
    """The answer of a model that was asked for a record."""

    value: Any
    """The record as JSON, or the text of an answer that was none."""
    model: str | None = None
    """The model that answered, where the provider says so."""
    input_tokens: int = 0
    output_tokens: int = 0


@runtime_checkable
class StructuredModel(Protocol):
    """A model that answers with a record: the one thing that an adapter of a runtime adds."""

    @property
    def declaration(self) -> ProviderDeclaration:
        """What it says of itself: its name, whether it is local, its limits."""
        ...

    def answer(self, instructions: str, text: str, schema: type[BaseModel]) -> StructuredAnswer:
        """Return the answer of the model to `text`, which is data, under `instructions`, as a
        record of `schema`. What its client raises is sorted by its caller: `provider_errors`.
        """
        ...


class ModelResponse(NamedTuple):
    """What a provider sent back."""

    body: dict[str, Any]
    """Its answer, as JSON of the provider's own form."""
    facts: dict[str, Any] = {}
    """What the answer's headers say: `request_id` and `rate_limits`."""


class ModelEvent(NamedTuple):
    """A piece of a streamed answer."""

    kind: Literal["text", "reasoning", "tool_call", "other"]
    text: str = ""
    """The words of this piece; the arguments of a call as far as they came."""
    raw: Any = None
    """The event as the provider's SDK gives it."""


class ModelResponseStream(Protocol):
    """An answer under way: iterate over its events, then read it whole."""

    def __iter__(self) -> Iterator[ModelEvent]:
        """Return the events as they come. Raises what the provider's SDK raises."""
        ...

    def response(self) -> ModelResponse:
        """Return the answer as far as it has come."""
        ...


@runtime_checkable
class ModelProvider(Protocol):
    """A model behind the API of a provider; `bound.call_model` sends compiled contexts to it.

    What it raises while it sends is the SDK's own: timeouts and retries are those of its client.
    """

    @property
    def name(self) -> str:
        """The provider, as rules and prices name it, such as `openai`."""
        ...

    @property
    def model(self) -> str | None:
        """The model that requests are made for; None takes the one of each compile."""
        ...

    def render(self, compiled: CompiledContext, **parameters: Any) -> dict[str, Any]:
        """Return the request for a compiled context; `parameters` are the provider's own.

        Raises InvalidContext for what the provider would refuse.
        """
        ...

    def check(self, request: Mapping[str, Any]) -> None:
        """Raise InvalidContext, which names the item, for a request that is malformed or whose
        calls and results do not pair; nothing is sent.
        """
        ...

    def require_ready(self) -> None:
        """Raise MissingExtra without the SDK, and SettingsError without a key."""
        ...

    def count_tokens(self, request: Mapping[str, Any]) -> int:
        """Return the input tokens of a request, as the provider counts them."""
        ...

    def send(self, request: Mapping[str, Any]) -> ModelResponse:
        """Send a request and return its answer."""
        ...

    def stream(self, request: Mapping[str, Any]) -> AbstractContextManager[ModelResponseStream]:
        """Send a request and return its answer as it comes."""
        ...

    def parse(self, response: Mapping[str, Any]) -> ModelAnswer:
        """Return an answer of the provider's form in no provider's form."""
        ...


@runtime_checkable
class Reranker(Protocol):
    """Orders candidates anew, within a deadline."""

    def rerank(self, query: str, texts: Sequence[str], *, deadline_ms: int) -> Sequence[float]:
        """Return one score per text, higher is better."""
        ...


@runtime_checkable
class Summarizer(Protocol):
    """Shortens text outside the compiler, after policy; its result is a recorded item."""

    @property
    def declaration(self) -> ProviderDeclaration:
        """What it says of itself: its name, whether it is local, its limits."""
        ...

    def summarize(self, text: str, *, max_tokens: int) -> str:
        """Return a summary of at most `max_tokens` tokens."""
        ...


@runtime_checkable
class Drafter(Protocol):
    """Writes a section of a document from a pack of memory, and from nothing else."""

    @property
    def declaration(self) -> ProviderDeclaration:
        """What it says of itself: its name, whether it is local, its limits."""
        ...

    def draft(self, request: DraftRequest) -> str:
        """Return the section as Markdown, without its heading. Every sentence ends in the numbers
        of the items that it rests on, such as `[3]`.
        """
        ...


@dataclass(frozen=True)
class Models:
    """The models that a developer gave a tally to learn by, in the order of preference. Those of a
    runtime's adapter answer with records, and the extension that uses one gives it its prompts.
    """

    learners: tuple[Learner | StructuredModel, ...] = ()
    summarizer: Summarizer | StructuredModel | None = None
    drafter: Drafter | StructuredModel | None = None

    @property
    def declarations(self) -> tuple[ProviderDeclaration, ...]:
        """What each of them says of itself."""
        others = [each for each in (self.summarizer, self.drafter) if each is not None]
        return tuple(each.declaration for each in (*self.learners, *others))


class SystemClock:
    """The machine's clock."""

    def now(self) -> int:
        """Microseconds since 1970-01-01 UTC."""
        return time_ns() // 1_000


class UuidIds:
    """UUIDv7 (RFC 9562) from a maintained library."""

    def __init__(self) -> None:
        from uuid_utils import uuid7

        self._make = uuid7

    def new(self) -> str:
        """Return a fresh UUIDv7 as 36 characters."""
        return str(self._make())


_writing: ContextVar[str | None] = ContextVar("tallystick_write_transaction", default=None)


class write_transaction:
    """Mark the calling thread as inside the short write transaction called `name`, within the
    block.
    """

    __slots__ = ("_name", "_token")

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        self._token = _writing.set(self._name)

    def __exit__(self, *_: object) -> None:
        _writing.reset(self._token)


def forbid_inside_transaction(call: str) -> None:
    """Refuse `call` (an embedder, a model, the network) while a write transaction is
    open.
    """
    name = _writing.get()
    if name is not None:
        raise InsideTransaction(
            f"{call} was about to be called inside the write transaction {name!r}. Call it "
            f"before the write."
        )
