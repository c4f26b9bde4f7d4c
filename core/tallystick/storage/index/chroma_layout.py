"""The database's record of Chroma: which scopes it has and in which collections, how far it follows
each, and the stamp by which a copy of another time is recognised.

Of one embedder at a time: vectors of another one are filled anew.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace

from sqlalchemy import Connection
from sqlalchemy import text as sql

from tallystick.storage.index.marks import Lag, begin_marks, forget_marks, lags_of
from tallystick.storage.rows import settings_rows

NAME = "chroma"
"""The name of its marks."""
_FORGET = sql("DELETE FROM settings WHERE name LIKE 'chroma.%'")


@dataclass(frozen=True)
class Layout:
    """The rebuild in use, and the scopes that are in Chroma. It only grows within a generation."""

    generation: int = 1
    own: frozenset[int] = frozenset()
    """Scopes with a collection of their own."""
    shared: bool = False
    """True if every other scope is in the shared collection. That one is there in any case."""
    index: str = ""
    """Drawn by lot for this tally, and a part of the collections' names: another tally's
    collections are never taken for its own. Empty until a scope is taken in.
    """

    def later_than(self, other: Layout) -> bool:
        """Return True if this layout came after `other`: an old snapshot of the database must not
        bring an old layout back.
        """
        if self.index != other.index:
            return bool(self.index)
        return self._age > other._age

    @property
    def _age(self) -> tuple[int, int]:
        return self.generation, len(self.own) + self.shared

    @property
    def keys(self) -> list[int | None]:
        """The keys of the collections: a scope's number, None for the shared one."""
        return [*([None] if self.shared else []), *sorted(self.own)]

    def includes(self, scope_id: int) -> bool:
        """Return True if a scope is in Chroma."""
        return self.shared or scope_id in self.own

    @property
    def scopes(self) -> frozenset[int] | None:
        """The scopes that are in Chroma; None for all."""
        return None if self.shared else self.own

    def key_of(self, scope_id: int) -> int | None:
        """Return the key of the collection of a scope that is in Chroma."""
        return scope_id if scope_id in self.own else None

    def with_keys(self, keys: Iterable[int | None]) -> Layout:
        """Return this layout with more collections to fill."""
        keys = frozenset(keys)
        own = frozenset(key for key in keys if key is not None)
        return replace(self, own=self.own | own, shared=self.shared or None in keys)


# How a copy of another time is recognised
# ----------------------------------------
# A drain writes the stamp `upcoming` to the shared collection, then its points, and then commits
# its marks together with the state that names this stamp as `current` and draws a new `upcoming`.
# So the collection of this database always has one of the two stamps: the second only while a drain
# is under way, or where its process died, and then the rows behind the marks are drained once more.
# The stamp names the last entry of the journal: a database that was put back from a copy may know
# the stamp of one drain as `upcoming`, and its journal has another entry there. Who finds fewer
# points than were left asks for the stamp again: if it is still `current`, no drain has deleted
# any, and they are missing. Processes that share a server drain one at a time (`Database.turn_of`):
# a second one would leave counts that the first has changed, or a stamp that the database has
# passed. A folder or a database that was restored from an earlier copy has a stamp that the other
# does not know. Stamps are drawn by lot: numbers would match again after a restored database wrote
# on.


@dataclass(frozen=True)
class IndexState:
    """The state in which the database last left the collections."""

    current: str = ""
    """The stamp of the last drain; empty before the first."""
    upcoming: str = ""
    """The stamp that the next drain writes."""
    counts: Mapping[int | None, int] = field(default_factory=dict)
    """The number of points after the last drain, by the key of a collection."""
    layout: Layout = field(default_factory=Layout)

    def following(self, counts: Mapping[int | None, int]) -> IndexState:
        """Return the state after a drain that wrote `upcoming`."""
        return replace(self, current=self.upcoming, upcoming=uuid.uuid4().hex, counts=dict(counts))


def take_in(tx: Connection, fingerprint: str, keys: Iterable[int | None]) -> None:
    """Take collections into the index of an embedder, empty, to be filled."""
    state = state_of(tx, fingerprint)
    if not state.layout.index:
        start_over(tx, fingerprint, keys)
        return
    added = [key for key in keys if key not in state.layout.keys]
    keep_state(tx, fingerprint, replace(state, layout=state.layout.with_keys(added)))
    begin_marks(tx, NAME, added, besides=state.layout.own)


def start_over(tx: Connection, fingerprint: str, keys: Iterable[int | None]) -> None:
    """Begin the next generation with these collections, empty, to be filled."""
    keys, before = list(keys), state_of(tx, fingerprint).layout
    forget(tx)
    if not (keys or before.index):
        return
    layout = Layout(before.generation + 1 if before.index else 1, index=before.index or _lot())
    keep_state(tx, fingerprint, IndexState(upcoming=_lot(), layout=layout.with_keys(keys)))
    begin_marks(tx, NAME, keys)


def forget(tx: Connection) -> None:
    """Forget the index, of any embedder."""
    tx.execute(_FORGET)
    forget_marks(tx, NAME)


def chroma_lags(connection: Connection, layout: Layout) -> dict[int, Lag]:
    """Return the scopes that Chroma has and has not followed yet."""
    return lags_of(connection, NAME, layout.scopes) if layout.keys else {}


def _lot() -> str:
    return uuid.uuid4().hex[:12]


def state_of(connection: Connection, fingerprint: str) -> IndexState:
    """Return the state in which the collections of an embedder were left."""
    text = settings_rows.get_setting(connection, f"chroma.state:{fingerprint}")
    if text is None:
        return IndexState()
    values = json.loads(text)
    counts = {int(key) if key else None: count for key, count in values["counts"].items()}
    layout = {**values["layout"], "own": frozenset(values["layout"]["own"])}
    return IndexState(values["current"], values["upcoming"], counts, Layout(**layout))


def keep_state(tx: Connection, fingerprint: str, state: IndexState) -> None:
    """Record the state in which the collections are from this commit on."""
    counts = {"" if key is None else str(key): count for key, count in state.counts.items()}
    layout = {**asdict(state.layout), "own": sorted(state.layout.own)}
    text = json.dumps({**vars(state), "counts": counts, "layout": layout})
    settings_rows.set_setting(tx, f"chroma.state:{fingerprint}", text)
