"""Correct: the nine corrections of a memory, each previewed and then applied with the token of its
preview.

The effect of a correction is computed by one function of the stored state, once for the preview and
once more inside the transaction that applies it; the token binds the two together.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from tallystick.access import Confirmation
from tallystick.errors import InvalidInput, StateConflict, VersionConflict
from tallystick.memory.artifacts import cited_in
from tallystick.memory.change import (
    SHARED,
    apply_changes,
    follow,
    recover_memory,
    require_reason,
)
from tallystick.memory.conclusions import ORIGIN_GONE, readable_conclusions, settle_by_origins
from tallystick.memory.context import MemoryContext
from tallystick.memory.memory_write import (
    MemoryWrite,
    is_locked,
    is_pinned_for,
    require_unprotected,
)
from tallystick.memory.secrets import admit_fields
from tallystick.records import (
    AccessKind,
    Actor,
    Affected,
    Change,
    Correction,
    CorrectionKind,
    Json,
    Link,
    Memory,
    MemoryState,
    RecallImpact,
    canonical_json,
)
from tallystick.storage import Connection
from tallystick.storage.engine.writes import Writes
from tallystick.storage.rows import edges, memories, memory_versions, occurrences
from tallystick.storage.rows.idempotency import IdempotentCall

_OPERATION = "correct"

_TOUCHES: Mapping[CorrectionKind, tuple[str, ...]] = {
    "mark_wrong": ("state",),
    "mark_stale": ("valid_until",),
    "mark_sensitive": ("attributes",),
    "mark_duplicate": ("state",),
    "supersede": ("state", "valid_until"),
    "hide": ("state",),
    "redact": (
        "state",
        "content",
        "subject",
        "speaker",
        "category",
        "tags",
        "attributes",
        "redacted",
    ),
    "delete": ("state",),
}
"""The fields that a correction may change."""

_FROM: Mapping[CorrectionKind, tuple[MemoryState, ...]] = {
    "mark_wrong": ("active", "superseded", "duplicate", "redacted"),
    "mark_stale": ("active",),
    "mark_sensitive": ("active", "superseded", "redacted"),
    "mark_duplicate": ("active",),
    "supersede": ("active",),
    "hide": ("active", "superseded", "duplicate", "redacted"),
    "redact": ("active", "superseded", "duplicate", "redacted", "hidden"),
    "delete": ("active", "superseded", "duplicate", "redacted", "hidden"),
    "restore": ("active", "hidden", "redacted", "superseded", "duplicate", "deleted"),
}
_BECOMES: Mapping[CorrectionKind, MemoryState] = {
    "mark_wrong": "hidden",
    "mark_duplicate": "duplicate",
    "supersede": "superseded",
    "hide": "hidden",
    "delete": "deleted",
}
_IMPACT: Mapping[CorrectionKind, RecallImpact] = {
    "mark_wrong": "leaves_recall",
    "mark_stale": "history",
    "mark_sensitive": "local_only",
    "mark_duplicate": "under_canonical",
    "supersede": "below_replacement",
    "hide": "leaves_recall",
    "delete": "leaves_recall",
    "restore": "returns",
}
_TEXTS = ("content", "subject", "speaker", "category")
_KEY = "attributes."
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")
_PLACEHOLDER = "[redacted]"


@dataclass(frozen=True)
class CorrectionRequest:
    """The arguments of a correction."""

    correction: CorrectionKind
    reason: str
    other_id: str | None = None
    """The replacement, or the canonical memory."""
    field: str = "content"
    replacement: str = _PLACEHOLDER
    """The text in place of the redacted one."""
    evidence: tuple[str, ...] = ()
    """The ids of sources that support the replacement."""
    valid_from: int | None = None
    """The time since which the replacement is valid, or the memory is stale, microseconds UTC; None
    is now.
    """
    force: bool = False

    def as_json(self) -> Json:
        """Return the arguments as JSON, for the token."""
        return [
            self.correction,
            self.reason,
            self.other_id,
            self.field,
            self.replacement,
            list(self.evidence),
            self.valid_from,
            self.force,
        ]


@dataclass(frozen=True)
class _Plan:
    current: memories.Stored
    after: Memory
    other: memories.Stored | None
    correction: Correction


def correct(
    context: MemoryContext,
    actor: Actor,
    memory_id: str,
    request: CorrectionRequest,
    *,
    mode: Literal["preview", "apply"],
    confirm_token: str | None = None,
    if_version: int | None = None,
    idempotency_key: str | None = None,
    correlation_id: str | None = None,
) -> Correction:
    """Preview a correction, or apply one that was previewed.

    Raises InvalidInput, NotFound, Denied (`confirm_token_required`), VersionConflict, StateConflict
    or IdempotencyMismatch; then nothing changed.
    """
    _check(request)
    with context.store.database.read() as connection:
        target = context.visible(connection, actor, memory_id, _operation(request, None))
        scope = target.scope
        replaced = admit_fields(context, scope.scope, {"content": request.replacement}).fields
        if replaced:
            request = replace(request, replacement=replaced["content"])
        call = IdempotentCall(
            scope,
            _OPERATION,
            idempotency_key if mode == "apply" else None,
            canonical_json([memory_id, request.as_json(), if_version, confirm_token]),
        )
        answered = call.read_answer(connection)
        if answered is not None:
            return Correction.load(answered)
        now = context.store.clock.now()
        plan = _plan(connection, context, actor, memory_id, request, if_version, now)
    confirmation = Confirmation(context.gate, scope.secret, _OPERATION, actor)
    if mode == "preview":
        token, expires_at = confirmation.token(_preview(request, plan), now=now)
        return plan.correction.model_copy(update={"confirm_token": token, "expires_at": expires_at})
    if confirm_token is None:
        operation = _operation(request, target.memory)
        raise confirmation.refusal(context.gate.require(actor, operation, target.memory.scope))
    # An embedder may be slow or far away, and a transaction holds the one writer: the vector is
    # made before, from what was read before. The transaction checks that its memory says the same;
    # otherwise the vector of another text would be found under it.
    vector = None
    if plan.after.state in memories.FINDABLE:
        vector = context.vector_for(plan.after)

    def unit(tx: Connection) -> Correction:
        context.visible(tx, actor, memory_id, _operation(request, None))
        answered = call.read_answer(tx)
        if answered is not None:
            return Correction.load(answered)
        write = MemoryWrite(tx, context, actor, context.store.clock.now(), correlation_id)
        current = _plan(tx, context, actor, memory_id, request, if_version, write.now)
        confirmation.require(
            confirm_token,
            _preview(request, current),
            now=write.now,
            subject=memory_id,
        )
        is_same_text = (
            current.after.content == plan.after.content
            and current.after.attributes == plan.after.attributes
        )
        result = _apply(write, current, request, vector if is_same_text else None)
        call.keep(tx, result, at=write.now)
        return result

    return context.store.database.write_mostly(
        unit, name="apply.correct", writes=Writes.of(target.memory.scope)
    )


def apply_correction(write: MemoryWrite, memory_id: str, request: CorrectionRequest) -> Correction:
    """Apply a correction that leaves the text as it is inside the open transaction, where something
    else was confirmed already. Raises as `correct`.
    """
    _check(request)
    plan = _plan(write.tx, write.context, write.actor, memory_id, request, None, write.now)
    return _apply(write, plan, request, None)


def applies_to(correction: CorrectionKind, memory: Memory) -> bool:
    """Return True if a correction can be previewed for a memory in its state."""
    if correction == "restore":
        if memory.corrected == ORIGIN_GONE:
            return memory.state in ("hidden", "deleted")
        return memory.corrected is not None or memory.state == "deleted"
    if correction == "mark_stale" and memory.corrected == "mark_stale":
        return False
    return memory.state in _FROM[correction]


def affected_by(
    connection: Connection, context: MemoryContext, actor: Actor, current: memories.Stored
) -> Affected:
    """Return the links of a memory. Memories that the actor may not read are only counted."""
    around = edges.of(connection, current.doc)
    linked = memories.get_docs(
        connection,
        {edge.from_doc if edge.to_doc == current.doc else edge.to_doc for edge in around},
    )
    readable = {
        doc: other
        for doc, other in linked.items()
        if context.gate.decide(connection, actor, "read", other.memory.scope).allowed
    }
    links: list[Link] = []
    shared: list[str] = []
    for edge in around:
        is_incoming = edge.to_doc == current.doc
        other = readable.get(edge.from_doc if is_incoming else edge.to_doc)
        if other is None:
            continue
        links.append(
            Link(
                kind=edge.kind, direction="from" if is_incoming else "to", memory_id=other.memory.id
            )
        )
        if is_incoming and edge.kind == "SHARES":
            shared.append(other.memory.id)
    return Affected(
        sources=tuple(source.source_id for source in current.memory.sources),
        derived=readable_conclusions(connection, context, actor, current),
        shared=tuple(shared),
        links=tuple(links),
        elsewhere=len(linked) - len(readable),
    )


def _check(request: CorrectionRequest) -> None:
    require_reason(request.reason)
    needs_other = request.correction in ("supersede", "mark_duplicate")
    if needs_other and request.other_id is None:
        role = "replacement" if request.correction == "supersede" else "memory that it repeats"
        raise InvalidInput(f"{request.correction} needs `by`: the id of the {role}.", argument="by")
    if not needs_other and request.other_id is not None:
        raise InvalidInput(
            f"{request.correction} takes no `by`; only supersede and mark_duplicate do.",
            argument="by",
        )
    if request.correction == "redact" and not request.replacement.strip():
        raise InvalidInput("`replacement` is empty. Say in a few words what stood there.")


def _operation(request: CorrectionRequest, memory: Memory | None) -> AccessKind:
    if request.correction == "delete" or (memory is not None and memory.state == "deleted"):
        return "delete"
    return "correct"


def _preview(request: CorrectionRequest, plan: _Plan) -> Json:
    # Everything that the preview showed: where any of it has changed, the token confirms it no
    # more.
    fields = plan.correction.dump()
    fields.pop("reversible_until")
    return [request.as_json(), json.dumps(fields, sort_keys=True)]


def _plan(
    connection: Connection,
    context: MemoryContext,
    actor: Actor,
    memory_id: str,
    request: CorrectionRequest,
    if_version: int | None,
    now: int,
) -> _Plan:
    current = context.visible(connection, actor, memory_id, _operation(request, None))
    memory = current.memory
    if _operation(request, memory) == "delete":
        current = context.visible(connection, actor, memory_id, "delete")
    if if_version is not None and memory.version != if_version:
        raise VersionConflict(memory_id, expected=if_version, actual=memory.version)
    if memory.state not in _FROM[request.correction]:
        raise StateConflict(
            memory_id,
            state=memory.state,
            reason=f"{request.correction} does not apply to it",
            hint="Restore it first.",
        )
    operation = _operation(request, memory)
    require_unprotected(connection, current, operation, actor=actor, now=now, force=request.force)
    other = None
    if request.other_id is not None:
        other = _other(connection, context, actor, current, request)
    for source_id in request.evidence:
        context.visible_source(connection, actor, source_id, "read")
    after = _after(connection, context, current, other, request, now)
    correction = Correction(
        mode="preview",
        id=memory_id,
        correction=request.correction,
        version=memory.version,
        before=memory.state,
        after=after.state,
        other_id=None if other is None else other.memory.id,
        other_version=None if other is None else other.memory.version,
        affected=affected_by(connection, context, actor, current),
        synthesis=cited_in(connection, context, actor, current),
        recall=_impact(request, after),
        reversible=True,
        reversible_until=now + context.forget_window_us if after.state == "deleted" else None,
    )
    return _Plan(current, after, other, correction)


def _impact(request: CorrectionRequest, after: Memory) -> RecallImpact:
    if request.correction == "redact" and after.state != "hidden":
        return "metadata_only" if after.state == "redacted" else "field_redacted"
    if request.correction in ("restore", "redact") and after.state not in (
        "active",
        "superseded",
        "duplicate",
        "redacted",
    ):
        return "unchanged"
    return _IMPACT[request.correction]


def _other(
    connection: Connection,
    context: MemoryContext,
    actor: Actor,
    current: memories.Stored,
    request: CorrectionRequest,
) -> memories.Stored:
    assert request.other_id is not None
    other = context.visible(connection, actor, request.other_id, "correct")
    if other.doc == current.doc:
        raise InvalidInput(
            "A memory neither replaces nor repeats itself: `by` names another one.", argument="by"
        )
    if other.memory.state != "active":
        raise StateConflict(
            request.other_id,
            state=other.memory.state,
            reason="only an active memory can stand in another's place",
        )
    if request.correction == "mark_duplicate" and other.scope_id != current.scope_id:
        raise InvalidInput(
            "Duplicates collapse within one scope; `by` stands in another one.", argument="by"
        )
    return other


def _after(
    connection: Connection,
    context: MemoryContext,
    current: memories.Stored,
    other: memories.Stored | None,
    request: CorrectionRequest,
    now: int,
) -> Memory:
    memory = current.memory
    if request.correction == "restore":
        return _restore(connection, context, current, now)
    update: dict[str, Any] = {
        "corrected": request.correction,
        "state": _BECOMES.get(request.correction, memory.state),
    }
    if request.correction == "mark_stale":
        if memory.corrected == "mark_stale" or (
            memory.valid_until is not None and memory.valid_until <= now
        ):
            raise StateConflict(memory.id, state="stale", reason="it is marked as such already")
        update["valid_until"] = now if request.valid_from is None else request.valid_from
    elif request.correction == "supersede":
        since = request.valid_from
        if since is None:
            since = (
                now if other is None or other.memory.valid_from is None else other.memory.valid_from
            )
        update["valid_until"] = (
            since if memory.valid_until is None else min(since, memory.valid_until)
        )
        if since > now:
            update["state"] = memory.state  # it holds until then
    elif request.correction == "mark_sensitive":
        update["attributes"] = {
            **memory.attributes,
            "sensitivity": "restricted",
            "local_only": True,
        }
    elif request.correction == "redact":
        redaction = _redaction(memory, request.field, request.replacement)
        changed = apply_changes(memory, redaction)
        context.require_content(changed.content)
        return changed.model_copy(update={"corrected": "redact"})
    return memory.model_copy(update=update)


def _redaction(memory: Memory, field: str, replacement: str) -> dict[str, Any]:
    """Return the changed fields of `memory`, with the value at the path `field` replaced."""
    head, *rest = field.split(".")
    redacted = tuple(dict.fromkeys((*memory.redacted, field)))
    if head in _TEXTS and not rest:
        update: dict[str, Any] = {head: replacement, "redacted": redacted}
        # Without its text a memory is metadata; a hidden one stays hidden.
        withheld = head == "content" and memory.state != "hidden"
        return {**update, "state": "redacted"} if withheld else update
    if head == "tags" and not rest:
        return {"tags": (), "redacted": redacted}
    if head == "attributes" and rest:
        return {
            "attributes": _replace_at(memory.attributes, rest, replacement, field),
            "redacted": redacted,
        }
    raise InvalidInput(
        f"`field` {field!r} cannot be redacted. Name one of {', '.join(_TEXTS)}, tags, or a path "
        f"such as "
        "attributes.phone."
    )


def _replace_at(value: Json, path: list[str], replacement: str, field: str) -> Any:
    """Return a copy with the value at `path` replaced. The error names the path alone, no value
    beside it.
    """
    head, *rest = path
    if isinstance(value, dict):
        # A key may contain dots itself: the longest one that exists is meant.
        for end in range(len(path), 0, -1):
            name, rest = ".".join(path[:end]), path[end:]
            if name in value:
                return {
                    **value,
                    name: _replace_at(value[name], rest, replacement, field)
                    if rest
                    else replacement,
                }
    if isinstance(value, list) and _INDEX.fullmatch(head) and int(head) < len(value):
        place = int(head)
        changed = _replace_at(value[place], rest, replacement, field) if rest else replacement
        return [*value[:place], changed, *value[place + 1 :]]
    raise InvalidInput(f"There is nothing at `field` {field!r}.", argument="field")


def _restore(
    connection: Connection, context: MemoryContext, current: memories.Stored, now: int
) -> Memory:
    memory = current.memory
    under = memory.corrected
    if memory.state == "deleted":
        return recover_memory(connection, context, current, now)
    if under is None:
        raise StateConflict(memory.id, state=memory.state, reason="it stands under no correction")
    if under == ORIGIN_GONE:
        return _accept_conclusion(current)
    stood = _stood_before(connection, current)
    if stood is None:
        raise StateConflict(
            memory.id, state=memory.state, reason="what stood there before was erased"
        )
    after = _take_back(memory, under, stood)
    origin = edges.sharing(connection, current.doc).origin
    if origin is not None:
        # A shared copy has the text of its origin, which may have been redacted in between.
        shared = memories.get_docs(connection, [origin])[origin].memory
        update: dict[str, Any] = {
            name: getattr(shared, name) for name in _TOUCHES[under] if name in SHARED
        }
        redacted = shared.redacted if under == "redact" else after.redacted
        if after.state in ("active", "redacted"):
            update["state"] = "redacted" if "content" in redacted else "active"
        after = after.model_copy(update={**update, "redacted": redacted})
    if after.state == "active" and memory.state != "active" and memory.conversation is None:
        key = current.content_key
        same = occurrences.find_statement(connection, current.scope_id, memory.kind, key)
        if same is not None and same[0] != current.doc:
            raise StateConflict(
                memory.id,
                state=memory.state,
                reason=f"memory {same[1]} says the same by now",
                hint="Use that one, or forget it first.",
            )
    return settle_by_origins(connection, current, after)


def _stood_before(connection: Connection, current: memories.Stored) -> Memory | None:
    """Return a memory as it was before the latest of its corrections that hold; None once that was
    erased.

    Corrections lie on one another. A version does not say whether it made one or took one back: the
    upper one was taken back where to take it back would change nothing. What was forgotten and
    recovered in between is no state to go back to.
    """
    held: list[Memory] = []
    for version in memory_versions.versions_of(connection, current.doc):
        if version.body is None:
            held = []
        elif version.body["state"] != "deleted":
            bare = {"corrected": None, "redacted": ()}
            after = Memory.load({**current.memory.model_dump(), **bare, **version.body})
            while len(held) > 1 and _is_taken_back(after, held[-1].corrected, held[-2]):
                held.pop()
            if held and held[-1].corrected == after.corrected:
                held.pop()
            held.append(after)
    return held[-2] if len(held) > 1 else None


def _is_taken_back(after: Memory, under: str | None, stood: Memory) -> bool:
    if after.corrected is None or under == after.corrected:
        return under is not None and after.corrected is None
    return after.corrected == stood.corrected and _take_back(after, under, stood) == after


def _take_back(memory: Memory, under: str | None, stood: Memory) -> Memory:
    """Return a memory with what a correction changed put back as it stood; what else was changed
    since stays.
    """
    update: dict[str, Any] = {"state": stood.state, "corrected": stood.corrected}
    keys: set[str] = {"sensitivity", "local_only"} if under == "mark_sensitive" else set()
    if under == "redact":
        paths = set(memory.redacted).difference(stood.redacted)
        update |= {"redacted": stood.redacted}
        update |= {path: getattr(stood, path) for path in paths if not path.startswith(_KEY)}
        keys = {
            name
            for name in stood.attributes
            if any(f"{path}.".startswith(f"{_KEY}{name}.") for path in paths)
        }
    elif under in ("mark_stale", "supersede"):
        update["valid_until"] = stood.valid_until
    if keys:
        kept = {name: value for name, value in memory.attributes.items() if name not in keys}
        back = {name: value for name, value in stood.attributes.items() if name in keys}
        update["attributes"] = {**kept, **back}
    return memory.model_copy(update=update)


def _accept_conclusion(current: memories.Stored) -> Memory:
    """Return a conclusion that is shown again although what it was concluded from is gone."""
    memory = current.memory
    if memory.state != "hidden":
        raise StateConflict(
            memory.id,
            state=memory.state,
            reason="what it was concluded from is gone",
            hint="Recover or restore that, and this holds again.",
        )
    return memory.model_copy(update={"state": "active"})


def _apply(
    write: MemoryWrite, plan: _Plan, request: CorrectionRequest, vector: bytes | None
) -> Correction:
    current, after = plan.current, plan.after
    details: dict[str, Any] = {
        "correction": request.correction,
        "before": current.memory.state,
        "after": after.state,
    }
    if request.correction == "redact":
        # The chain keeps it for good: a path has keys, which somebody chose.
        details["field"] = request.field.partition(".")[0]
    if plan.other is not None:
        details["other"] = plan.other.memory.id
        _link(write, plan, request, plan.other)
    if request.correction == "restore":
        _unlink(write, current)
    event = {"delete": "memory.forget"}.get(request.correction, "memory.correct")
    permitted = write.permit(current, _operation(request, current.memory), force=request.force)
    memory, audit_id = write.rewrite(
        permitted, after, event, reason=request.reason, vector=vector, details=details
    )
    stays = memory.state in ("active", "redacted")
    if stays or request.correction != "restore":
        follow(write, current, memory if stays else None, vector=vector)
    change = Change(
        id=memory.id,
        event="FORGET" if request.correction == "delete" else "CORRECT",
        status="changed",
        version=memory.version,
        state=memory.state,
        audit_id=audit_id,
    )
    return plan.correction.model_copy(update={"mode": "apply", "result": change})


def _link(
    write: MemoryWrite, plan: _Plan, request: CorrectionRequest, other: memories.Stored
) -> None:
    """Link the memory with its replacement or canonical memory, with reason and evidence; the
    replacement is valid from then on.
    """
    supersedes = request.correction == "supersede"
    since = plan.after.valid_until if supersedes else None
    from_doc, to_doc = (
        (other.doc, plan.current.doc) if supersedes else (plan.current.doc, other.doc)
    )
    edges.add(
        write.tx,
        edge_id=write.context.store.ids.new(),
        kind="SUPERSEDES" if supersedes else "DUPLICATE_OF",
        scope_id=plan.current.scope_id,
        from_doc=from_doc,
        to_doc=to_doc,
        at=write.now,
        reason=request.reason,
        evidence=request.evidence,
        valid_from=since,
    )
    if (
        supersedes
        and other.memory.valid_from is None
        and not is_locked(other.memory, write.actor, write.now)
        and not is_pinned_for(write.tx, other, write.actor)
    ):
        valid = other.memory.model_copy(update={"valid_from": since})
        write.rewrite(
            write.permit(other, "correct"),
            valid,
            "memory.correct",
            reason=request.reason,
            details={
                "correction": "supersede",
                "before": "active",
                "after": "active",
                "other": plan.current.memory.id,
            },
        )


def _unlink(write: MemoryWrite, current: memories.Stored) -> None:
    under = current.memory.corrected
    ends = {
        "supersede": ("SUPERSEDES", "to_doc"),
        "mark_duplicate": ("DUPLICATE_OF", "from_doc"),
    }.get(under or "")
    if ends is None:
        return
    kind, end = ends
    edge_ids = [
        edge.id
        for edge in edges.of(write.tx, current.doc)
        if edge.kind == kind and getattr(edge, end) == current.doc
    ]
    edges.close(write.tx, edge_ids, at=write.now)
