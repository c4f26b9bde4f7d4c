"""Synthesis: documents that are made of memory, from the request to what is kept of them."""

from typing import Annotated, Literal

from pydantic import Field

from tallystick.records._base import IdOf, JsonObject, MemoryIds, Record, SourceIds, Words
from tallystick.records.identity import Scope
from tallystick.records.memory import Holds, MemoryState
from tallystick.records.times import datetime_of, optional_datetime_of

SynthesisFormat = Literal["json", "markdown"]
WhenStale = Literal["gap", "block", "allow"]
"""What becomes of a source that is older than `max_age`, or does not hold any more."""
SynthesisStage = Literal["planned", "collected", "drafted", "verified", "remembered", "erased"]
"""How far a run is. `erased`: text that it quotes was destroyed, and its own went with it."""
Verdict = Literal[
    "passed",
    "passed_with_gaps",
    "blocked_missing_sources",
    "blocked_policy_denial",
    "blocked_unsupported_claims",
    "blocked_stale_sources",
]
ClaimReason = Literal[
    "no_handle",
    "foreign_handle",
    "not_quoted",
    "number",
    "name",
    "words",
]
"""Why a sentence is not borne out: it cites nothing, or nothing of its section; its quotation is
not what the source says; a number, a name or other words are in none of the sources it cites.
"""
SynthesisId = Annotated[
    str, IdOf("synthesis"), Field(description="Id of a run of synthesis, or a part of it.")
]


class SynthesisFreshness(Record):
    """How old a source may be."""

    max_age: Annotated[int | None, Field(ge=1)] = None
    """Seconds since a source was last known to hold; None for any age."""
    stale: WhenStale = "gap"


class OutlineSection(Record):
    """A section of an outline, with those beneath it."""

    title: Annotated[str, Field(min_length=1, max_length=200)]
    query: Annotated[str, Field(max_length=2_000)] = ""
    """What the section answers; its title and the query of the request where it is empty."""
    kinds: tuple[str, ...] = ()
    """Only memories of these kinds are evidence for it."""
    communities: bool = False
    """True for a section that also has what each community of the graph is about."""
    sections: tuple["OutlineSection", ...] = ()


class SynthesisRequest(Record):
    """What is asked for."""

    on_behalf_of: Words | None = None
    """The agent, or the delegation, for which somebody asks: what it may not read is not used."""
    scopes: tuple[Scope, ...] = ()
    output_type: Words = "architecture_overview"
    audience: Annotated[Words, Field(min_length=1, max_length=200)] = "team"
    depth: Annotated[int, Field(ge=1, le=3)] = 2
    query: Annotated[str, Field(max_length=10_000)] = ""
    source_ids: Annotated[SourceIds, Field(max_length=1_000)] = ()
    entity_ids: Annotated[MemoryIds, Field(max_length=1_000)] = ()
    freshness: SynthesisFreshness = SynthesisFreshness()
    outline: tuple["OutlineSection", ...] = ()
    format: SynthesisFormat = "json"
    section_tokens: Annotated[int, Field(ge=100, le=20_000)] = 2_000


class PlannedSection(Record):
    """A section of a plan: what it needs, and whether something is there."""

    number: int
    path: tuple[str, ...]
    """The titles above it, and its own."""
    query: str
    """What it is asked, with what the request asks."""
    topic: str = ""
    """What the section itself asks."""
    kinds: tuple[str, ...] = ()
    communities: bool = False
    """True if it also has what each community of the graph is about."""
    evidence: int = 0
    """Memories that may support it, as far as was looked."""
    gap: str | None = None
    """What is missing; None where something supports it."""

    @property
    def title(self) -> str:
        """Its own title."""
        return self.path[-1]


class SectionItem(Record):
    """What a section may quote."""

    handle: int
    """Its number in the section, by which a sentence cites it."""
    memory_id: str
    version: int
    source_ids: tuple[str, ...]
    scope: Scope
    kind: str
    state: MemoryState
    text: str
    """As it may be quoted: secrets replaced, and cut. Empty for what was redacted."""
    place: str | None = None
    """Of a passage the title and the headings of its document; secrets replaced."""
    attributes: JsonObject = {}
    holds: Holds = "current"
    known_at: int | None = None
    """Microseconds UTC of the last time at which it was known to be true."""
    known_time = optional_datetime_of("known_at")
    replaced_by: str | None = None
    duplicates: tuple[str, ...] = ()
    """Memories that say the same, for which this one is cited."""
    contradicted_by: tuple[str, ...] = ()
    is_stale: bool = False
    """True for what is older than the request admits, or holds no longer."""
    digest: str
    """Of the memory as it was read: whatever changes of it changes this."""


class CollectedSection(Record):
    """A section with all that it may use."""

    number: int
    path: tuple[str, ...]
    topic: str = ""
    """What the section itself asks."""
    items: tuple[SectionItem, ...] = ()
    source_ids: tuple[str, ...] = ()
    derived_ids: tuple[str, ...] = ()
    """Memories that were concluded from others."""
    unresolved: tuple[str, ...] = ()
    """Memories whose claims stand against one another: candidates for unresolved claims."""
    hidden: int | None = None
    """Relevant memories that are hidden or forgotten; None unless the actor may inspect."""
    denied: int | None = None
    """Linked memories that the actor may not read; None unless the actor may inspect."""
    redacted: int = 0
    """Items of which only metadata is left."""
    redactions: dict[str, int] = {}
    """Secrets that were replaced, by kind."""
    stale: tuple[str, ...] = ()
    """Items that are older than the request admits, or hold no longer."""
    gap: str | None = None
    reasons: tuple[str, ...] = ()
    """Reason codes: why the sources may be used, and what was left out."""
    digest: str = ""
    """Of everything above."""


class DraftSentence(Record):
    """One sentence of a draft."""

    text: str
    """As it reads, without its handles."""
    cites: tuple[int, ...] = ()
    """Handles of items of its section."""
    span: str | None = None
    """The words of a source that it quotes; None where it says something in other words."""
    by_model: bool = False
    accepted_by: str | None = None
    """The person who has accepted a sentence that quotes nothing."""


class DraftSection(Record):
    """A section of a draft."""

    number: int
    path: tuple[str, ...]
    sentences: tuple[DraftSentence, ...] = ()
    gap: str | None = None
    pack_digest: str = ""
    """The digest of the section that it was drafted from."""


class Claim(Record):
    """A sentence that is not borne out, or is not settled yet."""

    section: int
    sentence: int
    """Its place in its section, from 1."""
    text: str
    reason: ClaimReason
    words: tuple[str, ...] = ()
    """What has no counterpart in the sources that it cites."""
    missing: tuple[str, ...] = ()
    """What the sources say and it does not, of the sentences nearest to it."""


class SynthesisVerification(Record):
    """The verdict on a draft, with everything that speaks against it."""

    verdict: Verdict
    sections: int
    with_sources: int
    """Sections that have one or more sources."""
    sentences: int
    quoted: int
    """Sentences that quote the span of a source, byte for byte."""
    unsupported: tuple[Claim, ...] = ()
    unsettled: tuple[Claim, ...] = ()
    """Sentences in other words than their sources, which nobody has accepted yet."""
    contradictions: tuple[tuple[str, str], ...] = ()
    """Pairs of memories that contradict one another, both of which are named."""
    gaps: tuple[str, ...] = ()
    """Titles of the sections that nothing supports."""
    denied: tuple[int, ...] = ()
    """Sections with a source that the actor may not use any more."""
    stale: tuple[int, ...] = ()
    """Sections with sources that are too old or do not hold."""
    digest: str = ""


class ArtifactPreview(Record):
    """What would be kept of a run, or was."""

    mode: Literal["preview", "apply"]
    id: str
    """The run."""
    verdict: Verdict
    memory_id: str | None = None
    """The artifact; None for a preview."""
    replaces: str | None = None
    """The artifact of the same run that it stands in the place of."""
    text_hash: str
    sections: int
    sources: int
    readers: Scope
    """The scope that it is kept in."""
    confirm_token: str | None = None
    expires_at: int | None = None
    """Microseconds UTC from which on the token is refused."""
    expires_time = optional_datetime_of("expires_at")


class SynthesisRun(Record):
    """One document in the making, and how far it is."""

    id: str
    scope: Scope
    stage: SynthesisStage
    request: SynthesisRequest
    plan_digest: str = ""
    """The same for the same tally and the same request."""
    plan: tuple[PlannedSection, ...] = ()
    sections: tuple[CollectedSection, ...] = ()
    draft: tuple[DraftSection, ...] = ()
    draft_digest: str = ""
    model: str | None = None
    """The model that drafted; None where every sentence is quoted."""
    verification: SynthesisVerification | None = None
    artifact_id: str | None = None
    stale_sections: tuple[int, ...] = ()
    """Sections whose sources have changed since they were collected."""
    markdown: str | None = None
    """The document, where the request asks for Markdown."""
    job_id: str | None = None
    """The job that goes on with it, where one does."""
    recordings: tuple[str, ...] = ()
    """Recorded runs of its steps."""
    created_by: str
    created_at: int
    """Microseconds UTC."""
    created_time = datetime_of("created_at")
    updated_at: int
    """Microseconds UTC."""
    updated_time = datetime_of("updated_at")


class DraftRequest(Record):
    """What a drafter is given for one section: a pack, and nothing else."""

    title: str
    audience: str
    depth: int
    items: tuple[tuple[int, str], ...]
    """Handle and text of each item."""
