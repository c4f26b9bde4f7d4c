"""Proof: after a forget that nothing reaches the text, after an erasure that nothing holds it; and
what stays open.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import get_args

from sqlalchemy import Connection, Table, func, select, true
from sqlalchemy.sql.elements import ColumnElement

from tallystick.checkpoints.removing import threads_containing
from tallystick.errors import NotFound, StateConflict, StorageError
from tallystick.memory import (
    MemoryContext,
    Wanted,
    explore,
    get,
    history,
    inspect,
    list_memories,
    recall,
)
from tallystick.records import Actor, MemoryState, Proof, Scope, Searched
from tallystick.storage import byte_search, erasing, journal, memories, settings_rows, tables
from tallystick.upkeep.operator_scopes import Reach
from tallystick.upkeep.portable import LEFT_OUT, Chosen

__all__ = ["CANNOT_BEYOND", "CANNOT_ERASE", "prove_erased", "prove_unreachable"]

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
_WORDS = ("content", "subject", "who", "category", "tags", "attributes")


def prove_unreachable(context: MemoryContext, actor: Actor, memory_id: str) -> Proof:
    """Try every read path of memory for a text that was forgotten or hidden. Raises NotFound,
    StateConflict.
    """
    database = context.store.database
    with database.read() as connection:
        stored = context.visible(connection, actor, memory_id, "inspect")
        memory = stored.memory
        if memory.state not in ("deleted", "hidden"):
            raise StateConflict(
                memory_id, state=memory.state, reason="it is not forgotten", hint="Forget it first."
            )
        problems = _indexed(connection, context, stored)
        copies, said = _copies(connection, context, actor, stored)
        problems += said
    checked = ["words", "vectors", "vectors in Chroma", "text kept in memory", "other memories"]
    if context.gate.require_or_none(actor, "read", memory.scope) is not None:
        problems += _tried(context, actor, stored)
        checked += [
            "get",
            "recall",
            "recall in other states",
            "list",
            "history",
            "inspect",
            "explore",
        ]
    return _told(
        context,
        actor,
        stored,
        Proof(
            memory_id=memory_id,
            claim="unreachable",
            holds=not problems,
            checked=tuple(checked),
            copies=tuple(copies),
            problems=tuple(problems),
            cannot_prove=_CANNOT_REACH,
            at=context.store.clock.now(),
        ),
    )


def prove_erased(
    context: MemoryContext,
    actor: Actor,
    memory_id: str,
    *,
    texts: Sequence[str] = (),
    journaled: bool,
) -> Proof:
    """Look for what is left of an erased memory, and for `texts` in every table and file. Raises
    NotFound.

    The tally keeps nothing by which it could find the text again, not even a keyed digest of its
    pieces: whoever reads the tally could try guesses against that. Without `texts` the proof names
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
        reach = Reach(connection, context, actor, "manage")
        problems += _left(connection, stored.doc)
        problems += _indexed(connection, context, stored)
        if settings_rows.get_setting(connection, "erase.pending") == "1":
            problems.append("the files were not rewritten yet: run `tally doctor --repair`")
        needles = [needle for text in texts if text for needle in byte_search.forms(text)]
        searched = None if needles else _searched(connection, memory_id)
        if searched is not None and not searched.holds:
            problems.append(
                f"the last search found the text in {searched.problems} places: give `text=` to "
                f"search anew"
            )
        if needles:
            found = byte_search.rows_with(
                connection, needles, among=_rows_within(connection, reach)
            )
            problems += [
                f"{place} holds the text in {count} rows" for place, count in found.items()
            ]
            held = threads_containing(connection, needles).threads
            problems += [
                f"the thread {scope} {name} holds the text"
                for _, scope, name in held
                if reach.covers(Scope.parse(scope))
            ]
            checked += ["every column of every table", "pieces of checkpoints"]
    folder = context.store.place.folder
    if needles and folder is not None and reach.whole:
        problems += [
            f"the file {name} holds the text"
            for name in byte_search.files_with(folder, [t for t in texts if t])
        ]
        checked += ["every file of the folder, the write-ahead log and Chroma's among them"]
    open_question = () if needles else _NO_TEXT if searched is None else _SINCE
    cannot = CANNOT_ERASE + (_CANNOT_SERVER if folder is None else ()) + open_question
    cannot += () if reach.whole else CANNOT_BEYOND
    proof = Proof(
        memory_id=memory_id,
        claim="erased",
        holds=not problems,
        checked=tuple(checked),
        problems=tuple(problems),
        cannot_prove=cannot,
        searched=searched,
        at=context.store.clock.now(),
    )
    return _told(context, actor, stored, proof, searched=bool(needles)) if journaled else proof


def _searched(connection: Connection, memory_id: str) -> Searched | None:
    """The last search for the bytes of a memory's text, as the journal knows it; None where it
    knows of none.
    """
    for entry in reversed(journal.about(connection, memory_id)):
        told = entry.details
        if entry.event == _CLAIM and told.get("searched") is True:
            checked, problems = told["checked"], told["problems"]
            return Searched.load(
                {
                    "at": entry.at,
                    "holds": told["holds"],
                    "problems": problems,
                    "checked": checked,
                    "audit_id": entry.audit_id,
                }
            )
    return None


def _left(connection: Connection, doc: int) -> list[str]:
    found = []
    versions, sources, links = tables.memory_versions, tables.sources, tables.memory_sources
    bodies = (
        select(func.count())
        .select_from(versions)
        .where(versions.c.doc == doc, versions.c.body.is_not(None) | versions.c.salt.is_not(None))
    )
    if count := connection.execute(bodies).scalar_one():
        found.append(f"{count} versions hold their text or salt")
    own = [source_id for source_id, _, _ in erasing.own_sources(connection, [doc])]
    living = (
        select(func.count()).select_from(sources).join(links, links.c.source_id == sources.c.id)
    )
    living = living.where(sources.c.id.in_(own), sources.c.lifecycle_state != "erased")
    if count := connection.execute(living).scalar_one():
        found.append(f"{count} sources are there")
    return found


def _indexed(connection: Connection, context: MemoryContext, stored: memories.Stored) -> list[str]:
    import numpy as np

    found = []
    text, vectors = tables.search_text, tables.vectors
    if connection.execute(
        select(text.c.doc).where(text.c.doc == stored.doc, text.c.words.is_not(None))
    ).first():
        found.append("its words are indexed")
    if connection.execute(select(vectors.c.doc).where(vectors.c.doc == stored.doc)).first():
        found.append("its vectors are stored")
    if context.index is not None and context.index.is_open and context.index.owned:
        try:
            point = (stored.doc, stored.scope_id, 0, np.zeros(1, dtype=np.float32))
            if stored.doc in context.index.versions([point]):
                found.append("its vector stands in Chroma: run `tally rebuild-index`")
        except StorageError as error:
            found.append(f"Chroma could not be asked: {error}")
    if context.corpora.holds(connection, stored.scope_id, stored.doc):
        found.append("its words are kept in memory")
    return found


def _copies(
    connection: Connection, context: MemoryContext, actor: Actor, stored: memories.Stored
) -> tuple[list[str], list[str]]:
    """Copies that are kept on purpose, and what says the same where this actor may read it."""
    bodies = [body for _, body in erasing.texts_of(connection, stored.doc) if body is not None]
    copies = [f"{len(bodies)} versions, for recovery"] if bodies else []
    copies += [
        f"source {source_id}, for recovery"
        for source_id, _, _ in erasing.own_sources(connection, [stored.doc])
    ]
    texts = dict.fromkeys(str(json.loads(body)["content"]) for body in bodies)
    needles = [needle for text in texts if text for needle in byte_search.forms(text)]
    if needles:
        inspects, reads = (
            Reach(connection, context, actor, operation) for operation in ("inspect", "read")
        )
        found = byte_search.payloads_with(connection, needles)
        steps = {step for step, scope_id, _ in found if inspects.covers_number(scope_id)}
        copies += [f"recorded step {step}" for step in sorted(steps)]
        goals = byte_search.goals_with(connection, needles)
        copies += [
            f"goal of run {run}" for run, scope_id in goals if inspects.covers_number(scope_id)
        ]
        threads = threads_containing(connection, needles).threads
        copies += [
            f"thread {scope} {name}"
            for _, scope, name in threads
            if reads.covers(Scope.parse(scope))
        ]
    same = memories.saying(connection, [stored.content_key], besides=[stored.doc])
    return copies, [f"memory {memory_id} says the same" for memory_id, _ in same]


def _rows_within(
    connection: Connection, reach: Reach
) -> Callable[[Table], ColumnElement[bool] | None]:
    """Which rows of each table are looked through for a text: all, or those of the scopes within
    reach.
    """
    if reach.whole:
        return lambda table: true()
    chosen = Chosen.of(connection, reach.scopes())
    return lambda table: None if table.name in LEFT_OUT else chosen.condition(table)


def _tried(context: MemoryContext, actor: Actor, stored: memories.Stored) -> list[str]:
    """Every read path, as this actor. What was forgotten is not sent anywhere to prove that it
    is.
    """
    memory, found, context = stored.memory, list[str](), context.silent()
    try:
        get(context, actor, memory.id)
        found.append("get gives it")
    except NotFound:
        pass
    states: tuple[tuple[MemoryState, ...], ...] = ((), memories.FINDABLE)
    for chosen in states:
        hits = recall(
            context,
            actor,
            [memory.scope],
            memory.content,
            Wanted(limit=50, states=chosen),
            logged=False,
        )
        if any(hit.memory.id == memory.id for hit in hits):
            found.append("recall finds it")
    listed = list_memories(context, actor, memory.scope, states=get_args(MemoryState), limit=10_000)
    if any(one.id == memory.id and any(getattr(one, name) for name in _WORDS) for one in listed):
        found.append("a list shows what it says")
    if any(
        name in entry.new or name in entry.old
        for entry in history(context, actor, memory.id)
        for name in _WORDS
    ):
        found.append("its history shows what it said")
    seen = inspect(context, actor, memory.id)
    if any(
        (seen.preview, seen.subject, seen.speaker, seen.tags, seen.attributes, seen.conversation)
    ):
        found.append("inspecting it shows what it says")
    around = explore(context, actor, memory.id, states=get_args(MemoryState)).memories
    if any(
        one.memory_id == memory.id and (one.preview or one.subject or one.tags) for one in around
    ):
        found.append("looking around shows what it says")
    return found


def _told(
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
    context.store.database.write(lambda tx: journal.append(tx, event), name="proof")
    return proof.model_copy(update={"audit_id": audit_id})
