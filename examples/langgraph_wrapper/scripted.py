"""The offline stand-in for a model: it proposes the trip that is asked for, and answers questions
from what stands in its context alone.
"""

from __future__ import annotations

import re
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult


class ScriptedChatModel(BaseChatModel):
    """A travel agent by rule."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        request = messages[-1].text
        if wanted := re.fullmatch(r"Book (.+)\.", request):
            text = f"trip: {wanted[1]}"
        else:
            booked = re.findall(r"Booked: ([\w ]+)", "\n".join(each.text for each in messages))
            text = (
                f"You go by {', '.join(sorted(set(booked)))}." if booked else "I know of no trip."
            )
        return ChatResult(generations=[ChatGeneration(message=AIMessage(text))])
