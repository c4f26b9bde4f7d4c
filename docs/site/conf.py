"""The site of the documentation: `make docs` builds it from the Markdown in `docs/`, offline.

Pages are plain Markdown that reads well on a code host. The table of contents is made of the lists
in `docs/index.md`, and the API pages of docstrings. A warning fails the build: a missing page or
anchor, a cross reference to nothing, a public name without its place, a resource of another server.
The description of the HTTP routes is written beside the pages, as `openapi.json`.
"""

from __future__ import annotations

import functools
import importlib
import json
import re
import types
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.ext.autodoc.mock import mock
from sphinx.util import logging
from sphinx.util.nodes import find_pending_xref_condition

import tallystick
from tallystick_server import openapi

DOCS = Path(__file__).parent.parent
ROOT = DOCS.parent

project = "Tallystick"
copyright = "the authors of Tallystick"
version = release = tallystick.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["site/**"]
html_theme = "furo"
html_title = "Tallystick"
html_static_path: list[str] = []
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}

myst_heading_anchors = 4
myst_enable_extensions = ["deflist"]
nitpicky = True

# Docstrings are written with single backticks around code.
default_role = "code"
autodoc_member_order = "bysource"
# It needs older packages than the rest: its adapter is documented without it.
autodoc_mock_imports = ["google.adk"]
autodoc_class_signature = "separated"
autodoc_typehints = "signature"
python_maximum_signature_line_length = 88
autodoc_typehints_format = "short"
autodoc_default_options = {
    "members": True,
    "undoc-members": True,
    "exclude-members": "model_config, model_post_init, model_fields, model_computed_fields",
}

PUBLIC_MODULES = re.findall(
    r"^\.\. automodule:: (\S+)",
    "\n".join(page.read_text(encoding="utf-8") for page in sorted((DOCS / "api").glob("*.md"))),
    re.M,
)
"""Modules whose `__all__` is the public face: those that a page of `docs/api/` names."""

_VALUE_TYPES = (type, types.FunctionType, types.MethodType, functools.partial)

_log = logging.getLogger(__name__)


def setup(app: Sphinx) -> None:
    """Connect what makes the contents and what checks the result."""
    for name in PUBLIC_MODULES:
        with mock(autodoc_mock_imports):
            module = importlib.import_module(name)
        # Lazily loaded names are no attributes of the module yet, and autodoc asks for those only.
        for public in module.__all__:
            setattr(module, public, getattr(module, public))
    app.connect("autodoc-process-docstring", _leave_out_docstrings)
    app.connect("source-read", _add_contents)
    app.connect("source-read", _add_values)
    app.connect("doctree-read", _unlink_insides)
    app.connect("build-finished", _write_openapi)
    app.connect("build-finished", _check_public_names)
    app.connect("build-finished", _check_no_foreign_resource)


def _leave_out_docstrings(
    app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]
) -> None:
    """Leave out docstrings that tell a reader of the site nothing.

    The page of a module introduces it, and a value without a docstring has that of its type.
    """
    is_alias = isinstance(value, types.GenericAlias) or value.__doc__ == type(value).__doc__
    if what == "module" or (what == "data" and is_alias):
        lines.clear()


def _add_contents(app: Sphinx, docname: str, source: list[str]) -> None:
    """Append a hidden table of contents to the first page, made of its own lists of links."""
    if docname != "index":
        return
    parts = re.split(r"^## (.*)$", source[0], flags=re.M)
    for caption, text in zip(parts[1::2], parts[2::2], strict=True):
        pages = re.findall(r"^- \[[^\]]*\]\(([\w/-]+)\.md\)", text, re.M)
        if pages:
            listed = "\n".join(pages)
            source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{listed}\n```\n"


def _add_values(app: Sphinx, docname: str, source: list[str]) -> None:
    """Add the public names that are neither classes nor functions, which autodoc passes over."""

    def with_values(match: re.Match[str]) -> str:
        values = "".join(
            f"\n.. autodata:: {match[1]}.{name}\n   :no-value:\n"
            for name in _values(match[1])
            if name not in match[0]
        )
        return f"{match[0]}{values}"

    if docname.startswith("api/"):
        source[0] = re.sub(
            r"^\.\. automodule:: (\S+)\n(?:   .*\n)*", with_values, source[0], flags=re.M
        )


def _values(name: str) -> list[str]:
    module = importlib.import_module(name)
    return [
        public
        for public in module.__all__
        if not isinstance(getattr(module, public), _VALUE_TYPES)
        and not hasattr(getattr(module, public), "__value__")  # an alias, which autodoc takes
    ]


def _unlink_insides(app: Sphinx, doctree: nodes.document) -> None:
    """Leave a type that a signature names without a link, unless it is public.

    The types of other packages are in their own documentation, which is not asked for: a build
    fetches nothing. Of ours, the insides are not part of the public face.
    """
    if app.env.current_document.docname.startswith("api/"):
        for reference in list(doctree.findall(addnodes.pending_xref)):
            if (
                reference.get("refdomain") == "py"
                and reference["reftarget"] not in _public_targets()
            ):
                short = find_pending_xref_condition(reference, "resolved")
                reference.replace_self(reference.children if short is None else short.children)


@functools.cache
def _public_targets() -> frozenset[str]:
    return frozenset(
        target
        for name in PUBLIC_MODULES
        for public in importlib.import_module(name).__all__
        for target in _targets(name, public)
    )


def _targets(name: str, public: str) -> set[str]:
    value: Any = getattr(importlib.import_module(name), public)
    origin = f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', '')}"
    # An alias of a type of another package, such as Callable[…], names that package as its origin.
    return {f"{name}.{public}", origin} if origin.startswith("tallystick") else {f"{name}.{public}"}


def _write_openapi(app: Sphinx, error: Exception | None) -> None:
    """Write the description of the HTTP routes beside the pages."""
    if error is None and app.builder.format == "html":
        described = json.dumps(openapi(), indent=1, sort_keys=True)
        Path(app.outdir, "openapi.json").write_text(described, encoding="utf-8")


def _check_public_names(app: Sphinx, error: Exception | None) -> None:
    """Warn about each public name that has no place in the API reference."""
    if error is not None or app.builder.format != "html":
        return
    documented = app.env.domains.python_domain.objects
    for name in PUBLIC_MODULES:
        for public in importlib.import_module(name).__all__:
            if _targets(name, public).isdisjoint(documented):
                _log.warning("%s.%s is public and has no place in the API reference", name, public)


def _check_no_foreign_resource(app: Sphinx, error: Exception | None) -> None:
    """Warn about each page that would load something from another server."""
    if error is not None or app.builder.format != "html":
        return
    for page in sorted(Path(app.outdir).rglob("*.html")):
        text = page.read_text(encoding="utf-8")
        for found in re.findall(
            r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=\"https?:[^\"]*", text
        ):
            _log.warning("%s loads %s", page.name, found)
