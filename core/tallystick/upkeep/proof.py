"""Proof: after a forget that no read reaches the text, after an erasure that nothing contains it;
with what cannot be proved.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple, get_args

from tallystick.checkpoints.removing import threads_containing
from tallystick.errors import NotFound, StateConflict, StorageError
from tallystick.memory import MemoryContext, RecallRequest, get, list_memories
from tallystick.memory.explore import explore
from tallystick.memory.history import history
from tallystick.memory.inspect import inspect
from tallystick.memory.recall import recall
from tallystick.records import Actor, MemoryState, Proof, Scope, Searched
from tallystick.storage import Connection
from tallystick.storage.engine import containment
from tallystick.storage.engine.writes import Writes
from tallystick.storage.index import search
from tallystick.storage.index.chroma import VectorPoint
from tallystick.storage.rows import journal, memories, objects, settings_rows
from tallystick.storage.text import byte_search, erasing
from tallystick.storage.text.scope_selection import ScopeSelection
from tallystick.upkeep.copies import OperatorScopes
from tallystick.upkeep.retention import CHOICES

_CANNOT_REACH = (
    "that nobody wrote the text down elsewhere, or that a model that was shown it does not "
    "remember it",
    "that runs and threads named among the copies do not show it: they are read by their own paths",
    "that backups and other copies of the tally's files do not hold it",
    "that scopes into which this actor may not look do not hold a copy",
)
CANNOT_ERASE: tuple[str, ...] = (
    "that backups, replicas and file-system snapshots do not hold it",
    "that blocks which the file system or the disk has given free do not hold it",
    "that a model, a provider or anybody who was shown it has forgotten it",
)
CANNOT_BEYOND = (
    "that what others keep in this tally, and its files, do not hold it: that is for its "
    "operator to see",
)
_CANNOT_SERVER = ("that the write-ahead log and the files of a database server do not hold it",)
_NO_TEXT = ("that the text stands nowhere else in the tally: give `text=` to search for it",)
_SINCE = (
    "that the text was not written again since it was searched for: give `text=` to search anew",
)
_CLAIM = "proof.erased"
_WORDS = ("content", "subject", "speaker", "category", "tags", "attributes")


def prove_unreachable(context: MemoryContext, actor: Actor, memory_id: str) -> Proof:
    """Prove that no read path of memory reaches a text that was forgotten or hidden. Raises
    NotFound, StateConflict.
    """
    database = context.store.database
    with database.read() as connection:
        stored = context.visible(connection, actor, memory_id, "inspect")
        memory = stored.memory
        if memory.state not in ("deleted", "hidden"):
            raise StateConflict(
                memory_id, state=memory.state, reason="it is not forgotten", hint="Forget it first."
            )
        problems = _still_indexed(connection, context, stored)
        copies, repeated = _copies(connection, context, actor, stored)
        problems += repeated
    checked = ["words", "vectors", "vectors in Chroma", "text kept in memory", "other memories"]
    if context.gate.require_or_none(actor, "read", memory.scope) is not None:
        problems += _reading_problems(context, actor, stored)
        checked += [
            "get",
            "recall",
            "recall in other states",
            "list",
            "history",
            "inspect",
            "explore",
        ]
    return _journal_proof(
        context,
        actor,
        stored,
        Proof(
            id=memory_id,
            claim="unreachable",
            holds=not problems,
            checked=tuple(checked),
            copies=tuple(copies),
            problems=tuple(problems),
            cannot_prove=_CANNOT_REACH,
            at=context.store.clock.now(),
        ),
    )


class Remains(NamedTuple):
    """The result of a search for the bytes of texts."""

    problems: tuple[str, ...]
    """The places that hold one."""
    checked: tuple[str, ...]
    missing: tuple[str, ...] = ()
    """Objects outside of the database that are not there, so that nobody can look into them."""


def search_remains(
    context: MemoryContext, actor: Actor, texts: Sequence[str], fragments: Sequence[str] = ()
) -> Remains | None:
    """Search every table and file within reach for texts, and for fragments inside of other words
    too; None if there is nothing to search for.
    """
    needles = containment.needles_of(texts, fragments)
    if not needles:
        return None
    with context.store.database.read() as connection:
        reach = OperatorScopes(connection, context, actor, "manage")
        within = (
            None if reach.whole else ScopeSelection.of(connection, reach.scopes(), settings=CHOICES)
        )
        counts = byte_search.rows_with(connection, needles, within=within)
        problems = [f"{place} holds the text in {count} rows" for place, count in counts.items()]
        problems += [
            f"the thread {thread.scope} {thread.name} holds the text"
            for thread in threads_containing(connection, needles).threads
            if reach.covers(Scope.parse(thread.scope))
        ]
        ids = None if within is None else within.ids
        moved = objects.objects_with(connection, needles, within=ids)
        problems += [
            f"an object outside of the database holds the text: {key}" for _, key in moved.parts
        ]
    checked = ["every column of every table", "pieces of checkpoints"]
    if context.store.database.attached.blobs is not None:
        checked.append("every object outside of the database")
    folder = context.store.location.folder
    if folder is not None and reach.whole:
        problems += [
            f"the file {name} holds the text" for name in byte_search.files_with(folder, needles)
        ]
        checked += ["every file of the folder, the write-ahead log and Chroma's among them"]
    return Remains(tuple(problems), tuple(checked), tuple(moved.missing))


def prove_erased(
    context: MemoryContext, actor: Actor, memory_id: str, remains: Remains | None
) -> Proof:
    """Search for remains of an erased memory; `remains` is what the search for its texts found.
    Journaled. Raises NotFound.

    The tally stores nothing by which it could find the text again, not even a keyed digest of its
    pieces: a reader of the tally could try guesses against that. Without `remains` the proof names
    the search that the erasure itself made.
    """
    database = context.store.database
    problems: list[str] = []
    checked = [
        "versions",
        "salts",
        "words",
        "vectors",
        "sources",
        "vectors in Chroma",
        "text kept in memory",
        "files rewritten",
    ]
    with database.read() as connection:
        stored = memories.get(connection, memory_id)
        if stored is None:
            raise context.absent(actor, memory_id)
        reach = OperatorScopes(connection, context, actor, "manage")
        problems += _remaining(connection, stored.doc)
        problems += _still_indexed(connection, context, stored)
        if settings_rows.get_setting(connection, "erase.pending") == "1":
            problems.append("the files were not rewritten yet: run `tally doctor --repair`")
        searched = _last_search(connection, memory_id) if remains is None else None
        if searched is not None and not searched.holds:
            problems.append(
                f"the last search found the text in {searched.problems} places: give `text=` to "
                f"search anew"
            )
    if remains is not None:
        problems += remains.problems
        checked += remains.checked
    server = _CANNOT_SERVER if context.store.location.folder is None else ()
    open_question = () if remains is not None else _NO_TEXT if searched is None else _SINCE
    cannot = CANNOT_ERASE + server + open_question
    cannot += () if reach.whole else CANNOT_BEYOND
    if remains is not None and remains.missing:
        cannot += (
            f"what copies there are of {len(remains.missing)} objects that are missing from the "
            f"object storage, such as {remains.missing[0]}",
        )
    proof = Proof(
        id=memory_id,
        claim="erased",
        holds=not problems,
        checked=tuple(checked),
        problems=tuple(problems),
        cannot_prove=cannot,
        searched=searched,
        at=context.store.clock.now(),
    )
    return _journal_proof(context, actor, stored, proof, searched=remains is not None)


def _last_search(connection: Connection, memory_id: str) -> Searched | None:
    """Return the last search for the text of a memory that the journal mentions, or None."""
    for entry in reversed(journal.about(connection, memory_id)):
        details = entry.details
        if entry.event == _CLAIM and details.get("searched") is True:
            checked, problems = details["checked"], details["problems"]
            return Searched.load(
                {
                    "at": entry.at,
                    "holds": details["holds"],
                    "problems": problems,
                    "checked": checked,
                    "audit_id": entry.audit_id,
                }
            )
    return None


def _remaining(connection: Connection, doc: int) -> list[str]:
    problems = []
    if count := erasing.versions_with_text(connection, doc):
        problems.append(f"{count} versions hold their text or salt")
    own = [source.id for source in erasing.own_sources(connection, [doc])]
    if count := erasing.living_sources(connection, own):
        problems.append(f"{count} sources are there")
    return problems


def _still_indexed(
    connection: Connection, context: MemoryContext, stored: memories.Stored
) -> list[str]:
    import numpy as np

    problems = []
    if search.has_words(connection, stored.doc):
        problems.append("its words are indexed")
    if search.has_vectors(connection, stored.doc):
        problems.append("its vectors are stored")
    if context.index is not None and context.index.is_open and context.index.owned:
        try:
            point = VectorPoint(stored.doc, stored.scope_id, 0, np.zeros(1, dtype=np.float32))
            if stored.doc in context.index.versions([point]):
                problems.append("its vector stands in Chroma: run `tally rebuild-index`")
        except StorageError as error:
            problems.append(f"Chroma could not be asked: {error}")
    if context.corpora.holds(connection, stored.scope_id, stored.doc):
        problems.append("its words are kept in memory")
    problems += context.corpora.remains(connection, stored.scope_id)
    return problems


def _copies(
    connection: Connection, context: MemoryContext, actor: Actor, stored: memories.Stored
) -> tuple[list[str], list[str]]:
    """Return the copies that are stored on purpose, and the memories with the same content."""
    bodies = [
        version.body
        for version in erasing.texts_of(connection, stored.doc)
        if version.body is not None
    ]
    copies = [f"{len(bodies)} versions, for recovery"] if bodies else []
    copies += [
        f"source {source.id}, for recovery"
        for source in erasing.own_sources(connection, [stored.doc])
    ]
    texts = dict.fromkeys(str(json.loads(body)["content"]) for body in bodies)
    needles = [needle for text in texts if text for needle in containment.forms(text)]
    if needles:
        inspects, reads = (
            OperatorScopes(connection, context, actor, operation)
            for operation in ("inspect", "read")
        )
        payloads = byte_search.payloads_with(connection, needles)
        steps = {step for step, scope_id, _ in payloads if inspects.covers_number(scope_id)}
        copies += [f"recorded step {step}" for step in sorted(steps)]
        recorded = byte_search.recorded_with(connection, needles)
        copies += [
            f"texts of run {hit.run_id}" if hit.step_id is None else f"texts of step {hit.step_id}"
            for hit in recorded
            if inspects.covers_number(hit.scope_id)
        ]
        threads = threads_containing(connection, needles).threads
        copies += [
            f"thread {thread.scope} {thread.name}"
            for thread in threads
            if reads.covers(Scope.parse(thread.scope))
        ]
    same = memories.with_content(connection, [stored.content_key], besides=[stored.doc])
    return copies, [f"memory {memory_id} says the same" for memory_id, _ in same]


def _reading_problems(context: MemoryContext, actor: Actor, stored: memories.Stored) -> list[str]:
    """Return the read paths that still show the memory to this actor. Its text is sent nowhere for
    this.
    """
    memory, problems, context = stored.memory, list[str](), context.silent()
    try:
        get(context, actor, memory.id)
        problems.append("get gives it")
    except NotFound:
        pass
    states: tuple[tuple[MemoryState, ...], ...] = ((), memories.FINDABLE)
    for chosen in states:
        hits = recall(
            context,
            actor,
            [memory.scope],
            memory.content,
            RecallRequest(limit=50, states=chosen, namespace=()),
            logged=False,
        )
        if any(hit.memory.id == memory.id for hit in hits):
            problems.append("recall finds it")
    every = RecallRequest(states=get_args(MemoryState), limit=10_000, namespace=())
    listed = list_memories(context, actor, memory.scope, every)
    if any(row.id == memory.id and any(getattr(row, name) for name in _WORDS) for row in listed):
        problems.append("a list shows what it says")
    if any(
        name in entry.new or name in entry.old
        for entry in history(context, actor, memory.id)
        for name in _WORDS
    ):
        problems.append("its history shows what it said")
    inspection = inspect(context, actor, memory.id)
    if any(
        (
            inspection.preview,
            inspection.subject,
            inspection.speaker,
            inspection.tags,
            inspection.attributes,
            inspection.conversation,
        )
    ):
        problems.append("inspecting it shows what it says")
    around = explore(context, actor, memory.id, states=get_args(MemoryState)).memories
    if any(node.id == memory.id and (node.preview or node.subject or node.tags) for node in around):
        problems.append("looking around shows what it says")
    return problems


def _journal_proof(
    context: MemoryContext,
    actor: Actor,
    stored: memories.Stored,
    proof: Proof,
    *,
    searched: bool = False,
) -> Proof:
    audit_id = context.store.ids.new()
    event = journal.Event(
        stream=f"scope:{stored.memory.scope}",
        event=f"proof.{proof.claim}",
        actor=actor,
        at=proof.at,
        audit_id=audit_id,
        subject_id=stored.memory.id,
        details={
            "holds": proof.holds,
            "checked": list(proof.checked),
            "problems": len(proof.problems),
            "searched": searched,
        },
    )
    context.store.database.write(
        lambda tx: journal.append(tx, event), name="proof", writes=Writes.of(stored.memory.scope)
    )
    return proof.model_copy(update={"audit_id": audit_id})
