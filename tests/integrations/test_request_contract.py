"""The golden agent leaves the same receipts and pages in every runtime."""

from __future__ import annotations

import io
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
from llama_index.core.tools import FunctionTool
from rich.console import Console
from tests.integrations.dashboard import Browser
from tests.integrations.runtimes.base import Runtime, Script, call
from tests.integrations.runtimes.direct import Direct
from tests.integrations.runtimes.langchain import LangChain, LangGraph
from tests.integrations.runtimes.llama_index import LlamaIndex
from tests.integrations.runtimes.openai_agents import OpenAIAgents
from tests.integrations.runtimes.pydantic_ai import PydanticAI

from tallystick import Actor
from tallystick.records import StepRecord
from tallystick.tally import BoundTally
from tallystick.testing.request_contract import (
    ANSWERS,
    PLACE,
    PROMPTS,
    SYSTEM,
    TOOL_NAME,
    RequestContract,
    depth,
)
from tallystick_cli.views.runs import decision_table
from tallystick_server import serve_in_background

# LlamaIndex's agents look at every attribute of their pydantic selves, deprecated ones too.
_SPEAKS_OF_OLD_FIELDS = pytest.mark.filterwarnings(
    "ignore::pydantic.warnings.PydanticDeprecationWarning"
)


@pytest.fixture
def open_tally(open_sqlite: Any) -> Any:
    """The store of the contract, on SQLite or on PostgreSQL."""
    return open_sqlite


class _Played(RequestContract):
    runtime: ClassVar[Runtime]
    tool: ClassVar[Any] = staticmethod(depth)

    def play(self, bound: BoundTally) -> None:
        turns = [[call(TOOL_NAME, place=PLACE)] if words is None else words for words in ANSWERS]
        self.runtime.run(
            Script(*turns),
            [self.tool],
            system=SYSTEM,
            earlier=PROMPTS[:-1],
            prompt=PROMPTS[-1],
            recorded=bound,
            remembering=bound,
        )

    def pages(self, bound: BoundTally, step: StepRecord) -> Mapping[str, str]:
        out = io.StringIO()
        table = decision_table(*bound.recordings.compiled(step.id), width=200)
        Console(file=out, width=200).print(table)
        why = re.sub("[─━]+", "─", out.getvalue())
        return {"why": " ".join(why.split()), "step page": _step_page(bound, step)}


def _step_page(bound: BoundTally, step: StepRecord) -> str:
    """Return the part of the dashboard's page that says what was compiled."""
    root = bound.tally.bind(Actor(user="root", role="operator"))
    person = bound.actor.replace(agent=None)
    token = root.tokens.make("here", actor=person, token_class="session").secret
    with (
        tempfile.TemporaryDirectory() as folder,
        serve_in_background(bound.tally, uds=Path(folder) / "s", port=0) as (_, tcp),
        Browser(tcp, token) as browser,
    ):
        source = browser.get(f"steps/{step.id}").source
    section = source.partition('<section aria-labelledby="saw">')[2].partition("</section>")[0]
    assert "What the model saw" in section
    return section


class TestLangChain(_Played):
    runtime = LangChain()


class TestLangGraph(_Played):
    runtime = LangGraph()


class TestPydanticAI(_Played):
    runtime = PydanticAI()


class TestPydanticAIStream(_Played):
    runtime = PydanticAI("run_stream")


class TestOpenAIAgents(_Played):
    runtime = OpenAIAgents()


class TestOpenAIAgentsStream(_Played):
    runtime = OpenAIAgents("run_stream")


@_SPEAKS_OF_OLD_FIELDS
class TestLlamaIndex(_Played):
    runtime = LlamaIndex()
    # LlamaIndex would put the signature of a function before what it is for.
    tool = FunctionTool.from_defaults(depth, description=depth.__doc__)


class TestLlamaIndexStream(TestLlamaIndex):
    runtime = LlamaIndex("streamed run")


class TestCallModel(_Played):
    runtime = Direct("call_model")


class TestHTTP(_Played):
    runtime = Direct("http")
