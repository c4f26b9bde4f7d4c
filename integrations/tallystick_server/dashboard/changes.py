"""Forms that change a memory: each shows what it would do, and then does exactly that."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from starlette.responses import Response

from tallystick.errors import InvalidInput, NotFound
from tallystick.records import Inspection
from tallystick_server.dashboard.rendering import sendable
from tallystick_server.dashboard.visits import Visit, form_page, page, whole_number

Outcome: TypeAlias = Any
"""The preview, or what was done."""
Doing: TypeAlias = Callable[[Visit, "Change", Inspection, dict[str, Any], bool], Outcome]


@dataclass(frozen=True)
class Field:
    """One field of a form."""

    name: str
    label: str
    hint: str = ""
    required: bool = False
    many_lines: bool = False


@dataclass(frozen=True)
class Change:
    """One thing to do with a memory."""

    name: str
    title: str
    explains: str
    note: str
    """The code of the sentence that says that it was done."""
    fields: tuple[Field, ...] = ()
    allowed_as: str = ""
    """The action of the inspection that says whether it may be done."""
    group: str = "Correct"
    is_final: bool = False


_BY = Field("by", "Id of the other memory", required=True)


def _correction(
    name: str, title: str, explains: str, *fields: Field, group: str = "Correct"
) -> Change:
    return Change(name, title, explains, "corrected", fields, name, group)


CHANGES: Mapping[str, Change] = {
    change.name: change
    for change in (
        Change(
            "modify",
            "Edit",
            "Change the text, its tags or its weight. The old version stays in its history.",
            "modified",
            (
                Field("content", "Text", many_lines=True),
                Field("tags", "Tags", "separated by commas"),
                Field("subject", "About"),
                Field("importance", "Importance", "0 to 100"),
                Field("pinned", "Pinned", "yes or no"),
                Field("attributes", "Further fields", "as JSON", many_lines=True),
            ),
            "modify",
        ),
        _correction("mark_wrong", "Mark as wrong", "It leaves recall, and says that it was wrong."),
        _correction("mark_stale", "Mark as stale", "It holds no longer: recall shows it as past."),
        _correction(
            "mark_sensitive", "Mark as sensitive", "It stays here and goes to no model elsewhere."
        ),
        _correction(
            "mark_duplicate",
            "Mark as duplicate",
            "Another memory says the same and is shown instead.",
            _BY,
        ),
        _correction(
            "supersede",
            "Replace",
            "Another memory takes its place: recall shows this one as past.",
            _BY,
            Field("valid_from", "Since when", "such as 2026-11-22"),
        ),
        _correction("hide", "Hide", "Nobody is shown it, until it is restored."),
        _correction(
            "redact",
            "Redact",
            "A replacement stands in place of a field.",
            Field("field", "Field", "content, subject, speaker, tags, attributes.phone"),
            Field("replacement", "In its place"),
        ),
        _correction("restore", "Undo the last correction", "It is as it was before."),
        Change(
            "promote",
            "Promote",
            "Copy it into another scope, whose readers are named first.",
            "promoted",
            (Field("into", "Into the scope", "such as project:apollo", required=True),),
            "promote",
            "Share",
        ),
        Change(
            "share",
            "Share",
            "A copy in another scope that follows this one, and is withdrawn with it.",
            "promoted",
            (Field("into", "Into the scope", "such as project:apollo", required=True),),
            "share",
            "Share",
        ),
        Change(
            "delete",
            "Forget",
            "It leaves every recall, and can be recovered for a while.",
            "forgotten",
            (Field("force", "Even if it is pinned", "yes or no; an operator alone"),),
            "delete",
            "Remove",
        ),
        Change("recover", "Recover", "It is as it was.", "recovered", (), "recover", "Remove"),
        Change(
            "erase",
            "Erase",
            "Destroy its text in every copy, recorded runs among them. It cannot be undone.",
            "erased",
            (),
            "erase",
            "Remove",
            is_final=True,
        ),
    )
}
"""What may be done with a memory, in the order in which a page offers it."""


def _change(visit: Visit) -> Change:
    change = CHANGES.get(visit.path("change"))
    if change is None:
        raise NotFound("There is no such change of a memory.")
    return change


def _ask(visit: Visit) -> Response:
    """The form of one change."""
    change = _change(visit)
    inspection: Inspection = visit.call("inspect", memory_id=visit.path("memory_id"))
    return visit.page(
        "change.html",
        change=change,
        found=inspection,
        values=_present(visit, inspection) if change.name == "modify" else {},
    )


def _present(visit: Visit, inspection: Inspection) -> dict[str, str]:
    """Return the fields of a memory as a form shows them."""
    memory = visit.call("get", memory_id=inspection.id, at=inspection.scope)
    return {
        "content": sendable(memory.content),
        "tags": sendable(", ".join(sorted(memory.tags))),
        "subject": sendable(memory.subject or ""),
        "importance": str(memory.importance),
        "pinned": "yes" if memory.pinned else "no",
        "attributes": sendable(json.dumps(memory.attributes, ensure_ascii=False)),
    }


def _do(visit: Visit) -> Response:
    """Show what a change would do; with the token of that preview, do it."""
    change = _change(visit)
    inspection: Inspection = visit.call("inspect", memory_id=visit.path("memory_id"))
    form = visit.form
    reason = form.get("reason", "").strip()
    if not reason:
        raise InvalidInput("Say why: it is kept in the history of the memory.")
    is_applied = form.get("mode") == "apply"
    arguments: dict[str, Any] = {"reason": reason}
    if is_applied:
        arguments |= {"idempotency_key": form.get("key") or None}
        if form.get("confirm_token"):
            arguments |= {"confirm_token": form["confirm_token"]}
    doing: Doing = _DOING.get(change.name, _correct)
    outcome = doing(visit, change, inspection, arguments, is_applied)
    if is_applied:
        return visit.go(f"/memories/{inspection.id}", note=change.note)
    names = [field.name for field in change.fields]
    if change.name == "modify":
        names = [name for name, _, _ in outcome]
    fields = {name: form[name] for name in ("reason", *names) if name in form}
    return visit.page(
        "previewed.html",
        change=change,
        found=inspection,
        kept=fields,
        outcome=outcome,
        token=getattr(outcome, "confirm_token", None) or "",
        if_version=inspection.version,
        key=secrets.token_hex(16),
    )


def _correct(
    visit: Visit,
    change: Change,
    inspection: Inspection,
    arguments: dict[str, Any],
    is_applied: bool,
) -> Outcome:
    form = visit.form
    for name in ("by", "field", "replacement", "valid_from"):
        if form.get(name, "").strip():
            arguments[name] = form[name].strip()
    if _yes(form.get("force", "")):
        arguments["force"] = True
    return visit.call(
        "correct",
        memory_id=inspection.id,
        correction=change.name,
        mode="apply" if is_applied else "preview",
        if_version=_version(form) if is_applied else inspection.version,
        **arguments,
    )


def _cross(
    visit: Visit,
    change: Change,
    inspection: Inspection,
    arguments: dict[str, Any],
    is_applied: bool,
) -> Outcome:
    into = visit.form.get("into", "").strip()
    if not into:
        raise InvalidInput("Name the scope that it goes into, such as project:apollo.")
    return visit.call(
        change.name,
        memory_id=inspection.id,
        into=into,
        mode="apply" if is_applied else "preview",
        if_version=_version(visit.form) if is_applied else inspection.version,
        **arguments,
    )


def _erase(
    visit: Visit,
    change: Change,
    inspection: Inspection,
    arguments: dict[str, Any],
    is_applied: bool,
) -> Outcome:
    mode = "apply" if is_applied else "preview"
    return visit.call("erase", memory_ids=[inspection.id], mode=mode, **arguments)


def _recover(
    visit: Visit,
    change: Change,
    inspection: Inspection,
    arguments: dict[str, Any],
    is_applied: bool,
) -> Outcome:
    if not is_applied:
        return inspection
    return visit.call(
        "recover", memory_id=inspection.id, if_version=_version(visit.form), **arguments
    )


def _modify(
    visit: Visit,
    change: Change,
    inspection: Inspection,
    arguments: dict[str, Any],
    is_applied: bool,
) -> Outcome:
    """Show the fields that would change, or change them at the version that was shown."""
    named = {field.name for field in change.fields}
    fields = {name: value for name, value in visit.form.items() if name in named}
    if not is_applied:
        present = _present(visit, inspection)
        outcome = [
            (name, present[name], value)
            for name, value in fields.items()
            if value.strip() != present[name].strip()
        ]
        if not outcome:
            raise InvalidInput("Nothing is different. Change a field, or leave it as it is.")
        return outcome
    changes: dict[str, Any] = {name: _value(name, value) for name, value in fields.items()}
    if "attributes" in changes:
        arguments["replace_attributes"] = True
    return visit.call(
        "modify",
        memory_id=inspection.id,
        changes=changes,
        if_version=_version(visit.form),
        **arguments,
    )


_DOING: Mapping[str, Doing] = {
    "modify": _modify,
    "promote": _cross,
    "share": _cross,
    "recover": _recover,
    "erase": _erase,
}


def _value(name: str, text: str) -> Any:
    """Return a field as the memory has it. Raises InvalidInput."""
    if name == "tags":
        return [tag.strip() for tag in text.split(",") if tag.strip()]
    if name == "attributes":
        try:
            return json.loads(text)
        except ValueError as error:
            raise InvalidInput(f"The further fields are no JSON: {error}.") from error
    if name == "importance":
        return whole_number("importance", text)
    if name == "pinned":
        return _yes(text)
    return text or None


def _yes(text: str) -> bool:
    """Return what a person answered. Raises InvalidInput."""
    answer = text.strip().lower()
    if answer not in ("", "yes", "no"):
        raise InvalidInput("Answer yes or no.")
    return answer == "yes"


def _version(form: Mapping[str, str]) -> int | None:
    return whole_number("if_version", form.get("if_version", ""))


ROUTES = [
    page("/memories/{memory_id}/{change}", _ask),
    form_page("/memories/{memory_id}/{change}", _do),
]
