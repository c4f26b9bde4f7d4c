"""The reference of the documentation says what is there: parameters, generated tables, contents."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = {
    "tallystick_langgraph": "reference/langgraph.md",
    "tallystick_langchain": "reference/langchain.md",
    "tallystick_pydantic_ai": "reference/pydantic-ai.md",
    "tallystick_llama_index": "reference/llama-index.md",
    "tallystick_openai_agents": "reference/openai-agents.md",
    "tallystick_claude_agent": "reference/claude-agent.md",
    "tallystick_adk": "reference/adk.md",
}
_ROW = re.compile(r"^\| `(?P<name>[^`]+)` \| (?P<default>[^|]*?) ?\|", re.M)


def _sections(page: str) -> dict[str, dict[str, str]]:
    """Return the tables of parameters of a page: name to parameters with their defaults."""
    parts = re.split(r"^### (\S+)$", (DOCS / page).read_text(encoding="utf-8"), flags=re.M)
    return {
        title: {row["name"]: row["default"].strip("`") for row in _ROW.finditer(text)}
        for title, text in zip(parts[1::2], parts[2::2], strict=True)
        if "| parameter | default | meaning |" in text
    }


def _face(package: str) -> ModuleType:
    """Return an adapter; that of ADK is looked at by `make test-adk`, which has it."""
    if package == "tallystick_adk":
        pytest.importorskip("google.adk", exc_type=ImportError)
    return importlib.import_module(package)


def _parameters(called: Any) -> dict[str, inspect.Parameter]:
    """Return what a caller gives, by the name that the table has."""
    return {
        f"**{name}" if parameter.kind is parameter.VAR_KEYWORD else name: parameter
        for name, parameter in inspect.signature(called).parameters.items()
        if name not in ("self", "view") and parameter.kind is not parameter.VAR_POSITIONAL
    }


def _of_the_runtime(called: Any) -> set[str]:
    """Return the parameters that a class has from its runtime's own base."""
    bases = called.__mro__[1:] if inspect.isclass(called) else ()
    return {
        name
        for base in bases
        if not base.__module__.startswith("tallystick") and base is not object
        for name in (*getattr(base, "model_fields", ()), *getattr(base, "__dataclass_fields__", ()))
    }


@pytest.mark.parametrize("package", PAGES)
def test_each_public_name_of_an_adapter_has_a_table_with_every_parameter(package: str) -> None:
    module = _face(package)
    sections = _sections(PAGES[package])

    assert sorted({name.partition(".")[0] for name in sections}) == sorted(module.__all__)
    for title, table in sections.items():
        name, _, method = title.partition(".")
        called = getattr(module, name)
        own = _of_the_runtime(called) if not method else set()
        parameters = _parameters(getattr(called, method) if method else called)
        assert set(table) <= set(parameters), title
        assert set(parameters) - set(table) <= own, title


@pytest.mark.parametrize("package", PAGES)
def test_the_tables_say_the_defaults(package: str) -> None:
    module = _face(package)

    for title, table in _sections(PAGES[package]).items():
        name, _, method = title.partition(".")
        called = getattr(module, name)
        parameters = _parameters(getattr(called, method) if method else called)
        for parameter, said in table.items():
            default = parameters[parameter].default
            if default is inspect.Parameter.empty:
                assert said in ("required", ""), (title, parameter)
            elif default is None or isinstance(default, bool | int | str | tuple):
                assert said == _written(default), (title, parameter)


def _written(default: Any) -> str:
    return f'"{default}"' if isinstance(default, str) else repr(default)


def test_the_generated_tables_are_those_of_the_code() -> None:
    """`make docs-refresh` writes them anew."""
    from docs.site import tables

    stale = [
        page.relative_to(ROOT).as_posix()
        for page, text in tables.written_anew().items()
        if page.read_text(encoding="utf-8") != text
    ]

    assert stale == [], "run `make docs-refresh`"


def test_every_page_is_in_the_table_of_contents() -> None:
    """The site takes its contents from the lists of the first page."""
    linked = set(
        re.findall(r"\]\(([\w/-]+\.md)\)", (DOCS / "index.md").read_text(encoding="utf-8"))
    )

    assert linked == {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")} - {
        "index.md"
    }


def test_the_api_reference_has_the_public_modules() -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in (DOCS / "api").glob("*.md"))
    modules = set(re.findall(r"^\.\. automodule:: (\S+)", text, re.M))
    adapters = {
        path.name
        for seam in ("checkpointers", "callbacks", "integrations")
        for path in (ROOT / seam).iterdir()
        if path.name.startswith("tallystick_")
    }

    # The command line is no library: its reference is docs/cli.md.
    assert adapters - modules == {"tallystick_cli"}
    assert {
        f"tallystick{room}"
        for room in (
            "",
            ".errors",
            ".ports",
            ".recorder",
            ".records",
            ".settings",
            ".tally",
            ".testing",
        )
    } <= modules
