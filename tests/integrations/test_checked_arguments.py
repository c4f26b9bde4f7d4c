"""What rules decide over is what the tool gets, in each runtime: values that a schema converts,
defaults, lists, nested records and aliases.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Annotated, Any

import pytest
from langchain_core.tools import StructuredTool
from llama_index.core.tools import FunctionTool, ToolMetadata
from pydantic import BaseModel, BeforeValidator, Field
from pydantic_ai import Tool as PydanticAITool
from tests.integrations.mcp_clients import connected, payload
from tests.integrations.runtimes.base import Outcome, Runtime, Script, call
from tests.integrations.runtimes.langchain import LangChain, LangGraph
from tests.integrations.runtimes.llama_index import LlamaIndex
from tests.integrations.runtimes.pydantic_ai import PydanticAI
from tests.integrations.runtimes.ruling import ANNA, BOT, KEY, rule
from tests.integrations.served import served

from tallystick import PolicyRule, Tally
from tallystick.errors import Blocked, InvalidInput
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
    """Tools that wipe, one for each case, and the arguments that they got."""

    def __init__(self, names: Iterable[str] = ("wipe",)) -> None:
        self.got: dict[str, list[Any]] = {name: [] for name in names}
        self.tools: list[Any] = [self._tool(name) for name in names]

    def _tool(self, name: str) -> Any:
        def wipe(
            force: bool = True,
            n: int = 100,
            files: list[str] | None = None,
            options: Options | None = None,
        ) -> str:
            """Wipe files."""
            self.got[name].append(
                json_arguments({"force": force, "n": n, "files": files, "options": options})
            )
            return f"{name} ran"

        wipe.__name__ = name
        # LlamaIndex looks for the classes itself, which are text in this module.
        wipe.__annotations__.update(
            force=bool, n=int, files=list[str] | None, options=Options | None
        )
        return wipe


CASES: dict[str, tuple[dict[str, Any], str, Any]] = {
    "true_text": ({"force": "true"}, "$.force", True),
    "true_number": ({"force": 1}, "$.force", True),
    "true_yes": ({"force": "yes"}, "$.force", True),
    "true_default": ({}, "$.force", True),
    "number_text": ({"n": "100"}, "$.n", 100),
    "number_with_spaces": ({"n": " 100 "}, "$.n", 100),
    "whole_fraction": ({"n": 100.0}, "$.n", 100),
    "number_default": ({}, "$.n", 100),
    "list": ({"files": ["/etc/shadow"]}, "$.files", "/etc/shadow"),
    "value_of_list": ({"files": ["\nrm"]}, "$.files[*]", "\nrm"),
    "nested_text": ({"options": {"force": "on"}}, "$.options.force", True),
    "nested_list": ({"options": {"steps": ["7"]}}, "$.options.steps[0]", 7),
    "alias": ({"options": {"path": "/etc"}}, "$.options.place", "/etc"),
    "read_once": ({"options": {"raised": 1}}, "$.options.raised", 2),
}
"""What a model writes, and the value at a path that the tool makes of it."""

OPEN_OBJECT = {"type": "object", "properties": {"force": {"type": "boolean", "default": True}}}
SCHEMA: dict[str, Any] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {
        "force": {"type": "boolean", "default": True},
        "n": {"type": "integer", "default": 100},
        "files": {"type": "array", "items": {"type": "string"}},
        "options": {"anyOf": [{"$ref": "#/definitions/options"}, {"type": "null"}]},
        "note": {"type": "string", "default": None},
    },
    "definitions": {"options": OPEN_OBJECT},
}
"""The schema of a tool of a server, with a default that it refuses itself."""
REFUSED: list[dict[str, Any]] = [
    {"force": "true"},
    {"force": 1},
    {"force": "yes"},
    {"force": None},
    {"n": "100"},
    {"n": " 100 "},
    {"n": 100.0},
    {"n": True},
    {"files": "/etc/shadow"},
    {"files": [1]},
    {"options": {"force": "on"}},
    {"options": [{"force": True}]},
]
"""What a lax server would convert."""
COMPLETED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"force": True, "n": 100}),
    ({"n": 7, "files": ["\nrm"]}, {"force": True, "n": 7, "files": ["\nrm"]}),
    ({"options": {}}, {"force": True, "n": 100, "options": {"force": True}}),
    ({"force": False, "options": None}, {"force": False, "n": 100, "options": None}),
]
"""What a model writes, and what the server gets."""


class CheckedContract:
    """A runtime runs a tool with the arguments that rules decided over, and with no others."""

    runtime: Runtime

    def tool_of_schema(self, name: str, got: list[Any]) -> Any:
        """Return a tool with a JSON Schema alone, as the runtime has those of a server."""
        raise NotImplementedError

    def wipe(self, tally: Tally, wiper: Wiper, written: dict[str, Any]) -> Outcome:
        """Run an agent whose model calls the tool once with what is `written`."""
        return self.call_all(tally, wiper.tools, {"wipe": written})

    def call_all(
        self, tally: Tally, tools: list[Any], written: dict[str, dict[str, Any]]
    ) -> Outcome:
        """Run an agent whose model calls all of these tools at once."""
        script = Script([call(name, **each) for name, each in written.items()], "done")
        return self.runtime.run(script, tools, ruled=tally.bind(BOT), asks=False)

    def test_a_value_is_judged_as_the_tool_gets_it(self, open_sqlite: OpenTally) -> None:
        rules = [rule("deny", tool_class=("destructive",))]
        written: dict[str, dict[str, Any]] = {}
        for name, (each, path, value) in CASES.items():
            denied, allowed = f"deny_{name}", f"allow_{name}"
            written |= {denied: each, allowed: each}
            rules += [_on("deny", denied, path, value, priority=2)]
            rules += [_on("allow", tool, path, value, priority=1) for tool in (denied, allowed)]
        with open_sqlite(rules=rules) as tally:
            wiper = Wiper(written)
            outcome = self.call_all(tally, wiper.tools, written)
        assert outcome.text == "done"
        assert len(outcome.tools) == len(written)
        results = "\n".join(result.text for result in outcome.tools)
        for name, (_, path, value) in CASES.items():
            assert f"stopped by rule deny-deny_{name}" in results, name
            assert wiper.got[f"deny_{name}"] == [], name
            [got] = wiper.got[f"allow_{name}"]
            condition = ArgumentCondition(path=path, equals=value)
            assert meets_condition(condition, got, restricts=False), name

    def test_what_a_schema_of_json_refuses_is_refused_before_the_rules(
        self, open_sqlite: OpenTally
    ) -> None:
        got: dict[str, list[Any]] = {f"wipe_{place}": [] for place in range(len(REFUSED))}
        tools = [self.tool_of_schema(name, got[name]) for name in got]
        # What a rule makes of these values is no matter: nothing may run with them.
        with open_sqlite(rules=[rule("allow", tool_class=("destructive",))]) as tally:
            outcome = self.call_all(tally, tools, dict(zip(got, REFUSED, strict=True)))
        assert outcome.text == "done"
        assert [name for name in got if got[name]] == []
        for result in outcome.tools:
            assert result.failed, result
            assert "is not valid by the schema" in result.text

    def test_a_server_gets_the_defaults_that_rules_saw(self, open_sqlite: OpenTally) -> None:
        got: dict[str, list[Any]] = {f"wipe_{place}": [] for place in range(len(COMPLETED))}
        denied: list[Any] = []
        tools = [self.tool_of_schema(name, got[name]) for name in got]
        tools.append(self.tool_of_schema("denied", denied))
        written = {name: each for name, (each, _) in zip(got, COMPLETED, strict=True)}
        with open_sqlite(rules=[_on("deny", "denied", "$.force", True)]) as tally:
            outcome = self.call_all(tally, tools, {**written, "denied": {}})
        assert [got[name] for name in got] == [[values] for _, values in COMPLETED]
        assert denied == []
        assert "stopped by rule deny-denied" in "".join(each.text for each in outcome.tools)

    def test_an_approval_is_of_the_arguments_that_the_tool_gets(
        self, open_sqlite: OpenTally
    ) -> None:
        cases = {name: dict(written) for name, (written, _, _) in CASES.items()}
        for each in cases.values():
            if each.setdefault("options", None) is not None:
                each["options"] = {"number": 3, **each["options"]}
        with open_sqlite(rules=[rule("require_approval", tool=tuple(cases))]) as tally:
            wiper, person = Wiper(cases), tally.bind(ANNA)
            asked: dict[str, list[Any]] = {}
            for (name, written), tool in zip(cases.items(), wiper.tools, strict=True):
                with suppress(*self.runtime.unasked):
                    self.call_all(tally, [tool], {name: written})
                [approval] = person.approvals.list()
                person.approvals.approve(approval.id, reason="fine")
                asked[name] = [approval.arguments]
            assert not any(wiper.got.values())
            self.call_all(tally, wiper.tools, cases)
            assert wiper.got == asked

    def test_a_default_that_is_made_anew_is_made_once(self, open_sqlite: OpenTally) -> None:
        with open_sqlite(rules=[rule("require_approval", tool=("wipe",))]) as tally:
            wiper, person = Wiper(), tally.bind(ANNA)
            for _ in range(2):
                with suppress(*self.runtime.unasked):
                    self.wipe(tally, wiper, {"options": {}})
                [asked, *_] = person.approvals.list()
                person.approvals.approve(asked.id, reason="fine")
            assert wiper.got["wipe"] == []

    def test_what_the_schema_refuses_is_the_tools_own_error(self, open_sqlite: OpenTally) -> None:
        with open_sqlite(rules=[rule("allow", tool=("wipe",))]) as tally:
            wiper = Wiper()
            for written in ({"force": "perhaps"}, {"n": "many"}, {"options": {"steps": 1}}):
                outcome = self.wipe(tally, wiper, written)
                assert (outcome.text, wiper.got["wipe"]) == ("done", []), written
                assert outcome.tools[0].failed
                assert "valid" in outcome.tools[0].text

    def test_redaction_keeps_the_types_of_the_tool(self, open_sqlite: OpenTally) -> None:
        with open_sqlite(rules=[rule("redact", tool=("wipe",))]) as tally:
            wiper = Wiper()
            written = {"n": "7", "files": [KEY], "options": {"path": KEY, "raised": 1}}
            self.wipe(tally, wiper, written)
            [got] = wiper.got["wipe"]
            assert (got["n"], got["options"]["raised"]) == (7, 2)
            assert [got["options"]["place"]] == got["files"]
            assert got["files"][0].startswith("[redacted:")


class _OfLangChain(CheckedContract):
    def tool_of_schema(self, name: str, got: list[Any]) -> Any:
        def wipe(**arguments: Any) -> str:
            got.append(arguments)
            return "ran"

        async def wipe_async(**arguments: Any) -> str:
            return wipe(**arguments)

        return StructuredTool(
            name=name,
            description="Wipe files.",
            args_schema=SCHEMA,
            func=wipe,
            coroutine=wipe_async,
        )


class TestLangChain(_OfLangChain):
    runtime = LangChain()


class TestLangChainAsync(_OfLangChain):
    runtime = LangChain("ainvoke")


class TestLangGraph(_OfLangChain):
    runtime = LangGraph()


class TestPydanticAI(CheckedContract):
    runtime = PydanticAI()

    def tool_of_schema(self, name: str, got: list[Any]) -> Any:
        def wipe(**arguments: Any) -> str:
            got.append(arguments)
            return "ran"

        return PydanticAITool.from_schema(wipe, name, "Wipe files.", SCHEMA)


@pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")
class TestLlamaIndex(CheckedContract):
    runtime = LlamaIndex()

    def tool_of_schema(self, name: str, got: list[Any]) -> Any:
        def wipe(**arguments: Any) -> str:
            got.append(arguments)
            return "ran"

        return FunctionTool(wipe, _OfServer("Wipe files.", name))


class _OfServer(ToolMetadata):
    def get_parameters_dict(self) -> dict[str, Any]:
        return SCHEMA


def test_a_check_reads_the_arguments_by_the_schema_that_it_is_given(tmp_path: Path) -> None:
    """In the process and over HTTP, with rules and without."""
    [(_, expected), *_] = COMPLETED
    with (
        served(tmp_path, rules=[_on("deny", "wipe", "$.force", True)]) as there,
        there.remote() as remote,
    ):
        check = there.tally.bind(BOT).check_tool_call
        for name in ("wipe", "other"):
            for written in (*REFUSED, '{"force": true, "force": false}'):
                with pytest.raises(InvalidInput):
                    check(name, written, input_schema=SCHEMA)
            with pytest.raises(InvalidInput):
                remote.check_call("tool_call", name, {"force": "true"}, input_schema=SCHEMA)
        assert check("other", {}, input_schema=SCHEMA).arguments == expected
        checked = remote.check_call("tool_call", "other", {}, input_schema=SCHEMA)
        assert checked.arguments == expected
        schemas: list[dict[str, Any]] = [{"type": 5}, {"$ref": "http://127.0.0.1:9/schema"}]
        for schema in schemas:
            with pytest.raises(InvalidInput, match="cannot be checked"):
                check("other", {}, input_schema=schema)
        for ask in (check, partial(remote.check_call, "tool_call")):
            with pytest.raises(Blocked):
                ask("wipe", {}, input_schema=SCHEMA)


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


def _on(effect: str, tool: str, path: str, value: Any, *, priority: int = 0) -> PolicyRule:
    on = (ArgumentCondition(path=path, equals=value),)
    name = f"{effect}-{tool}"
    return rule(effect, tool=(tool,), arguments=on).replace(id=name, name=name, priority=priority)
