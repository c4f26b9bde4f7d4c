"""Arguments that several verbs take, each with the description that surfaces show."""

import os
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field

from tallystick.records._base import LONGEST_NAME, JsonObject, Labels, Words
from tallystick.records.kinds import Kinds
from tallystick.records.memory import ScopeName, Scopes, States
from tallystick.records.times import Occasion
from tallystick.records.wire import Wire

PAGE_BEFORE: Final = Field(description="The last id of the page before.")
"""Describes the argument by which a list goes on."""

Reason = Annotated[
    Words,
    Field(description="Why; it is kept in the history.", json_schema_extra={"pattern": r"\S"}),
]
IfVersion = Annotated[int | None, Field(description="Only if the memory is at this version.")]
IdempotencyKey = Annotated[
    str | None, Field(description="Key of this request: sent again, it gets the first answer.")
]
ConfirmMode = Annotated[
    Literal["preview", "apply"],
    Field(description="Preview what would be done, or apply it with the preview's token."),
]
ConfirmToken = Annotated[str | None, Field(description="The token of the preview.")]
Force = Annotated[bool, Field(description="Also what is pinned.")]


def _require_short(text: str) -> str:
    if len(text) > LONGEST_NAME:
        raise ValueError(f"has {len(text):,} characters, and may have {LONGEST_NAME:,}")
    return text


Name = Annotated[Words, AfterValidator(_require_short)]
"""A name by which something is stored and looked up."""


def _require_path(place: str | os.PathLike[str]) -> str | os.PathLike[str]:
    if b"\0" in os.fsencode(place):  # raises ValueError for half a character
        raise ValueError("holds a NUL, as no path does")
    return place


Folder = Annotated[str | os.PathLike[str], AfterValidator(_require_path), Wire(str)]
"""The path of a folder."""
Fields = Annotated[Any, Wire(JsonObject)]
"""Keyword arguments that stand for the fields of a record."""
SpaceScope = Annotated[ScopeName, Field(description="The scope, such as team:support.")]
OtherScopes = Annotated[
    Scopes | None, Field(description="Scopes such as project:apollo; by default the bound one.")
]

KindFilter = Annotated[Kinds, Field(description="Only memories of these kinds.")]
StateFilter = Annotated[
    States, Field(description="States of the memories; by default active ones.")
]
TagFilter = Annotated[Labels, Field(description="Only memories with all of these.")]
ConversationFilter = Annotated[Words | None, Field(description="Only turns of this one.")]
SourceFilter = Annotated[Words | None, Field(description="Only from this source id or address.")]
Since = Annotated[
    Occasion | None, Field(description="Said, happened or remembered at this moment or later.")
]
Until = Annotated[Occasion | None, Field(description="Said, happened or remembered before it.")]
StatusFilter = Annotated[Words | None, Field(description="Only with this status, such as todo.")]
ProjectFilter = Annotated[Words | None, Field(description="Only of this project.")]
AssigneeFilter = Annotated[Words | None, Field(description="Only those of this assignee.")]
LanguageFilter = Annotated[
    Words | None, Field(description="Only in this language, as it was labelled.")
]
