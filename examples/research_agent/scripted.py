"""The offline stand-ins for models: a researcher that works by rule, and a summariser that says the
first sentence of what it was given.
"""

from __future__ import annotations

import re
from typing import Any

from pydantic_ai import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.messages import RetryPromptPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

PAGE = "https://archive.example/heron-bridge"


def researching_model() -> FunctionModel:
    """Return the model of the researcher: search, read, note what is claimed, try to publish."""
    return FunctionModel(_research, model_name="scripted")


def summarising_model() -> FunctionModel:
    """Return the model of the summariser."""
    return FunctionModel(_summarise, model_name="scripted")


def _research(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    parts = [part for message in messages for part in message.parts]
    answers: list[Any] = [
        part.content for part in parts if isinstance(part, ToolReturnPart | RetryPromptPart)
    ]
    documents = [
        document
        for answer in answers[:2]
        for document in (answer if isinstance(answer, list) else [answer])
    ]

    def note(claim: str, words: str, **contradicts: str) -> ModelResponse:
        document = next(each for each in documents if words in each["text"])
        origin = {"document": document["id"], "address": document["address"]}
        return _call("note", claim=claim, **origin, **contradicts)

    match len(answers):
        case 0:
            return _call("search", query="When was the Heron Bridge opened, and how long is it?")
        case 1:
            return _call("read_page", url=PAGE)
        case 2:
            return note("The Heron Bridge is 212 metres long.", "212 metres")
        case 3:
            return note("The Heron Bridge was opened in 1931.", "in 1931")
        case 4:
            claim = "The Heron Bridge was opened in 1933."
            return note(claim, "spring of 1933", contradicts=answers[3])
        case 5:
            return note("The first toll on the Heron Bridge was taken on 4 May 1933.", "Toll book")
        case 6:
            return _call("publish", report="The Heron Bridge")
        case _:
            return ModelResponse(parts=[TextPart("The report is ready; a person publishes it.")])


def _summarise(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    texts = [
        str(part.content)
        for message in messages
        for part in message.parts
        if isinstance(part, UserPromptPart)
    ]
    claims = re.findall(r"The Heron Bridge[^.]*\.", "\n".join(texts))
    return ModelResponse(parts=[TextPart(claims[0] if claims else "I was given nothing.")])


def _call(name: str, **arguments: Any) -> ModelResponse:
    return ModelResponse(parts=[ToolCallPart(name, arguments)])
