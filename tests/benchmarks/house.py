"""Count what makes source hard to read: dialect names, long files, overrides, stray SQL, circles.

`python tests/benchmarks/house.py [ROOT]` counts a checkout, by default this one. Nothing of it is
imported; all figures are read from its syntax trees.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOTS = ("core", "checkpointers", "callbacks", "integrations")
DIALECT = frozenset(
    [
        "found",
        "one",
        "told",
        "known",
        "asked",
        "kept",
        "said",
        "done",
        "wanted",
        "taken",
        "given",
        "made",
    ]
)
"""Participles and pronouns that say nothing of what a variable is."""
STATEMENTS = frozenset({"execute", "executemany", "exec_driver_sql"})


class Module(NamedTuple):
    """A source file."""

    name: str
    """As it is imported."""
    path: Path
    text: str
    tree: ast.Module


def modules(root: Path) -> Iterator[Module]:
    """Yield the source files of a checkout, without migrations, in the order of their paths."""
    for seam in ROOTS:
        for path in sorted((root / seam).rglob("*.py")):
            if "versions" in path.parts:
                continue
            name = ".".join(path.relative_to(root / seam).with_suffix("").parts)
            text = path.read_text(encoding="utf-8")
            yield Module(name.removesuffix(".__init__"), path, text, ast.parse(text))


def assigned_names(tree: ast.Module) -> Iterator[str]:
    """Yield every name that is assigned: variables, parameters, errors that are caught."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg) and node.arg not in ("self", "cls"):
            yield node.arg
        elif isinstance(node, ast.ExceptHandler) and node.name:
            yield node.name


def bare_tuples(tree: ast.Module) -> Iterator[str]:
    """Yield public functions whose result is, or contains, a tuple of a fixed number of parts."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.returns is None:
            continue
        if not node.name.startswith("_") and any(map(_is_fixed, ast.walk(node.returns))):
            yield node.name


def _is_fixed(node: ast.AST) -> bool:
    if not isinstance(node, ast.Subscript) or ast.unparse(node.value) != "tuple":
        return False
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    return len(parts) > 1 and not any(
        isinstance(part, ast.Constant) and part.value is ... for part in parts
    )


def forwarders(tree: ast.Module) -> Iterator[str]:
    """Yield functions that hand their own parameters to one call and do nothing else."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.decorator_list:
            continue
        body = [
            statement
            for statement in node.body
            if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
        ]
        if len(body) != 1 or not isinstance(body[0], ast.Return | ast.Expr):
            continue
        call = body[0].value
        call = call.value if isinstance(call, ast.Await) else call
        if not isinstance(call, ast.Call):
            continue
        own = [argument.arg for argument in (*node.args.args, *node.args.kwonlyargs)]
        own = [name for name in own if name not in ("self", "cls")]
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        if own and [ast.unparse(value) for value in given] == own:
            yield node.name


def statements(module: Module) -> int:
    """Count statements that are run outside of `storage`."""
    if ".storage" in module.name or module.name == "tallystick_langgraph.importing":
        return 0
    return sum(
        isinstance(node, ast.Call) and getattr(node.func, "attr", None) in STATEMENTS
        for node in ast.walk(module.tree)
    )


def imports(module: Module, names: frozenset[str]) -> set[str]:
    """Return the modules of ours that a module imports anywhere, also for types alone."""
    targets: set[str] = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            submodules = {f"{node.module}.{alias.name}" for alias in node.names} & names
            targets |= submodules or ({node.module} & names)
        elif isinstance(node, ast.Import):
            targets |= {alias.name for alias in node.names} & names
    return targets - {module.name}


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return the groups of modules that import one another in a circle (Tarjan's components)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    groups: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for target in graph[name]:
            if target not in index:
                visit(target)
                low[name] = min(low[name], low[target])
            elif target in stack:
                low[name] = min(low[name], index[target])
        if low[name] == index[name]:
            group = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(group) > 1:
                groups.append(sorted(group))

    for name in graph:
        if name not in index:
            visit(name)
    return groups


def main(root: Path) -> None:
    """Print the figures of a checkout."""
    sources = list(modules(root))
    core = [module for module in sources if module.path.is_relative_to(root / "core")]
    names = [name for module in sources for name in assigned_names(module.tree)]
    dialect = sum(name.strip("_") in DIALECT for name in names)
    lengths = {str(m.path.relative_to(root)): m.text.count("\n") for m in core}
    longest = max(lengths, key=lambda name: lengths[name])
    overrides = sum(
        len(re.findall(r"# fmt: *(?:skip|off)", path.read_text(encoding="utf-8")))
        for folder in (*ROOTS, "tests", "examples")
        for path in (root / folder).rglob("*.py")
        if path.name != Path(__file__).name
    )
    known = frozenset(module.name for module in sources)
    graph = {module.name: imports(module, known) for module in sources}
    rows = [
        ("files", f"{len(sources)}"),
        ("dialect names", f"{dialect} of {len(names)}, {100 * dialect / len(names):.1f} %"),
        ("longest file of the core", f"{longest}, {lengths[longest]} lines"),
        (
            "public functions that return bare tuples",
            f"{sum(len(list(bare_tuples(module.tree))) for module in core)}",
        ),
        ("overrides of the formatter", f"{overrides}"),
        ("statements run outside of storage", f"{sum(map(statements, sources))}"),
        ("import circles, imports for types included", f"{len(circles(graph))}"),
        ("forwarders", f"{sum(len(list(forwarders(module.tree))) for module in core)}"),
    ]
    for label, figure in rows:
        print(f"{label:<45}{figure}")
    for group in circles(graph):
        print(f"  circle: {', '.join(group)}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent.parent)
