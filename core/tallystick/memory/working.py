"""Working memory: the values that a run, or a thread from turn to turn, keeps beside its memories.
Overwritten in place, gone when they expire.

Six names have a meaning: `task`, `plan`, `questions`, `facts`, `outputs` and `artifacts`, a map of
names to references. These and all others are candidates of compiles, packs and wakes of the run,
and of the runs of the thread. Where both hold a name, the run's value counts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Literal, cast

from pydantic import Field, SkipValidation

from tallystick.errors import InvalidInput
from tallystick.memory.context import MemoryContext
from tallystick.memory.working_set import shown_in_session
from tallystick.records import (
    LAST_MOMENT,
    Actor,
    ContextItem,
    Duration,
    Json,
    Lifetime,
    PackItem,
    Scope,
    SourceRef,
    WorkingSet,
    WorkingValue,
    checked_arguments,
    is_storable,
    require_length,
    seconds,
)
from tallystick.records.arguments import IdempotencyKey
from tallystick.storage import Connection
from tallystick.storage.engine.writes import Writes
from tallystick.storage.rows import journal, scopes, working
from tallystick.storage.rows.idempotency import IdempotentCall
from tallystick.storage.rows.working import Holder

SLOTS = ("task", "plan", "questions", "facts", "outputs", "artifacts")
"""The names with a meaning, in the order in which an agent reads them."""
_IMPORTANCE = {"task": 80, "plan": 70}
_DAY = 24 * 3600
_LONGEST, _MOST = 1_200, 16
"""Characters of one value in a context, and the values in it: the named ones, then others by
name.
"""
_MOST_HELD, _LARGEST, _LARGEST_TOGETHER = 64, 16 * 1024, 256 * 1024
"""The values of one holder, the bytes of one, and of all of them."""

Name = Annotated[str, Field(description="Its name: task, plan, questions, facts, or another.")]
LifetimeOf = Annotated[
    Lifetime | None,
    Field(description="run, by default, or thread: from turn to turn. Read, it is either."),
]
RunOf = Annotated[str | None, Field(description="Id of the run; by default the one under way.")]
ThreadOf = Annotated[
    str | None, Field(description="The thread; by default that of the run under way.")
]


@checked_arguments
class WorkingMemory:
    """The values that a run and its thread keep under names. Thread-safe. No recall finds them, and
    they have no versions.
    """

    def __init__(
        self,
        context: MemoryContext,
        actor: Actor,
        scope: Scope,
        run_id: str | None,
        thread: str | None = None,
    ) -> None:
        self._context, self._actor, self._scope = context, actor, scope
        self._run_id, self._thread = run_id, thread

    @property
    def run_id(self) -> str | None:
        """The run whose values these are."""
        return self._run_id

    @property
    def thread(self) -> str | None:
        """The thread whose values these are too."""
        return self._thread

    def of(self, run_id: str | None = None, *, thread: str | None = None) -> WorkingMemory:
        """Return the working memory of another run or thread of the scope."""
        return WorkingMemory(self._context, self._actor, self._scope, run_id, thread)

    def set(
        self,
        name: Name,
        value: Annotated[Json, SkipValidation, Field(description="Its value, as JSON.")],
        *,
        lifetime: LifetimeOf = None,
        run_id: RunOf = None,
        thread: ThreadOf = None,
        expires_in: Annotated[
            Duration, Field(description="Seconds, or an ISO 8601 duration, that it lives.")
        ] = _DAY,
        idempotency_key: IdempotencyKey = None,
    ) -> WorkingValue:
        """Keep `value` under `name`, in place of any other, for `expires_in`: a timedelta, or
        seconds; by default a day.

        With `lifetime="thread"`, or where only a `thread` is named, it lives from turn to turn of
        the thread; else it is the run's. The value of a slot (`SLOTS`) is a text, a list or an
        object; `artifacts` is an object. One holder keeps 64 values, of 16 kB each and of 256 kB
        together. Under a key that was used before nothing changes, whatever the value is by now.
        Raises Denied, InvalidInput, and IdempotencyMismatch where the key was used for something
        else.
        """
        now = self._context.store.clock.now()
        life = seconds(expires_in, name="expires_in")
        _require_storable("name", name)
        if not name.strip() or not 1 <= life <= (LAST_MOMENT - now) // 1_000_000:
            raise InvalidInput(
                "A value is kept under a name, for one second at least, and not beyond the year "
                "9999."
            )
        _require_fitting(name, value)
        try:
            body = json.dumps(value, ensure_ascii=False, allow_nan=False)
            size = len(body.encode())
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInput(
                "A value of working memory is JSON: text, numbers, lists and objects."
            ) from error
        if size > _LARGEST:
            raise InvalidInput(
                f"`{name}` has {size:,} bytes; a value of working memory has at most {_LARGEST:,}. "
                "Remember what is longer, and keep its id."
            )
        if lifetime is None:
            named = (run_id, thread) if run_id or thread else (self._run_id, self._thread)
            lifetime = "thread" if named[0] is None and named[1] is not None else "run"
        holder = self._holders(lifetime, run_id, thread)[0]
        self._admit("write")
        call = IdempotentCall(
            self._scope, "working.set", idempotency_key, [*holder, name, body, life]
        )

        def unit(tx: Connection) -> int:
            self._context.gate.confirm(tx, self._actor, "write", self._scope)
            answered = call.read_answer(tx)
            if answered is not None:
                return int(answered["at"])
            row, now = scopes.ensure(tx, self._scope), self._context.store.clock.now()
            others = working.values_of(tx, [row.id], [holder], at=now)
            _require_room(holder, size, [each for each in others if each.name != name])
            working.put(
                tx,
                row.id,
                holder,
                name,
                body,
                created_by=self._actor.user,
                at=now,
                expires_at=now + life * 1_000_000,
            )
            self._note(tx, "working.set", now, [holder], {"bytes": size})
            call.keep(tx, {"at": now}, at=now)
            return now

        at = self._write(unit, "working.set")
        return WorkingValue(
            name=name,
            value=value,
            lifetime=lifetime,
            updated_at=at,
            expires_at=at + life * 1_000_000,
        )

    def get(
        self,
        name: Name,
        *,
        lifetime: LifetimeOf = None,
        run_id: RunOf = None,
        thread: ThreadOf = None,
    ) -> WorkingValue | None:
        """Return the value under `name`, or None where there is none or it has expired. Raises
        Denied, InvalidInput.
        """
        values = self.list(lifetime=lifetime, run_id=run_id, thread=thread)
        return next((value for value in values if value.name == name), None)

    def all(self) -> Mapping[str, Json]:
        """Return every value that has not expired, by name. Raises Denied, InvalidInput."""
        return {value.name: value.value for value in self.list()}

    def list(
        self, *, lifetime: LifetimeOf = None, run_id: RunOf = None, thread: ThreadOf = None
    ) -> list[WorkingValue]:
        """Return the values that have not expired, by name: those of the run and of its thread.
        Raises Denied, InvalidInput.
        """
        self._context.gate.require(self._actor, "read", self._scope)
        return [
            WorkingValue(
                name=value.name,
                value=json.loads(value.body),
                lifetime=cast(Lifetime, value.lifetime),
                updated_at=value.updated_at,
                expires_at=value.expires_at,
            )
            for value in self._values(self._holders(lifetime, run_id, thread))
        ]

    def items(self) -> tuple[ContextItem, ...]:
        """Return the values as candidates of a compile. Raises Denied.

        Their ids are `working:` and the name; a long value is cut.
        """
        self._context.gate.require(self._actor, "read", self._scope)
        return tuple(
            ContextItem(
                id=f"working:{value.name}",
                kind="working",
                content=_text(value),
                source_ref=SourceRef(source_type="app_state", title=value.name),
                freshness_ts=value.updated_at,
                trust_score=100,
                importance_score=_IMPORTANCE.get(value.name, 50),
                scope=self._scope,
            )
            for value in self._list_shown()
        )

    def pack_items(self) -> tuple[PackItem, ...]:
        """Return the values as items of a pack. Raises Denied."""
        decision = self._context.gate.require(self._actor, "read", self._scope)
        return tuple(
            PackItem(
                id=f"working:{value.name}",
                source_ids=(),
                visible_to=self._scope,
                access_reason=decision.reason,
                chosen_as="working",
                fresh="current",
                known_at=value.updated_at,
                kind="working",
                text=_text(value),
            )
            for value in self._list_shown()
        )

    def shown(self) -> Mapping[str, WorkingSet]:
        """Return what the thread is shown of the memories of the scope, by whose session it is; of
        each the memories that the actor may read. Raises Denied.
        """
        if self._thread is None:
            return {}
        return shown_in_session(self._context, self._actor, self._scope, self._thread)

    def _list_shown(self) -> Sequence[working.StoredValue]:
        values = {value.name: value for value in self._values()}
        names = [name for name in SLOTS if name in values]
        names += [name for name in values if name not in SLOTS]
        return [values[name] for name in names[:_MOST]]

    def _values(self, holders: Sequence[Holder] | None = None) -> Sequence[working.StoredValue]:
        """Return what holders keep, by name; of one that several hold the run's."""
        holders = self._holders() if holders is None else holders
        now = self._context.store.clock.now()
        with self._context.store.database.read() as connection:
            ids = [row.id for row in scopes.find(connection, [self._scope])]
            values = working.values_of(connection, ids, holders, at=now) if ids else []
        ordered = sorted(values, key=lambda value: value.lifetime == "run")
        by_name = {value.name: value for value in ordered}
        return [by_name[name] for name in sorted(by_name)]

    def _holders(
        self,
        lifetime: Lifetime | None = None,
        run_id: str | None = None,
        thread: str | None = None,
    ) -> Sequence[Holder]:
        """Return the run and the thread that are named, else those under way. Raises InvalidInput
        where there is none.
        """
        if run_id is None and thread is None:
            run_id, thread = self._run_id, self._thread
        named: dict[Lifetime, str | None] = {"run": run_id, "thread": thread}
        for argument, text in (("run_id", run_id), ("thread", thread)):
            _require_storable(argument, text)
        holders = [
            Holder(kind, holder)
            for kind, holder in named.items()
            if holder is not None and lifetime in (None, kind)
        ]
        if not holders:
            raise InvalidInput(
                "No run is open here: name a run_id or a thread, as in "
                'bound.working.of(run_id) or thread="chat-7".'
                if lifetime != "thread"
                else "The run belongs to no thread: name one, or start the run with the metadata "
                '{"thread_id": …}.'
            )
        return holders

    def drop(
        self,
        name: Name,
        *,
        lifetime: LifetimeOf = None,
        run_id: RunOf = None,
        thread: ThreadOf = None,
        idempotency_key: IdempotencyKey = None,
    ) -> bool:
        """Remove a value, of the run and of its thread; return True if there was one. Raises
        Denied, InvalidInput, IdempotencyMismatch.
        """
        _require_storable("name", name)
        holders = self._holders(lifetime, run_id, thread)
        return self._remove(name, holders, "working.drop", idempotency_key) > 0

    def clear(self, *, lifetime: LifetimeOf = "run", idempotency_key: IdempotencyKey = None) -> int:
        """Remove every value of the run, or with a lifetime of None of its thread too; return their
        number. Raises Denied, InvalidInput, IdempotencyMismatch.
        """
        return self._remove(None, self._holders(lifetime), "working.clear", idempotency_key)

    def _remove(
        self, name: str | None, holders: Sequence[Holder], operation_name: str, key: str | None
    ) -> int:
        self._admit("write")
        arguments = [[*holder] for holder in holders]
        call = IdempotentCall(self._scope, operation_name, key, [arguments, name])

        def unit(tx: Connection) -> int:
            self._context.gate.confirm(tx, self._actor, "write", self._scope)
            answered = call.read_answer(tx)
            if answered is not None:
                return int(answered["values"])
            ids = [row.id for row in scopes.find(tx, [self._scope])]
            count = working.remove(tx, ids, holders, name)
            now = self._context.store.clock.now()
            if count:
                self._note(tx, "working.drop", now, holders, {"values": count})
            call.keep(tx, {"values": count}, at=now)
            return count

        return self._write(unit, "working.drop")

    def _admit(self, access: Literal["write"]) -> None:
        self._context.gate.require(self._actor, access, self._scope)
        self._context.gate.admit(self._actor, access, self._scope)

    def _write(self, unit: Callable[[Connection], int], name: str) -> int:
        with self._context.gate.journaling(self._actor):
            return self._context.store.database.write(
                unit, name=name, writes=Writes.of(self._scope)
            )

    def _note(
        self,
        tx: Connection,
        event: str,
        at: int,
        holders: Sequence[Holder],
        details: Mapping[str, int],
    ) -> None:
        journal.append(
            tx,
            journal.Event(
                stream=f"scope:{self._scope}",
                event=event,
                actor=self._actor,
                at=at,
                audit_id=self._context.store.ids.new(),
                details=details,
                texts=dict(holders),
            ),
        )


def _require_storable(argument: str, text: str | None) -> None:
    """Raise InvalidInput for a name or an id that no database keeps."""
    if text is not None and not is_storable(text):
        raise InvalidInput(f"`{argument}` has a NUL or half of a character.", argument=argument)
    require_length(argument, text)


def _require_room(holder: Holder, size: int, others: Sequence[working.StoredValue]) -> None:
    """Raise InvalidInput where a holder has no room for one more value of `size` bytes."""
    if len(others) >= _MOST_HELD:
        raise InvalidInput(
            f"The {holder.lifetime} keeps {_MOST_HELD} values of working memory, which is the most."
            " Drop one first."
        )
    together = size + sum(len(each.body.encode()) for each in others)
    if together > _LARGEST_TOGETHER:
        raise InvalidInput(
            f"The values of the {holder.lifetime} would have {together:,} bytes together; working "
            f"memory has room for {_LARGEST_TOGETHER:,}. Drop some first."
        )


def _require_fitting(name: str, value: Json) -> None:
    """Raise InvalidInput for a value that its slot cannot hold."""
    if name == "artifacts" and not isinstance(value, dict):
        raise InvalidInput(
            "`artifacts` is a map: an object of names and what they refer to, such as "
            '{"report": "file:report.md"}.'
        )
    if name in SLOTS and not isinstance(value, str | list | dict):
        raise InvalidInput(f"`{name}` is a text, a list or an object.")


def _text(value: working.StoredValue) -> str:
    """Return a value as an agent reads it, after its name: a list or an object line by line."""
    content = json.loads(value.body)
    if isinstance(content, list):
        lines = [f"- {_line(item)}" for item in content]
    elif isinstance(content, dict):
        lines = [f"- {name}: {_line(item)}" for name, item in content.items()]
    else:
        lines = []
    text = "\n".join([f"{value.name}:", *lines]) if lines else f"{value.name}: {_line(content)}"
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _line(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
