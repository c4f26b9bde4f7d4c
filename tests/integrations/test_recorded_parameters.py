"""What authorises a call of a model is never recorded, whatever the retention."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models import FakeListChatModel
from pydantic_ai import Agent
from pydantic_ai.capabilities import NativeTool
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.native_tools import MCPServerTool

from tallystick import Tally
from tallystick.settings import Settings
from tallystick.tally import BoundTally
from tallystick_langchain import TallyCallbackHandler
from tallystick_pydantic_ai import TallyRecorder

HEADERS = {"Authorization": "Bearer 5b1fe0a7c2", "X-Team": "red"}


def _langchain(bound: BoundTally) -> None:
    model = FakeListChatModel(responses=["Paris"])
    config = {"callbacks": [TallyCallbackHandler(bound, strict=True)]}
    server = {"type": "mcp", "server_label": "maps", "headers": HEADERS}
    arguments: Any = {
        "extra_headers": HEADERS,
        "temperature": 0,
        "tools": [server],
        "mcp_servers": [server],
    }
    model.invoke("Capital of France?", config=config, **arguments)  # type: ignore[arg-type]


def _pydantic_ai(bound: BoundTally) -> None:
    server = MCPServerTool(
        id="maps",
        url="https://maps.example",
        authorization_token=HEADERS["Authorization"],
        headers=HEADERS,
    )
    watched = [TallyRecorder(bound, strict=True), NativeTool(server)]
    agent = Agent(
        FunctionModel(lambda messages, info: ModelResponse([TextPart("Paris")])),
        capabilities=watched,
    )
    agent.run_sync(
        "Capital of France?", model_settings={"extra_headers": HEADERS, "temperature": 0}
    )


@pytest.mark.parametrize("runtime", [_langchain, _pydantic_ai])
def test_headers_given_to_a_model_are_in_no_payload(
    runtime: Callable[[BoundTally], None], tmp_path: Path
) -> None:
    settings = Settings.read(retention="full_payloads")
    with Tally.open(tmp_path / "tally", background=False, settings=settings) as tally:
        bound = tally.bind()
        runtime(bound)

        (step,) = bound.recordings.steps(bound.recordings.runs()[0].id)
        request = next(
            entry for entry in bound.recordings.entries(step.id) if entry.kind == "request"
        )
        assert "temperature" in str(request.payload)
        assert "maps" in str(request.payload)
        assert "extra_headers" not in str(request.payload)
    assert not any(
        b"5b1fe0a7c2" in file.read_bytes()
        for file in (tmp_path / "tally").rglob("*")
        if file.is_file()
    )
