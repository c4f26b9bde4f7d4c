"""Doctor: finds what is wrong with a tally, what only needs attention, and repairs what can be."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Literal

from tallystick.access.enforcers import rules_and_enforcers
from tallystick.errors import (
    CredentialRefused,
    EmbedderFailed,
    EmbedderUnavailable,
    ExtractionError,
    ModelFailed,
    ModelRefused,
    ReadOnlyTally,
    StorageError,
    TallystickError,
    TextRefused,
    UnusableVectors,
)
from tallystick.graph import mend_graph
from tallystick.memory import MemoryContext
from tallystick.memory.change import require_reason
from tallystick.memory.memory_write import MemoryWrite
from tallystick.pipeline import Background
from tallystick.pipeline.reconcile import wanted_keys
from tallystick.records import JOB_STATES, Actor, Finding
from tallystick.storage import (
    Connection,
    graph,
    integrity,
    jobs,
    journal,
    memories,
    objects,
    parts,
    proposals,
    scopes,
    search,
    segments,
    settings_rows,
)
from tallystick.storage.chroma_layout import NAME, IndexState, Layout, layout_of, state_of
from tallystick.storage.derived import marks_of
from tallystick.storage.packing import damage_read
from tallystick.storage.private_files import wider_than_private
from tallystick.storage.read_only import unwritable_reason
from tallystick.storage.writes import TALLY, Writes
from tallystick.upkeep.erase import PENDING, finish
from tallystick.upkeep.jobs import note_repair, retry_jobs
from tallystick.upkeep.reach import withdraw_proposals
from tallystick.upkeep.retention import Windows, journal_window, purge, require_operator

_SHOWN = 20
"""Lost objects that are named one by one."""


def diagnose(
    context: MemoryContext,
    background: Background,
    actor: Actor,
    windows: Windows,
    *,
    repair: bool,
    reason: str,
) -> tuple[Finding, ...]:
    """Run every check; with `repair` also repair what can be, and note it in the journal. Raises
    Denied, and InvalidInput for a repair without a reason.

    A check that cannot read what it needs is a problem of its own; the others go on.
    """
    require_operator(context, actor)
    if repair:
        require_reason(reason)
        actor = actor.within_act(context.store.ids.new())
    checks: dict[str, Callable[[Connection], Iterable[Finding]]] = {
        "database": lambda connection: [*_database(connection), *_triggers(connection)],
        "journal": _journals,
        "versions": lambda connection: [_versions(connection)],
        "erasure": lambda connection: [_erasure(connection)],
        "texts": lambda connection: [_texts(connection)],
        "journal window": lambda connection: [_window(connection)],
        "changes": lambda connection: [_frozen(connection)],
        "who acts": lambda connection: [_who_acts(context, connection)],
        "recorder": lambda connection: [_recorded(connection)],
        "policy rules": _rules,
        "jobs": lambda connection: [_jobs(connection)],
        "graph": lambda connection: [_graph(connection)],
        "segments": lambda connection: [_segments(context, connection)],
    }
    findings: list[Finding] = _writing(context)
    for check, run in checks.items():
        findings += _read(context, check, run)
    findings += _guarded("search text", lambda: [_search_text(context)])
    findings += _guarded("files", lambda: _files(context))
    findings += _guarded("retention", lambda: [_retention(context, actor, windows)])
    findings += _guarded("index", lambda: [_index(context, background, repair=False)])
    findings += _guarded("objects", lambda: _objects(context))
    if not repair:
        return tuple(findings)
    repaired: list[Finding] = []
    for finding in findings:
        if finding.status == "problem" and finding.check == "erasure":
            repaired += _guarded("erasure", lambda: [_finished(context, background)])
        elif finding.status == "problem" and finding.check == "texts":
            repaired += _guarded("texts", lambda: [_removed_texts(context, background, actor)])
        elif finding.status == "problem" and finding.check == "jobs":
            repaired += _guarded("jobs", lambda: [_requeued(context, background, actor, reason)])
        elif finding.status == "problem" and finding.check == "graph":
            repaired += _guarded("graph", lambda: [_mended_graph(context, actor)])
        elif finding.status == "problem" and finding.check == "segments":
            repaired += _guarded("segments", lambda: [_removed_segments(context)])
        elif finding.status == "problem" and finding.check == "search text":
            repaired += _guarded("search text", lambda: [_derived_text(context, actor)])
        elif finding.status == "notice" and finding.check == "objects":
            repaired += _guarded("objects", lambda: [_swept(context)])
        elif finding.status == "problem" and finding.check == "index":
            repaired += _guarded("index", lambda: [_index(context, background, repair=True)])
        else:
            repaired.append(finding)
    mended = sorted({each.check for each in repaired if each.status == "repaired"})
    if mended:
        context.store.database.write(
            lambda tx: note_repair(
                tx, context, actor, "doctor.repair", {"checks": mended}, reason=reason
            ),
            name="doctor.repair",
            writes=Writes.of(TALLY),
        )
    return tuple(repaired)


def whole(connection: Connection) -> list[Finding]:
    """Check what no repair brings back: the file, the chains and the texts of versions."""
    return [*_database(connection), *_journals(connection), _versions(connection)]


def _read(
    context: MemoryContext, check: str, run: Callable[[Connection], Iterable[Finding]]
) -> list[Finding]:
    """Run a check on a connection of its own: a page that cannot be read costs this check alone."""

    def read() -> list[Finding]:
        with damage_read(), context.store.database.read() as connection:
            return list(run(connection))

    return _guarded(check, read)


def _guarded(check: str, run: Callable[[], list[Finding]]) -> list[Finding]:
    """Run a check; what it could not read is its finding."""
    try:
        return run()
    except TallystickError as error:
        text = f"{check} could not be read: {error}"
        return [Finding(check=check, status="problem", text=text)]


def _writing(context: MemoryContext) -> list[Finding]:
    """Say that the tally cannot be written here, and why."""
    folder, reason = context.store.location.folder, context.store.database.unwritable
    if reason is None and folder is not None:
        reason = unwritable_reason(folder)
    if reason is None:
        return []
    text = f"the tally can be read and not written. {ReadOnlyTally(reason).cause}"
    return [Finding(check="writing", status="notice", text=text)]


def _files(context: MemoryContext) -> list[Finding]:
    """Name files of an embedded tally that others may read."""
    folder = context.store.location.folder
    if folder is None:
        return []
    wider = wider_than_private(folder)
    if not wider:
        return [Finding(check="files", status="ok", text="only this user may read them")]
    more = f" and {len(wider) - 1} more" if len(wider) > 1 else ""
    text = f"others may read {wider[0]}{more}: open the tally as their owner, or chmod -R go= it"
    return [Finding(check="files", status="notice", text=text)]


def _objects(context: MemoryContext) -> list[Finding]:
    """Read every object outside of the database."""
    health = objects.check(context.store.database)
    if health is None:
        return []
    lost = [(name, "is missing") for name in health.missing]
    lost += [(name, "was altered") for name in health.altered]
    findings = [
        Finding(
            check="objects",
            status="problem",
            text=f"the object {name} {what}: bring it back from a copy of the object storage",
        )
        for name, what in lost[:_SHOWN]
    ]
    if len(lost) > _SHOWN:
        text = f"{len(lost) - _SHOWN} more objects are missing or were altered"
        findings.append(Finding(check="objects", status="problem", text=text))
    if health.orphans or health.waiting:
        text = (
            f"{health.orphans} objects that nothing names and {health.waiting} of what was erased "
            "are there: run `tally doctor --repair`"
        )
        findings.append(Finding(check="objects", status="notice", text=text))
    whole = health.named - len(lost)
    return findings or [Finding(check="objects", status="ok", text=f"{whole} match their digests")]


def _swept(context: MemoryContext) -> Finding:
    moved = objects.move(context.store.database, everything=True)
    swept = objects.sweep(context.store.database)
    text = f"{swept} objects that nothing names were removed, and {moved} large bodies moved there"
    return Finding(check="objects", status="repaired", text=text)


def _finished(context: MemoryContext, background: Background) -> Finding:
    with background.paused():
        finish(context)
    text = "an erasure that was cut off is finished"
    return Finding(check="erasure", status="repaired", text=text)


def _removed_texts(context: MemoryContext, background: Background, actor: Actor) -> Finding:
    def unit(tx: Connection) -> tuple[int, int]:
        write = MemoryWrite(tx, context, actor, context.store.clock.now(), None)
        about, bodies = proposals.without_source(tx), parts.unnamed(tx)
        withdraw_proposals(write, about)
        for scope_id, key in bodies:
            parts.drop(tx, scope_id, key)
        settings_rows.set_setting(tx, PENDING, "1")
        return len(bodies), len(about)

    with background.paused():
        bodies, words = context.store.database.write(unit, name="doctor.texts")
        finish(context)
    text = f"{_unowned(bodies, words)} were removed, and the files were written anew"
    return Finding(check="texts", status="repaired", text=text)


def _unowned(bodies: int, words: int) -> str:
    return f"{bodies} bodies that no row names and the words of {words} proposals without a source"


def _mended_graph(context: MemoryContext, actor: Actor) -> Finding:
    text = f"{mend_graph(context, actor)} things of the graph were removed or put right"
    return Finding(check="graph", status="repaired", text=text)


def _removed_segments(context: MemoryContext) -> Finding:
    with context.store.database.read() as connection:
        scope_ids, strays = segments.damaged(connection), context.corpora.strays(connection)
    context.corpora.remove_files(strays)
    for scope_id in scope_ids:
        context.store.database.write(
            partial(segments.remove, scope_id=scope_id),
            name="doctor.segments",
            writes=Writes.of(f"recall_segments:{scope_id}"),
        )
    text = (
        f"removed the segments of {len(scope_ids)} scopes and {len(strays)} files: the next recall "
        "makes them anew"
    )
    return Finding(check="segments", status="repaired", text=text)


def _requeued(context: MemoryContext, background: Background, actor: Actor, reason: str) -> Finding:
    requeued = retry_jobs(context, actor, None, reason=reason, idempotency_key=None)
    background.wake()
    text = f"{len(requeued)} jobs will be done anew"
    return Finding(check="jobs", status="repaired", text=text)


def _retention(context: MemoryContext, actor: Actor, windows: Windows) -> Finding:
    due = purge(context, actor, windows, mode="preview")
    count = (
        due.expired
        + due.tombstones
        + due.journal
        + due.reads
        + due.approvals
        + due.jobs
        + due.answers
        + due.working
    )
    text = (
        f"{count} things are past their window: run `tally purge`"
        if count
        else "nothing is past its window"
    )
    return Finding(check="retention", status="notice" if count else "ok", text=text)


def _database(connection: Connection) -> list[Finding]:
    problems = integrity.file_problems(connection)
    if problems is None:
        return []
    if not problems:
        return [Finding(check="database", status="ok", text="the file is whole")]
    return [
        Finding(check="database", status="problem", text=f"{text}: restore it from a copy")
        for text in problems
    ]


def _triggers(connection: Connection) -> list[Finding]:
    text = "{} is a trigger that is not Tallystick's, and may change what is stored: drop it"
    return [
        Finding(check="database", status="problem", text=text.format(each))
        for each in integrity.foreign_triggers(connection)
    ]


def _search_text(context: MemoryContext) -> Finding:
    with context.store.database.read() as connection:
        unreadable = integrity.unreadable_text(connection)
    if unreadable:
        text = (
            f"the words by which {len(unreadable)} memories are found cannot be read: run "
            "`tally doctor --repair`"
        )
        return Finding(check="search text", status="problem", text=text)
    return Finding(check="search text", status="ok", text="the words of every memory can be read")


def _derived_text(context: MemoryContext, actor: Actor) -> Finding:
    """Derive the words of memories from their texts, where they cannot be read."""
    with context.store.database.read() as connection:
        docs = integrity.unreadable_text(connection)

    def unit(tx: Connection) -> None:
        write = MemoryWrite(tx, context, actor, context.store.clock.now(), None)
        for stored in memories.get_docs(tx, docs).values():
            write.derive_text(stored)

    context.store.database.write(unit, name="doctor.search_text")
    text = f"the words of {len(docs)} memories were derived from their texts"
    return Finding(check="search text", status="repaired", text=text)


def _journals(connection: Connection) -> list[Finding]:
    problems: list[str] = []
    streams = integrity.stream_names(connection)
    for stream in streams:
        problems += [
            f"{where}: {problem}" for where, problem in journal.verify_stream(connection, stream)
        ]
    cut = integrity.purged_entries(connection)
    purged = (
        f"; {sum(cut)} entries were purged, with an anchor for each of {len(cut)} journals"
        if cut
        else ""
    )
    if problems:
        return [
            Finding(check="journal", status="problem", text=problem) for problem in problems[:20]
        ]
    return [Finding(check="journal", status="ok", text=f"{len(streams)} chains hold{purged}")]


def _versions(connection: Connection) -> Finding:
    """Compare every version that still has its text with its commitment."""
    wrong, count = integrity.altered_versions(connection)
    if wrong:
        return Finding(
            check="versions",
            status="problem",
            text=f"{wrong} of {count} do not match their commitment",
        )
    return Finding(check="versions", status="ok", text=f"{count} match their commitments")


def _erasure(connection: Connection) -> Finding:
    if settings_rows.get_setting(connection, PENDING) == "1":
        return Finding(
            check="erasure",
            status="problem",
            text="files hold what was erased: run `tally doctor --repair`",
        )
    return Finding(check="erasure", status="ok", text="none waits to be finished")


def _texts(connection: Connection) -> Finding:
    """Look for text whose owner is gone."""
    bodies, words = len(parts.unnamed(connection)), len(proposals.without_source(connection))
    if bodies or words:
        text = f"{_unowned(bodies, words)} are stored: run `tally doctor --repair`"
        return Finding(check="texts", status="problem", text=text)
    return Finding(check="texts", status="ok", text="every text has an owner")


def _window(connection: Connection) -> Finding:
    chosen, days = journal_window(connection)
    if not chosen:
        text = (
            "no window was chosen, so all of it is kept: run `tally init` (90 or 180 days are "
            "usual)"
        )
        return Finding(check="journal window", status="notice", text=text)
    return Finding(
        check="journal window",
        status="ok",
        text="kept for ever" if days is None else f"{days} days",
    )


def _frozen(connection: Connection) -> Finding:
    if scopes.is_frozen(connection):
        return Finding(
            check="changes",
            status="notice",
            text="an operator has suspended every change of memory",
        )
    return Finding(check="changes", status="ok", text="memory may be changed")


def _who_acts(context: MemoryContext, connection: Connection) -> Finding:
    if not context.gate.users_were_named(connection):
        text = "no runtime has named a user: the owner acts where nobody is named"
        return Finding(check="who acts", status="ok", text=text)
    text = "users were named, so that calls of a runtime that name nobody are refused"
    refused = integrity.refused_calls(connection, "missing_actor")
    if not refused:
        return Finding(check="who acts", status="ok", text=text)
    calls = "1 call was" if refused == 1 else f"{refused} calls were"
    return Finding(
        check="who acts",
        status="notice",
        text=f"{text}; {calls}: give each call its user, or the piece an `actor`",
    )


def _recorded(connection: Connection) -> Finding:
    runs = integrity.runs_with_gaps(connection)
    if not runs:
        return Finding(
            check="recorder", status="ok", text="every run that is kept was recorded without a gap"
        )
    gaps = sum(run.gaps for run in runs)
    things = "1 thing" if gaps == 1 else f"{gaps} things"
    where, others = (
        ("1 run", "") if len(runs) == 1 else (f"{len(runs)} runs", " and others that say so")
    )
    return Finding(
        check="recorder",
        status="notice",
        text=f"{things} could not be recorded, in {where}: run `tally verify` on "
        f"{runs[0].run_id[-8:]}{others}",
    )


def _rules(connection: Connection) -> list[Finding]:
    """Name the rules that no piece of any process enforces."""
    return [
        Finding(
            check="policy rules",
            status="ok",
            text=f"rule {rule.rule_id} is enforced by {', '.join(rule.pieces)}",
        )
        if rule.pieces
        else Finding(
            check="policy rules",
            status="problem",
            text=f"rule {rule.rule_id} over {rule.applies_to} is enforced by nothing",
        )
        for rule in rules_and_enforcers(connection)
    ]


def _jobs(connection: Connection) -> Finding:
    counts = jobs.counts(connection)
    summary = ", ".join(f"{counts[state]} {state}" for state in JOB_STATES if state in counts)
    failed, waiting = jobs.failed_by_code(connection), jobs.waiting_by_code(connection)
    if failed:
        return Finding(
            check="jobs",
            status="problem",
            text=f"{summary}; {_oldest(failed[0])}: look at `tally jobs --state failed --state "
            f"dead`, then do them anew with `tally jobs retry` or `tally doctor --repair`",
        )
    common = next((each for each in waiting if _needs_a_person(each)), None)
    if common is not None:
        return Finding(
            check="jobs",
            status="problem",
            text=f"{summary}; {common.jobs} wait because their provider answers none of them; "
            f"{_oldest(common)}: mend its settings, key or name, and they go on by themselves",
        )
    if waiting:
        count = sum(each.jobs for each in waiting)
        return Finding(
            check="jobs",
            status="notice",
            text=f"{summary}; {count} wait for what is away ({waiting[0].code}), the oldest for "
            f"{_span(waiting[0].age_us)}; {_oldest(waiting[0])}: they go on by themselves when "
            f"it is back",
        )
    return Finding(check="jobs", status="ok", text=summary or "none")


def _needs_a_person(waiting: jobs.Troubled) -> bool:
    """Return True if a provider is there and answers nobody: it refuses the key, or fails for
    different texts.
    """
    is_key = waiting.code == CredentialRefused.code
    return is_key or (waiting.jobs > 1 and waiting.code in _FAILURES)


_FAILURES = frozenset(
    kind.code
    for kind in (
        EmbedderFailed,
        EmbedderUnavailable,
        ExtractionError,
        ModelFailed,
        ModelRefused,
        TextRefused,
        UnusableVectors,
    )
)


def _oldest(troubled: jobs.Troubled) -> str:
    return f"the oldest is {troubled.kind} {troubled.job_id} ({troubled.code}: {troubled.text})"


def _span(microseconds: int) -> str:
    """Return a duration in its largest unit."""
    seconds = microseconds // 1_000_000
    for unit, length in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length} {unit}"
    return f"{seconds} seconds"


def _graph(connection: Connection) -> Finding:
    """Name what of the graph is not as it must be: entities that nothing mentions, and the like."""
    drift = graph.drift(connection)
    wrong = {
        "entities that nothing mentions": len(drift.orphans),
        "links that end at no entity of their scope": len(drift.strays),
        "entities shown though no active memory mentions them": len(drift.shown),
        "relations that no text says": len(drift.relations),
        "communities of nothing": len(drift.communities),
    }
    problems = [f"{count} {what}" for what, count in wrong.items() if count]
    if problems:
        text = f"{', '.join(problems)}: run `tally doctor --repair`"
        return Finding(check="graph", status="problem", text=text)
    count = graph.count_entities(connection)
    text = f"{count} entities, each with a memory that mentions it" if count else "it is empty"
    return Finding(check="graph", status="ok", text=text)


def _segments(context: MemoryContext, connection: Connection) -> Finding:
    damaged, strays = segments.damaged(connection), context.corpora.strays(connection)
    if strays:
        text = (
            f"{len(strays)} files of what recall derived, {strays[0].name} among them, are of a "
            "journal other than this tally's, as after its database was put back from a copy, and "
            "are not used: run `tally doctor --repair`"
        )
        return Finding(check="segments", status="problem", text=text)
    if damaged:
        text = (
            f"{sum(damaged.values())} pieces of what recall derived from {len(damaged)} scopes are "
            "damaged, and are not used: run `tally doctor --repair`"
        )
        return Finding(check="segments", status="problem", text=text)
    return Finding(check="segments", status="ok", text="what recall derived is whole")


def _large_scans(context: MemoryContext) -> str | None:
    """Name what each recall compares that a Chroma server should answer."""
    if not context.uses_chroma:
        return None
    with context.store.database.read() as connection:
        large = search.large_scopes(connection, above=context.large_scope)
    if not large:
        return None
    scanned = "1 scope has" if len(large) == 1 else f"{len(large)} scopes have"
    return (
        f"{scanned} more than {context.large_scope} memories, and this tally has no Chroma index: "
        "each recall there compares the signs of all vectors. Give the address of a Chroma server "
        'as `chroma`, or say that this is meant: `vector_search = "exact"`'
    )


def _index(context: MemoryContext, background: Background, *, repair: bool) -> Finding:
    if context.index is None:
        text = _large_scans(context)
        status: Literal["ok", "notice"] = "ok" if text is None else "notice"
        text = text or "this tally has no Chroma index; vectors are scanned exactly"
        return Finding(check="index", status=status, text=text)
    fingerprint = context.embedder.fingerprint
    with context.store.database.read() as connection:
        layout, state = layout_of(connection, fingerprint), state_of(connection, fingerprint)
        missing = wanted_keys(connection, context).difference(layout.keys)
        text = _filling(connection, fingerprint, layout, state)
    if text is not None:
        return Finding(check="index", status="notice", text=text)
    if not context.uses_chroma:
        kept = "; what Chroma has is removed by `tally rebuild-index`" if layout.keys else ""
        return Finding(check="index", status="ok", text=f"vectors are scanned exactly{kept}")
    if missing:
        text = f"Chroma is not filled with {_named(missing)} yet: the background does it"
        return Finding(check="index", status="notice", text=text)
    if not layout.keys:
        text = f"Chroma is not needed: no scope has more than {context.large_scope} memories"
        return Finding(check="index", status="ok", text=text)
    try:
        result = background.reconcile(repair=repair)
    except StorageError as error:
        return Finding(check="index", status="notice", text=f"Chroma was not looked at: {error}")
    if result.whole:
        return Finding(
            check="index", status="ok", text=f"{result.checked} vectors match the database"
        )
    if repair:
        return Finding(
            check="index", status="repaired", text="Chroma was made anew from the database"
        )
    reason = f" ({result.problem})" if result.problem else ""
    return Finding(
        check="index",
        status="problem",
        text=f"Chroma does not match{reason}: run `tally doctor --repair`",
    )


def _filling(
    connection: Connection, fingerprint: str, layout: Layout, state: IndexState
) -> str | None:
    """Say how far Chroma is filled; None where it is."""
    marks = marks_of(connection, NAME, layout.scopes) if layout.keys else {}
    filling = [scope_id for scope_id, mark in marks.items() if mark.filling]
    if not filling:
        return None
    keys = {layout.key_of(scope_id) for scope_id in filling}
    total = search.count_points(connection, fingerprint, scope_ids=filling)
    count = min(total, sum(state.counts.get(key, 0) for key in keys))
    return (
        f"Chroma is being filled with {_named(keys)}: {count} of {total} vectors are there; until "
        "then they are scanned"
    )


def _named(keys: Collection[int | None]) -> str:
    """Name the collections of these keys by what is in them."""
    if None in keys:
        return "all scopes"
    return "1 large scope" if len(keys) == 1 else f"{len(keys)} large scopes"
