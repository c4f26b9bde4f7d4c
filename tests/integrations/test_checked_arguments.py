"""What rules decide over is what the tool gets, in each runtime: values that a schema converts,
defaults, lists, nested records and aliases.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, BeforeValidator, Field
from tests.integrations.mcp_clients import connected, payload
from tests.integrations.runtimes.base import Outcome, Runtime, Script, call
from tests.integrations.runtimes.langchain import LangChain, LangGraph
from tests.integrations.runtimes.llama_index import LlamaIndex
from tests.integrations.runtimes.pydantic_ai import PydanticAI
from tests.integrations.runtimes.ruling import ANNA, BOT, KEY, rule
from tests.integrations.served import served

from tallystick import PolicyRule, Tally
from tallystick.errors import Blocked
from tallystick.policy.arguments import json_arguments, meets_condition
from tallystick.records import ArgumentCondition, ModelToolCall
from tallystick_mcp import serve
from tallystick_mcp.arguments import Search
from tallystick_openai import memory_tools as openai_tools

OpenTally = Callable[..., Tally]
_NUMBERS = count(1)


class Options(BaseModel):
    """A nested record, with an alias, and a field that is another one each time it is read."""

    force: bool = False
    place: str = Field(default="here", alias="path")
    steps: list[int] = []
    raised: Annotated[int, BeforeValidator(lambda value: int(value) + 1)] = 0
    number: int = Field(default_factory=lambda: next(_NUMBERS))


class Wiper:
    """A tool that wipes, and the arguments that it got."""

    def __init__(self) -> None:
        self.got: list[Any] = []

        def wipe(
            force: bool = True,
            n: int = 100,
            files: list[str] | None = None,
            options: Options | None = None,
        ) -> str:
            """Wipe files."""
            self.got.append(
                json_arguments({"force": force, "n": n, "files": files, "options": options})
            )
            return "wiped"

        # LlamaIndex looks for the classes itself, which are text in this module.
        wipe.__annotations__.update(
            force=bool, n=int, files=list[str] | None, options=Options | None
        )
        self.tools: list[Any] = [wipe]


CASES = [
    pytest.param({"force": "true"}, "$.force", True, id="a text that is true"),
    pytest.param({"force": 1}, "$.force", True, id="one that is true"),
    pytest.param({"force": "yes"}, "$.force", True, id="a yes that is true"),
    pytest.param({}, "$.force", True, id="a default that is true"),
    pytest.param({"n": "100"}, "$.n", 100, id="a text that is a number"),
    pytest.param({"n": " 100 "}, "$.n", 100, id="a text with spaces"),
    pytest.param({"n": 100.0}, "$.n", 100, id="a whole fraction"),
    pytest.param({}, "$.n", 100, id="a default that is a number"),
    pytest.param({"files": ["/etc/shadow"]}, "$.files", "/etc/shadow", id="a list"),
    pytest.param({"files": ["\nrm"]}, "$.files[*]", "\nrm", id="a value of a list"),
    pytest.param({"options": {"force": "on"}}, "$.options.force", True, id="a nested text"),
    pytest.param({"options": {"steps": ["7"]}}, "$.options.steps[0]", 7, id="a nested list"),
    pytest.param({"options": {"path": "/etc"}}, "$.options.place", "/etc", id="an alias"),
    pytest.param({"options": {"raised": 1}}, "$.options.raised", 2, id="read once"),
]


class CheckedContract:
    """A runtime runs a tool with the arguments that rules decided over, and with no others."""

    runtime: Runtime

    def wipe(self, tally: Tally, wiper: Wiper, written: dict[str, Any]) -> Outcome:
        """Run an agent whose model calls the tool once with what is `written`."""
        script = Script([call("wipe", **written)], "done")
        return self.runtime.run(script, wiper.tools, ruled=tally.bind(BOT), asks=False)

    @pytest.mark.parametrize(("written", "path", "value"), CASES)
    def test_a_value_is_denied_as_the_tool_would_get_it(
        self, open_sqlite: OpenTally, written: dict[str, Any], path: str, value: Any
    ) -> None:
        with open_sqlite(rules=[_on("deny", path, value)]) as tally:
            wiper = Wiper()
            outcome = self.wipe(tally, wiper, written)
            assert (outcome.text, wiper.got) == ("done", [])
            assert "stopped by rule deny-tool_call" in outcome.tools[0].text

    @pytest.mark.parametrize(("written", "path", "value"), CASES)
    def test_a_value_is_allowed_as_the_tool_gets_it(
        self, open_sqlite: OpenTally, written: dict[str, Any], path: str, value: Any
    ) -> None:
        allow = _on("allow", path, value).replace(priority=1)
        with open_sqlite(rules=[allow, rule("deny", tool=("wipe",))]) as tally:
            wiper = Wiper()
            self.wipe(tally, wiper, written)
            [got] = wiper.got
            assert meets_condition(allow.conditions.arguments[0], got, restricts=False)

    @pytest.mark.parametrize(("written", "path", "value"), CASES)
    def test_an_approval_is_of_the_arguments_that_the_tool_gets(
        self, open_sqlite: OpenTally, written: dict[str, Any], path: str, value: Any
    ) -> None:
        written = {**written, "options": written.get("options")}
        if written["options"] is not None:
            written["options"] = {"number": 3, **written["options"]}
        with open_sqlite(rules=[rule("require_approval", tool=("wipe",))]) as tally:
            wiper, person = Wiper(), tally.bind(ANNA)
            with suppress(*self.runtime.unasked):
                self.wipe(tally, wiper, written)
            [asked] = person.approvals()
            person.approve(asked.id, reason="fine")
            self.wipe(tally, wiper, written)
            assert wiper.got == [asked.arguments]

    def test_a_default_that_is_made_anew_is_made_once(self, open_sqlite: OpenTally) -> None:
        with open_sqlite(rules=[rule("require_approval", tool=("wipe",))]) as tally:
            wiper, person = Wiper(), tally.bind(ANNA)
            for _ in range(2):
                with suppress(*self.runtime.unasked):
                    self.wipe(tally, wiper, {"options": {}})
                [asked, *_] = person.approvals()
                person.approve(asked.id, reason="fine")
            assert wiper.got == []

    @pytest.mark.parametrize(
        "written", [{"force": "perhaps"}, {"n": "many"}, {"options": {"steps": 1}}]
    )
    def test_what_the_schema_refuses_is_the_tools_own_error(
        self, open_sqlite: OpenTally, written: dict[str, Any]
    ) -> None:
        with open_sqlite(rules=[rule("allow", tool=("wipe",))]) as tally:
            wiper = Wiper()
            outcome = self.wipe(tally, wiper, written)
            assert (outcome.text, wiper.got) == ("done", [])
            assert outcome.tools[0].failed
            assert "valid" in outcome.tools[0].text

    def test_redaction_keeps_the_types_of_the_tool(self, open_sqlite: OpenTally) -> None:
        with open_sqlite(rules=[rule("redact", tool=("wipe",))]) as tally:
            wiper = Wiper()
            written = {"n": "7", "files": [KEY], "options": {"path": KEY, "raised": 1}}
            self.wipe(tally, wiper, written)
            [got] = wiper.got
            assert (got["n"], got["options"]["raised"]) == (7, 2)
            assert [got["options"]["place"]] == got["files"]
            assert got["files"][0].startswith("[redacted:")


class TestLangChain(CheckedContract):
    runtime = LangChain()


class TestLangChainAsync(CheckedContract):
    runtime = LangChain("ainvoke")


class TestLangGraph(CheckedContract):
    runtime = LangGraph()


class TestPydanticAI(CheckedContract):
    runtime = PydanticAI()


@pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")
class TestLlamaIndex(CheckedContract):
    runtime = LlamaIndex()


def _over_runtime(runtime: Runtime) -> Callable[[Tally, dict[str, Any]], str]:
    def search(tally: Tally, written: dict[str, Any]) -> str:
        return runtime.use_tool(tally.bind(BOT), "memory_search", written).tools[0].text

    return search


def _over_sdk(tally: Tally, written: dict[str, Any]) -> str:
    tools = openai_tools(tally.bind(BOT))
    return str(tools.run(ModelToolCall(id="c1", name="memory_search", arguments=written)))


def _over_mcp(tally: Tally, written: dict[str, Any]) -> str:
    async def search() -> str:
        async with connected(serve(tally, actor=BOT), "auto") as client:
            return str(payload(await client.call_tool("search", written)))

    return asyncio.run(search())


DOORS = [
    pytest.param(_over_runtime(LangChain()), 5, id="langchain"),
    pytest.param(_over_runtime(PydanticAI()), 5, id="pydantic_ai"),
    pytest.param(_over_runtime(LlamaIndex()), 5, id="llama_index"),
    pytest.param(_over_sdk, 5, id="sdk"),
    pytest.param(_over_mcp, Search.model_fields["limit"].default, id="mcp"),
]


@pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")
@pytest.mark.parametrize(("search", "default"), DOORS)
def test_a_memory_tool_is_ruled_by_what_it_does(
    open_sqlite: OpenTally, search: Callable[[Tally, dict[str, Any]], str], default: int
) -> None:
    for limit, written in ((3, {"limit": "3"}), (3, {"limit": 3}), (default, {})):
        on = (ArgumentCondition(path="$.limit", equals=limit),)
        with open_sqlite(rules=[rule("deny", tool=("memory_search",), arguments=on)]) as tally:
            tally.bind(BOT).remember("Tea is at four.")
            assert "deny-tool_call" in search(tally, {"query": "tea", **written})
            assert "at four" in search(tally, {"query": "tea", "limit": "7"})


def test_a_memory_tool_over_http_is_ruled_by_what_it_does(tmp_path: Path) -> None:
    on = (ArgumentCondition(path="$.limit", one_of=(3, 5)),)
    with (
        served(tmp_path, rules=[rule("deny", tool=("memory_search",), arguments=on)]) as there,
        there.remote() as remote,
    ):
        remote.remember("Tea is at four.")
        for written in ({"limit": "3"}, {}):
            with pytest.raises(Blocked):
                remote.call_tool("memory_search", {"query": "tea", **written})
        assert "at four" in str(remote.call_tool("memory_search", {"query": "tea", "limit": "7"}))


def _on(effect: str, path: str, value: Any) -> PolicyRule:
    return rule(effect, tool=("wipe",), arguments=(ArgumentCondition(path=path, equals=value),))
