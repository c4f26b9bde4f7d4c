"""The offline stand-in for the models of the desk: calls and answers by rule."""

from __future__ import annotations

import re
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult

TRIPS = {"oslo": "the night train at 22:10, 14 hours", "riga": "the ferry at 18:00, 17 hours"}


class ScriptedDesk(BaseChatModel):
    """Notes a wish in a file, sends a researcher for trips, and books what is asked for."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **options: Any) -> Any:
        """Return the model itself: it knows its tools."""
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **options: Any) -> ChatResult:
        turn = [message.type for message in messages]
        place = len(turn) - 1 - turn[::-1].index("human")
        request, results = messages[place].text, messages[place + 1 :]
        message = self._next(request, messages, [each for each in results if each.type == "tool"])
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _next(
        self, request: str, messages: list[BaseMessage], results: list[BaseMessage]
    ) -> AIMessage:
        if wish := re.fullmatch(r"Remember: (.+)", request):
            file = {"file_path": "/memories/wishes.md", "content": f"# Wishes\n{wish[1]}"}
            return AIMessage("Noted.") if results else _call("write_file", file)
        if booking := re.fullmatch(r"Book (.+)\.", request):
            return AIMessage(results[0].text) if results else _call("book", {"journey": booking[1]})
        if not results:
            return _call("task", {"description": request, "subagent_type": "researcher"})
        wishes = re.findall(r"I like [\w ]+\.", "\n".join(each.text for each in messages))
        return AIMessage(" ".join([results[0].text, *dict.fromkeys(wishes)]))


class ScriptedResearcher(ScriptedDesk):
    """Looks a trip up."""

    def _next(
        self, request: str, messages: list[BaseMessage], results: list[BaseMessage]
    ) -> AIMessage:
        if results:
            return AIMessage(f"There is {results[0].text}.")
        return _call("timetable", {"city": request.rpartition(" ")[2].strip("?")})


def _call(name: str, arguments: dict[str, Any]) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": name, "args": arguments, "id": f"call_{name}"}])
