"""Metrics of the GenAI conventions, counted as steps and runs are exported."""

from __future__ import annotations

from opentelemetry.metrics import Histogram, MeterProvider

from tallystick_opentelemetry.names import GenAI, Metric, Operation
from tallystick_opentelemetry.spans import SpanFacts

_COUNTED = {
    GenAI.INPUT_TOKENS: Metric.INPUT_TOKENS,
    GenAI.OUTPUT_TOKENS: Metric.OUTPUT_TOKENS,
    GenAI.CACHE_READ_TOKENS: Metric.CACHE_READ_TOKENS,
    GenAI.CACHE_WRITE_TOKENS: Metric.CACHE_WRITE_TOKENS,
}
_KEPT = (
    GenAI.OPERATION_NAME,
    GenAI.PROVIDER_NAME,
    GenAI.REQUEST_MODEL,
    GenAI.RESPONSE_MODEL,
    GenAI.AGENT_NAME,
    GenAI.TOOL_NAME,
    GenAI.ERROR_TYPE,
)
"""Attributes of a span that its metrics have too: few values each, no ids."""
_MICROSECONDS = 1_000_000


class Metrics:
    """The instruments. Each span is counted when it is given: giving it twice counts it twice."""

    def __init__(self, provider: MeterProvider) -> None:
        """Make the instruments of `provider`."""
        meter = provider.get_meter("tallystick.receipts")

        def seconds(name: str, description: str) -> Histogram:
            return meter.create_histogram(name, unit="s", description=description)

        self._durations = {
            Operation.CHAT: seconds(Metric.INFERENCE_DURATION, "Duration of a call of a model"),
            Operation.INVOKE_AGENT: seconds(Metric.AGENT_DURATION, "Duration of a run"),
            Operation.EXECUTE_TOOL: seconds(Metric.TOOL_DURATION, "Duration of a call of a tool"),
        }
        self._other = seconds(Metric.OPERATION_DURATION, "Duration of other operations")
        self._first_chunk = seconds(Metric.TIME_TO_FIRST_CHUNK, "Time to the first chunk")
        self._tokens = {
            attribute: meter.create_counter(name, unit="{token}", description="Tokens used")
            for attribute, name in _COUNTED.items()
        }
        self._inferences = meter.create_histogram(
            Metric.AGENT_INFERENCES, unit="{call}", description="Calls of a model in a run"
        )
        self._tools = meter.create_histogram(
            Metric.AGENT_TOOLS, unit="{call}", description="Calls of a tool in a run"
        )

    def count(self, facts: SpanFacts) -> None:
        """Count a span; one of no operation of the conventions is not counted."""
        if facts.operation is None:
            return
        attributes = {name: facts.attributes[name] for name in _KEPT if name in facts.attributes}
        took = (facts.end - facts.start) / _MICROSECONDS
        self._durations.get(facts.operation, self._other).record(took, attributes)
        if facts.operation != Operation.CHAT:
            return
        first = facts.attributes.get(GenAI.TIME_TO_FIRST_CHUNK)
        if isinstance(first, float):
            self._first_chunk.record(first, attributes)
        for attribute, counter in self._tokens.items():
            count = facts.attributes.get(attribute)
            if isinstance(count, int):
                counter.add(count, attributes)

    def count_calls(self, facts: SpanFacts, *, inferences: int, tools: int) -> None:
        """Count the calls of models and of tools in a run."""
        attributes = {name: facts.attributes[name] for name in _KEPT if name in facts.attributes}
        self._inferences.record(inferences, attributes)
        self._tools.record(tools, attributes)
