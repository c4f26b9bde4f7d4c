"""The offline stand-in for a model: it works by rule, from what stands in its context alone.

It mends the rounding rightly where the convention is in its context, and guesses where it is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import unified_diff
from typing import Any, NamedTuple

from examples.coding_agent.workspace import SAMPLE
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolCall, ToolMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.utils import count_tokens_approximately
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.utils.function_calling import convert_to_openai_tool

PLAN = """\
1. Run the tests and read what fails.
2. Read the conventions and the code that the failing test reaches.
3. Patch that code alone: tests and public names stay as they are.
4. Run the tests again, look at the diff, and remember the convention for next time."""

CONVENTION = (
    "Money is integer cents; a share halfway between two cents rounds half to even "
    "(decimal, ROUND_HALF_EVEN)."
)
_BROKEN = (SAMPLE / "ledger/money.py").read_text(encoding="utf-8")
_LINE = "    return int(cents * per_mille / 1000 + 0.5)\n"
_GUESSED = _BROKEN.replace(_LINE, "    return (cents * per_mille + 499) // 1000\n")
_RIGHT = _BROKEN.replace(
    _LINE,
    "    exact = Decimal(cents) * per_mille / 1000\n"
    "    return int(exact.quantize(Decimal(1), rounding=ROUND_HALF_EVEN))\n",
).replace('cents."""\n', 'cents."""\n\nfrom decimal import ROUND_HALF_EVEN, Decimal\n', 1)


class Result(NamedTuple):
    """What a tool answered."""

    tool: str
    text: str


class Answer(NamedTuple):
    """What the model says, and the tools that it calls with their arguments."""

    text: str
    calls: Sequence[tuple[str, dict[str, str]]] = ()


def answer(context: str, results: Sequence[Result]) -> Answer:
    """Return the next answer to a context, from what the tools have answered so far."""
    if not results:
        return Answer(PLAN, [("run_tests", {})])
    latest = results[-1]
    patches = sum(result.tool == "apply_patch" for result in results)
    if latest.tool == "apply_patch" and latest.text != "applied":
        return Answer(f"I stop here: {latest.text}")
    if latest.tool == "apply_patch":
        return Answer("Now the tests.", [("run_tests", {})])
    if latest.tool == "read_file":
        return _patch(knows="ROUND_HALF_EVEN" in context, is_second=patches > 0)
    if latest.tool == "shell":
        arguments = {"text": CONVENTION, "path": "CONVENTIONS.md"}
        return Answer("The convention is worth keeping.", [("remember_convention", arguments)])
    if latest.tool == "remember_convention":
        return Answer(
            "Fixed: `share` rounds half to even now. Tests and public names are unchanged."
        )
    if "failed" not in latest.text:
        return Answer("All pass. What has changed?", [("shell", {"command": "git diff"})])
    if patches:
        text = "My guess was wrong. What does the project say about rounding?"
        return Answer(text, [("read_file", {"path": "CONVENTIONS.md"})])
    return Answer(
        "The rounding of interest fails. Where is it done?",
        [("read_file", {"path": "ledger/money.py"})],
    )


def _patch(*, knows: bool, is_second: bool) -> Answer:
    before = _GUESSED if is_second else _BROKEN
    after = _RIGHT if knows else _GUESSED
    why = (
        "`share` rounds half up through a float; the convention asks for half to even."
        if knows
        else "`share` goes through a float. Integers, rounding half down, should do."
    )
    return Answer(why, [("apply_patch", {"patch": _diff(before, after)})])


def _diff(before: str, after: str) -> str:
    lines = unified_diff(
        before.splitlines(keepends=True),
        after.splitlines(keepends=True),
        "a/ledger/money.py",
        "b/ledger/money.py",
    )
    return "".join(lines)


class ScriptedChatModel(BaseChatModel):
    """The stand-in as a chat model of LangChain."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        """Bind tools as most models do, so that they are recorded."""
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **kwargs)

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        names = {
            call["id"]: call["name"]
            for message in messages
            if isinstance(message, AIMessage)
            for call in message.tool_calls
        }
        results = [
            Result(names[message.tool_call_id], message.text)
            for message in messages
            if isinstance(message, ToolMessage)
        ]
        text, calls = answer("\n".join(message.text for message in messages), results)
        tool_calls = [
            ToolCall(name=name, args=arguments, id=f"call_{len(results) + number}")
            for number, (name, arguments) in enumerate(calls, 1)
        ]
        message = AIMessage(text, tool_calls=tool_calls)
        # What a model's own tokenizer would count, at four characters a token.
        sent, said = (count_tokens_approximately(each) for each in (messages, [message]))
        message.usage_metadata = UsageMetadata(
            input_tokens=sent, output_tokens=said, total_tokens=sent + said
        )
        return ChatResult(generations=[ChatGeneration(message=message)])
