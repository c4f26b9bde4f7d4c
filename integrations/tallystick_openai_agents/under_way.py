"""A run under way: its steps, what stands around its tools, and how it ends."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from agents import Agent, FunctionTool, ModelProvider, RunContextWrapper, RunHooks
from agents.run_config import CallModelData, ModelInputData, ToolErrorFormatterArgs
from pydantic_core import to_json

from tallystick.aio import in_thread
from tallystick.errors import ActionDenied, ApprovalRequired
from tallystick.kit import (
    OpenCall,
    RootRun,
    ToolCall,
    begin_call,
    has_rules,
    is_nested,
    record_approval,
    record_tool_call,
    record_tool_error,
    record_tool_result,
    refuse_unenforced,
)
from tallystick.logs import get_logger
from tallystick.recorder import Run, status_for
from tallystick.records import StepKind, StepStatus
from tallystick.tally import AllowedToolCall, BoundTally
from tallystick_openai_agents.messages import as_json, output_text
from tallystick_openai_agents.rules import (
    Invoke,
    RuledTool,
    ToolRules,
    in_hand,
    is_in_hand,
    read_arguments,
)

if TYPE_CHECKING:
    from tallystick_openai_agents.runner import TallyRunner

_DENIAL_REASONS = ("denied_by_rule", "denied_by_person")
"""Reasons for which the model reads a denial; other refusals are errors of the application."""

agent_asking: ContextVar[Agent[Any] | None] = ContextVar("tallystick_agent", default=None)
"""The agent whose model is about to be asked."""


class RunUnderWay:
    """One run of the SDK. Its calls may come from several tasks at once."""

    def __init__(
        self, runner: TallyRunner, bound: BoundTally, words: str | None, session: str | None
    ) -> None:
        self.runner, self.bound, self.words, self.session = runner, bound, words, session
        self.id = bound.tally.new_id()
        self.guard = runner.guard
        self.root: RootRun | None = None
        self.options: dict[str, Any] = {}
        self.provider: ModelProvider | None = None
        """The provider of models that was made for this run."""
        self.tools = ToolRules(bound, "TallyRunner", runner.task_type)
        self.is_nested = is_nested()
        self.turns: dict[str, str] = {}
        """A name for each request of a user in it, as a working set knows turns."""
        self.handoffs: dict[str, ToolCall] = {}
        """The last call to hand over to an agent, by the name of the agent."""
        self._decided: dict[str, tuple[OpenCall | None, AllowedToolCall | ActionDenied]] = {}
        """Calls that were checked before the SDK makes them."""
        self._asked: set[str] = set()
        """Ids of the calls that a rule holds up."""
        self._errors: dict[str, BaseException] = {}
        """Errors of tools that the SDK gave to the model as a text."""
        self._open: dict[Any, OpenCall] = {}
        """Calls of tools of the SDK's own, by the tool."""
        self._lock = threading.Lock()
        self._models_asked = 0
        self._status: StepStatus | None = None
        """How the run ends once the models that were asked have answered."""

    @property
    def asks(self) -> bool:
        """True if a rule may want a person to be asked."""
        return self.runner.rules and has_rules(self.bound, "tool_call", "require_approval")

    @property
    def run(self) -> Run | None:
        """The run of the tally; None where nothing is recorded."""
        return None if self.root is None else self.root.run

    def join(self, agent: str, **metadata: Any) -> None:
        """Begin a run of the tally for an agent, or join that under way."""
        thread = {"thread_id": self.session} if self.session else {}
        self.root = RootRun.join(
            self.bound, agent, goal=self.words, metadata={**thread, **metadata}
        )

    @contextmanager
    def active(self, call: OpenCall | None = None) -> Iterator[None]:
        """Make the run, and the step of a call, those of the code inside."""
        token = in_hand.set(self)
        with ExitStack() as stack:
            if self.run is not None:
                stack.enter_context(self.run.active())
            if call is not None:
                stack.enter_context(call.step.active())
            try:
                yield
            finally:
                in_hand.reset(token)

    def begin(self, kind: StepKind, name: str | None) -> OpenCall | None:
        """Open the step of a call; None where nothing is recorded, or it cannot be."""
        if self.run is not None:
            with self.guard(self.run), self.run.active():
                return begin_call(self.run, kind, name=name, metadata={})
        return None

    # What the SDK calls

    def input_filter(self, inner: Any) -> Callable[[CallModelData[Any]], Any]:
        """Return an input filter that notes which agent asks, around the application's own."""

        async def note_agent(data: CallModelData[Any]) -> ModelInputData:
            agent_asking.set(data.agent)
            return data.model_data if inner is None else await _awaited(inner(data))

        return note_agent

    def error_formatter(self, inner: Any) -> Callable[[ToolErrorFormatterArgs[Any]], Any]:
        """Return a formatter that notes the error of a tool, around the application's own."""

        async def note_error(failure: ToolErrorFormatterArgs[Any]) -> str | None:
            if failure.error is not None:
                self.note_error(failure.call_id, failure.error)
            return None if inner is None else await _awaited(inner(failure))

        return note_error

    def note_error(self, call_id: str | None, error: Exception) -> None:
        """Note the error of a tool that the SDK gives to the model as a text."""
        self._errors[call_id or ""] = error

    def enforces(self, tool: FunctionTool) -> bool:
        """Return True if the rules hold for a tool: all tools, or one that goes by them itself."""
        return self.runner.rules or isinstance(tool, RuledTool)

    async def needs_approval(self, tool: FunctionTool, arguments: Any, call_id: str) -> bool:
        """Return True if a rule wants a person to be asked about a call, who has not granted it."""
        if not self.enforces(tool) or call_id in self._decided:
            return False
        return call_id in self._asked or await in_thread(self._ask, tool.name, arguments, call_id)

    def _ask(self, name: str, arguments: Any, call_id: str) -> bool:
        if not self.tools.asks(name, arguments):
            return False
        call = ToolCall(name, arguments, call_id)
        opened = self._begin_tool(call)
        with self.active(opened):
            try:
                self._decided[call_id] = opened, self.tools.check(call)
            except ActionDenied as error:
                self._decided[call_id] = opened, error
            except ApprovalRequired as error:
                self._asked.add(call_id)
                self.runner.asked[call_id] = error.approvals[0].id
                if opened is not None:
                    with self.guard(self.run):
                        if not opened.step.has("approval"):
                            record_approval(opened.step, call)
                        opened.end("blocked")
        return call_id in self._asked

    async def call_tool(self, tool: FunctionTool, context: Any, input: str, invoke: Invoke) -> Any:
        """Call a tool once the rules let it, as a step. A denial is a result that the model
        reads.
        """
        call_id = getattr(context, "tool_call_id", None)
        call = ToolCall(tool.name, read_arguments(input), call_id)
        opened, decided = self._decided.pop(call_id or "", (None, None))
        if decided is None:
            opened = await in_thread(self._begin_tool, call)
        with self.active(opened):
            questions = len(self._asked)
            try:
                check = await in_thread(self._check, tool, call, decided)
                given = input
                if check is not None and check.redacts:
                    given = to_json(check.arguments).decode()
                result = await invoke(context, given)
                if check is not None and check.redacts:
                    result = check.result(as_json(result))
            except BaseException as error:
                is_denial = isinstance(error, ActionDenied) and error.reason in _DENIAL_REASONS
                if opened is not None:
                    with self.guard(self.run):
                        if is_denial:
                            record_tool_error(opened.step, error, str(error))
                            opened.end("failed")
                        else:
                            opened.fail(error)
                if is_denial:
                    return str(error)
                raise
        if opened is not None:
            with self.guard(self.run):
                failure = self._errors.pop(call_id or "", None)
                if failure is not None:
                    record_tool_error(opened.step, failure, str(result))
                    opened.end("failed")
                elif len(self._asked) > questions:
                    opened.end("blocked")
                else:
                    record_tool_result(opened.step, as_json(result))
                    opened.end()
        return result

    def _begin_tool(self, call: ToolCall) -> OpenCall | None:
        opened = self.begin("tool_call", call.name)
        if opened is not None:
            answer = self.tools.answers.get(call.tool_call_id or "")
            with self.guard(self.run):
                record_tool_call(opened.step, call, approved=answer is not None and answer.approved)
        return opened

    def _check(
        self, tool: FunctionTool, call: ToolCall, decided: AllowedToolCall | ActionDenied | None
    ) -> AllowedToolCall | None:
        if isinstance(decided, ActionDenied):
            raise decided
        if decided is not None or not has_rules(self.bound, "tool_call"):
            return decided
        if self.enforces(tool):
            return self.tools.check(call)
        refuse_unenforced(self.bound, call)
        return None

    def start_tool(self, context: Any, tool: Any) -> None:
        """Record the start of a tool that nothing stands around: one of the SDK's own. Raises
        ActionDenied where a rule concerns it.
        """
        name = getattr(tool, "name", type(tool).__name__)
        arguments = read_arguments(getattr(context, "tool_arguments", None))
        call = ToolCall(name, arguments, getattr(context, "tool_call_id", None))
        opened = self._open[call.tool_call_id or id(tool)] = self._begin_tool(call)  # type: ignore[assignment]
        with self.active(opened):
            try:
                refuse_unenforced(self.bound, call)
            except ActionDenied as error:
                if opened is not None:
                    opened.fail(error)
                raise

    def end_tool(self, context: Any, tool: Any, result: Any) -> None:
        """Record the result of such a tool."""
        opened = self._open.pop(getattr(context, "tool_call_id", None) or id(tool), None)
        if opened is not None:
            with self.guard(self.run):
                record_tool_result(opened.step, as_json(result))
                opened.end()

    def hand_over(self, agent: Agent[Any]) -> None:
        """Record that another agent takes over: the run of the one before it ends, if it is our
        own.
        """
        root, call = self.root, self.handoffs.pop(agent.name, ToolCall("handoff", {}))
        if root is None:
            return
        with self.guard(root.run):
            opened = self._begin_tool(call)
            if opened is not None:
                record_tool_result(opened.step, agent.name)
                opened.end()
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
        if self.root is None:
            return
        with self.guard(self.root.run):
            for item in result.interruptions:
                if item.call_id not in self._asked:
                    step = self.root.run.step("human_approval", name=item.tool_name)
                    arguments = read_arguments(getattr(item.raw_item, "arguments", None))
                    record_approval(step, ToolCall(item.tool_name or "", arguments, item.call_id))
                    step.end("blocked", wait=False)
            if not result.interruptions:
                self._keep_turn(self.root.run, output_text(result.final_output))
        self._end("blocked" if result.interruptions else "completed")

    def _keep_turn(self, run: Run, answer: str | None) -> None:
        speakers = self.runner.capture
        if speakers != "off" and not self.is_nested:
            self.bound.keep_turn(
                run,
                user=self.words,
                assistant=answer if speakers == "both" else None,
                unkept_answer=answer,
                observer="TallyRunner",
            )

    def fail(self, error: BaseException) -> None:
        """End the run with an error, and wait until it is stored."""
        run, status = self.run, status_for(type(error))
        if run is None:
            return
        is_own = self.root is not None and self.root.is_own
        noted = run.has_noted(error) or run.has_noted(error.__cause__ or error)
        if is_own and status == "failed" and not noted:
            with self.guard(run):
                run.step("other", name=run.record.agent_name).fail(error)
        self._end(status)

    def begin_model_call(self, name: str | None) -> OpenCall | None:
        """Open the step of a request to a model, which `end_model_call` follows."""
        call = self.begin("model_call", name)
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
            self._end(status)

    def _end(self, status: StepStatus) -> None:
        with self._lock:
            if self._models_asked:
                self._status = status
                return
        if self.root is not None and self.root.is_own:
            with self.guard(self.root.run):
                self.root.run.end(status)


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
            await in_thread(self._run.end_tool, context, tool, result)
        await self._inner.on_tool_end(context, agent, tool, result)


async def _awaited(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value
