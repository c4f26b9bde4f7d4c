"""An invocation under way: its run, the calls of models and tools in it, and how it ends."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from typing import Any, NamedTuple

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
    ToolCall,
    attribute_requests,
    claim_enforcement,
    json_value,
    plain_arguments,
    record_tool_error,
    release_enforcement,
)
from tallystick.kit.agent_runs import AgentRun, Answer, RunSettings
from tallystick.records import StepStatus
from tallystick.tally import AllowedToolCall, BoundTally
from tallystick_adk.memory import text_of
from tallystick_adk.requests import ModelCall, actions_in, answer_of, refusal, usage_in

ASKS = "This tool call requires confirmation, please approve or reject."


class _ToolUnderWay(NamedTuple):
    opened: OpenCall | None
    check: AllowedToolCall | None


class InvocationUnderWay(AgentRun):
    """One invocation of ADK. Its calls may come from several tasks at once."""

    def __init__(
        self, settings: RunSettings, bound: BoundTally, context: InvocationContext
    ) -> None:
        words = text_of(context.user_content) or None
        super().__init__(settings, bound, words=words, session=context.session.id)
        self.id = context.invocation_id
        # An answer to a question goes on with the invocation, whose words were kept when it asked.
        self.is_answer = any(
            event.invocation_id == self.id and event.author != "user"
            for event in context.session.events
        )
        self.answer: str | None = None
        self.cleanup = ExitStack()
        """Makes the run no longer current, and ends the watch over its task."""
        self._models: dict[Any, OpenCall] = {}
        """The model call under way of each agent in each branch."""
        self._tools: dict[str, _ToolUnderWay] = {}

    # Model calls

    def before_model(self, context: Any, request: LlmRequest) -> LlmResponse | None:
        """Compile, check and record a request, which changes in its place; return the answer of one
        that is refused. Raises CompileError.
        """
        model = getattr(context._invocation_context.agent, "canonical_model", None)
        asked = ModelCall(request, model)
        call = self.begin_request(asked, **_metadata(context))
        if call is not None:
            # One that never ended, because something else answered in place of its model.
            self._close_model(_place(context))
            self._models[_place(context)] = call
        reserve = request.config.max_output_tokens or 0
        try:
            self.prepare(asked, call, text=self.words or "", turn=self.id, reserve=reserve)
        except BaseException as error:
            self.model_failed(context, error)
            if isinstance(error, ActionDenied | ApprovalRequired):
                return refusal(error, getattr(error, "reason", "approval_required"))
            raise
        return None

    def attribute_wire(self, context: Any) -> None:
        """Attribute what this task sends from now on to the model call under way."""
        call = self._models.get(_place(context))
        if call is not None:
            attribute_requests(call.step)

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
        with self.guard(self.run):
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
        self._close_model(_place(context), error)

    def _close_model(self, place: Any, error: BaseException | None = None) -> None:
        call = self._models.pop(place, None)
        if call is not None:
            with self.guard(self.run):
                call.end("interrupted") if error is None else call.fail(error)

    # Tool calls

    def before_tool(
        self, tool: BaseTool, arguments: dict[str, Any], context: ToolContext
    ) -> dict[str, Any] | None:
        """Check and record a call, whose arguments change in their place; return the answer of one
        that may not run, or that waits for a person.
        """
        call = ToolCall(tool.name, plain_arguments(dict(arguments)), context.function_call_id)
        answer = answer_in(context)
        is_approved = answer is not None and answer.approved
        opened = self.begin_tool(call, approved=is_approved, **_metadata(context))
        try:
            with self.active(opened):
                check = self.check_tool(call, answer)
        except ApprovalRequired as error:
            asked = {"approval": error.approvals[0].id}
            self._wait(call, opened)
            return ask(context, str(error), asked)
        except BaseException as error:
            denial = self.fail_tool(opened, error)
            if denial is None:
                raise
            return {"error": denial}
        if check is not None and check.redacts:
            cleaned = check.arguments
            arguments.clear()
            arguments.update(cleaned)
        if self.settings.rules:
            claim_enforcement(self.bound, "tool_call", call_key(context))
        self._tools[call_key(context)] = _ToolUnderWay(opened, check)
        return None

    def _wait(self, call: ToolCall, opened: OpenCall | None) -> None:
        if self.root is not None:
            self.root.is_waiting = True
        self.wait_tool(call, opened)

    def enter_tool(self, context: ToolContext) -> None:
        """Make the step of a call that may run that of the code that runs it."""
        under_way = self._tools.get(call_key(context))
        if under_way is not None and under_way.opened is not None:
            under_way.opened.enter()

    def leave_tool(self, context: ToolContext) -> None:
        """Make the step of a call no longer current, in the task that ran it."""
        under_way = self._tools.get(call_key(context))
        if under_way is not None and under_way.opened is not None:
            under_way.opened.leave()

    def after_tool(self, tool: BaseTool, context: ToolContext, result: Any) -> Any:
        """Record the result of a call; return it cleaned where a rule redacts it, else None."""
        under_way = self._take_tool(call_key(context))
        if under_way is None:
            return None
        opened, check = under_way
        cleaned = None
        if check is not None and check.redacts:
            cleaned = result = check.result(result)
        if context.function_call_id in context.actions.requested_tool_confirmations:
            # The tool itself asks for a person.
            self._wait(ToolCall(tool.name, None, context.function_call_id), opened)
        else:
            done = actions_in(context)
            self.end_tool(opened, json_value(result), **({"actions": done} if done else {}))
        return cleaned

    def tool_failed(self, context: ToolContext, error: BaseException) -> None:
        """Record that a call failed."""
        under_way = self._take_tool(call_key(context))
        if under_way is not None:
            self.tell_tool(under_way.opened, error, None)

    def _take_tool(self, key: str) -> _ToolUnderWay | None:
        under_way = self._tools.pop(key, None)
        if under_way is not None and self.settings.rules:
            release_enforcement(self.bound, "tool_call", key)
        return under_way

    # The end

    def finish(self) -> None:
        """End the run with its outcome, and wait until it is stored."""
        self.keep_turn(self.answer, is_continued=self.is_answer)
        self.end("blocked" if self.root is not None and self.root.is_waiting else "completed")

    def cut_off(self) -> None:
        """End a run that was left: its task was cancelled, or nobody read on."""
        self._take_tools()
        if self.root is not None and self.root.is_own:
            with self.guard(self.root.run), suppress(RuntimeError):
                self.root.run.end("cancelled", wait=False)

    def end(self, status: StepStatus) -> None:
        """End the run with the calls that never ended, and wait until it is stored."""
        self._take_tools()
        for place in list(self._models):
            self._close_model(place)
        super().end(status)

    def _take_tools(self) -> None:
        for key in list(self._tools):
            self._take_tool(key)


def _place(context: Any) -> tuple[str, str | None]:
    return context.agent_name, context._invocation_context.branch


def _metadata(context: Any) -> dict[str, Any]:
    agent, branch = _place(context)
    return {name: each for name, each in {"agent": agent, "branch": branch}.items() if each}


def call_key(context: ToolContext) -> str:
    """Return the name of a call among all that are under way."""
    return f"{context.invocation_id} {context.function_call_id or id(context)}"


def ask(context: ToolContext, hint: str, payload: Any = None) -> dict[str, Any]:
    """Ask a person by ADK's own confirmation of tools; return what the model reads until then."""
    context.request_confirmation(hint=hint, payload=payload)
    context.actions.skip_summarization = True
    return {"error": ASKS}


def answer_in(context: ToolContext) -> Answer | None:
    """Return the answer of a person that a call brings along, by the confirmation of its tool."""
    confirmation = context.tool_confirmation
    if confirmation is None:
        return None
    approved, payload = confirmation.confirmed, confirmation.payload
    said = payload.get("reason") if isinstance(payload, dict) else None
    if not isinstance(said, str) or not said.strip():
        said = f"{'Approved' if approved else 'Rejected'} by the confirmation of the tool."
    return Answer(approved, said)
