"""Material: the turns that one call reads, and the nearest known facts that it may change."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from tallystick.errors import Denied
from tallystick.memory import MemoryContext, RecallRequest, newest
from tallystick.memory.recall import recall
from tallystick.memory.supersession import is_current
from tallystick.policy.permissions import is_local_only
from tallystick.ranking import sentence_spans
from tallystick.records import (
    Actor,
    Hit,
    KnownFact,
    LearningRequest,
    Memory,
    SaidTurn,
    Scope,
)
from tallystick.storage.rows import memories

MOST_FACTS = 40
"""Facts of one answer at most; entities and relations are limited to as many each."""
LONGEST_FACT = 600
"""Characters of one fact at most."""
EXTRACTED_KINDS = (
    "fact",
    "preference",
    "constraint",
    "decision",
    "procedure",
    "plan",
    "claim",
    "task",
    "artifact",
    "pattern",
    "rule",
    "tool",
    "concept",
    "warning",
)
"""Kinds that a learner may give a fact; any other becomes `fact`."""
MOST_TURNS = 24
"""New turns that one call reads at most."""
_MOST_CHARACTERS = 24_000
"""Characters of new turns that one call reads at most, unless one turn has more."""
_KNOWN = 20
"""Known facts that a call is shown at most."""
_LONGEST_KNOWN = 2_000
"""Characters of a memory that may be a target: a longer one says more than a fact can replace."""
_KNOWN_KINDS = ("note", *EXTRACTED_KINDS)
_SEARCHED = 60


@dataclass(frozen=True)
class Material:
    """What one call reads."""

    actor: Actor
    scope: Scope
    """The scope in which facts are known, and would be remembered."""
    origins: Sequence[memories.Stored]
    """The new texts, in their order; of one scope."""
    before: Sequence[memories.Stored] = ()
    """Texts of the conversation that were read before."""
    known: Sequence[Memory] = ()
    """What the answer may change, best first."""

    def request(self) -> LearningRequest:
        """Return what a learner is asked, with handles in place of ids."""
        turns = [
            *(_turn("", each.memory, is_new=False) for each in self.before),
            *(
                _turn(f"t{number}", each.memory, is_new=True)
                for number, each in enumerate(self.origins, start=1)
            ),
        ]
        return LearningRequest(
            author=self.actor.user,
            said_at=max(said_at(each.memory) for each in self.origins),
            turns=tuple(turns),
            known=tuple(
                KnownFact(id=f"k{number}", text=each.content, kind=each.kind, at=said_at(each))
                for number, each in enumerate(self.known, start=1)
            ),
        )


def _turn(handle: str, memory: Memory, *, is_new: bool) -> SaidTurn:
    return SaidTurn(
        id=handle,
        speaker=memory.speaker or memory.created_by,
        text=memory.content,
        at=said_at(memory),
        is_new=is_new,
    )


def said_at(memory: Memory) -> int:
    """Return the time at which a memory was said, microseconds UTC."""
    return memory.occurred_at or memory.freshness_ts or memory.created_at


def in_calls(origins: Iterable[memories.Stored]) -> Iterator[list[memories.Stored]]:
    """Yield the texts that one call reads together: those of one scope that may go to the same
    places, in their order, as far as a call has room.
    """
    groups: dict[tuple[int, bool], list[memories.Stored]] = {}
    for origin in origins:
        key = origin.scope_id, is_local_only(origin.memory.attributes)
        groups.setdefault(key, []).append(origin)
    for group in groups.values():
        call: list[memories.Stored] = []
        for origin in group:
            characters = sum(len(each.memory.content) for each in (*call, origin))
            if call and (len(call) == MOST_TURNS or characters > _MOST_CHARACTERS):
                yield call
                call = []
            call.append(origin)
        yield call


def gather(
    context: MemoryContext,
    actor: Actor,
    scope: Scope,
    origins: Sequence[memories.Stored],
    before: Sequence[memories.Stored] = (),
    *,
    may_leave: bool,
) -> Material:
    """Return the material of a call: the texts with the nearest known facts of a scope. With
    `may_leave` those that stay on this machine are left out. None are known where the actor may not
    read.
    """
    last = max((each.memory for each in origins), key=_order)
    is_near = any(is_local_only(each.memory.attributes) for each in origins)
    reading = context.silent() if is_near else context
    own = {each.memory.id for each in (*origins, *before)}

    def is_known(hit: Hit) -> bool:
        memory = hit.memory
        if memory.id in own or (may_leave and is_local_only(memory.attributes)):
            return False
        return may_be_target(memory, last, context.store.clock.now())

    try:
        found = [
            list(filter(is_known, _nearest(reading, actor, scope, each.memory.content)))
            for each in origins
        ]
        # What is replaced may share no word with what replaces it.
        latest = list(filter(is_known, newest(reading, actor, [scope], _REQUEST, logged=False)))
    except Denied:
        return Material(actor, scope, origins, before)
    known: dict[str, Memory] = {}
    for hit in (*(hit for row in zip_longest(*found) for hit in row if hit), *latest):
        if len(known) < _KNOWN:
            known.setdefault(hit.memory.id, hit.memory)
    return Material(actor, scope, origins, before, list(known.values()))


_REQUEST = RecallRequest(limit=_SEARCHED, kinds=_KNOWN_KINDS, states=("active",), sources=False)


def _nearest(context: MemoryContext, actor: Actor, scope: Scope, text: str) -> Iterable[Hit]:
    return recall(context, actor, [scope], text, _REQUEST, logged=False)


def is_best_target(
    context: MemoryContext,
    actor: Actor,
    scope: Scope,
    source: Memory,
    fact: str,
    target: str,
    *,
    others: Collection[str] = (),
) -> bool:
    """Return True if recall finds a memory first by the words of a fact, among all that its text
    could change, but for those that `others` of the same answer change.
    """
    now = context.store.clock.now()
    for hit in _nearest(context, actor, scope, fact):
        if hit.memory.id == target:
            return may_be_target(hit.memory, source, now)
        if hit.memory.id not in others and may_be_target(hit.memory, source, now):
            return False
    return False


def may_be_target(memory: Memory, source: Memory, now: int) -> bool:
    """Return True if a text could change a memory: one statement that holds, said earlier. One that
    no learner could read is shown to none beside another text, which it would hold up too.
    """
    return (
        memory.id != source.id
        and is_earlier(memory, source)
        and is_current(memory, now)
        and memory.conversation is None
        and memory.extraction_status not in ("pending", "failed")
        and len(memory.content) <= _LONGEST_KNOWN
        # A text that says several things is not replaced by what is new about one of them.
        and (memory.extraction_model is not None or len(sentence_spans(memory.content)) == 1)
    )


def is_earlier(memory: Memory, source: Memory) -> bool:
    """Return True if a memory was said before the text that is read, and not changed since.

    Jobs come later than what they are about, and old texts are read too: a text never replaces
    what was said after it.
    """
    if memory.version > 1 and memory.updated_at > source.created_at:
        return False
    return _order(memory) < _order(source)


def _order(memory: Memory) -> tuple[int, str]:
    return said_at(memory), memory.id
