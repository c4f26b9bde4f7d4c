"""The offline stand-ins of the demo: they say what a good model would, and nothing is hidden about
it. The coding agent has its own.
"""

from __future__ import annotations

from typing import Any

from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolCall
from langchain_core.utils.function_calling import convert_to_openai_tool


class ListedChatModel(GenericFakeChatModel):
    """A chat model that reads its answers from a list and takes tools without looking at them."""

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        """Bind tools as most models do, so that they are recorded."""
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **kwargs)


def tidying_model() -> ListedChatModel:
    """Return the model of the tidier: it looks, removes what was generated, and then goes too
    far.
    """
    return ListedChatModel(
        messages=iter(
            [
                AIMessage("", tool_calls=[_call("shell", 1, command="ls")]),
                AIMessage("", tool_calls=[_call("shell", 2, command="rm -r build")]),
                AIMessage("", tool_calls=[_call("shell", 3, command="rm -r ledger")]),
                AIMessage("The build folder is gone; the sources stay."),
            ]
        )
    )


def answering_model() -> Any:
    """Return the model of the second session, in PydanticAI: it searches memory and answers from
    the first hit.
    """
    from pydantic_ai import ModelMessage, ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.messages import ToolReturnPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        for part in messages[-1].parts:
            if isinstance(part, ToolReturnPart):
                content: Any = part.content
                memory = content["memories"][0]
                return ModelResponse(
                    parts=[TextPart(f"By memory …{memory['id'][-8:]}: {memory['text']}")]
                )
        return ModelResponse(
            parts=[ToolCallPart("memory_search", {"query": "rounding of money", "limit": 3})]
        )

    return FunctionModel(answer, model_name="scripted")


def _call(name: str, number: int, **arguments: Any) -> ToolCall:
    return ToolCall(name=name, args=arguments, id=f"call_{number}")
