"""The tables of the documentation that say what is in the code: `make docs-refresh` writes them.

A page marks the place: what is between `<!-- table: NAME -->` and `<!-- end -->` is written anew. A
test compares the pages with the code.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import PydanticUndefined
from tests.release.building import project
from tests.release.newest import PYTHON, admitted, pinned

from tallystick import Memory, SourceRef
from tallystick.operations import OPERATIONS
from tallystick.records import (
    KINDS,
    EdgeKind,
    HistoryEntry,
    MemoryState,
    ScopeKind,
    StepStatus,
)
from tallystick.settings import Settings
from tallystick_cli.app import build_command
from tallystick_hooks.events import EVENTS, EventName
from tallystick_hooks.harnesses import HARNESSES, Harness
from tallystick_server.routes import EXCLUDED, OWN, PREFIX, ROUTES

DOCS = Path(__file__).parent.parent
_PLACE = re.compile(r"(<!-- table: (?P<name>[\w-]+) -->\n).*?(<!-- end -->)", re.S)

KIND_MEANINGS = {
    "note": "anything; the default",
    "turn": "what somebody said in a conversation",
    "fact": "something that is so",
    "preference": "what somebody likes or wants",
    "constraint": "what has to be kept to; `hard` ones no budget drops",
    "decision": "what was decided",
    "procedure": "how something is done",
    "plan": "what is meant to be done",
    "claim": "what somebody states, true or not",
    "episode": "something that happened",
    "session_summary": "a conversation in short",
    "summary": "anything else in short",
    "artifact": "something that was made, such as a report",
    "artifact_index": "a list of artifacts",
    "working": "a value that a run or a thread keeps in mind",
    "pattern": "something that recurs",
    "rule": "how something should always be done",
    "template": "a form to fill in",
    "topic": "what something is about",
    "tool": "a tool and what it does",
    "language": "a language that is used",
    "config_file": "a file of settings",
    "command": "a command that works",
    "project": "a project",
    "task": "something to do",
    "milestone": "a stage to reach",
    "team": "a group of people",
    "error_pattern": "an error and its remedy",
    "source": "a description of raw material",
    "document": "a document",
    "community": "a group of related memories",
    "entity": "a person, place or thing, with other names in `aliases`",
    "store_item": "an item of `TallyStore`",
}
STATE_MEANINGS = {
    "active": "found by recall",
    "hidden": "left out of recall after a correction; its text is withheld until it is restored",
    "redacted": "found with the replacement in place of its text",
    "superseded": "ranked below its replacement, and marked as history",
    "duplicate": "represented by the memory that it repeats",
    "deleted": "forgotten; it can be recovered within the window",
}
EDGE_MEANINGS = {
    "MENTIONS": "the memory mentions the other, such as an entity",
    "SUPERSEDES": "the memory replaces the other",
    "DEPENDS_ON": "the memory needs the other",
    "DERIVED_FROM": "the memory was concluded from the other",
    "REFERENCES": "the memory points to the other",
    "CONTRADICTS": "the two cannot both hold",
    "DUPLICATE_OF": "the memory repeats the other",
    "PART_OF": "the memory is a part of the other",
    "SHARES": "the memory is a copy that was shared from the other",
}
SCOPE_MEANINGS = {
    "private": "one person, with any of her agents: `private:ada`",
    "project": "actors whose `projects` have it, and members of its space: `project:apollo`",
    "delegated": "stewards, and agents to whom it was delegated: `delegated:ada/review`",
    "team": "members of its space: `team:red`",
    "organization": "members of its space: `organization:acme`",
    "shared": "members of its space: `shared:recipes`",
    "public": "members of its space, which may be everybody: `public`",
    "diary": "one agent of one person in one project: `diary:ada/coder/apollo`",
}
EVENT_MEANINGS = {
    "ADD": "it was remembered",
    "SEEN": "it was said again, and the new source was kept",
    "UPDATE": "`modify` changed it",
    "FORGET": "`forget` took it out of recall",
    "RECOVER": "`recover` brought it back",
    "CORRECT": "`correct` was applied; `entry.correction` says which",
    "PROMOTE": "it was copied into a wider scope",
    "SHARE": "it was shared",
    "ERASE": "its text was destroyed",
    "LINK": "it was linked with others",
    "UNLINK": "links of it were removed",
    "NONE": "a fact of it needed no memory of its own",
}
STATUS_MEANINGS = {
    "running": "under way",
    "completed": "ended well",
    "failed": "ended with an error, which is recorded",
    "cancelled": "its task, or its run, was stopped",
    "blocked": "waits for an approval",
    "interrupted": "its run ended before it, or its process died",
}
FIELD_MEANINGS = {
    "id": "identity; a short form of 6 characters or more is taken wherever an id goes",
    "scope": "where it lives, and so who may read it",
    "kind": "one of the kinds above",
    "content": "the text, as it was given",
    "category": "a word of yours to sort by",
    "sources": "the raw material that it was drawn from, with digests",
    "source_run_id": "the recorded run in which it was written",
    "source_step_ids": "the recorded steps that it comes from",
    "pinned": "never forgotten but by an operator who forces it",
    "version": "counts its changes, from 1",
    "state": "one of the states below",
    "access_count": "times it was recalled",
    "last_accessed": "microseconds UTC of the last recall",
    "update_count": "times it was changed",
    "updated_by": "who changed it last",
    "extraction_status": "what became of drawing memories from it, where that is turned on",
    "transform_version": "version of what made it, if a program did",
    "tags": "words of yours to filter by",
    "attributes": "JSON of yours; some kinds check it",
    "embedding_model": "fingerprint of the embedder of its vector",
    "extraction_model": "model that drew it from its source, if one did",
    "prompt_version": "version of the prompt of that model",
    "conversation": "the conversation of which it is a turn",
    "created_at": "microseconds UTC",
    "updated_at": "microseconds UTC",
    "created_by": "who made it",
    "source_type": "kind of the source",
    "uri": "its address",
    "title": "its title",
    "checksum": "a digest that you know it by",
    "retrieval_query": "the query that found it",
    "author": "who made it",
    "metadata": "JSON of yours",
    "schema_version": "version of the form of the record",
}


def written_anew() -> dict[Path, str]:
    """Return each page that has a table, with its tables as the code has them now."""
    pages = {
        page: page.read_text(encoding="utf-8")
        for page in sorted([*DOCS.glob("*.md"), *DOCS.glob("reference/*.md")])
    }
    return {
        page: _PLACE.sub(lambda place: f"{place[1]}\n{_TABLES[place['name']]()}\n{place[3]}", text)
        for page, text in pages.items()
        if _PLACE.search(text)
    }


def main() -> None:
    """Write the pages whose tables differ from the code."""
    for page, text in written_anew().items():
        if page.read_text(encoding="utf-8") != text:
            page.write_text(text, encoding="utf-8")


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    titles = list(head)
    lines = [titles, ["---"] * len(titles), *(list(row) for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _meanings(names: Iterable[str], meanings: Mapping[str, str], head: str) -> str:
    """Return a table of all names with their meanings; one of either alone is an error."""
    known = list(names)
    if set(known) != set(meanings):
        raise SystemExit(f"{head}: {sorted(set(known) ^ set(meanings))} are on one side only.")
    return _table((head, "meaning"), ((f"`{name}`", f"{meanings[name]}") for name in known))


def _kinds() -> str:
    shipped = {name: model for name, model in KINDS.items() if name in KIND_MEANINGS}
    if set(shipped) != set(KIND_MEANINGS):
        raise SystemExit(f"kinds: {sorted(set(KIND_MEANINGS) - set(shipped))} are none any more.")
    checked = {
        name: ", ".join(f"`{field}`" for field in model.model_fields) if model else ""
        for name, model in shipped.items()
    }
    return _table(
        ("kind", "meaning", "attributes that are checked"),
        ((f"`{name}`", KIND_MEANINGS[name], fields) for name, fields in checked.items()),
    )


def _fields(record: type[BaseModel]) -> str:
    docs = _field_docstrings(record)
    rows = []
    for name, field in record.model_fields.items():
        meaning = docs.get(name) or FIELD_MEANINGS.get(name)
        if meaning is None:
            raise SystemExit(f"{record.__name__}.{name} has neither a docstring nor a meaning.")
        rows.append((f"`{name}`", _type(field.annotation), _default(field), _sentence(meaning)))
    return _table(("field", "type", "default", "meaning"), rows)


def _settings() -> str:
    docs = _field_docstrings(Settings)
    return _table(
        ("setting", "type", "default", "meaning"),
        (
            (f"`{name}`", _type(field.annotation), _default(field), _sentence(docs[name]))
            for name, field in Settings.model_fields.items()
        ),
    )


def _field_docstrings(record: type[BaseModel]) -> dict[str, str]:
    """Return the sentence below each field in the source, on one line."""
    source: Any = ast.parse(textwrap.dedent(inspect.getsource(record)))
    docs = {}
    for field, text in pairwise(source.body[0].body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            match text:
                case ast.Expr(ast.Constant(str(sentence))):
                    docs[field.target.id] = " ".join(sentence.split())
    return docs


def _type(annotation: Any) -> str:
    """Return a type as a reader writes it; what it may be is listed for a choice."""
    if annotation is type(None):
        return "`None`"
    if get_origin(annotation) is Literal:
        return ", ".join(f'`"{value}"`' for value in get_args(annotation))
    arguments = [part for part in get_args(annotation) if part is not Ellipsis]
    if getattr(annotation, "__name__", "") in {"Union", "UnionType"} or (
        get_origin(annotation) is not None and "Union" in str(get_origin(annotation))
    ):
        return " or ".join(_type(part) for part in arguments)
    name = getattr(get_origin(annotation) or annotation, "__name__", str(annotation))
    return f"`{name}`"


def _default(field: Any) -> str:
    if field.default is not PydanticUndefined:
        value = field.default
        return f'`"{value}"`' if isinstance(value, str) else f"`{value!r}`"
    return "" if field.default_factory is None else "empty"


def _sentence(text: str) -> str:
    text = text.replace("|", "\\|").rstrip(".")
    return text[:1].upper() + text[1:]


def _routes() -> str:
    """Return every route under its group, and the operations that have none."""
    rows = [
        (
            f"`{route.method} {PREFIX}{route.path.replace(':path', '')}`",
            f"`{route.operation}`",
            OPERATIONS[route.operation].description,
            ", ".join(f"`{method} {path.replace(':path', '')}`" for method, path in route.also),
        )
        for route in ROUTES
    ]
    own = [
        (f"`{route.replace(' ', f' {PREFIX}')}`", "", f"{why[0].upper()}{why[1:]}.", "")
        for route, why in OWN.items()
    ]
    left = "".join(f"\n- `{name}`: {why}." for name, why in EXCLUDED.items())
    made = _table(("route", "operation", "what it does", "also as"), [*rows, *own])
    return f"{made}\n\nWithout a route:\n{left}"


def _commands() -> str:
    group: Any = build_command()
    shared = _options(group)
    panels: dict[str, list[str]] = {}
    for name, command in group.commands.items():
        if command.hidden:
            continue
        panel = getattr(command, "rich_help_panel", None)
        title = panel if isinstance(panel, str) else "Commands"
        panels.setdefault(title, []).append(_command(name, command))
    parts = [f"The options of `tally` itself come before the command:\n\n{shared}"]
    for title, commands in panels.items():
        parts.append(f"## {title}\n\n" + "\n".join(commands))
    return "\n".join(parts).rstrip("\n") + "\n"


def _command(name: str, command: Any) -> str:
    arguments = [
        parameter.metavar or f"[{parameter.name.upper()}]"
        if parameter.metavar or not parameter.required
        else parameter.name.upper()
        for parameter in command.params
        if parameter.param_type_name == "argument"
    ]
    lead = " ".join(["tally", name, *arguments])
    text = " ".join((command.help or "").split())
    return f"### {name}\n\n`{lead}`\n\n{text}\n\n{_options(command)}"


def _options(command: Any) -> str:
    rows = [
        (", ".join(f"`{option}`" for option in _spelled(parameter)), _help(parameter))
        for parameter in command.params
        if not parameter.hidden and parameter.name != "help"
    ]
    return _table(("argument or option", "meaning"), rows) if rows else ""


def _spelled(parameter: Any) -> list[str]:
    if parameter.param_type_name == "argument":
        return [parameter.metavar or parameter.name.upper()]
    return [*parameter.opts, *parameter.secondary_opts]


def _help(parameter: Any) -> str:
    text = " ".join((parameter.help or "").split()).replace("|", "\\|")
    default = parameter.default
    if isinstance(default, str | int | float) and not isinstance(default, bool) and default != "":
        text += f" Default: `{default}`."
    if parameter.envvar:
        text += f" Variable: `{parameter.envvar}`."
    return text


def _runtimes() -> str:
    """Return what each extra brings, with the oldest and the newest version that the tests run
    with, behind Python itself.
    """
    tests = DOCS.parent / "tests"
    oldest, newest = pinned(tests / "oldest.txt"), pinned(tests / "newest.txt")
    python = newest[PYTHON]
    rows = [("Python", "all", project()["requires-python"], python, python)]
    extras: dict[tuple[str, str], list[str]] = {}
    for extra, requirements in admitted().items():
        for name, requirement in requirements.items():
            window = ", ".join(sorted(map(str, requirement.specifier), reverse=True))
            extras.setdefault((name, window), []).append(f"`{extra}`")
    for (name, window), names in extras.items():
        tested = (oldest.get(name, "-"), newest.get(name, "-"))
        rows.append((f"`{name}`", ", ".join(names), window, *tested))
    return _table(("runtime", "extra", "admitted", "oldest tested", "newest tested"), rows)


_MOMENTS: Mapping[str, tuple[EventName, ...]] = {
    "session start": ("session-start",),
    "prompt": ("prompt",),
    "before a tool": ("before-tool",),
    "permission for a tool": ("permission",),
    "after a tool": ("after-tool",),
    "a subagent": ("subagent-start", "subagent-end"),
    "before a compaction": ("before-compact",),
    "after a compaction": ("after-compact",),
    "turn end": ("turn-end",),
    "session end": ("session-end",),
}
_ASKED = {
    "remember": "add",
    "recall": "search",
    "modify": "manage",
    "forget": "manage",
}
"""Tools of the MCP server by what a person or a model asks for."""


def _harness_moments() -> str:
    """Return each moment of a session with what catches it in each harness."""
    if (told := {event for events in _MOMENTS.values() for event in events}) != set(EVENTS):
        raise SystemExit(f"moments of harnesses: {sorted(told ^ set(EVENTS))}")
    rows = [
        (moment, *(_catches(each, events) for each in HARNESSES.values()))
        for moment, events in _MOMENTS.items()
    ]
    rows += [
        (f"asked to {verb}", *(f"MCP `{tool}`" for _ in HARNESSES)) for verb, tool in _ASKED.items()
    ]
    return _table(("moment", *(each.title for each in HARNESSES.values())), rows)


def _catches(harness: Harness, events: Iterable[EventName]) -> str:
    caught = harness.plugin.events if harness.hooks is None and harness.plugin else None
    names = caught if harness.hooks is None else harness.hooks.events
    found = [f"`{name}`" for name, event in (names or {}).items() if event in events]
    notes = dict.fromkeys(harness.notes[event] for event in events if event in harness.notes)
    text = "; ".join(part for part in (", ".join(found), *notes) if part)
    if not text:
        raise SystemExit(f"{harness.title}: nothing catches {[*events]}, and no note says why.")
    return text


def _harness_forms() -> str:
    """Return where each harness has its hooks and its plugin, and how that was checked."""
    rows = []
    for name, each in HARNESSES.items():
        hooks = "" if each.hooks is None else f"`{each.hooks.file}`"
        plugin = ""
        if each.plugin is not None:
            places = [each.plugin.project, f"~/{each.plugin.user}"]
            if each.plugin.project == each.plugin.user:
                places.pop()
            plugin = ", ".join(f"`{place}`" for place in places if place)
        server = "by hand" if each.servers is None else f"`tally mcp install {each.servers}`"
        release = f"{each.release}: {each.checked}"
        rows.append((f"{each.title}, `{name}`", hooks or "none", plugin or "none", server, release))
    return _table(("harness", "hooks", "plugin", "tools", "checked with"), rows)


def _harness_deprecations() -> str:
    rows = [(each.title, text) for each in HARNESSES.values() for text in each.deprecated]
    return _table(("harness", "deprecated"), rows)


_TABLES: dict[str, Callable[[], str]] = {
    "kinds": _kinds,
    "memory": lambda: _fields(Memory),
    "source": lambda: _fields(SourceRef),
    "states": lambda: _meanings(get_args(MemoryState), STATE_MEANINGS, "state"),
    "edges": lambda: _meanings(get_args(EdgeKind), EDGE_MEANINGS, "edge"),
    "scopes": lambda: _meanings(get_args(ScopeKind), SCOPE_MEANINGS, "scope"),
    "events": lambda: _meanings(
        get_args(HistoryEntry.model_fields["event"].annotation), EVENT_MEANINGS, "event"
    ),
    "statuses": lambda: _meanings(get_args(StepStatus), STATUS_MEANINGS, "status"),
    "settings": _settings,
    "commands": _commands,
    "routes": _routes,
    "runtimes": _runtimes,
    "harness-moments": _harness_moments,
    "harness-forms": _harness_forms,
    "harness-deprecations": _harness_deprecations,
}

if __name__ == "__main__":
    main()
