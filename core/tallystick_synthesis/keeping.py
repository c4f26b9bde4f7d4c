"""Keeping: the artifact of a run, previewed and then stored; and what is made anew of it once its
sources have changed.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any, Literal

from tallystick.access import Confirmation
from tallystick.memory.artifacts import SECTIONS, STALE
from tallystick.memory.change import apply_modify
from tallystick.memory.correct import CorrectionRequest, apply_correction
from tallystick.memory.memory_write import MemoryWrite
from tallystick.memory.remember import PreparedMemory, check_new, ingest_one, prepare
from tallystick.memory.secrets import admit_memory
from tallystick.records import NewMemory
from tallystick.records.synthesis import ArtifactPreview, SynthesisRun
from tallystick.storage.rows import edges, memories, scopes
from tallystick_synthesis.checking import check
from tallystick_synthesis.collecting import collect_sections, note_read, require_home
from tallystick_synthesis.desk import Desk, conflict, digest_of_draft
from tallystick_synthesis.drafting import draft_section, markdown_of

_PURPOSE = "synthesize"
_BLOCKED = "blocked"


def remember(
    desk: Desk, run_id: str, *, mode: Literal["preview", "apply"], confirm_token: str | None
) -> ArtifactPreview:
    """Preview what would be kept of a run, or keep it with the preview's token. Raises NotFound,
    Denied, and StateConflict for a draft that was not verified, whose verdict blocks it, or that
    has changed since the preview.
    """
    run = desk.load(run_id, own=True)
    verification = run.verification
    if verification is None or run.stage not in ("verified", "remembered"):
        raise conflict(run, "it was not verified", "Verify it first.")
    decision = desk.context.gate.require(desk.actor, "write", desk.scope)
    # Nothing is kept by what was true when it was verified: it is checked again.
    now_checked = check(desk, run)
    if now_checked.verdict.startswith(_BLOCKED) or now_checked.digest != verification.digest:
        raise conflict(run, now_checked.verdict, "Refresh the run, or verify it again.")
    require_home(desk, run.request, run.sections)
    text = markdown_of(run)
    with desk.context.store.database.read() as connection:
        rows = scopes.find(connection, [desk.scope])
        before = _artifact_before(desk, connection, run)
    preview = ArtifactPreview(
        mode="preview",
        id=run.id,
        verdict=verification.verdict,
        replaces=before,
        text_hash=f"sha256:{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}",
        sections=len(run.draft),
        sources=len({each for section in run.sections for each in section.source_ids}),
        readers=desk.scope,
    )
    confirmation = Confirmation(desk.context.gate, rows[0].secret, _PURPOSE, desk.actor)
    content: Any = [run.id, verification.digest, preview.dump()]
    now = desk.context.store.clock.now()
    if mode == "preview":
        token, expires_at = confirmation.token(content, now=now)
        return preview.replace(confirm_token=token, expires_at=expires_at)
    if confirm_token is None:
        raise confirmation.refusal(decision)
    with desk.step("remember", run.id) as step:
        prepared = _prepare(desk, run, text, preview)

        def keep(write: MemoryWrite, run: SynthesisRun) -> SynthesisRun:
            confirmation.require(
                confirm_token, content, now=write.now, subject=run.id, what="Synthesis"
            )
            stored = _keep(desk, write, prepared, preview)
            recordings = (*run.recordings, step.run.id)
            return run.replace(stage="remembered", artifact_id=stored, recordings=recordings)

        artifact = desk.store(run, known_at=run.updated_at, event="synthesis.remember", also=keep)
        step.record("memory_write", None, summary={"memories": [artifact.artifact_id]})
    return preview.replace(mode="apply", memory_id=artifact.artifact_id)


def _artifact_before(desk: Desk, connection: Any, run: SynthesisRun) -> str | None:
    if run.artifact_id is None:
        return None
    stored = memories.get(connection, run.artifact_id, sources=False)
    is_there = stored is not None and stored.memory.state == "active"
    return run.artifact_id if is_there else None


def _keep(
    desk: Desk, write: MemoryWrite, prepared: PreparedMemory, preview: ArtifactPreview
) -> str:
    [row] = scopes.find(write.tx, [desk.scope])
    stored = ingest_one(write, row, prepared)
    if stored.status == "duplicate":
        _renew(write, stored.id, prepared.new)
    if preview.replaces is not None and preview.replaces != stored.id:
        request = CorrectionRequest("supersede", "its sections were made anew", other_id=stored.id)
        apply_correction(write, preview.replaces, request)
    return stored.id


def _renew(write: MemoryWrite, artifact_id: str, new: NewMemory) -> None:
    """Let an artifact of the same words rest on what they are made of now: it may be stale, or of
    another run.
    """
    kept = memories.get(write.tx, artifact_id)
    assert kept is not None
    for origin in memories.get_many(write.tx, new.derived_from):
        if not edges.was_linked(write.tx, "DERIVED_FROM", kept.doc, origin.doc):
            edges.add(
                write.tx,
                edge_id=write.context.store.ids.new(),
                kind="DERIVED_FROM",
                scope_id=kept.scope_id,
                from_doc=kept.doc,
                to_doc=origin.doc,
                at=write.now,
            )
    renewed = kept.memory.replace(attributes=new.attributes)
    permitted = write.permit(kept, "correct")
    apply_modify(write, permitted, renewed, None, ["attributes"], "it was made once more")


def _prepare(desk: Desk, run: SynthesisRun, text: str, preview: ArtifactPreview) -> PreparedMemory:
    verification = run.verification
    assert verification is not None
    cited = {
        section.number: {handle for each in section.sentences for handle in each.cites}
        for section in run.draft
    }
    sections: list[dict[str, Any]] = []
    for section in run.sections:
        used = [item for item in section.items if item.handle in cited.get(section.number, ())]
        against = [item for item in section.items if item.contradicted_by]
        named = list(dict.fromkeys(item.memory_id for item in (*used, *against)))
        sources = list(
            dict.fromkeys(each for item in (*used, *against) for each in item.source_ids)
        )
        sections.append(
            {
                "number": section.number,
                "path": list(section.path),
                "memories": named,
                "sources": sources,
            }
        )
    derived = sorted({each for section in sections for each in section["memories"]})
    ages = [item.known_at for section in run.sections for item in section.items if item.known_at]
    attributes: dict[str, Any] = {
        "synthesis": run.id,
        "output_type": run.request.output_type,
        "audience": run.request.audience,
        "verdict": verification.verdict,
        "text_hash": preview.text_hash,
        "draft_digest": run.draft_digest,
        "unresolved": len(verification.unsettled) + len(verification.contradictions),
        "verification": {
            "sentences": verification.sentences,
            "quoted": verification.quoted,
            "gaps": list(verification.gaps),
            "digest": verification.digest,
        },
        "decided_by": desk.actor.user,
        "freshness_at": min(ages) if ages else None,
        SECTIONS: sections,
        STALE: [],
    }
    new = NewMemory(
        content=text,
        kind="artifact",
        subject=f"{run.request.output_type} {run.id}",
        attributes=attributes,
        derived_from=tuple(derived),
    )
    admitted, warnings = admit_memory(desk.context, desk.scope, new)
    check_new(desk.context, admitted)
    [prepared] = prepare(desk.context, desk.actor, desk.scope, [admitted])
    return replace(prepared, warnings=(*prepared.warnings, *warnings), extraction_model=run.model)


def refresh(desk: Desk, run_id: str) -> SynthesisRun:
    """Return a run whose changed sections, and only these, are collected, drafted and checked anew,
    stored. What was kept of it stays until it is remembered again. Raises as `draft`.
    """
    run = desk.load(run_id, own=True)
    if not run.sections:
        raise conflict(run, "its sections are not collected", "Collect the sections first.")
    changed = desk.changed_items(run.sections)
    if not changed and run.verification is not None:
        return run
    with desk.step("refresh", run.id) as step:
        stay = [each for each in run.sections if each.number not in changed]
        anew = [each for each in run.plan if each.number in changed]
        collected = collect_sections(desk, run.request, anew, stay)
        sections = tuple(sorted((*stay, *collected), key=lambda each: each.number))
        require_home(desk, run.request, sections)
        note_read(step, sections)
        before = {section.number: section for section in run.draft}
        draft = tuple(
            draft_section(desk, run.request, each, by_model=run.model is not None)
            if each.number in changed or each.number not in before
            else before[each.number]
            for each in sections
        )
        refreshed = run.replace(
            stage="verified",
            sections=sections,
            draft=draft,
            draft_digest=digest_of_draft(draft),
            recordings=(*run.recordings, step.run.id),
        )
        refreshed = refreshed.replace(verification=check(desk, refreshed))
        return desk.store(refreshed, known_at=run.updated_at, event="synthesis.refresh")
