"""Names of the GenAI semantic conventions, in one place.

They are those of github.com/open-telemetry/semantic-conventions-genai at commit
32c328e85013588c6fe32ebc30934ab5b1752b6a (status: development). The constants of the package
`opentelemetry-semantic-conventions` are deprecated since the conventions moved there, and that
repository has no package.
"""

from __future__ import annotations


class Operation:
    """Values of `gen_ai.operation.name`."""

    CHAT = "chat"
    INVOKE_AGENT = "invoke_agent"
    EXECUTE_TOOL = "execute_tool"
    RETRIEVAL = "retrieval"
    SEARCH_MEMORY = "search_memory"
    CREATE_MEMORY = "create_memory"
    UPDATE_MEMORY = "update_memory"
    UPSERT_MEMORY = "upsert_memory"
    DELETE_MEMORY = "delete_memory"


class GenAI:
    """Attributes of spans."""

    OPERATION_NAME = "gen_ai.operation.name"
    PROVIDER_NAME = "gen_ai.provider.name"
    AGENT_NAME = "gen_ai.agent.name"
    CONVERSATION_ID = "gen_ai.conversation.id"
    REQUEST_MODEL = "gen_ai.request.model"
    REQUEST_STREAM = "gen_ai.request.stream"
    RESPONSE_MODEL = "gen_ai.response.model"
    FINISH_REASONS = "gen_ai.response.finish_reasons"
    TIME_TO_FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"
    INPUT_TOKENS = "gen_ai.usage.input_tokens"
    OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
    CACHE_READ_TOKENS = "gen_ai.usage.cache_read.input_tokens"
    CACHE_WRITE_TOKENS = "gen_ai.usage.cache_write.input_tokens"
    TOOL_NAME = "gen_ai.tool.name"
    TOOL_TYPE = "gen_ai.tool.type"
    TOOL_CALL_ID = "gen_ai.tool.call.id"
    TOOL_ARGUMENTS = "gen_ai.tool.call.arguments"
    TOOL_RESULT = "gen_ai.tool.call.result"
    INPUT_MESSAGES = "gen_ai.input.messages"
    OUTPUT_MESSAGES = "gen_ai.output.messages"
    SYSTEM_INSTRUCTIONS = "gen_ai.system_instructions"
    DATA_SOURCE_ID = "gen_ai.data_source.id"
    RETRIEVAL_QUERY = "gen_ai.retrieval.query.text"
    MEMORY_STORE_ID = "gen_ai.memory.store.id"
    MEMORY_RECORD_ID = "gen_ai.memory.record.id"
    MEMORY_RECORD_COUNT = "gen_ai.memory.record.count"
    MEMORY_QUERY = "gen_ai.memory.query.text"
    MEMORY_RECORDS = "gen_ai.memory.records"
    ERROR_TYPE = "error.type"


PROVIDERS = {
    "amazon_bedrock": "aws.bedrock",
    "azure": "azure.ai.openai",
    "azure_openai": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "bedrock_converse": "aws.bedrock",
    "gemini": "gcp.gemini",
    "genai": "gcp.gemini",
    "google": "gcp.gemini",
    "google-gla": "gcp.gemini",
    "google-vertex": "gcp.vertex_ai",
    "google_genai": "gcp.gemini",
    "google_vertexai": "gcp.vertex_ai",
    "mistral": "mistral_ai",
    "mistralai": "mistral_ai",
    "xai": "x_ai",
}
"""Names of the conventions for providers that runtimes name otherwise."""
MEMORY_PROVIDER = "tallystick"
"""The provider of the memory that spans of memory are about."""


class OpenInference:
    """Attributes by which Phoenix shows a span, of OpenInference's semantic conventions
    (github.com/Arize-ai/openinference, spec/semantic_conventions.md).
    """

    SPAN_KIND = "openinference.span.kind"
    SESSION_ID = "session.id"
    MODEL_NAME = "llm.model_name"
    PROMPT_TOKENS = "llm.token_count.prompt"
    COMPLETION_TOKENS = "llm.token_count.completion"
    INPUT = "input.value"
    OUTPUT = "output.value"


class Ours:
    """Attributes that the conventions have no name for."""

    RUN_ID = "tallystick.run.id"
    RUN_GAPS = "tallystick.run.gaps"
    SCOPE = "tallystick.scope"
    STATUS = "tallystick.status"
    STEP_ID = "tallystick.step.id"
    STEP_INDEX = "tallystick.step.index"
    STEP_KIND = "tallystick.step.kind"
    RECEIPT_DIGEST = "tallystick.receipt.digest"
    RECEIPT_PREVIOUS = "tallystick.receipt.previous"
    CONTEXT_ID = "tallystick.context.id"
    CONTEXT_USED = "tallystick.context.used"
    CONTEXT_BUDGET = "tallystick.context.budget"
    CONTEXT_INCLUDED = "tallystick.context.included"
    CONTEXT_EXCLUDED = "tallystick.context.excluded"
    REDACTED = "tallystick.redacted"
    COST = "tallystick.cost"
    COST_CURRENCY = "tallystick.cost.currency"
    SECTION = "tallystick."
    """The beginning of names of events: what follows is a kind of entry."""


class Metric:
    """Names of instruments."""

    INFERENCE_DURATION = "gen_ai.client.inference.duration"
    OPERATION_DURATION = "gen_ai.client.operation.duration"
    TIME_TO_FIRST_CHUNK = "gen_ai.client.inference.time_to_first_chunk"
    INPUT_TOKENS = "gen_ai.client.inference.usage.input_tokens"
    OUTPUT_TOKENS = "gen_ai.client.inference.usage.output_tokens"
    CACHE_READ_TOKENS = "gen_ai.client.inference.usage.cache_read.input_tokens"
    CACHE_WRITE_TOKENS = "gen_ai.client.inference.usage.cache_write.input_tokens"
    AGENT_DURATION = "gen_ai.invoke_agent.duration"
    AGENT_INFERENCES = "gen_ai.invoke_agent.inference_calls"
    AGENT_TOOLS = "gen_ai.invoke_agent.tool_calls"
    TOOL_DURATION = "gen_ai.execute_tool.duration"
