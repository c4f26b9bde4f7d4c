"""MemoryView: the memories of one scope as one actor sees and changes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from tallystick import memory
from tallystick.access import full_id
from tallystick.errors import InvalidInput
from tallystick.loading import late_names
from tallystick.memory.context import labels_asked
from tallystick.memory.documents import Document, NewMemories
from tallystick.memory.fields import labels_of
from tallystick.memory.recalled import Recalled, places_of
from tallystick.ranking import RecallWeights
from tallystick.recorder import current_run
from tallystick.records import (
    MOST_RESULTS,
    Actor,
    Change,
    HistoryEntry,
    Hit,
    IdOf,
    Inspection,
    Limit,
    Limited,
    Memory,
    MemoryId,
    MemoryIds,
    Moment,
    NewMemory,
    Occasion,
    Remembered,
    Scope,
    SourceId,
    SourceInspection,
    SourceRef,
    States,
    StepKind,
    Texts,
    checked_arguments,
    microseconds,
)
from tallystick.records.arguments import (
    PAGE_BEFORE,
    AssigneeFilter,
    ConversationFilter,
    Fields,
    IdempotencyKey,
    IfVersion,
    KindFilter,
    LanguageFilter,
    OtherScopes,
    ProjectFilter,
    Reason,
    Since,
    SourceFilter,
    StateFilter,
    StatusFilter,
    TagFilter,
    Until,
)
from tallystick.records.kinds import Attributes
from tallystick.records.wire import PROCESS_ONLY
from tallystick.storage.rows.short_ids import IdKind
from tallystick.tally.observed_calls import (
    ObservedCall,
    actor_in_history,
    observe,
    run_under_way,
    thread_of,
)
from tallystick.tally.services import Services
from tallystick.tally.spellings import respell_argument

if TYPE_CHECKING:
    from tallystick.access import Approvals
    from tallystick.memory import WorkingMemory
    from tallystick.recorder import Recordings
else:
    __getattr__ = late_names(
        "tallystick",
        {
            "access": "Approvals",
            "memory": "WorkingMemory",
        },
    )

RememberMode = Annotated[
    Literal["auto", "sync", "async", "raw"],
    Field(description="Where the tally learns: leave a job, wait for it, or learn nothing."),
]
TimeoutMs = Annotated[
    int,
    Field(description="How long `sync` waits for what is learned, milliseconds.", ge=1, le=60_000),
]
TokenBudget = Annotated[int, Field(description="Tokens at most.", ge=1)]
TokenModel = Annotated[
    str | None, Field(description="The model whose tokens are counted; else an estimate.")
]
MemoryOrSourceId = Annotated[str, IdOf("memory", "source"), Field(description="Id of a memory.")]

_HITS = 10
_PACKED_HITS = 200
"""Hits at most: by default, and where a budget of tokens decides."""
_USES = 10
"""Steps that inspecting a memory names."""


_MOMENTS = frozenset({"occurred_at", "valid_from", "valid_until", "freshness_ts", "expires_at"})
_AHEAD = frozenset({"valid_until", "expires_at"})
"""Fields that `modify` takes as moments; those of them that may be a timedelta from now."""


@checked_arguments
@dataclass(frozen=True)
class MemoryView:
    """An actor working with the memories of one scope of a tally. Thread-safe."""

    _services: Services = field(repr=False)
    actor: Actor
    scope: Scope

    _respell_argument = staticmethod(respell_argument)

    @property
    def _traced_actor(self) -> Actor:
        """The actor as the history names it, with the recorded run under way and its thread."""
        return actor_in_history(self._services.recorder, self.actor)

    @property
    def _recordings(self) -> Recordings:
        from tallystick.recorder import Recordings

        return Recordings(self._services.recorder, self.actor, counter=self._services.counter)

    @property
    def _approvals(self) -> Approvals:
        from tallystick.access import Approvals

        services = self._services
        redactor = services.memory.redactor
        return Approvals(services.store, services.gate, redactor, self.actor, self.scope)

    def _observe_call(self, kind: StepKind, name: str) -> AbstractContextManager[ObservedCall]:
        """Observe one call of a verb for the recorder, and journal a refusal in it."""
        return observe(self._services, self.actor, self.scope, kind, name)

    def _working_of_run(self, scopes: Sequence[Scope]) -> WorkingMemory | None:
        """Return the working memory of the open run and of the thread, where it is in one of
        `scopes` and the run has no other readers.
        """
        run, working = run_under_way(self._services.recorder), self.working
        if self.scope not in scopes or not (working.run_id or working.thread):
            return None
        if run is not None and self.scope != run.scope:
            from tallystick.access import widens

            with self._services.store.database.read() as connection:
                if widens(connection, self._services.gate, self.actor, self.scope, run.scope):
                    return None
        return working

    @property
    def working(self) -> WorkingMemory:
        """What the run under way and its thread keep in mind: set, get, list and drop values."""
        from tallystick.memory import WorkingMemory

        run, actor = run_under_way(self._services.recorder), self.actor
        thread = None if run is None else thread_of(run)
        if thread is None and actor.credential is None:  # of a token it is no conversation
            thread = actor.session_id
        run_id = None if run is None else run.id
        return WorkingMemory(self._services.memory, actor, self.scope, run_id, thread)

    def _wake_worker(self) -> None:
        """Wake the background after a write."""
        self._services.wake()

    def _full_id(self, kinds: tuple[IdKind, ...], text: str) -> str:
        """Return the id that `text` is a part of, among what this actor may see."""
        return full_id(self._services.store, self._services.gate, self.actor, kinds, text)

    def _moment(self, moment: Occasion | None, name: str, *, ahead: bool = False) -> int | None:
        """Return a moment in microseconds; with `ahead` a timedelta counts from now.

        Raises InvalidInput that names the argument.
        """
        now = self._services.store.clock.now() if ahead and moment is not None else None
        return microseconds(moment, self._services.zone, name=name, now=now)

    def _ago(self, moment: Occasion | None, name: str) -> int | None:
        """Same as `_moment`, where a timedelta counts back from now."""
        now = None if moment is None else self._services.store.clock.now()
        return microseconds(moment, self._services.zone, name=name, now=now, back=True)

    def _admit(self, access: Limited, *, count: int = 1) -> None:
        """Count accesses of this actor. Raises RateLimited beyond the tally's limit."""
        self._services.gate.admit(self.actor, access, self.scope, count=count)

    def _scopes(self, scopes: Sequence[str | Scope] | None) -> list[Scope]:
        return [self.scope] if scopes is None else [self.actor.home(scope) for scope in scopes]

    def remember(
        self,
        content: Annotated[str, Field(description="What to remember, word for word.")],
        *,
        kind: Annotated[
            str, Field(description="Such as note, fact, preference, decision, constraint.")
        ] = "note",
        subject: Annotated[str | None, Field(description="What it is about.")] = None,
        speaker: Annotated[str | None, Field(description="Who said it.")] = None,
        category: Annotated[str | None, Field(description="A category of your own.")] = None,
        occurred_at: Annotated[
            Moment | None,
            Field(description="When it was said or happened: ISO 8601, or microseconds UTC."),
        ] = None,
        conversation: Annotated[
            str | None, Field(description="The conversation that it is a turn of.")
        ] = None,
        position: Annotated[int | None, Field(description="Its place in the conversation.")] = None,
        source: Annotated[SourceRef | None, Field(description="Where it came from.")] = None,
        tags: Annotated[Texts, Field(description="Tags.")] = (),
        attributes: Annotated[Attributes | None, Field(description="Further fields.")] = None,
        importance: Annotated[int, Field(description="0 to 100.")] = 50,
        confidence: Annotated[int, Field(description="0 to 100.")] = 100,
        pinned: Annotated[
            bool, Field(description="Keep it in every pack; never forget it.")
        ] = False,
        valid_from: Annotated[
            Moment | None, Field(description="Since when it holds: ISO 8601, or microseconds UTC.")
        ] = None,
        valid_until: Annotated[
            Occasion | None,
            Field(description="Until when it holds: ISO 8601, or microseconds UTC."),
        ] = None,
        expires_at: Annotated[
            Occasion | None,
            Field(description="When it leaves every recall: ISO 8601, or microseconds UTC."),
        ] = None,
        derived_from: Annotated[
            MemoryIds, Field(description="Ids of memories that it was concluded from.")
        ] = (),
        related_to: Annotated[
            MemoryIds, Field(description="Ids of memories that it points to.")
        ] = (),
        depends_on: Annotated[
            MemoryIds, Field(description="Ids of memories that come before it.")
        ] = (),
        contradicts: Annotated[
            MemoryIds, Field(description="Ids of memories that it contradicts; both stay.")
        ] = (),
        replaces: Annotated[
            MemoryId | None,
            Field(description="Id of a memory in whose place it holds from now on."),
        ] = None,
        span: Annotated[
            str | None,
            Field(description="With replaces: the user's words that say so, letter by letter."),
        ] = None,
        entities: Annotated[Texts, Field(description="Names in it, for the graph.")] = (),
        mode: RememberMode = "auto",
        timeout_ms: TimeoutMs = 2_500,
        idempotency_key: IdempotencyKey = None,
    ) -> Remembered:
        """Store `content` as it is and make it recallable; it is both when this returns.

        Where the tally learns (setting `learning`), `auto` and `async` leave a job that has a model
        propose facts from it, `sync` waits up to `timeout_ms` for that job, and `raw` leaves none;
        `processing` says how far it came.

        A loose statement that repeats an active memory answers `duplicate`, and its source is kept.
        In a conversation each call is a turn of its own. None of `derived_from` may be hidden,
        redacted or forgotten. What it `replaces` is checked as what a model learns is: where the
        user said `span` and nothing speaks against it, it is applied if `learning` is `apply`; else
        both stand, the change waits among the `reviews`, and recall shows it beside the other.
        `entities` are kept as the attribute of that name. Raises Denied,
        NotFound, InvalidRecord, InvalidInput, PositionTaken or IdempotencyMismatch; then nothing
        was stored.
        """
        # Each argument but `mode` and `timeout_ms` is the field of the same name.
        arguments = {**locals(), "attributes": attributes or {}}
        given = {name: arguments[name] for name in NewMemory.model_fields if name in arguments}
        new = NewMemory.load(given)
        return self.remember_many([new], mode=mode, timeout_ms=timeout_ms)[0]

    def remember_many(
        self,
        items: Annotated[NewMemories, Field(description="Memories with the fields of `remember`.")],
        *,
        mode: RememberMode = "auto",
        timeout_ms: TimeoutMs = 2_500,
        idempotency_key: IdempotencyKey = None,
    ) -> list[Remembered]:
        """Same as `remember` for many items in one transaction, all or none; results in order.

        An item is a NewMemory, its fields as a mapping, a text, or a document or node of LangChain
        or LlamaIndex, which keeps its ids, metadata and address. `idempotency_key` is that of the
        whole call; an item may have one of its own beside it. `timeout_ms` is for all together.
        """
        with self._observe_call("memory_write", "remember") as call:
            call.mode = mode
            new = [self._new_memory(item, call) for item in items]
            self._admit("write", count=len(new))
            from tallystick.memory.remember import remember

            results = remember(
                self._services.memory,
                self._traced_actor,
                self.scope,
                new,
                correlation_id=call.correlation_id,
                idempotency_key=idempotency_key,
                learn=mode != "raw",
            )
            if len(results) == 1:
                [only] = results
                call.outcome = only.status
                call.facts = {"memory_id": only.id, "job_id": only.job_id}
            if call.step is not None and results:
                stored = [{"id": result.id, "status": result.status} for result in results]
                call.record(
                    "memory_write", [item.dump() for item in new], summary={"memories": stored}
                )
        if mode == "sync":
            services = self._services
            for extension in services.extensions:
                results = extension.after_remember(
                    services.memory, services.background, results, timeout_ms
                )
            return results
        self._wake_worker()
        return results

    def recall(
        self,
        query: Annotated[
            str,
            Field(
                description="What to look for, in plain words; empty, the newest with the filters."
            ),
        ],
        *,
        limit: Annotated[
            int | None, Field(description="Hits at most; 10 by default.", ge=1, le=MOST_RESULTS)
        ] = None,
        kinds: KindFilter = (),
        conversation: ConversationFilter = None,
        scopes: OtherScopes = None,
        tags: TagFilter = (),
        source: SourceFilter = None,
        since: Since = None,
        until: Until = None,
        asked_at: Annotated[
            Moment | None, Field(description='The moment from which "last week" is counted.')
        ] = None,
        budget_tokens: Annotated[
            int | None, Field(description="Tokens at most: the best hits that fit together.")
        ] = None,
        weights: Annotated[RecallWeights | None, PROCESS_ONLY] = None,
        states: Annotated[States, Field(description="Only memories in these states.")] = (),
        as_of: Annotated[Moment | None, Field(description="What was valid at this moment.")] = None,
        namespace: Annotated[
            Texts | None,
            Field(description="Items of stores beneath this namespace as well; [] is all of them."),
        ] = None,
        min_score: Annotated[
            float, Field(description="The least likelihood that a hit answers, 0 to 1.", ge=0, le=1)
        ] = 0.0,
        only_confident: Annotated[
            bool, Field(description="Nothing at all, unless the best hit is likely to answer.")
        ] = False,
        status: StatusFilter = None,
        project: ProjectFilter = None,
        assignee: AssigneeFilter = None,
        language: LanguageFilter = None,
    ) -> Recalled:
        """Return the memories that answer `query`, best first, each with the reasons for its place.

        Reads the bound scope, or those of `scopes`, each of which must be open to the actor.
        A timedelta as `since` or `until` is so long ago. What is valid now comes first; what it
        replaced follows as `hit.history`. `status`, `project`, `assignee` and `language` are
        attributes of a memory; of a project are those of its scope too. Items of stores are left
        out, but for those beneath `namespace` (`()` is all of them). An empty query with filters
        gives the newest that pass them, with a score of 0; without any it gives nothing.

        Of up to 200 hits `budget_tokens` keeps the best that fit together. `found.confident` says
        whether the best is likely to answer, and `only_confident` gives nothing where it is not:
        `found.withheld` counts what was found. Raises Denied and InvalidInput.
        """
        from tallystick.memory.recall import recall

        self._admit("read")
        readable = self._scopes(scopes)
        if budget_tokens is not None and budget_tokens < 1:
            raise InvalidInput("`budget_tokens` must be at least 1.")
        run = current_run()
        default_limit = _HITS if budget_tokens is None else _PACKED_HITS
        with self._observe_call("memory_read", "recall") as call:
            request = memory.RecallRequest(
                limit=default_limit if limit is None else limit,
                kinds=tuple(kinds),
                tags=tuple(tags),
                conversation=conversation,
                source=source,
                since=self._ago(since, "since"),
                until=self._ago(until, "until"),
                asked_at=self._moment(asked_at, "asked_at"),
                states=tuple(states),
                as_of=self._moment(as_of, "as_of"),
                namespace=None if namespace is None else labels_of(namespace),
                run_id=None if run is None else run.id,
                project=self.scope.key if self.scope.kind == "project" else None,
                weights=weights,
                min_score=min_score,
                only_confident=only_confident,
                labels=labels_asked(status, project, assignee, language),
                budget=None
                if budget_tokens is None
                else lambda hits: self._fitting(hits, budget_tokens),
            )
            context = self._services.memory
            recalled = (
                recall(context, self.actor, readable, query, request)
                if query.strip() or not request.filters
                else memory.newest(context, self.actor, readable, request)
            )
            if not recalled:
                memory.require_known_labels(context, self.actor, readable, request.labels)
            call.outcome = "confident" if recalled.confident else "unsure"
            if call.step is not None:
                hits = [
                    {
                        "id": hit.memory.id,
                        "version": hit.memory.version,
                        "score": hit.score,
                        "signals": hit.signals,
                        **place,
                    }
                    for hit, place in zip(recalled, places_of(recalled), strict=True)
                ]
                summary: dict[str, Any] = {
                    "path": recalled.path,
                    "candidates": recalled.candidates,
                    "memories": [[hit.memory.id, hit.memory.version] for hit in recalled],
                }
                if recalled.withheld:
                    # Found, and shown to nobody: a receipt does not say that the model saw it.
                    summary["withheld"] = recalled.withheld
                call.record("memory_read", {"query": query, "hits": hits}, summary=summary)
        if query.strip():
            for extension in context.extensions:
                extension.on_recall(context, self.actor, readable, query, request)
        return recalled

    def _fitting(self, hits: Sequence[Hit], budget_tokens: int) -> list[Hit]:
        """Return as many of the best as fit, in order; one that does not fit is passed over."""
        counter = self._services.counter(None)
        remaining, fitting = budget_tokens, []
        for hit in hits:
            tokens = counter.count(f"{hit.memory.speaker or ''}: {hit.memory.content}")
            if tokens <= remaining:
                fitting.append(hit)
                remaining -= tokens
        return fitting

    def get(self, memory_id: MemoryId) -> Memory:
        """Return one memory. Raises NotFound for forgotten, hidden and absent ones alike."""
        self._admit("read")
        return memory.get(self._services.memory, self.actor, memory_id)

    def memories(
        self,
        *,
        kinds: KindFilter = (),
        states: StateFilter = ("active",),
        conversation: ConversationFilter = None,
        limit: Annotated[Limit, Field(description="Memories at most.")] = 50,
        before: Annotated[MemoryId | None, PAGE_BEFORE] = None,
        namespace: Annotated[
            Texts | None,
            Field(
                description="Of the items of stores those beneath this namespace; null for none."
            ),
        ] = (),
        tags: TagFilter = (),
        source: SourceFilter = None,
        since: Since = None,
        until: Until = None,
        status: StatusFilter = None,
        project: ProjectFilter = None,
        assignee: AssigneeFilter = None,
        language: LanguageFilter = None,
    ) -> list[Memory]:
        """List memories of the bound scope, newest first.

        Items of stores are among them: those beneath `namespace`, or with None no item. Give the
        last id of a page as `before` for the next one. `tags`, `source`, `since`, `until`,
        `status`, `project`, `assignee` and `language` filter as in `recall`; by what a memory says,
        which is all of these but the times, nothing that is hidden or forgotten is listed.
        """
        self._admit("read")
        context, labels = self._services.memory, labels_asked(status, project, assignee, language)
        request = memory.RecallRequest(
            kinds=tuple(kinds),
            states=tuple(states),
            conversation=conversation,
            limit=limit,
            namespace=None if namespace is None else labels_of(namespace),
            labels=labels,
            tags=tuple(tags),
            source=source,
            since=self._ago(since, "since"),
            until=self._ago(until, "until"),
        )
        listed = memory.list_memories(context, self.actor, self.scope, request, before=before)
        if not listed:
            memory.require_known_labels(context, self.actor, [self.scope], labels)
        return listed

    def modify(
        self,
        /,
        memory_id: MemoryId,
        *,
        reason: Reason,
        if_version: IfVersion = None,
        idempotency_key: IdempotencyKey = None,
        manual_override: Annotated[
            Occasion | bool,
            Field(description="Lock it against agents: until this moment, or for a while."),
        ] = False,
        replace_attributes: Annotated[
            bool, Field(description="The given attributes in place of all; else merged by key.")
        ] = False,
        **changes: Annotated[
            Fields,
            Field(description="Fields and their new values, such as content, tags, kind, pinned."),
        ],
    ) -> Change:
        """Change fields of a memory, such as `content=…` or `tags=…`; its history keeps the old.

        `attributes` are merged by key, and None removes one; with `replace_attributes` they take
        the place of all. `related_to` and `depends_on` add and remove links:
        `depends_on={"add": [id], "remove": [id]}`; nothing may depend on itself.

        `manual_override` locks a person's edit: until that moment (True: for
        `manual_override_days`) no agent changes, corrects or forgets the memory. `if_version`
        refuses the change unless the memory is at the version that you read. Raises InvalidInput,
        InvalidRecord, NotFound, VersionConflict, StateConflict or IdempotencyMismatch; then nothing
        changed.
        """
        lock_until = None
        if manual_override is True:
            lock_until = self._services.store.clock.now() + self._services.memory.override_us
        elif manual_override is not False:
            lock_until = self._moment(manual_override, "manual_override", ahead=True)
        changes = self._with_moments(changes)
        with self._observe_call("memory_write", "modify") as call:
            self._admit("modify")
            change = memory.modify(
                self._services.memory,
                self._traced_actor,
                memory_id,
                changes,
                reason=reason,
                if_version=if_version,
                idempotency_key=idempotency_key,
                correlation_id=call.correlation_id,
                lock_until=lock_until,
                replace_attributes=replace_attributes,
            )
            self._record_change(call, change, {"reason": reason, "changes": changes})
        return change

    def recover(
        self,
        memory_id: MemoryId,
        *,
        reason: Reason,
        if_version: IfVersion = None,
        idempotency_key: IdempotencyKey = None,
    ) -> Change:
        """Bring a forgotten memory back as it was, within its window. Raises as `modify`."""
        with self._observe_call("memory_write", "recover") as call:
            self._admit("modify")
            change = memory.recover(
                self._services.memory,
                self._traced_actor,
                memory_id,
                reason=reason,
                if_version=if_version,
                idempotency_key=idempotency_key,
                correlation_id=call.correlation_id,
            )
            self._record_change(call, change, {"reason": reason})
        return change

    def inspect(self, memory_id: MemoryOrSourceId) -> Inspection:
        """Explain a memory: what it is, its visibility, what depends on it, what may be done next.

        It includes the newest journal entries about it and the newest recorded steps that used it,
        as far as the actor may see them. An actor who may inspect without reading learns no text.
        The id of a source gives a `SourceInspection`: its lifecycle and the memories drawn from it.
        Raises NotFound.
        """
        self._admit("inspect")
        from tallystick.memory.inspect import inspect

        inspection = inspect(self._services.memory, self.actor, memory_id)
        if isinstance(inspection, SourceInspection):
            return inspection
        uses = self._recordings.uses(inspection.id, most=_USES)
        return inspection.model_copy(update={"uses": tuple(uses)})

    def source(self, source_id: SourceId) -> SourceInspection:
        """Return a source: its text as it arrived, its lifecycle and the memories drawn from it.

        The text is None where every memory drawn from it is hidden, forgotten or redacted. Raises
        NotFound alike for a source of another scope and for one that does not exist.
        """
        self._admit("read")
        return memory.source(self._services.memory, self.actor, source_id)

    def history(self, memory_id: MemoryId) -> list[HistoryEntry]:
        """Return everything that happened to a memory, oldest first. Raises NotFound."""
        self._admit("read")
        from tallystick.memory.history import history

        return history(self._services.memory, self.actor, memory_id)

    def _new_memory(
        self, item: NewMemory | Document | Mapping[str, Any] | str, call: ObservedCall
    ) -> NewMemory:
        """Load an item, marked with the step that remembers it unless it names a run itself."""
        if isinstance(item, str):
            item = NewMemory.load({"content": item})
        elif isinstance(item, Mapping):
            item = NewMemory.load(item)
        elif not isinstance(item, NewMemory):
            from tallystick.memory.documents import is_document, memory_of_document

            item = memory_of_document(item) if is_document(item) else NewMemory.load(item)
        new, moments = item, (item.occurred_at, item.valid_from, item.valid_until, item.expires_at)
        if any(moment is not None for moment in moments) or "due_at" in item.attributes:
            new = item.at(self._services.store.clock.now(), self._services.zone)
        step = call.step
        if step is None or new.source_run_id is not None:
            return new
        steps = (*new.source_step_ids, step.id)
        return new.model_copy(update={"source_run_id": step.run.id, "source_step_ids": steps})

    def _with_moments(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Return the changes of `modify` with moments in microseconds, and with whole ids."""
        moments = {
            name: self._moment(value, name, ahead=name in _AHEAD) if name in _MOMENTS else value
            for name, value in changes.items()
        }
        links = memory.read_link_changes(changes)
        return moments | {
            name: {
                way: [self._full_id(("memory",), each) for each in ids]
                for way, ids in change._asdict().items()
            }
            for name, change in links.items()
        }

    def _record_change(
        self, call: ObservedCall, change: Change, payload: Mapping[str, Any]
    ) -> None:
        self._wake_worker()
        call.facts = {"memory_id": change.id, "action": change.event}
        summary = change.model_dump(include={"id", "event", "status", "version"})
        call.record("memory_write", payload, summary=summary)


@dataclass(frozen=True)
class Part:
    """Verbs of a bound tally about one matter. Thread-safe."""

    _view: MemoryView = field(repr=False)

    def _full_id(self, kinds: tuple[IdKind, ...], text: str) -> str:
        return self._view._full_id(kinds, text)
