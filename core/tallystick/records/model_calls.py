"""A model's answer in no provider's form, and its cost."""

from typing import Annotated, Literal

from pydantic import Field

from tallystick.records._base import JsonObject, Record
from tallystick.records.context import ContextItem
from tallystick.records.identity import Scope
from tallystick.records.times import datetime_of

StopReason = Literal[
    "completed", "tool_calls", "length", "refusal", "filtered", "paused", "failed", "broken_off"
]
"""Why an answer ended: it is whole, it waits for tools, a limit cut it, the model or a filter
refused, the provider paused or failed, or the stream broke.
"""


class ModelToolCall(Record):
    """A call of a tool that a model asks for."""

    id: str
    name: str
    arguments: JsonObject
    """As an object; arguments that were no JSON object are its field `input`, as text."""


class ModelAnswer(Record):
    """What a model answered, whatever its provider."""

    text: str = ""
    tool_calls: tuple[ModelToolCall, ...] = ()
    """In the order in which the model asks for them."""
    stop: StopReason = "completed"
    refusal: str | None = None
    """What the model said when it refused."""
    reasoning: str = ""
    """The summary of its thoughts, where the provider gives one."""
    model: str | None = None
    """The model that answered, as the provider names it."""
    response_id: str | None = None
    usage: dict[str, int] = {}
    """`input_tokens`, `output_tokens`, `cache_read_tokens`, `cache_write_tokens`, as far as they
    were reported; tokens of the cache are part of the input tokens.
    """
    native: Annotated[JsonObject, Field(repr=False)] = {}
    """What the provider wants back as it was (reasoning, signatures, calls of its own tools), under
    the name of the provider.
    """

    def recorded(self) -> JsonObject:
        """Return the answer as receipts and comparisons have it: without ids, usage and what only
        the provider reads.
        """
        return {
            "text": self.text,
            "tool_calls": [call.dump() for call in self.tool_calls],
            "stop": self.stop,
            "refusal": self.refusal,
        }

    def item(self, item_id: str) -> ContextItem:
        """Return the answer as an item for the next compile. A renderer of its provider sends it
        back exactly as it came, as long as the compiler left its text alone.
        """
        calls = [
            {"id": call.id, "name": call.name, "args": call.arguments} for call in self.tool_calls
        ]
        return ContextItem.load(
            {
                "id": item_id,
                "kind": "assistant_msg",
                "content": self.text,
                "token_estimate": self.usage.get("output_tokens"),
                "tool_call_ids": [call.id for call in self.tool_calls],
                "metadata": {
                    **({"tool_calls": calls} if calls else {}),
                    **({"native": self.native} if self.native else {}),
                },
            }
        )


class ModelCost(Record):
    """What a call of a model costs by a table of prices."""

    amount: str | None = None
    """In units of `currency`, as decimal text; None where the model or its usage is unknown."""
    currency: str = "USD"
    prices: str | None = None
    """The table that has the model: its name and its date or version."""

    def __str__(self) -> str:
        return "unknown" if self.amount is None else f"{self.amount} {self.currency}"


class OutboundCall(Record):
    """One call of a model that Tallystick made, to learn, to summarize or for a caller from outside
    of its process: without the text that it was about.
    """

    id: str
    scope: Scope
    purpose: str
    """`learn`, `summarize` or `call`."""
    provider: str
    model: str | None = None
    local: bool
    """True if it stayed on this machine."""
    subject_id: str | None = None
    """The memory that it was about."""
    job_id: str | None = None
    at: int
    """Microseconds UTC."""
    time = datetime_of("at")
    outcome: str = "started"
    """`started`, `answered`, or the code of the error; one that stays `started` was cut off."""
    characters: int = 0
    """Characters that were handed over."""
    redacted: int = 0
    """Secrets that were replaced by placeholders."""
    input_tokens: int = 0
    output_tokens: int = 0
    micros: int = 0
    """The cost in millionths of a dollar, where prices are known."""
    duration_ms: int = 0
