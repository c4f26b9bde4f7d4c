"""Tally and BoundTally: the only place that joins the rooms, and where a memory read meets the
recorder.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Literal, Self, TypeVar

from tallystick import compiler
from tallystick import memory as memory_verbs
from tallystick.access import Gate, Spaces
from tallystick.checkpoints import CheckpointsContext, Threads, upgrade
from tallystick.compiler import compile_context
from tallystick.embedding import GuardedEmbedder, StaticEmbedder, as_embedder
from tallystick.errors import (
    ApprovalRequired,
    Conflict,
    Denied,
    InvalidInput,
    NotFound,
    SettingsError,
    VersionConflict,
)
from tallystick.memory import MemoryContext
from tallystick.memory.recall import Recalled
from tallystick.memory.working import WorkingMemory
from tallystick.pipeline import Drained, Indexer, Reconciled
from tallystick.policy.engines import KingfisherFinder
from tallystick.policy.redaction import Finder, Redactor
from tallystick.ports import Clock, Ids, Reranker, SystemClock, TokenCounter, UuidIds
from tallystick.ranking import RecallWeights, WorkingSets
from tallystick.recorder import (
    Call,
    RecorderContext,
    Recordings,
    Render,
    Run,
    Step,
    current_run,
    current_step,
    neutral_request,
    recover_interrupted_runs,
)
from tallystick.records import (
    FIRST_MOMENT,
    LAST_MOMENT,
    AccessDecision,
    AccessPreview,
    Actor,
    ApprovalRequest,
    Change,
    Changed,
    CompilationRequest,
    CompileConfig,
    CompiledContext,
    ContextItem,
    ContextPack,
    Correction,
    CorrectionKind,
    Crossing,
    Erasure,
    Explored,
    Finding,
    Foil,
    Forgetting,
    Forgotten,
    HistoryEntry,
    Hit,
    Inspection,
    JsonObject,
    Limited,
    Memory,
    MemoryState,
    NewMemory,
    PolicyRule,
    Proof,
    Purge,
    Remembered,
    ReplayRecipe,
    ReplayResult,
    Retention,
    RunRecord,
    Scope,
    SourceRef,
    StepKind,
    TargetProfile,
    ToolSpec,
    Transfer,
    Verification,
)
from tallystick.settings import Settings
from tallystick.storage import ChromaIndex, Location, Store, scopes, settings_rows
from tallystick.storage.chroma_layout import layout_of
from tallystick.storage.corpus_cache import CorpusCache
from tallystick.storage.idempotency import Once
from tallystick.tokens import counter_for
from tallystick.upkeep import doctor, erase, portable, proof, retention

__all__ = ["Binder", "BoundTally", "Candidate", "Moment", "Recalled", "Tally"]

Moment = int | datetime
"""A point in time: microseconds since 1970 UTC, or an aware datetime."""

Candidate = ContextItem | Memory | Hit | Mapping[str, Any]
"""What `compile` takes: an item, a memory, a recalled hit, or a mapping with the fields of an item.
"""

C = TypeVar("C")
_Candidate = TypeVar("_Candidate", ContextItem, Memory)


_SHORT_TEXT = 20
"""Tokens of a short text: a budget holds at most so many, and relevance scores that many."""
_UNRECORDED: AbstractContextManager[None] = nullcontext()
"""Around an operation that no run observes."""
_DAY_US = 24 * 3600 * 1_000_000
_USES = 10
"""Steps that inspecting a memory names."""
_OWNER = "owner"
_TALLY_ID = "tally_id"


class Tally:
    """An opened store: one folder, or one PostgreSQL database. Thread-safe; close it, or use it as
    a `with` block.
    """

    def __init__(
        self,
        store: Store,
        settings: Settings,
        *,
        owner: Actor | None,
        embedder: Any,
        rules: Sequence[PolicyRule],
        background: bool,
        weights: RecallWeights | None = None,
        reranker: Reranker | None = None,
        secret_finders: Iterable[Finder] = (),
    ) -> None:
        """Use `Tally.open`."""
        self.store = store
        self._settings = settings
        self._owner = owner
        self.rules = tuple(rules)
        self.gate = Gate(store, limits=settings.rate_limits)
        self._guard = threading.Lock()
        self._counters: dict[str | None, TokenCounter] = {}
        self.embedder = GuardedEmbedder(
            as_embedder(embedder) if embedder is not None else StaticEmbedder()
        )
        self.index = _open_index(store, settings, self.embedder.fingerprint)
        self.memory = MemoryContext(
            store=store,
            gate=self.gate,
            embedder=self.embedder,
            index=self.index,
            local_embedder=self.embedder.local,
            vector_search=settings.vector_search,
            exact_scan_limit=settings.exact_scan_limit,
            weights=weights or RecallWeights(),
            reranker=reranker,
            rerank_deadline_ms=settings.rerank_deadline_ms,
            corpora=CorpusCache(most_bytes=settings.recall_cache_mb * 1024 * 1024),
            forget_window_us=settings.forget_window_days * _DAY_US,
            override_us=settings.manual_override_days * _DAY_US,
            redactor=Redactor(
                pii=settings.redact_pii,
                terms=settings.redact_terms,
                finders=_finders(settings, secret_finders),
            ),
        )
        self.working_sets = WorkingSets(self.embedder, weights=self.memory.weights)
        memory_verbs.analyze_anew(self.memory)
        self.recording = RecorderContext(
            store=store,
            gate=self.gate,
            redactor=self.memory.redactor,
            retention=settings.retention,
        )
        recover_interrupted_runs(self.recording)
        self.checkpoints = CheckpointsContext(store, self.gate)
        upgrade(store, self.checkpoints)
        self.indexer = Indexer(
            self.memory, eager=settings.vector_search == "chroma" or bool(settings.chroma)
        )
        if background:
            self.indexer.start()

    @classmethod
    def open(
        cls,
        where: str | os.PathLike[str] = ".tally",
        *,
        owner: Actor | None = None,
        embedder: Any = None,
        chroma: str | None = None,
        rules: Sequence[PolicyRule] = (),
        settings: Settings | None = None,
        create: bool = True,
        clock: Clock | None = None,
        ids: Ids | None = None,
        schema: str = "tallystick",
        background: bool = True,
        weights: RecallWeights | None = None,
        reranker: Reranker | None = None,
        secret_finders: Iterable[Finder] = (),
    ) -> Tally:
        """Open the tally at `where`, a folder or `postgresql://…`, and make it on first use.

        `owner` is recorded when an embedded tally is made and serves runtimes that name nobody.
        `embedder` may be an Embedder, a Chroma EmbeddingFunction, a LangChain Embeddings, a
        PydanticAI Embedder or a LlamaIndex BaseEmbedding; the default works offline. `chroma` is
        the address of a Chroma server. `weights` change how recall ranks; a `reranker` orders its
        best hits anew, if it answers in time. `secret_finders` are engines of your own that say
        where in a text something to redact stands. Raises InvalidInput, SettingsError,
        TallyNotFound (`create=False`), NewerTally, BusyTally or CorruptTally.
        """
        chosen = settings or Settings.read()
        if chroma is not None:
            chosen = chosen.model_copy(update={"chroma": chroma})
        place = Location.find(where, create=create)
        store = Store.open(
            place,
            clock=clock or SystemClock(),
            ids=ids or UuidIds(),
            busy_timeout_ms=chosen.busy_timeout_ms,
            full_durability=chosen.durability == "full",
            readers=chosen.readers,
            schema=schema,
        )
        try:
            known = _owner_of(store, owner)
            return cls(
                store,
                chosen,
                owner=known,
                embedder=embedder,
                rules=rules,
                background=background,
                weights=weights,
                reranker=reranker,
                secret_finders=secret_finders,
            )
        except BaseException:
            store.database.close()
            raise

    @property
    def place(self) -> str:
        """Where this tally lives; passwords are left out."""
        return str(self.store.place)

    @property
    def owner(self) -> Actor | None:
        """Who acts where a runtime names nobody; None on PostgreSQL."""
        return self._owner

    @property
    def settings(self) -> Settings:
        """The configuration that this tally was opened with."""
        return self._settings

    @property
    def recordings(self) -> Recordings:
        """The recorder as the owner sees it. Raises Denied where a tally has no owner: use
        `bind(actor).recordings`.
        """
        return self.bind(None).recordings

    def bind(
        self,
        actor: Actor | None = None,
        scope: str | Scope | None = None,
        *,
        request_id: str | None = None,
        session_id: str | None = None,
    ) -> BoundTally:
        """The view of this tally as `actor`, working in `scope` (else the actor's private one).

        The history of what is changed names the request and the session; inside a recorded run that
        names neither it names the run, and the thread that it belongs to. Without an actor the
        owner acts; a tally without one refuses with `missing_actor`. Raises Denied, InvalidScope.
        """
        who = actor or self._owner
        if who is None:
            decision = AccessDecision(
                allowed=False, reason="missing_actor", operation="read", surface="python"
            )
            raise Denied(
                decision, "This tally has no owner: name who acts, as in tally.bind(Actor(user=…))."
            )
        return BoundTally(
            self, who.traced(request_id=request_id, session_id=session_id), who.home(scope)
        )

    @property
    def windows(self) -> retention.Windows:
        """How long retention keeps what has a window in the settings."""
        settings = self._settings
        return retention.Windows(
            done_jobs=settings.done_jobs_days,
            dead_jobs=settings.dead_jobs_days,
            answers=settings.idempotency_days,
        )

    def scopes(self) -> list[Scope]:
        """Every scope that was written to, by name; the names alone are no secret of the folder's
        owner.
        """
        with self.store.database.read() as connection:
            return scopes.all_scopes(connection)

    def drain(self) -> Drained:
        """Do all follow-up work now: embedding that waits, and Chroma where this process owns
        it.
        """
        return self.indexer.run()

    def reconcile_index(self, *, repair: bool = True) -> Reconciled:
        """Hold Chroma against the database, and rebuild it where it does not match unless `repair`
        is False.

        Raises StorageError when another process owns it.
        """
        return self.indexer.reconcile(repair=repair)

    def rebuild_index(self, progress: Callable[[int, int], None] = lambda done, total: None) -> int:
        """Make Chroma's collection anew from the database; how many vectors it holds. Raises
        StorageError.

        `progress` is told how many vectors are done, and of how many.
        """
        return self.indexer.rebuild(progress)

    def now(self) -> int:
        """What the tally's clock says, microseconds UTC."""
        return self.store.clock.now()

    def new_id(self) -> str:
        """A fresh id of the tally's kind."""
        return self.store.ids.new()

    def count_tokens(self, text: str, *, model: str | None = None) -> int:
        """Tokens of `text` as `model` counts them, or an estimate that does not undercount."""
        return self.counter(model).count(text)

    def counter(self, model: str | None = None) -> TokenCounter:
        """The token counter for `model`."""
        with self._guard:
            if model not in self._counters:
                folder = self._settings.token_cache or _cache_folder(self.store.place)
                self._counters[model] = counter_for(
                    model, cache_dir=folder, allow_download=self._settings.allow_download
                )
            return self._counters[model]

    def let_go(self) -> None:
        """Let go of text that is kept in memory for speed; it is read anew when it is needed."""
        self.memory.corpora.drop()
        self.working_sets = WorkingSets(self.embedder, weights=self.memory.weights)
        self.recording.clear_caches()

    def close(self) -> None:
        """Write what is still in memory and close. Closing twice is allowed."""
        if self.store.database.closed:
            return
        self.recording.close_subscriptions()
        self.indexer.stop()
        self.gate.flush()
        if self.index is not None:
            self.index.close()
        self.store.liveness.close()
        self.store.database.close()
        self.recording.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Tally({self.place!r})"


@dataclass(frozen=True)
class BoundTally:
    """A tally as one actor sees it, working in one scope: what adapters and applications use.
    Thread-safe.
    """

    tally: Tally
    actor: Actor
    scope: Scope

    def on(self, surface: str) -> BoundTally:
        """The same view for calls that come through `surface`, such as `langgraph`."""
        return BoundTally(self.tally, self.actor.on(surface), self.scope)

    def traced(self, *, request_id: str | None = None, session_id: str | None = None) -> BoundTally:
        """The same view for calls that serve a request or belong to a session; the history names
        both.
        """
        return BoundTally(
            self.tally, self.actor.traced(request_id=request_id, session_id=session_id), self.scope
        )

    def diary(self, project: str) -> BoundTally:
        """The diary of this actor's agent in `project`, which nobody else reads. Its calls refuse
        without an agent.
        """
        actor = self.actor
        scope = Scope.diary(actor.user, actor.agent or "", project, actor.organization)
        return BoundTally(self.tally, actor, scope)

    # Access

    @property
    def spaces(self) -> Spaces:
        """The spaces that this actor may see or manage: create, get, list, update."""
        return Spaces(self.tally.store, self.tally.gate, self.actor)

    def preview_access(
        self, *, actor: Actor | None = None, scopes: Sequence[str | Scope] | None = None
    ) -> AccessPreview:
        """What `actor` (by default this one) could recall from `scopes` (by default the bound one),
        and why not.

        It equals what recall then gives, and changes nothing. Ids of others, hidden counts and
        denied ids are told only where this actor may inspect. Raises InvalidScope.
        """
        self._admit("preview")
        wanted = [self.scope] if scopes is None else [self.actor.home(scope) for scope in scopes]
        return memory_verbs.preview_access(
            self.tally.memory, self.actor, actor or self.actor, wanted
        )

    # Memory

    def remember(
        self,
        content: str,
        *,
        kind: str = "note",
        subject: str | None = None,
        speaker: str | None = None,
        category: str | None = None,
        occurred_at: Moment | None = None,
        conversation: str | None = None,
        position: int | None = None,
        source: SourceRef | None = None,
        tags: Iterable[str] = (),
        attributes: JsonObject | None = None,
        importance: int = 50,
        confidence: int = 100,
        pinned: bool = False,
        valid_from: Moment | None = None,
        valid_until: Moment | None = None,
        expires_at: Moment | None = None,
        derived_from: Iterable[str] = (),
        idempotency_key: str | None = None,
    ) -> Remembered:
        """Keep `content` as it is and make it recallable; it is both when this returns.

        A loose statement that says what an active memory says already answers `duplicate`, and its
        source is kept. In a conversation each call is a turn of its own. `derived_from` names
        memories that this one was concluded from; none may be hidden, redacted or forgotten. Raises
        Denied, InvalidRecord, InvalidInput, PositionTaken or IdempotencyMismatch; then nothing was
        stored.
        """
        new = NewMemory.load(
            {
                "content": content,
                "kind": kind,
                "subject": subject,
                "speaker": speaker,
                "category": category,
                "occurred_at": _micros(occurred_at),
                "conversation": conversation,
                "position": position,
                "source": source,
                "tags": tuple(tags),
                "attributes": attributes or {},
                "importance": importance,
                "confidence": confidence,
                "pinned": pinned,
                "valid_from": _micros(valid_from),
                "valid_until": _micros(valid_until),
                "expires_at": _micros(expires_at),
                "derived_from": tuple(derived_from),
                "idempotency_key": idempotency_key,
            }
        )
        return self.remember_many([new])[0]

    def remember_many(
        self,
        items: Iterable[NewMemory | Mapping[str, Any] | str],
        *,
        idempotency_key: str | None = None,
    ) -> list[Remembered]:
        """Same as `remember` for many items in one transaction: all or none. What became of each,
        in order.

        `idempotency_key` is that of the whole call; an item may bear one of its own beside it.
        """
        with self._observed("memory_write", "remember") as step:
            new = [self._new(item, step) for item in items]
            results = memory_verbs.remember(
                self.tally.memory,
                self._who,
                self.scope,
                new,
                correlation_id=step.id if step else None,
                idempotency_key=idempotency_key,
            )
            if step is not None and results:
                written = [{"id": result.memory_id, "status": result.status} for result in results]
                step.record(
                    "memory_write", [item.dump() for item in new], summary={"memories": written}
                )
        self.tally.indexer.nudge()
        return results

    def recall(
        self,
        query: str,
        *,
        limit: int | None = None,
        kinds: Sequence[str] = (),
        conversation: str | None = None,
        scopes: Sequence[str | Scope] | None = None,
        tags: Sequence[str] = (),
        source: str | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        asked_at: Moment | None = None,
        budget_tokens: int | None = None,
        weights: RecallWeights | None = None,
        states: Sequence[MemoryState] = (),
        as_of: Moment | None = None,
    ) -> Recalled:
        """The memories that answer `query`, best first, each with the reasons for its place.

        Reads the bound scope, or those of `scopes`, each of which must be open to the actor.
        Filters keep `kinds`, all of `tags`, a `conversation`, a `source` (its id or address), and
        what was said or happened from `since` up to `until`. What holds now comes first; what it
        replaced follows as `hit.history`. `states` names the states to look in instead; `as_of`
        asks what held at a moment. `asked_at` is the moment from which the query's "last week" is
        seen. At most `limit` hits (10), or with `budget_tokens` (up to 200 of) the best that fit
        together. Raises Denied and InvalidInput.
        """
        self._admit("read")
        wanted = self._scopes(scopes)
        if budget_tokens is not None and budget_tokens < 1:
            raise InvalidInput("`budget_tokens` must be at least 1.")
        with self._observed("other", "recall") as step:
            found = memory_verbs.recall(
                self.tally.memory,
                self.actor,
                wanted,
                query,
                memory_verbs.Wanted(
                    limit=(10 if budget_tokens is None else 200) if limit is None else limit,
                    kinds=tuple(kinds),
                    tags=tuple(tags),
                    conversation=conversation,
                    source=source,
                    since=_micros(since),
                    until=_micros(until),
                    asked_at=_micros(asked_at),
                    states=tuple(states),
                    as_of=_micros(as_of),
                    run_id=run.id if (run := current_run()) else None,
                    project=self.scope.key if self.scope.kind == "project" else None,
                    weights=weights,
                    budget=None
                    if budget_tokens is None
                    else lambda hits: self._packed(hits, budget_tokens),
                ),
            )
            if step is not None:
                seen = [
                    {
                        "id": hit.memory.id,
                        "version": hit.memory.version,
                        "score": hit.score,
                        "signals": hit.signals,
                    }
                    for hit in found
                ]
                summary = {
                    "path": found.path,
                    "candidates": found.candidates,
                    "memories": [[hit.memory.id, hit.memory.version] for hit in found],
                }
                step.record("memory_read", {"query": query, "hits": seen}, summary=summary)
        return found

    def _packed(self, hits: Sequence[Hit], budget_tokens: int) -> list[Hit]:
        """As many of the best as fit, in order; one that does not fit is passed over."""
        left, packed = budget_tokens, []
        for hit in hits:
            tokens = self.tally.count_tokens(f"{hit.memory.who or ''}: {hit.memory.content}")
            if tokens <= left:
                packed.append(hit)
                left -= tokens
        return packed

    def still_stand(self, found: Iterable[Memory | Hit]) -> bool:
        """Whether what was recalled may be given once more: nothing of it was changed, forgotten or
        withdrawn since.

        For who keeps what a recall gave for longer than a call.
        """
        memories = [one.memory if isinstance(one, Hit) else one for one in found]
        return memory_verbs.still_stand(self.tally.memory, self.actor, memories)

    def get(self, memory_id: str) -> Memory:
        """One memory. Raises NotFound for forgotten, hidden and absent ones alike."""
        self._admit("read")
        return memory_verbs.get(self.tally.memory, self.actor, memory_id)

    def memories(
        self,
        *,
        kinds: Sequence[str] = (),
        states: Sequence[MemoryState] = ("active",),
        conversation: str | None = None,
        limit: int = 50,
        before: str | None = None,
    ) -> list[Memory]:
        """Memories of the bound scope, newest first; give the last id of a page as `before` for the
        next one.
        """
        self._admit("read")
        return memory_verbs.list_memories(
            self.tally.memory,
            self.actor,
            self.scope,
            kinds=kinds,
            states=states,
            conversation=conversation,
            limit=limit,
            before=before,
        )

    def modify(
        self,
        memory_id: str,
        *,
        reason: str,
        if_version: int | None = None,
        idempotency_key: str | None = None,
        manual_override: Moment | bool = False,
        **changes: Any,
    ) -> Change:
        """Change fields of a memory, such as `content=…` or `tags=…`; the old version stays in its
        history.

        `manual_override` locks a person's edit: until that moment (True: for
        `manual_override_days`) no agent changes, corrects or forgets the memory. With `if_version`
        it changes only what you have seen. Raises InvalidInput, InvalidRecord, NotFound,
        VersionConflict, StateConflict or IdempotencyMismatch; then nothing changed.
        """
        lock_until = None
        if manual_override is not False:
            until = self.tally.now() + self.tally.memory.override_us
            lock_until = until if manual_override is True else _micros(manual_override)
        with self._observed("memory_write", "modify") as step:
            result = memory_verbs.modify(
                self.tally.memory,
                self._who,
                memory_id,
                changes,
                reason=reason,
                if_version=if_version,
                idempotency_key=idempotency_key,
                correlation_id=step.id if step else None,
                lock_until=lock_until,
            )
            return self._changed(step, result, {"reason": reason, "changes": changes})

    def modify_many(
        self, items: Iterable[Mapping[str, Any]], *, idempotency_key: str | None = None
    ) -> list[Changed]:
        """Same as `modify` for each mapping of its arguments; each is done or not by itself, in
        order.

        What is refused is told in its place, not raised: the others are done all the same. With an
        `idempotency_key` a call that was cut off goes on where it was. Raises IdempotencyMismatch.
        """
        given = [dict(item) for item in items]
        database = self.tally.store.database
        once = Once(self.actor.private_scope, "modify_many", idempotency_key, given)
        with database.read() as connection:
            answered = once.answered(connection)
        if answered is not None:
            return [Changed.load(one) for one in answered["changed"]]
        results = []
        for number, arguments in enumerate(given):
            if idempotency_key is not None:
                arguments = {"idempotency_key": f"{idempotency_key} {number}", **arguments}
            else:
                arguments = dict(arguments)
            memory_id = str(arguments.pop("memory_id", ""))
            reason = str(arguments.pop("reason", ""))
            try:
                results.append(
                    Changed(
                        memory_id=memory_id,
                        change=self.modify(memory_id, reason=reason, **arguments),
                    )
                )
            except (InvalidInput, NotFound, Denied, Conflict) as error:
                versions = (
                    (error.expected, error.actual)
                    if isinstance(error, VersionConflict)
                    else (None, None)
                )
                results.append(
                    Changed(
                        memory_id=memory_id,
                        error=type(error).__name__,
                        message=str(error),
                        expected=versions[0],
                        actual=versions[1],
                    )
                )
        if idempotency_key is not None:
            told = {"changed": [result.dump() for result in results]}
            database.write(
                lambda tx: once.keep(tx, told, at=self.tally.now()), name="modify_many.answer"
            )
        return results

    def forget(
        self,
        memory_id: str,
        *,
        reason: str,
        if_version: int | None = None,
        force: bool = False,
        idempotency_key: str | None = None,
    ) -> Forgotten:
        """Take a memory out of every recall; it can be recovered until `recoverable_until`. Raises
        as `modify`.
        """
        with self._observed("memory_write", "forget") as step:
            result = memory_verbs.forget(
                self.tally.memory,
                self._who,
                memory_id,
                reason=reason,
                if_version=if_version,
                force=force,
                idempotency_key=idempotency_key,
                correlation_id=step.id if step else None,
            )
            self._changed(step, result, {"reason": reason})
            return result

    def forget_matching(
        self,
        query: str,
        *,
        reason: str,
        mode: Literal["preview", "execute"] = "preview",
        threshold: float = 0.5,
        limit: int = 100,
        confirm_token: str | None = None,
        idempotency_key: str | None = None,
    ) -> Forgetting:
        """Forget what recall scores at `threshold` or more in the bound scope; pinned memories are
        kept, and from agents those that a person's edit locks.

        A preview changes nothing and gives the token with which, within 15 minutes, exactly the ids
        it shows, at their versions, are forgotten, all or none. Raises Denied
        (`confirm_token_required` without one), InvalidInput, VersionConflict, IdempotencyMismatch,
        or StateConflict when other memories match by now.
        """
        if mode == "preview":
            self._admit("preview")
        with self._observed("memory_write", "forget_matching") as step:
            done = memory_verbs.forget_matching(
                self.tally.memory,
                self._who,
                self.scope,
                query,
                reason=reason,
                mode=mode,
                threshold=threshold,
                limit=limit,
                confirm_token=confirm_token,
                idempotency_key=idempotency_key,
                correlation_id=step.id if step else None,
            )
            for result in done.results:
                self._changed(step, result, {"reason": reason, "query": query})
        return done

    def recover(
        self,
        memory_id: str,
        *,
        reason: str,
        if_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Change:
        """Bring a forgotten memory back as it stood before, within its window. Raises as
        `modify`.
        """
        with self._observed("memory_write", "recover") as step:
            result = memory_verbs.recover(
                self.tally.memory,
                self._who,
                memory_id,
                reason=reason,
                if_version=if_version,
                idempotency_key=idempotency_key,
                correlation_id=step.id if step else None,
            )
            return self._changed(step, result, {"reason": reason})

    def correct(
        self,
        memory_id: str,
        correction: CorrectionKind,
        *,
        reason: str,
        mode: Literal["preview", "apply"] = "preview",
        by: str | None = None,
        field: str = "content",
        replacement: str = "[redacted]",
        evidence: Iterable[str] = (),
        valid_from: Moment | None = None,
        confirm_token: str | None = None,
        if_version: int | None = None,
        force: bool = False,
        idempotency_key: str | None = None,
    ) -> Correction:
        """Preview a correction, or with `mode="apply"` and the preview's token (good for 15
        minutes) apply it.

        `by` is the replacement for `supersede`, which holds since `valid_from` as `evidence`
        (source ids) shows, and the canonical memory for `mark_duplicate`. `redact` puts
        `replacement` in the place of `field`: content, subject, who, category, tags or a path such
        as attributes.phone. `restore` takes the latest correction back. Raises InvalidInput,
        NotFound, Denied (`confirm_token_required`), VersionConflict, StateConflict when the world
        is not as it was previewed, or IdempotencyMismatch; then nothing changed.
        """
        if mode == "preview":
            self._admit("preview")
        asked = memory_verbs.Asked(
            correction=correction,
            reason=reason,
            other_id=by,
            field=field,
            replacement=replacement,
            evidence=tuple(evidence),
            valid_from=_micros(valid_from),
            force=force,
        )
        with self._observed("memory_write", "correct") as step:
            done = memory_verbs.correct(
                self.tally.memory,
                self._who,
                memory_id,
                asked,
                mode=mode,
                confirm_token=confirm_token,
                if_version=if_version,
                idempotency_key=idempotency_key,
                correlation_id=step.id if step else None,
            )
            if done.result is not None:
                self._changed(step, done.result, {"reason": reason, "correction": correction})
        return done

    def promote(
        self,
        memory_id: str,
        into: str | Scope,
        *,
        reason: str,
        mode: Literal["preview", "apply"] = "preview",
        confirm_token: str | None = None,
        if_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Crossing:
        """Preview a copy of a memory into another scope, or with the preview's token make it.

        The preview says who would read it there. Raises as `correct`, and Denied with
        `missing_memory_space`, `unsupported_scope` or `scope_crossing_requires_promotion`.
        """
        return self._cross(
            "promote", memory_id, into, reason, mode, confirm_token, if_version, idempotency_key
        )

    def share(
        self,
        memory_id: str,
        into: str | Scope,
        *,
        reason: str,
        mode: Literal["preview", "apply"] = "preview",
        confirm_token: str | None = None,
        if_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Crossing:
        """Same as `promote`, for a copy that says what its origin says and is withdrawn when that
        goes.
        """
        return self._cross(
            "share", memory_id, into, reason, mode, confirm_token, if_version, idempotency_key
        )

    def _cross(
        self,
        operation: Literal["promote", "share"],
        memory_id: str,
        into: str | Scope,
        reason: str,
        mode: Literal["preview", "apply"],
        confirm_token: str | None,
        if_version: int | None,
        idempotency_key: str | None,
    ) -> Crossing:
        if mode == "preview":
            self._admit("preview")
        with self._observed("memory_write", operation) as step:
            done = memory_verbs.cross(
                self.tally.memory,
                self._who,
                memory_id,
                self.actor.home(into),
                operation,
                reason=reason,
                mode=mode,
                confirm_token=confirm_token,
                if_version=if_version,
                idempotency_key=idempotency_key,
                correlation_id=step.id if step else None,
            )
            if done.mode == "apply":
                self.tally.indexer.nudge()
                if step is not None:
                    step.record(
                        "memory_write",
                        {"reason": reason, "into": str(done.into)},
                        summary=done.dump(),
                    )
        return done

    def inspect(self, memory_id: str) -> Inspection:
        """What a memory is, why this actor can or cannot see it, what hangs on it, what may be done
        next.

        Its receipts are among it: the newest journal entries about it, and the newest recorded
        steps that used it, as far as the actor may see them. Who may inspect without reading learns
        no text. Raises NotFound.
        """
        self._admit("inspect")
        found = memory_verbs.inspect(self.tally.memory, self.actor, memory_id)
        return found.model_copy(
            update={"uses": tuple(self.recordings.uses(found.memory_id, most=_USES))}
        )

    def explore(
        self,
        around: str | Scope | None = None,
        *,
        depth: int = 1,
        limit: int = 50,
        before: str | None = None,
        states: Sequence[MemoryState] = ("active",),
    ) -> Explored:
        """Look around without a query: what there is, what stands in a scope, what hangs on a
        memory.

        Without `around` the scopes that this actor may look into, with counts; around a scope its
        memories of these `states`, newest first (the last id of a page is `before` for the next
        one); around a memory's id what was concluded from it, what it was concluded from, replaced
        or shared, up to `depth` (1 or 2) links away. What the actor may not read is neither shown
        nor named. Raises Denied, NotFound, InvalidInput.
        """
        self._admit("read")
        with self._observed("other", "explore") as step:
            found = memory_verbs.explore(
                self.tally.memory,
                self.actor,
                around,
                depth=depth,
                limit=limit,
                before=before,
                states=states,
            )
            if step is not None and found.memories:
                seen = [one.memory_id for one in found.memories]
                step.record("memory_read", found, summary={"memories": seen})
        return found

    def context_pack(
        self,
        query: str,
        *,
        budget_tokens: int = 2_000,
        scopes: Sequence[str | Scope] | None = None,
        model: str | None = None,
    ) -> ContextPack:
        """What answers `query` as text for an agent: framed as data, secrets replaced, within the
        budget.

        Each item names its source, who may see it, why it is there and whether it still holds.
        Raises as `recall`.
        """
        self._admit("read")
        with self._observed("other", "context_pack") as step:
            pack = memory_verbs.context_pack(
                self.tally.memory,
                self.actor,
                self._scopes(scopes),
                query,
                budget_tokens=budget_tokens,
                counter=self.tally.counter(model),
            )
            self._gave(step, {"query": query}, pack)
        return pack

    def wake(
        self,
        *,
        budget_tokens: int = 1_200,
        scopes: Sequence[str | Scope] | None = None,
        model: str | None = None,
    ) -> ContextPack:
        """Same as `context_pack` before anything was asked: pins, constraints, preferences,
        decisions, open tasks.
        """
        self._admit("read")
        with self._observed("other", "wake") as step:
            pack = memory_verbs.wake(
                self.tally.memory,
                self.actor,
                self._scopes(scopes),
                budget_tokens=budget_tokens,
                counter=self.tally.counter(model),
            )
            self._gave(step, {}, pack)
        return pack

    def _scopes(self, scopes: Sequence[str | Scope] | None) -> list[Scope]:
        return [self.scope] if scopes is None else [self.actor.home(scope) for scope in scopes]

    def _gave(self, step: Step | None, asked: dict[str, Any], pack: ContextPack) -> None:
        if step is not None:
            given = [item.memory_id for item in pack.items]
            step.record(
                "memory_read",
                {**asked, "items": given},
                summary={"memories": given, "tokens": pack.tokens},
            )

    # Export and import

    def export(
        self, folder: str | os.PathLike[str], *, scopes: Sequence[str | Scope] | None = None
    ) -> Transfer:
        """Write everything of the bound scope, or of `scopes`, to a new folder: JSON lines and
        blobs, with digests.

        It holds text in the clear, and the keys of its digests: keep it as you keep the tally.
        Raises Denied, InvalidInput, StorageError.
        """
        self._admit("export")
        return portable.export(self.tally.memory, self.actor, self._scopes(scopes), Path(folder))

    def import_from(
        self, folder: str | os.PathLike[str], *, idempotency_key: str | None = None
    ) -> Transfer:
        """Bring an export into this tally, which must be empty; every digest is checked first. An
        operator's work.

        Recall, history and `verify` are then as they were. Raises Denied, InvalidInput,
        StateConflict, CorruptTally, IdempotencyMismatch.
        """
        done = portable.import_from(
            self.tally.memory, self.actor, Path(folder), idempotency_key=idempotency_key
        )
        self.tally.let_go()
        self.tally.indexer.nudge()
        return done

    # Forgetting for good

    def prove_unreachable(self, memory_id: str) -> Proof:
        """Try every read path for a memory that was forgotten or hidden, and list the copies that
        are kept.

        Raises NotFound, and StateConflict while it is not forgotten.
        """
        self._admit("inspect")
        return proof.prove_unreachable(self.tally.memory, self.actor, memory_id)

    def erase(
        self,
        memory_ids: str | Iterable[str],
        *,
        reason: str,
        mode: Literal["preview", "apply"] = "preview",
        confirm_token: str | None = None,
        idempotency_key: str | None = None,
    ) -> Erasure:
        """Preview, or with the preview's token do, the destruction of memories' text wherever the
        tally holds it.

        Shared copies go with them, recorded payloads and threads of checkpoints that hold the text
        too. It cannot be taken back. An operator's work. Raises Denied, NotFound, StateConflict,
        StorageError or IdempotencyMismatch.
        """
        if mode == "preview":
            self._admit("preview")
        ids = [memory_ids] if isinstance(memory_ids, str) else list(memory_ids)
        with self.tally.indexer.paused():
            return erase.erase(
                self.tally.memory,
                self.actor,
                ids,
                reason=reason,
                mode=mode,
                confirm_token=confirm_token,
                idempotency_key=idempotency_key,
                rebuilt=self.tally.let_go,
            )

    def erase_recorded(
        self,
        run_id: str,
        *,
        step_id: str | None = None,
        reason: str,
        mode: Literal["preview", "apply"] = "preview",
        idempotency_key: str | None = None,
    ) -> list[str]:
        """Name, or apply to, the steps whose recorded payloads go with their salts: of a run, or of
        one step.

        Receipts and chain stay and verify; they say that the payloads were erased. It cannot be
        taken back. An operator's work. Raises Denied, NotFound, InvalidInput, StorageError,
        IdempotencyMismatch.
        """
        with self.tally.indexer.paused():
            return erase.erase_recorded(
                self.tally.memory,
                self.actor,
                run_id,
                step_id=step_id,
                reason=reason,
                mode=mode,
                idempotency_key=idempotency_key,
                rebuilt=self.tally.let_go,
            )

    def prove_erased(self, memory_id: str, *, text: str | None = None) -> Proof:
        """Look for what is left of an erased memory; with `text` in every table and file. An
        operator's work.

        Without `text` the proof names the search that the erasure made for it (`proof.searched`):
        the tally keeps nothing by which it could search again. Raises Denied and NotFound.
        """
        return erase.prove(self.tally.memory, self.actor, memory_id, text)

    def purge(
        self, *, mode: Literal["preview", "apply"] = "preview", idempotency_key: str | None = None
    ) -> Purge:
        """Count, or remove, what is past its window: an operator's work. Nothing within its window
        goes.

        Windows are `forget_window_days`, `done_jobs_days`, `dead_jobs_days`, `idempotency_days` and
        that of the journal, once chosen, which is that of recorded runs and of the access log too.
        Raises Denied.
        """
        done = retention.purge(
            self.tally.memory,
            self.actor,
            self.tally.windows,
            mode=mode,
            idempotency_key=idempotency_key,
        )
        if mode == "apply" and done.runs:
            self.tally.let_go()
        return done

    def doctor(self, *, repair: bool = False) -> tuple[Finding, ...]:
        """What is wrong with this tally, and what wants attention; with `repair` what can be is
        mended.
        """
        return doctor.diagnose(
            self.tally.memory, self.tally.indexer, self.actor, self.tally.windows, repair=repair
        )

    def freeze(self, *, reason: str, idempotency_key: str | None = None) -> None:
        """Suspend every change of memory by anybody (`mutations_frozen`) until `thaw`; an
        operator's work.

        What is there can be recalled, and runs and checkpoints are recorded all the same. Raises
        Denied, IdempotencyMismatch.
        """
        self.tally.gate.freeze(
            self.actor, frozen=True, reason=reason, idempotency_key=idempotency_key
        )

    def thaw(self, *, reason: str, idempotency_key: str | None = None) -> None:
        """Let memory be changed again. Raises Denied, IdempotencyMismatch."""
        self.tally.gate.freeze(
            self.actor, frozen=False, reason=reason, idempotency_key=idempotency_key
        )

    def choose_journal_window(
        self, days: int | None, *, idempotency_key: str | None = None
    ) -> None:
        """Choose after how many days what journals say may be purged; None keeps it. An operator's
        choice.

        Recorded runs and the access log have the same window. Raises Denied, InvalidInput,
        IdempotencyMismatch.
        """
        retention.choose_journal_window(
            self.tally.memory, self.actor, days, idempotency_key=idempotency_key
        )

    def working(self, run_id: str | None = None) -> WorkingMemory:
        """What a run keeps in mind, by default the open run. Raises InvalidInput where there is
        none.
        """
        run = current_run()
        chosen = run_id if run_id is not None else None if run is None else run.id
        if chosen is None:
            raise InvalidInput("No run is open here: name one, as in bound.working(run_id).")
        return WorkingMemory(self.tally.memory, self.actor, self.scope, chosen)

    def history(self, memory_id: str) -> list[HistoryEntry]:
        """Everything that happened to a memory, oldest first. Raises NotFound."""
        self._admit("read")
        return memory_verbs.history(self.tally.memory, self.actor, memory_id)

    # Context

    def compile(
        self,
        items: Iterable[Candidate],
        *,
        budget: int,
        model: str | None = None,
        provider: str | None = None,
        query: str | None = None,
        tools: Sequence[ToolSpec] = (),
        reserve: int = 0,
        task: str | None = None,
        task_type: str | None = None,
        environment: str | None = None,
        rules: Sequence[PolicyRule] = (),
        summaries: Mapping[str, str] | None = None,
        config: CompileConfig | None = None,
        target: TargetProfile | None = None,
    ) -> CompiledContext:
        """Choose the best context that fits `budget` tokens, with one decision and reason for every
        candidate.

        Relevance is measured against `query`, by default the latest user message. Inside a step of
        a run the compile is recorded with it. Raises InvalidRecord, InvalidContext,
        BudgetInfeasible, or ApprovalRequired when a rule wants an approval: the step is then
        `blocked`, and holds what is to be approved.
        """
        candidates, memories = _candidates(items)
        with self._observed("other", "compile") as step:
            request = CompilationRequest.load(
                {
                    "request_id": self.tally.new_id(),
                    "run_id": step.run.id if step else None,
                    "step_id": step.id if step else None,
                    "provider": provider,
                    "model": model,
                    "task_summary": task,
                    "query": query,
                    "context_items": candidates,
                    "tool_specs": tuple(tools),
                    "memory_records": memories,
                    "policy_rules": (*self.tally.rules, *rules),
                    "token_budget": budget,
                    "response_reserve": reserve,
                    "as_of": self.tally.now(),
                    "compile_config": config or CompileConfig(),
                    "target": target or TargetProfile(),
                    "summaries": dict(summaries or {}),
                    "agent": self.actor.agent,
                    "task_type": task_type,
                    "environment": environment,
                }
            )
            request = request.model_copy(update={"relevance": self._relevance(request, query)})
            compiled = compile_context(request, counter=self.tally.counter(model))
            waiting = compiler.approvals(request)
            if step is not None:
                _record_compile(step, request, compiled, waiting)
            if waiting:
                raise ApprovalRequired(waiting)
        return compiled

    def _relevance(self, request: CompilationRequest, query: str | None) -> dict[str, int]:
        """How well what may be seen answers the query, by id."""
        items = compiler.visible(request)
        asked = query if query is not None else compiler.asked(items, request)
        if asked is None:
            return {}
        texts = compiler.texts(items, request)
        most = request.token_budget // _SHORT_TEXT
        return self.tally.working_sets.relevance(asked, texts, now=request.as_of, most=most)

    # Recording

    @property
    def recordings(self) -> Recordings:
        """The recorder as this actor sees it."""
        return Recordings(self.tally.recording, self.actor, counter=self.tally.counter)

    def run(
        self,
        agent_name: str,
        *,
        domain: str | None = None,
        goal: str | None = None,
        metadata: JsonObject | None = None,
        run_id: str | None = None,
        retention: Retention | None = None,
    ) -> Run:
        """Start a run; use it as a `with` block, or call its `end`. Raises Denied."""
        return self.recordings.start_run(
            agent_name,
            scope=self.scope,
            domain=domain,
            goal=goal,
            metadata=metadata,
            run_id=run_id,
            retention=retention,
        )

    def verify(self, run_id: str, *, foil: Foil | None = None) -> Verification:
        """Same as `recordings.verify`, and with it the checkpoint threads in which the run's steps
        ran.

        A thread of a scope that the actor may not read is named in `cannot_prove`. Raises NotFound.
        """
        found = self.recordings.verify(run_id, foil=foil)
        named = [step.metadata.get("thread_id") for step in self.recordings.steps(run_id)]
        threads = list(dict.fromkeys(name for name in named if isinstance(name, str)))
        if not threads:
            return found
        problems, unread = [*found.problems], [*found.cannot_prove]
        try:
            context = self.tally.bind(self.actor, self.recordings.run(run_id).scope).threads
            checked = set(threads) & set(context.names())
            for name in sorted(checked):
                problems += context.verify(name)
        except Denied as refused:
            checked = set()
            unread.append(
                f"its checkpoint threads, which this actor may not read ({refused.reason})"
            )
        return found.model_copy(
            update={
                "ok": found.ok and not problems,
                "problems": tuple(problems),
                "cannot_prove": tuple(unread),
                "threads_checked": len(checked),
            }
        )

    def replay(
        self,
        step_id: str,
        *,
        call: Call | None = None,
        recipe: ReplayRecipe | None = None,
        render: Render = neutral_request,
        **changes: Any,
    ) -> ReplayResult:
        """Make a recorded model step again as the step of a new run, whose receipt holds the recipe
        and the outcome.

        Same as `recordings.replay`, which records nothing. The result names the new run and step;
        the new step can be replayed in turn. Raises Denied as well.
        """
        source = self.recordings.step(step_id)
        run = self.recordings.run(source.run_id)
        known: JsonObject = {"replay_of": {"run_id": run.run_id, "step_id": step_id}}
        with (
            self.run(
                run.agent_name, domain=run.domain, goal=run.user_goal, metadata=known
            ) as again,
            again.step("model_call", name=source.name, metadata=known) as step,
        ):
            replayed = self.recordings.replayed(
                step_id, call=call, recipe=recipe, render=render, **changes
            )
            replayed.record_in(step)
        return replayed.result.model_copy(update={"run_id": again.id, "step_id": step.id})

    def keep_turn(
        self,
        run: Run,
        *,
        user: str | None = None,
        assistant: str | None = None,
        idempotency_key: str | None = None,
    ) -> list[Remembered]:
        """Remember what was said in a run: the words of the user, and those of its agent, as turns
        of a conversation.

        The conversation is the thread that the run belongs to, else the run itself. Each turn is
        marked with the run and the last model call in it. What a tally gave, such as recalled
        memories in a prompt, is left out; what is empty then answers `skipped`. Raises what
        `remember_many` does.
        """
        thread = run.record.metadata.get("thread_id")
        conversation = thread if isinstance(thread, str) else run.id
        step = run.latest("model_call")
        said = ((self.actor.user, True, user), (run.record.agent_name, False, assistant))
        new = [
            NewMemory(
                content=text,
                kind="turn",
                speaker=speaker,
                conversation=conversation,
                source=SourceRef(
                    source_type="user" if is_user else "other", uri=f"run:{run.id}", author=speaker
                ),
                source_run_id=run.id,
                source_step_ids=() if step is None else (step,),
            )
            for speaker, is_user, text in said
            if text is not None and text.strip()
        ]
        key = None if idempotency_key is None else f"keep_turn {idempotency_key}"
        return self.remember_many(new, idempotency_key=key) if new else []

    def join_run(self, agent_name: str, **options: Any) -> tuple[Run, bool]:
        """The run for calls that an adapter sees, and whether the adapter is to end it.

        Inside a `run` block or an open step on this tally it is that run; otherwise a new one, with
        the options of `run`.
        """
        step = current_step()
        for active in (current_run(), step.run if step is not None and step.is_open else None):
            if (
                active is not None
                and active.context is self.tally.recording
                and active.record.ended_at is None
            ):
                active.add_surface(self.actor.surface)
                return active, False
        return self.run(agent_name, **options), True

    def runs(self, *, limit: int = 20) -> list[RunRecord]:
        """Runs of the bound scope, newest first."""
        return self.recordings.runs([self.scope], limit=limit)

    @property
    def items(self) -> memory_verbs.Items:
        """Memories of the bound scope that are addressed by a namespace and a key, as stores of
        runtimes keep them.
        """
        return memory_verbs.Items(
            self.tally.memory, self.actor, self.scope, self.tally.indexer.nudge
        )

    @property
    def threads(self) -> Threads:
        """The checkpoint threads of the bound scope."""
        return Threads(self.tally.checkpoints, self.actor, self.scope)

    @property
    def _who(self) -> Actor:
        """The actor as the history names it: with the recorded run under way and its thread, where
        it names neither.
        """
        step, run = current_step(), current_run()
        run = run if run is not None or step is None or not step.is_open else step.run
        if (
            run is None
            or run.context is not self.tally.recording
            or run.record.ended_at is not None
        ):
            return self.actor
        thread = run.record.metadata.get("thread_id")
        return self.actor.traced(
            request_id=self.actor.request_id or run.id,
            session_id=self.actor.session_id or (thread if isinstance(thread, str) else None),
        )

    def _admit(self, what: Limited) -> None:
        """Count a look of this actor. Raises RateLimited where the tally sets a limit and it is
        reached.
        """
        self.tally.gate.admit(self.actor, what, self.scope)

    @contextmanager
    def _observed(self, kind: StepKind, name: str) -> Iterator[Step | None]:
        """The step in which an operation is recorded: the open one, else one of its own in the open
        run, else None.

        A refusal inside is journaled before it is raised.
        """
        with self.tally.gate.journaling(self.actor), self._recorded(kind, name) as step:
            yield step

    def _recorded(self, kind: StepKind, name: str) -> AbstractContextManager[Step | None]:
        step, run = current_step(), current_run()
        if step is not None and step.is_open and step.run.context is self.tally.recording:
            return nullcontext(step)
        if (
            run is None
            or run.context is not self.tally.recording
            or run.record.ended_at is not None
        ):
            return _UNRECORDED
        return self._own_step(run, kind, name)

    @contextmanager
    def _own_step(self, run: Run, kind: StepKind, name: str) -> Iterator[Step]:
        own = run.step(kind, name=name)
        try:
            yield own
        except BaseException as error:
            own.fail(error)
            raise
        own.end(wait=False)

    def _new(self, item: NewMemory | Mapping[str, Any] | str, step: Step | None) -> NewMemory:
        if isinstance(item, NewMemory):
            new = item
        else:
            new = NewMemory.load({"content": item} if isinstance(item, str) else item)
        if step is None or new.source_run_id is not None:
            return new
        return new.model_copy(
            update={
                "source_run_id": step.run.id,
                "source_step_ids": (*new.source_step_ids, step.id),
            }
        )

    def _changed(self, step: Step | None, result: Change, payload: Mapping[str, Any]) -> Change:
        self.tally.indexer.nudge()
        if step is not None:
            summary = {
                "id": result.memory_id,
                "event": result.event,
                "status": result.status,
                "version": result.version,
            }
            step.record("memory_write", payload, summary=summary)
        return result


class Binder(Generic[C]):
    """How an adapter finds out who acts: an Actor, a callable of the runtime's context, or nobody
    (the owner).
    """

    def __init__(
        self,
        tally: Tally | BoundTally,
        *,
        surface: str,
        actor: Actor | Callable[[C], Actor | None] | None = None,
        scope: str | Scope | None = None,
        session: Callable[[C], str | None] = lambda context: None,
    ) -> None:
        """`session` finds the runtime's own session, thread or conversation in the context of a
        call.
        """
        self._session = session
        self._tally = tally.tally if isinstance(tally, BoundTally) else tally
        self._default = tally.actor if isinstance(tally, BoundTally) else None
        self._scope = (
            scope if scope is not None or not isinstance(tally, BoundTally) else tally.scope
        )
        self._actor = actor
        self._surface = surface
        self._last: tuple[Actor | None, str | None, BoundTally] | None = None
        """Who acted last, in which session, and the view for that: most calls are those of one
        conversation.
        """

    @property
    def tally(self) -> Tally:
        """The tally behind the adapter."""
        return self._tally

    def bound(self, context: C | None = None) -> BoundTally:
        """The view for one call. Calls without a context act as the bound actor. Raises Denied."""
        actor = self._actor
        if actor is not None and not isinstance(actor, Actor):
            actor = actor(context) if context is not None else None
        session = None if context is None else self._session(context)
        last = self._last
        if last is None or last[0] is not actor or last[1] != session:
            made = self._tally.bind(actor or self._default, self._scope, session_id=session).on(
                self._surface
            )
            last = self._last = (actor, session, made)
        return last[2]


def _owner_of(store: Store, given: Actor | None) -> Actor | None:
    """The owner of an embedded tally, recorded when it is made; its projects may be renewed, its
    user may not.
    """
    if not store.place.is_embedded:
        return given
    with store.database.read() as connection:
        text = settings_rows.get_setting(connection, _OWNER)
    kept = None if text is None else Actor.loads(text)
    if kept is not None and (given is None or given == kept):
        return kept
    if kept is not None and given is not None and given.user != kept.user:
        raise SettingsError(
            f"This tally belongs to {kept.user}. Open it without `owner`, and bind other actors "
            f"with tally.bind(…)."
        )
    owner = given or Actor(user="local", role="operator")
    fresh_id = store.ids.new()

    def unit(tx: Any) -> None:
        settings_rows.set_setting(tx, _OWNER, owner.dumps())
        if settings_rows.get_setting(tx, _TALLY_ID) is None:
            settings_rows.set_setting(tx, _TALLY_ID, fresh_id)

    store.database.write(unit, name="tally.owner")
    return owner


def _finders(settings: Settings, given: Iterable[Finder]) -> list[Finder]:
    return [*given, *([KingfisherFinder()] if settings.secret_engine == "kingfisher" else [])]


def _open_index(store: Store, settings: Settings, fingerprint: str) -> ChromaIndex | None:
    with store.database.read() as connection:
        layout = layout_of(connection, fingerprint)
    if settings.chroma is not None:
        return ChromaIndex(fingerprint, server=settings.chroma, layout=layout)
    if store.place.folder is None:
        return None
    return ChromaIndex(fingerprint, folder=store.place.folder, layout=layout)


def _cache_folder(place: Location) -> Path:
    if place.folder is not None:
        return place.folder / "tokens"
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "tallystick" / "tokens"


def _candidates(items: Iterable[Candidate]) -> tuple[tuple[ContextItem, ...], tuple[Memory, ...]]:
    found: list[ContextItem] = []
    memories: list[Memory] = []
    for item in items:
        if isinstance(item, Hit):
            memories.append(_own(item.memory))
        elif isinstance(item, Memory):
            memories.append(_own(item))
        else:
            found.append(_own(ContextItem.load(item)))
    return tuple(found), tuple(memories)


def _own(record: _Candidate) -> _Candidate:
    """The record with mappings of its own, because its holder may edit them before they are
    recorded.
    """
    if isinstance(record, Memory):
        shared: object = record.attributes
    else:
        shared = record.metadata or record.source_ref.metadata
    return record.model_copy(deep=True) if shared else record


def _record_compile(
    step: Step,
    request: CompilationRequest,
    compiled: CompiledContext,
    waiting: Sequence[ApprovalRequest],
) -> None:
    """The request, the decisions and how the prompt follows the one before; or what it waits for,
    as none is sent.
    """
    step.set_token_method(compiled.token_method)
    # Before anything is handed to the thread that seals, which would take turns with what is left
    # to do here.
    reuse = None if waiting else step.run.prefix_reuse(compiled)
    step.record(
        "compile_request",
        request,
        summary={"request_id": request.request_id, "budget": request.token_budget},
    )
    if reuse is None:
        step.record("compiled", compiled, summary=partial(_compile_summary, compiled))
        asked = [
            {"action": one.action, "rule": one.rule_id, "items": list(one.item_ids)}
            for one in waiting
        ]
        step.record(
            "approval", {"requests": waiting}, summary={"state": "asked", "requests": asked}
        )
        return
    step.record(
        "compiled", compiled, summary=lambda: {**_compile_summary(compiled), "prefix": reuse.dump()}
    )
    if reuse.cause == "compacted":
        step.record("compaction", {"prefix": reuse}, summary={"left": list(reuse.left)})


def _compile_summary(compiled: CompiledContext) -> dict[str, Any]:
    return {
        "compiled_id": compiled.id,
        "stable_prefix_hash": compiled.stable_prefix_hash,
        "volatile_suffix_hash": compiled.volatile_suffix_hash,
        "tokens": compiled.token_allocation.get("used", 0),
        "token_exact": compiled.token_exact,
        "decisions": [
            [decision.item_id, decision.decision, decision.reason_code, decision.final_tokens]
            for decision in compiled.decisions
        ],
    }


def _micros(moment: Moment | None) -> int | None:
    if moment is None:
        return None
    if isinstance(moment, int):
        if not FIRST_MOMENT <= moment <= LAST_MOMENT:
            raise InvalidInput(
                f"{moment} is no moment of the years 1 to 9999. Give microseconds since 1970, UTC."
            )
        return moment
    if moment.tzinfo is None:
        raise InvalidInput(
            "This datetime has no time zone. Give an aware one, such as datetime.now(UTC)."
        )
    delta = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds
