"""Memory tools of a tally that is served: its rules hold, and runtimes get what it answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tallystick.errors import ActionDenied, ApprovalRequired, InvalidInput
from tallystick.operations import MEMORY_TOOLS
from tallystick.records import JsonObject, PolicyConditions, PolicyRule
from tallystick_server import RemoteTally

from .served import ADA, Served, problem, served


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
        person.approve(waiting.id, reason="Looked at it.")
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
