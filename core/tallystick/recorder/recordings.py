"""Recordings: start, read, follow, verify and replay the runs that one actor may see."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Annotated, Any, NamedTuple, TypeVar

from pydantic import Field

from tallystick.access import full_id, visible_docs
from tallystick.aio import on_event_loop
from tallystick.errors import CorruptTally, InvalidInput, NotFound, ReadOnlyTally
from tallystick.ports import TokenCounter
from tallystick.recorder.answers import (
    candidates_of,
    changes_in,
    diff_steps,
    provenance,
    quotes_of,
    uses_of,
)
from tallystick.recorder.context import RecorderContext
from tallystick.recorder.payloads import DOMAIN, metadata_of, storable_text, unseal
from tallystick.recorder.receipts import receipt_about, receipts_of, with_texts
from tallystick.recorder.replay import Call, Render, Replayed, neutral_request, recipe_for, replay
from tallystick.recorder.run import Run
from tallystick.recorder.signing import sign
from tallystick.recorder.subscriptions import MAX_WAITING, Listener, Subscription
from tallystick.recorder.tape import Player, tape_of
from tallystick.recorder.verify import Stored, verify
from tallystick.records import (
    MOST_RESULTS,
    Actor,
    CompilationRequest,
    CompiledContext,
    ContextCandidate,
    Count,
    EntryKind,
    Foil,
    IdOf,
    JsonObject,
    MemoryId,
    MemoryUse,
    PrefixReuse,
    Provenance,
    Receipt,
    RecordedWrite,
    ReplayRecipe,
    ReplayResult,
    Retention,
    RunId,
    RunRecord,
    Scope,
    SourceRef,
    StepDiff,
    StepEntry,
    StepId,
    StepRecord,
    Tape,
    Texts,
    Verification,
    checked_arguments,
    commitment,
    is_storable,
    require_length,
    tuple_of,
)
from tallystick.storage import Connection
from tallystick.storage.rows import journal, parts, recordings, scopes, sources
from tallystick.storage.rows.journal import run_stream
from tallystick.storage.rows.payloads import Payloads
from tallystick.storage.rows.short_ids import IdKind

ErrorTypes = Annotated[Sequence[type[Exception]], tuple_of(type[Exception])]
R = TypeVar("R", Run, RunRecord)
RunOrStepId = Annotated[str, IdOf("run", "step")]

_MAX_GOAL = 500
"""Characters of a goal that are kept."""


class RecordedCompile(NamedTuple):
    """A compile as its step recorded it."""

    request: CompilationRequest
    compiled: CompiledContext


class EntrySummary(NamedTuple):
    """The summary of an entry of a step, without its payload."""

    kind: EntryKind
    summary: JsonObject
    redactions: dict[str, int]


class StepPrefixReuse(NamedTuple):
    """How much of a step's prompt begins like the prompt before."""

    step_id: str
    reuse: PrefixReuse


@checked_arguments
class Recordings:
    """The recordings of one tally as one actor sees them: the runs of its scopes, or of all scopes
    for an operator.
    """

    def __init__(
        self,
        context: RecorderContext,
        actor: Actor,
        *,
        counter: Callable[[str | None], TokenCounter],
    ) -> None:
        self._context = context
        self._actor = actor
        self._counter = counter
        self._journaled: set[str] = set()
        """Runs and steps of others whose reading is in the journal already."""

    def start_run(
        self,
        agent_name: str,
        *,
        scope: Scope,
        domain: str | None = None,
        goal: str | None = None,
        metadata: JsonObject | None = None,
        run_id: str | None = None,
        retention: Retention | None = None,
    ) -> Run:
        """Start a run in `scope`; use it as a `with` block, or call its `end`. Raises Denied, and
        InvalidInput for the id of another run; on an event loop a refusal that depends on what is
        stored comes with the end of the run.

        Of `goal` the first 500 characters are kept, under `redacted_payloads` without secrets,
        under `metadata_only` nothing; halves of characters are replaced.
        """
        # On an event loop no database is read: the transaction that stores the run decides then.
        unconfirmed = on_event_loop() and self._context.gate.needs_stored_state(self._actor, scope)
        if not unconfirmed:
            self._context.gate.require_early(self._actor, "record", scope)
        effective_retention = retention or self._context.retention
        if goal is not None and effective_retention == "redacted_payloads":
            goal, _ = self._context.redactor.redact_text(goal)
        # Cut after redaction: no rule recognises half a secret.
        goal = None if goal is None else storable_text(goal[:_MAX_GOAL])
        facts = self._context.payloads.redact_facts(
            {"agent_name": agent_name, "domain": domain, "metadata": metadata_of(metadata)},
            effective_retention,
        )
        agent_name, domain = facts["agent_name"], facts["domain"]
        for argument, text in (("agent_name", agent_name), ("domain", domain), ("run_id", run_id)):
            require_length(argument, text)
        if run_id is not None and not is_storable(run_id):
            raise InvalidInput(
                "`run_id` has half a character or NUL, which no id has.", argument="run_id"
            )
        if run_id is not None and not on_event_loop():
            with self._read() as connection:
                if recordings.find_run(connection, run_id) is not None:
                    raise InvalidInput(
                        "`run_id`: a run of this id was recorded already. Leave it out for a new "
                        "one."
                    )
        record = RunRecord(
            id=run_id or self._context.store.ids.new(),
            scope=scope,
            agent_name=storable_text(agent_name),
            domain=None if domain is None else storable_text(domain),
            goal=None if effective_retention == "metadata_only" else goal,
            started_at=self._context.store.clock.now(),
            retention=effective_retention,
            metadata=facts["metadata"],
        )
        return Run(self._context, self._actor, record, unconfirmed=unconfirmed)

    def require_record(self, run: R) -> R:
        """Return a run in whose scope this actor may record. Each call asks the gate, because the
        run may have been started with more rights. Raises Denied, and NotFound for a run that the
        actor may not see, as for none.
        """
        gate, scope = self._context.gate, run.scope
        if gate.require_or_none(self._actor, "record", scope) is None:
            self.run(run.id)
            gate.require(self._actor, "record", scope)
        return run

    def _full_id(self, kinds: tuple[IdKind, ...], text: str) -> str:
        return full_id(self._context.store, self._context.gate, self._actor, kinds, text)

    def subscribe(self, listener: Listener, *, max_waiting: int = MAX_WAITING) -> Subscription:
        """Call `listener` with each run that starts or ends and each step that ends, after the
        commit, until the subscription is closed or the tally is.

        Only what this process records in scopes that the actor may inspect is passed. The listener
        runs on a thread of its own and may read the tally. While `max_waiting` events wait for it,
        further ones are dropped and counted in `Subscription.missed`; exceptions that it raises are
        logged and counted in `failures`.
        """
        return self._context.subscriptions.add(listener, self._may_inspect, max_waiting=max_waiting)

    def runs_of(
        self, scopes: list[Scope], *, limit: Count = 20, before: RunId | Count | None = None
    ) -> list[RunRecord]:
        """Return the runs in those of `scopes` that the actor may inspect, newest first.

        Give the last id of a page as `before` for the next one, or a time (microseconds UTC) for
        those that started before it. Raises NotFound for an unknown run.
        """
        with self._read() as connection:
            allowed = [scope for scope in scopes if self._may_see(connection, scope)]
            last = self._find_run(connection, before).record if isinstance(before, str) else before
            return recordings.list_runs(connection, allowed, limit=limit, before=last)

    def run(self, run_id: RunId) -> RunRecord:
        """Return one run. Raises NotFound for hidden and absent runs alike."""
        with self._read() as connection:
            return self._find_run(connection, run_id).record

    def steps(
        self,
        run_id: RunId,
        *,
        after: Annotated[
            Count | None, Field(description="The last index of the page before.")
        ] = None,
        limit: Annotated[
            int | None, Field(description="Steps at most.", ge=1, le=MOST_RESULTS)
        ] = None,
    ) -> list[StepRecord]:
        """Return the steps of a run, in the order in which they started, or a page of them. Raises
        NotFound.

        Give the index of the last step of a page as `after` for the next one.
        """
        with self._read() as connection:
            self._find_run(connection, run_id)
            return recordings.steps_of(connection, run_id, after=after, limit=limit)

    def step_counts(self, runs: Sequence[RunRecord]) -> dict[str, int]:
        """Return the number of steps of each of these runs, which `runs_of` has returned."""
        with self._read() as connection:
            return recordings.count_steps(connection, [run.id for run in runs])

    def step(self, step_id: StepId) -> StepRecord:
        """Return one step. Raises NotFound."""
        with self._read() as connection:
            return self._find_step(connection, step_id)[0]

    def find(self, fragment: RunOrStepId) -> RunRecord | StepRecord:
        """Return the run or step whose id is `fragment`, or begins or ends with it (6 characters
        do).

        Raises NotFound if the actor may see none, InvalidInput if there are several.
        """
        for find in (self.run, self.step):
            with suppress(NotFound):
                return find(fragment)
        raise NotFound(f"There is no run or step {fragment} that {self._actor.user} may see.")

    def steps_of_task(self, task_id: str) -> list[StepRecord]:
        """Return the steps that were recorded in a task of a graph and that the actor may see."""
        with self._read() as connection:
            step_ids = recordings.steps_of_task(connection, task_id)
        visible: list[StepRecord] = []
        for step_id in step_ids:
            try:
                visible.append(self.step(step_id))
            except NotFound:
                continue
        return visible

    def receipts(self, run_id: RunId) -> list[Receipt]:
        """Return the receipts of a run, in the order of its chain. Raises NotFound."""
        with self._read() as connection:
            self._find_run(connection, run_id)
            return receipts_of(connection, run_id)

    def receipt(self, step_id: StepId) -> Receipt:
        """Return the receipt of one step. Raises NotFound, also while the step is running."""
        with self._read() as connection:
            step, _, _ = self._find_step(connection, step_id)
            receipt = receipt_about(connection, step.run_id, step_id)
        if receipt is None:
            raise NotFound(f"Step {step_id} has no receipt: it has not ended.")
        return receipt

    def entries(self, step_id: StepId) -> list[StepEntry]:
        """Return the entries of a step, with the payloads that are kept. An operator's look at
        what others recorded is journaled. What placeholders stand for is opened for a person, and
        stays sealed for an agent. Raises NotFound, CorruptTally.
        """
        with self._read() as connection:
            _, run, scope_id = self._find_step(connection, step_id)
            payloads = Payloads(connection)
            rows = [_entry(payloads, row) for row in recordings.entries_of(connection, step_id)]
            if self._actor.agent is None:
                secret = scopes.get_by_id(connection, scope_id).secret
                rows = [
                    row.model_copy(update={"payload": unseal(secret, run.id, row.payload)})
                    if row.kind == "placeholders"
                    else row
                    for row in rows
                ]
            look = self._look_at(connection, run.scope, step_id)
        self._journal_look(look)
        return rows

    def compiled(self, step_id: StepId) -> RecordedCompile:
        """Return the request and the result of a step's compile. Raises NotFound where it compiled
        or kept nothing.
        """
        by_kind = {entry.kind: entry for entry in self.entries(step_id)}
        request, compiled = by_kind.get("compile_request"), by_kind.get("compiled")
        if (
            request is None
            or compiled is None
            or request.payload is None
            or compiled.payload is None
        ):
            raise NotFound(f"Step {step_id} kept no compiled context.")
        return RecordedCompile(
            CompilationRequest.load(request.payload), CompiledContext.load(compiled.payload)
        )

    def summaries(
        self, run_id: RunId, *, after: Count | None = None, limit: Count | None = None
    ) -> dict[str, list[EntrySummary]]:
        """Return the summaries of the entries of a run by the ids of its steps, or those of a page
        of `steps`. Raises NotFound.

        They are what receipts say of models, tokens, cost and decisions, read without the chain.
        """
        with self._read() as connection:
            self._find_run(connection, run_id)
            rows = recordings.summaries_of(connection, run_id, after=after, limit=limit)
        summaries: dict[str, list[EntrySummary]] = {}
        for row in rows:
            summaries.setdefault(row.step_id, []).append(
                EntrySummary(row.kind, json.loads(row.summary), json.loads(row.redactions))
            )
        return summaries

    def steps_saying(self, run_id: RunId, text: str) -> list[str]:
        """Return the ids of the steps of a run in whose payloads a text comes up, in their order:
        the first of those that repeat it. An operator's search in what others recorded is
        journaled. Raises NotFound.
        """
        with self._read() as connection:
            run = self._find_run(connection, run_id).record
            found = recordings.steps_saying(connection, run_id, text)
            look = self._look_at(connection, run.scope, run_id)
        self._journal_look(look)
        return found

    # Questions

    def candidates(self, step_id: StepId) -> list[ContextCandidate]:
        """Return what `knew` and `unseen` return, in one answer: every candidate of a step's
        compile in the order of its decisions. Raises NotFound.
        """
        return candidates_of(*self.compiled(step_id))

    def knew(self, step_id: StepId) -> list[ContextCandidate]:
        """Return every candidate that went into a step's context, and why. Raises NotFound."""
        return [item for item in self.candidates(step_id) if item.decision.decision != "exclude"]

    def unseen(self, step_id: StepId) -> list[ContextCandidate]:
        """Return every candidate left out of a step's context, and why. Raises NotFound."""
        return [item for item in self.candidates(step_id) if item.decision.decision == "exclude"]

    def trace(
        self,
        step_id: StepId,
        text: Annotated[str, Field(description="A sentence of the step's context.")],
    ) -> list[Provenance]:
        """Trace a sentence of a step's context to where it came from: to the raw source where the
        actor may read it.

        White space and case do not count. Raises NotFound; InvalidInput if no item that went in
        contains the text.
        """
        provenances: list[Provenance] = []
        for item, quote in quotes_of(candidates_of(*self.compiled(step_id)), text):
            if not item.source_ids:
                provenances.append(provenance(item, quote, None, item.source, None))
            for source_id in item.source_ids:
                source, raw = self._source(source_id)
                provenances.append(provenance(item, quote, source_id, source, raw))
        if not provenances:
            raise InvalidInput(f"No item in the context of step {step_id} holds these words.")
        return provenances

    def changed(self, step_id: StepId) -> StepDiff:
        """Compare a step with the step of the same kind before it. Raises NotFound, also for the
        first of its kind.
        """
        step = self.step(step_id)
        with self._read() as connection:
            before = recordings.step_before(connection, step)
        if before is None:
            raise NotFound(
                f"Step {step_id} is the first {step.step_kind.replace('_', ' ')} of its run."
            )
        return self.diff(before, step_id)

    def diff(
        self,
        before: Annotated[StepId, Field(description="Id of the one step.")],
        after: Annotated[StepId, Field(description="Id of the other step.")],
    ) -> StepDiff:
        """Compare two steps, of one run or of two. Raises NotFound."""
        return diff_steps((before, self.entries(before)), (after, self.entries(after)))

    def written(self, run_id: RunId) -> list[RecordedWrite]:
        """Return the changes of memory that the steps of a run made, in the order of their
        receipts. Raises NotFound.
        """
        with self._read() as connection:
            self._find_run(connection, run_id)
            chain = list(journal.entries(connection, run_stream(run_id)))
            receipts = with_texts(connection, run_id, chain)
        actors = {entry.position: entry.actor for entry in chain}
        return [
            change
            for receipt in receipts
            for change in changes_in(receipt, actors[receipt.position])
        ]

    def uses(
        self,
        memory_id: MemoryId,
        *,
        most: Annotated[
            int | None, Field(description="Steps at most, the newest.", ge=1, le=MOST_RESULTS)
        ] = None,
    ) -> list[MemoryUse]:
        """Return the recorded steps that recalled, saw, left out or wrote a memory and that the
        actor may see.

        Oldest first; with `most` that many of the newest, newest first.
        """
        with self._read() as connection:
            uses = uses_of(connection, memory_id)
        visible: list[MemoryUse] = []
        for step_id, how in uses if most is None else reversed(uses):
            if most is not None and len(visible) >= most:
                break
            try:
                visible.append(MemoryUse(step=self.step(step_id), how=how))
            except NotFound:
                continue
        return visible

    def _source(self, source_id: str) -> tuple[SourceRef | None, str | None]:
        """Return a source's reference and text where the actor may read it and a memory derived
        from it is visible; (None, None) otherwise.
        """
        with self._read() as connection:
            row = sources.find(connection, source_id)
            if (
                row is None
                or not self._context.gate.decide(connection, self._actor, "read", row.scope).allowed
            ):
                return None, None
            # The source of a memory that is hidden is hidden too, and of a redacted memory only the
            # replacement may be read.
            gate, now = self._context.gate, self._context.store.clock.now()
            derived = [
                item
                for item in sources.memories_of(connection, source_id)
                if item.memory.state != "redacted"
            ]
            visible = visible_docs(connection, gate, self._actor, derived, now)
            body = parts.get(connection, row.scope_id, row.content_key) if visible else None
        return row.reference, None if body is None else body.decode("utf-8", "replace")

    # Proof

    def verify(self, run_id: RunId, *, foil: Foil | None = None) -> Verification:
        """Check stock and foil: every byte that the run's chain covers. Raises NotFound."""
        with self._read() as connection:
            run, scope_id = self._find_run(connection, run_id)
            return verify(Stored(connection, run, scope_id), foil)

    def foil(self, run_id: RunId, *, key: bytes | None = None) -> Foil:
        """Return the head of a run's chain, signed with a private key in PEM if one is given: keep
        it elsewhere.

        Raises NotFound; InvalidInput and MissingExtra for the key.
        """
        with self._read() as connection:
            self._find_run(connection, run_id)
            end = journal.foil(connection, run_stream(run_id), run_id)
        return end if key is None else sign(end, key)

    def export_receipt(self, run_id: RunId, *, key: bytes | None = None) -> bytes:
        """Return a run as a bundle that `verify_bundle` checks without the tally, its foil signed
        if a key is given.

        It contains the payloads that are kept: redacted payloads stay redacted. Raises NotFound;
        InvalidInput and MissingExtra for the key.
        """
        from tallystick.recorder.bundle import bundle

        stream = run_stream(run_id)
        with self._read() as connection:
            run, scope_id = self._find_run(connection, run_id)
            end = journal.foil(connection, stream, run_id)
            content = bundle(
                Stored(connection, run, scope_id),
                journal.rows_of(connection, stream),
                journal.anchor_of(connection, stream),
                end if key is None else sign(end, key),
            )
            look = self._look_at(connection, run.scope, run_id)
        self._journal_look(look)
        return content

    def prefix_reuse(self, run_id: RunId) -> list[StepPrefixReuse]:
        """Return for each compile in the ended steps of a run its step id, and how much of its
        prompt begins like the prompt before.

        The stability of a run's prefix is the sum of `reused` over the sum of `before`; that of its
        zone likewise. Raises NotFound.
        """
        reuses: list[StepPrefixReuse] = []
        for receipt in self.receipts(run_id):
            for entry in receipt.entries:
                prefix = entry.summary.get("prefix")
                if entry.kind == "compiled" and isinstance(prefix, dict):
                    reuses.append(StepPrefixReuse(receipt.step_id, PrefixReuse.load(prefix)))
        return reuses

    def tape(self, run_id: RunId) -> Tape:
        """Return the model and tool calls of a run, to play its agent again without a network.

        Raises NotFound, and NotReplayable where payloads were not kept.
        """
        run = self.run(run_id)
        return tape_of(run, [(step, self.entries(step.id)) for step in self.steps(run_id)])

    def player(self, run_id: RunId, *, ignore: Texts = (), errors: ErrorTypes = ()) -> Player:
        """Return a player of a run's tape that redacts by the rules of this tally; see Player.
        Raises the same as `tape`.
        """
        return Player(
            self.tape(run_id), redactor=self._context.redactor, ignore=ignore, errors=errors
        )

    def preview_replay(
        self,
        /,
        step_id: StepId,
        *,
        call: Call | None = None,
        recipe: ReplayRecipe | None = None,
        render: Render = neutral_request,
        **changes: Any,
    ) -> ReplayResult:
        """Make a stored model step again through `call`: exactly, or with the changes of a
        ReplayRecipe.

        Changes are given as `recipe` or by its field names, such as `token_budget=2_000` or
        `context_mutations={"item": None}`. Nothing is recorded; `recordings.replay` does the same
        as a run of its own. Raises NotFound, NotReplayable, CompileError, InvalidInput.
        """
        return self.replayed(step_id, call=call, recipe=recipe, render=render, **changes).result

    def replayed(
        self,
        /,
        step_id: StepId,
        *,
        call: Call | None = None,
        recipe: ReplayRecipe | None = None,
        render: Render = neutral_request,
        **changes: Any,
    ) -> Replayed:
        """Same as `preview_replay`, with the context that it compiled."""
        step = self.step(step_id)
        run = self.run(step.run_id)
        recipe = recipe_for(step, recipe, changes, new_id=self._context.store.ids.new)
        entries = self.entries(step_id)
        recorded = next(
            (
                entry.payload.get("model")
                for entry in entries
                if entry.kind == "compile_request" and isinstance(entry.payload, dict)
            ),
            None,
        )
        model = recipe.model_override or recorded
        counter = self._counter(model if isinstance(model, str) else None)
        return replay(run, step, entries, recipe, counter=counter, call=call, render=render)

    @contextmanager
    def _read(self) -> Iterator[Connection]:
        """Open a snapshot that includes all that this process has recorded until now, acknowledged
        or not.
        """
        self._context.store.database.flush()
        with self._context.store.database.read() as connection:
            yield connection

    def _find_run(self, connection: Connection, run_id: str) -> recordings.StoredRun:
        run = recordings.find_run(connection, run_id)
        if run is None or not self._may_see(connection, run.record.scope):
            raise NotFound(f"There is no run {run_id} that {self._actor.user} may see.")
        return run

    def _find_step(self, connection: Connection, step_id: str) -> tuple[StepRecord, RunRecord, int]:
        step = recordings.find_step(connection, step_id)
        run = recordings.find_run(connection, step.run_id) if step is not None else None
        if step is None or run is None or not self._may_see(connection, run.record.scope):
            raise NotFound(f"There is no step {step_id} that {self._actor.user} may see.")
        return step, run.record, run.scope_id

    def _look_at(
        self, connection: Connection, scope: Scope, subject_id: str
    ) -> journal.Event | None:
        """Return the journal entry of an operator's look at what somebody else recorded; None for
        one's own, and for a second look through this object.
        """
        decision = self._context.gate.decide(connection, self._actor, "inspect", scope)
        if decision.reason != "allowed_operator" or subject_id in self._journaled:
            return None
        return journal.Event(
            stream=f"scope:{scope}",
            event="recording.read",
            actor=self._actor,
            at=self._context.store.clock.now(),
            audit_id=self._context.store.ids.new(),
            subject_id=subject_id,
            reason=decision.reason,
        )

    def _journal_look(self, look: journal.Event | None) -> None:
        if look is not None:
            write = self._context.store.database.write
            try:
                write(lambda tx: journal.append(tx, look), name="recording.read")
            except ReadOnlyTally as error:
                raise ReadOnlyTally(
                    error.reason,
                    "What somebody else recorded is shown once the look is journaled, and that "
                    "cannot be written.",
                ) from error
            self._journaled.add(look.subject_id or "")

    def _may_inspect(self, scope: Scope) -> bool:
        """Decide by the policy as it is committed now. Raises ClosedTally, StorageError."""
        with self._context.store.database.read() as connection:
            return self._may_see(connection, scope)

    def _may_see(self, connection: Connection, scope: Scope) -> bool:
        return self._context.gate.decide(connection, self._actor, "inspect", scope).allowed


def _entry(payloads: Payloads, row: recordings.EntryRow) -> StepEntry:
    body = payloads.of(row)
    if body is None and row.part_key is not None:
        raise CorruptTally(f"The payload of step {row.step_id} entry {row.position} is missing.")
    if body is not None and commitment(DOMAIN, bytes(row.salt), body) != row.commitment:
        raise CorruptTally(
            f"The payload of step {row.step_id} entry {row.position} is not what was recorded."
        )
    return StepEntry(
        id=row.id,
        step_id=row.step_id,
        position=row.position,
        kind=row.kind,
        at=row.at,
        commitment=row.commitment,
        payload=None if body is None else json.loads(body),
        payload_state=row.payload_state,
        redactions=json.loads(row.redactions),
        summary=json.loads(row.summary),
    )
