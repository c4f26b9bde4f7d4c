"""The offline stand-ins for models: they say what a good model would, and nothing is hidden about
it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolCall
from langchain_core.utils.function_calling import convert_to_openai_tool

FIX = (Path(__file__).parent / "fix.patch").read_text()

PLAN = """\
1. Run the tests and read what fails.
2. Read the conventions and the code that the failing test reaches.
3. Patch that code alone: tests and public names stay as they are.
4. Run the tests again, and remember the convention for next time."""

CONVENTION = (
    "Money is integer cents; a share halfway between two cents rounds half to even "
    "(decimal, ROUND_HALF_EVEN)."
)


class ScriptedChatModel(GenericFakeChatModel):
    """A chat model that reads its answers from a script and takes tools without looking at them."""

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        """Bind tools as most models do, so that they are recorded."""
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **kwargs)


def coding_model() -> ScriptedChatModel:
    """Return the model of the coding session: plan, look, patch, check, remember, report."""
    return ScriptedChatModel(
        messages=iter(
            [
                AIMessage(PLAN, tool_calls=[_call("run_tests", 1)]),
                AIMessage(
                    "The rounding of interest fails. What does the project say about rounding?",
                    tool_calls=[
                        _call("read_file", 2, path="CONVENTIONS.md"),
                        _call("read_file", 3, path="ledger/money.py"),
                    ],
                ),
                patching_answer(),
                AIMessage("Now the tests.", tool_calls=[_call("run_tests", 5)]),
                AIMessage(
                    "All pass. The convention is worth keeping.",
                    tool_calls=[
                        _call("remember_convention", 6, text=CONVENTION, path="CONVENTIONS.md")
                    ],
                ),
                AIMessage(
                    "Fixed: `share` rounds half to even now. Tests and public names are unchanged."
                ),
            ]
        )
    )


def patching_answer() -> AIMessage:
    """Return the answer of the model in the patch step."""
    return AIMessage(
        "`share` rounds half up through a float; the convention asks for half to even.",
        tool_calls=[_call("apply_patch", 4, patch=FIX)],
    )


def tidying_model() -> ScriptedChatModel:
    """Return the model of the tidier: it looks, removes what was generated, and then goes too
    far.
    """
    return ScriptedChatModel(
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


Answer = Callable[[Any], Any]
