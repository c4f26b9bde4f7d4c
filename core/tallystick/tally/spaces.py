"""BoundSpaces: the spaces of an actor, and previews of who could read what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from tallystick import memory
from tallystick.access import Spaces
from tallystick.records import (
    AccessPreview,
    Actor,
    MemberPreview,
    SpaceMember,
    checked_arguments,
)
from tallystick.records.arguments import (
    OtherScopes,
    SpaceScope,
)
from tallystick.records.wire import Wire
from tallystick.storage.rows.short_ids import IdKind
from tallystick.tally.memory_view import MemoryView


@checked_arguments
class BoundSpaces(Spaces):
    """The spaces that one actor may see or manage. Thread-safe."""

    def __init__(self, view: MemoryView) -> None:
        services = view._services
        super().__init__(services.store, services.gate, view.actor, zone=services.zone)
        self._view = view

    def _full_id(self, kinds: tuple[IdKind, ...], text: str) -> str:
        return self._view._full_id(kinds, text)

    def preview_access(
        self,
        *,
        actor: Annotated[
            Actor | None, Field(description="Whose access to preview; by default one's own.")
        ] = None,
        scopes: OtherScopes = None,
    ) -> AccessPreview:
        """List what `actor` (by default this one) could recall from `scopes`, and why not the rest.

        `scopes` is by default the bound one. It equals what recall then returns, and changes
        nothing. Ids of others, hidden counts and denied ids are listed only where this actor may
        inspect. Raises InvalidScope.
        """
        self._view._admit("preview")
        return memory.preview_access(
            self._view._services.memory,
            self._view.actor,
            actor or self._view.actor,
            self._view._scopes(scopes),
        )

    def preview_member(
        self,
        scope: SpaceScope,
        member: Annotated[
            SpaceMember | Mapping[str, Any],
            Wire(SpaceMember),
            Field(description="Who would belong to it, and in which role."),
        ],
    ) -> MemberPreview:
        """Show what `member` (a record, or a mapping of its fields) could do and recall in a scope
        as a member of its space, before it is made one. Changes nothing.

        One that is a member already is looked at in its new role, a scope without a space as if it
        was opened. What its own credential opens for it besides is not known here. Raises NotFound
        alike for a scope that this actor may not inspect and for one that is not there,
        InvalidRecord, InvalidScope.
        """
        self._view._admit("preview")
        named = SpaceMember.load(member).at(self._view._services.zone)
        return memory.preview_member(
            self._view._services.memory, self._view.actor, self._view.actor.home(scope), named
        )
