"""A recorded request reads the same in the form of each provider; what is not known is not lost."""

from __future__ import annotations

from typing import Any

import pytest

from tallystick.kit.transcripts import (
    Message,
    OtherPart,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    answer_messages,
    request_messages,
    tool_result,
)
from tallystick.records import Json

CALL = ToolCallPart("c1", "look", {"at": "oak"})
SAID = [
    Message("system", (TextPart("Be brief."),)),
    Message("user", (TextPart("Where is it?"),)),
    Message("assistant", (CALL,)),
    Message("tool", (ToolResultPart("c1", "in the oak"),)),
]
RESPONSES = {
    "instructions": "Be brief.",
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "Where is it?"}]},
        {
            "type": "function_call",
            "call_id": "c1",
            "name": "look",
            "arguments": '{"at": "oak"}',
        },
        {"type": "function_call_output", "call_id": "c1", "output": "in the oak"},
    ],
}
MESSAGES = {
    "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
    "messages": [
        {"role": "user", "content": "Where is it?"},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "c1", "name": "look", "input": {"at": "oak"}}],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "in the oak"}],
        },
    ],
}


@pytest.mark.parametrize("request_of", [RESPONSES, MESSAGES], ids=["responses", "messages"])
def test_a_request_reads_the_same_whatever_the_provider(request_of: dict[str, Any]) -> None:
    assert request_messages(request_of) == SAID


@pytest.mark.parametrize(
    "answer",
    [
        {
            "output": [
                {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Look."}]},
                {"type": "message", "content": [{"type": "output_text", "text": "Looking."}]},
                {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{broken"},
            ]
        },
        {
            "answer": {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Look."},
                    {"type": "text", "text": "Looking."},
                    {"type": "tool_use", "id": "c1", "name": "look", "input": "{broken"},
                ],
            }
        },
    ],
    ids=["responses", "messages"],
)
def test_an_answer_keeps_what_was_thought_said_and_called(answer: dict[str, Any]) -> None:
    [message] = answer_messages(answer)
    assert message == Message(
        "assistant",
        (
            ReasoningPart("Look."),
            TextPart("Looking."),
            ToolCallPart("c1", "look", "{broken"),
        ),
    )


def test_what_is_not_known_stays_as_it_is() -> None:
    image: Json = {"type": "image", "source": {"data": "…"}}
    [message] = request_messages({"messages": [{"role": "user", "content": [image]}]})
    assert message.parts == (OtherPart("image", image),)
    unread: list[Json] = [None, 3, {}, {"redacted": True}]
    for payload in unread:
        assert request_messages(payload) == []
    assert request_messages({"prompt": "Say."}) == [Message("user", (TextPart("Say."),))]


@pytest.mark.parametrize(
    ("payload", "result"),
    [
        ({"result": "3 herons"}, "3 herons"),
        ({"result": {"type": "tool", "content": "3 herons"}}, "3 herons"),
        ({"result": None}, None),
        ({"error": "no pond"}, "no pond"),
        ({"herons": 3}, {"herons": 3}),
        ("3 herons", "3 herons"),
    ],
)
def test_a_result_of_a_tool_is_what_came_back(payload: Json, result: Json) -> None:
    assert tool_result(payload) == result
