"""Forms that make something: a memory, a document, an import, a reflection, a space or a member.
Each shows first what would come of it.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from starlette.responses import Response

from tallystick.errors import InvalidInput, NotFound
from tallystick.records import MemorySpace, Scope, SpaceMember
from tallystick_ingest.chunking import chunk
from tallystick_server.dashboard.changes import Field
from tallystick_server.dashboard.rendering import sendable
from tallystick_server.dashboard.visits import Visit, form_page, page, reason_of

Facts: TypeAlias = list[tuple[str, Any]]
_LISTED = 20
_READ = 200
"""Memories of a conversation that a preview counts."""
_WHERE = Field("scope", "Where", "such as project:apollo; empty, your own", required=False)
_WHY = Field("reason", "Why", "it is kept in the history", required=True)


@dataclass(frozen=True)
class Making:
    """One thing to make."""

    name: str
    title: str
    explains: str
    fields: tuple[Field, ...]
    preview: Callable[[Visit], Facts]
    make: Callable[[Visit], Response]


def _remember_preview(visit: Visit) -> Facts:
    scope = visit.bound.scope
    return [
        ("It says", _needed(visit, "content")),
        ("Kind", visit.form.get("kind") or "note"),
        ("Tags", ", ".join(_tags(visit))),
        ("Kept in", str(scope)),
        ("Read by", _readers(visit, scope)),
        ("Secrets", "those that are found are replaced before it is stored"),
    ]


def _remember(visit: Visit) -> Response:
    kind = visit.form.get("kind", "").strip()
    stored = visit.call(
        "remember",
        content=_needed(visit, "content"),
        tags=_tags(visit),
        idempotency_key=visit.form.get("key") or None,
        **({"kind": kind} if kind else {}),
    )
    return visit.go(f"/memories/{stored.id}", note="remembered")


def _document_preview(visit: Visit) -> Facts:
    text = _needed(visit, "content")
    return [
        ("Title", visit.form.get("title") or visit.form.get("name", "")),
        ("Words", f"{len(text.split()):,}"),
        ("Passages", str(len(chunk(text)))),
        ("Kept in", str(visit.bound.scope)),
        ("Read by", _readers(visit, visit.bound.scope)),
        ("Secrets", "those that are found are replaced before it is stored"),
    ]


def _add_document(visit: Visit) -> Response:
    name = visit.form.get("name", "").strip() or None
    title = visit.form.get("title", "").strip()
    added = visit.call("add_document", content=_needed(visit, "content"), name=name, title=title)
    return visit.go(f"/documents/{added.id}", note="remembered")


def _import_preview(visit: Visit) -> Facts:
    shown = visit.call("preview_import", **_import_of(visit))
    kinds = {"New": "new", "Changed": "changed", "Gone from the source": "vanished"}
    skipped = ", ".join(f"{count:,} {reason}" for reason, count in shown.skipped.items())
    schedule = visit.form.get("schedule", "").strip()
    return [
        ("Source", f"{shown.adapter}: {shown.title}"),
        *(
            (title, _some(getattr(shown, kind), getattr(shown, f"{kind}_records")))
            for title, kind in kinds.items()
        ),
        ("Unchanged", _some(shown.unchanged, ())),
        ("Skipped", skipped),
        ("Read", "" if shown.is_whole else "not to its end: it takes more than a minute"),
        ("What is gone", "stays until somebody removes it" if shown.vanished else ""),
        ("Again", schedule and f"{schedule}, in UTC"),
        ("Kept in", str(visit.bound.scope)),
        ("Read by", _readers(visit, visit.bound.scope)),
    ]


def _some(count: int, names: Sequence[str]) -> str:
    """Return a number of records with the names of the first of them."""
    return "\n".join([f"{count:,} records", *names[:_LISTED]]) if count else ""


def _import(visit: Visit) -> Response:
    schedule = visit.form.get("schedule", "").strip() or None
    started = visit.call("start_import", **_import_of(visit), schedule=schedule)
    return visit.go(f"/source-imports/{started.id}", note="importing")


def _import_of(visit: Visit) -> dict[str, Any]:
    text = visit.form.get("options", "").strip() or "{}"
    try:
        options = json.loads(text)
    except ValueError:
        options = None
    if not isinstance(options, dict):
        raise InvalidInput('options: they are an object of JSON, such as {"depth": 1}.')
    return {
        "target": _needed(visit, "target"),
        "adapter": _needed(visit, "adapter"),
        "options": options,
    }


def _reflect_preview(visit: Visit) -> Facts:
    conversation = _needed(visit, "conversation")
    turns = visit.call("memories", conversation=conversation, limit=_READ)
    if not turns:
        raise NotFound(f"Nothing is remembered of the conversation {conversation} here.")
    several = f"{len(turns)}{' or more' if len(turns) == _READ else ''} memories"
    return [
        ("A model reads", several),
        ("The newest of them", "\n".join(turn.content for turn in turns[:_LISTED])),
        ("What comes of it", "suggestions, each of which waits for a person"),
    ]


def _reflect(visit: Visit) -> Response:
    visit.call("reflect", conversation=_needed(visit, "conversation"), mode="async")
    return visit.go("/reviews", note="reflecting")


def _space_preview(visit: Visit) -> Facts:
    space, scope = _space(visit), visit.bound.scope
    facts: Facts = [
        ("Space", f"{scope} {'is there' if space else 'is made'}"),
        ("Name", visit.form.get("name") or (space.name if space else "")),
    ]
    member = _member(visit)
    if member is None:
        return facts
    if visit.form.get("role") == _OUT:
        return [*facts, ("No longer in it", member.principal_id)]
    shown = visit.call("preview_member", scope=str(scope), member=member.dump())
    return [
        *facts,
        ("Member", f"{member.principal_type} {member.principal_id} as {member.role}"),
        ("Could then", ", ".join(shown.operations)),
        ("Could recall then", f"{len(shown.after.visible)} memories"),
        ("And cannot now", f"{len(shown.gained)} of them"),
    ]


def _change_space(visit: Visit) -> Response:
    space, scope, reason = _space(visit), str(visit.bound.scope), reason_of(visit.form)
    member, name = _member(visit), visit.form.get("name", "").strip()
    if space is None:
        members = [] if member is None else [member.dump()]
        visit.call("create_space", scope=scope, name=name, members=members, reason=reason)
        return visit.go("/spaces", note="opened")
    changes: dict[str, Any] = {"name": name} if name else {}
    if member is not None:
        others = [each for each in space.members if _principal(each) != _principal(member)]
        is_out = visit.form.get("role") == _OUT
        changes["members"] = [each.dump() for each in [*others, *([] if is_out else [member])]]
    visit.call("update_space", scope=scope, changes=changes, reason=reason)
    return visit.go("/spaces", note="opened")


_OUT = "none"


def _space(visit: Visit) -> MemorySpace | None:
    scope = visit.bound.scope
    spaces: list[MemorySpace] = visit.call("spaces")
    return next((space for space in spaces if space.scope == scope), None)


def _member(visit: Visit) -> SpaceMember | None:
    """Return the member of the form. Raises InvalidInput, InvalidRecord."""
    text = visit.form.get("member", "").strip()
    if not text:
        return None
    kind, separator, name = text.partition(":")
    role = visit.form.get("role") or "reader"
    return SpaceMember.load(
        {
            "principal_type": kind if separator else "user",
            "principal_id": name if separator else text,
            "role": "reader" if role == _OUT else role,
        }
    )


def _principal(member: SpaceMember) -> tuple[str, str]:
    return member.principal_type, member.principal_id


def _readers(visit: Visit, scope: Scope) -> str:
    if scope.kind == "private":
        return scope.key
    space = _space(visit)
    members = [] if space is None else [each.principal_id or "everyone" for each in space.members]
    return ", ".join(members) or "whoever belongs to it"


def _tags(visit: Visit) -> list[str]:
    return [tag.strip() for tag in visit.form.get("tags", "").split(",") if tag.strip()]


def _needed(visit: Visit, name: str) -> str:
    text = visit.form.get(name, "").strip()
    if not text:
        raise InvalidInput(f"{name}: something is needed here.")
    return text


MAKINGS: Mapping[str, Making] = {
    making.name: making
    for making in (
        Making(
            "remember",
            "Remember",
            "A text is kept as you write it, and recalled from then on.",
            (
                Field("content", "What to remember", required=True, many_lines=True),
                Field("kind", "Kind", "note, fact, preference, decision, constraint, …"),
                Field("tags", "Tags", "with commas between"),
                _WHERE,
            ),
            _remember_preview,
            _remember,
        ),
        Making(
            "document",
            "Add a document",
            "A text is cut at its headings, and its passages are recalled from then on. Under the "
            "same name it is a new version.",
            (
                Field("content", "The text", "Markdown, where it has headings", True, True),
                Field("name", "Name", "such as birds.md"),
                Field("title", "Title"),
                _WHERE,
            ),
            _document_preview,
            _add_document,
        ),
        Making(
            "import",
            "Import a source",
            "A folder, a mailbox, a repository, a drive or a site is read into your own scope. "
            "Imported again, only what differs is stored.",
            (
                Field("adapter", "Read by", "files, mailbox, github, gdrive or crawl", True),
                Field("target", "Source", "such as a folder, owner/name, an address", True),
                Field("options", "Options", 'such as {"depth": 1}'),
                Field("schedule", "Again", "by a schedule of cron, in UTC, such as 0 3 * * *"),
                _WHERE,
            ),
            _import_preview,
            _import,
        ),
        Making(
            "reflect",
            "Reflect",
            "A model of yours reads a conversation and suggests what it decided, planned or left "
            "open. Each suggestion waits for a person.",
            (Field("conversation", "Conversation", required=True), _WHERE),
            _reflect_preview,
            _reflect,
        ),
        Making(
            "space",
            "Open or change a space",
            "A space opens a scope to its members. A member has a role, or none any more.",
            (
                Field("scope", "Scope", "such as team:support", required=True),
                Field("name", "Name", "that people see; needed for a new one"),
                Field("member", "Member", "a user such as bob, or agent:helper, project:apollo"),
                Field("role", "Role", "reader, writer, maintainer, steward; none takes it away"),
                _WHY,
            ),
            _space_preview,
            _change_space,
        ),
    )
}


def _making(visit: Visit) -> Making:
    making = MAKINGS.get(visit.path("making"))
    if making is None:
        raise NotFound("There is no such form.")
    return making


def _ask(visit: Visit) -> Response:
    making = _making(visit)
    values = {field.name: visit.text(field.name) for field in making.fields}
    return visit.page("making.html", making=making, values=values, facts=None, key="")


def _do(visit: Visit) -> Response:
    making = _making(visit)
    if visit.form.get("mode") == "apply":
        return making.make(visit)
    facts = [(name, value) for name, value in making.preview(visit) if value]
    names = [field.name for field in making.fields]
    kept = {name: sendable(visit.form.get(name, "")) for name in names}
    key = secrets.token_hex(16)
    return visit.page("making.html", making=making, values=kept, facts=facts, key=key)


ROUTES = [page("/make/{making}", _ask), form_page("/make/{making}", _do)]
