"""Turns of a session that another observer kept before the one that keeps turns now came to it.

A hook keeps what was said as long as nobody else records the session, and leaves it to an adapter
from its first run on. The exchange in which that changes may be told to both: the newest exchange
that the hook has kept is then the first one of the adapter.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import NamedTuple

from tallystick.errors import Denied
from tallystick.memory.context import MemoryContext
from tallystick.memory.recall_request import RecallRequest
from tallystick.records import Actor, Memory, Remembered, RunRecord, Scope
from tallystick.storage.rows import recordings
from tallystick.tally.captured_turns import Captured

OBSERVER = "observer"
"""The key in the metadata of a run that names the observer which recorded it, unless it is an
adapter.
"""
CONTINUES = "continues"
"""The key in the metadata of a run that goes on where an earlier one stopped: the id of the first.
"""
DAY_US = 24 * 3600 * 1_000_000
"""How long a session may pause, and its observer still be the one that it was."""
_TURNS = 20
"""Turns of a session that are looked at, the newest: an agent may speak several times."""
_SESSIONS = 1_024
"""Sessions that are known; the oldest go first."""


class Sessions:
    """The sessions in which this process keeps turns. Thread-safe."""

    def __init__(self) -> None:
        """Know of no session yet."""
        self._guard = threading.Lock()
        self._seen: OrderedDict[tuple[str, str, str], int] = OrderedDict()

    def is_new(self, actor: Actor, scope: Scope, session: str, *, now: int) -> bool:
        """Note that an actor speaks in a session; return True for the first time of a day."""
        key = (actor.user, str(scope), session)
        with self._guard:
            before = self._seen.pop(key, None)
            self._seen[key] = now
            while len(self._seen) > _SESSIONS:
                self._seen.popitem(last=False)
        return before is None or now - before >= DAY_US


class KeptExchange(NamedTuple):
    """The newest exchange of a session, which another observer has kept."""

    observer: str
    scope: Scope
    request: Memory
    """The words of the user."""
    answer: Memory | None
    """The last words of the agent after them."""

    def captured_turn(self, turn: Memory) -> Captured:
        """Return one of its turns as it was stored."""
        return captured_turn(self.observer, turn)


def captured_turn(observer: str, turn: Memory) -> Captured:
    """Return a turn as its observer stored it."""
    source = turn.sources[0].source_id if turn.sources else ""
    remembered = Remembered(id=turn.id, status="duplicate", source_id=source, version=turn.version)
    return Captured(observer, remembered, turn.scope)


def scopes_of_session(actor: Actor, scope: Scope) -> list[Scope]:
    """Return the scopes in which a session of an actor may be recorded: the bound one, the private
    one and those of the actor's projects.
    """
    projects = [actor.home(f"project:{key}") for key in sorted(actor.projects)]
    return list(dict.fromkeys([scope, actor.private_scope, *projects]))


def newest_exchange(
    memory: MemoryContext, actor: Actor, scope: Scope, session: str
) -> KeptExchange | None:
    """Return the newest exchange of a session in a scope, if it is the actor's own and another
    observer kept it for them; None if not, and where the actor may not read.
    """
    turns = _turns(memory, actor, scope, session)
    if not turns or turns[0].source_run_id is None:
        return None
    with memory.store.database.read() as connection:
        run = recordings.find_run(connection, turns[0].source_run_id)
    if run is None:
        return None
    observer = run.record.metadata.get(OBSERVER)
    return _exchange(turns, actor, run.record, observer) if isinstance(observer, str) else None


def words_of_run(
    memory: MemoryContext, actor: Actor, scope: Scope, session: str, run_id: str
) -> list[Memory]:
    """Return what the actor is kept to have said in a run and in those that went on with it, among
    the newest turns of its session; nothing where the actor may not read.
    """
    said = [turn for turn in _turns(memory, actor, scope, session) if turn.speaker == actor.user]
    with memory.store.database.read() as connection:
        found = {
            each: recordings.find_run(connection, each)
            for each in {turn.source_run_id for turn in said}
            if each is not None
        }
    same = {
        each
        for each, run in found.items()
        if each == run_id or (run is not None and run.record.metadata.get(CONTINUES) == run_id)
    }
    return [turn for turn in said if turn.source_run_id in same]


def _turns(memory: MemoryContext, actor: Actor, scope: Scope, session: str) -> list[Memory]:
    from tallystick.memory.read import list_memories

    request = RecallRequest(kinds=("turn",), conversation=session, limit=_TURNS, states=("active",))
    try:
        return list_memories(memory, actor, scope, request)
    except Denied:
        return []


def _exchange(
    turns: list[Memory], actor: Actor, run: RunRecord, observer: str
) -> KeptExchange | None:
    answer = None
    for turn in turns:
        if turn.speaker == actor.user:
            return KeptExchange(observer, turn.scope, turn, answer)
        if turn.speaker != run.agent_name:
            return None  # words of another user, who has the same session
        answer = answer or turn
    return None
