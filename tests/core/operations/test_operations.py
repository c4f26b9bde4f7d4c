"""The table of operations is the verbs of a bound tally: names, arguments, defaults, results."""

from __future__ import annotations

import inspect
import json
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from pydantic import Field

from tallystick import errors
from tallystick.access import AccessTokens
from tallystick.errors import InvalidInput, TallystickError
from tallystick.memory import WorkingMemory
from tallystick.operations import (
    MEMORY_TOOLS,
    OPERATIONS,
    STATUS,
    Operation,
    arguments_of,
    error_json,
    wire_status,
)
from tallystick.records import Actor, Count, JsonObject, PolicyRule
from tallystick.records.arguments import OtherScopes, Since
from tallystick.records.memory import ScopeText
from tallystick.records.wire import PROCESS_ONLY, Wire
from tallystick.tally import (
    BoundApprovals,
    BoundRecordings,
    BoundSpaces,
    BoundTally,
    Corrections,
    Jobs,
    Operator,
    Reviews,
    Tally,
)
from tallystick_comparing import Comparing
from tallystick_graph import Graph
from tallystick_ingest import Ingest
from tallystick_learning import Learning
from tallystick_steward import Steward
from tallystick_synthesis import Synthesis
from tallystick_work import Work

OpenTally = Callable[..., Tally]

PARTS: Mapping[str, type] = {
    "": BoundTally,
    "operator.": Operator,
    "spaces.": BoundSpaces,
    "corrections.": Corrections,
    "reviews.": Reviews,
    "learning.": Learning,
    "ingest.": Ingest,
    "work.": Work,
    "synthesis.": Synthesis,
    "graph.": Graph,
    "steward.": Steward,
    "comparing.": Comparing,
    "approvals.": BoundApprovals,
    "jobs.": Jobs,
    "tokens.": AccessTokens,
    "recordings.": BoundRecordings,
    "working.": WorkingMemory,
}
OF_A_PROGRAM = {
    "call": "a callable that reaches a model",
    "render": "a callable that makes a request",
    "progress": "a callable that is told of the progress",
    "is_pausing": "a callable that says when to pause",
    "weights": "an object that only Python code has",
}
"""Parameters of verbs that no surface can give."""
OWN_ARGUMENTS: Mapping[str, Mapping[str, str]] = {
    "memory_search": {
        "limit": "a prompt has room for 5 by default, 50 at most",
        "states": "a model asks for what held before, and for nothing that was put away",
    },
    "memory_store": {
        "tags": "runtimes read a list that may be left out",
        "contradicts": "runtimes read a list that may be left out",
    },
    "memory_list": {"limit": "a prompt has room for 20 by default, 100 at most"},
    "memory_modify": {
        "content": "a model changes the text, or the attributes",
        "attributes": "a model changes the text, or the attributes",
        "if_version": "a model changes only what it has read",
    },
}
"""Arguments of memory tools that differ from those of the operation, each with the reason."""


def verb_of(operation: Operation) -> Any:
    part, _, name = operation.verb.rpartition(".")
    return getattr(PARTS[f"{part}." if part else ""], name)


def plain(annotation: Any) -> str:
    """An annotation as what a surface is given for it."""
    if get_origin(annotation) is Annotated:
        return plain(get_args(annotation)[0])
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        names = {plain(argument) for argument in arguments}
        if "Scope" in names:
            names -= {"Scope"}
        if "datetime" in names:
            names -= {"datetime"}
        if "PathLike" in names:
            names -= {"PathLike"}
        if any(name.startswith("list[") for name in names):
            names -= {"str"}
        return " | ".join(sorted(names))
    if origin in (list, tuple, Sequence, Iterable):
        inner = [plain(argument) for argument in arguments if argument is not ...]
        return f"list[{', '.join(inner)}]"
    if origin is Literal:
        return f"Literal{sorted(map(str, arguments))}"
    if origin in (dict, Mapping):
        return "object"
    if annotation is type(None):
        return "None"
    if annotation is datetime:
        return "datetime"
    return getattr(annotation, "__name__", str(annotation))


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_takes_what_its_verb_takes(name: str) -> None:
    operation = OPERATIONS[name]
    verb = verb_of(operation)
    hints = get_type_hints(verb, include_extras=True)
    parameters = {
        parameter.name: parameter
        for parameter in list(inspect.signature(verb).parameters.values())[1:]
        if parameter.name not in OF_A_PROGRAM and parameter.kind is not parameter.VAR_KEYWORD
    }
    fields = dict(operation.arguments.model_fields)
    if operation.spread is not None:
        fields.pop(operation.spread)

    assert set(fields) == set(parameters)
    for argument, field in fields.items():
        parameter = parameters[argument]
        required = parameter.default is parameter.empty
        assert field.is_required() == required, argument
        assert field.description, argument
        if not required:
            assert field.default == parameter.default or not (field.default or parameter.default)
        taken = plain(get_type_hints(operation.arguments, include_extras=True)[argument])
        wanted = plain(hints[argument])
        assert taken == wanted or (name, argument) in LOOSER, f"{argument}: {taken} != {wanted}"


LOOSER = {
    ("add_document", "content"): "the verb takes bytes too",
    ("synthesize_plan", "outline"): "the verb takes records beside mappings",
    ("remember_many", "items"): "the verb takes mappings and texts beside records",
    ("preview_member", "member"): "the verb takes a mapping beside a record",
    ("create_space", "members"): "the verb takes mappings beside records",
    ("modify_many", "items"): "each item is a mapping of the verb's arguments",
    ("remember", "attributes"): "a JSON object under another name",
    ("reembed", "embedder"): "the verb takes an object beside a name",
}
"""Arguments whose verb takes more kinds of values in Python than JSON has."""


def test_the_arguments_of_a_function_are_those_of_its_signature() -> None:
    def find(
        bound: BoundTally,
        query: Annotated[str, Field(description="What to find.")],
        *,
        limit: Annotated[Count | None, Field(description="Hits at most.", ge=1)] = None,
        since: Since = None,
        scopes: OtherScopes = None,
        progress: Annotated[Callable[[int], None], PROCESS_ONLY] = print,
        **labels: Annotated[Any, Wire(JsonObject), Field(description="Labels of a hit.")],
    ) -> None: ...

    model = arguments_of(find, "find_all")
    schema: Any = model.model_json_schema()

    assert (model.__name__, schema["required"]) == ("FindAll", ["query", "labels"])
    assert schema["additionalProperties"] is False
    annotations = {name: field.annotation for name, field in model.model_fields.items()}
    assert get_args(annotations.pop("since"))[-1] is type(None)
    assert annotations == {
        "query": str,
        "limit": int | None,
        "scopes": tuple[ScopeText, ...] | None,
        "labels": JsonObject,
    }
    given: Any = model.model_validate({"query": "heron", "since": "P7D", "labels": {}})
    assert given.since == timedelta(days=7)
    assert schema["properties"]["limit"] == {
        "anyOf": [{"minimum": 1, "type": "integer"}, {"type": "null"}],
        "default": None,
        "description": "Hits at most.",
        "title": "Limit",
    }


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_is_described_and_its_arguments_have_a_schema(name: str) -> None:
    operation = OPERATIONS[name]
    schema: Any = operation.schema()

    assert operation.title
    assert operation.description.endswith(".")
    assert json.loads(json.dumps(schema))["additionalProperties"] is False
    assert operation.needs_preview == (
        {"mode", "confirm_token"} <= set(operation.arguments.model_fields)
    )
    assert set(operation.errors) <= set(STATUS)
    assert "tallystick_error" not in operation.errors


NOT_OPERATIONS: Mapping[str, str] = {
    "recordings.activity": "entries of a journal, which the dashboard shows as a diary",
    "aio": "the same verbs, awaited",
    "call_model": "calls a model in this process, with objects of its SDK",
    "stream_model": "calls a model in this process, with objects of its SDK",
    "check_model_call": "guards a call that happens in this process",
    "check_tool_call": "guards a call that happens in this process",
    "compile": "takes candidates as objects of the runtime, which only an adapter has",
    "learning.aio": "the same, awaited",
    "ingest.aio": "the same, awaited",
    "work.aio": "the same, awaited",
    "synthesis.aio": "the same, awaited",
    "graph.aio": "the same, awaited",
    "graph.about": "a mode of `explore`",
    "graph.communities": "a mode of `explore`",
    "ingest.load": "takes documents as objects of the runtime, which only an adapter has",
    "steward.aio": "the same, awaited",
    "comparing.aio": "the same, awaited",
    "steward.exposition": "the text of `metrics`, which HTTP sends",
    "steward.page_of_events": "events as a stream of HTTP sends them",
    "steward.subscribe": "events, called in this process",
    "items": "the store of a runtime, which its adapter offers",
    "join_run": "for adapters, which record what they observe",
    "keep_turn": "for adapters, which observe a turn",
    "keep_tool_output": "for the process that runs the tool",
    "on": "another view",
    "approvals": "has operations of its own",
    "corrections": "has operations of its own",
    "jobs": "has operations of its own",
    "operator": "has operations of its own",
    "recordings.reads": "lines of the access log, which the dashboard shows",
    "recordings": "has operations of its own",
    "reviews": "has operations of its own",
    "spaces": "has operations of its own",
    "threads": "the checkpoints of a runtime, which its adapter offers",
    "tokens": "has operations of its own",
    "working": "has operations of its own",
    "working.all": "`list` has the same, with times",
    "working.clear": "`drop` removes a value at a time",
    "working.items": "candidates of a compile, as objects",
    "working.pack_items": "items of a pack, as objects",
    "working.of": "another view",
    "working.shown": "the page of a run shows it",
    "working.run_id": "where the view is",
    "working.thread": "where the view is",
    "run": "starts a recording, which an adapter or a `with` block ends",
    "recordings.candidates": "`knew` and `unseen` in one answer",
    "recordings.compiled": "two large records, which `entries` has as payloads",
    "recordings.export_receipt": "bytes of a bundle, which a surface writes to a file",
    "recordings.find": "completes an id, which a surface does before it asks",
    "recordings.foil": "the end of a chain, which `verify` and the end of a run have",
    "recordings.player": "plays a tape to an agent in this process",
    "recordings.prefix_reuse": "figures of compiles, which `entries` has in its summaries",
    "recordings.receipts": "the receipts of `steps`, one by one",
    "recordings.preview_replay": "`replay`, recorded as a run of its own",
    "recordings.replayed": "`replay` with objects for adapters",
    "recordings.require_record": "guards an open run, which a server keeps for its caller",
    "recordings.runs_of": "`runs`, of several scopes",
    "recordings.start_run": "starts a recording, which an adapter or a `with` block ends",
    "recordings.step_counts": "a count for lists of runs",
    "recordings.steps_saying": "a search for the page of a run",
    "recordings.steps_of_task": "the link of a graph's task, which its adapter follows",
    "recordings.summaries": "the summaries that the receipts of a run have",
    "recordings.subscribe": "calls a function in this process",
    "recordings.tape": "calls to be played, which a surface writes to a file",
}
"""Public verbs of a bound tally and its parts that no surface offers, each with the reason."""


def test_every_verb_is_an_operation_or_says_why_not() -> None:
    verbs = {
        f"{prefix}{name}"
        for prefix, part in PARTS.items()
        for name, value in inspect.getmembers(part)
        if not name.startswith("_")
        and (callable(value) or isinstance(value, property))
        and name not in getattr(part, "__dataclass_fields__", {})
    }
    offered = {operation.verb for operation in OPERATIONS.values()}

    assert offered <= verbs
    assert verbs - offered == set(NOT_OPERATIONS)
    assert all(NOT_OPERATIONS.values())


def test_an_operation_is_called_by_its_arguments(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        bound = tally.bind(Actor(user="ada"))
        stored = OPERATIONS["remember"].call(bound, {"content": "The heron nests in March."})
        [hit] = OPERATIONS["recall"].call(bound, {"query": "when does the heron nest?"})
        change = OPERATIONS["modify"].call(
            bound,
            {"memory_id": stored.id, "reason": "r", "changes": {"tags": ["birds"]}},
        )

        assert hit.memory.id == stored.id
        assert (change.status, bound.get(stored.id).tags) == ("changed", ("birds",))


def test_a_change_cannot_name_another_memory_than_its_arguments(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        bound = tally.bind(Actor(user="ada"))
        ids = [bound.remember(text).id for text in ("The heron nests.", "The tide turns.")]
        changes = {"memory_id": ids[1], "content": "x"}
        with pytest.raises(InvalidInput, match="memory_id is given beside `changes`"):
            OPERATIONS["modify"].call(
                bound, {"memory_id": ids[0], "reason": "r", "changes": changes}
            )

        assert [bound.get(one).version for one in ids] == [1, 1]


OPERATE: Mapping[str, Mapping[str, Any]] = {
    "approve": {"approval_id": "APPROVAL", "reason": "r"},
    "deny": {"approval_id": "APPROVAL", "reason": "r"},
    "revoke": {"approval_id": "APPROVAL", "reason": "r"},
    "create_space": {"scope": "team:support", "name": "Support", "reason": "r"},
    "update_space": {"scope": "team:support", "reason": "r", "changes": {"name": "Sales"}},
    "make_token": {"name": "laptop", "actor": {"user": "ada"}},
    "rotate_token": {"token_id": "TOKEN"},
    "revoke_token": {"token_id": "TOKEN", "reason": "r"},
    "erase": {"memory_ids": ["ID"], "reason": "r"},
    "erase_user": {"user": "ada", "reason": "r"},
    "erase_recorded": {"run_id": "RUN", "reason": "r", "mode": "apply"},
    "prove_erased": {"memory_id": "ID"},
    "purge": {},
    "choose_windows": {"journal_days": 1},
    "doctor": {},
    "sizes": {},
    "rebuild_index": {"reason": "r"},
    "reembed": {},
    "freeze": {"reason": "r"},
    "thaw": {"reason": "r"},
    "metrics": {},
    "health": {},
    "diagnose": {"domain": "queue"},
    "alerts": {},
    "repair": {"action": "check", "reason": "r"},
    "resume_autonomy": {"reason": "r"},
    "compare": {},
    "analytics": {"analysis": "usage"},
    "backup": {"folder": "copy"},
    "export": {"folder": "copy", "scopes": ["private:ada"]},
    "import_from": {"folder": "copy"},
}


@pytest.mark.parametrize(
    "name", [name for name, operation in OPERATIONS.items() if operation.effect == "operate"]
)
def test_an_operation_of_somebody_in_charge_is_refused_to_everybody_else(
    open_sqlite: OpenTally, name: str
) -> None:
    asking = PolicyRule(id="ask", name="Ask", effect="require_approval", applies_to="tool_call")
    with open_sqlite(rules=[asking]) as tally:
        ada = tally.bind(Actor(user="ada"))
        stored = ada.remember("The heron nests in March.")
        with ada.run("nest") as run:
            pass
        with pytest.raises(errors.ApprovalRequired) as blocked:
            ada.check_tool_call("ring", {"bird": "heron"})
        root = tally.bind(Actor(user="root", role="operator"))
        if name != "create_space":
            root.spaces.create("team:support", name="Support", reason="r")
        given = {"ID": stored.id, "RUN": run.id, "APPROVAL": blocked.value.approvals[0].id}
        given["TOKEN"] = ada.tokens.make("laptop").id
        arguments = {
            key: [given[value[0]]] if value == ["ID"] else given.get(str(value), value)
            for key, value in OPERATE[name].items()
        }
        with pytest.raises((errors.Denied, errors.NotFound)):
            OPERATIONS[name].call(tally.bind(Actor(user="bob")), arguments)


@pytest.mark.parametrize(
    ("name", "arguments", "problem"),
    [
        ("recall", {}, "query: Field required"),
        ("recall", {"query": "x", "limt": 3}, "limt: Extra inputs are not permitted"),
        ("get", {"memory_id": 7}, "memory_id: takes a text"),
    ],
)
def test_arguments_that_do_not_validate_are_refused_by_name(
    open_sqlite: OpenTally, name: str, arguments: dict[str, Any], problem: str
) -> None:
    with open_sqlite() as tally, pytest.raises(InvalidInput, match=problem):
        OPERATIONS[name].call(tally.bind(Actor(user="ada")), arguments)


ERRORS = [
    value
    for value in vars(errors).values()
    if inspect.isclass(value) and issubclass(value, TallystickError)
]


def test_every_error_has_a_code_of_its_own_and_a_status() -> None:
    codes = [error.code for error in ERRORS]

    assert len(set(codes)) == len(codes)
    assert set(codes) == set(STATUS)


def test_an_error_goes_over_the_wire_as_code_message_and_facts(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        bound = tally.bind(Actor(user="ada"))
        stored = bound.remember("The heron nests in March.")
        with pytest.raises(TallystickError) as conflict:
            bound.modify(stored.id, content="x", reason="r", if_version=7)
        with pytest.raises(TallystickError) as denied:
            tally.bind(Actor(user="bob")).operator.freeze(reason="r")

    answer = error_json(conflict.value)
    assert answer["code"] == "version_conflict"
    assert answer["facts"] == {"memory_id": stored.id, "expected": 7, "actual": 1}
    assert wire_status(conflict.value).http == 409
    facts = error_json(denied.value)["facts"]
    assert (facts["reason"], facts["operation"]) == (denied.value.reason, "manage")  # type: ignore[attr-defined]
    assert json.loads(json.dumps(error_json(denied.value)))["facts"] == facts


def test_an_error_of_a_user_s_own_class_has_the_status_of_the_class_above() -> None:
    class OwnConflict(errors.Conflict):
        """A conflict of an application."""

        code = "own_conflict"

    assert wire_status(OwnConflict()).http == 409


@pytest.mark.parametrize("name", MEMORY_TOOLS)
def test_a_memory_tool_takes_arguments_of_its_operation(name: str) -> None:
    tool = MEMORY_TOOLS[name]
    fields = tool.operation.arguments.model_fields
    hints = get_type_hints(tool.function)
    for parameter in list(inspect.signature(tool.function).parameters.values())[1:]:
        if parameter.name in OWN_ARGUMENTS.get(name, {}):
            continue
        field = fields[parameter.name]
        declared = typing.get_type_hints(tool.operation.arguments)[parameter.name]
        assert plain(hints[parameter.name]) == plain(declared)
        assert field.is_required() == (parameter.default is parameter.empty)
        if parameter.default is not parameter.empty:
            assert field.default == parameter.default
