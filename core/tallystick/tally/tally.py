"""Tally and BoundTally: an opened store, and everything one actor does with it in one scope."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, Unpack

from tallystick.errors import Denied, InvalidInput, ReadOnlyTally, UnknownName
from tallystick.loading import late_names
from tallystick.ports import Clock, Ids, SystemClock, TokenCounter, UuidIds
from tallystick.records import (
    AccessDecision,
    Actor,
    PolicyRule,
    Scope,
    ToolClass,
    checked_arguments,
    tuple_of,
)
from tallystick.settings import Settings
from tallystick.storage import Database, Location, Store
from tallystick.storage.rows import scopes
from tallystick.tally import call_checks, daily_verbs, model_calls
from tallystick.tally.call_rules import CallFacts
from tallystick.tally.kept_turns import keep_tool_output, keep_turn
from tallystick.tally.memory_view import MemoryView
from tallystick.tally.services import OpenOptions, Services, record_owner
from tallystick.tally.spellings import respell_argument, unknown_verb
from tallystick.tally.spooled import take_spooled

if TYPE_CHECKING:
    from tallystick.access import AccessTokens
    from tallystick.checkpoints import Threads
    from tallystick.jobs import Drained, Handler, Worker
    from tallystick.memory import Items
    from tallystick.memory.reconcile import Reconciled
    from tallystick.records import AccessToken, Alert, Backup, Migration
    from tallystick.tally.approvals import BoundApprovals
    from tallystick.tally.async_view import AsyncBoundTally
    from tallystick.tally.corrections import Corrections
    from tallystick.tally.jobs import Jobs
    from tallystick.tally.operator import Operator
    from tallystick.tally.recordings import BoundRecordings
    from tallystick.tally.reviews import Reviews
    from tallystick.tally.spaces import BoundSpaces
else:
    # The parts of a tally, of which a process uses few: each loads when it is first asked for.
    __getattr__ = late_names(
        "tallystick",
        {
            "access": "AccessTokens",
            "checkpoints": "Threads",
            "jobs": "Drained Worker",
            "memory": "Items",
            "memory.reconcile": "Reconciled",
            "records": "AccessToken Alert Backup Migration",
            "tally.approvals": "BoundApprovals",
            "tally.async_view": "AsyncBoundTally",
            "tally.corrections": "Corrections",
            "tally.jobs": "Jobs",
            "tally.operator": "Operator",
            "tally.recordings": "BoundRecordings",
            "tally.reviews": "Reviews",
            "tally.spaces": "BoundSpaces",
        },
    )


@checked_arguments
class Tally:
    """An opened store: one folder, or one PostgreSQL database.

    Thread-safe. Close it, or use it as a `with` block.
    """

    _respell_argument = staticmethod(respell_argument)

    def __init__(self, services: object = None) -> None:
        """Use `Tally.open`."""
        if not isinstance(services, Services):
            raise InvalidInput('A tally is opened: write Tally.open(".tally"), or its address.')
        self._services = services
        services.handlers = self._handlers
        services.take_spooled = partial(take_spooled, self)
        services.start()

    def _handlers(self) -> list[Handler]:
        """Return who carries out jobs by the verbs of the tally."""
        from tallystick.tally.recordings import ReplayHandler

        return [ReplayHandler(lambda actor: self.bind(actor).recordings)]

    @classmethod
    def open(
        cls,
        where: str | os.PathLike[str] = ".tally",
        *,
        owner: Actor | None = None,
        **options: Unpack[OpenOptions],
    ) -> Tally:
        """Open the tally at `where`, a folder or `postgresql://…`, and create it on first use.

        `:memory:` is a folder of its own that is removed when the tally is closed.
        `owner` is recorded when an embedded tally is created and acts for runtimes that name
        nobody. The other options are those of `OpenOptions`. Where its files cannot be written it
        is opened for reading: `read_only` says why, and each write raises ReadOnlyTally. Raises
        InvalidInput, SettingsError, TallyNotFound (`create=False`), NewerTally, UnreleasedTally,
        BusyTally, CorruptTally, or ReadOnlyTally for a tally of an older release that would have to
        be migrated there.
        """
        effective = options.get("settings") or Settings.read(where)
        if (chroma := options.get("chroma")) is not None:
            effective = effective.model_copy(update={"chroma": chroma})
        if effective.objects is None and "objects_from_kb" in effective.model_fields_set:
            raise InvalidInput(
                "The setting `objects_from_kb` says what is moved, and no `objects` where. Name "
                "both, or neither."
            )
        create = options.get("create", True)
        clock, ids = options.get("clock") or SystemClock(), options.get("ids") or UuidIds()
        location = Location.find(where, create=create, schema=options.get("schema"))
        if effective.private_files:
            location.restrict()

        blobs = None
        if effective.objects is not None:
            from tallystick.storage.engine.blob_stores import open_blobs

            blobs = open_blobs(effective.objects)

        def migrating(database: Database) -> object:
            from tallystick.upkeep.backup import backup_beside, migrate_database

            has_backup = effective.backup_before_migration and location.folder is not None
            return migrate_database(
                database,
                actor=Actor(user="tallystick", surface="open"),
                surface="open",
                clock=clock,
                ids=ids,
                create=create,
                backup=partial(backup_beside, database, location.folder) if has_backup else None,
            )

        store = Store.open(
            location,
            clock=clock,
            ids=ids,
            busy_timeout_ms=effective.busy_timeout_ms,
            full_durability=effective.durability == "full",
            readers=effective.readers,
            writers=effective.writers,
            prepare_threshold=effective.prepare_threshold,
            blobs=blobs,
            blobs_from=effective.objects_from_kb * 1024,
            migrating=migrating,
        )
        try:
            services = Services(store, effective, record_owner(store, owner), options)
        except BaseException:
            store.database.close()
            store.location.remove_temporary()
            raise
        tally = cls(services)
        services.take_spooled()
        return tally

    @classmethod
    def restore(
        cls,
        backup: str | os.PathLike[str],
        where: str | os.PathLike[str],
        *,
        actor: Actor | None = None,
        schema: str | None = None,
        progress: Callable[[int, int], None] = lambda done, total: None,
        clock: Clock | None = None,
        ids: Ids | None = None,
    ) -> Backup:
        """Restore the backup in a folder into a new place: a folder that is new or empty, or a
        schema of PostgreSQL without tables, whichever of the two it was taken from. Nothing is ever
        restored over a tally.

        Digests are compared before anything is written, and rows, chains and texts before the tally
        is there. Its journal says who restored it: `actor`, or the tally's owner. Raises
        InvalidInput, StateConflict, NewerTally, CorruptTally, StorageError.
        """
        from tallystick.upkeep.backup import restore

        return restore(
            Path(backup),
            where,
            schema=schema,
            actor=actor,
            clock=clock or SystemClock(),
            ids=ids or UuidIds(),
            progress=progress,
        )

    @classmethod
    def migrate(
        cls,
        where: str | os.PathLike[str],
        *,
        mode: Literal["plan", "dry_run", "apply"] = "plan",
        backup: str | os.PathLike[str] | None = None,
        without_backup: bool = False,
        actor: Actor | None = None,
        schema: str | None = None,
        progress: Callable[[int, int], None] = lambda done, total: None,
        clock: Clock | None = None,
        ids: Ids | None = None,
    ) -> Migration:
        """Say what bringing a tally of an older release to this one's schema changes, try it and
        take it back, or do it.

        To do it needs a new folder for a `backup` that is written before, or `without_backup`. The
        tally's journal says that it was migrated, and has the digest of the backup. `open` migrates
        as well, without a backup. Raises InvalidInput, TallyNotFound, NewerTally, CorruptTally,
        BusyTally, StorageError.
        """
        from tallystick.upkeep.migration import migrate_tally

        return migrate_tally(
            where,
            mode=mode,
            backup=None if backup is None else Path(backup),
            without_backup=without_backup,
            schema=schema,
            actor=actor,
            clock=clock or SystemClock(),
            ids=ids or UuidIds(),
            progress=progress,
        )

    @property
    def location(self) -> str:
        """The folder or the database address of this tally, without a password."""
        return str(self._services.store.location)

    @property
    def read_only(self) -> str | None:
        """Why this tally can be read here and not written, and what to do; None where it can be
        written.
        """
        reason = self._services.store.database.unwritable
        return None if reason is None else ReadOnlyTally(reason).cause

    @property
    def owner(self) -> Actor | None:
        """The actor for runtimes that name nobody; None on PostgreSQL unless one was given."""
        return self._services.owner

    @property
    def settings(self) -> Settings:
        """The configuration that this tally was opened with."""
        return self._services.settings

    @property
    def rules(self) -> tuple[PolicyRule, ...]:
        """The policy rules that this tally was opened with."""
        return self._services.rules

    def rule_over_tool_call(
        self,
        name: str,
        arguments: Any = None,
        *,
        actor: Actor,
        scope: str | Scope,
        tool_class: ToolClass | None = None,
    ) -> PolicyRule | None:
        """Return the rule that would decide over a call of a tool, or None where none would.

        Nothing is called, asked for or recorded. Raises InvalidScope.
        """
        facts = CallFacts("tool_call", name, arguments, tool_class=tool_class)
        return self._services.call_rules.rule_for(facts, actor, actor.home(scope)).rule

    @property
    def recordings(self) -> BoundRecordings:
        """The recordings as the owner sees them.

        Raises Denied where a tally has no owner: use `bind(actor).recordings`.
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
        """Return the view of this tally as `actor`, working in `scope` (else the private one).

        The history of what is changed names the request and the session; inside a recorded run that
        names neither it names the run and the run's thread. Without an actor the owner acts; a
        tally without one refuses with `missing_actor`. Raises Denied, InvalidScope.
        """
        acting = actor or self.owner
        if acting is None:
            decision = AccessDecision(
                allowed=False, reason="missing_actor", operation="read", surface="python"
            )
            raise Denied(
                decision,
                "This tally has no owner: name who acts, as in tally.bind(Actor(user=…)).",
            )
        return BoundTally(
            self._services,
            acting.traced(request_id=request_id, session_id=session_id),
            acting.home(scope),
            self,
        )

    def user(self, user: str, scope: str | Scope | None = None) -> BoundTally:
        """Same as `bind` with an actor that is this user: `tally.user("ada")`."""
        return self.bind(Actor(user=user), scope)

    def authenticate(self, secret: str) -> AccessToken:
        """Return the access token of a secret that a caller sent over a network.

        Bind `token.actor` with `token.credential`, as a server of ours does. Raises Unauthenticated
        for one that never was, has run out or was revoked.
        """
        from tallystick.access import authenticate

        return authenticate(self._services.store, secret)

    def scopes(self) -> list[Scope]:
        """Return every scope that was written to, by name.

        The names alone are no secret from the folder's owner.
        """
        with self._services.store.database.read() as connection:
            return scopes.all_scopes(connection)

    def drain(self, progress: Callable[[int, int], None] = lambda finished, total: None) -> Drained:
        """Do all follow-up work now: jobs, whatever they wait for, and Chroma if this process owns
        it.

        `progress` is called with the number of jobs carried out and the number that there were.
        The result names each job that failed. Where none could be done it raises why: an
        EmbeddingError or ModelUnavailable where an embedder or a model is away, BudgetSpent where
        a budget holds work back. Raises StorageError where large bodies are to be moved and the
        object storage is away.
        """
        return self._services.background.run(progress)

    def worker(self, kinds: Annotated[Sequence[str], tuple_of(str)] | None = None) -> Worker:
        """Return a worker, a thread that carries out follow-up work: `start` it, or use it as a
        `with` block.

        It does jobs of all kinds, or of some, beside the one that works in the background already.
        It ends with this tally. Raises InvalidInput for a kind that nothing handles.
        """
        return self._services.background.worker(kinds)

    def reconcile_index(self, *, repair: bool = True) -> Reconciled:
        """Compare Chroma with the database, and rebuild it if they differ unless `repair` is False.

        Raises StorageError when another process owns it.
        """
        return self._services.background.reconcile(repair=repair)

    def on_alert(self, listener: Callable[[Alert], object]) -> Callable[[], None]:
        """Call `listener` with each alert that this process raises or clears, such as for a pager;
        return what ends that. It is called in the thread of the background, or of whoever drains.
        """
        listeners = self._services.memory.alert_listeners
        listeners.append(listener)

        def end() -> None:
            if listener in listeners:
                listeners.remove(listener)

        return end

    def now(self) -> int:
        """Return the time of the tally's clock, microseconds UTC."""
        return self._services.store.clock.now()

    def new_id(self) -> str:
        """Return a fresh id of the tally's kind."""
        return self._services.store.ids.new()

    def count_tokens(self, text: str, *, model: str | None = None) -> int:
        """Count the tokens of `text` for `model`, or estimate them without undercounting."""
        return self.counter(model).count(text)

    def counter(self, model: str | None = None) -> TokenCounter:
        """Return the token counter for `model`."""
        return self._services.counter(model)

    def drop_caches(self) -> None:
        """Drop all text that is cached in memory for speed; it is read anew when it is needed."""
        self._services.drop_caches()

    def flush(self) -> None:
        """Wait until what was recorded and read up to now is committed.

        Adapters end their steps without waiting: call it before the process is frozen, as in a
        lambda. Raises StorageError.
        """
        self._services.gate.flush()
        self._services.store.database.flush()

    def keep_retention(self) -> None:
        """Carry out the retention of this day where no process has, for two seconds at most: what
        is left is done by the next one. Closing does so in a process with its background.
        """
        self._services.keep_retention()

    def close(self) -> None:
        """Write what is still in memory and close. Closing twice is allowed. Raises RecorderError
        where recordings could not be written, ReadOnlyTally where something else could not be: all
        is closed then too.
        """
        self._services.close()

    if not TYPE_CHECKING:  # a type checker names the missing attribute itself

        def __getattr__(self, name: str) -> Any:
            """Say where the verbs are."""
            if not name.startswith("_") and hasattr(BoundTally, name):
                raise UnknownName(
                    f"A Tally has no {name!r}: say who acts first, as in tally.bind().{name} for "
                    f'the owner, or tally.user("…").{name}.'
                )
            raise unknown_verb("Tally", name, 'tally.user("…")', BoundTally)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Tally({self.location!r})"


@checked_arguments
@dataclass(frozen=True)
class BoundTally(MemoryView):
    """A tally as one actor sees it, working in one scope: what adapters and applications use.

    The verbs of every day are its own. `spaces` opens scopes to others, `operator` has what only
    somebody in charge does, `recordings` and `threads` read what was recorded and checkpointed,
    `aio` is all of it awaited. Thread-safe.
    """

    tally: Tally
    """The tally behind the view."""

    on = daily_verbs.on
    forget = daily_verbs.forget
    explore = daily_verbs.explore
    working_set = daily_verbs.working_set
    pack = daily_verbs.pack
    wake = daily_verbs.wake
    compile = daily_verbs.compile
    run = daily_verbs.run
    join_run = daily_verbs.join_run
    keep_turn = keep_turn
    keep_tool_output = keep_tool_output
    call_model = model_calls.call_model
    stream_model = model_calls.stream_model
    check_tool_call = call_checks.check_tool_call
    check_model_call = call_checks.check_model_call

    if not TYPE_CHECKING:  # a type checker names the missing attribute itself

        def __getattr__(self, name: str) -> Any:
            """Say which verb of this tally, or of one of its parts, does the same."""
            raise unknown_verb("bound tally", name, "bound", BoundTally)

    @property
    def items(self) -> Items:
        """Memories of the bound scope by namespace and key, as stores of runtimes address them."""
        from tallystick.memory import Items

        services = self._services
        return Items(services.memory, self.actor, self.scope, self._wake_worker)

    @property
    def threads(self) -> Threads:
        """The checkpoint threads of the bound scope."""
        from tallystick.checkpoints import Threads

        return Threads(self._services.checkpoints, self.actor, self.scope)

    @property
    def recordings(self) -> BoundRecordings:
        """What was recorded: runs, steps, receipts, reads and events; verify and replay them."""
        from tallystick.tally.recordings import BoundRecordings

        return BoundRecordings(self)

    @property
    def corrections(self) -> Corrections:
        """What corrects memories: make, modify_many, forget_matching, promote, share."""
        from tallystick.tally.corrections import Corrections

        return Corrections(self)

    @property
    def reviews(self) -> Reviews:
        """The proposals that wait for a person: list, get, decide."""
        from tallystick.tally.reviews import Reviews

        return Reviews(self)

    @property
    def approvals(self) -> BoundApprovals:
        """The actions that wait for a person: list, get, approve, deny, revoke."""
        from tallystick.tally.approvals import BoundApprovals

        return BoundApprovals(self)

    @property
    def jobs(self) -> Jobs:
        """Follow-up work: list, get, retry, cancel."""
        from tallystick.tally.jobs import Jobs

        return Jobs(self)

    @property
    def spaces(self) -> BoundSpaces:
        """The spaces that this actor may see or manage: create, get, list, update; and previews of
        who could read what.
        """
        from tallystick.tally.spaces import BoundSpaces

        return BoundSpaces(self)

    @property
    def tokens(self) -> AccessTokens:
        """The access tokens of this actor: make, list, rotate, revoke."""
        from tallystick.access import AccessTokens

        return AccessTokens(self._services.store, self._services.gate, self.actor)

    @property
    def operator(self) -> Operator:
        """The operator's verbs: erase, prove, purge, freeze, doctor, export, import."""
        from tallystick.tally.operator import Operator

        return Operator(self._services, self.actor, self.scope)

    @property
    def aio(self) -> AsyncBoundTally:
        """The same verbs for `async def` callers, awaited."""
        from tallystick.tally.async_view import AsyncBoundTally

        return AsyncBoundTally(self)
