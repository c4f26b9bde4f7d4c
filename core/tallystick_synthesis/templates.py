"""Templates: one file for each output type, with its outline and how a section quotes its items.

A file sets `title` and `outline`, and has the macro `body(section, depth)`, which writes Markdown
by `quote(item, span)`. It runs in jinja's sandbox and sees nothing but the section.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tallystick.errors import MissingExtra
from tallystick.records.synthesis import CollectedSection, OutlineSection
from tallystick_synthesis.markdown import as_quote, spans_of

_TYPES = Path(__file__).parent / "types"
_DOCUMENT = "_document.md.j2"
_SUFFIX = ".md.j2"


class Template(NamedTuple):
    """An output type."""

    title: str
    outline: tuple[OutlineSection, ...]
    module: Any

    def body(self, section: CollectedSection, depth: int) -> str:
        """Return the Markdown of a section, in which every sentence quotes an item."""
        return str(self.module.body(section, depth))


def output_types() -> tuple[str, ...]:
    """Return the names of the output types that have a file."""
    names = (each.name.removesuffix(_SUFFIX) for each in _TYPES.glob(f"*{_SUFFIX}"))
    return tuple(sorted(name for name in names if not name.startswith("_")))


@cache
def template_of(name: str) -> Template:
    """Return an output type; one without a file quotes as `custom` does. Raises MissingExtra."""
    module: Any = _environment().get_template(f"{name}{_SUFFIX}").module
    outline = tuple(OutlineSection.load(each) for each in getattr(module, "outline", ()))
    return Template(str(module.title), outline, module)


def render(values: dict[str, Any]) -> str:
    """Return a document as Markdown."""
    return str(_environment().get_template(_DOCUMENT).render(values)).strip() + "\n"


@cache
def _environment() -> Any:
    try:
        from jinja2 import FileSystemLoader
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ModuleNotFoundError as error:
        raise MissingExtra("jinja2", "synthesis") from error
    environment = ImmutableSandboxedEnvironment(
        loader=FileSystemLoader(_TYPES), trim_blocks=True, lstrip_blocks=True, autoescape=False
    )
    environment.globals |= {"quote": as_quote, "spans": spans_of}
    return environment
