"""The six memory tools for code that calls a provider's SDK itself: schemas, and their calls."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from functools import cache, lru_cache, partial
from typing import Any, Literal, NamedTuple, cast

from pydantic import ValidationError

from tallystick.errors import ApprovalRequired, Blocked, InvalidInput
from tallystick.errors.base import explain_validation
from tallystick.kit.arguments import check_flag, check_word
from tallystick.kit.binder import ActorSource, binder_of
from tallystick.kit.elsewhere import TallyElsewhere, run_memory_tool
from tallystick.kit.enforcement import decide_as_person, has_rules, is_enforced
from tallystick.kit.rendering import (
    ToolCall,
    record_tool_call,
    record_tool_error,
    record_tool_result,
)
from tallystick.operations import (
    MODEL_TOOLS,
    Arguments,
    arguments_of,
    not_approved,
    offered_tools,
)
from tallystick.recorder import Step, current_run
from tallystick.records import ContextItem, JsonObject, ModelAnswer, ModelToolCall, Scope, ToolSpec
from tallystick.tally import AllowedToolCall, BoundTally, Tally

PlainApproval = Literal["ask", "elsewhere"]


class ToolQuestion(NamedTuple):
    """A change of memory that a person is asked about before it is made."""

    tool: str
    arguments: JsonObject
    description: str


@lru_cache(maxsize=2)
def memory_tool_specs(*, working: bool = False) -> tuple[ToolSpec, ...]:
    """Return the memory tools as a compile takes them, by name; with `working` that for working
    memory too.
    """
    tools = sorted(offered_tools(working=working), key=lambda tool: tool.name)
    return tuple(
        ToolSpec(name=tool.name, description=tool.description, parameters=_schema(tool.name))
        for tool in tools
    )


class PlainMemoryTools(ABC):
    """The memory tools of one tally for calls that a model makes through an SDK."""

    runtime: str
    """The name of the provider."""

    def __init__(
        self,
        tally: Tally | BoundTally | TallyElsewhere,
        *,
        actor: ActorSource | None = None,
        scope: str | Scope | None = None,
        approval: PlainApproval = "ask",
        ask: Callable[[ToolQuestion], bool | str] | None = None,
        working: bool = False,
    ) -> None:
        """`memory_modify` and `memory_forget` ask a person by `ask`, which answers True, False, or
        the reason against it; without it they are refused. With `approval="elsewhere"` they act at
        once, for agents whose own code asks. All go by the rules of the tally. With `working` the
        model keeps its task and plan by `memory_working`.
        """
        check_flag("working", working)
        self._binder = binder_of(
            tally, runtime=self.runtime, piece="memory_tools", actor=actor, scope=scope
        )
        self._asking = Asking(approval, ask)
        self._specs = memory_tool_specs(working=working)

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """The tools for `bound.compile(…, tools=…)`."""
        return self._specs

    def has(self, name: str) -> bool:
        """Return True for the name of a memory tool."""
        return any(spec.name == name for spec in self._specs)

    def run(self, call: ModelToolCall) -> JsonObject:
        """Run a call and return its answer; a refusal is an answer that the model reads.

        Inside of a run of this tally the call is a step of it. Where a rule wants an approval,
        `ask` gives or denies it; without `ask` it waits for a person, and the answer says so.
        Raises InvalidInput for a call of another tool.
        """
        if not self.has(call.name):
            raise InvalidInput(
                f"{call.name!r} is no memory tool. Run it yourself, and give its result to the "
                "next compile."
            )
        bound = self._binder.bound(None)
        asked, run = ToolCall(call.name, call.arguments, call.id), current_run()
        if run is None or run.id != self._binder.current_run_id():
            return answer_memory_call(bound, asked, self._asking)
        with run.step("tool_call", name=call.name) as step:
            record_tool_call(step, asked)
            answer = answer_memory_call(bound, asked, self._asking)
            _record_answer(step, answer)
        return answer

    def results(self, calls: Iterable[ModelToolCall]) -> list[ContextItem]:
        """Run the memory tools among these calls; return their results for the next compile."""
        return [
            ContextItem.load(
                {
                    "id": f"result-{call.id}",
                    "kind": "tool_result",
                    "content": text_of(self.run(call)),
                    "tool_call_id": call.id,
                }
            )
            for call in calls
            if self.has(call.name)
        ]

    @property
    def definitions(self) -> list[dict[str, Any]]:
        """The tools as a call of the provider's SDK takes them, by name."""
        return [self._definition(spec) for spec in self._specs]

    def outputs(self, response: Any) -> list[dict[str, Any]]:
        """Run the memory tools that an answer of the SDK calls; return their results for the next
        request, where they stand behind that answer.
        """
        body = response if isinstance(response, Mapping) else response.to_dict(mode="json")
        return [
            self._output(call, text_of(self.run(call)))
            for call in self._parse(body).tool_calls
            if self.has(call.name)
        ]

    @abstractmethod
    def _definition(self, spec: ToolSpec) -> dict[str, Any]:
        """Return a tool in the provider's form."""

    @abstractmethod
    def _parse(self, response: Mapping[str, Any]) -> ModelAnswer:
        """Return an answer of the provider, as JSON, in no provider's form."""

    @abstractmethod
    def _output(self, call: ModelToolCall, text: str) -> dict[str, Any]:
        """Return the result of a call in the provider's form."""


class Asking:
    """The rules over memory tools, and the person who is asked: by `ask`, and with
    `approval="elsewhere"` by nobody here.
    """

    def __init__(
        self,
        approval: PlainApproval = "elsewhere",
        ask: Callable[[ToolQuestion], bool | str] | None = None,
        piece: str = "memory_tools",
        key: str | None = None,
    ) -> None:
        """`piece` enforces the rules, for the doctor. `key` is the id by which a piece around it
        may have the call in hand, by default that of the call. Raises InvalidInput.
        """
        check_word("approval", approval, PlainApproval)
        self._asks, self._ask = approval == "ask", ask
        self._piece, self._key = piece, key

    def check(self, bound: BoundTally | TallyElsewhere, call: ToolCall) -> AllowedToolCall:
        """Check a call by the rules of its tally, unless an enforcing piece has it in hand; a
        person whom a rule asks answers. Raises Blocked.
        """
        if (
            not isinstance(bound, BoundTally)
            or not has_rules(bound, "tool_call")
            or is_enforced(bound, "tool_call", call.name, self._key or call.tool_call_id)
        ):
            return AllowedToolCall(checked=call.arguments)
        name, arguments, call_id = call
        check = partial(
            bound.check_tool_call, name, arguments, tool_call_id=call_id, piece=self._piece
        )
        return self.check_answered(bound, call, check)

    def check_answered(
        self, bound: BoundTally, call: ToolCall, check: Callable[[], AllowedToolCall]
    ) -> AllowedToolCall:
        """Return what `check` returns; where a rule wants an approval, once a person has given it.
        Raises Blocked.
        """
        try:
            return check()
        except ApprovalRequired as error:
            if self._ask is None or not self._asks:
                raise
            answer = self._ask(_question(call.name, call.arguments))
            reason = answer if isinstance(answer, str) else "answered when the agent asked"
            decide_as_person(bound, error.approvals, approved=answer is True, reason=reason)
        return check()

    def asks_about(self, tool: str) -> bool:
        """Return True if a person is asked about each call of a tool."""
        return self._asks and MODEL_TOOLS[tool].needs_approval

    def refusal(self, tool: str, arguments: JsonObject) -> JsonObject | None:
        """Return what the model reads of a change that nobody approved; None for one that may be
        made.
        """
        if not self.asks_about(tool):
            return None
        if self._ask is None:
            return not_approved(tool, "Nobody can be asked: the agent was given no `ask`.")
        answer = self._ask(_question(tool, arguments))
        if answer is True:
            return None
        return not_approved(tool, answer if isinstance(answer, str) else "")


def answer_memory_call(
    bound: BoundTally | TallyElsewhere, call: ToolCall, asking: Asking
) -> JsonObject:
    """Run a call of a memory tool and return its answer; a refusal is one that the model reads."""
    try:
        return run_memory_call(bound, call, asking)
    except Blocked as error:
        return {"error": error.code, "message": str(error)}


def run_memory_call(
    bound: BoundTally | TallyElsewhere, call: ToolCall, asking: Asking
) -> JsonObject:
    """Same as `answer_memory_call`, but raise Blocked where a rule stops the call."""
    try:
        call = call._replace(arguments=tool_arguments(call.name, call.arguments))
    except InvalidInput as error:
        return {"error": "InvalidInput", "message": str(error)}
    check = asking.check(bound, call)
    refusal = asking.refusal(call.name, call.arguments) if check.approval is None else None
    if refusal is not None:
        return refusal
    result: JsonObject = check.result(run_memory_tool(bound, call.name, check.arguments))
    return result


def _question(tool: str, arguments: JsonObject) -> ToolQuestion:
    description = MODEL_TOOLS[tool].description if tool in MODEL_TOOLS else "Memory as files."
    return ToolQuestion(tool, arguments, description)


def text_of(answer: JsonObject) -> str:
    """Return the answer of a tool as the text that a model reads."""
    return json.dumps(answer, ensure_ascii=False, separators=(",", ":"))


def _record_answer(step: Step, answer: JsonObject) -> None:
    if "error" in answer:
        record_tool_error(step, None, str(answer.get("message", "")))
        step.end("failed", wait=False)
    else:
        record_tool_result(step, answer)


def tool_arguments(name: str, arguments: JsonObject) -> JsonObject:
    """Return the arguments that a model gave to a memory tool, in the types that it takes and with
    its defaults.

    Raises InvalidInput, which names each that does not fit.
    """
    try:
        valid = _arguments(name).model_validate(arguments)
    except ValidationError as error:
        raise InvalidInput(explain_validation(error, whole=name)) from error
    return cast(JsonObject, valid.model_dump())


@cache
def _arguments(name: str) -> type[Arguments]:
    return arguments_of(MODEL_TOOLS[name].function, name)


def _schema(name: str) -> JsonObject:
    schema = _arguments(name).model_json_schema()
    for entry in (schema, *schema["properties"].values()):
        entry.pop("title", None)
    return cast(JsonObject, schema)
