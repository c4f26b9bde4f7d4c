"""A run under way: its steps, what stands around its tools, and how it ends."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from typing import Any

from agents import Agent, FunctionTool, Handoff, ModelProvider, RunContextWrapper, RunHooks
from agents.run_config import CallModelData, ModelInputData
from pydantic_core import to_json

from tallystick.aio import in_thread
from tallystick.errors import ActionDenied, ApprovalRequired
from tallystick.kit import (
    OpenCall,
    ToolCall,
    enforcing,
    has_rules,
    judge_tool_call,
    record_approval,
)
from tallystick.kit.agent_runs import AgentPiece, AgentRequest, AgentRun
from tallystick.kit.rendering import output_text
from tallystick.logs import get_logger
from tallystick.records import StepStatus
from tallystick.tally import AllowedToolCall, BoundTally
from tallystick_openai_agents.messages import as_json
from tallystick_openai_agents.rules import (
    Answered,
    Invoke,
    RuledTool,
    in_hand,
    is_in_hand,
    read_arguments,
)

agent_asking: ContextVar[Agent[Any] | None] = ContextVar("tallystick_agent", default=None)
"""The agent whose model is about to be asked."""
_questions: ContextVar[set[str]] = ContextVar("tallystick_questions")
"""Ids of the calls that wait for a person within the call of a tool that is an agent."""


class RunUnderWay(AgentRun):
    """One run of the SDK. Its calls may come from several tasks at once."""

    def __init__(
        self, piece: AgentPiece, bound: BoundTally, words: str | None, session: str | None
    ) -> None:
        super().__init__(piece.settings, bound, words=words, session=session)
        self.asked = piece.asked
        self.options: dict[str, Any] = {}
        self.provider: ModelProvider | None = None
        """The provider of models that was made for this run."""
        self.turns: dict[str, str] = {}
        """A name for each request of a user in it, as a working set knows turns."""
        self.handoffs: dict[str, ToolCall] = {}
        """The last call to hand over to an agent, by the name of the agent."""
        self.answers: dict[str, Answered] = {}
        """What a person answered, by the id of the call."""
        self._decided: dict[str, tuple[OpenCall | None, AllowedToolCall | ActionDenied | None]] = {}
        """Calls that were checked before the SDK makes them."""
        self._asked: set[str] = set()
        """Ids of the calls that a rule holds up."""
        self._errors: dict[str, BaseException] = {}
        """Errors of tools that the SDK gave to the model as a text."""
        self._open: dict[Any, OpenCall | None] = {}
        """Calls of tools of the SDK's own, by the tool, and of handoffs, by the agent."""
        self._lock = threading.Lock()
        self._models_asked = 0
        self._status: StepStatus | None = None
        """How the run ends once the models that were asked have answered."""

    @property
    def asks(self) -> bool:
        """True if a rule may want a person to be asked."""
        return self.settings.rules and has_rules(self.bound, "tool_call", "require_approval")

    @contextmanager
    def active(self, call: OpenCall | None = None) -> Iterator[None]:
        """Make the run, and the step of a call, those of the code inside."""
        token = in_hand.set(self)
        try:
            with super().active(call):
                yield
        finally:
            in_hand.reset(token)

    # What the SDK calls

    def input_filter(self, inner: Any) -> Callable[[CallModelData[Any]], Any]:
        """Return an input filter that notes which agent asks, around the application's own."""

        async def note_agent(data: CallModelData[Any]) -> ModelInputData:
            agent_asking.set(data.agent)
            return data.model_data if inner is None else await _awaited(inner(data))

        return note_agent

    def note_error(self, call_id: str | None, error: Exception) -> None:
        """Note the error of a tool that the SDK gives to the model as a text."""
        self._errors[call_id or ""] = error

    def enforces(self, tool: FunctionTool) -> bool:
        """Return True if the rules hold for a tool: all tools, or one that goes by them itself."""
        return self.settings.rules or isinstance(tool, RuledTool)

    async def needs_approval(self, tool: FunctionTool, arguments: Any, call_id: str) -> bool:
        """Return True if a rule wants a person to be asked about a call, who has not granted it."""
        if not self.enforces(tool) or call_id in self._decided:
            return False
        call = ToolCall(tool.name, arguments, call_id)
        return call_id in self._asked or await in_thread(self._ask, call)

    def _ask(self, call: ToolCall) -> bool:
        call_id = call.tool_call_id or ""
        if not self._asks_about(call):
            return False
        opened = self._begin(call)
        with self.active(opened):
            try:
                self._decided[call_id] = opened, self._check_call(call)
            except ActionDenied as error:
                self._decided[call_id] = opened, error
            except ApprovalRequired as error:
                self._asked.add(call_id)
                _questions.get(set()).add(call_id)
                self.asked[call_id] = error.approvals[0].id
                self.wait_tool(call, opened)
        return call_id in self._asked

    def _asks_about(self, call: ToolCall) -> bool:
        """Return True if a rule wants a person for a call; nothing is recorded or asked for."""
        if not has_rules(self.bound, "tool_call", "require_approval"):
            return False
        rule = judge_tool_call(self.bound, call.name, call.arguments)
        return rule is not None and rule.effect == "require_approval"

    def _begin(self, call: ToolCall) -> OpenCall | None:
        answered = self.answers.get(call.tool_call_id or "")
        return self.begin_tool(call, approved=answered is not None and answered.answer.approved)

    def _check_call(self, call: ToolCall, enforced: bool = True) -> AllowedToolCall | None:
        """Check a call; the answer to it counts for exactly these arguments."""
        answered = self.answers.get(call.tool_call_id or "")
        is_same = answered is not None and answered.call.arguments == call.arguments
        answer = answered.answer if answered is not None and is_same else None
        return self.check_tool(call, answer, enforced=enforced)

    def note_rejections(self) -> None:
        """Deny what a person rejected: the SDK never calls these tools."""
        for call, answer in list(self.answers.values()):
            if not answer.approved and self._asks_about(call):
                with suppress(ActionDenied):
                    self._check_call(call)

    async def call_tool(self, tool: FunctionTool, context: Any, input: str, invoke: Invoke) -> Any:
        """Call a tool once the rules let it, as a step. A denial is a result that the model
        reads.
        """
        call_id = getattr(context, "tool_call_id", None)
        call = ToolCall(tool.name, read_arguments(input), call_id)
        decided, enforced = self._decided.pop(call_id or "", None), self.enforces(tool)
        opened = await in_thread(self._begin, call) if decided is None else decided[0]
        questions: set[str] = set()
        token = _questions.set(questions)
        with self.active(opened):
            try:
                if decided is None:
                    check = await in_thread(self._check_call, call, enforced)
                elif isinstance(decided[1], ActionDenied):
                    raise decided[1]
                else:
                    check = decided[1]
                redacts = check is not None and check.redacts
                given = to_json(check.arguments).decode() if check and redacts else input
                with enforcing(self.bound, "tool_call", tool.name) if enforced else nullcontext():
                    result = await invoke(context, given)
                if check is not None and redacts:
                    result = check.result(as_json(result))
            except BaseException as error:
                denial = self.fail_tool(opened, error)
                if denial is None:
                    raise
                return denial
            finally:
                _questions.reset(token)
        _questions.get(set()).update(questions)
        failure = self._errors.pop(call_id or "", None)
        if failure is not None:
            self.tell_tool(opened, failure, str(result))
        elif questions:
            if opened is not None:
                opened.end("blocked")
        else:
            self.end_tool(opened, as_json(result))
        return result

    def start_tool(self, context: Any, tool: Any) -> None:
        """Record the start of a tool that nothing stands around: one of the SDK's own. Raises
        ActionDenied where a rule concerns it.
        """
        name = getattr(tool, "name", type(tool).__name__)
        arguments = read_arguments(getattr(context, "tool_arguments", None))
        call = ToolCall(name, arguments, getattr(context, "tool_call_id", None))
        opened = self._open[call.tool_call_id or id(tool)] = self._begin(call)
        with self.active(opened):
            try:
                self.check_tool(call, enforced=False)
            except ActionDenied as error:
                self.tell_tool(opened, error, None)
                raise

    def end_tool_of_sdk(self, context: Any, tool: Any, result: Any) -> None:
        """Record the result of such a tool."""
        opened = self._open.pop(getattr(context, "tool_call_id", None) or id(tool), None)
        self.end_tool(opened, as_json(result))

    def check_handoff(self, over: Handoff[Any, Any], input: str) -> None:
        """Check that an agent may take over, before anything of it happens. Raises ActionDenied and
        ApprovalRequired: the SDK has no question about a handoff, and no answer in its place.
        """
        call = ToolCall(over.tool_name, read_arguments(input))
        self._open_handoff(over.agent_name, self.handoffs.pop(over.agent_name, call))

    def _open_handoff(self, agent: str, call: ToolCall) -> OpenCall | None:
        opened = self._begin(call)
        with self.active(opened):
            try:
                self.check_tool(call)
            except ApprovalRequired:
                self.wait_tool(call, opened)
                raise
            except BaseException as error:
                self.fail_tool(opened, error)
                raise
        self._open["handoff", agent] = opened
        return opened

    def hand_over(self, agent: Agent[Any]) -> None:
        """Record that another agent takes over: the run of the one before it ends, if it is our
        own. Raises as `check_handoff`, where that was passed by.
        """
        call = self.handoffs.pop(agent.name, ToolCall("handoff", {}))
        if ("handoff", agent.name) not in self._open:
            self._open_handoff(agent.name, call)
        root, opened = self.root, self._open.pop(("handoff", agent.name))
        if root is None:
            return
        with self.guard(root.run):
            self.end_tool(opened, agent.name)
            if root.is_own:
                root.end("completed")
                self.join(agent.name, handed_over_by=root.run.id)

    # The end

    async def close(self) -> None:
        """Close the provider that was made for this run, as the SDK does with its own."""
        if self.provider is not None:
            try:
                await self.provider.aclose()
            except Exception as error:  # noqa: BLE001 - logged, as the SDK does
                get_logger("openai_agents").warning("provider.close", error=type(error).__name__)

    def finish(self, result: Any) -> None:
        """End the run with its outcome, and wait until it is stored."""
        if self.run is None:
            return
        with self.guard(self.run):
            for item in result.interruptions:
                if item.call_id not in self._asked:
                    step = self.run.step("human_approval", name=item.tool_name)
                    arguments = read_arguments(getattr(item.raw_item, "arguments", None))
                    record_approval(step, ToolCall(item.tool_name or "", arguments, item.call_id))
                    step.end("blocked", wait=False)
        if not result.interruptions:
            self.keep_turn(output_text(result.final_output))
        self.end("blocked" if result.interruptions else "completed")

    def begin_model_call(self, request: AgentRequest) -> OpenCall | None:
        """Open the step of a request to a model, which `end_model_call` follows."""
        call = self.begin_request(request)
        if call is not None:
            with self._lock:
                self._models_asked += 1
        return call

    def end_model_call(self) -> None:
        """End the run too where it waited: a guardrail may end a run while its model answers."""
        with self._lock:
            self._models_asked -= 1
            status = None if self._models_asked else self._status
        if status is not None:
            self.end(status)

    def end(self, status: StepStatus) -> None:
        """End the run, once no model is being asked any more."""
        with self._lock:
            if self._models_asked:
                self._status = status
                return
        super().end(status)


class Hooks(RunHooks[Any]):
    """The hooks of a run, around those of the application."""

    def __init__(self, run: RunUnderWay, inner: RunHooks[Any]) -> None:
        self._run, self._inner = run, inner
        for name in ("on_llm_start", "on_llm_end", "on_agent_start", "on_agent_end"):
            setattr(self, name, getattr(inner, name))

    async def on_handoff(
        self, context: RunContextWrapper[Any], from_agent: Agent[Any], to_agent: Agent[Any]
    ) -> None:
        """Let another agent take over."""
        await in_thread(self._run.hand_over, to_agent)
        await self._inner.on_handoff(context, from_agent, to_agent)

    async def on_tool_start(
        self, context: RunContextWrapper[Any], agent: Agent[Any], tool: Any
    ) -> None:
        """See a tool that is about to run."""
        if not is_in_hand(tool):
            await in_thread(self._run.start_tool, context, tool)
        await self._inner.on_tool_start(context, agent, tool)

    async def on_tool_end(
        self, context: RunContextWrapper[Any], agent: Agent[Any], tool: Any, result: object
    ) -> None:
        """See the result of a tool."""
        if not is_in_hand(tool):
            await in_thread(self._run.end_tool_of_sdk, context, tool, result)
        await self._inner.on_tool_end(context, agent, tool, result)


async def _awaited(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value
