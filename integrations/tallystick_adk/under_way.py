"""An invocation under way: its run, the calls of models and tools in it, and how it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from google.adk.agents.invocation_context import InvocationContext
from google.adk.events import Event
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.tool_context import ToolContext

from tallystick.errors import ActionDenied, ApprovalRequired
from tallystick.kit import (
    AnswerFacts,
    OpenCall,
    RequestParts,
    RootRun,
    ToolCall,
    attribute_requests,
    begin_call,
    decide_as_person,
    has_rules,
    is_nested,
    json_value,
    plain_arguments,
    record_approval,
    record_tool_call,
    record_tool_error,
    record_tool_result,
    refuse_unenforced,
    refuse_unenforced_model_call,
    rules_requests,
)
from tallystick.kit.rendering import without_frames
from tallystick.recorder import Run, status_for
from tallystick.records import StepKind, StepStatus
from tallystick.tally import AllowedToolCall, BoundTally
from tallystick_adk.memory import text_of
from tallystick_adk.requests import (
    actions_in,
    add_memory,
    answer_of,
    clean_request,
    model_facts,
    read_request,
    refusal,
    render,
    request_of,
    usage_in,
)

if TYPE_CHECKING:
    from tallystick_adk.plugin import TallyPlugin

_PIECE = "TallyPlugin"
_DENIAL_REASONS = ("denied_by_rule", "denied_by_person")
"""Reasons for which the model reads a denial; other refusals are errors of the application."""
ASKS = "This tool call requires confirmation, please approve or reject."


class _ToolUnderWay(NamedTuple):
    opened: OpenCall | None
    check: AllowedToolCall | None


class InvocationUnderWay:
    """One invocation of ADK. Its calls may come from several tasks at once."""

    def __init__(self, plugin: TallyPlugin, bound: BoundTally, context: InvocationContext) -> None:
        self.plugin, self.bound = plugin, bound
        self.id, self.session = context.invocation_id, context.session.id
        self.words = text_of(context.user_content) or None
        # An answer to a question goes on with the invocation, whose words were kept when it asked.
        self.is_answer = any(
            event.invocation_id == self.id and event.author != "user"
            for event in context.session.events
        )
        self.answer: str | None = None
        self.is_nested = is_nested()
        self.root: RootRun | None = None
        self.leave: Callable[[], object] = _do_nothing
        """Makes the run no longer current."""
        self.stop_watching: Callable[[], object] = _do_nothing
        """Ends the watch over the task of the invocation."""
        self._models: dict[Any, OpenCall] = {}
        """The model call under way of each agent in each branch."""
        self._tools: dict[Any, _ToolUnderWay] = {}

    @property
    def run(self) -> Run | None:
        """The run of the tally; None where nothing is recorded."""
        return None if self.root is None else self.root.run

    def join(self, agent: str, app: str) -> None:
        """Begin a run of the tally, or join that under way."""
        metadata = {"thread_id": self.session, "app_name": app, "invocation_id": self.id}
        self.root = RootRun.join(self.bound, agent, goal=self.words, metadata=metadata)

    @contextmanager
    def active(self, call: OpenCall | None = None) -> Iterator[None]:
        """Make the run, and the step of a call, those of the code inside."""
        with ExitStack() as stack:
            if self.run is not None:
                stack.enter_context(self.run.active())
            if call is not None:
                stack.enter_context(call.step.active())
            yield

    def _begin(self, kind: StepKind, name: str | None, context: Any) -> OpenCall | None:
        if self.run is None:
            return None
        place = {"agent": context.agent_name, "branch": _branch(context)}
        metadata = {name: value for name, value in place.items() if value}
        with self.plugin.guard(self.run), self.run.active():
            return begin_call(self.run, kind, name=name, metadata=metadata)
        return None

    # Model calls

    def before_model(self, context: Any, request: LlmRequest) -> LlmResponse | None:
        """Compile, check and record a request, which changes in its place; return the answer of one
        that is refused. Raises CompileError.
        """
        model = getattr(context._invocation_context.agent, "canonical_model", None)
        provider, name = model_facts(request, model)
        call = self._begin("model_call", name, context)
        if call is not None:
            call.provider, call.model = provider, name
            # One that never ended, because something else answered in place of its model.
            self._close_model(context)
            self._models[_place(context)] = call
        try:
            with self.active(call):
                if self.plugin.compiler is not None:
                    self._compile(request, provider, name)
                try:
                    self._check_model(request, provider, name)
                finally:
                    # A request that is refused is kept as it was asked for.
                    if call is not None:
                        self._record(call, request, provider, name)
        except (ActionDenied, ApprovalRequired) as error:
            self.model_failed(context, error)
            return refusal(error, getattr(error, "reason", "approval_required"))
        except BaseException as error:
            self.model_failed(context, error)
            raise
        return None

    def attribute_wire(self, context: Any) -> None:
        """Attribute what this task sends from now on to the model call under way."""
        call = self._models.get(_place(context))
        if call is not None:
            attribute_requests(call.step)

    def _compile(self, request: LlmRequest, provider: str | None, name: str | None) -> None:
        bound, compiler = self.bound, self.plugin.compiler
        assert compiler is not None
        read = read_request(request, bound.tally.counter(name).count)
        parts = RequestParts(
            items=read.items,
            tools=read.tools,
            text=self.words or "",
            turn=self.id,
            conversation=self.session,
            model=name,
            provider=provider,
            reserve=request.config.max_output_tokens or 0,
            untouched=read.untouched,
            task_type=self.plugin.task_type,
        )
        compiled = compiler.compile(bound, parts)
        if compiler.is_whole:
            render(compiled, read)
        else:
            add_memory(compiled, request)

    def _check_model(self, request: LlmRequest, provider: str | None, name: str | None) -> None:
        bound = self.bound
        if not rules_requests(bound):
            return
        parts = read_request(request).for_rules(partial(without_frames, bound))
        facts: dict[str, Any] = {"provider": provider, "model": name, **parts}
        if not self.plugin.rules:
            refuse_unenforced_model_call(bound, call_id=self.id, **facts)
            return
        task_type = self.plugin.task_type
        asked = request_of(request)
        check = bound.check_model_call(piece=_PIECE, request=asked, task_type=task_type, **facts)
        if check.redacts:
            clean_request(request, check.clean)

    def _record(
        self, call: OpenCall, request: LlmRequest, provider: str | None, name: str | None
    ) -> None:
        with self.plugin.guard(self.run):
            asked = {} if provider is None else {"provider": provider}
            summary = {"model": name, **asked, "messages": len(request.contents)}
            call.step.record("request", request_of(request), summary=summary)

    def after_model(self, context: Any, response: LlmResponse) -> None:
        """Record an answer, or see a piece of one that is streamed."""
        self._answered(_place(context), response)

    def see(self, event: Event) -> None:
        """See an event. Its words may be the answer to a request that another plugin answered in
        place of the model.
        """
        is_said = event.author != "user" and not event.partial
        if is_said and not event.get_function_responses() and event.content is not None:
            said = {name: getattr(event, name) for name in LlmResponse.model_fields}
            self._answered((event.author, event.branch), LlmResponse.model_construct(**said))
        if is_said and event.is_final_response():
            self.answer = text_of(event.content) or self.answer

    def _answered(self, place: tuple[str, str | None], response: LlmResponse) -> None:
        call = self._models.get(place)
        if call is None:
            return
        if response.partial:
            call.times.add_chunk()
            return
        del self._models[place]
        with self.plugin.guard(self.run):
            stop = response.finish_reason
            facts = AnswerFacts(
                usage_in(response),
                model=response.model_version,
                stop=None if stop is None else str(stop.value).lower(),
            )
            call.step.record("response", answer_of(response), summary=call.answer_summary(facts))
            if response.error_code:
                record_tool_error(call.step, None, response.error_message or response.error_code)
            call.end("failed" if response.error_code else "completed")

    def model_failed(self, context: Any, error: BaseException) -> None:
        """Record that a request failed."""
        call = self._models.pop(_place(context), None)
        if call is not None:
            with self.plugin.guard(self.run):
                call.fail(error)

    def _close_model(self, context: Any) -> None:
        call = self._models.pop(_place(context), None)
        if call is not None:
            with self.plugin.guard(self.run):
                call.end("interrupted")

    # Tool calls

    def before_tool(
        self, tool: BaseTool, arguments: dict[str, Any], context: ToolContext
    ) -> dict[str, Any] | None:
        """Check and record a call, whose arguments change in their place; return the answer of one
        that may not run, or that waits for a person.
        """
        call = ToolCall(tool.name, plain_arguments(dict(arguments)), context.function_call_id)
        confirmation = context.tool_confirmation
        opened = self._begin("tool_call", tool.name, context)
        if opened is not None:
            with self.plugin.guard(self.run):
                is_approved = confirmation is not None and confirmation.confirmed
                record_tool_call(opened.step, call, approved=is_approved)
        try:
            with self.active(opened):
                check = self._check_tool(call, context)
        except ApprovalRequired as error:
            return self._ask(call, opened, context, error)
        except BaseException as error:
            is_denial = isinstance(error, ActionDenied) and error.reason in _DENIAL_REASONS
            if opened is not None:
                with self.plugin.guard(self.run):
                    if is_denial:
                        record_tool_error(opened.step, error, str(error))
                        opened.end("failed")
                    else:
                        opened.fail(error)
            if is_denial:
                return {"error": str(error)}
            raise
        if check is not None and check.redacts:
            cleaned = check.arguments
            arguments.clear()
            arguments.update(cleaned)
        self._tools[_key(context)] = _ToolUnderWay(opened, check)
        return None

    def _check_tool(self, call: ToolCall, context: ToolContext) -> AllowedToolCall | None:
        bound = self.bound
        if not has_rules(bound, "tool_call"):
            return None
        if not self.plugin.rules:
            refuse_unenforced(bound, call)
            return None
        check = partial(
            bound.check_tool_call,
            call.name,
            call.arguments,
            tool_call_id=call.tool_call_id,
            piece=_PIECE,
            task_type=self.plugin.task_type,
        )
        answer = context.tool_confirmation
        while True:
            try:
                return check()
            except ApprovalRequired as error:
                if answer is None:
                    raise
                reason = refusal_reason(answer.payload, answer.confirmed)
                decide_as_person(bound, error.approvals, approved=answer.confirmed, reason=reason)
                # An equal call beside it may use up what was granted to both: each has a try.
                answer = None if error.new else answer

    def _ask(
        self,
        call: ToolCall,
        opened: OpenCall | None,
        context: ToolContext,
        error: ApprovalRequired,
    ) -> dict[str, Any]:
        """Ask a person by ADK's own confirmation of tools."""
        context.request_confirmation(hint=str(error), payload={"approval": error.approvals[0].id})
        context.actions.skip_summarization = True
        self._wait(call, opened)
        return {"error": ASKS}

    def _wait(self, call: ToolCall, opened: OpenCall | None) -> None:
        if self.root is not None:
            self.root.is_waiting = True
        if opened is not None:
            with self.plugin.guard(self.run):
                if not opened.step.has("approval"):
                    record_approval(opened.step, call)
                opened.end("blocked")

    def enter_tool(self, context: ToolContext) -> None:
        """Make the step of a call that may run that of the code that runs it."""
        under_way = self._tools.get(_key(context))
        if under_way is not None and under_way.opened is not None:
            under_way.opened.enter()

    def after_tool(self, tool: BaseTool, context: ToolContext, result: Any) -> Any:
        """Record the result of a call; return it cleaned where a rule redacts it, else None."""
        under_way = self._tools.pop(_key(context), None)
        if under_way is None:
            return None
        opened, check = under_way
        cleaned = None
        if check is not None and check.redacts:
            cleaned = result = check.result(result)
        if context.function_call_id in context.actions.requested_tool_confirmations:
            # The tool itself asks for a person.
            self._wait(ToolCall(tool.name, None, context.function_call_id), opened)
        elif opened is not None:
            with self.plugin.guard(self.run):
                done = actions_in(context)
                record_tool_result(
                    opened.step, json_value(result), **({"actions": done} if done else {})
                )
                opened.end()
        return cleaned

    def tool_failed(self, context: ToolContext, error: BaseException) -> None:
        """Record that a call failed."""
        under_way = self._tools.pop(_key(context), None)
        if under_way is not None and under_way.opened is not None:
            with self.plugin.guard(self.run):
                under_way.opened.fail(error)

    def leave_tool(self, context: ToolContext) -> None:
        """Make the step of a call no longer current, in the task that ran it."""
        under_way = self._tools.get(_key(context))
        if under_way is not None and under_way.opened is not None:
            under_way.opened.leave()

    # The end

    def finish(self) -> None:
        """End the run with its outcome, and wait until it is stored."""
        if self.root is None:
            return
        speakers = self.plugin.capture
        if speakers != "off" and not self.is_nested:
            with self.plugin.guard(self.root.run):
                self.bound.keep_turn(
                    self.root.run,
                    user=None if self.is_answer else self.words,
                    assistant=self.answer if speakers == "both" else None,
                    unkept_answer=self.answer,
                    observer=_PIECE,
                )
        self._end("blocked" if self.root.is_waiting else "completed")

    def fail(self, error: BaseException) -> None:
        """End the run with an error, and wait until it is stored."""
        run, status = self.run, status_for(type(error))
        if run is None or self.root is None:
            return
        # ADK puts an error that a plugin raises into one of its own.
        causes = [each for each in (error, error.__cause__) if each is not None]
        if self.root.is_own and status == "failed" and not any(map(run.has_noted, causes)):
            with self.plugin.guard(run):
                run.step("other", name=run.record.agent_name).fail(error)
        self._end(status)

    def cut_off(self) -> None:
        """End a run that was left: its task was cancelled, or nobody read on."""
        if self.root is not None and self.root.is_own:
            with self.plugin.guard(self.root.run), suppress(RuntimeError):
                self.root.run.end("cancelled", wait=False)

    def _end(self, status: StepStatus) -> None:
        for call in [*self._models.values()]:
            with self.plugin.guard(self.run):
                call.end("interrupted")
        self._models.clear()
        if self.root is not None and self.root.is_own:
            with self.plugin.guard(self.root.run):
                self.root.run.end(status)


def _do_nothing() -> None:
    """Nothing is to be undone."""


def _branch(context: Any) -> str | None:
    branch: str | None = context._invocation_context.branch
    return branch


def _place(context: Any) -> tuple[str, str | None]:
    return context.agent_name, _branch(context)


def _key(context: ToolContext) -> Any:
    return context.function_call_id or id(context)


def refusal_reason(payload: Any, is_approved: bool) -> str:
    """Return the words of a person who answered, from the payload of the confirmation."""
    said = payload.get("reason") if isinstance(payload, dict) else None
    if isinstance(said, str) and said.strip():
        return said
    return f"{'Approved' if is_approved else 'Rejected'} by the confirmation of the tool."
