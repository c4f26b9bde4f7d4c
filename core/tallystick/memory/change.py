"""Explicit change: modify, forget, recover, one or many. Each is one transaction with its journal
event, and every old version stays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from tallystick.access import is_expired
from tallystick.errors import (
    InvalidInput,
    StateConflict,
    VersionConflict,
)
from tallystick.memory.conclusions import readable_conclusions, settle_by_origins, withdraw_copies
from tallystick.memory.context import MemoryContext
from tallystick.memory.fields import STORE_ITEM
from tallystick.memory.links import (
    CHANGEABLE_LINKS,
    change_links,
    plan_links,
    read_link_changes,
)
from tallystick.memory.memory_write import MemoryWrite, Permitted
from tallystick.memory.secrets import Admitted, admit_fields, without_secrets
from tallystick.records import (
    FIRST_MOMENT,
    LAST_MOMENT,
    AccessKind,
    Actor,
    Change,
    Forgotten,
    JsonObject,
    Memory,
    SourceRef,
    attributes_with_moments,
    is_storable,
    require_json_size,
    require_length,
    require_tags,
    validate_attributes,
)
from tallystick.storage import Connection
from tallystick.storage.engine.writes import Writes
from tallystick.storage.index import search
from tallystick.storage.rows import edges, memories, memory_versions, occurrences, parts
from tallystick.storage.rows.idempotency import IdempotentCall

CHANGEABLE = (
    "content",
    "kind",
    "subject",
    "speaker",
    "category",
    "confidence",
    "importance",
    "pinned",
    "valid_from",
    "valid_until",
    "freshness_ts",
    "expires_at",
    "tags",
    "attributes",
)
"""Fields that `modify` may change."""

SHARED = tuple(name for name in CHANGEABLE if name != "pinned")
"""Fields that a copy in another scope takes over."""

_CORRECTABLE = ("content", "subject", "speaker", "category", "tags", "attributes", "valid_until")
"""Fields that a correction of the copy itself may have changed."""

_RIGHTS: Mapping[str, AccessKind] = {"modify": "correct", "forget": "delete", "recover": "delete"}

C = TypeVar("C", bound=Change)

_TRIES = 4
"""The times that a change without `if_version` starts anew when another change came in between."""


@dataclass(frozen=True)
class StepOfWork:
    """A change that follows from what a memory says at that moment."""

    request: JsonObject
    """The arguments by which the same call is known when it is sent again."""
    changes: Callable[[Memory], Mapping[str, Any]]
    """Returns the changes of the memory as it is; raises nothing."""
    require: Callable[[Memory], None]
    """Raises where the memory does not allow it, within the transaction."""


def modify(
    context: MemoryContext,
    actor: Actor,
    memory_id: str,
    changes: Mapping[str, Any] | StepOfWork,
    *,
    reason: str,
    if_version: int | None = None,
    idempotency_key: str | None = None,
    correlation_id: str | None = None,
    lock_until: int | None = None,
    replace_attributes: bool = False,
) -> Change:
    """Change fields of an active memory; the old version stays in its history. `attributes` are
    merged by key, where None removes one, unless they replace all.

    With `lock_until` (microseconds UTC) a person locks the edit: until then no agent may change the
    memory.

    Raises InvalidInput, InvalidRecord, NotFound, Denied, VersionConflict, StateConflict or
    IdempotencyMismatch; then nothing changed.
    """
    require_reason(reason)
    step = changes if isinstance(changes, StepOfWork) else None
    given = {} if isinstance(changes, StepOfWork) else dict(changes)
    if step is None:
        _require_changeable(given, replace_attributes=replace_attributes)
    if lock_until is not None and actor.agent is not None:
        raise InvalidInput(
            "Only a person locks an edit: `manual_override` is not for agents.",
            argument="manual_override",
        )
    if lock_until is not None and lock_until <= context.store.clock.now():
        raise InvalidInput("An edit is locked until a moment that is still to come.")

    def attempt() -> Change:
        vector, expected = None, if_version
        before = _read(context, actor, memory_id, "correct")
        asked = given if step is None else dict(step.changes(before.memory))
        links = read_link_changes(asked)
        changes = {name: value for name, value in asked.items() if name not in links}
        whole = dict(changes)
        if "attributes" in changes:
            whole["attributes"] = _whole_attributes(
                context, before.memory, changes, replace=replace_attributes
            )
        changed = apply_changes(before.memory, whole)
        admitted = admit_changes(context, changed, whole)
        fields = {**whole, **admitted.fields}
        if not _EMBEDDED.isdisjoint(fields):
            # An embedder may be slow or far away, and a transaction holds the one writer: the
            # vector is made before. `expected` is the version that it was made of: where another
            # change came in between, the transaction raises VersionConflict and `modify` starts
            # anew. Otherwise a memory would be found by the vector of a text that it never had.
            changed = apply_changes(before.memory, fields)
            if "content" in changes:
                context.require_content(changed.content)
            vector = context.vector_for(changed)
            expected = before.memory.version if if_version is None else if_version

        def arguments(current: memories.Stored) -> JsonObject:
            if step is not None:
                return {**step.request, "reason": reason, "if": if_version}
            memory = apply_changes(current.memory, fields)
            asked = memory.model_dump(mode="json", include=set(changes))
            if "attributes" in asked and not replace_attributes:
                # What else stands there may change before the request is sent again.
                given = changes["attributes"]
                asked["attributes"] = {name: asked["attributes"].get(name) for name in given}
            return {
                "changes": asked,
                "reason": reason,
                "if": if_version,
                "lock": lock_until is not None,
                **{name: [list(ids) for ids in change] for name, change in links.items()},
            }

        def apply(tx: Connection, current: memories.Stored, now: int) -> Change:
            memory = apply_changes(current.memory, fields)
            if expected is not None:
                require_version(current.memory, expected)
            require_active(current.memory)
            if step is not None:
                step.require(current.memory)
            write = MemoryWrite(tx, context, actor, now, correlation_id)
            permitted = write.permit(current, "correct")
            if lock_until is not None:
                memory = memory.model_copy(update={"locked_until": lock_until})
            planned = plan_links(write, current, links)
            if (
                memory_versions.body_of(memory) == memory_versions.body_of(current.memory)
                and lock_until is None
                and not planned
            ):
                return _no_change(memory, "UPDATE")
            names = sorted([*changes, *(each.name for each in planned)])
            change = apply_modify(write, permitted, memory, vector, names, reason)
            change_links(write, current, planned, version=change.version, reason=reason)
            return change.model_copy(update={"warnings": admitted.warnings})

        return _commit(context, actor, before, "modify", idempotency_key, arguments, apply, Change)

    for _ in range(_TRIES):
        try:
            return attempt()
        except VersionConflict:
            if if_version is not None:
                raise
    return attempt()


def forget(
    context: MemoryContext,
    actor: Actor,
    memory_id: str,
    *,
    reason: str,
    if_version: int | None = None,
    idempotency_key: str | None = None,
    correlation_id: str | None = None,
) -> Forgotten:
    """Take a memory out of every recall; it can be recovered until `recoverable_until`.

    A pinned memory is refused: an operator deletes it by a previewed correction. Forgetting twice
    changes nothing. Raises as `modify`.
    """
    require_reason(reason)
    before = _read(context, actor, memory_id, "delete")
    arguments = {"reason": reason, "if": if_version, "force": False}

    def apply(tx: Connection, current: memories.Stored, now: int) -> Forgotten:
        memory = current.memory
        if if_version is not None:
            require_version(memory, if_version)
        if memory.state == "deleted":
            until = _until(context, current.forgotten_at)
            return Forgotten(**dict(_no_change(memory, "FORGET")), recoverable_until=until)
        write = MemoryWrite(tx, context, actor, now, correlation_id)
        return forget_one(write, write.permit(current, "delete"), reason)

    return _commit(
        context, actor, before, "forget", idempotency_key, lambda _: arguments, apply, Forgotten
    )


def _commit(
    context: MemoryContext,
    actor: Actor,
    before: memories.Stored,
    operation: Literal["modify", "forget", "recover"],
    idempotency_key: str | None,
    arguments: Callable[[memories.Stored], Mapping[str, Any]],
    apply: Callable[[Connection, memories.Stored, int], C],
    kind: type[C],
) -> C:
    """Apply a change of a memory in a transaction of its own, once under its key."""
    memory_id, right = before.memory.id, _RIGHTS[operation]

    def unit(tx: Connection) -> C:
        current = context.visible(tx, actor, memory_id, right, sources=False)
        request = None if idempotency_key is None else [memory_id, arguments(current)]
        call = IdempotentCall(current.scope, operation, idempotency_key, request)
        answered = call.read_answer(tx)
        if answered is not None:
            if answered.get("derived"):
                # The key is the scope's: the first call may be that of another actor.
                seen = readable_conclusions(tx, context, actor, current)
                answered["derived"] = [each for each in answered["derived"] if each in seen]
            return kind.load(answered)
        now = context.store.clock.now()
        result = apply(tx, current, now)
        call.keep(tx, result, at=now)
        return result

    return context.store.database.write_mostly(
        unit, name=f"apply.{operation}", writes=Writes.of(before.memory.scope)
    )


def _no_change(memory: Memory, event: Literal["UPDATE", "FORGET", "RECOVER"]) -> Change:
    return Change(
        id=memory.id,
        event=event,
        status="unchanged",
        version=memory.version,
        state=memory.state,
    )


def forget_one(write: MemoryWrite, permitted: Permitted, reason: str) -> Forgotten:
    """Forget a memory, and its shared copies with it, inside the open transaction."""
    current = permitted.stored
    memory = current.memory.model_copy(update={"state": "deleted", "corrected": "delete"})
    _, audit_id = write.rewrite(permitted, memory, "memory.forget", reason=reason)
    follow(write, current, None)
    return Forgotten(
        id=current.memory.id,
        event="FORGET",
        status="changed",
        version=current.memory.version + 1,
        state="deleted",
        audit_id=audit_id,
        recoverable_until=_until(write.context, write.now),
        derived=readable_conclusions(write.tx, write.context, write.actor, current),
    )


def recover(
    context: MemoryContext,
    actor: Actor,
    memory_id: str,
    *,
    reason: str,
    if_version: int | None = None,
    idempotency_key: str | None = None,
    correlation_id: str | None = None,
) -> Change:
    """Bring a forgotten memory back as it was, within its window. Recovering an active one changes
    nothing.

    A memory that was hidden, redacted or replaced before it was forgotten is so again. An end that
    has passed since is removed. Raises as `modify`, and StateConflict when the window has passed or
    another memory says the same by now.
    """
    require_reason(reason)
    before = _read(context, actor, memory_id, "delete")
    # Made before the transaction, as in `modify`; it counts only for the text it was made of.
    vector = context.vector_for(before.memory)
    arguments = {"reason": reason, "if": if_version}

    def apply(tx: Connection, current: memories.Stored, now: int) -> Change:
        memory = current.memory
        if if_version is not None:
            require_version(memory, if_version)
        if memory.state == "active":
            return _no_change(memory, "RECOVER")
        write = MemoryWrite(tx, context, actor, now, correlation_id)
        again, audit_id = write.rewrite(
            write.permit(current, "delete"),
            recover_memory(tx, context, current, now),
            "memory.recover",
            reason=reason,
            vector=vector if memory.content == before.memory.content else None,
        )
        return Change(
            id=memory_id,
            event="RECOVER",
            status="changed",
            version=again.version,
            state=again.state,
            audit_id=audit_id,
        )

    return _commit(
        context, actor, before, "recover", idempotency_key, lambda _: arguments, apply, Change
    )


def apply_modify(
    write: MemoryWrite,
    permitted: Permitted,
    memory: Memory,
    vector: bytes | None,
    fields: list[str],
    reason: str,
    reference: SourceRef | None = None,
) -> Change:
    """Write `memory` in place of a stored one, inside the open transaction. New words are the
    actor's, or come from `reference`. Raises StateConflict.
    """
    current = permitted.stored
    tx, actor, now, scope = write.tx, write.actor, write.now, current.scope
    content_key, sharing = current.content_key, edges.sharing(tx, current.doc)
    if sharing.origin is not None and any(
        getattr(memory, name) != getattr(current.memory, name) for name in SHARED
    ):
        raise StateConflict(
            memory.id,
            state="shared",
            reason="a shared copy says what its origin says",
            hint="Let its owner change that, or remember what holds here.",
        )
    details: dict[str, Any] = {"fields": fields}
    if memory.content != current.memory.content:
        # The new words have an author: they are a source of their own.
        content_key = parts.put(tx, scope, memory.content.encode("utf-8", "surrogatepass"), at=now)
        source_id = write.add_source(scope, reference or _source_of(actor), content_key)
        memories.link_source(tx, current.doc, source_id)
        details["source"] = source_id
    if memory.conversation is None and (content_key, memory.kind) != (
        current.content_key,
        current.memory.kind,
    ):
        same = occurrences.find_statement(tx, scope.id, memory.kind, content_key)
        if same is not None and same[0] != current.doc:
            raise StateConflict(
                memory.id,
                state=memory.state,
                reason=f"memory {same[1]} says the same already",
                hint="Forget one of the two.",
            )
    memory, audit_id = write.rewrite(
        permitted,
        memory,
        "memory.update",
        reason=reason,
        vector=vector,
        content_key=content_key,
        details=details,
    )
    follow(write, current, memory, vector=vector, sharing=sharing)
    return Change(
        id=memory.id,
        event="UPDATE",
        status="changed",
        version=memory.version,
        state=memory.state,
        audit_id=audit_id,
    )


def follow(
    write: MemoryWrite,
    origin: memories.Stored,
    memory: Memory | None,
    *,
    vector: bytes | None = None,
    sharing: edges.Sharing | None = None,
) -> None:
    """Bring shared copies along: each is changed as its origin, or forgotten with it (`memory` is
    None).
    """
    sharing = edges.sharing(write.tx, origin.doc) if sharing is None else sharing
    if memory is None:
        withdraw_copies(write, origin, sharing)
        return
    for _, copy in sharing.copies:
        copied = memories.get_docs(write.tx, [copy])[copy]
        if copied.memory.state == "deleted":
            continue
        again = _as_shared(write.context, copied.memory, origin.memory, memory)
        if memory_versions.body_of(again) == memory_versions.body_of(copied.memory):
            continue
        key, scope = copied.content_key, copied.scope
        if again.content != copied.memory.content:
            key = parts.put(
                write.tx, scope, again.content.encode("utf-8", "surrogatepass"), at=write.now
            )
            vector = vector or _vector_of(write, origin)
        same = occurrences.find_statement(write.tx, scope.id, again.kind, key)
        if same is not None and same[0] != copied.doc:
            again = copied.memory.model_copy(
                update={"state": "duplicate", "corrected": "mark_duplicate"}
            )
            key = copied.content_key
        why = "the shared memory was changed"
        # The vector of the origin is that of the copy only where both have the same text.
        copy_vector = vector if again.content == memory.content else None
        write.rewrite(
            write.permit_follower(copied, "SHARES", origin),
            again,
            "memory.update",
            reason=why,
            vector=copy_vector,
            content_key=key,
        )


def _as_shared(context: MemoryContext, copied: Memory, before: Memory, after: Memory) -> Memory:
    """Return a shared copy with the text of its origin, which was `before` and is `after`, without
    secrets. Fields that were corrected in the copy itself stay.
    """
    masked = without_secrets(context, copied.scope, before)
    own = {
        name
        for name in _CORRECTABLE
        if getattr(copied, name) not in (getattr(before, name), getattr(masked, name))
    }
    after = without_secrets(context, copied.scope, after)
    fields: dict[str, Any] = {name: getattr(after, name) for name in SHARED if name not in own}
    redacted = [
        path
        for path in copied.redacted
        if path not in before.redacted and path not in after.redacted
    ]
    fields["redacted"] = (*after.redacted, *redacted)
    if copied.state in ("active", "redacted"):
        # A field that is redacted in the origin is withheld from the history of the copy too.
        fields["state"] = "redacted" if "content" in fields["redacted"] else after.state
    return copied.model_copy(update=fields)


def _vector_of(write: MemoryWrite, stored: memories.Stored) -> bytes | None:
    fingerprint = write.context.settled_fingerprint()
    if fingerprint is None:
        return None  # no vector of it was stored in this process; the background makes it
    return search.vectors_of(write.tx, [stored.scope_id], fingerprint, [stored.doc]).get(stored.doc)


def _source_of(actor: Actor) -> SourceRef:
    return SourceRef(
        source_type="user" if actor.agent is None else "app_state", author=actor.agent or actor.user
    )


_EMBEDDED = frozenset({"content", "attributes"})
"""The fields that a vector is made of."""


def apply_changes(memory: Memory, changes: Mapping[str, Any]) -> Memory:
    """Return the memory with `changes`. Raises InvalidRecord and InvalidInput."""
    changed = memory.replace(**dict(changes))
    require_tags(changed.tags)
    require_json_size("attributes", changed.attributes, finite="attributes" in changes)
    validate_attributes(changed.kind, changed.attributes)
    if not changed.content.strip():
        raise InvalidInput("`content` is empty. To take a memory out of recall, forget it.")
    if (
        not {"valid_from", "valid_until"}.isdisjoint(changes)
        and changed.valid_from is not None
        and changed.valid_until is not None
        and changed.valid_from >= changed.valid_until
    ):
        raise InvalidInput("`valid_from` must come before `valid_until`.")
    for name in ("valid_from", "valid_until", "freshness_ts", "expires_at"):
        moment = getattr(changed, name)
        if moment is not None and not FIRST_MOMENT <= moment <= LAST_MOMENT:
            raise InvalidInput(
                f"`{name}` {moment} is no moment of the years 1 to 9999, in microseconds since "
                f"1970, UTC."
            )
    for name in ("subject", "speaker", "category", "tags"):
        words = getattr(changed, name)
        if name != "tags":
            require_length(name, words)
        if not all(is_storable(text) for text in ((words or "",) if name != "tags" else words)):
            raise InvalidInput(
                f"`{name}` holds a NUL or half a character; only `content` may hold any text."
            )
    return changed


def _require_changeable(changes: Mapping[str, Any], *, replace_attributes: bool) -> None:
    unknown = sorted(set(changes) - {*CHANGEABLE, *CHANGEABLE_LINKS})
    if unknown or not changes:
        problem = (
            f"{', '.join(unknown)} cannot be changed." if unknown else "Say what is to change."
        )
        choices = ", ".join((*CHANGEABLE, *CHANGEABLE_LINKS))
        raise InvalidInput(f"{problem} Give one or more of {choices}.")
    if replace_attributes and "attributes" not in changes:
        raise InvalidInput("`replace_attributes` goes with `attributes`, which replace all.")
    read_link_changes(changes)


def _whole_attributes(
    context: MemoryContext, memory: Memory, changes: Mapping[str, Any], *, replace: bool
) -> JsonObject:
    """Return the attributes of a memory with those of `changes`. Raises InvalidInput."""
    given = changes["attributes"]
    if not isinstance(given, Mapping):
        raise InvalidInput("`attributes` takes a mapping of names.", argument="attributes")
    kind, now = changes.get("kind", memory.kind), context.store.clock.now()
    timed = attributes_with_moments(kind, given, zone=context.settings.zone, now=now)
    merged = timed if replace else {**memory.attributes, **timed}
    return {name: value for name, value in merged.items() if replace or value is not None}


def admit_changes(context: MemoryContext, changed: Memory, changes: Mapping[str, Any]) -> Admitted:
    """Return the changes of a memory as they may be stored; an item of a store stays as it is."""
    if changed.kind == STORE_ITEM:
        return Admitted({})
    return admit_fields(context, changed.scope, {name: getattr(changed, name) for name in changes})


def _read(
    context: MemoryContext, actor: Actor, memory_id: str, operation: AccessKind
) -> memories.Stored:
    with context.store.database.read() as connection:
        return context.visible(connection, actor, memory_id, operation, sources=False)


def require_reason(reason: str) -> None:
    if not isinstance(reason, str) or not reason.strip():
        raise InvalidInput(
            'Say why: `reason` is empty. It is kept in the history. Write reason="…".',
            argument="reason",
        )


def require_active(memory: Memory) -> None:
    if memory.state != "active":
        raise StateConflict(
            memory.id,
            state=memory.state,
            reason="only an active memory can be modified",
            hint="Recover it first.",
        )


def require_version(memory: Memory, expected: int) -> None:
    if memory.version != expected:
        raise VersionConflict(memory.id, expected=expected, actual=memory.version)


def recover_memory(
    tx: Connection, context: MemoryContext, current: memories.Stored, now: int
) -> Memory:
    """Return a forgotten memory as it was before. Raises StateConflict where it cannot come
    back.
    """
    memory = current.memory
    if memory.state != "deleted":
        raise StateConflict(
            memory.id, state=memory.state, reason="only a forgotten memory can be recovered"
        )
    before = memory_versions.before_deletion(tx, current.doc, memory.version)
    if current.content_key.startswith("erased:") or before is None:
        raise StateConflict(memory.id, state="erased", reason="its text was destroyed")
    until = _until(context, current.forgotten_at)
    if until is not None and now > until:
        raise StateConflict(memory.id, state="deleted", reason="its recovery window has passed")
    if edges.withdrawn(tx, current.doc):
        raise StateConflict(
            memory.id,
            state="deleted",
            reason="the shared memory was withdrawn",
            hint="Ask who shared it to share it again.",
        )
    if before["state"] == "active" and memory.conversation is None:
        same = occurrences.find_statement(tx, current.scope_id, memory.kind, current.content_key)
        if same is not None:
            raise StateConflict(
                memory.id,
                state="deleted",
                reason=f"memory {same[1]} says the same by now",
                hint="Use that one, or forget it first.",
            )
    # With an end that has passed it would be forgotten again at once.
    back = {"state": before["state"], "corrected": before.get("corrected")} | (
        {"expires_at": None} if is_expired(memory.expires_at, now) else {}
    )
    return settle_by_origins(tx, current, memory.model_copy(update=back))


def _until(context: MemoryContext, forgotten_at: int | None) -> int | None:
    return None if forgotten_at is None else forgotten_at + context.forget_window_us
