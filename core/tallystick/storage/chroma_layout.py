"""The layout of an embedder's points in Chroma: one shared collection, and one of its own for each
large scope.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from tallystick.storage import settings_rows

__all__ = ["Layout", "keep_layout", "layout_of"]


@dataclass(frozen=True)
class Layout:
    """The rebuild in use, and the scopes that have grown out of the shared collection."""

    generation: int = 1
    own: frozenset[int] = frozenset()
    """Scopes with a collection of their own. It only grows within a generation."""

    def later_than(self, other: Layout) -> bool:
        """Return True if this layout came after `other`: an old snapshot of the database must not
        bring an old layout back.
        """
        return (self.generation, len(self.own)) > (other.generation, len(other.own))

    def with_own(self, scope_id: int) -> Layout:
        """Return this layout with one scope moved out of the shared collection."""
        return replace(self, own=self.own | {scope_id})


def layout_of(connection: Connection, fingerprint: str) -> Layout:
    """Return the layout in use for an embedder's points."""
    text = settings_rows.get_setting(connection, _name(fingerprint))
    if text is None:
        return Layout()
    values = json.loads(text)
    return Layout(values["generation"], frozenset(values["own"]))


def keep_layout(tx: Connection, fingerprint: str, layout: Layout) -> None:
    """Use a layout from this commit on."""
    value = json.dumps({"generation": layout.generation, "own": sorted(layout.own)})
    settings_rows.set_setting(tx, _name(fingerprint), value)


def _name(fingerprint: str) -> str:
    return f"chroma.layout:{fingerprint}"
