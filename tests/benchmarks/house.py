"""Count what makes source hard to read: vocabulary, dialect names, complex functions, circles.

`python tests/benchmarks/house.py [ROOT]` counts a checkout, by default this one. Nothing of it is
imported; all figures are read from its syntax trees. It is a report: it passes no judgement.
"""

from __future__ import annotations

import ast
import json
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
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
SECRETS = frozenset(
    {"secret_rules", "secret_checks", "vendor_tokens", "redaction", "personal_data"}
)
"""Modules of `policy` whose patterns are forms of secrets and personal data, counted apart."""
WORD = re.compile(r"[^\W\d_]{2,}")
PLAIN = re.compile(r"[^\W\d_]+(?: [^\W\d_]+)*")
"""A word or a phrase, as a list of words has it."""
NO_WORD = re.compile(r"\\[pP]\{[^}]*\}|\\.|\[[^\]]*\]|\(\?P<\w+>|\(\?P=\w+\)|\(\?[aiLmsux-]+[:)]")
"""Parts of a pattern whose letters are no words: escapes, classes, names of groups, flags."""
MOST_FILES, MOST_FUNCTIONS = 8, 5
"""Files with the largest vocabulary, and functions of the core, that are named."""
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


def alternatives(pattern: str) -> int:
    """Count the alternatives of a pattern that hold a word."""
    if "|" not in pattern:
        return 0
    return sum(bool(WORD.search(part)) for part in NO_WORD.sub("\0", pattern).split("|"))


def word_count(values: Iterable[object]) -> int:
    """Return the length of a list of lower-case words or phrases; 0 for any other list."""
    words = list(values)
    is_plain = all(
        isinstance(word, str) and word.islower() and PLAIN.fullmatch(word) for word in words
    )
    return len(words) if is_plain else 0


def vocabulary(tree: ast.Module) -> int:
    """Count the words that a file types: alternatives of patterns, split texts, sets."""
    documentation = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    return sum(_words_of(node) for node in ast.walk(tree) if id(node) not in documentation)


def _words_of(node: ast.AST) -> int:
    match node:
        case ast.Constant(value=str(text)):
            return alternatives(text)
        case ast.Call(
            func=ast.Attribute(value=ast.Constant(value=str(text)), attr="split"), args=[]
        ):
            return len(text.split())
        case (
            ast.Set(elts=members)
            | ast.Call(
                func=ast.Name(id="set" | "frozenset"),
                args=[ast.List(elts=members) | ast.Tuple(elts=members)],
            )
        ):
            return word_count(getattr(member, "value", None) for member in members)
    return 0


def listed_words(value: object) -> int:
    """Count the words in the lists of a JSON or TOML file, at any depth."""
    if isinstance(value, dict):
        return sum(map(listed_words, value.values()))
    if isinstance(value, list):
        return word_count(value) or sum(map(listed_words, value))
    return 0


def vocabularies(root: Path, sources: Iterable[Module]) -> dict[str, int]:
    """Return the number of words that each file types, for the files that type any."""
    counts = {str(module.path.relative_to(root)): vocabulary(module.tree) for module in sources}
    for seam in ROOTS:
        for path in (root / seam).rglob("*.json"):
            counts[str(path.relative_to(root))] = listed_words(json.loads(path.read_bytes()))
        for path in (root / seam).rglob("*.toml"):
            words = listed_words(tomllib.loads(path.read_text(encoding="utf-8")))
            counts[str(path.relative_to(root))] = words
    return {name: count for name, count in counts.items() if count}


def complexity(function: ast.AST) -> int:
    """Return the cyclomatic complexity of a function: 1 and each place where its path forks."""
    total = 1
    for node in ast.walk(function):
        match node:
            case ast.If() | ast.For() | ast.AsyncFor() | ast.While() | ast.IfExp():
                total += 1
            case ast.ExceptHandler() | ast.Assert() | ast.match_case():
                total += 1
            case ast.comprehension():
                total += 1 + len(node.ifs)
            case ast.BoolOp():
                total += len(node.values) - 1
    return total


def functions(module: Module) -> Iterator[tuple[int, str]]:
    """Yield the complexity and the place of each function of a module, at any depth."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield complexity(node), f"{module.name}.{node.name}"


def line_count(folder: Path) -> int:
    """Return the lines of the Python files below a folder."""
    return sum(path.read_text(encoding="utf-8").count("\n") for path in folder.rglob("*.py"))


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
    words = vocabularies(root, sources)
    secrets = sum(words.pop(f"core/tallystick/policy/{name}.py", 0) for name in SECRETS)
    most_complex = sorted((each for module in core for each in functions(module)), reverse=True)
    rows = [
        *((f"lines of {seam}", f"{line_count(root / seam):,}") for seam in (*ROOTS, "examples")),
        ("words of vocabulary in our files", f"{sum(words.values()):,}"),
        ("words in patterns of secrets", f"{secrets:,}"),
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
    for name in sorted(words, key=lambda name: (-words[name], name))[:MOST_FILES]:
        print(f"  vocabulary: {words[name]:4} {name}")
    for count, place in most_complex[:MOST_FUNCTIONS]:
        print(f"  complexity: {count:4} {place}")
    for group in circles(graph):
        print(f"  circle: {', '.join(group)}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent.parent)
