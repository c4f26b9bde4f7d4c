"""Reading: from the texts of a scope to its entities, mentions and relations.

The names are read and embedded first, and linked in one transaction after. Linking a text again
gives the same links; a text that changed in between is left for the next page.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from tallystick.memory import MemoryContext
from tallystick.memory.context import Write, searchable
from tallystick.memory.remember import MOST_ENTITIES
from tallystick.records import (
    ENTITY_TYPES,
    Extraction,
    Memory,
    SourceHash,
    SourceRef,
    canonical_json,
)
from tallystick.storage import Connection, ScopeRow
from tallystick.storage.index import graph
from tallystick.storage.index.marks import Mark, keep_marks, lags_of
from tallystick.storage.rows import edges, memories, parts
from tallystick_graph.aliases import same_but_for_marks
from tallystick_graph.evidence import AliasReason, is_given_name, stated_aliases
from tallystick_graph.mentions import GRAPH_VERSION, settle
from tallystick_graph.name_forms import normal_name
from tallystick_graph.names import KnownNames, Name, Names, Said, given_names

_READ = 20_000
"""Characters of a text that are read for names."""
_MOST = 2 * MOST_ENTITIES
"""Names of one text at most, those that come first."""


@dataclass(frozen=True)
class ReadPage:
    """Texts of one scope with the names in them, read before the transaction that links them."""

    scope_id: int
    texts: tuple[tuple[memories.Stored, Names], ...]
    vectors: dict[str, bytes] = field(default_factory=dict)
    """By normal name, of those that were new when the page was read."""
    mark: Mark | None = None
    """The place up to which the graph has read the scope with it."""


def read_page(context: MemoryContext, scope_id: int, *, limit: int) -> ReadPage | None:
    """Return the next texts of a scope that the graph has not read, with the names that each was
    remembered with and those that the graph knows by then; None where there are no such texts.
    """
    with context.store.database.read() as connection:
        lag = lags_of(connection, graph.NAME, [scope_id]).get(scope_id)
        if lag is None:
            return None
        rows = graph.unread(connection, scope_id, lag.mark, limit=limit)
        mark = Mark(*rows[-1]) if len(rows) == limit else Mark.at(lag.revision)
        docs = [row.doc for row in rows]
        stored = memories.get_docs(connection, docs)
        known_names = _known_names(connection, scope_id)
    texts: list[tuple[memories.Stored, Names]] = []
    for doc in docs:
        if doc in stored:
            texts.append((stored[doc], Names(_names_of(stored[doc].memory, known_names))))
    return replace(_page(context, scope_id, texts), mark=mark)


def link_extraction(
    context: MemoryContext, stored: memories.Stored, extraction: Extraction
) -> Callable[[Write], int] | None:
    """Return what links a text with the names and relations that an extractor found in it, beside
    those that the graph knows; what the text does not name is left out.
    """
    if not context.settings.graph or not (extraction.entities or extraction.relations):
        return None
    with context.store.database.read() as connection:
        known_names = _known_names(connection, stored.scope_id)
    text = _text_of(stored.memory).casefold()
    extracted = [
        Name(each.name, each.kind if each.kind in ENTITY_TYPES else "name")
        for each in extraction.entities
        if each.name.casefold() in text
    ]
    names = _unique([*extracted, *_names_of(stored.memory, known_names)])
    normal = {normal_name(name.text) for name in names}
    relations = tuple(
        Said(each.source, each.relation, each.target, each.confidence)
        for each in extraction.relations
        if {normal_name(each.source), normal_name(each.target)} <= normal
    )
    page = _page(context, stored.scope_id, [(stored, Names(names, relations))])
    return partial(link_page, page=page)


def _known_names(connection: Connection, scope_id: int) -> KnownNames:
    """Return the names of the entities of a scope, as they are written."""
    docs = [name.doc for name in graph.names_in(connection, [scope_id])]
    entities = memories.get_docs(connection, docs).values()
    return KnownNames(each.memory.content for each in entities)


def _names_of(memory: Memory, known_names: KnownNames) -> tuple[Name, ...]:
    """Return the names that a memory was remembered with, which are known from here on, and those
    that its text names.
    """
    names = given_names(memory)
    for name in names:
        known_names.add(name)
    return _unique([Name(text) for text in (*names, *known_names.find_in(_text_of(memory)))])


def _unique(names: Iterable[Name]) -> tuple[Name, ...]:
    by_normal: dict[str, Name] = {}
    for name in names:
        normal = normal_name(name.text)
        if normal:
            by_normal.setdefault(normal, name)
    return tuple(by_normal.values())[:_MOST]


def _page(
    context: MemoryContext, scope_id: int, texts: Sequence[tuple[memories.Stored, Names]]
) -> ReadPage:
    """Return a page with the vectors of its new names."""
    names = {normal_name(name.text) for _, each in texts for name in each.names}
    with context.store.database.read() as connection:
        new = sorted(names - set(graph.find_names(connection, scope_id, names)))
    blobs = context.vectors_for(new).blobs
    vectors = {name: blob for name, blob in zip(new, blobs, strict=True) if blob is not None}
    return ReadPage(scope_id, tuple(texts), vectors)


def _text_of(memory: Memory) -> str:
    text = searchable(memory.content, memory.attributes)[:_READ]
    return f"{text}\n{memory.subject}" if memory.subject else text


def link_page(write: Write, page: ReadPage) -> int:
    """Link the texts of a page that are as they were read; return the number of mentions."""
    if page.mark is not None:
        keep_marks(write.tx, graph.NAME, {page.scope_id: page.mark})
    linking = _Linking(write, page)
    current = memories.get_docs(write.tx, [stored.doc for stored, _ in page.texts])
    return sum(
        linking.link(current[stored.doc], names)
        for stored, names in page.texts
        if stored.doc in current
        and current[stored.doc].memory.version == stored.memory.version
        and current[stored.doc].memory.state == "active"
    )


class _Linking:
    """The entities of a scope, within the transaction that links a page of texts with them."""

    def __init__(self, write: Write, page: ReadPage) -> None:
        self._write, self._page = write, page
        self._types: dict[str, str] = {}
        self._docs: dict[str, int] = {}
        self._by_word: dict[str, set[str]] = defaultdict(set)
        for entity in graph.names_in(write.tx, [page.scope_id]):
            self._note(entity.name, entity.doc, entity.type)

    def link(self, stored: memories.Stored, names: Names) -> int:
        """Link one text with what it mentions, beside what it is linked with already: what another
        text said went with that text.
        """
        tx, write, scope = self._write.tx, self._write, stored.scope
        before = graph.mentioned_by(tx, stored.doc)
        by_name: dict[str, int] = {}
        for name in names.names:
            normal = normal_name(name.text)
            if normal and normal not in by_name:
                by_name[normal] = self._entity(scope, name, normal)
        self._merge_stated(stored, names.names)
        for doc in dict.fromkeys(by_name.values()):
            if doc in before:
                continue
            edges.add(
                tx,
                edge_id=write.context.store.ids.new(),
                kind="MENTIONS",
                scope_id=scope.id,
                from_doc=stored.doc,
                to_doc=doc,
                at=write.now,
            )
        for relation in names.relations:
            source, target = (
                by_name.get(normal_name(relation.source)),
                by_name.get(normal_name(relation.target)),
            )
            if source is not None and target is not None and source != target:
                graph.add_relation(
                    tx,
                    scope.id,
                    source,
                    relation.relation,
                    target,
                    evidence=stored.doc,
                    confidence=relation.confidence,
                    at=write.now,
                )
        settle(write, before | set(by_name.values()))
        return len(by_name)

    def _note(self, name: str, doc: int, kind: str) -> None:
        self._docs[name], self._types[name] = doc, kind
        for key in _keys(name):
            self._by_word[key].add(name)

    def _entity(self, scope: ScopeRow, name: Name, normal: str) -> int:
        """Return the entity of a name, which is made where the scope has none."""
        if normal in self._docs:
            return self._docs[normal]
        doc = _insert_entity(self._write, scope, name)
        fingerprint = self._write.context.embedder.fingerprint
        vector = self._page.vectors.get(normal)
        made_by = fingerprint if vector is not None else None
        entity = graph.EntityName(normal, doc, name.type, made_by, vector)
        graph.add_name(self._write.tx, scope.id, entity)
        near: set[str] = set().union(*(self._by_word[key] for key in _keys(normal)))
        self._note(normal, doc, name.type)
        self._part_ambiguous(normal, sorted(near))
        self._merge_spelled_alike(normal, near)
        return doc

    def _merge_spelled_alike(self, normal: str, near: Iterable[str]) -> None:
        """Take a new name for one that is known and differs from it in marks alone."""
        for name in sorted(near):
            if name in self._docs and name != normal and same_but_for_marks(name, normal):
                short, full = sorted((normal, name), key=lambda each: (len(each), each))
                self._merge(short, full, "same_but_for_marks")
                return

    def _merge_stated(self, stored: memories.Stored, names: Sequence[Name]) -> None:
        """Take names of a text for other forms of others of them, where the text tells that."""
        typed = [
            Name(each.text, self._types.get(normal_name(each.text), each.type))
            if each.type == "name"
            else each
            for each in names
        ]
        for alias in stated_aliases(_text_of(stored.memory), typed):
            short, full = normal_name(alias.short), normal_name(alias.full)
            if short != full and short in self._docs and full in self._docs:
                self._merge(short, full, alias.reason, stored.memory.id)

    def _merge(self, short: str, full: str, reason: AliasReason, *evidence: str) -> None:
        """Let a name stand for a fuller one, unless it stands for another one by now, or somebody
        has forbidden it.
        """
        tx = self._write.tx
        part, whole = self._docs[short], self._docs[full]
        ends = edges.follow_to_end(tx, "DUPLICATE_OF", [part, whole], forward=True)
        whole = ends.get(whole, whole)
        stored = memories.get_docs(tx, [part, whole])
        if part in ends and ends[part] != whole:
            if reason != "same_but_for_marks":
                part_alias(self._write, stored[part])  # it could be either
                return
            part, whole = whole, ends[part]  # one more form of a name that stands for another
            stored |= memories.get_docs(tx, [whole])
        if part in ends or part == whole or edges.was_linked(tx, "DUPLICATE_OF", part, whole):
            return
        if stored[part].memory.state != "active" or stored[whole].memory.state == "deleted":
            return
        mark_alias(self._write, stored[part], stored[whole], reason, evidence)

    def _part_ambiguous(self, normal: str, candidates: Sequence[str]) -> None:
        """Part a given name from its entity where it could be that of this new name as well."""
        tx = self._write.tx
        for name in candidates:
            if name not in self._docs or not is_given_name(name, normal):
                continue
            doc = self._docs[name]
            if doc in edges.follow_to_end(tx, "DUPLICATE_OF", [doc], forward=True):
                part_alias(self._write, memories.get_docs(tx, [doc])[doc])


def mark_alias(
    write: Write,
    alias: memories.Stored,
    entity: memories.Stored,
    reason: AliasReason,
    evidence: Sequence[str],
) -> None:
    """Let a name stand for another entity, as `mark_duplicate` does: `restore` parts them again.
    `evidence` are the memories whose texts tell it.
    """
    edges.add(
        write.tx,
        edge_id=write.context.store.ids.new(),
        kind="DUPLICATE_OF",
        scope_id=alias.scope_id,
        from_doc=alias.doc,
        to_doc=entity.doc,
        at=write.now,
        reason=reason,
        evidence=evidence,
    )
    write.rewrite(
        write.permit_upkeep(alias),
        alias.memory.model_copy(update={"state": "duplicate", "corrected": "mark_duplicate"}),
        "memory.correct",
        reason=reason,
        details=_correction("mark_duplicate", alias.memory, "duplicate", entity.memory.id),
    )


def part_alias(write: Write, alias: memories.Stored) -> None:
    """Part a name from the entity that the graph took it for; it is not taken for it again."""
    links = [
        edge
        for edge in edges.of(write.tx, alias.doc)
        if edge.kind == "DUPLICATE_OF" and edge.from_doc == alias.doc
    ]
    edges.close(write.tx, [edge.id for edge in links], at=write.now)
    if alias.memory.state != "duplicate":
        return
    write.rewrite(
        write.permit_upkeep(alias),
        alias.memory.model_copy(update={"state": "active", "corrected": None}),
        "memory.correct",
        reason="the name could be two entities",
        details=_correction("restore", alias.memory, "active", None),
    )


def _correction(kind: str, before: Memory, after: str, other: str | None) -> dict[str, str]:
    details = {"correction": kind, "before": before.state, "after": after}
    return details if other is None else {**details, "other": other}


def _keys(name: str) -> set[str]:
    """Return what two names have in common that are forms of one: a word, a beginning, initials."""
    words = name.replace("-", " ").split()
    keys = {f"word {word}" for word in words if len(word) > 1}
    keys |= {f"begins {name[:3]}", f"initials {''.join(word[0] for word in words)}"}
    if len(words) == 1:
        keys.add(f"initials {name}")
    return keys


def _insert_entity(write: Write, scope: ScopeRow, name: Name) -> int:
    """Write an entity: a memory whose source is what was read, and which recall does not index."""
    tx, context = write.tx, write.context
    body = canonical_json({"entity": name.text, "type": name.type})
    key = parts.put(tx, scope, body, at=write.now)
    reference = SourceRef(source_type="app_state", version=GRAPH_VERSION)
    source_id = write.add_source(scope, reference, key)
    memory = Memory(
        id=context.store.ids.new(),
        scope=scope.scope,
        kind="entity",
        content=name.text,
        sources=(SourceHash(source_id=source_id, content_hash=key),),
        attributes={"type": name.type},
        transform_version=GRAPH_VERSION,
        created_at=write.now,
        updated_at=write.now,
        created_by=write.actor.user,
    )
    doc, committed = memories.insert_memory(tx, memory, scope=scope, content_key=key)
    memories.link_source(tx, doc, source_id, ordinal=0)
    details = {"version": 1, "kind": "entity", "commitment": committed, "source": source_id}
    write.journal_event(scope.scope, "memory.add", memory.id, details)
    return doc
