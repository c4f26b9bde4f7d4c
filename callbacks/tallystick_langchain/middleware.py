"""TallyMiddleware: each model call of an agent is compiled to a budget and recorded with its
decisions.

The agent's own state is not touched: what is compiled is one request, from the messages, the system
prompt, the tools and what was recalled for the latest request. Where a TallyCallbackHandler watches
the same call, the two fill the same step. Put it last in `middleware`, so that it compiles the
request that the others leave.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, NotRequired, TypeVar

from langchain.agents.middleware import (
    AgentMiddleware,
    AgentState,
    ModelRequest,
    ModelResponse,
    ToolCallRequest,
)
from langchain.agents.middleware.types import PrivateStateAttr
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    messages_to_dict,
)
from langchain_core.runnables.config import ensure_config
from langgraph.runtime import Runtime
from langgraph.types import Command

from tallystick.aio import in_thread
from tallystick.errors import NotFound
from tallystick.kit import (
    CONTINUES,
    MEMORIES,
    MEMORY_BUDGET,
    ActorSource,
    Binder,
    Capture,
    ContextMode,
    RequestCompiler,
    RequestParts,
    Speakers,
    ToolCall,
    answer_summary,
    check_flag,
    check_names,
    checked_speakers,
    enforcing,
    has_rules,
    is_nested,
    record_tool_call,
    record_tool_result,
    recordable_metadata,
    register_enforcer,
)
from tallystick.kit.binder import call_of_config, id_text, namespace_for
from tallystick.kit.rendering import without_frames
from tallystick.recorder import Run, Step, current_run, current_step, status_for
from tallystick.records import (
    CallContext,
    Compaction,
    CompileConfig,
    ContextItem,
    PolicyRule,
    Scope,
    StepStatus,
    ToolSpec,
)
from tallystick.tally import AllowedModelCall, BoundTally, Tally
from tallystick_langchain.approvals import approved_async, check_with_approval
from tallystick_langchain.graph import agent_name_of, is_bubble_up, place_of, stop_step
from tallystick_langchain.handler import TallyCallbackHandler, handler_run
from tallystick_langchain.messages import answer_of_message, facts_of_message, goal_of, request_of
from tallystick_langchain.observing import agent_ends, recorded_by
from tallystick_langchain.render import (
    items_of,
    own_messages,
    render,
    tool_name,
    tool_specs,
    with_memory,
)
from tallystick_langchain.rules import RuledToolCall


class TallyState(AgentState[Any]):
    """The agent's state, with the id of the run that records it."""

    tally_run: NotRequired[Annotated[str, PrivateStateAttr]]


class TallyMiddleware(AgentMiddleware[AgentState[Any], Any, Any]):
    """Context and receipts for an agent: `create_agent(model, tools,
    middleware=[TallyMiddleware(tally)])`.

    A model call for which a rule wants an approval is not made: it is a blocked step, and
    ApprovalRequired is raised.
    """

    state_schema: type[AgentState[Any]] = TallyState

    def __init__(
        self,
        tally: Tally | BoundTally,
        *,
        context: ContextMode = "request",
        budget: int | None = None,
        reserve: int = 0,
        memory_budget: int = MEMORY_BUDGET,
        memories: int = MEMORIES,
        history_share: int | None = None,
        turn_share: int | None = None,
        compile_config: CompileConfig | None = None,
        compaction: Compaction = "cut",
        namespace: Sequence[str] | None = None,
        actor: ActorSource | None = None,
        scope: str | Scope | None = None,
        agent_name: str | None = None,
        rules: Sequence[PolicyRule] = (),
        record: bool = True,
        strict: bool = False,
        capture: Speakers = "off",
    ) -> None:
        """`budget` is the size of a request in tokens, `reserve` of which stay free for the answer;
        by default the most that the model's profile allows, else 32,000. `memories` are recalled
        for each request of the user, in at most `memory_budget` tokens; 0 for none. With
        `context="memory"` they alone are compiled. Items of the graph's store are among them
        beneath `namespace` alone, whose labels may be such as `"{user_id}"`. `actor` says who acts,
        by default what the call names (docs/who-acts.md). A failure to record is counted
        in `failures`, logged and reported by `verify`; with `strict` it is raised. A failure to
        compile always is: nothing is sent then. `capture` remembers the words of the `user`, or
        those of `both`, when an agent ends.
        """
        super().__init__()
        self._binder = Binder(
            tally, runtime="langchain", piece="TallyMiddleware", actor=actor, scope=scope
        )
        self._compiler = RequestCompiler(
            context=context,
            budget=budget,
            reserve=reserve,
            memory_budget=memory_budget,
            memories=memories,
            history_share=history_share,
            turn_share=turn_share,
            compile_config=compile_config,
            compaction=compaction,
            rules=rules,
        )
        check_names("namespace", namespace)
        check_flag("record", record)
        self._budget, self._namespace = budget, namespace
        self._agent_name, self._record = agent_name, record
        self._speakers = checked_speakers(capture)
        self._capture = Capture(self._binder.tally, "langchain", strict=strict)
        self._handler = TallyCallbackHandler(tally, actor=actor, scope=scope, strict=strict)
        self._ends = agent_ends() if record else None
        self._guard = threading.Lock()
        self._runs: dict[str, Run] = {}
        for kind in ("tool_call", "model_call"):
            register_enforcer(tally, kind, "TallyMiddleware")

    def __repr__(self) -> str:
        return self._binder.describe(
            budget=self._budget,
            capture=None if self._speakers == "off" else self._speakers,
            record=None if self._record else False,
        )

    @property
    def failures(self) -> int:
        """Events that could not be recorded."""
        return self._capture.failures + self._handler.failures

    def _bound(self, runtime: Any) -> BoundTally:
        return self._binder.bound(self._call_context(runtime))

    def _call_context(self, runtime: Any) -> CallContext:
        context = getattr(runtime, "context", None)
        return call_of_config(self._binder, ensure_config(), context=context)

    # The run

    def before_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Start a run, unless another observer records this one already."""
        if not self._record or _recording_run() is not None:
            return None
        with self._capture():
            goal = goal_of(state["messages"])
            run = self._bound(runtime).run(
                self._agent_name or agent_name_of(None, _metadata()), goal=goal, metadata=_thread()
            )
            with self._guard:
                self._runs[run.id] = run
            self._watch(run.id)
            return {"tally_run": run.id}
        return None

    async def abefore_agent(
        self, state: AgentState[Any], runtime: Runtime[Any]
    ) -> dict[str, Any] | None:
        """Same as `before_agent`."""
        return await in_thread(self.before_agent, state, runtime)

    def after_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> None:
        """End the run that `before_agent` started."""
        self._keep_turn(state, runtime)
        self._end(_run_name(state), "completed")

    async def aafter_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> None:
        """Same as `after_agent`."""
        await in_thread(self.after_agent, state, runtime)

    def _keep_turn(self, state: AgentState[Any], runtime: Runtime[Any]) -> None:
        """Remember the request of the user and the answer, if turns are to be remembered."""
        run = self._run(state, runtime) if self._speakers != "off" else None
        if run is None or is_nested():
            return
        with self._capture(run):
            messages = state["messages"]
            latest = next(
                (message for message in reversed(messages) if isinstance(message, HumanMessage)),
                None,
            )
            last = messages[-1] if messages else None
            answer = str(last.text) if isinstance(last, AIMessage) else None
            self._bound(runtime).keep_turn(
                run,
                user=None if latest is None else str(latest.text),
                assistant=answer if self._speakers == "both" else None,
                unkept_answer=answer,
                observer="TallyMiddleware",
            )

    def _watch(self, name: str) -> bool:
        """End a run with the graph of its agent, which may leave out `after_agent`; return False
        outside of a graph.
        """
        return self._ends is not None and self._ends.watch(name, partial(self._end, name))

    def _end(self, name: str, status: StepStatus) -> None:
        with self._guard:
            run = self._runs.pop(name, None)
        if run is not None:
            with self._capture(run):
                run.end(status)

    def _run(self, state: Mapping[str, Any], runtime: Any) -> Run | None:
        """Return the run that this call belongs to; one whose process ended goes on as a new
        one.
        """
        active = _recording_run()
        if active is not None:
            active.add_surface("langchain")
        if active is not None or not self._record:
            return active
        name = state.get("tally_run")
        with self._guard:
            run = self._runs.get(name) if name is not None else None
        if run is None and name is not None:
            with self._capture():
                bound = self._bound(runtime)
                run = bound.run(
                    self._agent_name or agent_name_of(None, _metadata()),
                    goal=_goal_of_run(bound, name) or goal_of(state["messages"]),
                    metadata={CONTINUES: name, **_thread()},
                )
                with self._guard:
                    self._runs[name] = run
        if run is not None and name is not None:
            self._watch(name)
        return run

    def _model_step(self, request: ModelRequest[Any]) -> Step | None:
        run = self._run(request.state, request.runtime)
        if run is not None:
            with self._capture(run):
                return run.step(
                    "model_call",
                    name=_model_name(request) or "model",
                    parent=_parent_step_id(run),
                    metadata=_place(),
                )
        return None

    def _finish_model_call(
        self, step: Step, request: ModelRequest[Any], response: ModelResponse[Any]
    ) -> None:
        if step.is_open:
            # No callback saw a model: another middleware answered, or the application turned
            # callbacks off.
            with self._capture(step.run):
                _record_missing(step, request, response)
                step.end(wait=False)

    # Model calls

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Compile the request, send it as far as the rules let it, and record both."""
        bound, name = self._bound(request.runtime), _model_name(request)
        step = self._model_step(request)
        if step is None:
            compiled = check_with_approval(bound, lambda: self._compile(bound, request))
            with enforcing(bound, "model_call", name):
                return handler(compiled)
        with step.active():
            try:
                compiled = check_with_approval(bound, lambda: self._compile(bound, request))
                with enforcing(bound, "model_call", name), recorded_by(self._handler, step):
                    response = handler(compiled)
            except BaseException as error:
                self._fail(request.state, step, error)
                raise
        self._finish_model_call(step, compiled, response)
        return response

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        """Same as `wrap_model_call`; the compile runs on a thread of its own."""
        bound, name = await in_thread(self._bound, request.runtime), _model_name(request)

        def compile_() -> Awaitable[ModelRequest[Any]]:
            return in_thread(self._compile, bound, request)

        step = await in_thread(self._model_step, request)
        if step is None:
            compiled = await approved_async(bound, compile_)
            with enforcing(bound, "model_call", name):
                return await handler(compiled)
        with step.active():
            try:
                compiled = await approved_async(bound, compile_)
                with enforcing(bound, "model_call", name), recorded_by(self._handler, step):
                    response = await handler(compiled)
            except BaseException as error:
                self._fail(request.state, step, error)
                raise
        self._finish_model_call(step, compiled, response)
        return response

    def _compile(self, bound: BoundTally, request: ModelRequest[Any]) -> ModelRequest[Any]:
        """Return the request to send. Raises ApprovalRequired, ActionDenied, CompileError."""
        own: Any = own_messages(request.messages, partial(without_frames, bound))
        request = request.override(messages=own)
        system = [] if request.system_message is None else [request.system_message]
        specs, count = tool_specs(request.tools), bound.tally.counter(_model_name(request)).count
        items = items_of([*_with_ids(system), *request.messages], count)
        plain = [item for item, _ in items.values()]
        compiled = self._compiler.compile(bound, self._parts(bound, request, plain, specs))
        if not self._compiler.is_whole:
            messages: Any = with_memory(request.messages, compiled)
            return self._check_request(bound, request.override(messages=messages))
        rendered = render(compiled, {item_id: message for item_id, (_, message) in items.items()})
        denied = {spec.name for spec in specs} - rendered.tools
        tools = [tool for tool in request.tools if tool_name(tool) not in denied]
        messages = rendered.messages
        return self._check_request(
            bound,
            request.override(system_message=rendered.system, messages=messages, tools=tools),
        )

    def _parts(
        self,
        bound: BoundTally,
        request: ModelRequest[Any],
        items: Sequence[ContextItem],
        tools: Sequence[ToolSpec],
    ) -> RequestParts:
        users = (message for message in reversed(request.messages) if message.type == "human")
        latest = next(users, None)
        execution = getattr(request.runtime, "execution_info", None)
        # An agent gives each message an id, so that the same words asked again are another turn.
        call = self._call_context(request.runtime)
        thread = id_text(getattr(execution, "thread_id", None)) or call.session
        turn = None
        if latest is not None and latest.id is not None:
            turn = f"{thread} {latest.id}"
        return RequestParts(
            items=items,
            tools=tools,
            text="" if latest is None else str(latest.text),
            turn=turn,
            conversation=thread,
            namespace=namespace_for(self._namespace, call, bound.actor),
            model=_model_name(request),
            window=_max_input_tokens(request.model),
        )

    def _check_request(self, bound: BoundTally, request: ModelRequest[Any]) -> ModelRequest[Any]:
        """Return a request as the rules over model calls let it go."""
        if not has_rules(self._binder.tally, "model_call"):
            return request
        system = [] if request.system_message is None else [request.system_message]
        check = bound.check_model_call(
            piece="TallyMiddleware",
            provider=_provider(request.model),
            model=_model_name(request),
            request={
                "messages": messages_to_dict([*system, *request.messages]),
                "tools": [tool_name(tool) for tool in request.tools],
            },
        )
        if not check.redacts:
            return request
        cleaned: Any = [_clean_message(check, message) for message in request.messages]
        return request.override(
            system_message=_clean_message(check, system[0]) if system else None, messages=cleaned
        )

    # Tools

    def wrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], ToolMessage | Command[Any]],
    ) -> ToolMessage | Command[Any]:
        """Run the tool as far as the rules let it, and record the call and its result."""
        step = self._tool_step(request)
        if has_rules(self._binder.tally, "tool_call"):
            call = RuledToolCall(self._bound(request.runtime), request, "TallyMiddleware")
            handler = call.around(handler)
        if step is None:
            return handler(request)
        with step.active():
            try:
                with recorded_by(self._handler, step):
                    result = handler(request)
            except BaseException as error:
                self._fail(request.state, step, error)
                raise
        if step.is_open:
            with self._capture(step.run):
                _finish_tool_call(step, result)
        return result

    async def awrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]],
    ) -> ToolMessage | Command[Any]:
        """Same as `wrap_tool_call`."""
        step = await in_thread(self._tool_step, request)
        if has_rules(self._binder.tally, "tool_call"):
            bound = await in_thread(self._bound, request.runtime)
            handler = RuledToolCall(bound, request, "TallyMiddleware").async_around(handler)
        if step is None:
            return await handler(request)
        with step.active():
            try:
                with recorded_by(self._handler, step):
                    result = await handler(request)
            except BaseException as error:
                self._fail(request.state, step, error)
                raise
        if step.is_open:
            with self._capture(step.run):
                _finish_tool_call(step, result)
        return result

    def _tool_step(self, request: ToolCallRequest) -> Step | None:
        """Return the step of a tool call; None if a handler in the callbacks records it."""
        if handler_run() is not None:
            return None
        run = self._run(request.state, request.runtime)
        if run is None:
            return None
        call = request.tool_call
        with self._capture(run):
            step = run.step(
                "tool_call", name=call["name"], parent=_parent_step_id(run), metadata=_place()
            )
            record_tool_call(step, ToolCall(call["name"], call["args"], call["id"]))
            return step
        return None

    def _fail(self, state: Mapping[str, Any], step: Step, error: BaseException) -> None:
        """End a step that an exception left. Its run ends with the graph: another middleware may
        call again.
        """
        if step.is_open:
            with self._capture(step.run):
                stop_step(step, error)
        name = _run_name(state)
        if not is_bubble_up(error) and not self._watch(name):
            self._end(name, status_for(type(error)))


def _run_name(state: Mapping[str, Any]) -> str:
    return str(state.get("tally_run", ""))


def _recording_run() -> Run | None:
    """Return the run that records this call already: that of a handler in the callbacks, of a `run`
    block, or of the current step; None if there is none.
    """
    step = current_step()
    return (
        handler_run() or current_run() or (step.run if step is not None and step.is_open else None)
    )


def _parent_step_id(run: Run) -> str | None:
    """Return the id of the open step of the run in which a new one is a child, or None."""
    step = current_step()
    return step.id if step is not None and step.run is run and step.is_open else None


def _place() -> dict[str, Any]:
    return recordable_metadata(place_of(ensure_config().get("metadata", {})))


def _thread() -> dict[str, Any]:
    """Return the thread of the graph as metadata of a run: its runs are one conversation."""
    return {name: each for name, each in _place().items() if name == "thread_id"}


def _metadata() -> Mapping[str, Any]:
    return ensure_config().get("metadata", {})


def _goal_of_run(bound: BoundTally, run_id: str) -> str | None:
    """Return the goal of the run that this one goes on with; None if it is gone or another's."""
    try:
        return bound.recordings.run(run_id).goal
    except NotFound:
        return None


def _with_ids(system: Sequence[SystemMessage]) -> list[BaseMessage]:
    return [
        message if message.id else message.model_copy(update={"id": "system"}) for message in system
    ]


def _model_name(request: ModelRequest[Any]) -> str | None:
    name = getattr(request.model, "model_name", None) or getattr(request.model, "model", None)
    return name if isinstance(name, str) else None


def _max_input_tokens(model: Any) -> int | None:
    profile = getattr(model, "profile", None)
    tokens = profile.get("max_input_tokens") if isinstance(profile, Mapping) else None
    return tokens if isinstance(tokens, int) and tokens > 0 else None


def _provider(model: Any) -> str | None:
    """Return the provider of a model as LangChain names it for tracing."""
    describe: Any = getattr(model, "_get_ls_params", None)
    provider = None if describe is None else describe().get("ls_provider")
    return provider if isinstance(provider, str) else None


M = TypeVar("M", bound=BaseMessage)


def _clean_message(check: AllowedModelCall, message: M) -> M:
    changes: dict[str, Any] = {"content": check.clean(message.content)}
    if isinstance(message, AIMessage):
        changes["tool_calls"] = check.clean(message.tool_calls)
        changes["invalid_tool_calls"] = check.clean(message.invalid_tool_calls)
    return message.model_copy(update=changes)


def _record_missing(step: Step, request: ModelRequest[Any], response: ModelResponse[Any]) -> None:
    """Record the request and the answer of a model call, unless a handler has recorded them."""
    if not step.has("request"):
        messages = [
            *([request.system_message] if request.system_message else []),
            *request.messages,
        ]
        parameters = {
            "model": _model_name(request),
            "tools": [spec.dump() for spec in tool_specs(request.tools)],
        }
        recorded_request = request_of(messages, parameters)
        step.record(
            "request",
            recorded_request,
            summary={"model": recorded_request["model"], "messages": len(messages)},
        )
    answer = next((message for message in response.result if isinstance(message, AIMessage)), None)
    if answer is not None and not step.has("response"):
        asked = _provider(request.model), _model_name(request)
        summary = answer_summary(step, facts_of_message(answer), *asked)
        step.record("response", answer_of_message(answer), summary=summary)


def _finish_tool_call(step: Step, result: ToolMessage | Command[Any]) -> None:
    record_tool_result(step, result)
    failed = isinstance(result, ToolMessage) and result.status == "error"
    step.end("failed" if failed else "completed", wait=False)
