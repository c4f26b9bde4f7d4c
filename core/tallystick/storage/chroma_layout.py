"""The database's record of Chroma: the layout of an embedder's points (one shared collection, and
one of its own for each large scope), and the mark by which a copy of another time is recognised.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from sqlalchemy import Connection

from tallystick.storage import settings_rows


@dataclass(frozen=True)
class Layout:
    """The rebuild in use, and the scopes that have grown out of the shared collection."""

    generation: int = 1
    own: frozenset[int] = frozenset()
    """Scopes with a collection of their own. It only grows within a generation."""
    index: str = ""
    """Drawn by lot for this tally, and a part of the collections' names: another tally's
    collections are never taken for its own. Empty until the first drain.
    """

    def later_than(self, other: Layout) -> bool:
        """Return True if this layout came after `other`: an old snapshot of the database must not
        bring an old layout back.
        """
        if self.index != other.index:
            return bool(self.index)
        return (self.generation, len(self.own)) > (other.generation, len(other.own))

    def with_own(self, scope_id: int) -> Layout:
        """Return this layout with one scope moved out of the shared collection."""
        return replace(self, own=self.own | {scope_id})


# How a copy of another time is recognised
# ----------------------------------------
# A drain writes the stamp `upcoming` to the shared collection, then its points, and then commits
# the trimmed outbox together with the state that names this stamp as `current` and draws a new
# `upcoming`. So the collection of this database always has one of the two stamps: the second only
# while a drain is under way, or where its process died, and then the entries still wait and are
# drained once more. Who finds fewer points than were left asks for the stamp again: if it is still
# `current`, no drain has deleted any, and they are missing. Processes that share a server drain one
# at a time (`Database.turn_of`): a second one would leave counts that the first has changed, or a
# stamp that the database has passed. A folder or a database that was restored from an earlier copy
# has a stamp that the other does not know. Stamps are drawn by lot: numbers would match again after
# a restored database wrote on.


@dataclass(frozen=True)
class IndexState:
    """The state in which the database last left the collections."""

    current: str = ""
    """The stamp of the last drain; empty before the first."""
    upcoming: str = ""
    """The stamp that the next drain writes."""
    counts: Mapping[int | None, int] = field(default_factory=dict)
    """The number of points after the last drain, by the scope of a collection; None is the shared
    one.
    """

    def following(self, counts: Mapping[int | None, int]) -> IndexState:
        """Return the state after a drain that wrote `upcoming`."""
        return IndexState(self.upcoming, uuid.uuid4().hex, dict(counts))


def new_index(tx: Connection, fingerprint: str) -> None:
    """Name the index of this tally, before its first drain."""
    layout = layout_of(tx, fingerprint)
    if not layout.index:
        keep_layout(tx, fingerprint, replace(layout, index=uuid.uuid4().hex[:12]))
        keep_state(tx, fingerprint, IndexState(upcoming=uuid.uuid4().hex))


def state_of(connection: Connection, fingerprint: str) -> IndexState:
    """Return the state in which the collections of an embedder were left."""
    text = settings_rows.get_setting(connection, f"chroma.state:{fingerprint}")
    if text is None:
        return IndexState()
    values = json.loads(text)
    counts = {int(key) if key else None: count for key, count in values["counts"].items()}
    return IndexState(values["current"], values["upcoming"], counts)


def keep_state(tx: Connection, fingerprint: str, state: IndexState) -> None:
    """Record the state in which the collections are from this commit on."""
    counts = {"" if key is None else str(key): count for key, count in state.counts.items()}
    values = {"current": state.current, "upcoming": state.upcoming, "counts": counts}
    settings_rows.set_setting(tx, f"chroma.state:{fingerprint}", json.dumps(values))


def layout_of(connection: Connection, fingerprint: str) -> Layout:
    """Return the layout in use for an embedder's points."""
    text = settings_rows.get_setting(connection, _name(fingerprint))
    if text is None:
        return Layout()
    values = json.loads(text)
    return Layout(values["generation"], frozenset(values["own"]), values.get("index", ""))


def keep_layout(tx: Connection, fingerprint: str, layout: Layout) -> None:
    """Use a layout from this commit on."""
    values = {"generation": layout.generation, "own": sorted(layout.own), "index": layout.index}
    settings_rows.set_setting(tx, _name(fingerprint), json.dumps(values))


def _name(fingerprint: str) -> str:
    return f"chroma.layout:{fingerprint}"
