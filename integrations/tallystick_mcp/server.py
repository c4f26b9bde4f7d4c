"""The MCP server of a tally: four tools, resources and prompts, for one actor within a boundary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from mcp.server.mcpserver import Context
from mcp_types import (
    CallToolResult,
    CompleteRequestParams,
    GetPromptResult,
    InputRequiredResult,
    ToolAnnotations,
)
from mcp_types import Tool as ToolOfList
from pydantic import ValidationError

from tallystick.aio import in_thread
from tallystick.errors import ApprovalRequired, InvalidInput, TallystickError
from tallystick.errors.base import explain_validation
from tallystick.kit import (
    check_actor,
    check_tally,
    check_word,
    decide_as_person,
    has_rules,
)
from tallystick.operations import NOTICE, Arguments, not_approved
from tallystick.records import Actor, Scope
from tallystick.tally import AllowedToolCall, BoundTally, Tally
from tallystick_mcp import answers, prompts, resources
from tallystick_mcp.answers import protocol_error
from tallystick_mcp.arguments import Add, Explore, Manage, Search
from tallystick_mcp.asking import Question, Verdict, can_ask, put, verdict
from tallystick_mcp.callers import Caller, Callers, as_agents, caller_of
from tallystick_mcp.schemas import slim_schema
from tallystick_mcp.stdio import StdioServer
from tallystick_mcp.tools import (
    Call,
    Preview,
    approved_call,
    call_of,
    cleaned_call,
    confirmed_call,
    is_for_person,
    preview_of,
)

Approval = Literal["ask", "elsewhere"]
"""Who is asked before memory is changed: a person, or nobody, because the application asks."""

_INSTRUCTIONS = (
    "Long-term memory. Call search before you ask the user or assume; add what should be known "
    "next time, with the id of a memory that it replaces and the user's words that say so as span; "
    f"explore for more about a hit; manage to change. {NOTICE} Every answer names the actor and "
    "the scope it is bound to."
)


class _Tool(NamedTuple):
    arguments: type[Arguments]
    description: str
    annotations: ToolAnnotations | None


_READS = ToolAnnotations(read_only_hint=True)
_CHANGES = None
"""A tool without annotations may destroy: that is what the protocol assumes."""

TOOLS: Mapping[str, _Tool] = {
    "search": _Tool(
        Search,
        "Recall or look up what is known, was said, agreed, decided or preferred: what, which, "
        "who, why; facts, decisions, lessons, constraints. No query: newest. "
        "Times: ISO.",
        _READS,
    ),
    "explore": _Tool(
        Explore,
        "scopes: projects. list: what is stored. related: links; concluded from it. "
        "dependencies: order, blockers. about: all on a name. communities: topics. get: whole "
        "text. inspect: who may see it, why. history: what changed. source: original text. "
        "context: pack of answers; id: session. wake: session start, handover. working: a plan. "
        "runs: of agents. steps: of a run. receipt: of a step. why: what the agent saw or missed. "
        "trace: where a sentence is from. verify: prove unaltered. uses: steps with it. "
        "reviews: proposals. approvals: pending. access: an actor's reach. policy: may a tool "
        "run. synthesis: a document.",
        _READS,
    ),
    "add": _Tool(
        Add,
        "Remember, note, save, keep or store for later: a fact, preference, decision, constraint, "
        "task, lesson, conclusion; always, never.",
        ToolAnnotations(destructive_hint=False),
    ),
    "manage": _Tool(
        Manage,
        "Change memory, with a reason. modify: edit or fix text, tags. forget: remove one. "
        "forget_matching: all by query. recover: undo forgetting. correct: mark stale, "
        "outdated, wrong, replaced, duplicate, sensitive; redact. promote: to a project, team. "
        "share: follows. pin: always shown. unpin: no. accept: a proposal. defer: later. "
        "reject: no. undo: it. hold: in working. start_task: by an assignee. block_task: by what. "
        "unblock_task: on. submit_review: commits. complete_task: changes {hours, learnings}. "
        "archive: off the board. estimate: hours. prioritize: what next. detect_cycles: circles. "
        "link_alike: rules, patterns. replay: run a recorded step again. crawl: a site. "
        "sync: a source by field; by: cron. refresh: anew. import_status: progress. "
        "health: check for problems. stats: space. synthesize_plan: a document. "
        "synthesize_draft: its sentences. synthesize_verify: held to sources. "
        "rebuild_index: repair.",
        _CHANGES,
    ),
}
"""By name, in the order in which they are listed."""


class TallyServer(StdioServer):
    """An MCP server whose tools, resources and prompts are those of one tally."""

    def __init__(
        self,
        tally: Tally,
        callers: Callers,
        *,
        name: str,
        approval: Approval,
    ) -> None:
        super().__init__(name, instructions=_INSTRUCTIONS)
        self.tally = tally
        self._callers, self._approval = callers, approval
        resources.add_to(self, callers)
        prompts.add_to(self, callers)

    async def list_tools(self) -> list[ToolOfList]:
        """Return the four tools."""
        return list(_LISTED)

    async def call_tool(
        self,
        name: str,
        arguments: dict[str, Any],
        context: Context[Any, Any] | None = None,
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool. What a model can act on is a result; other errors are those of the
        protocol. No error repeats a value that was given.
        """
        if context is None:
            context = Context(mcp_server=self)
        try:
            caller = self._callers(context)
        except TallystickError as error:
            raise protocol_error(error) from error
        try:
            return await self._answer_tool_call(caller, name, arguments, context)
        except TallystickError as error:
            return answers.failure(caller, error)

    async def get_prompt(
        self,
        name: str,
        arguments: dict[str, Any] | None = None,
        context: Context[Any, Any] | None = None,
    ) -> GetPromptResult | InputRequiredResult:
        """Return a prompt. Raises an error of the protocol for one that is not there, or without
        an argument that it needs: the SDK would log a traceback and name no reason.
        """
        template = {prompt.name: prompt for prompt in await self.list_prompts()}.get(name)
        if template is None:
            raise protocol_error(InvalidInput("There is no such prompt."))
        needed = [each.name for each in template.arguments or () if each.required]
        missing = sorted(set(needed) - set(arguments or {}))
        if missing:
            raise protocol_error(InvalidInput(f"The prompt {name} takes {', '.join(missing)}."))
        return await super().get_prompt(name, arguments, context)

    async def complete(
        self, params: CompleteRequestParams, context: Context[Any, Any]
    ) -> list[str]:
        """Return the scopes of the caller that begin as the argument of `tally://context/{scope}`
        does; ids and requests are not guessed. Raises an error of the protocol.
        """
        try:
            caller = self._callers(context)
        except TallystickError as error:
            raise protocol_error(error) from error
        if getattr(params.ref, "uri", None) != resources.CONTEXT or params.argument.name != "scope":
            return []
        scopes = dict.fromkeys(map(str, (caller.bound.scope, *caller.scopes)))
        return [scope for scope in scopes if scope.startswith(params.argument.value)]

    async def _answer_tool_call(
        self, caller: Caller, name: str, arguments: dict[str, Any], context: Context[Any, Any]
    ) -> CallToolResult | InputRequiredResult:
        tool = TOOLS.get(name)
        if tool is None:
            unknown = InvalidInput(f"There is no such tool. Tools are: {', '.join(TOOLS)}.")
            raise protocol_error(unknown)
        valid = _validate_arguments(name, tool.arguments, arguments)
        call = await in_thread(call_of, caller, name, valid)
        answered = verdict(context)
        if call.route.asks:
            assert isinstance(valid, Manage)
            call = await in_thread(cleaned_call, call)
            if valid.mode == "preview":
                preview = await in_thread(_shown_preview, call)
                return answers.result(
                    caller, call.bound, f"Preview of {valid.action}", preview.fields
                )
            confirmation = await self._confirmation(call, valid, context, answered)
            if not isinstance(confirmation, _Confirmed):
                return confirmation
            call, answered = confirmation
        check = await self._check_by_rules(call, context, answered)
        if not isinstance(check, AllowedToolCall):
            return check
        text, fields = await in_thread(call.run, check)
        return answers.result(caller, call.bound, text, fields)

    async def _confirmation(
        self,
        call: Call,
        valid: Manage,
        context: Context[Any, Any],
        answered: tuple[Verdict, str] | None,
    ) -> _Confirmed | CallToolResult | InputRequiredResult:
        """Return a change that may be made, or what is answered instead. Raises Denied
        (`person_required`) where no person can be asked.

        A token is that of a program: an agent that confirmed with the token it was just given would
        confirm by itself.
        """
        if call.bound.actor.agent is None:
            return _Confirmed(await in_thread(confirmed_call, call, valid.confirm_token), None)
        needs_person = await in_thread(is_for_person, call)
        if self._approval == "elsewhere" and not needs_person:
            return _Confirmed(await in_thread(approved_call, call), None)
        # Over a network an answer of the client proves no person.
        if not can_ask(context) or (needs_person and not call.bound.actor.is_attended):
            raise await in_thread(call.refuse, "person_required")
        if needs_person:
            call = call.by_person()
        if answered is None:
            preview = await in_thread(preview_of, call)
            outcome = await put(context, Question(text=preview.text, state=preview.token))
            if isinstance(outcome, InputRequiredResult):
                return outcome
            answered = outcome
        answer, token = answered
        if answer != "yes":
            return answers.refusal(
                call.caller, not_approved("manage", "The user was asked and did not allow it.")
            )
        return _Confirmed(await in_thread(confirmed_call, call, token), answered)

    async def _check_by_rules(
        self,
        call: Call,
        context: Context[Any, Any],
        answered: tuple[Verdict, str] | None,
    ) -> AllowedToolCall | CallToolResult | InputRequiredResult:
        """Check a call by the rules of the tally, under the name of the memory tool. A person whom
        a rule asks answers through the client, where it can ask. Raises Blocked.
        """
        if not has_rules(call.bound, "tool_call"):
            return AllowedToolCall(checked=call.change)

        def check() -> AllowedToolCall:
            return call.bound.check_tool_call(call.route.tool, call.change, piece="tallystick_mcp")

        try:
            return await in_thread(check)
        except ApprovalRequired as error:
            # Over a network an answer of the client proves no person: a person's session decides.
            may_answer = call.bound.actor.is_attended and can_ask(context)
            if self._approval == "elsewhere" or not may_answer:
                raise
            approvals = error.approvals
            state = " ".join(sorted(approval.id for approval in approvals))
            if answered is None or (not call.route.asks and answered[1] != state):
                text = f"A rule asks you before: {call.route.operation.title}\n{error}"
                outcome = await put(context, Question(text=text, state=state))
                if isinstance(outcome, InputRequiredResult):
                    return outcome
                answered = outcome
            if answered[0] == "unanswered":
                raise
            await in_thread(_decide, call.bound, approvals, answered[0] == "yes")
        return await in_thread(check)


class _Confirmed(NamedTuple):
    """A change that may be made."""

    call: Call
    answered: tuple[Verdict, str] | None


def _shown_preview(call: Call) -> Preview:
    """Return a preview; one for an agent has no token, because a person confirms it."""
    if call.bound.actor.agent is None:
        return preview_of(call)
    preview = preview_of(call.by_person() if is_for_person(call) else call)
    shown = dict(preview.fields["preview"])
    shown.pop("confirm_token", None)
    shown.pop("expires_at", None)
    return preview._replace(fields={**preview.fields, "preview": shown}, token="")


def _decide(bound: BoundTally, approvals: Sequence[Any], approved: bool) -> None:
    decide_as_person(bound, approvals, approved=approved, reason="answered in the MCP client")


_LONGEST = 40
"""Characters of an unknown argument that an error names."""


def _validate_arguments(
    name: str, kind: type[Arguments], arguments: Mapping[str, Any]
) -> Arguments:
    """Validate the arguments of a tool; null is an argument that was left out. Raises InvalidInput,
    which names each field and repeats no value.
    """
    stated = {field: value for field, value in arguments.items() if value is not None}
    unknown = sorted(set(stated) - set(kind.model_fields))
    if unknown:
        names = ", ".join(kind.model_fields)
        # What is no name may be a value that slipped.
        told = ", ".join(each for each in unknown if each.isidentifier() and len(each) <= _LONGEST)
        raise InvalidInput(f"{name}: there is no argument {told or 'like this'}. It takes {names}.")
    try:
        return kind.model_validate(stated)
    except ValidationError as error:
        raise InvalidInput(f"{name}: {explain_validation(error)}.") from error


_LISTED = tuple(
    ToolOfList(
        name=name,
        description=tool.description,
        input_schema=slim_schema(tool.arguments),
        annotations=tool.annotations,
    )
    for name, tool in TOOLS.items()
)


def serve(
    tally: Tally | BoundTally,
    *,
    actor: Actor | None = None,
    scopes: Sequence[str | Scope] | None = None,
    callers: Callers | None = None,
    name: str = "tallystick",
    approval: Approval = "ask",
    person: bool = False,
) -> TallyServer:
    """Return an MCP server for a tally.

    `actor` acts in every call, by default the actor of a bound tally, else the owner. `scopes` are
    all that the server leads to, the first one where it writes; by default that of a bound tally,
    else whatever the actor may reach, and the private scope with those of the actor's projects is
    searched. Roots of a client
    change nothing. `callers` finds out who calls instead, for servers with credentials.

    Whoever calls is an agent, named after its client unless the actor names one. Before a change a
    person is asked through the client; with `approval="elsewhere"` the application asks. With
    `person` the client is a program of a person and no model: it acts as the person, and confirms
    changes with the tokens of their previews. Raises InvalidInput, InvalidScope, Denied where
    nobody acts.
    """
    check_tally(tally, "serve({})")
    check_actor(actor, "serve")
    check_word("approval", approval, Approval)
    if callers is None:
        callers = _fix_caller(tally, actor, scopes)
    elif actor is not None or scopes is not None:
        raise InvalidInput("`callers` says who acts and where: leave `actor` and `scopes` out.")
    opened = tally.tally if isinstance(tally, BoundTally) else tally
    if person and actor is not None and actor.agent is not None:
        raise InvalidInput("`person` is for a program of a person: leave the agent out.")
    if not person:
        callers = as_agents(callers)
    return TallyServer(opened, callers, name=name, approval=approval)


def _fix_caller(
    tally: Tally | BoundTally, actor: Actor | None, scopes: Sequence[str | Scope] | None
) -> Callers:
    """Return the one caller of a server that serves one actor."""
    if isinstance(tally, BoundTally):
        scopes = scopes if scopes is not None else [tally.scope]
        caller = caller_of(tally.tally, actor or tally.actor, scopes)
    else:
        caller = caller_of(tally, tally.bind(actor).actor, scopes)
    return lambda context: caller
