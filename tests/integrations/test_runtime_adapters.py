"""The memory tools and the observers of each runtime keep the adapter contract, and a person is
asked in the way of the runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import pytest
from tests.integrations.runtimes.base import Runtime, Script, call
from tests.integrations.runtimes.langchain import LangChain
from tests.integrations.runtimes.llama_index import TOOLS_WAIT, LlamaIndex
from tests.integrations.runtimes.openai_agents import OpenAIAgents
from tests.integrations.runtimes.pydantic_ai import PydanticAI
from tests.integrations.runtimes.runtimes import in_runtimes

from tallystick import Actor, Tally
from tallystick.operations import MEMORY_TOOLS
from tallystick.tally import BoundTally
from tallystick.testing.adapter_contract import AdapterContract
from tallystick_langchain import memory_tools as langchain_tools
from tallystick_llama_index import memory_tools as llama_tools

OpenTally = Callable[..., Tally]


@pytest.fixture
def open_tally(open_sqlite: Any) -> Any:
    """The store of the contract, on SQLite or on PostgreSQL."""
    return open_sqlite


_WAITS = pytest.mark.skipif(
    not TOOLS_WAIT, reason="this release of LlamaIndex does not let tools of agents wait"
)


def double(value: int) -> int:
    """Twice the value."""
    return value * 2


class _Adapter(AdapterContract):
    verbs = frozenset({"recall", "remember", "modify", "forget"})
    runtime: ClassVar[Runtime]

    def _result(self, bound: BoundTally, name: str, **arguments: Any) -> Any:
        """Return the result of a memory tool; approvals are given."""
        agreed = {"answers": lambda question: True}
        return self.runtime.use_tool(bound, name, arguments, **agreed).values[0]

    def recall(self, bound: BoundTally, query: str) -> Sequence[str]:
        answer = self._result(bound, "memory_search", query=query)
        assert answer.get("error") in (None, "Denied")
        return [memory["id"] for memory in answer.get("memories", [])]

    def remember(self, bound: BoundTally, content: str) -> None:
        answer = self._result(bound, "memory_store", content=content)
        assert answer.get("status") in ("created", "skipped") or answer["error"] == "Denied"

    def modify(
        self, bound: BoundTally, memory_id: str, content: str, reason: str, if_version: int
    ) -> None:
        fields = {"memory_id": memory_id, "content": content, "reason": reason}
        answer = self._result(bound, "memory_modify", if_version=if_version, **fields)
        conflicts = ("StateConflict", "VersionConflict")
        assert answer.get("status") == "changed" or answer["error"] in conflicts

    def forget(self, bound: BoundTally, memory_id: str, reason: str) -> None:
        answer = self._result(bound, "memory_forget", memory_id=memory_id, reason=reason)
        assert answer.get("state") == "deleted" or answer["error"] == "StateConflict"


class TestLangChain(_Adapter):
    runtime = LangChain()


class _WholeAdapter(_Adapter):
    verbs = _Adapter.verbs | {"context", "model_call", "tool_call"}

    def context(self, bound: BoundTally, query: str) -> str:
        script = Script("So.")
        self.runtime.run(script, prompt=query, remembering=bound)
        return script.sent[0]

    def model_call(self, bound: BoundTally, prompt: str, answer: str) -> None:
        assert self.runtime.run(Script(answer), prompt=prompt, recorded=bound).text == answer

    def tool_call(self, bound: BoundTally, value: int) -> None:
        self.runtime.run(Script([call("double", value=value)], "So."), [double], recorded=bound)


@pytest.mark.smoke
class TestPydanticAI(_WholeAdapter):
    runtime = PydanticAI()


class TestOpenAIAgents(_WholeAdapter):
    runtime = OpenAIAgents()


# LlamaIndex's agents look at every attribute of their pydantic selves, deprecated ones too.
@pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")
class TestLlamaIndex(_Adapter):
    runtime = LlamaIndex()

    @_WAITS
    def test_writing_through_the_adapter_leaves_the_same_journal(self, open_tally: Any) -> None:
        super().test_writing_through_the_adapter_leaves_the_same_journal(open_tally)

    @_WAITS
    def test_what_direct_changes_are_refused_is_refused_through_the_adapter(
        self, open_tally: Any
    ) -> None:
        super().test_what_direct_changes_are_refused_is_refused_through_the_adapter(open_tally)


@in_runtimes()
def test_the_six_tools_are_offered_with_their_descriptions_and_their_arguments_alone(
    open_sqlite: OpenTally, runtime: Runtime
) -> None:
    with open_sqlite() as tally:
        shapes = runtime.tool_shapes(tally)
    assert [(name, description) for name, description, _ in shapes] == [
        (name, tool.description) for name, tool in MEMORY_TOOLS.items()
    ]
    assert shapes[4][2] == [
        *("memory_id", "reason", "if_version"),
        *("content", "attributes", "replace_attributes"),
    ]


@in_runtimes(waits=True)
def test_forgetting_waits_until_a_person_agrees(open_sqlite: OpenTally, runtime: Runtime) -> None:
    with open_sqlite() as tally:
        owner = tally.bind()
        arguments = {"memory_id": owner.remember("Keep me.").id, "reason": "tidy"}

        outcome = runtime.use_tool(owner, "memory_forget", arguments, recorded=owner)

        [question] = outcome.waiting
        # A question of LlamaIndex's tools names no tool.
        assert runtime.name == "llama_index" or question.name == "memory_forget"
        assert owner.get(arguments["memory_id"]).content == "Keep me."
        steps = owner.recordings.steps(owner.recordings.runs()[0].id)
        assert [step.status for step in steps] == ["completed", "blocked"]
        own_question = runtime.name in ("pydantic_ai", "openai_agents")
        assert steps[1].step_kind == ("human_approval" if own_question else "tool_call")

        runtime.use_tool(owner, "memory_forget", arguments, answers=lambda question: True)
        assert owner.memories() == []


@in_runtimes(waits=True)
def test_a_person_may_say_no_and_the_model_is_told_why(
    open_sqlite: OpenTally, runtime: Runtime
) -> None:
    with open_sqlite() as tally:
        owner = tally.bind()
        arguments = {"memory_id": owner.remember("Keep me.").id, "reason": "tidy"}
        why, forget = "It is dear to me.", ("memory_forget", arguments)
        outcome = runtime.use_tool(owner, *forget, answers=lambda question: why)
        # These give the model the words of the person, and no more.
        says_no_more = runtime.name in ("pydantic_ai", "openai_agents")
        before = "" if says_no_more else "memory_forget was not done. "
        assert f"{before}{why}" in outcome.tools[0].text
        assert owner.get(arguments["memory_id"]).content == "Keep me."


@in_runtimes("langchain", "llama_index")
def test_who_asks_elsewhere_may_leave_it_to_that(open_sqlite: OpenTally, runtime: Runtime) -> None:
    with open_sqlite() as tally:
        owner = tally.bind()
        arguments = {"memory_id": owner.remember("Forget me.").id, "reason": "tidy"}
        made: Any = langchain_tools if runtime.name == "langchain" else llama_tools
        tools = made(owner, approval="elsewhere")
        runtime.run(Script([call("memory_forget", **arguments)], "done"), tools)
        assert owner.memories() == []


@in_runtimes()
def test_memory_tools_are_used_by_who_acts(open_sqlite: OpenTally, runtime: Runtime) -> None:
    alice = Actor(user="alice")
    with open_sqlite() as tally:
        runtime.use_tool(tally, "memory_store", {"content": "Mine."}, actor=alice)
        assert [memory.content for memory in tally.bind(alice).memories()] == ["Mine."]
        assert tally.bind().memories() == []


@in_runtimes()
def test_what_a_tool_remembers_is_joined_to_its_step(
    open_sqlite: OpenTally, runtime: Runtime
) -> None:
    if runtime.name == "llama_index" and not TOOLS_WAIT:
        pytest.skip("this release of LlamaIndex runs functions in threads that know no step")
    with open_sqlite() as tally:
        owner = tally.bind()

        def note(text: str) -> str:
            """Note something."""
            return owner.remember(text).id

        script = Script(
            [call("note", text="Noted.")], [call("memory_store", content="So.")], "done"
        )
        runtime.run(script, [note], tools_of=tally, recorded=tally)
        owner.remember("Outside of any step.")

        tools = [
            step
            for step in owner.recordings.steps(owner.recordings.runs()[0].id)
            if step.step_kind == "tool_call"
        ]
        for step in tools:
            kinds = [entry.kind for entry in owner.recordings.entries(step.id)]
            assert kinds == ["tool_call", "memory_write", "tool_result"]
        outside, stored, noted = owner.memories()
        steps = [memory.source_step_ids for memory in (noted, stored, outside)]
        assert steps == [(tools[0].id,), (tools[1].id,), ()]
        assert {memory.source_run_id for memory in (noted, stored)} == {tools[0].run_id}
        [entry] = owner.history(stored.id)
        assert (entry.correlation_id, entry.request_id) == (tools[1].id, tools[1].run_id)
        # A run of LlamaIndex has no thread.
        assert bool(entry.session_id) == (runtime.name != "llama_index")
        assert runtime.name != "langchain" or entry.session_id == "t"


def _failed_kinds(open_sqlite: OpenTally, runtime: Runtime, *, ruled: bool) -> list[str]:
    """Fail a model call, recorded; return the kinds of the entries of its step."""
    with open_sqlite() as tally:
        script, rules = Script(ConnectionError("no route")), tally if ruled else None
        with pytest.raises(ConnectionError):
            runtime.run(script, recorded=tally, ruled=rules)
        [run] = tally.bind().recordings.runs()
        [step] = tally.recordings.steps(run.id)
        assert (run.status, step.step_kind, step.status) == ("failed", "model_call", "failed")
        return [entry.kind for entry in tally.recordings.entries(step.id)]


@in_runtimes()
def test_a_model_that_fails_fails_its_step_and_its_run(
    open_sqlite: OpenTally, runtime: Runtime
) -> None:
    assert _failed_kinds(open_sqlite, runtime, ruled=False) == ["request", "error"]


@in_runtimes("langchain")
def test_a_model_that_fails_under_the_rules_fails_its_step_and_its_run(
    open_sqlite: OpenTally, runtime: Runtime
) -> None:
    assert _failed_kinds(open_sqlite, runtime, ruled=True)[-1] == "error"


@in_runtimes()
def test_a_request_that_failed_under_the_rules_is_kept(
    open_sqlite: OpenTally, runtime: Runtime
) -> None:
    assert "request" in _failed_kinds(open_sqlite, runtime, ruled=True)


@in_runtimes()
def test_a_recorded_request_replays_through_a_model(
    open_sqlite: OpenTally, runtime: Runtime
) -> None:
    with open_sqlite() as tally:
        runtime.run(Script("heron"), prompt="Say heron.", recorded=tally)
        [step] = tally.recordings.steps(tally.bind().recordings.runs()[0].id)
        same, other = (
            tally.recordings.preview_replay(step.id, call=runtime.model_call(Script(answer)))
            for answer in ("heron", "stork")
        )
    assert (same.fidelity, same.request_matches, same.response_matches) == ("exact", True, True)
    assert other.response_matches is False
