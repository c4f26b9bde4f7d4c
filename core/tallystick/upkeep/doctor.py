"""Doctor: finds what is wrong with a tally, what only needs attention, and repairs what can be; and
measures where its bytes are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial

from tallystick.access.approvals import rules_and_enforcers
from tallystick.errors import (
    CredentialRefused,
    EmbedderFailed,
    EmbedderUnavailable,
    ExtractionError,
    ModelFailed,
    ModelRefused,
    ReadOnlyTally,
    TallystickError,
    TextRefused,
    UnusableVectors,
)
from tallystick.jobs import Background
from tallystick.jobs.derived import Status
from tallystick.memory import MemoryContext
from tallystick.memory.change import require_reason
from tallystick.memory.memory_write import MemoryWrite
from tallystick.records import JOB_STATES, Actor, Finding, Sizes, SpaceUse
from tallystick.spool import list_events
from tallystick.storage import Connection
from tallystick.storage.engine import integrity, texts
from tallystick.storage.engine.packing import damage_read
from tallystick.storage.engine.private_files import unwritable_reason, wider_than_private
from tallystick.storage.engine.writes import TALLY, Writes
from tallystick.storage.rows import (
    job_list,
    journal,
    parts,
    proposals,
    scopes,
    settings_rows,
)
from tallystick.storage.text import sizes
from tallystick.upkeep.jobs import note_repair, retry_jobs
from tallystick.upkeep.reach import withdraw_proposals
from tallystick.upkeep.retention import Windows, journal_window, purge, require_operator
from tallystick.upkeep.unfinished import PENDING, finish_erasure


def diagnose(
    context: MemoryContext,
    background: Background,
    actor: Actor,
    windows: Windows,
    *,
    has_owner: bool,
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
        "database": lambda connection: [
            *_database(connection),
            *_server(connection),
            *_triggers(connection),
        ],
        "journal": _journals,
        "versions": lambda connection: [_versions(connection)],
        "erasure": lambda connection: [_erasure(connection)],
        "texts": lambda connection: [_texts(connection)],
        "journal window": lambda connection: [_window(connection)],
        "changes": lambda connection: [_check_frozen(connection)],
        "who acts": lambda connection: [_who_acts(context, connection, has_owner=has_owner)],
        "recorder": lambda connection: [_check_recorder(connection)],
        "policy rules": _rules,
        "jobs": lambda connection: [_jobs(connection)],
    }
    findings: list[Finding] = _writing(context)
    for check, run in checks.items():
        findings += _read(context, check, run)
    for each in background.derived:
        findings += run_check(each.name, each.check)
    findings += run_check("files", lambda: _files(context))
    findings += run_check("spool", lambda: _spool(context))
    findings += run_check("retention", lambda: _retention(context, actor, windows))
    if not repair:
        return tuple(findings)
    repairs: dict[str, Callable[[], Finding]] = {
        "erasure": lambda: _finish_erasure(context, background),
        "texts": lambda: _removed_texts(context, background, actor),
        "jobs": lambda: _requeue_jobs(context, background, actor, reason),
        **{each.name: partial(each.repair, actor) for each in background.derived},
    }
    mends = {each.name: each.mends for each in background.derived}
    repaired: list[Finding] = []
    for finding in findings:
        repair_one = repairs.get(finding.check)
        if repair_one is None or finding.status != mends.get(finding.check, "problem"):
            repaired.append(finding)
        else:
            repaired += run_check(finding.check, repair_one)
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


def _finding(check: str, status: Status, text: str) -> Finding:
    return Finding(check=check, status=status, text=text)


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

    return run_check(check, read)


def run_check(check: str, run: Callable[[], Finding | list[Finding]]) -> list[Finding]:
    """Run a check; what it could not read is its finding."""
    try:
        findings = run()
        return findings if isinstance(findings, list) else [findings]
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
    return [_finding("writing", "notice", text)]


def _files(context: MemoryContext) -> list[Finding]:
    """Name files of an embedded tally that others may read."""
    folder = context.store.location.folder
    if folder is None:
        return []
    wider = wider_than_private(folder)
    if not wider:
        return [_finding("files", "ok", "only this user may read them")]
    more = f" and {len(wider) - 1} more" if len(wider) > 1 else ""
    text = f"others may read {wider[0]}{more}: open the tally as their owner, or chmod -R go= it"
    return [_finding("files", "notice", text)]


def _spool(context: MemoryContext) -> list[Finding]:
    """Say whether events of hooks wait: opening the tally has taken those that it could."""
    folder = context.store.location.folder
    if folder is None:
        return []
    try:
        waiting = list_events(str(folder))
    except OSError as error:
        return [_finding("spool", "notice", f"the spool cannot be read: {error.strerror}")]
    if not waiting:
        return [_finding("spool", "ok", "no event of a hook waits")]
    events = "1 event of a hook waits" if len(waiting) == 1 else f"{len(waiting)} events wait"
    text = f"{events} to be stored: `spool.waits` in the log says why, where it is not on its way"
    return [_finding("spool", "notice", text)]


def _finish_erasure(context: MemoryContext, background: Background) -> Finding:
    with background.pause():
        finish_erasure(context)
    text = "an erasure that was cut off is finished"
    return _finding("erasure", "repaired", text)


def _removed_texts(context: MemoryContext, background: Background, actor: Actor) -> Finding:
    def unit(tx: Connection) -> tuple[int, int]:
        write = MemoryWrite(tx, context, actor, context.store.clock.now(), None)
        about, bodies = proposals.without_source(tx), parts.list_orphans(tx)
        withdraw_proposals(write, about)
        for scope_id, key in bodies:
            parts.drop(tx, scope_id, key)
        settings_rows.set_setting(tx, PENDING, "1")
        return len(bodies), len(about)

    with background.pause():
        bodies, words = context.store.database.write(unit, name="doctor.texts")
        finish_erasure(context)
    text = f"{_count_unowned(bodies, words)} were removed, and the files were written anew"
    return _finding("texts", "repaired", text)


def _count_unowned(bodies: int, words: int) -> str:
    return f"{bodies} bodies that no row names and the words of {words} proposals without a source"


def _requeue_jobs(
    context: MemoryContext, background: Background, actor: Actor, reason: str
) -> Finding:
    requeued = retry_jobs(context, actor, None, reason=reason, idempotency_key=None)
    background.wake()
    text = f"{len(requeued)} jobs will be done anew"
    return _finding("jobs", "repaired", text)


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
    return _finding("retention", "notice" if count else "ok", text)


def _database(connection: Connection) -> list[Finding]:
    problems = integrity.file_problems(connection)
    if problems is None:
        return []
    if not problems:
        return [_finding("database", "ok", "the file is whole")]
    return [_finding("database", "problem", f"{text}: restore it from a copy") for text in problems]


def _server(connection: Connection) -> list[Finding]:
    """Say of a server as whom and how it is reached, and how many more may reach it."""
    facts = integrity.server_facts(connection)
    if facts is None:
        return []
    rights = "" if facts.may_create else ", which may not make tables: another role upgrades"
    way = "through a pooler" if facts.is_pooled else "without a pooler"
    idle = "never" if facts.idle_timeout == "0" else f"after {facts.idle_timeout}"
    used = f"{facts.connections} of {facts.max_connections} connections are in use"
    text = (
        f"PostgreSQL {facts.version} {way}, as {facts.role}{rights}; {used}, and idle ones are "
        f"ended {idle}"
    )
    is_full = 10 * facts.connections >= 9 * facts.max_connections
    if is_full:
        text += ": raise `max_connections`, or lower `readers` and `writers`"
    return [_finding("database", "notice" if is_full else "ok", text)]


def _triggers(connection: Connection) -> list[Finding]:
    text = "{} is a trigger that is not Tallystick's, and may change what is stored: drop it"
    return [
        _finding("database", "problem", text.format(each))
        for each in integrity.foreign_triggers(connection)
    ]


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
        return [_finding("journal", "problem", problem) for problem in problems[:20]]
    return [_finding("journal", "ok", f"{len(streams)} chains hold{purged}")]


def _versions(connection: Connection) -> Finding:
    """Compare every version that still has its text with its commitment."""
    wrong, count = integrity.altered_versions(connection)
    if wrong:
        return _finding("versions", "problem", f"{wrong} of {count} do not match their commitment")
    return _finding("versions", "ok", f"{count} match their commitments")


def _erasure(connection: Connection) -> Finding:
    if settings_rows.get_setting(connection, PENDING) == "1":
        return _finding(
            "erasure", "problem", "files hold what was erased: run `tally doctor --repair`"
        )
    return _finding("erasure", "ok", "none waits to be finished")


def _texts(connection: Connection) -> Finding:
    """Look for text whose owner is gone."""
    bodies, words = len(parts.list_orphans(connection)), len(proposals.without_source(connection))
    if bodies or words:
        text = f"{_count_unowned(bodies, words)} are stored: run `tally doctor --repair`"
        return _finding("texts", "problem", text)
    return _finding("texts", "ok", "every text has an owner")


def _window(connection: Connection) -> Finding:
    chosen, days = journal_window(connection)
    if not chosen:
        text = (
            "no window was chosen, so all of it is kept: run `tally init` (90 or 180 days are "
            "usual)"
        )
        return _finding("journal window", "notice", text)
    return _finding("journal window", "ok", "kept for ever" if days is None else f"{days} days")


def _check_frozen(connection: Connection) -> Finding:
    if scopes.is_frozen(connection):
        return _finding("changes", "notice", "an operator has suspended every change of memory")
    return _finding("changes", "ok", "memory may be changed")


def _who_acts(context: MemoryContext, connection: Connection, *, has_owner: bool) -> Finding:
    if not context.gate.users_were_named(connection):
        text = (
            "no runtime has named a user: the owner acts where nobody is named"
            if has_owner
            else "the tally has no owner here: calls of a runtime that name nobody are refused"
        )
        return _finding("who acts", "ok", text)
    text = "users were named, so that calls of a runtime that name nobody are refused"
    refused = integrity.refused_calls(connection, "missing_actor")
    if not refused:
        return _finding("who acts", "ok", text)
    calls = "1 call was" if refused == 1 else f"{refused} calls were"
    return _finding(
        "who acts", "notice", f"{text}; {calls}: give each call its user, or the piece an `actor`"
    )


def _check_recorder(connection: Connection) -> Finding:
    runs = integrity.runs_with_gaps(connection)
    unrecorded = settings_rows.count_unrecorded(connection)
    losses = []
    if runs:
        gaps = sum(run.gaps for run in runs)
        things = "1 thing" if gaps == 1 else f"{gaps} things"
        where, others = (
            ("1 run", "") if len(runs) == 1 else (f"{len(runs)} runs", " and others that say so")
        )
        losses.append(
            f"{things} could not be recorded, in {where}: run `tally verify` on "
            f"{runs[0].run_id[-8:]}{others}"
        )
    if unrecorded:
        events = "1 event" if unrecorded == 1 else f"{unrecorded} events"
        losses.append(
            f"{events} of no run could not be recorded: `capture.failed` in the log says why, and "
            f"an observer with `strict=True` raises it"
        )
    if losses:
        return _finding("recorder", "notice", "; ".join(losses))
    return _finding("recorder", "ok", "every run that is kept was recorded without a gap")


def _rules(connection: Connection) -> list[Finding]:
    """Name the rules that no piece of any process enforces."""
    return [
        _finding(
            "policy rules", "ok", f"rule {rule.rule_id} is enforced by {', '.join(rule.pieces)}"
        )
        if rule.pieces
        else _finding(
            "policy rules",
            "problem",
            f"rule {rule.rule_id} over {rule.applies_to} is enforced by nothing",
        )
        for rule in rules_and_enforcers(connection)
    ]


def _jobs(connection: Connection) -> Finding:
    counts = job_list.counts(connection)
    summary = ", ".join(f"{counts[state]} {state}" for state in JOB_STATES if state in counts)
    failed, waiting = job_list.failed_by_code(connection), job_list.waiting_by_code(connection)
    if failed:
        return _finding(
            "jobs",
            "problem",
            f"{summary}; {_oldest(failed[0])}: look at `tally jobs --state failed --state "
            f"dead`, then do them anew with `tally jobs retry` or `tally doctor --repair`",
        )
    common = next((each for each in waiting if _needs_a_person(each)), None)
    if common is not None:
        return _finding(
            "jobs",
            "problem",
            f"{summary}; {common.jobs} wait because their provider answers none of them; "
            f"{_oldest(common)}: mend its settings, key or name, and they go on by themselves",
        )
    if waiting:
        count = sum(each.jobs for each in waiting)
        return _finding(
            "jobs",
            "notice",
            f"{summary}; {count} wait for what is away ({waiting[0].code}), the oldest for "
            f"{_span(waiting[0].age_us)}; {_oldest(waiting[0])}: they go on by themselves when "
            f"it is back",
        )
    return _finding("jobs", "ok", summary or "none")


def _needs_a_person(waiting: job_list.Troubled) -> bool:
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


def _oldest(troubled: job_list.Troubled) -> str:
    return f"the oldest is {troubled.kind} {troubled.job_id} ({troubled.code}: {troubled.text})"


def _span(microseconds: int) -> str:
    """Return a duration in its largest unit."""
    seconds = microseconds // 1_000_000
    for unit, length in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length} {unit}"
    return f"{seconds} seconds"


_FREE = "free pages, used by what comes next"


def measure(context: MemoryContext, actor: Actor) -> Sizes:
    """Return the bytes of a tally by kind, largest first. Raises Denied."""
    require_operator(context, actor)
    location = context.store.location
    with context.store.database.read() as connection:
        by_table = sizes.bytes_by_table(connection)
        text = sizes.bytes_of_text(connection)
    uses: Counter[str] = Counter()
    for table, count in (by_table or {}).items():
        uses[texts.rows_of(table).size] += count
    if location.folder is not None and location.is_embedded:
        files = sizes.bytes_of_files(location.folder)
        database = files.pop("database", 0)
        if by_table is None:
            uses["database"] = database
        elif database > uses.total():
            uses[_FREE] = database - uses.total()
        else:
            # These pages are in the log alone until they are moved to the file.
            files["log of writes"] -= uses.total() - database
        uses.update(files)
    return Sizes(
        uses=tuple(SpaceUse(kind=kind, size=size) for kind, size in uses.most_common()),
        total=uses.total(),
        text=text,
    )
