"""Working sets: what memory puts into the prompt of a session.

The first turn of a session gets a profile: what is pinned, standing instructions, preferences and
facts, and the statements that tell most. Each later turn adds what its request finds, where the
match is unusual for this user. A piece stays, word for word, until the session ends or the piece is
changed, forgotten or withdrawn.

What a session has is live state, as a checkpoint is: ids and numbers in the table of working
memory, no text. What was shown stands in the receipts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tallystick.access import is_expired, replacements, visible_docs
from tallystick.memory.context import MemoryContext, is_made_by_extension
from tallystick.memory.contradictions import contradictions
from tallystick.memory.fields import STORE_ITEM
from tallystick.memory.held_changes import applied_since, changes_note, held_changes
from tallystick.memory.passages import Content, content_of, says_the_same, shown_text
from tallystick.memory.recall import recall, with_sound_segments
from tallystick.memory.recall_request import RecallRequest
from tallystick.memory.searched import SearchedScopes, searched_scopes
from tallystick.memory.session_state import Entry, Habits, KeptSession, SessionState
from tallystick.memory.supersession import freshness_of, is_current
from tallystick.memory.unusual import REQUESTS, best_match, usual_match
from tallystick.ports import TokenCounter
from tallystick.ranking import Corpus
from tallystick.ranking.information import information, later_on_same_matter, stated
from tallystick.ranking.signals import USER, is_assistant
from tallystick.records import (
    Actor,
    AppliedChange,
    ChosenAs,
    HeldChange,
    Hit,
    Memory,
    Piece,
    Scope,
    WorkingSet,
    text_digest,
)
from tallystick.storage import Connection
from tallystick.storage.index.segments import reading
from tallystick.storage.rows import edges, items, memories, scopes, working
from tallystick.storage.rows.working import Holder

_STATEMENTS = ("turn", "note")
"""The kinds of what was said, as it was said."""
_CONCLUDED = (
    *("fact", "decision", "procedure", "plan", "task", "claim"),
    *("artifact", "pattern", "tool", "concept", "warning"),
)
"""The other kinds that a learner may conclude from what was said."""
_KINDS: tuple[tuple[ChosenAs, tuple[str, ...]], ...] = (
    ("constraint", ("constraint", "rule")),
    ("preference", ("preference",)),
    ("fact", _CONCLUDED),
    ("statement", _STATEMENTS),
)
"""The kinds of a profile, in the order in which they are served."""
_OVER = ("done", "cancelled")
_READ = 48
"""Memories of one reason that are read, those that tell most."""
_LARGEST = 3
"""A piece takes at most this part of a profile: a third."""
_LEAST = 0.5
"""The part of what the statements of a scope usually tell that one in a working set tells at least.
"""
_FOUND = 15
"""Hits that the pieces of a turn are chosen from."""
_LINKS = 8
"""Statements of one fact that are looked at."""
_OF_BEST = 0.6
"""The part of the best score that a piece has at least."""
_SECOND = 1_000_000


@dataclass(frozen=True, kw_only=True)
class SessionTurn:
    """A turn of a session, for which memory shows its working set."""

    text: str = ""
    """The latest request of the user; empty where a session begins without one."""
    conversation: str | None = None
    """The session: a thread, a conversation, a run of a coding agent. Without one the turn is a
    session of its own.
    """
    in_prompt: bool = True
    """True if the own turns of the conversation are in the prompt already: they are left out."""
    turn: str | None = None
    """The turn, by the run that answers it or its place: asked again it has the same pieces. None
    is always another turn.
    """
    namespace: tuple[str, ...] | None = None
    """The items of stores beneath this namespace are found as well; None for none."""
    most: int = 3
    """Pieces that the request adds at most, beside later statements on the same matter."""
    budget: int = 350
    """Tokens of the profile."""
    pause: int = 6 * 3600
    """Seconds after which the session begins anew."""

    @property
    def running(self) -> str | None:
        """The conversation whose turns are left out."""
        return self.conversation if self.in_prompt else None


def working_set(
    context: MemoryContext,
    actor: Actor,
    scope_list: Sequence[Scope],
    home: Scope,
    request: SessionTurn,
    *,
    counter: TokenCounter,
) -> WorkingSet:
    """Return the working set of a session at a turn, and keep it in `home` for the next one.

    Nothing is in it twice, nor a turn beside the facts that stem from it. Raises Denied for the
    first scope that the actor may not read.
    """
    for scope in dict.fromkeys(scope_list):
        context.gate.require(actor, "read", scope)
    kept = KeptSession(
        context,
        actor,
        home,
        conversation=request.conversation,
        turn=request.turn,
        pause=request.pause * _SECOND,
    )
    before, habits = kept.load()
    now = context.store.clock.now()
    turn = None if request.turn is None else text_digest("turn", f"{request.turn} {request.text}")
    begins = before is None or now - before.last > request.pause * _SECOND
    state = before if before and not begins else SessionState(began=now, before=habits.began)
    is_asked_again = not begins and turn is not None and state.turn == turn
    found: Sequence[Hit] = ()
    match = 0.0
    if request.text.strip() and request.most and not is_asked_again:
        asked = RecallRequest(limit=_FOUND, namespace=request.namespace)
        best = best_match(context, scope_list, request.text, asked, besides=request.running)
        # The first hit has at most the best words: mostly they say already that nothing is found.
        match, usually = best.score, usual_match(habits.matches, best.texts)
        if match > 0 and match >= usually:
            found = recall(
                context,
                actor,
                scope_list,
                request.text,
                asked,
                logged=False,
                analysed=best.analysed,
            )
            if request.running is not None:
                found = [hit for hit in found if hit.memory.conversation != request.running]
            match = found[0].signals.get("text", 0.0) if found else 0.0
            found = found if match > 0 and match >= usually else ()

    def choose() -> tuple[WorkingSet, Sequence[Entry]]:
        with context.store.database.read() as connection, reading(connection):
            chooser = _Chooser(connection, context, actor, scope_list, request, counter, now, state)
            chooser.keep(state.entries)
            if begins:
                chooser.add_profile()
            if found:
                chooser.add_matches(found)
            return chooser.working_set(), chooser.beyond

    chosen, beyond = with_sound_segments(context, scope_list, choose)
    if not is_asked_again:
        entries = tuple(
            Entry(
                each.hit.memory.id,
                each.hit.memory.version,
                each.chosen_as,
                each.profile,
                round(each.hit.score, 6),
            )
            for each in chosen.pieces
        )
        matches = (*habits.matches, *([round(match, 4)] if request.text.strip() else []))
        warnings = kept.store(
            replace(state, entries=(*entries, *beyond), turn=turn, last=now),
            Habits(matches[-REQUESTS:], state.began if begins else habits.began),
            now,
            had=state.entries,
        )
        chosen = chosen.model_copy(update={"warnings": warnings})
    elif not chosen.replaced and not chosen.withdrawn:
        return chosen.model_copy(update={"asked_again": True})
    context.gate.log_read(actor, "working_set", scope_list, results=len(chosen.pieces))
    return chosen


def shown_in_session(
    context: MemoryContext, actor: Actor, home: Scope, conversation: str
) -> dict[str, WorkingSet]:
    """Return what a session stored in `home` is shown now, by whom it belongs to: a user, or the
    user and agent. Of each the memories that `actor` may read. Raises Denied.
    """
    context.gate.require(actor, "read", home)
    now, holder = context.store.clock.now(), Holder("session", conversation)
    shown = {}
    with context.store.database.read() as connection:
        ids = [row.id for row in scopes.find(connection, [home])]
        for value in working.values_of(connection, ids, [holder], at=now) if ids else []:
            names: list[str | None] = json.loads(value.name)
            state = SessionState.load(value.body)
            asked = SessionTurn(namespace=())
            chooser = _Chooser(connection, context, actor, [home], asked, None, now, state)
            chooser.keep(state.entries)
            shown[" · ".join(filter(None, names))] = chooser.working_set()
    context.gate.log_read(actor, "working_set", [home], results=len(shown))
    return shown


@dataclass(frozen=True)
class _Chosen:
    """A memory that was chosen, and why."""

    stored: memories.Stored
    why: ChosenAs
    is_profile: bool = False
    is_new: bool = False
    score: float = 0.0
    found: Hit | None = None
    """The hit that it is, where the request of the turn found it."""


class _Chooser:
    """Chooses the pieces of a session from one snapshot."""

    def __init__(
        self,
        connection: Connection,
        context: MemoryContext,
        actor: Actor,
        scope_list: Sequence[Scope],
        request: SessionTurn,
        counter: TokenCounter | None,
        now: int,
        state: SessionState,
    ) -> None:
        self._state = state
        self._connection, self._context, self._actor = connection, context, actor
        self._request, self._now = request, now
        self._count = (lambda text: 0) if counter is None else counter.count
        self._decisions = {
            scope: context.gate.decide(connection, actor, "read", scope)
            for scope in dict.fromkeys(scope_list)
        }
        self._readable = [scope for scope, decision in self._decisions.items() if decision.allowed]
        self._searched: SearchedScopes | None = None
        self._learned: dict[str, AppliedChange] | None = None
        self._chosen: dict[str, _Chosen] = {}
        self._loaded: dict[int, memories.Stored | None] = {}
        """The memories that were read, by number; None for one that is not shown."""
        self._stated: dict[int, Any] = {}
        """What people said in a corpus of `_corpora`, by its identity."""
        self._information: dict[int, tuple[Any, float]] = {}
        """What each row of a scope tells, and the least that a statement of it tells here."""
        self._contents: dict[str, Content] = {}
        """What the chosen memories say, by id, as far as it was compared."""
        self._facts: set[int] = set()
        """What is in and is no statement."""
        self._origins: tuple[set[int], set[int]] = set(), set()
        """The statements from which some facts were concluded, and these facts."""
        self._running: set[int] | None = None
        """The turns of the running session that are in the prompt, once they were read."""
        self.beyond: list[Entry] = []
        """What the session has of stores, and is shown to calls for its namespace alone."""
        self._replaced: list[str] = []
        self._withdrawn: list[str] = []

    def working_set(self) -> WorkingSet:
        """Return what was chosen."""
        chosen = self._chosen.values()
        among = [each.stored for each in chosen]
        rivals = contradictions(self._connection, self._context, self._actor, among, self._now)
        held = held_changes(self._connection, self._context, self._actor, among)
        pieces = [
            Piece(
                hit=self._hit(each, rivals.get(memory_id, ()), held.get(memory_id, ())),
                chosen_as=each.why,
                profile=each.is_profile,
                new=each.is_new,
            )
            for memory_id, each in self._chosen.items()
        ]
        return WorkingSet(
            pieces=tuple(pieces),
            replaced=tuple(self._replaced),
            withdrawn=tuple(self._withdrawn),
        )

    def _hit(self, chosen: _Chosen, rivals: tuple[str, ...], held: tuple[HeldChange, ...]) -> Hit:
        memory = chosen.stored.memory
        learned = self._since_before().get(memory.id)
        if chosen.found is not None:
            return chosen.found.model_copy(
                update={"contradicted_by": rivals, "held": held, "learned": learned}
            )
        return Hit.model_construct(
            memory=memory,
            score=chosen.score,
            signals={},
            sources=(),
            source_ids=tuple(source.source_id for source in memory.sources),
            visible_to=memory.scope,
            access_reason=self._decisions[memory.scope].reason,
            path="none",
            fresh=freshness_of(memory, is_history=False) == "current",
            history=False,
            replaced_by=None,
            duplicates=(),
            contradicted_by=rivals,
            held=held,
            learned=learned,
            passage=None,
        )

    def keep(self, entries: Sequence[Entry]) -> None:
        """Keep what the session has: what was changed as it is now, what was replaced by what
        holds instead; what may no longer be read goes.
        """
        if not entries:
            return
        stored = {
            each.memory.id: each
            for each in memories.get_many(self._connection, [entry.id for entry in entries])
        }
        superseded = [each.doc for each in stored.values() if each.memory.state == "superseded"]
        heads = (
            replacements(
                self._connection, superseded, lambda scope: scope in self._readable, self._now
            )
            if superseded
            else {}
        )
        standing = [
            heads.get(stored[entry.id].doc, stored[entry.id])
            for entry in entries
            if entry.id in stored
        ]
        visible = {each.memory.id: each for each in self._visible(standing)}
        within = self._items_within(standing)
        for entry in entries:
            known = stored.get(entry.id)
            now_as = None if known is None else heads.get(known.doc, known)
            if now_as is None or now_as.memory.id not in visible:
                self._withdrawn.append(entry.id)
                continue
            memory = now_as.memory
            if memory.kind == STORE_ITEM and now_as.doc not in within:
                self.beyond.append(entry)
                continue
            if (memory.id, memory.version) != (entry.id, entry.version):
                self._replaced.append(entry.id)
            self._add(_Chosen(now_as, entry.chosen_as, entry.is_profile, score=entry.score))

    def _items_within(self, stored: Iterable[memories.Stored]) -> set[int]:
        """Return those of some memories that are items of stores which a call for the namespace of
        this turn reaches.
        """
        namespace = self._request.namespace
        if namespace is None:
            return set()
        kept: dict[int, list[int]] = {}
        for each in stored:
            if each.memory.kind == STORE_ITEM:
                kept.setdefault(each.scope_id, []).append(each.doc)
        return {
            row.doc
            for scope_id, docs in kept.items()
            for row in items.beneath(self._connection, scope_id, namespace, among=docs)
        }

    def add_profile(self) -> None:
        """Add what this user's agent should know from the first turn on, within the budget, and
        beside it what was learned lately, within a third of it.
        """
        remaining = self._request.budget // _LARGEST
        latest = [*self._since_before()][::-1]
        learned = {each.memory.id: each for each in memories.get_many(self._connection, latest)}
        for stored in self._visible(learned[each] for each in latest if each in learned):
            remaining -= self._take(stored, "learned", remaining)
        remaining = self._request.budget
        for why, candidates in self._profile_candidates():
            for stored in candidates:
                remaining -= self._take(stored, why, remaining)

    def _take(self, stored: memories.Stored, why: ChosenAs, remaining: int) -> int:
        """Add a piece to the profile if it fits; return its tokens, else 0."""
        most = remaining if why == "pinned" else min(remaining, self._request.budget // _LARGEST)
        note = changes_note((), self._since_before().get(stored.memory.id))
        cost = self._count(shown_text(stored.memory) + note)
        if cost > most or not self._is_wanted(stored):
            return 0
        self._add(_Chosen(stored, why, is_profile=True, is_new=True))
        return cost

    def _later(self, stored: memories.Stored) -> list[memories.Stored]:
        """Return the latest statement of the same speaker on the matter of a statement, if there is
        a later one.
        """
        corpus = self._corpora().get(stored.scope_id)
        if corpus is None or stored.memory.kind not in _STATEMENTS:
            return []
        rows = corpus.rows_of([stored.doc])
        if not len(rows):
            return []
        speakers = corpus.column("speaker")
        of_speaker = self._statements(corpus) & (speakers == speakers[rows[0]])
        later = later_on_same_matter(corpus, int(rows[0]))
        return self._load(corpus.column("doc")[later[of_speaker[later]][:1]].tolist())

    def add_matches(self, found: Sequence[Hit]) -> None:
        """Add the hits of a request that are near the best one."""
        least = _OF_BEST * max(hit.score for hit in found)
        near = [hit for hit in found if hit.score >= least and not hit.history]
        by_id = {
            each.memory.id: each
            for each in memories.get_many(self._connection, [hit.memory.id for hit in near])
        }
        added = 0
        for hit in near:
            stored = by_id.get(hit.memory.id)
            if added == self._request.most:
                return
            if stored is None or not self._tells_enough(stored) or not self._is_wanted(stored):
                continue
            added += 1
            self._add(_Chosen(stored, "match", is_new=True, found=hit, score=hit.score))
            for later in self._later(stored):
                if self._is_wanted(later):
                    self._add(_Chosen(later, "later", is_new=True))

    def _profile_candidates(self) -> Iterator[tuple[ChosenAs, list[memories.Stored]]]:
        """Yield what a profile is chosen from, by reason, what tells most first."""
        import numpy as np

        ids = list(self._corpora())
        pinned = memories.pinned(self._connection, ids, without_kind=STORE_ITEM, limit=_READ)
        yield "pinned", self._visible(pinned)
        for why, kinds in _KINDS:
            # What others said comes after all that the user said.
            docs: dict[int, tuple[bool, float]] = {}
            for scope_id, corpus in self._corpora().items():
                nats, least = self._information_of(scope_id)
                rows = _of_kinds(corpus, kinds)
                if why == "statement":
                    rows = rows[self._statements(corpus)[rows] & (nats[rows] >= least)]
                    others = ~self._own(corpus, rows)
                else:
                    others = np.zeros(len(rows), bool)
                order = np.lexsort((-nats[rows], others))[:_READ]
                numbers = corpus.column("doc")[rows[order]].tolist()
                ranks = zip(others[order].tolist(), nats[rows[order]].tolist(), strict=True)
                docs |= dict(zip(numbers, ranks, strict=True))
            loaded = self._load(docs)
            if why == "statement":
                read = self._read_by_learner(loaded)
                loaded = [each for each in loaded if each.doc not in read]
                docs = {each.doc: self._rank(each.memory, *docs[each.doc]) for each in loaded}
            loaded.sort(key=lambda each: (docs[each.doc][0], -docs[each.doc][1], each.doc))
            yield why, [each for each in loaded if _is_open(each.memory)]

    def _information_of(self, scope_id: int) -> tuple[Any, float]:
        """Return what each row of a scope tells, and the least that a statement tells which is
        shown.
        """
        if scope_id not in self._information:
            corpus = self._corpora()[scope_id]
            nats = information(corpus)
            self._information[scope_id] = nats, _LEAST * _median(nats[self._statements(corpus)])
        return self._information[scope_id]

    def _tells_enough(self, stored: memories.Stored) -> bool:
        """Return True unless a memory is a statement that tells less than one of a profile has to:
        "good morning" answers nothing.
        """
        corpus = self._corpora().get(stored.scope_id)
        if corpus is None or stored.memory.kind not in _STATEMENTS:
            return True
        nats, least = self._information_of(stored.scope_id)
        return bool((nats[corpus.rows_of([stored.doc])] >= least).all())

    def _since_before(self) -> dict[str, AppliedChange]:
        """Return what learning changed from the session before until this one began, by the memory
        that shows it.
        """
        if self._learned is None:
            state = self._state
            self._learned = (
                applied_since(
                    self._connection,
                    self._context,
                    self._actor,
                    [row.id for row in scopes.find(self._connection, self._readable)],
                    state.before,
                    state.began,
                )
                if state.before is not None
                else {}
            )
        return self._learned

    def _rank(self, memory: Memory, is_of_others: bool, told: float) -> tuple[bool, float]:
        """Return whether a statement is of others, and what it counts for that tells so much: less
        where it asks or quotes, and where others say as much in fewer tokens.
        """
        worth = told * stated(memory.content) / math.sqrt(self._count(memory.content) or 1)
        return is_of_others or memory.created_by != self._actor.user, worth

    def _own(self, corpus: Corpus, rows: Any) -> Any:
        """Return for each row True if the user said it, or nobody by name."""
        import numpy as np

        numbers = corpus.vocabulary.speakers
        own = [-1, *(numbers[name] for name in (USER, self._actor.user) if name in numbers)]
        return np.isin(corpus.column("speaker")[rows], own)

    def _statements(self, corpus: Corpus) -> Any:
        """Return for each row True for what a person said, outside of the running session."""
        import numpy as np

        if (known := self._stated.get(id(corpus))) is not None:
            return known
        vocabulary = corpus.vocabulary
        assistants = [
            number for name, number in list(vocabulary.speakers.items()) if is_assistant(name)
        ]
        kinds = [vocabulary.kinds.get(kind, -1) for kind in _STATEMENTS]
        running = vocabulary.conversations.get(self._request.running or "", -2)
        flags = self._stated[id(corpus)] = (
            corpus.alive
            & np.isin(corpus.column("kind"), kinds)
            & ~np.isin(corpus.column("speaker"), assistants)
            & (corpus.column("conversation") != running)
        )
        return flags

    def _corpora(self) -> dict[int, Corpus]:
        if self._searched is None:
            self._searched = searched_scopes(self._connection, self._context, self._readable)
        return self._searched.corpora

    def _load(self, docs: Collection[int]) -> list[memories.Stored]:
        """Return those of some memories that hold, and that the actor may read; each is read
        once.
        """
        new = [doc for doc in docs if doc not in self._loaded]
        if new:
            loaded = memories.get_docs(self._connection, new, within=list(self._corpora()))
            visible = {each.doc: each for each in self._visible(loaded.values())}
            self._loaded |= {doc: visible.get(doc) for doc in new}
        return [stored for doc in docs if (stored := self._loaded[doc]) is not None]

    def _visible(self, stored: Iterable[memories.Stored]) -> list[memories.Stored]:
        """Return those that hold, and that the actor may read."""
        readable = [
            each
            for each in stored
            if each.memory.scope in self._readable
            and each.memory.state == "active"
            and is_current(each.memory, self._now)
            and not is_expired(each.memory.expires_at, self._now)
            and not is_made_by_extension(each.memory)
        ]
        visible = visible_docs(
            self._connection, self._context.gate, self._actor, readable, self._now
        )
        return [each for each in readable if each.doc in visible]

    def _is_wanted(self, stored: memories.Stored) -> bool:
        """Return True unless a memory is in, or what it says is, or a fact that was concluded from
        it.
        """
        memory = stored.memory
        if memory.id in self._chosen or self._is_of_running_session(stored):
            return False
        is_learned = memory.id in self._since_before()
        if (memory.kind in _STATEMENTS and not is_learned) and (
            stored.doc in self._told_by_facts() or bool(self._read_by_learner([stored]))
        ):
            return False
        content = content_of(shown_text(memory))
        for memory_id, chosen in self._chosen.items():
            if _is_repeated(memory, chosen.stored.memory):
                return False
            other = self._contents.get(memory_id)
            if other is None:
                other = content_of(shown_text(chosen.stored.memory))
                self._contents[memory_id] = other
            if says_the_same(content, other):
                return False
        return True

    def _read_by_learner(self, statements: Sequence[memories.Stored]) -> set[int]:
        """Return those of some statements that a learner has read: what lasts of them is in facts.
        One whose facts wait for a person is not among them.
        """
        read = {each.doc for each in statements if each.memory.extraction_status == "empty"}
        done = [each.doc for each in statements if each.memory.extraction_status == "done"]
        if done:
            read |= set(edges.following(self._connection, "DERIVED_FROM", done, forward=False))
        return read

    def _is_of_running_session(self, stored: memories.Stored) -> bool:
        """Return True if a learner concluded a memory from nothing but turns that are in the prompt
        already. What is read before a compaction, or after a pause, may have left it.
        """
        if self._running is None:
            running, docs = self._request.running, set[int]()
            if self._context.settings.learn_at == "session":
                running = None
            for corpus in self._corpora().values() if running else ():
                number = corpus.vocabulary.conversations.get(running or "", -2)
                docs |= {*corpus.column("doc")[corpus.column("conversation") == number].tolist()}
            self._running = docs
        if not self._running or stored.memory.extraction_model is None:
            return False
        links = edges.leaving(self._connection, "DERIVED_FROM", [stored.doc], most=_LINKS)
        return bool(links) and all(link.to_doc in self._running for link in links)

    def _told_by_facts(self) -> set[int]:
        """Return the statements from which the facts that are in were concluded."""
        origins, facts = self._origins
        if facts != self._facts:
            links = edges.leaving(
                self._connection, "DERIVED_FROM", self._facts, most=_LINKS * len(self._facts)
            )
            origins = {link.to_doc for link in links}
            self._origins = origins, set(self._facts)
        return origins

    def _add(self, chosen: _Chosen) -> None:
        memory = chosen.stored.memory
        self._chosen[memory.id] = chosen
        if memory.kind not in _STATEMENTS:
            self._facts.add(chosen.stored.doc)


def _of_kinds(corpus: Corpus, kinds: Sequence[str]) -> Any:
    """Return the live rows of some kinds."""
    import numpy as np

    numbers = [corpus.vocabulary.kinds.get(kind, -1) for kind in kinds]
    return np.flatnonzero(corpus.alive & np.isin(corpus.column("kind"), numbers))


def _median(values: Any) -> float:
    """Return the middle one of some values, of an even number the lower of two."""
    import numpy as np

    middle = (len(values) - 1) // 2
    return float(np.partition(values, middle)[middle]) if len(values) else 0.0


def _is_repeated(memory: Memory, other: Memory) -> bool:
    """Return True if somebody said word for word what he said before, however short it is."""
    return memory.speaker == other.speaker and shown_text(memory) == shown_text(other)


def _is_open(memory: Memory) -> bool:
    return memory.kind != "task" or memory.attributes.get("status") not in _OVER
