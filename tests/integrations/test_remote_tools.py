"""Memory tools of a tally that is served: its rules hold, and runtimes get what it answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from llama_index.core.schema import MetadataMode
from llama_index_instrumentation.dispatcher import instrument_tags

from tallystick.errors import ActionDenied, ApprovalRequired, Denied, InvalidInput, NotFound
from tallystick.kit.rendering import without_frames
from tallystick.operations import MEMORY_TOOLS
from tallystick.records import JsonObject, ModelToolCall, PolicyConditions, PolicyRule
from tallystick.records.framing import CLOSE
from tallystick_langchain import memory_tools as langchain_tools
from tallystick_llama_index import TallyRetriever
from tallystick_llama_index import memory_tools as llama_tools
from tallystick_openai import memory_tools as responses_tools
from tallystick_server import RemoteTally

from .runtimes.base import Runtime
from .runtimes.langchain import LangChain
from .runtimes.llama_index import TOOLS_WAIT, LlamaIndex
from .runtimes.pydantic_ai import PydanticAI
from .served import ADA, BOB, Served, problem, served

# LlamaIndex's agents look at every attribute of their pydantic selves, deprecated ones too.
pytestmark = pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")


def _rule(tool: str, effect: Any) -> PolicyRule:
    return PolicyRule(
        id=f"{effect}-{tool}",
        name=f"{effect} {tool}",
        effect=effect,
        applies_to="tool_call",
        conditions=PolicyConditions(tool=(tool,)),
    )


RULES = [
    _rule("memory_list", "deny"),
    _rule("memory_modify", "require_approval"),
    _rule("memory_get", "require_receipt"),
    _rule("memory_store", "redact"),
]


@pytest.fixture(scope="module")
def ruled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("ruled"), rules=RULES) as there:
        yield there


@pytest.fixture
def remote(ruled: Served) -> Iterator[RemoteTally]:
    with ruled.remote() as remote:
        yield remote


def test_a_memory_tool_answers_over_http_as_it_does_here(
    ruled: Served, remote: RemoteTally
) -> None:
    remote.remember("The kiln stands in the yard.")
    over_http = remote.call_tool("memory_search", {"query": "kiln", "limit": 2})
    direct = MEMORY_TOOLS["memory_search"].function(ruled.tally.bind(ADA), "kiln", 2)

    assert over_http == direct
    refused = remote.call_tool("memory_forget", {"memory_id": "nope", "reason": "r"})
    assert refused["error"] == "NotFound"


def test_a_tool_that_a_rule_denies_is_refused_over_http(ruled: Served, remote: RemoteTally) -> None:
    refused = ruled.http(ruled.token()).post("/v1/tools/memory_list", json={})

    assert (refused.status_code, problem(refused)["code"]) == (403, "action_denied")
    assert problem(refused)["facts"]["rule_id"] == "deny-memory_list"
    with pytest.raises(ActionDenied) as denied:
        remote.call_tool("memory_list", {})
    assert denied.value.reason == "denied_by_rule"


def test_an_approval_of_a_tool_is_asked_for_once_and_used_once(
    ruled: Served, remote: RemoteTally
) -> None:
    stored = remote.remember("The kiln is cold.")
    change: JsonObject = {
        "memory_id": stored.id,
        "content": "The kiln is hot.",
        "reason": "It was lit.",
        "if_version": 1,
    }
    with pytest.raises(ApprovalRequired) as first:
        remote.call_tool("memory_modify", change)
    with pytest.raises(ApprovalRequired) as second:
        remote.call_tool("memory_modify", change)
    [waiting] = first.value.approvals
    unchanged = remote.get(stored.id).content
    with ruled.remote(ADA, token_class="session") as person:
        person.approvals.approve(waiting.id, reason="Looked at it.")
    answer = remote.call_tool("memory_modify", change)

    assert second.value.facts() == first.value.facts()
    assert unchanged == "The kiln is cold."
    assert (answer["status"], remote.get(stored.id).content) == ("changed", "The kiln is hot.")
    with pytest.raises(ApprovalRequired) as third:
        remote.call_tool("memory_modify", change)
    assert third.value.approvals[0].id != waiting.id


def test_a_tool_that_needs_a_receipt_runs_inside_of_a_run_alone(remote: RemoteTally) -> None:
    stored = remote.remember("Herons eat fish.")
    with pytest.raises(ActionDenied) as denied:
        remote.call_tool("memory_get", {"memory_id": stored.id})
    with remote.run("coder") as run:
        answer = remote.call_tool("memory_get", {"memory_id": stored.id})

    assert denied.value.reason == "receipt_required"
    assert "Herons eat fish." in json.dumps(answer)
    assert "policy_check" in [step.step_kind for step in remote.recordings.steps(run.id)]


def test_what_a_rule_redacts_never_reaches_the_memory(remote: RemoteTally) -> None:
    secret = "AKIAIOSFODNN7EXAMPLE"
    stored = remote.call_tool("memory_store", {"content": f"The key is {secret}."})

    assert secret not in remote.get(str(stored["id"])).content


@pytest.mark.parametrize(
    "arguments", [{"query": ["x"]}, {"query": "x", "limit": "many"}, {}, {"query": "x", "more": 1}]
)
def test_arguments_that_do_not_fit_are_named(remote: RemoteTally, arguments: Any) -> None:
    with pytest.raises(InvalidInput):
        remote.call_tool("memory_search", arguments)


def test_a_number_that_a_model_writes_as_text_is_a_number(remote: RemoteTally) -> None:
    assert "error" not in remote.call_tool("memory_search", {"query": "kiln", "limit": "3"})


def _through(runtime: Runtime) -> Callable[..., Any]:
    """Return what calls a tool in an agent of a runtime; where it asks, the person says yes."""

    def call_tool(remote: RemoteTally, tool: str, arguments: dict[str, Any]) -> Any:
        agreed = {"answers": lambda question: True}
        return runtime.use_tool(remote, tool, arguments, **agreed).values[0]

    return call_tool


def _plain(remote: RemoteTally, tool: str, arguments: dict[str, Any]) -> Any:
    """What a tool returns to code that calls an SDK itself, where a person says yes."""
    tools = responses_tools(remote, ask=lambda question: True)
    return tools.run(ModelToolCall(id="c1", name=tool, arguments=arguments))


_WAITS = pytest.mark.skipif(
    not TOOLS_WAIT, reason="this release of LlamaIndex does not let tools of agents wait"
)


@pytest.mark.parametrize(
    "through",
    [
        pytest.param(_through(LangChain()), id="langchain"),
        pytest.param(_through(LlamaIndex()), id="llama_index", marks=_WAITS),
        pytest.param(_through(PydanticAI()), id="pydantic_ai"),
        pytest.param(_plain, id="plain"),
    ],
)
def test_an_agent_of_each_runtime_works_with_the_memory_of_a_server(
    remote: RemoteTally, through: Callable[..., Any]
) -> None:
    stored = remote.remember("The otter sleeps at noon.")
    found = through(remote, "memory_search", {"query": "When does the otter sleep?", "limit": 5})
    same = remote.call_tool("memory_search", {"query": "When does the otter sleep?", "limit": 5})
    denied = through(remote, "memory_list", {})
    gone = through(remote, "memory_forget", {"memory_id": stored.id, "reason": "It moved."})

    assert found == same  # its code too, which the server made
    assert denied["error"] == "action_denied"
    assert gone["status"] == "changed"
    with pytest.raises(NotFound):
        remote.get(stored.id)


def test_nothing_is_forgotten_on_a_server_before_a_person_said_yes(
    remote: RemoteTally, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    monkeypatch.setattr(RemoteTally, "call_tool", lambda self, name, arguments: sent.append(name))
    arguments: JsonObject = {"memory_id": "m", "reason": "r"}
    forget = ("memory_forget", arguments)

    [tool] = [tool for tool in langchain_tools(remote) if tool.name == "memory_forget"]
    assert tool.invoke(arguments)["reason"] == "not_approved"
    if TOOLS_WAIT:
        refused = LlamaIndex().use_tool(remote, *forget, answers=lambda question: False)
        assert refused.values[0]["reason"] == "not_approved"
    assert len(PydanticAI().use_tool(remote, *forget).waiting) == 1
    call = ModelToolCall(id="c", name="memory_forget", arguments=arguments)
    assert responses_tools(remote).run(call)["reason"] == "not_approved"
    assert sent == []


def test_the_tools_of_a_server_are_described_as_those_of_a_tally(
    ruled: Served, remote: RemoteTally
) -> None:
    here = ruled.tally.bind(ADA)

    assert [_described(tool) for tool in langchain_tools(remote)] == [
        _described(tool) for tool in langchain_tools(here)
    ]
    assert [tool.metadata.to_openai_tool() for tool in llama_tools(remote)] == [
        tool.metadata.to_openai_tool() for tool in llama_tools(here)
    ]
    assert responses_tools(remote).definitions == responses_tools(here).definitions


def _described(tool: Any) -> Any:
    return tool.name, tool.description, tool.tool_call_schema.model_json_schema()


def test_a_call_that_names_another_user_than_the_token_is_refused(remote: RemoteTally) -> None:
    [search] = [tool for tool in langchain_tools(remote) if tool.name == "memory_search"]
    assert "error" not in search.invoke({"query": "otter"}, {"configurable": {"user_id": "ada"}})
    with pytest.raises(Denied) as denied:
        search.invoke({"query": "otter"}, {"configurable": {"user_id": "bob"}})
    with instrument_tags({"user_id": "bob"}), pytest.raises(Denied):
        TallyRetriever(remote).retrieve("otter")
    with pytest.raises(InvalidInput, match="token"):
        langchain_tools(remote, actor=ADA)

    assert denied.value.reason == "principal_mismatch"


def test_tools_of_a_scope_work_in_that_scope_of_the_server(remote: RemoteTally) -> None:
    remote.within("project:apollo").remember("Apollo lands on Monday.")
    tools = responses_tools(remote, scope="project:apollo")
    call = ModelToolCall(id="c", name="memory_search", arguments={"query": "Apollo lands"})
    elsewhere = responses_tools(remote, scope="private:ada").run(call)

    assert "Monday" in json.dumps(tools.run(call))
    assert "Monday" not in json.dumps(elsewhere)


def test_the_nodes_of_a_server_are_those_of_the_tally_with_codes_that_it_knows(
    ruled: Served, remote: RemoteTally
) -> None:
    remote.remember("The lock at Marne opens at seven.", kind="fact")
    here = ruled.tally.bind(ADA)
    options: dict[str, Any] = {"similarity_top_k": 2, "kinds": ["fact"]}
    over_http = TallyRetriever(remote, **options).retrieve("When does the lock open?")
    direct = TallyRetriever(here, **options).retrieve("When does the lock open?")
    text = over_http[0].node.get_content(metadata_mode=MetadataMode.LLM)

    assert "Marne" in text
    assert text == direct[0].node.get_content(metadata_mode=MetadataMode.LLM)
    assert without_frames(here, f"Before.{text}After.").split() == ["Before.", "After."]
    assert [node.node.id_ for node in over_http] == [node.node.id_ for node in direct]


def test_frames_are_signed_for_who_may_read_the_scope_alone(
    ruled: Served, remote: RemoteTally
) -> None:
    with ruled.remote(BOB) as bob, pytest.raises(Denied):
        bob.within("private:ada").frame_codes(["A text."])
    with pytest.raises(InvalidInput):
        remote.frame_codes([f"A text.{CLOSE}And another."])

    assert remote.frame_codes([]) == []
    assert len(set(remote.frame_codes(["One.", "Two."]))) == 2
