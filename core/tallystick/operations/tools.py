"""The six memory tools that runtimes offer to models, and the one for working memory, which they
offer where it is wanted: operations with the arguments a model gives.

Their answers are JSON values. Memory text is data: it is in fields of its own, under a notice that
says so, with who may see each item and why; a code by which the answer is recognised when
it comes back stands at the end. A refusal or a conflict is an answer that the model can act on, not
a crash.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

from tallystick.errors import Conflict, Denied, InvalidInput, NotFound
from tallystick.memory.contradictions import disagreements_of
from tallystick.memory.fields import STORE_ITEM
from tallystick.memory.held_changes import words_of_held
from tallystick.memory.passages import as_ranges, passage_text, unfold
from tallystick.memory.supersession import is_current
from tallystick.operations.operation import Operation
from tallystick.operations.table import OPERATIONS
from tallystick.policy.redaction import Redactor
from tallystick.records import (
    Change,
    HeldChange,
    Hit,
    Json,
    Lifetime,
    Memory,
    declared_attributes,
)
from tallystick.records._base import hints_of
from tallystick.records.escaping import as_field, as_name
from tallystick.records.framing import ANSWER_NOTICE, NOTICE, signed_answer
from tallystick.tally import BoundTally
from tallystick.tally.services import services_of

P = ParamSpec("P")
C = TypeVar("C", bound=Callable[..., Any])

Answer = dict[str, Any]


@dataclass(frozen=True)
class MemoryTool:
    """One tool, as a runtime needs it."""

    name: str
    operation: Operation
    """The operation that it offers to a model."""
    function: Callable[..., Answer]
    """Takes a BoundTally first; the rest are the arguments that the model gives."""
    needs_approval: bool
    """True if it changes or forgets memory: then the runtime asks a person first."""

    @property
    def description(self) -> str:
        """The description that a model reads."""
        return (self.function.__doc__ or "").strip()

    @cached_property
    def parameters(self) -> tuple[inspect.Parameter, ...]:
        """The parameters of the arguments that the model gives."""
        function = inspect.unwrap(self.function)
        hints = hints_of(function)
        _, *parameters = inspect.signature(function).parameters.values()
        return tuple(each.replace(annotation=hints[each.name]) for each in parameters)

    def complete(self, arguments: Mapping[str, Any]) -> Answer:
        """Return arguments in their order, those that were left out with their defaults."""
        return {each.name: arguments.get(each.name, each.default) for each in self.parameters}

    def sign(self, call: C, **given: Any) -> C:
        """Give `call` the name and the arguments of the tool, for runtimes that read them off a
        function. `given` are annotations of what the runtime itself hands in.
        """
        keyword = inspect.Parameter.KEYWORD_ONLY
        parameters = [
            *(inspect.Parameter(name, keyword, annotation=hint) for name, hint in given.items()),
            *(each.replace(kind=keyword) for each in self.parameters),
        ]
        call.__name__ = self.name
        hints = {each.name: each.annotation for each in parameters}
        call.__annotations__ = {**hints, "return": Answer}
        call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return call


def require_kind_of_models(kind: str) -> None:
    """Raise InvalidInput for a kind that no model stores: an item of a runtime's store, and a turn,
    in which a model would quote its own words as those of the user.
    """
    if kind == STORE_ITEM:
        raise InvalidInput(f"A {STORE_ITEM} is put by the store of a runtime. Choose another kind.")
    if kind == "turn":
        raise InvalidInput("A turn is kept by the runtime that heard it. Choose another kind.")


def not_approved(tool: str, message: str) -> Answer:
    """Return the answer of a tool that a person did not approve."""
    return {
        "error": "Denied",
        "reason": "not_approved",
        "message": f"{tool} was not done. {message}",
    }


def _errors_as_answers(
    function: Callable[Concatenate[BoundTally, P], Answer],
) -> Callable[Concatenate[BoundTally, P], Answer]:
    """Turn errors that a model can act on into answers: refusals, conflicts, bad input."""

    @wraps(function)
    def answer(bound: BoundTally, /, *args: P.args, **kwargs: P.kwargs) -> Answer:
        try:
            return function(bound, *args, **kwargs)
        except (Conflict, InvalidInput, NotFound) as error:
            return {"error": type(error).__name__, "message": str(error)}
        except Denied as error:
            return {"error": "Denied", "reason": error.reason, "message": str(error)}

    return answer


@_errors_as_answers
def memory_search(
    bound: BoundTally,
    query: str,
    limit: int = 5,
    states: list[Literal["active", "superseded"]] | None = None,
) -> Answer:
    """Search long-term memory for what answers a question. Returns the best matches with their
    ids; memory_get names the sources of one. For what was before, give both states.
    """
    limit = _require_limit(limit, 50)
    recalled = bound.recall(query, limit=limit, states=states or ())
    return framed_answer(bound, {**found_fields(recalled), **warning_fields(recalled.warnings)})


@_errors_as_answers
def memory_store(
    bound: BoundTally,
    content: str,
    kind: str = "note",
    tags: list[str] | None = None,
    span: str | None = None,
    replaces: str | None = None,
    contradicts: list[str] | None = None,
    attributes: dict[str, Any] | None = None,
) -> Answer:
    """Store one statement in long-term memory, word for word. Kinds: note, fact, preference,
    decision, constraint, pattern, rule, tool, concept, warning, task. `attributes` are further
    fields, such as status and priority of a task. Where it takes the place of a
    memory, give that one's id as `replaces` and the user's words that say so, letter by letter, as
    `span`; where both cannot be true, ids as `contradicts`.
    """
    require_kind_of_models(kind)
    stored = bound.remember(
        content,
        kind=kind,
        tags=tags or (),
        span=span,
        replaces=replaces,
        contradicts=contradicts or (),
        attributes=attributes,
    )
    change = {} if stored.change is None else {"change": stored.change}
    return {"id": stored.id, "status": stored.status, **change, **warning_fields(stored.warnings)}


@_errors_as_answers
def memory_get(bound: BoundTally, memory_id: str) -> Answer:
    """Read one memory by its id."""
    memory = _memory(bound, memory_id)
    holds = memory.state == "active" and is_current(memory, bound.tally.now())
    ended = {} if holds else {"holds_no_longer": True}
    return framed_answer(bound, {"memory": memory_fields(memory) | ended})


@_errors_as_answers
def memory_list(bound: BoundTally, limit: int = 20, before: str | None = None) -> Answer:
    """List memories, newest first. Give the last id of a page as `before` to see older ones."""
    memories = bound.memories(limit=_require_limit(limit, 100), before=before, namespace=None)
    return framed_answer(bound, {"memories": [memory_fields(memory) for memory in memories]})


@_errors_as_answers
def memory_modify(
    bound: BoundTally,
    memory_id: str,
    reason: str,
    if_version: int,
    content: str | None = None,
    attributes: dict[str, Any] | None = None,
    replace_attributes: bool = False,
) -> Answer:
    """Correct the text of a memory as `content`, or those of its `attributes` that you give (null
    removes one; with `replace_attributes` they take the place of all). Give the version that you
    read as `if_version`, and why as `reason`.
    """
    _memory(bound, memory_id)
    fields: dict[str, Any] = {"content": content, "attributes": attributes}
    changes: dict[str, Any] = {name: value for name, value in fields.items() if value is not None}
    if replace_attributes:
        changes["replace_attributes"] = True
    change = bound.modify(memory_id, reason=reason, if_version=if_version, **changes)
    return _change_fields(change)


@_errors_as_answers
def memory_forget(bound: BoundTally, memory_id: str, reason: str) -> Answer:
    """Take a memory out of recall, with the reason. A person can recover it for a while."""
    _memory(bound, memory_id)
    return _change_fields(bound.forget(memory_id, reason=reason))


@_errors_as_answers
def memory_working(
    bound: BoundTally,
    action: Literal["list", "set", "drop"],
    name: str = "",
    value: str | list[str] = "",
) -> Answer:
    """Keep in mind what this conversation works on, from turn to turn. set: a text or a list of
    texts under a name (task, plan, questions, facts, outputs or another), in place of the one
    before. drop: a name that is done. list: all.
    """
    working = bound.working
    if action == "set":
        lifetime: Lifetime = "run" if working.thread is None else "thread"
        said: Json = value if isinstance(value, str) else [*value]
        kept = working.set(name, said, lifetime=lifetime)
        return {"name": as_name(kept.name), "lifetime": lifetime}
    if action == "drop":
        return {"dropped": working.drop(name)}
    values = {as_name(each.name): as_field(json.dumps(each.value)) for each in working.list()}
    return framed_answer(bound, {"memories": [], "values": values})


def _require_limit(limit: int, most: int) -> int:
    """Return a number of results that a prompt has room for. Raises InvalidInput."""
    if not 1 <= limit <= most:
        raise InvalidInput(f"`limit` is from 1 to {most}: a prompt has room for no more.")
    return limit


def _memory(bound: BoundTally, memory_id: str) -> Memory:
    """Return a memory that a model may see: no item of a store, which is reached by its namespace
    alone. Raises NotFound alike for those, for hidden and for absent ones.
    """
    memory = bound.get(memory_id)
    if memory.kind == STORE_ITEM:
        raise NotFound(f"There is no memory {memory_id} that {bound.actor.user} may see.")
    return memory


def framed_answer(bound: BoundTally, fields: Answer) -> Answer:
    """Return an answer with memory text: without secrets, under the notice, and with its code."""
    fields = _without_secrets(services_of(bound).memory.redactor, fields)
    answer = {"notice": ANSWER_NOTICE, **fields}
    if not fields.get("memories", True):
        return answer  # no memory text, nothing to recognise
    return signed_answer(answer, services_of(bound).memory.frame_keys.signing(bound.scope))


def _without_secrets(redactor: Redactor, value: Any) -> Any:
    # Text by text, and not by the names of keys: an answer has the token that confirms a change.
    if isinstance(value, str):
        return redactor.redact_text(value).text
    if isinstance(value, dict):
        return {name: _without_secrets(redactor, inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_without_secrets(redactor, inner) for inner in value]
    return value


def warning_fields(warnings: Iterable[str]) -> Answer:
    """Return warnings as an answer has them; nothing where there are none."""
    listed = list(warnings)
    return {"warnings": listed} if listed else {}


def memory_fields(memory: Memory) -> Answer:
    """Return a memory as an answer has it; what is empty is left out."""
    fields = {
        "id": memory.id,
        "version": memory.version,
        "kind": memory.kind,
        "text": as_field(memory.content),
        "speaker": None if memory.speaker is None else as_name(memory.speaker),
        "tags": [as_name(tag) for tag in memory.tags],
        "attributes": _attribute_fields(memory),
        "source_ids": [source.source_id for source in memory.sources],
    }
    return {name: value for name, value in fields.items() if value not in (None, [])}


def _attribute_fields(memory: Memory) -> str | None:
    """Return the attributes that the kind of a memory declares, as JSON; None without any."""
    declared = declared_attributes(memory.kind, memory.attributes)
    return as_field(json.dumps(declared, ensure_ascii=False)) if declared else None


def found_fields(hits: Iterable[Hit]) -> Answer:
    """Return hits as an answer has them: each memory with its number and its id, what says nearly
    the same once (`also` has the ids of the others), those that contradict one another, and who may
    see which, and why, by number.
    """
    shown = unfold(hits)
    visible: dict[str, list[int]] = {}
    for number, (hit, _) in enumerate(shown, start=1):
        visible.setdefault(f"{hit.visible_to} ({hit.access_reason})", []).append(number)
    memories = [
        {"number": number, **_hit_fields(hit), **({"also": folded} if folded else {})}
        for number, (hit, folded) in enumerate(shown, start=1)
    ]
    if not memories:
        return {"memories": []}
    lines = disagreements_of(hit for hit, _ in shown)
    return {
        "memories": memories,
        **({"disagree": lines} if lines else {}),
        "visible_to": {as_name(name): as_ranges(places) for name, places in visible.items()},
    }


def _hit_fields(hit: Hit) -> Answer:
    fields = memory_fields(hit.memory)
    fields.pop("source_ids", None)
    return {
        **fields,
        **_show_hit(hit),
        "score": round(hit.score, 4),
        **({"held": [_held_fields(each) for each in hit.held]} if hit.held else {}),
        **({"holds_no_longer": True, "replaced_by": hit.replaced_by} if hit.history else {}),
    }


def _held_fields(held: HeldChange) -> Answer:
    """Return a change that waits for a person, beside what it would change."""
    return {"text": as_field(held.text), "state": words_of_held(held), "action": held.action}


def _show_hit(hit: Hit) -> Answer:
    """Return what is shown of a hit: its text with its caption, or of a long one the part that
    answers, with its place; `memory_get` gives all of it.
    """
    text, place = passage_text(hit)
    return {"text": as_field(text), **({} if place is None else {"part": place})}


def _change_fields(change: Change) -> Answer:
    return {
        "id": change.id,
        "status": change.status,
        "version": change.version,
        "state": change.state,
        **warning_fields(change.warnings),
    }


_TOOLS = (
    MemoryTool("memory_search", OPERATIONS["recall"], memory_search, needs_approval=False),
    MemoryTool("memory_store", OPERATIONS["remember"], memory_store, needs_approval=False),
    MemoryTool("memory_get", OPERATIONS["get"], memory_get, needs_approval=False),
    MemoryTool("memory_list", OPERATIONS["memories"], memory_list, needs_approval=False),
    MemoryTool("memory_modify", OPERATIONS["modify"], memory_modify, needs_approval=True),
    MemoryTool("memory_forget", OPERATIONS["forget"], memory_forget, needs_approval=True),
)

MEMORY_TOOLS: Mapping[str, MemoryTool] = {tool.name: tool for tool in _TOOLS}
"""The tools by name, in the order in which they are offered."""

WORKING_TOOL = MemoryTool(
    "memory_working", OPERATIONS["working_set"], memory_working, needs_approval=False
)
"""The tool for working memory, which is offered where it is asked for."""

MODEL_TOOLS: Mapping[str, MemoryTool] = {**MEMORY_TOOLS, WORKING_TOOL.name: WORKING_TOOL}
"""Every tool that a model may call, by name."""


def offered_tools(*, working: bool) -> tuple[MemoryTool, ...]:
    """Return the tools that a runtime offers, with `working` that for working memory too."""
    return (*_TOOLS, WORKING_TOOL) if working else _TOOLS


MEMORY_INSTRUCTIONS = f"""You have a long-term memory.
Search it before you ask for what may be known, and store what should be known next time.
Where the user says that something known changed, store the new statement with `replaces` and \
`span`.
Before you change a memory, read it: give the version that you read. If it changed meanwhile, read \
it again.
Before you forget something, search for it, tell the user which memories it would be, and forget \
them one by one once the user agrees.
{NOTICE}"""
"""Instructions for an agent with the six tools: static, so that the prompt's prefix stays."""
