"""Operations on spaces: open a scope to others, and change who belongs to it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tallystick.operations.operation import (
    Arguments,
    IdempotencyKey,
    NoArguments,
    Operation,
    Reason,
)
from tallystick.records import JsonObject, MemberPreview, MemorySpace, SpaceMember

SpaceScope = Annotated[str, Field(description="The scope, such as team:support.")]


class CreateSpace(Arguments):
    """Arguments of `create_space`."""

    scope: SpaceScope
    name: Annotated[str, Field(description="The name that people see.")]
    description: Annotated[str, Field(description="What it is for.")] = ""
    members: Annotated[
        tuple[SpaceMember, ...], Field(description="Who belongs to it, each with a role.")
    ] = ()
    reason: Reason
    idempotency_key: IdempotencyKey = None


class GetSpace(Arguments):
    """Arguments of `space`."""

    scope: SpaceScope


class PreviewMember(Arguments):
    """Arguments of `preview_member`."""

    scope: SpaceScope
    member: Annotated[SpaceMember, Field(description="Who would belong to it, and in which role.")]


class UpdateSpace(Arguments):
    """Arguments of `update_space`."""

    scope: SpaceScope
    reason: Reason
    changes: Annotated[
        JsonObject, Field(description="New values of name, description, state or members.")
    ]
    if_version: Annotated[
        int | None, Field(description="Only if the space is at this version.")
    ] = None
    idempotency_key: IdempotencyKey = None


_MANAGE = ("denied", "invalid_input", "idempotency_mismatch")

OPERATIONS = (
    Operation(
        name="create_space",
        title="Open a scope to others",
        description="Open a scope to members by creating its space.",
        effect="operate",
        arguments=CreateSpace,
        result=MemorySpace,
        errors=(*_MANAGE, "state_conflict"),
        verb="spaces.create",
    ),
    Operation(
        name="space",
        title="Read a space",
        description="Read the space of a scope.",
        effect="read",
        arguments=GetSpace,
        result=MemorySpace,
        errors=("not_found",),
        verb="spaces.get",
    ),
    Operation(
        name="spaces",
        title="List spaces",
        description="List the spaces that one may see, with their members.",
        effect="read",
        arguments=NoArguments,
        result=tuple[MemorySpace, ...],
        errors=(),
        verb="spaces.list",
    ),
    Operation(
        name="preview_member",
        title="Preview a membership",
        description="Show what somebody could do and recall as a member of a space, before it is "
        "made one. Changes nothing.",
        effect="read",
        arguments=PreviewMember,
        result=MemberPreview,
        errors=("invalid_input", "invalid_record", "invalid_scope", "not_found", "rate_limited"),
        verb="preview_member",
    ),
    Operation(
        name="update_space",
        title="Change a space",
        description="Change who belongs to a space, its name, or whether it is open.",
        effect="operate",
        arguments=UpdateSpace,
        result=MemorySpace,
        errors=(*_MANAGE, "not_found", "version_conflict"),
        verb="spaces.update",
        spread="changes",
    ),
)
"""In the order in which surfaces list them."""
