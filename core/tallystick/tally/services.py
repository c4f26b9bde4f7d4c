"""Services: everything an opened tally is wired from, built once and private to the core.

Verbs and the adapter kit reach a dependency through `services_of`; adapters and applications use
the verbs of `BoundTally`.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypedDict

from pydantic import SkipValidation

from tallystick.access import Gate
from tallystick.embedding import GuardedEmbedder
from tallystick.errors import (
    EmbeddingError,
    RecorderError,
    SettingsError,
    StorageError,
    TallystickError,
)
from tallystick.extension import Extension, load_extensions
from tallystick.logs import get_logger
from tallystick.memory import MemoryContext
from tallystick.policy.engines import KingfisherFinder
from tallystick.policy.redaction import Finder, Redactor
from tallystick.policy.rules import ToolClassSource
from tallystick.ports import Clock, Ids, Models, Reranker, TokenCounter
from tallystick.ranking import RecallWeights
from tallystick.ranking.analyses import ANALYSES
from tallystick.recorder import RecorderContext, recover_interrupted_runs
from tallystick.records import Actor, CallContext, PolicyRule, tuple_of
from tallystick.settings import Settings
from tallystick.storage import ChromaIndex, Location, Store
from tallystick.storage.engine.forks import abandon
from tallystick.storage.engine.writes import TALLY, Writes
from tallystick.storage.index.chroma import state_of
from tallystick.storage.index.corpus_cache import CorpusCache
from tallystick.storage.index.segment_files import SegmentFiles
from tallystick.storage.rows import settings_rows
from tallystick.tally.call_rules import CallRules
from tallystick.tally.captured_turns import CapturedTurns
from tallystick.tally.compile_requests import CompileRequests
from tallystick.tally.models import (
    DrafterLike,
    LearnerLike,
    SummarizerLike,
    choose_embedder,
    choose_models,
    choose_reranker,
    given_models,
    note_consent,
    outbound_of,
)
from tallystick.tally.operation_meter import OperationMeter
from tallystick.tally.session_turns import Sessions
from tallystick.tokens import counter_for
from tallystick.tokens.prices import PriceTable
from tallystick.upkeep.unfinished import finish_erasure

if TYPE_CHECKING:
    from tallystick.checkpoints import CheckpointsContext
    from tallystick.jobs import Background, Handler
    from tallystick.ranking import WorkingSets
    from tallystick.recorder.outbound import Outbound
    from tallystick.upkeep.retention import RetentionHandler, Windows

_DAY_US = 24 * 3600 * 1_000_000
_OWNER = "owner"
_TALLY_ID = "tally_id"
_HOUR, _MINUTE = 3_600.0, 60.0
_READS_AFTER = 5.0
"""Seconds that reads wait in memory for the access log, in a process with its background."""
_RETENTION_AFTER = 30.0
"""Seconds after the opening at which retention is looked at: a process that ends before does that
when it closes the tally.
"""
_RETENTION_AT_CLOSE = 2.0
"""Seconds that retention takes at most when a tally is closed."""


class _Wired(Protocol):
    """A tally, or a view of one."""

    @property
    def _services(self) -> Services: ...


def services_of(tally: _Wired) -> Services:
    """Return the wiring behind a tally or a view of one. For the core and its adapter kit alone."""
    return tally._services


class OpenOptions(TypedDict, total=False):
    """What `Tally.open` takes beside the place and the owner."""

    settings: Settings | None
    """The configuration; by default that of the environment and of the folder."""
    create: bool
    """False raises TallyNotFound where there is no tally yet."""
    background: bool
    """False starts no thread: follow-up work is done by `Tally.drain`."""
    embedder: Any
    """The name of one, such as `ollama:nomic-embed-text`; or an Embedder, a Chroma
    EmbeddingFunction, a LangChain Embeddings, a PydanticAI Embedder or a LlamaIndex BaseEmbedding;
    the default works offline.
    """
    chroma: str | None
    """The address of a Chroma server."""
    schema: str
    """The schema of a PostgreSQL tally; by default that of its URL (`?schema=`), or
    `tallystick`.
    """
    rules: Annotated[Sequence[PolicyRule], tuple_of(PolicyRule)]
    """Rules over what goes into a context, and over the calls of agents."""
    tool_classes: Annotated[Mapping[str, ToolClassSource] | None, SkipValidation]
    """What each tool may do, by its name."""
    secret_finders: Annotated[Sequence[Finder], tuple_of(Finder)]
    """Engines of your own that find what to redact in a text."""
    actor_from: Callable[[CallContext], Actor | None] | None
    """Says for every piece of every runtime who acts in a call; by default it is read from the
    places where the runtime carries identity.
    """
    owner_fallback: bool
    """True lets the owner act for calls that name nobody, also once a runtime has named another
    user: else they are refused with `missing_actor`.
    """
    weights: RecallWeights | None
    """How recall ranks, before the setting `recall_weights`."""
    reranker: Reranker | str | None
    """Orders the best hits of recall anew, if it answers in time; or the name of one, such as
    `fastembed:Xenova/ms-marco-MiniLM-L-6-v2`.
    """
    learning_model: Annotated[
        LearnerLike | str | Sequence[LearnerLike | str] | None, SkipValidation
    ]
    """What learns, where the setting `learning` is on: the name of a model, such as `ollama:qwen3`,
    a model of a runtime's adapter, or a Learner; of several the next is asked where one is away.
    """
    summarizer: Annotated[SummarizerLike | None, SkipValidation]
    """Says what each community of the graph is about, where the setting `graph` is on, and shortens
    memories for compiles with `compaction="summary"`.
    """
    drafter: Annotated[DrafterLike | None, SkipValidation]
    """Drafts the sections of a synthesis where a call asks for it, from packs alone: a model of a
    runtime's adapter, or a Drafter.
    """
    clock: Clock | None
    """Tells the time."""
    ids: Ids | None
    """Makes the ids."""


class Services:
    """The dependencies of an opened tally. Thread-safe."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        owner: Actor | None,
        options: OpenOptions,
    ) -> None:
        """Wire the rooms on an open store, recover what a dead process left, start the worker."""
        embedder, background = options.get("embedder"), options.get("background", True)
        self.store = store
        self._guard = threading.RLock()
        self._counters: dict[str | None, TokenCounter] = {}
        self.closing: list[Callable[[], object]] = []
        """Called when the tally is closed, before anything of it is."""
        self.take_spooled: Callable[[], int] = lambda: 0
        """Takes what waits in the spool; set by the tally, through which it goes."""
        self.settings = settings
        self.zone = settings.zone
        """The time zone of moments that are given without an offset."""
        self.owner = owner
        self.actor_from = options.get("actor_from")
        self.owner_fallback = options.get("owner_fallback", False)
        self.rules = tuple(options.get("rules", ()))
        finders = _finders(settings, options.get("secret_finders", ()))
        remote_redactor = Redactor(pii=True, terms=settings.redact_terms, finders=finders)
        self.call_rules = CallRules(
            self.rules,
            options.get("tool_classes") or {},
            store=store,
            environment=settings.environment,
            redactor=remote_redactor,
        )
        self.gate = Gate(store, limits=settings.rate_limits)
        self.meter = OperationMeter(store.database, store.clock)
        self.embedder = GuardedEmbedder(choose_embedder(embedder, settings))
        self._index = _Index(store, settings, self.embedder)
        self.prices = None if settings.prices is None else PriceTable.read(settings.prices)
        """The user's own table of prices."""
        self.extensions: tuple[Extension[Any], ...] = load_extensions()
        given = Models(
            given_models(options.get("learning_model")),
            options.get("summarizer"),
            options.get("drafter"),
        )
        models = choose_models(settings, self.extensions, given, self.prices)
        redactor = Redactor(
            pii=settings.redact_pii,
            terms=settings.redact_terms,
            finders=finders,
        )
        self.memory = MemoryContext(
            store=store,
            gate=self.gate,
            embedder=self.embedder,
            open_index=self._index,
            local_embedder=self.embedder.local,
            vector_search=settings.vector_search,
            weights=options.get("weights") or settings.recall_weights,
            reranker=choose_reranker(options.get("reranker"), settings),
            rerank_deadline_ms=settings.rerank_deadline_ms,
            corpora=CorpusCache(
                most_bytes=settings.recall_cache_mb * 1024 * 1024,
                database=store.database,
                large_scope=settings.large_scope,
                files=_segment_files(store),
                background=background,
            ),
            forget_window_us=settings.forget_window_days * _DAY_US,
            override_us=settings.manual_override_days * _DAY_US,
            longest_memory_kb=settings.longest_memory_kb,
            forget_batch=settings.forget_batch,
            forget_preview_only=settings.forget_preview_only,
            redactor=redactor,
            remote_redactor=remote_redactor,
            secrets_in_memory=settings.secrets_in_memory,
            settings=settings,
            models=models,
            extensions=self.extensions,
        )
        self.captured_turns = CapturedTurns()
        self.sessions = Sessions()
        self.compile_requests = CompileRequests()
        self.recorder = RecorderContext(
            store=store,
            gate=self.gate,
            redactor=redactor,
            retention=settings.retention,
            prices=self.prices,
            zone=self.zone,
        )
        if store.database.unwritable is None:
            recover_interrupted_runs(self.recorder)
        note_consent(store, self.memory, owner or Actor(user="tallystick", surface="open"))
        self.handlers: Callable[[], list[Handler]] = list
        """Makes those who carry out jobs by the verbs of the tally; set by the tally."""
        self._background: Background | None = None
        self._checkpoints: CheckpointsContext | None = None
        self._works = background
        self.call_rules.note(owner or Actor(user="tallystick", surface="open"))
        weakref.finalize(self, store.location.remove_temporary)
        if store.database.unwritable is None:
            self._finish_erasure()
        # Held by the store: not to keep the services alive.
        store.database.on_fork(partial(_abandon, weakref.ref(self)))

    def start(self) -> None:
        """Start the worker, in a process that has one."""
        if self._works and self.store.database.unwritable is None:
            self.background.worker().start()

    @property
    def background(self) -> Background:
        """The follow-up work of the tally, wired when it is first asked for: most commands and
        hooks leave it to a process that works.
        """
        with self._guard:
            if self._background is None:
                self._background = self._wire_background()
            return self._background

    def _wire_background(self) -> Background:
        from tallystick.jobs import Background, Chore
        from tallystick.jobs.item_summaries import ItemSummaries, ItemSummaryHandler
        from tallystick.upkeep.retention import enqueue_retention

        background = Background(
            self.memory,
            [
                self._retention,
                *self.handlers(),
                ItemSummaryHandler(self.memory, self.outbound),
                *(
                    handler
                    for extension in self.extensions
                    for handler in extension.handlers(self.memory, self.outbound)
                ),
            ],
            derived=[
                ItemSummaries(self.memory),
                *(
                    derived
                    for extension in self.extensions
                    for derived in extension.derived(self.memory)
                ),
            ],
            chores=[
                Chore(partial(self.gate.flush, wait=False), _READS_AFTER),
                Chore(lambda: enqueue_retention(self.memory), _HOUR, first=_RETENTION_AFTER),
                Chore(self.meter.flush, _MINUTE, first=_MINUTE),
                Chore(self._finish_erasure, _MINUTE, first=_MINUTE),
                Chore(lambda: recover_interrupted_runs(self.recorder), _MINUTE, first=_MINUTE),
                Chore(lambda: self.take_spooled(), _MINUTE, first=_MINUTE),
            ],
            eager=self.settings.vector_search == "chroma" or bool(self.settings.chroma),
        )
        for extension in self.extensions:
            background.add_chores(extension.chores(self.memory, background))
        return background

    @property
    def index(self) -> ChromaIndex | None:
        """The index of vectors, where there is one."""
        return self._index()

    @property
    def checkpoints(self) -> CheckpointsContext:
        """The checkpoints of the tally, wired when they are first asked for."""
        with self._guard:
            if self._checkpoints is None:
                from tallystick.checkpoints import CheckpointsContext

                self._checkpoints = CheckpointsContext(self.store, self.gate)
            return self._checkpoints

    @cached_property
    def outbound(self) -> Outbound:
        """The way to the models of the tally."""
        return outbound_of(
            self.memory, self.settings, self.recorder, prices=self.prices, counter=self.counter
        )

    @cached_property
    def working_sets(self) -> WorkingSets:
        """The relevance of what a request has for a model, wired when it is first asked for."""
        from tallystick.ranking import WorkingSets

        return WorkingSets(
            self.embedder, weights=self.memory.weights, word_vectors=self.memory.word_vectors
        )

    def wake(self) -> None:
        """Let the workers of this process, if it has any, look for work at once."""
        if self._background is not None:
            self._background.wake()

    def keep_retention(self) -> None:
        """Carry out the retention of this day where no process has, for two seconds at most: else
        it would never reach a tally of hooks and scripts alone.
        """
        from tallystick.upkeep.retention import RETENTION, enqueue_retention

        self._retention.until = time.monotonic() + _RETENTION_AT_CLOSE
        try:
            if (job_id := enqueue_retention(self.memory)) is not None:
                self.background.run_one(job_id, RETENTION)
        except StorageError as error:
            get_logger("upkeep").warning("retention.left", error=type(error).__name__)
        finally:
            # The background of a process that goes on takes as long as it needs.
            self._retention.until = None

    def _finish_erasure(self) -> None:
        """Rewrite the files where an erasure was cut off; the background tries again where others
        use them.
        """
        try:
            finish_erasure(self.memory)
        except StorageError as error:
            get_logger("upkeep").warning("erase.unfinished", error=type(error).__name__)

    @cached_property
    def _retention(self) -> RetentionHandler:
        from tallystick.upkeep.retention import RetentionHandler

        return RetentionHandler(self.memory, lambda: self.windows, self.drop_caches)

    @property
    def windows(self) -> Windows:
        """The retention windows of the settings, in days."""
        from tallystick.upkeep.retention import windows_of

        return windows_of(self.settings)

    def counter(self, model: str | None) -> TokenCounter:
        """Return the token counter for `model`, created once."""
        with self._guard:
            if model not in self._counters:
                folder = self.settings.token_cache or _token_folder(self.store.location)
                self._counters[model] = counter_for(
                    model, cache_dir=folder, allow_download=self.settings.allow_download
                )
            return self._counters[model]

    def drop_caches(self) -> None:
        """Drop all text that is cached in memory for speed; it is read anew when it is needed."""
        self.memory.corpora.drop()
        self.memory.corpora.remove_erased()
        ANALYSES.clear()
        vars(self).pop("working_sets", None)
        self.recorder.clear_caches()

    def close(self) -> None:
        """Write what is still in memory, then close every part. Closing twice is allowed; a forked
        child leaves everything to its parent.
        """
        if self.store.database.closed:
            return
        if self.store.database.is_inherited:
            self.store.database.close()
            return
        works = self._works and self.store.database.unwritable is None
        parts = [
            *self.closing,
            self.recorder.close_subscriptions,
            *([] if self._background is None else [self._background.stop]),
            *([self.keep_retention] if works else []),
            self.memory.corpora.drop,
            self.gate.flush,
            self.meter.flush,
            self._index.close,
            self.store.database.close,
            self.recorder.close,
            # After the last write, which may have been the first of a run and so have taken it.
            self.store.liveness.close,
            self.store.location.remove_temporary,
        ]
        failures: list[TallystickError] = []
        for close in parts:
            try:
                close()
            except TallystickError as error:
                failures.append(error)
        if failures:
            # What is lost of a recording says more than what else could not be written.
            losses = [error for error in failures if isinstance(error, RecorderError)]
            raise (losses or failures)[0]


def _abandon(services: weakref.ref[Services]) -> None:
    """Let every use of an inherited tally, and of the runs recorded in it, raise ForkedTally."""
    inherited = services()
    if inherited is not None:
        recorder = inherited.recorder
        abandon(recorder)
        abandon(inherited, readable=frozenset({"close", "owner", "settings", "store"}))


def record_owner(store: Store, owner: Actor | None) -> Actor | None:
    """Return the owner of an embedded tally, recording it when the tally is new.

    Projects of the recorded owner may be renewed, the user may not. A PostgreSQL tally has the
    owner that is given. Raises SettingsError.
    """
    if not store.location.is_embedded:
        return owner
    with store.database.read() as connection:
        text = settings_rows.get_setting(connection, _OWNER)
    recorded = None if text is None else Actor.loads(text)
    if recorded is not None and (owner is None or owner == recorded):
        return recorded
    if recorded is not None and owner is not None and owner.user != recorded.user:
        raise SettingsError(
            f"This tally belongs to {recorded.user}. Open it without `owner`, and bind other "
            "actors with tally.bind(…)."
        )
    new_owner = owner or Actor(user="local", role="operator")
    tally_id = store.ids.new()

    def unit(tx: Any) -> None:
        settings_rows.set_setting(tx, _OWNER, new_owner.dumps())
        if settings_rows.get_setting(tx, _TALLY_ID) is None:
            settings_rows.set_setting(tx, _TALLY_ID, tally_id)

    store.database.write_if_possible(unit, name="tally.owner", writes=Writes.of(TALLY))
    return new_owner


def _finders(settings: Settings, finders: Iterable[Finder]) -> list[Finder]:
    return [*finders, *([KingfisherFinder()] if settings.secret_engine == "kingfisher" else [])]


def _segment_files(store: Store) -> SegmentFiles | None:
    """Return the files of an embedded tally in which recall keeps what it analysed."""
    folder = store.location.folder
    if folder is None or store.database.unwritable is not None:
        return None
    with store.database.read() as connection:
        tally_id = settings_rows.get_setting(connection, _TALLY_ID)
    return None if tally_id is None else SegmentFiles(folder, tally_id)


class _Index:
    """The index for the vectors of an embedder, opened when it is first asked for: its name is the
    fingerprint of the embedder, for which the default one reads its files.
    """

    def __init__(self, store: Store, settings: Settings, embedder: GuardedEmbedder) -> None:
        self._store, self._settings, self._embedder = store, settings, embedder
        self._guard = threading.Lock()
        self._opened: list[ChromaIndex | None] = []

    def __call__(self) -> ChromaIndex | None:
        """Return the index; None where there is none, and where the embedder is away or not
        installed: then words and structure find, until the tally is opened anew.
        """
        with self._guard:
            if not self._opened:
                self._opened.append(self._open())
            return self._opened[0]

    def _open(self) -> ChromaIndex | None:
        store, server = self._store, self._settings.chroma
        try:
            fingerprint = self._embedder.fingerprint
        except EmbeddingError:
            return None
        with store.database.read() as connection:
            layout = state_of(connection, fingerprint).layout
        folder = store.location.folder if server is None else None
        if server is None and (folder is None or store.database.unwritable is not None):
            # Chroma writes where it is only asked. The database answers by itself.
            return None
        return ChromaIndex(
            fingerprint, database=store.database, folder=folder, server=server, layout=layout
        )

    def close(self) -> None:
        """Close the index if it was opened."""
        for index in self._opened:
            if index is not None:
                index.close()


def _token_folder(location: Location) -> Path:
    if location.folder is not None:
        return location.folder / "tokens"
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "tallystick" / "tokens"
