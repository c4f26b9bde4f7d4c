"""The operator's verbs: erase and prove it, purge, freeze, check, back up, export and import."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from tallystick.access import full_id
from tallystick.embedding import GuardedEmbedder
from tallystick.errors import InvalidInput
from tallystick.memory.change import require_reason
from tallystick.records import (
    Actor,
    Backup,
    ErasedUser,
    Erasure,
    Finding,
    Freezable,
    Limit,
    MemoryId,
    MemoryIds,
    OutboundCall,
    Proof,
    Purge,
    RebuiltIndex,
    Reembedding,
    RunId,
    Scope,
    Sizes,
    StepId,
    Texts,
    Transfer,
    Words,
    checked_arguments,
)
from tallystick.records.arguments import (
    PAGE_BEFORE,
    ConfirmMode,
    ConfirmToken,
    Folder,
    IdempotencyKey,
    OtherScopes,
    Reason,
)
from tallystick.records.identity import ActorName
from tallystick.records.wire import PROCESS_ONLY, Wire
from tallystick.storage.engine.writes import TALLY, Writes
from tallystick.storage.rows.short_ids import IdKind
from tallystick.storage.text.users import User
from tallystick.tally.models import choose_embedder, note_providers
from tallystick.tally.services import Services
from tallystick.upkeep import (
    backup,
    doctor,
    erase,
    erase_user,
    jobs,
    proof,
    retention,
    transfers,
)
from tallystick.upkeep.jobs import list_outbound_calls
from tallystick.upkeep.reembed import EmbeddingAnew
from tallystick.upkeep.retention import Window

Progress = Annotated[Callable[[int, int], None], PROCESS_ONLY]
"""Is told how many are done, and of how many."""
FrozenPart = Annotated[
    Freezable, Field(description="Every change of memory, or autonomous work alone.")
]


@checked_arguments
@dataclass(frozen=True)
class Operator:
    """A tally as one actor may operate it. Thread-safe.

    What an actor may not do is refused by policy, call by call: an actor without the role can still
    prove its own forgetting and export its own scope.
    """

    _services: Services
    actor: Actor
    scope: Scope

    def _full_id(self, kinds: tuple[IdKind, ...], text: str) -> str:
        return full_id(self._services.store, self._services.gate, self.actor, kinds, text)

    def erase(
        self,
        memory_ids: Annotated[
            MemoryId | MemoryIds, Wire(tuple[str, ...]), Field(description="Ids of memories.")
        ],
        *,
        fragments: Annotated[
            Texts,
            Field(
                description="Pieces of their text that names, ids or goals may hold; repeatable."
            ),
        ] = (),
        reason: Reason,
        mode: ConfirmMode = "preview",
        confirm_token: ConfirmToken = None,
        idempotency_key: IdempotencyKey = None,
    ) -> Erasure:
        """Preview, or with the preview's token do, the destruction of memories' text.

        It reaches every copy: shared memories, recorded payloads, names and metadata, and threads
        of checkpoints that contain the text, or one of `fragments`: pieces of it that others may
        have put into names, such as the id of a thread. It cannot be undone. Raises Denied,
        NotFound, InvalidInput, StateConflict, StorageError or IdempotencyMismatch.
        """
        if mode == "preview":
            self._services.gate.admit(self.actor, "preview", self.scope)
        ids = [memory_ids] if isinstance(memory_ids, str) else list(memory_ids)
        if mode == "apply":
            self._services.gate.require_person(self.actor, "delete", self.scope)
            self._services.gate.admit(self.actor, "erase", self.scope, count=len(ids))
        # What waits in the spool is to be reached too.
        self._services.take_spooled()
        with self._services.background.pause():
            return erase.erase(
                self._services.memory,
                self.actor,
                ids,
                fragments=fragments,
                reason=reason,
                mode=mode,
                confirm_token=confirm_token,
                idempotency_key=idempotency_key,
                rebuilt=self._services.drop_caches,
            )

    def erase_user(
        self,
        user: Annotated[ActorName, Field(description="The id under which the user acted.")],
        *,
        organization: Annotated[
            Words | None, Field(description="The organization of the user; by default none.")
        ] = None,
        shared: Annotated[
            erase_user.Shared,
            Field(description="Destroy what the user wrote in shared scopes, or hand it over."),
        ] = "destroy",
        reason: Reason,
        mode: ConfirmMode = "preview",
        confirm_token: ConfirmToken = None,
        idempotency_key: IdempotencyKey = None,
    ) -> ErasedUser:
        """Preview, or with the preview's token do, the erasure of everything of one user.

        It reaches private scopes, memories that the user wrote in shared ones (`shared`), threads,
        runs and their names, working memory, tokens, reviews, approvals and objects. The chained
        journal keeps the id of the user. It cannot be undone. Raises Denied, NotFound,
        InvalidInput, StateConflict, StorageError or IdempotencyMismatch.
        """
        if mode == "preview":
            self._services.gate.admit(self.actor, "preview", self.scope)
        if mode == "apply":
            self._services.gate.require_person(self.actor, "delete", self.scope)
            self._services.gate.admit(self.actor, "erase", self.scope)
        # What waits in the spool is to be reached too.
        self._services.take_spooled()
        with self._services.background.pause():
            return erase_user.erase_user(
                self._services.memory,
                self.actor,
                User(user, organization),
                shared=shared,
                reason=reason,
                mode=mode,
                confirm_token=confirm_token,
                idempotency_key=idempotency_key,
                rebuilt=self._services.drop_caches,
            )

    def erase_recorded(
        self,
        run_id: RunId,
        *,
        step_id: Annotated[
            StepId | None, Field(description="One step; by default all of the run.")
        ] = None,
        reason: Reason,
        mode: Annotated[
            Literal["preview", "apply"], Field(description="Only name the steps, or erase them.")
        ] = "preview",
        idempotency_key: IdempotencyKey = None,
    ) -> list[str]:
        """Preview, or apply, the erasure of what was recorded; return the steps that lose any.

        It covers a run, or one step of it: payloads, names, goal, metadata and summaries. Receipts
        and chain stay and verify; they say that these were erased. It cannot be undone. Raises
        Denied, NotFound, InvalidInput, StorageError, IdempotencyMismatch.
        """
        if mode == "apply":
            self._services.gate.require_person(self.actor, "delete", self.scope)
            self._services.gate.admit(self.actor, "erase", self.scope)
        # What waits in the spool is to be reached too.
        self._services.take_spooled()
        with self._services.background.pause():
            return erase.erase_recorded(
                self._services.memory,
                self.actor,
                run_id,
                step_id=step_id,
                reason=reason,
                mode=mode,
                idempotency_key=idempotency_key,
                rebuilt=self._services.drop_caches,
            )

    def prove_unreachable(self, memory_id: MemoryId) -> Proof:
        """Try every read path for a forgotten or hidden memory, and list the copies that are kept.

        Raises NotFound, and StateConflict while it is not forgotten.
        """
        self._services.gate.admit(self.actor, "inspect", self.scope)
        return proof.prove_unreachable(self._services.memory, self.actor, memory_id)

    def prove_erased(
        self,
        memory_id: MemoryId,
        *,
        text: Annotated[
            str | None, Field(description="The erased text, to search every byte for it.")
        ] = None,
    ) -> Proof:
        """Search for what is left of an erased memory; with `text` in every table and file.

        Without `text` the proof names the search that the erasure made for it (`proof.searched`):
        the tally keeps nothing by which it could search again. Raises Denied and NotFound.
        """
        return erase.prove(self._services.memory, self.actor, memory_id, text)

    def purge(
        self,
        *,
        mode: Annotated[
            Literal["preview", "apply"], Field(description="Only count it, or remove it.")
        ] = "preview",
        reason: Annotated[
            str | None, Field(description="Why it is removed; it is kept in the journal.")
        ] = None,
        idempotency_key: IdempotencyKey = None,
    ) -> Purge:
        """Count, or remove, what is past its window. Nothing within its window is removed; the
        journal says what was, and the `reason`, which that needs.

        Windows are `forget_window_days`, `done_jobs_days`, `dead_jobs_days`, `idempotency_days`,
        and that of the journal, once chosen, which also covers recorded runs and the access log.
        Raises Denied, InvalidInput, StorageError, BusyTally.
        """
        if mode == "apply":
            self._services.gate.require_person(self.actor, "delete", self.scope)
            self._services.gate.admit(self.actor, "erase", self.scope)
        result = retention.purge(
            self._services.memory,
            self.actor,
            self._services.windows,
            mode=mode,
            reason=reason or "",
            idempotency_key=idempotency_key,
        )
        if mode == "apply" and result.runs:
            self._services.drop_caches()
        return result

    def choose_windows(
        self,
        *,
        journal_days: Annotated[
            Window | None,
            Field(description="Days that journals and recorded runs are kept, or keep."),
        ] = None,
        tombstones_days: Annotated[
            Window | None,
            Field(description="Days that the text of forgotten memories is kept, or keep."),
        ] = None,
        done_jobs_days: Annotated[
            Window | None, Field(description="Days that finished jobs are kept, or keep.")
        ] = None,
        dead_jobs_days: Annotated[
            Window | None,
            Field(description="Days that jobs that failed or died are kept, or keep."),
        ] = None,
        idempotency_key: IdempotencyKey = None,
    ) -> None:
        """Choose after how many days things go by themselves, or `"keep"`; None leaves a window.

        `journal_days` is for journal entries, recorded runs and the access log, `tombstones_days`
        for the text of forgotten memories, the others for jobs that are done, and that failed or
        died. The choice is the tally's, for every process. Raises Denied, InvalidInput,
        IdempotencyMismatch.
        """
        self._services.gate.require_person(self.actor, "manage", self.scope)
        retention.choose_windows(
            self._services.memory,
            self.actor,
            journal=journal_days,
            tombstones=tombstones_days,
            done_jobs=done_jobs_days,
            dead_jobs=dead_jobs_days,
            idempotency_key=idempotency_key,
        )

    def outbound_calls(
        self,
        *,
        purpose: Annotated[
            Literal["learn", "summarize", "draft", "call"] | None,
            Field(description="learn, summarize or call; by default any."),
        ] = None,
        limit: Annotated[Limit, Field(description="Calls at most.")] = 50,
        before: Annotated[Words | None, PAGE_BEFORE] = None,
    ) -> list[OutboundCall]:
        """List the calls of models that Tallystick made, to learn, to summarize or for callers from
        outside (`call`), newest first and without the text that they were about: for an operator of
        every scope, else of the bound one.

        `purpose` is one of these, by default any; give the last id of a page
        as `before` for the next one. Raises Denied, NotFound.
        """
        return list_outbound_calls(
            self._services.memory,
            self.actor,
            self.scope,
            purpose=purpose,
            limit=limit,
            before=before,
        )

    def doctor(
        self,
        *,
        repair: Annotated[bool, Field(description="Mend what can be mended.")] = False,
        reason: Annotated[
            str | None, Field(description="Why it is repaired; it is kept in the journal.")
        ] = None,
    ) -> tuple[Finding, ...]:
        """Check the tally and return what is wrong or needs attention; `repair` mends it, and the
        journal says what and the `reason`, which it needs. Raises Denied, InvalidInput.
        """
        return doctor.diagnose(
            self._services.memory,
            self._services.background,
            self.actor,
            self._services.windows,
            has_owner=self._services.owner is not None,
            repair=repair,
            reason=reason or "",
        )

    def sizes(self) -> Sizes:
        """Return where the bytes of the tally are, by kind. Raises Denied."""
        return doctor.measure(self._services.memory, self.actor)

    def rebuild_index(
        self, *, reason: Reason, progress: Progress = lambda finished, total: None
    ) -> RebuiltIndex:
        """Make Chroma and what recall analysed anew from the database, and let the graph read all
        texts anew; return the number of vectors. The journal says so, and why.

        Nothing is lost by it, and recall goes on meanwhile. `progress` is called with the number of
        vectors finished and the total. Raises Denied, InvalidInput, and StorageError where another
        process owns Chroma.
        """
        memory = self._services.memory
        retention.require_operator(memory, self.actor)
        require_reason(reason)
        rebuilt = self._services.background.rebuild(progress)
        details = {"chroma": rebuilt.chroma}
        memory.store.database.write(
            lambda tx: jobs.note_repair(
                tx, memory, self.actor, "index.rebuild", details, reason=reason
            ),
            name="index.rebuild",
            writes=Writes.of(TALLY),
        )
        return rebuilt

    def reembed(
        self,
        embedder: Annotated[
            Any,
            Wire(str | None),
            Field(description="Such as openai:text-embedding-3-small; by default the tally's own."),
        ] = None,
        *,
        mode: Annotated[
            Literal["preview", "apply"], Field(description="Say what it takes, or do it.")
        ] = "preview",
        progress: Progress = lambda finished, total: None,
        is_pausing: Annotated[Callable[[], bool], PROCESS_ONLY] = lambda: False,
    ) -> Reembedding:
        """Say what embedding every text takes, or do it: by the tally's own embedder, or by another
        one, given as `Tally.open` takes it, whose vectors are stored beside those by which the
        tally recalls until it is opened with it.

        Each page is kept as it is done: a call that was paused by `is_pausing`, cut off or killed
        is made again, and goes on there. What a person calls this with is the consent to send text
        to it, which is journaled. Raises Denied, InvalidInput, MissingExtra, SettingsError, and
        EmbeddingError where the embedder is away from the beginning.
        """
        services = self._services
        chosen = services.embedder
        if embedder is not None:
            chosen = GuardedEmbedder(choose_embedder(embedder, services.settings))
        anew = EmbeddingAnew(services.memory, chosen, self.actor)
        if mode == "apply":
            names = [] if chosen.local else [f"embedder:{chosen.name}"]
            note_providers(services.store, names, self.actor)
            return anew.apply(progress, is_pausing)
        model = chosen.name.partition(":")[2]
        return anew.preview(services.counter(model or None), services.prices)

    def freeze(
        self,
        *,
        reason: Reason,
        what: FrozenPart = "mutations",
        idempotency_key: IdempotencyKey = None,
    ) -> None:
        """Suspend every change of memory by anybody (`mutations_frozen`) until `thaw`; or with
        `what="autonomy"` the work alone that nobody asked for, such as learning
        (`autonomy_frozen`), which then waits.

        Recall goes on, and runs and checkpoints are recorded. Raises Denied, IdempotencyMismatch.
        """
        self._services.gate.freeze(
            self.actor, frozen=True, reason=reason, what=what, idempotency_key=idempotency_key
        )

    def thaw(
        self,
        *,
        reason: Reason,
        what: FrozenPart = "mutations",
        idempotency_key: IdempotencyKey = None,
    ) -> None:
        """Allow changes of memory, or autonomous work, again. Raises Denied,
        IdempotencyMismatch.
        """
        self._services.gate.freeze(
            self.actor, frozen=False, reason=reason, what=what, idempotency_key=idempotency_key
        )

    def export(
        self,
        folder: Annotated[
            Folder | None, Field(description="A new folder; a preview needs none.")
        ] = None,
        *,
        scopes: OtherScopes = None,
        mode: Annotated[
            Literal["preview", "apply"], Field(description="Only count it, or write it.")
        ] = "apply",
        progress: Progress = lambda done, total: None,
    ) -> Transfer:
        """Write everything of the bound scope, or of `scopes`, to a new folder.

        The folder has JSON lines and blobs with their digests. It contains text in the clear and
        the keys of its digests: protect it as you protect the tally. A preview needs no folder and
        counts what would be written. `progress` is called with the rows that were written and how
        many there are. Raises Denied, InvalidInput, StorageError.
        """
        gate, services = self._services.gate, self._services
        named = [self.scope] if scopes is None else [self.actor.home(scope) for scope in scopes]
        exported = list(dict.fromkeys(named))
        if mode == "preview":
            gate.admit(self.actor, "preview", self.scope)
            with gate.journaling(self.actor):
                return transfers.preview_export(services.memory, self.actor, exported)
        if folder is None:
            raise InvalidInput("Name a new folder to export into, or only preview it.")
        gate.admit(self.actor, "export", self.scope)
        return transfers.export(
            services.memory, self.actor, exported, Path(folder), progress=progress
        )

    def backup(self, folder: Annotated[Folder, Field(description="A new folder.")]) -> Backup:
        """Write the whole tally as it is now to a new folder, while others read and write.

        The manifest in it has the digest of every file, the rows of every table and the heads of
        every chain. It contains text in the clear and the keys of its digests: protect it as you
        protect the tally. `Tally.restore` brings it back. Raises Denied, InvalidInput,
        StorageError.
        """
        gate = self._services.gate
        gate.admit(self.actor, "export", self.scope)
        gate.flush()
        return backup.backup(self._services.memory, self.actor, Path(folder))

    def import_from(
        self,
        folder: Annotated[Folder, Field(description="The folder of an export.")],
        *,
        idempotency_key: IdempotencyKey = None,
        progress: Progress = lambda done, total: None,
    ) -> Transfer:
        """Import an export into this tally, all or nothing: every digest is checked first, and
        every row, chain and text before it is committed.

        Recall, history and `verify` are then as they were, but for secrets, which are replaced in
        memories and named in `warnings`. Nothing is overwritten: a scope that is
        here already refuses the import. A call that was cut off leaves nothing and is made again.
        `progress` is called with the rows that were read and how many there are. Raises Denied,
        InvalidInput, StateConflict, CorruptTally, NewerTally, UnreleasedTally, IdempotencyMismatch.
        """
        try:
            result = transfers.import_from(
                self._services.memory,
                self.actor,
                Path(folder),
                idempotency_key=idempotency_key,
                progress=progress,
            )
        finally:
            self._services.drop_caches()
            self._services.wake()
        return result
