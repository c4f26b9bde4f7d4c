"""The public names with their signatures, as one line each: what the API pages list.

`tests/public_names.txt` is what they were at the last release. A change on purpose is written by

    python -m tests.public_names

and said in the changelog, with what to write instead where something was taken away.
"""

from __future__ import annotations

import ast
import difflib
import importlib
import inspect
import re
from collections.abc import Container, Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, ForwardRef, get_type_hints

from pydantic import BaseModel

ROOT = Path(__file__).parent.parent
STORED = Path(__file__).with_name("public_names.txt")
COMMAND = "python -m tests.public_names"
_MODULE = re.compile(r"\b(?:\w+\.)+(?=\w)")
_PAGES = re.compile(r"^\.\. auto(?:module|class|data):: ([\w.]+)$", re.M)
ELSEWHERE = frozenset({"tallystick_adk"})
"""Packages whose runtime is not in this environment: the tables of their reference pages are
compared with them in their own.
"""


def public_modules() -> list[str]:
    """Return the modules, classes and values that the API pages list, by name."""
    pages = (ROOT / "docs" / "api").glob("*.md")
    return sorted({name for page in pages for name in _PAGES.findall(page.read_text("utf-8"))})


def public_lines() -> list[str]:
    """Return a line for each public name, and for each member of a class. A class is described at
    the shortest of its names; what it has from a public class is described there.
    """
    names = {
        name: value
        for path in public_modules()
        if path not in ELSEWHERE
        for name, value in _names_of(path)
    }
    homes: dict[type, str] = {}
    for name in sorted(names, key=lambda name: (name.count("."), name)):
        if inspect.isclass(value := names[name]):
            homes.setdefault(value, name)
    lines = []
    for name, value in sorted(names.items()):
        if inspect.isclass(value) and homes[value] != name:
            lines.append(f"{name} is {homes[value]}")
        else:
            shapes = _shapes(value, homes)
            lines += [f"{name}{member}{shape}".rstrip() for member, shape in shapes]
    return lines


def changes(before: list[str], after: list[str]) -> list[str]:
    """Return the lines that were taken away (`-`) and that came (`+`)."""
    compared = difflib.unified_diff(before, after, n=0, lineterm="")
    return [line for line in compared if line[:2] not in ("--", "++", "@@")]


def main() -> None:
    """Write the names of today."""
    STORED.write_text("\n".join([*public_lines(), ""]), encoding="utf-8")


def _names_of(path: str) -> Iterator[tuple[str, Any]]:
    """Yield the public names of a module with their values; of a class or a value itself."""
    try:
        module = importlib.import_module(path)
    except ModuleNotFoundError:
        home, _, name = path.rpartition(".")
        yield path, getattr(importlib.import_module(home), name)
        return
    for name in getattr(module, "__all__", None) or _own_names(module):
        value = getattr(module, name)
        if not isinstance(value, ModuleType):
            yield f"{path}.{name}", value


def _own_names(module: ModuleType) -> list[str]:
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]


def _shapes(value: Any, homes: Container[type]) -> Iterator[tuple[str, str]]:
    """Yield each member of a value with what it takes and gives; of a class the class first."""
    if not inspect.isclass(value):
        yield "", _signature(value) if callable(value) else f": {_type_of(value)}"
        return
    is_record = issubclass(value, BaseModel) and "__init__" not in vars(value)
    yield "", _bases(value) + ("" if is_record else _signature(value))
    members: dict[str, Any] = {}
    for base in reversed(value.__mro__):
        if base is value or (base.__module__.startswith("tallystick") and base not in homes):
            members |= vars(base)
            members |= dict.fromkeys(inspect.get_annotations(base), _FIELD)
    fields = value.model_fields if issubclass(value, BaseModel) else {}
    for name, member in sorted(members.items(), key=lambda each: each[0]):
        if name.startswith("_") or name == "model_config":
            continue
        if name in fields:
            yield f".{name}", f": {_written(_annotation(value, name))}{_default(fields[name])}"
        elif isinstance(member, property):
            given = inspect.get_annotations(member.fget) if callable(member.fget) else {}
            yield f".{name}", f": {_written(given.get('return'))}"
        elif isinstance(member, staticmethod | classmethod):
            yield f".{name}", f" {type(member).__name__} {_signature(member.__func__)}"
        elif member is _FIELD:
            yield f".{name}", f": {_written(_annotation(value, name))}"
        elif inspect.isroutine(member):
            yield f".{name}", _signature(member)
        else:
            yield f".{name}", f": {_type_of(member)}"


_FIELD = object()
"""Stands for what is declared with a type, and assigned in no class."""


def _bases(value: type) -> str:
    names = [base.__name__ for base in value.__bases__ if base is not object]
    return f" is {', '.join(names)} " if names else ""


def _annotation(value: type, name: str) -> Any:
    for base in value.__mro__:
        if name in (given := inspect.get_annotations(base)):
            return given[name]
    return None


def _default(field: Any) -> str:
    if field.is_required():
        return ""
    return " = …" if field.default_factory is not None else f" = {_literal(field.default)}"


def _signature(called: Any) -> str:
    """Return parameters and result, without what a type says to surfaces about itself."""
    try:
        signature = inspect.signature(called)
    except (TypeError, ValueError):
        return "(…)"
    parameters = [
        each.replace(
            annotation=each.empty
            if each.annotation is each.empty
            else _Raw(_written(each.annotation)),
            default=each.empty if each.default is each.empty else _Raw(_literal(each.default)),
        )
        for each in signature.parameters.values()
    ]
    result = signature.return_annotation
    text = str(signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty))
    return text if result is inspect.Signature.empty else f"{text} -> {_written(result)}"


class _Raw:
    """Prints as the text that it is made of."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _literal(value: Any) -> str:
    """Return a default, without an address in memory."""
    if inspect.isroutine(value) or inspect.isclass(value):
        return str(value.__name__)
    text = repr(value)
    return f"{type(value).__name__}(…)" if " at 0x" in text or len(text) > 200 else text


def _type_of(value: Any) -> str:
    return type(value).__name__


def _written(annotation: Any) -> str:
    """Return a type as its source says it, without `Annotated`."""
    if isinstance(annotation, ForwardRef):
        annotation = annotation.__forward_arg__
    if isinstance(annotation, str):
        text = annotation
    else:
        holder = type("Holder", (), {"__annotations__": {"x": annotation}})
        with suppress(NameError):  # a name that only a type checker imports
            annotation = get_type_hints(holder)["x"]
        text = _MODULE.sub("", inspect.formatannotation(annotation))
    try:
        tree = ast.parse(text, mode="eval")
    except SyntaxError:
        return text
    return ast.unparse(_WithoutNotes().visit(tree))


class _WithoutNotes(ast.NodeTransformer):
    """Puts the type of each `Annotated` in its place."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """Return the type of an `Annotated`, or the node."""
        self.generic_visit(node)
        name = node.value.attr if isinstance(node.value, ast.Attribute) else node.value
        is_annotated = name == "Annotated" or getattr(name, "id", None) == "Annotated"
        if is_annotated and isinstance(node.slice, ast.Tuple):
            return node.slice.elts[0]
        return node


if __name__ == "__main__":
    main()
