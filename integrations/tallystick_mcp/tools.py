"""The four tools over a bound tally: from validated arguments to a call, its preview and answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal, NamedTuple, get_args

from tallystick.errors import Denied, InvalidInput, NotFound, TallystickError
from tallystick.kit import (
    confirm_token,
    confirmed_version,
    judge_tool_call,
    refuse_unconfirmed,
)
from tallystick.operations import (
    OPERATIONS,
    Arguments,
    Operation,
    found_fields,
    memory_fields,
    require_kind_of_models,
    warning_fields,
)
from tallystick.records import (
    AccessKind,
    ContextPack,
    Explored,
    Json,
    JsonObject,
    MemoryState,
    ReplayResult,
    Scope,
)
from tallystick.records import ExploreMode as _OperationMode
from tallystick.records.framing import quoted_in
from tallystick.tally import AllowedToolCall, BoundTally
from tallystick_mcp.answers import show_record
from tallystick_mcp.arguments import Add, Explore, Manage, Search
from tallystick_mcp.callers import Caller
from tallystick_mcp.routes import ADD, EXPLORE, LET_GO, MANAGE, SEARCH, Route

_ACCESS: Mapping[str, AccessKind] = {
    "modify": "correct",
    "forget": "delete",
    "forget_matching": "delete",
    "recover": "delete",
    "correct": "correct",
    "promote": "promote",
    "share": "share",
    "review": "write",
}
"""The right that each change needs, for its refusal."""


class Call(NamedTuple):
    """A call of a tool, ready to be made."""

    caller: Caller
    bound: BoundTally
    route: Route
    arguments: JsonObject
    """Those of the operation, as JSON."""
    present: Callable[[Any, JsonObject], tuple[str, dict[str, Any]]]
    """Makes the text and the fields of the answer from what the operation returned, and from the
    arguments that were checked.
    """

    @property
    def change(self) -> JsonObject:
        """The arguments that rules judge and that an approval is bound to, with the defaults of the
        operation for those that were left out.
        """
        fields = self.route.operation.arguments.model_fields
        complete = {
            **{name: each.get_default() for name, each in fields.items() if not each.is_required()},
            **self.arguments,
        }
        return {
            name: value
            for name, value in complete.items()
            if name not in _NOT_OF_THE_CHANGE and (value is not None or name in self.arguments)
        }

    def with_change(self, change: JsonObject) -> Call:
        """Return the call with another change, confirmed as this one is."""
        confirmation = {
            name: self.arguments[name] for name in _NOT_OF_THE_CHANGE if name in self.arguments
        }
        return self._replace(arguments={**change, **confirmation})

    def by_person(self) -> Call:
        """Return the call as one of the person for whom the agent acts."""
        person = self.bound.actor.replace(agent=None)
        return self._replace(bound=replace(self.bound, actor=person))

    def refuse(self, reason: Literal["confirm_token_required", "person_required"]) -> Denied:
        """Journal that nobody confirmed the change; return the error to raise."""
        return refuse_unconfirmed(
            self.bound, _ACCESS[self.route.operation.name], self.bound.scope, reason
        )

    def run(self, check: AllowedToolCall) -> tuple[str, dict[str, Any]]:
        """Call the operation with what a check has returned, and nothing else; return the text and
        the fields of the answer.
        """
        checked = self.with_change(check.arguments)
        result = self.route.operation.call(self.bound, checked.arguments)
        text, fields = self.present(result, checked.arguments)
        return text, check.result(fields)


_NOT_OF_THE_CHANGE = ("mode", "confirm_token", "idempotency_key", "if_version")
"""Arguments that say how a change is made, and not what it is."""


class Preview(NamedTuple):
    """What would be done, as it is shown before it is done."""

    text: str
    fields: dict[str, Any]
    token: str


def call_of(caller: Caller, tool: str, arguments: Arguments) -> Call:
    """Return the call that validated arguments of a tool mean. Raises InvalidInput for an argument
    that its mode or action does not have, InvalidScope, NotFound.
    """
    values = arguments.model_dump(mode="json", exclude_unset=True)
    project = values.pop("project", None)
    bound = caller.within(project)
    if isinstance(arguments, Search):
        return _search(caller, bound, arguments, values, project)
    if isinstance(arguments, Explore):
        return _scope_by_record(_explore(caller, bound, arguments, values), project)
    if isinstance(arguments, Add):
        if "source" in values:
            values["source"] = {"source_type": "other", "uri": values["source"]}
        require_kind_of_models(arguments.kind)
        values.pop("auto_link", None)
        report = _report_linked(bound) if arguments.auto_link else _report_added
        return Call(caller, bound, ADD, values, report)
    assert isinstance(arguments, Manage)
    return _scope_by_record(_manage(caller, bound, arguments, values), project)


_Find = Callable[[BoundTally, str], Scope]


def _of_memory(bound: BoundTally, memory_id: str) -> Scope:
    scope: Scope = OPERATIONS["inspect"].call(bound, {"memory_id": memory_id}).scope
    return scope


def _of_source(bound: BoundTally, source_id: str) -> Scope:
    scope: Scope = OPERATIONS["source"].call(bound, {"source_id": source_id}).scope
    return scope


def _of_run(bound: BoundTally, run_id: str) -> Scope:
    scope: Scope = OPERATIONS["run"].call(bound, {"run_id": run_id}).scope
    return scope


def _of_step(bound: BoundTally, step_id: str) -> Scope:
    return _of_run(bound, OPERATIONS["step"].call(bound, {"step_id": step_id}).run_id)


def _of_synthesis(bound: BoundTally, synthesis_id: str) -> Scope:
    run = OPERATIONS["synthesize_run"].call(bound, {"synthesis_id": synthesis_id})
    scope: Scope = run.scope
    return scope


def _of_proposal(bound: BoundTally, proposal_id: str) -> Scope:
    reviewed = OPERATIONS["proposal"].call(bound, {"proposal_id": proposal_id})
    scope: Scope = reviewed.proposal.scope
    return scope


_SCOPES: Mapping[str, _Find] = {
    "memory_id": _of_memory,
    "around": _of_memory,
    "source_id": _of_source,
    "run_id": _of_run,
    "step_id": _of_step,
    "proposal_id": _of_proposal,
    "task_id": _of_memory,
    "synthesis_id": _of_synthesis,
}
"""Finds the scope of the record that an argument names by its id."""


def _scope_by_record(call: Call, project: str | None) -> Call:
    """Return a call that names a record by its id in the scope of that record, so that its answer
    says where it worked. Raises NotFound where the call names another project.
    """
    name = call.route.renamed.get("id", "")
    if name not in _SCOPES or name not in call.arguments:
        return call
    try:
        scope = _SCOPES[name](call.bound, str(call.arguments[name]))
    except TallystickError:
        if project is not None:
            raise
        return call  # it tells the same, or has no record to look at
    if project is not None and scope != call.bound.scope:
        raise NotFound(
            f"There is no record {call.arguments[name]!a} in {call.bound.scope}. Leave out "
            "`project`, or name the right one."
        )
    return call._replace(bound=replace(call.bound, scope=scope))


# Search


def _search(
    caller: Caller, bound: BoundTally, arguments: Search, values: JsonObject, project: str | None
) -> Call:
    with_text = bool(values.pop("include_content", True))
    is_listing = not arguments.query.strip()
    route = SEARCH["list" if is_listing else "recall"]
    if is_listing:
        values.pop("query", None)
    status = values.pop("status", "active")
    fields_of_call = _of_operation(
        route, "search", "without a query" if is_listing else "here", values
    )
    fields_of_call["limit"] = arguments.limit
    if status in get_args(MemoryState):
        if status != "active":
            fields_of_call["states"] = [status]
    else:
        fields_of_call["status"] = status
    if is_listing:
        fields_of_call["namespace"] = None

        def list_memories(memories: Any, _: JsonObject) -> tuple[str, dict[str, Any]]:
            return _memories([memory_fields(memory) for memory in memories], with_text)

        return Call(caller, bound, route, fields_of_call, list_memories)
    if project is None:
        fields_of_call["scopes"] = [str(scope) for scope in caller.scopes]

    def answer_recall(recalled: Any, _: JsonObject) -> tuple[str, dict[str, Any]]:
        fields = found_fields(recalled)
        text, shown_memories = _memories(fields["memories"], with_text)
        fields |= shown_memories
        fields["confident"] = recalled.confident
        if project is None and len(caller.scopes) > 1:
            fields["scopes"] = [str(scope) for scope in caller.scopes]
        return text, {**fields, **warning_fields(recalled.warnings)}

    return Call(caller, bound, route, fields_of_call, answer_recall)


def _memories(memories: list[dict[str, Any]], with_text: bool) -> tuple[str, dict[str, Any]]:
    if not with_text:
        memories = [
            {name: value for name, value in memory.items() if name != "text"} for memory in memories
        ]
    noun = "memory" if len(memories) == 1 else "memories"
    return f"{len(memories)} {noun}", {"memories": memories}


# Explore


def _explore(caller: Caller, bound: BoundTally, arguments: Explore, values: JsonObject) -> Call:
    mode = str(values.pop("mode"))
    if mode == "policy":
        return _policy(caller, bound, arguments, values)
    route = EXPLORE[mode]
    fields_of_call = _of_operation(route, "explore", f"in the mode {mode}", values)
    if mode == "related" and "around" not in fields_of_call:
        raise InvalidInput("explore: the mode related takes the `id` of a memory.", argument="id")
    if mode == "about" and "around" not in fields_of_call:
        raise InvalidInput("explore: the mode about takes a name as `query`.", argument="query")
    if "limit" in route.arguments:
        fields_of_call["most" if mode == "uses" else "limit"] = arguments.limit
    if mode == "list":
        fields_of_call["around"] = str(bound.scope)
    if mode in get_args(_OperationMode):
        fields_of_call["mode"] = mode
    if mode == "wake" and (project := arguments.project or project_of(bound)) is not None:
        fields_of_call["project"] = project
    if bound is caller.bound and mode in ("access", "context", "wake"):
        fields_of_call["scopes"] = [str(scope) for scope in caller.scopes]
    elif mode == "access":
        fields_of_call["scopes"] = [str(bound.scope)]

    def show_explored(result: Any, checked: JsonObject) -> tuple[str, dict[str, Any]]:
        if isinstance(result, Explored):
            if mode == "scopes":
                return f"{len(result.scopes)} scopes", show_record(result)
            if mode == "communities":
                return f"{len(result.communities)} communities", show_record(result)
            return f"{len(result.memories)} memories", show_record(result)
        if mode == "why":
            unseen = OPERATIONS["unseen"].call(bound, checked)
            compiled = bound.recordings.compiled(str(checked["step_id"])).compiled
            return f"{compiled.title}, and what was left out.", {
                "coverage": compiled.coverage,
                "seen": show_record(result),
                "unseen": show_record(unseen),
            }
        if isinstance(result, ContextPack):
            # Its texts are escaped already.
            pack = {**show_record(result), "text": quoted_in(result.text)}
            return f"{len(result.items)} memories", {mode: pack}
        if mode == "get":
            return "One memory", {"memory": memory_fields(result)}
        number = f"{len(result)} found" if isinstance(result, list) else route.operation.title
        return number, {mode: show_record(result)}

    return Call(caller, bound, route, fields_of_call, show_explored)


def project_of(bound: BoundTally) -> str | None:
    """Return the project that a session works on, where its scope is one."""
    return bound.scope.key if bound.scope.kind == "project" else None


_JUDGED = frozenset({"query", "arguments"})


def _policy(caller: Caller, bound: BoundTally, arguments: Explore, values: JsonObject) -> Call:
    route = replace(EXPLORE["access"], direct=_JUDGED, tool="memory_policy")
    _of_operation(route, "explore", "in the mode policy", values)
    if not arguments.query:
        raise InvalidInput(
            "explore: the mode policy takes the name of a tool as `query`.", argument="query"
        )
    rule = judge_tool_call(bound, arguments.query, arguments.arguments)
    fields = {
        "policy": {
            "tool": show_record(arguments.query),
            "effect": "allow" if rule is None else rule.effect,
            "rule": None if rule is None else rule.id,
            "why": None if rule is None else show_record(rule.description or rule.name),
        }
    }
    return Call(caller, bound, route, {}, lambda _, __: ("What the rules say of this call", fields))


# Add


def _report_added(remembered: Any, _: JsonObject) -> tuple[str, dict[str, Any]]:
    text = f"{remembered.status}: {remembered.id}"
    fields: dict[str, Any] = {"id": remembered.id, "status": remembered.status}
    if remembered.change is not None:
        text, fields["change"] = f"{text}; the change: {remembered.change}", remembered.change
    return text, fields | warning_fields(remembered.warnings)


def _report_linked(bound: BoundTally) -> Callable[[Any, JsonObject], tuple[str, dict[str, Any]]]:
    """Return what reports a memory that was added, and links it first with what it is like."""

    def report(remembered: Any, _: JsonObject) -> tuple[str, dict[str, Any]]:
        text, fields = _report_added(remembered, _)
        if remembered.status != "created":
            return text, fields
        request = {"memory_id": remembered.id, "mode": "apply"}
        linked = OPERATIONS["link_alike"].call(bound, request)
        if linked.links:
            fields["linked"] = [{"id": each.id, "score": each.score} for each in linked.links]
        return text, fields

    return report


# Manage


_OF_CHANGES = frozenset(
    {
        *("start_task", "submit_review", "complete_task", "prioritize"),
        *("synthesize_plan", "synthesize_draft", "synthesize_verify"),
    }
)
"""Actions whose further arguments stand in `changes`: as arguments of the tool they would be in
every prompt of every client.
"""


def _manage(caller: Caller, bound: BoundTally, arguments: Manage, values: JsonObject) -> Call:
    action = str(values.pop("action"))
    route = MANAGE[action]
    if action == "hold" and arguments.replacement is None:
        route = LET_GO
    if route.asks and not route.operation.needs_preview:
        # The mode and the token are the tool's own: the operation has no preview.
        values.pop("mode", None)
        values.pop("confirm_token", None)
    further = _mapping(values.pop("changes", None)) if action in _OF_CHANGES else {}
    fields_of_call = _of_operation(route, "manage", f"by the action {action}", values) | further
    if action == "replay":
        # In the changes: an argument of the tool would be in every prompt of every client.
        recipe = {**(arguments.changes or {})}
        fields_of_call |= {"send": recipe.pop("send", False), "recipe": recipe}
    if action == "synthesize_draft":
        fields_of_call["collect"] = True
    if action == "crawl":
        fields_of_call["adapter"] = action
    if action in ("accept", "defer", "reject", "undo"):
        fields_of_call["decision"] = "edit" if fields_of_call.get("changes") else action
    if action == "modify" and "replace_attributes" in (arguments.changes or {}):
        changes = {**(arguments.changes or {})}
        fields_of_call |= {"replace_attributes": changes.pop("replace_attributes")}
        fields_of_call["changes"] = changes
    if action in ("pin", "unpin"):
        fields_of_call["changes"] = {"pinned": action == "pin"}
    if arguments.changes is not None and "manual_override" in arguments.changes:
        raise InvalidInput("manage: a lock against agents is set by a person, not here.")

    def report_managed(result: Any, _: JsonObject) -> tuple[str, dict[str, Any]]:
        if isinstance(result, ReplayResult):
            # The request is as long as the step's; its differences are what was asked for.
            result = result.model_copy(update={"request": None, "response": None})
        return f"{action}: done", {action: show_record(result)}

    return Call(caller, bound, route, fields_of_call, report_managed)


def preview_of(call: Call) -> Preview:
    """Return what a call of `manage` would do, with the token to do it. Raises as its operation."""
    route, bound = call.route, call.bound
    operation = route.operation
    if operation.needs_preview:
        change = {**call.arguments, "mode": "preview"}
        change.pop("confirm_token", None)
        preview = operation.call(bound, change)
        token = preview.confirm_token
        fields = {"preview": show_record(preview)}
        return Preview(_question(call, operation), fields, token)
    change = _validate_call(call)
    if operation.name == "review":
        return _preview_of_review(call, change)
    memory_id = str(change["memory_id"])
    inspection = OPERATIONS["inspect"].call(bound, {"memory_id": memory_id})
    expected = change.get("if_version")
    version = inspection.version if expected is None else int(str(expected))
    arguments = _confirmed_arguments(change)
    token = confirm_token(bound, operation.name, arguments, scope=inspection.scope, version=version)
    fields = {
        "preview": {
            "action": operation.name,
            "id": memory_id,
            "version": inspection.version,
            "state": inspection.state,
            "text": show_record(inspection.preview),
            "arguments": show_record(
                {name: value for name, value in change.items() if value is not None}
            ),
            "confirm_token": token.token,
            "expires_at": token.expires_at,
        }
    }
    return Preview(_question(call, operation, inspection.preview), fields, token.token)


def _preview_of_review(call: Call, change: JsonObject) -> Preview:
    """Return what a decision is about, as the person sees it who decides."""
    proposal_id = str(change["proposal_id"])
    proposal = OPERATIONS["proposal"].call(call.bound, {"proposal_id": proposal_id}).proposal
    token = confirm_token(
        call.bound, "review", _confirmed_arguments(change), scope=proposal.scope, version=0
    )
    text = None if proposal.content is None else proposal.content.content
    about = f"{proposal.action} {proposal.target or ''}".strip()
    question = _question(call, call.route.operation, text, subject=f"{proposal_id} ({about})")
    fields = {"preview": {"proposal": show_record(proposal), "arguments": show_record(change)}}
    fields["preview"] |= {"confirm_token": token.token, "expires_at": token.expires_at}
    return Preview(question, fields, token.token)


def is_for_person(call: Call) -> bool:
    """Return True if no agent makes a change, whatever it was told: a decision about a proposal,
    and a change of what is pinned or locked. Raises as `inspect`.
    """
    if call.route.operation.name == "review":
        return True
    if "memory_id" not in call.arguments:
        return False
    inspection = OPERATIONS["inspect"].call(call.bound, {"memory_id": call.arguments["memory_id"]})
    names = (call.route.operation.name, call.arguments.get("correction"))
    return any(
        action.name in names and action.reason in ("pinned_memory", "manual_override")
        for action in inspection.actions
    )


def approved_call(call: Call) -> Call:
    """Return a change that the application has asked about. Raises as its operation."""
    if not call.route.operation.needs_preview:
        return call
    return confirmed_call(call, preview_of(call).token)


def cleaned_call(call: Call) -> Call:
    """Return the call as a rule that redacts leaves it, so that a preview, its token and the change
    are of the same arguments.
    """
    rule = judge_tool_call(call.bound, call.route.tool, call.change)
    if rule is None or rule.effect != "redact":
        return call
    check = call.bound.check_tool_call(call.route.tool, call.change, piece="tallystick_mcp")
    return call.with_change(check.arguments)


def confirmed_call(call: Call, token: str | None) -> Call:
    """Return the call of `manage` as it was confirmed. Raises Denied
    (`confirm_token_required`) without a token, StateConflict for one that is not good.
    """
    operation, bound = call.route.operation, call.bound
    if operation.needs_preview:
        confirmed = {**call.arguments, "mode": "apply", "confirm_token": token}
        return call._replace(arguments=confirmed)
    if token is None:
        raise call.refuse("confirm_token_required")
    change = _validate_call(call)
    name = "proposal_id" if operation.name == "review" else "memory_id"
    version = confirmed_version(
        bound,
        operation.name,
        _confirmed_arguments(change),
        scope=_SCOPES[name](bound, str(change[name])),
        token=token,
    )
    if operation.name == "review":
        return call
    return call._replace(arguments={**call.arguments, "if_version": version})


def _validate_call(call: Call) -> JsonObject:
    valid = call.route.operation.validate(call.arguments)
    return valid.model_dump(mode="json")


def _confirmed_arguments(change: JsonObject) -> JsonObject:
    """Return what a token is good for: the change, not the version or the key of the request."""
    left_out = ("if_version", "idempotency_key")
    return {name: value for name, value in change.items() if name not in left_out}


def _question(
    call: Call, operation: Operation, text: str | None = None, *, subject: object = None
) -> str:
    """Return what a person is asked. Equal calls give equal questions."""
    subject = subject or call.arguments.get("memory_id") or call.arguments.get("query")
    subject = subject or "what matches"
    lines = [f"{operation.title}: {subject}"]
    if text:
        lines.append(f"It says: {show_record(text)}")
    for name in ("decision", "changes", "correction", "into", "reason"):
        if call.arguments.get(name):
            lines.append(f"{name}: {show_record(call.arguments[name])}")
    return "\n".join(lines)


# What all have in common


def _mapping(value: Json) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _of_operation(route: Route, tool: str, where: str, values: JsonObject) -> JsonObject:
    """Return the operation's arguments. Raises InvalidInput for those that it does not take, and
    for one that it needs and has another name for.
    """
    stray = sorted(set(values) - route.arguments)
    if stray:
        takes = ", ".join(sorted(route.arguments)) or "no arguments"
        raise InvalidInput(f"{tool}: {', '.join(stray)} is not used {where}, which takes {takes}.")
    fields = route.operation.arguments.model_fields
    for name, field in route.renamed.items():
        if values.get(name) is None and field in fields and fields[field].is_required():
            raise InvalidInput(f"{tool}: `{name}` is needed {where}.", argument=name)
    return {
        route.renamed.get(name, name): value for name, value in values.items() if value is not None
    }
