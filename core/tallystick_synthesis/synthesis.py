"""Synthesis: documents that are made of memory, and show where each sentence comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from tallystick.errors import InvalidInput, InvalidRecord
from tallystick.records import (
    JsonObject,
    Limit,
    MemoryIds,
    SourceIds,
    Texts,
    Words,
    checked_arguments,
    tuple_of,
)
from tallystick.records.arguments import PAGE_BEFORE, ConfirmMode, ConfirmToken, OtherScopes
from tallystick.records.synthesis import (
    ArtifactPreview,
    OutlineSection,
    SynthesisFormat,
    SynthesisFreshness,
    SynthesisId,
    SynthesisRequest,
    SynthesisRun,
)
from tallystick.records.wire import Wire
from tallystick.tally.memory_view import Part
from tallystick.tally.served_verbs import AsyncFace, Offered

if TYPE_CHECKING:
    from tallystick_synthesis.desk import Desk

When = Annotated[
    Literal["sync", "async"],
    Field(description="Do it now, or leave it to a job: the answer has its id."),
]
_Section = Annotated[OutlineSection | Mapping[str, Any], Wire(JsonObject)]
Outline = Annotated[Sequence[OutlineSection | Mapping[str, Any]], tuple_of(_Section)]
"""Sections, as records or as their fields."""


@checked_arguments
class Synthesis(Part):
    """Documents made of memory: `Synthesis(bound)`. A run is planned, its sections are collected,
    drafted, verified and remembered, each step by its id; what a step finds, the next one uses.
    """

    @property
    def aio(self) -> AsyncSynthesis:
        """The same verbs for `async def` callers, awaited."""
        return AsyncSynthesis(self)

    def plan(
        self,
        query: Annotated[str, Field(description="What the document is about.")] = "",
        *,
        output_type: Annotated[
            Words,
            Field(
                description="architecture_overview, release_notes, onboarding_guide, audit_packet, "
                "or custom with an outline."
            ),
        ] = "architecture_overview",
        audience: Annotated[Words, Field(description="Who reads it.")] = "team",
        depth: Annotated[int, Field(description="How detailed it is, 1 to 3.", ge=1, le=3)] = 2,
        scopes: OtherScopes = None,
        source_ids: Annotated[
            SourceIds, Field(description="Only what was drawn from these sources.")
        ] = (),
        entity_ids: Annotated[
            MemoryIds, Field(description="Only what mentions these entities.")
        ] = (),
        outline: Annotated[
            Outline,
            Field(description="Sections with title, query, kinds and sections of their own."),
        ] = (),
        max_age: Annotated[
            int | None, Field(description="Seconds since a source was last known to hold.", ge=1)
        ] = None,
        stale: Annotated[
            Literal["gap", "block", "allow"],
            Field(description="Leave out what is stale, block the document, or allow it."),
        ] = "gap",
        format: Annotated[
            SynthesisFormat, Field(description="Markdown adds the document as text.")
        ] = "json",
        section_tokens: Annotated[
            int, Field(description="Tokens of what a section may use.", ge=100, le=20_000)
        ] = 2_000,
        on_behalf_of: Annotated[
            Words | None,
            Field(description="The agent or the delegation for which it is asked."),
        ] = None,
    ) -> SynthesisRun:
        """Plan a document: its sections, the evidence that each needs, and a gap where the tally
        has none. The digest of the plan is the same for the same tally and request. Raises Denied,
        InvalidInput, MissingExtra.
        """
        given = {
            "on_behalf_of": on_behalf_of,
            "scopes": [scope.dump() for scope in self._view._scopes(scopes)]
            if scopes is not None
            else (),
            "output_type": output_type,
            "audience": audience,
            "depth": depth,
            "query": query,
            "source_ids": tuple(source_ids),
            "entity_ids": tuple(entity_ids),
            "freshness": SynthesisFreshness(max_age=max_age, stale=stale).dump(),
            "outline": [
                each.dump() if isinstance(each, OutlineSection) else dict(each) for each in outline
            ],
            "format": format,
            "section_tokens": section_tokens,
        }
        try:
            request = SynthesisRequest.load(given)
        except InvalidRecord as error:
            raise InvalidInput(str(error)) from error
        from tallystick_synthesis.planning import plan

        self._view._admit("write")
        return plan(self._desk(), request)

    def sections(self, synthesis_id: SynthesisId, *, mode: When = "sync") -> SynthesisRun:
        """Collect what each section may use: snippets and facts with their sources, redactions,
        freshness, contradictions, and for who may inspect also how much is hidden or denied.
        Raises NotFound, Denied, StateConflict.
        """
        return self._step("sections", synthesis_id, mode, {})

    def draft(
        self,
        synthesis_id: SynthesisId,
        *,
        drafter: Annotated[
            Literal["quotes", "model"],
            Field(description="Quotations alone, or the model that the tally was given."),
        ] = "quotes",
        if_digest: Annotated[
            str | None, Field(description="Only if this is the digest of the plan.")
        ] = None,
        collect: Annotated[
            bool, Field(description="Collect the sections first, where they are not.")
        ] = False,
        mode: When = "sync",
    ) -> SynthesisRun:
        """Draft a document of quotations, or by a model that is given packs and nothing else. Every
        sentence names its sources. Raises NotFound, Denied, StateConflict before the sections and
        where something that they may use has changed, InvalidInput without a model; of one
        ExtractionError.
        """
        if drafter == "model":
            from tallystick_synthesis.drafting import drafter_of

            drafter_of(self._desk())
        if collect and self._desk().load(synthesis_id, own=True).stage == "planned":
            self.sections(synthesis_id)
        given: JsonObject = {"by_model": drafter == "model", "if_digest": if_digest}
        return self._step("draft", synthesis_id, mode, given)

    def verify(
        self,
        synthesis_id: SynthesisId,
        *,
        accept: Annotated[
            Texts,
            Field(description="Sentences that a person answers for, as SECTION.SENTENCE."),
        ] = (),
        mode: When = "sync",
    ) -> SynthesisRun:
        """Check every sentence of a draft against the sources that it cites, and give a verdict.
        Quotations are compared byte for byte. Raises NotFound, Denied, InvalidInput, StateConflict
        before a draft.
        """
        if not accept:
            return self._step("verify", synthesis_id, mode, {})
        if mode == "async":
            raise InvalidInput("A person accepts sentences at once: no job does.", argument="mode")
        from tallystick_synthesis.checking import verify

        self._view._admit("write")
        return self._shown(verify(self._desk(), synthesis_id, accept=tuple(accept)))

    def remember(
        self,
        synthesis_id: SynthesisId,
        *,
        mode: ConfirmMode = "preview",
        confirm_token: ConfirmToken = None,
    ) -> ArtifactPreview:
        """Preview the artifact of a run, or keep it with the preview's token: a memory with the
        sources of each section, which is stale as soon as one of them changes. Raises NotFound,
        Denied (`confirm_token_required`), and StateConflict for what blocks its verdict.
        """
        from tallystick_synthesis.keeping import remember

        self._view._admit("preview" if mode == "preview" else "write")
        kept = remember(self._desk(), synthesis_id, mode=mode, confirm_token=confirm_token)
        if mode == "apply":
            self._view._wake_worker()
        return kept

    def refresh(self, synthesis_id: SynthesisId, *, mode: When = "sync") -> SynthesisRun:
        """Make the sections anew whose sources have changed, and no others. Raises as `draft`."""
        return self._step("refresh", synthesis_id, mode, {})

    def runs(
        self,
        *,
        limit: Annotated[Limit, Field(description="Runs at most.")] = 20,
        before: Annotated[SynthesisId | None, PAGE_BEFORE] = None,
    ) -> list[SynthesisRun]:
        """List the runs of the bound scope, newest first, without their sections. Raises Denied,
        NotFound.
        """
        self._view._admit("read")
        return self._desk().list_runs(limit=limit, before=before)

    def run(
        self,
        synthesis_id: SynthesisId,
        *,
        format: Annotated[
            SynthesisFormat | None, Field(description="Markdown adds the document as text.")
        ] = None,
    ) -> SynthesisRun:
        """Return a run as far as it is, without what the actor may not see now. Raises NotFound
        alike for hidden and for absent ones.
        """
        self._view._admit("read")
        run = self._desk().load(synthesis_id)
        if format is not None:
            run = run.replace(request=run.request.replace(format=format))
        return self._shown(run)

    def _desk(self) -> Desk:
        from tallystick_synthesis.desk import Desk

        services = self._view._services
        return Desk(services.memory, services.outbound, self._view._traced_actor, self._view.scope)

    def _shown(self, run: SynthesisRun) -> SynthesisRun:
        from tallystick_synthesis.drafting import shown_run

        return shown_run(self._desk(), run)

    def _step(
        self, name: str, run_id: str, mode: Literal["sync", "async"], given: JsonObject
    ) -> SynthesisRun:
        from tallystick_synthesis.synthesis_jobs import STEPS, enqueue

        self._view._admit("write")
        desk = self._desk()
        if mode == "sync":
            run = STEPS[name](desk, run_id, given)
            # What was collected just now was asked for just now.
            return run if name == "sections" else self._shown(run)
        run = enqueue(desk, run_id, name, given)
        self._view._wake_worker()
        return self._shown(run)


class SynthesisVerbs:
    """Verbs of `Synthesis`."""

    plan = Offered(Synthesis.plan)
    sections = Offered(Synthesis.sections)
    draft = Offered(Synthesis.draft)
    verify = Offered(Synthesis.verify)
    remember = Offered(Synthesis.remember)
    refresh = Offered(Synthesis.refresh)
    runs = Offered(Synthesis.runs)
    run = Offered(Synthesis.run)


class AsyncSynthesis(AsyncFace, SynthesisVerbs):
    """Same as `Synthesis`, awaited."""
