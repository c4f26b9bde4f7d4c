"""Make a memory findable or unfindable, inside the transaction that changes it."""

from __future__ import annotations

from tallystick.logs import get_logger
from tallystick.memory.context import MemoryContext, is_local_only, searchable
from tallystick.ranking import indexed_words, slices, text_flags
from tallystick.records import Memory
from tallystick.storage import Connection, memories, outbox, scopes, search, settings_rows

__all__ = ["analyze_anew", "hide", "keeps_vectors", "show", "show_anew", "text_row"]

_ANALYSIS = "text_analysis"
_VERSION = "3"
"""Raise it when the words of a text come out differently: they are then analyzed anew on opening.
"""
_PAGE = 500


def text_row(memory: Memory) -> search.TextRow:
    """What a memory is found by: its text in slices, each beginning with who said it, its subject
    and its tags.
    """
    header = " ".join(filter(None, (memory.who, memory.subject, *memory.tags)))
    text = searchable(memory.content, memory.attributes)
    return search.TextRow(
        words=indexed_words(slices(text), header=header),
        marks=text_flags(memory.content)
        | (search.LOCAL_ONLY if is_local_only(memory.attributes) else 0),
        speaker=memory.who,
        tags=memory.tags,
        names=_names(memory),
    )


def _names(memory: Memory) -> tuple[str, ...]:
    """The subject of an entity with its aliases."""
    aliases = memory.attributes.get("aliases")
    if memory.kind != "entity" or memory.subject is None or not isinstance(aliases, list):
        return ()
    return (
        memory.subject,
        *(alias for alias in aliases if isinstance(alias, str) and alias.strip()),
    )


def show(
    tx: Connection,
    memory: Memory,
    *,
    doc: int,
    scope_id: int,
    vector: bytes | None,
    fingerprint: str,
    revision: int,
) -> None:
    """Index the words and, when there is one, the vector of a memory."""
    search.show_text(tx, doc, scope_id, text_row(memory), revision=revision)
    if vector is not None:
        search.add_vectors(tx, [(doc, scope_id, memory.version, vector)], fingerprint)
        outbox.append(tx, [doc])


def show_anew(tx: Connection, memory: Memory, *, doc: int, scope_id: int, revision: int) -> None:
    """Index the words of a memory whose vectors stand as they stood."""
    search.show_text(tx, doc, scope_id, text_row(memory), revision=revision)


def keeps_vectors(before: Memory, after: Memory) -> bool:
    """Whether the vectors of a memory hold for what it says now."""
    return (
        before.content == after.content
        and searchable(before.content, before.attributes)
        == searchable(after.content, after.attributes)
        and is_local_only(before.attributes) == is_local_only(after.attributes)
    )


def hide(tx: Connection, doc: int, *, revision: int) -> None:
    """Take a memory out of every index."""
    search.hide_text(tx, doc, revision=revision)
    outbox.append(tx, [doc])


def analyze_anew(context: MemoryContext) -> int:
    """Write the words of every findable memory where they were analyzed by an older release; how
    many those are.
    """
    database = context.store.database
    with database.read() as connection:
        if settings_rows.get_setting(connection, _ANALYSIS) == _VERSION:
            return 0

    def unit(tx: Connection) -> int:
        if settings_rows.get_setting(tx, _ANALYSIS) == _VERSION:
            return 0
        done = last = 0
        revisions: dict[int, int] = {}
        while docs := memories.findable_docs(tx, after=last, most=_PAGE):
            for stored in memories.get_docs(tx, docs).values():
                if stored.scope_id not in revisions:
                    revisions[stored.scope_id] = scopes.next_revision(tx, stored.scope_id)
                search.show_text(
                    tx,
                    stored.doc,
                    stored.scope_id,
                    text_row(stored.memory),
                    revision=revisions[stored.scope_id],
                )
            done, last = done + len(docs), docs[-1]
        settings_rows.set_setting(tx, _ANALYSIS, _VERSION)
        return done

    done = database.write(unit, name="analyze")
    if done:
        get_logger("memory").info("text.analyzed", count=done)
    return done
