"""Paths of the memory tree: which scope a path is in, and which paths there are not.

`/memories` is the private scope of the actor. Below it `projects/<key>`, `teams/<key>`, … are the
other scopes. A path is compared and never handed to a file system; a name that could be taken for
another, or for a step out of the tree, is refused all the same.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote, unquote

from tallystick.errors import InvalidInput, InvalidScope
from tallystick.records import Actor, Scope, is_storable
from tallystick.records.escaping import UNSEEN, visible
from tallystick.records.identity import ScopeKind
from tallystick.records.kinds import KINDS

ROOT = "/memories"
FOLDERS: Mapping[str, ScopeKind] = {
    "projects": "project",
    "teams": "team",
    "organizations": "organization",
    "delegated": "delegated",
    "shared": "shared",
    "public": "public",
}
"""The folders of scopes, each with their kind."""
_FOLDER_OF = {kind: folder for folder, kind in FOLDERS.items()}
_LONGEST_PATH, _LONGEST_NAME, _DEEPEST = 1_000, 200, 12
"""Characters of a path and of a name in it, and names in a path."""
_LIKE_SEPARATORS = frozenset("/\\\u2044\u2215\u2216\u29f5\u29f8\u29f9\ufe68\uff0f\uff3c")
_SUFFIX = ".md"


@dataclass(frozen=True)
class Place:
    """The place that a path names."""

    scope: Scope | None
    """None for a folder of scopes, such as `/memories/projects`."""
    path: str
    """The path within the scope; empty for the scope itself, and the folder where there is none."""
    kind: str | None = None
    """The kind whose memories are the lines of the file; None for any other file."""


def parse_path(text: object) -> tuple[str, ...]:
    """Return the names in a path below the root. Raises InvalidInput."""
    if not isinstance(text, str) or not (text == ROOT or text.startswith(f"{ROOT}/")):
        raise InvalidInput(f"Path must start with {ROOT}, got: {_shown(text)}")
    if len(text) > _LONGEST_PATH:
        raise InvalidInput(f"A path has at most {_LONGEST_PATH:,} characters; give a shorter one.")
    names = tuple(name for name in text.removeprefix(ROOT).split("/") if name)
    if len(names) > _DEEPEST:
        raise InvalidInput(f"A path has at most {_DEEPEST} names; put the file higher up.")
    for name in names:
        if problem := _problem_of(name):
            raise InvalidInput(f"Path {_shown(text)} is none of {ROOT}: a name in it {problem}.")
    return names


def _problem_of(name: str) -> str | None:
    plain = unicodedata.normalize("NFKC", name) if is_storable(name) else name
    if not is_storable(name) or UNSEEN.search(name) or not name.isprintable():
        return "holds a character that nobody sees"
    if len(name) > _LONGEST_NAME:
        return f"has more than {_LONGEST_NAME} characters"
    if not _LIKE_SEPARATORS.isdisjoint(name) or not _LIKE_SEPARATORS.isdisjoint(plain):
        return "holds what looks like a slash"
    if not plain.strip(". "):
        return "steps out of its folder or is empty"
    if name != name.strip():
        return "begins or ends with a space"
    if unicodedata.normalize("NFC", name) != name:
        return "is not in its composed form (NFC)"
    return None


def _require_plain(names: tuple[str, ...]) -> None:
    """Raise InvalidInput for a name that spells a step out of its folder in percent codes."""
    for name in names:
        decoded = unquote(unquote(name, errors="replace"), errors="replace")
        if decoded != name and (problem := _problem_of(decoded)):
            raise InvalidInput(f"A name in this path has percent codes, and so {problem}.")


def _shown(text: object) -> str:
    return ascii(text) if not isinstance(text, str) else visible(text[:200])


def place_of(actor: Actor, names: tuple[str, ...]) -> Place:
    """Return the place of a path for an actor. Raises InvalidScope for a scope that cannot be."""
    if not names or names[0] not in FOLDERS:
        return _within(actor.private_scope, names)
    kind = FOLDERS[names[0]]
    if kind == "public":
        return _within(Scope(kind="public", organization=actor.organization), names[1:])
    if len(names) == 1:
        return Place(None, names[0])
    key = unquote(names[1], errors="replace")
    if folder_name(key) != names[1]:
        raise InvalidScope(f"{names[1]} is the name of no scope.")
    scope = Scope(kind=kind, key=key, organization=actor.organization)
    return _within(scope, names[2:])


def _within(scope: Scope, names: tuple[str, ...]) -> Place:
    _require_plain(names)
    if len(names) > 1 and kind_of_file(names[0]):
        raise InvalidInput(f"{names[0]} is a file, and no folder.")
    kind = kind_of_file(names[0]) if len(names) == 1 else None
    return Place(scope, "/".join(names), kind)


def folder_name(key: str) -> str:
    """Return the name of the folder of a scope with this key: what is no letter is percent-coded,
    so that no key can pass for another, or for two names.
    """
    name = "".join(each if _is_plain(each) else quote(each, safe="") for each in key)
    return name if name.strip(".") else name.replace(".", "%2E")


def _is_plain(character: str) -> bool:
    if character in "-_.@":
        return True
    return character.isalnum() and unicodedata.normalize("NFKC", character) == character


def path_of(actor: Actor, scope: Scope, path: str = "") -> str | None:
    """Return the whole path of a place in a scope; None for a scope without a folder."""
    if scope == actor.private_scope:
        return f"{ROOT}/{path}" if path else ROOT
    folder = _FOLDER_OF.get(scope.kind)
    if folder is None or scope.organization != actor.organization:
        return None
    names = [ROOT, folder, *([folder_name(scope.key)] if scope.key else []), *([path] * bool(path))]
    return "/".join(names)


def file_of_kind(kind: str) -> str:
    """Return the name of the file whose lines are the memories of a kind: its plural."""
    return f"{plural(kind)}{_SUFFIX}"


def kind_of_file(name: str) -> str | None:
    """Return the kind whose memories are the lines of a file, or None."""
    return next((kind for kind in KINDS if file_of_kind(kind) == name), None)


def plural(word: str) -> str:
    """Return the plural of a regular English noun, by its ending."""
    if word.endswith("y") and word[-2:-1] not in "aeiou":
        return f"{word[:-1]}ies"
    return f"{word}es" if word.endswith(("s", "x", "z", "ch", "sh")) else f"{word}s"
