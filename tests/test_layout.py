"""The house stands as drawn: import roots, floors, faces, the tree of errors, and a light
import.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tallystick
from tallystick import errors, records
from tallystick.errors.base import install_line

ROOT = Path(__file__).parent.parent
ROOTS = ("core", "checkpointers", "callbacks", "integrations")
ADAPTERS = {
    "tallystick_langgraph": ("langgraph", "langgraph"),
    "tallystick_langchain": ("langchain_core", "langchain"),
    "tallystick_pydantic_ai": ("pydantic_ai", "pydantic-ai"),
    "tallystick_llama_index": ("llama_index", "llama-index"),
    "tallystick_openai_agents": ("agents", "openai-agents"),
    "tallystick_claude_agent": ("claude_agent_sdk", "claude-agent"),
    "tallystick_adk": ("google.adk", "adk"),
    "tallystick_ollama": ("ollama", "ollama"),
    "tallystick_cli": ("typer", "cli"),
    "tallystick_mcp": ("mcp", "mcp"),
}
HEAVY = (
    "chromadb",
    "numpy",
    "onnxruntime",
    "tiktoken",
    "tokenizers",
    "safetensors",
    "sqlalchemy",
    "alembic",
    "wordllama",
    "langgraph",
    "langchain_core",
    "pydantic_ai",
    "llama_index",
    "agents",
    "claude_agent_sdk",
    "mcp",
    "rich",
    "typer",
)
PRIVATE_MODULES = ("tallystick.tally.services", "tallystick.storage", "tallystick.recorder.context")
REACHING_ALLOWED = {
    ("tallystick_cli/upkeep.py", "tallystick.tally.services.services_of"): (
        "`export` asks the gate which memories the owner may take along"
    ),
}

in_checkout = pytest.mark.skipif(
    not (ROOT / "core").is_dir(), reason="the source is out of reach here"
)


def _python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], text=True, capture_output=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@in_checkout
@pytest.mark.parametrize("root", ROOTS)
def test_an_import_root_holds_only_typed_packages_of_ours(root: str) -> None:
    found = [entry for entry in (ROOT / root).iterdir() if entry.name != "__pycache__"]

    assert found
    for entry in found:
        assert entry.is_dir(), f"{entry} would ship as a top-level module"
        assert entry.name.startswith("tallystick"), entry
        assert (entry / "py.typed").exists(), entry
        assert (entry / "__init__.py").exists(), entry


@in_checkout
def test_the_import_contracts_hold() -> None:
    # As a process: the linter disables every logger there is, also those of the tests that follow.
    command = "import importlinter.cli as cli; cli.lint_imports_command()"
    done = subprocess.run(
        [sys.executable, "-c", command, "--config", str(ROOT / "pyproject.toml"), "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stdout


@in_checkout
def test_no_adapter_reaches_behind_the_kit() -> None:
    """Adapters use the verbs of a bound tally and the kit; the wiring is private to the core."""
    reaching = {
        (file.relative_to(ROOT / root).as_posix(), name)
        for root in ("checkpointers", "callbacks", "integrations")
        for file in (ROOT / root).rglob("*.py")
        for name in _imported_modules(file)
        if name.startswith(PRIVATE_MODULES)
    }

    assert reaching == set(REACHING_ALLOWED)


@in_checkout
def test_what_runs_beside_the_wheel_imports_nothing_that_stays_behind() -> None:
    """The wheel is tested with a copy of the tests, away from the source, the docs and examples."""
    behind = ("docs", "examples")
    reaching = [
        (file.relative_to(ROOT).as_posix(), name)
        for file in (ROOT / "tests").rglob("*.py")
        if not file.name.endswith("_docs.py") and ROOT / "tests/examples" not in file.parents
        for name in _imported_modules(file)
        if name.split(".")[0] in behind
    ]

    assert reaching == []


def _imported_modules(file: Path) -> set[str]:
    modules: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            modules |= {f"{node.module}.{alias.name}" for alias in node.names}
    return modules


@pytest.mark.smoke
def test_importing_tallystick_loads_nothing_heavy() -> None:
    loaded = _python(
        f"import sys, json, tallystick; print(json.dumps([name for name in {HEAVY!r} if name in "
        f"sys.modules]))"
    )

    assert json.loads(loaded) == []


@pytest.mark.smoke
@pytest.mark.parametrize("adapter", ADAPTERS)
def test_an_adapter_without_its_runtime_says_what_to_install(adapter: str) -> None:
    package, extra = ADAPTERS[adapter]
    said = _python(
        f"""
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if (name + '.').startswith({package + "."!r}):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
try:
    from {adapter} import *
except ImportError as error:
    print(type(error).__name__, error)
"""
    )

    assert said == f"MissingExtra {package} is not installed. Run: {install_line(extra)}"


@pytest.mark.smoke
@pytest.mark.parametrize("package", ["httpx2", "jinja2", "prometheus_client", "uvicorn"])
def test_a_server_beside_what_an_application_has_already_says_what_to_install(package: str) -> None:
    """FastAPI is there, as an application of one's own brought it."""
    said = _python(
        f"""
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] == {package!r}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
import tallystick_server
for name in tallystick_server.__all__:
    try:
        getattr(tallystick_server, name)
    except ImportError as error:
        print(error)
"""
    )
    assert {*said.splitlines()} == {f"{package} is not installed. Run: {install_line('server')}"}


@pytest.mark.smoke
def test_the_door_of_mcp_is_guarded_without_the_extra_of_the_server() -> None:
    loaded = _python(
        """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] in ('fastapi', 'jinja2'):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
import tallystick_mcp.transports
try:
    from tallystick_server import serve
except ImportError as error:
    print(error)
print('tallystick_server.app' in sys.modules)
"""
    )

    assert loaded.splitlines() == [
        f"fastapi is not installed. Run: {install_line('server')}",
        "False",
    ]


@pytest.mark.smoke
@pytest.mark.parametrize(
    "module",
    [
        "tallystick",
        "tallystick.records",
        "tallystick.errors",
        "tallystick.testing",
        "tallystick.ranking",
        "tallystick.compiler",
        "tallystick.embedding",
        "tallystick.formats",
        "tallystick.tokens",
        "tallystick_learning",
        "tallystick_graph",
        "tallystick_ingest",
        "tallystick_work",
        "tallystick_steward",
        "tallystick_comparing",
        "tallystick_synthesis",
        *ADAPTERS,
    ],
)
def test_a_face_lists_what_is_there(module: str) -> None:
    if module == "tallystick_adk":
        pytest.importorskip("google.adk", exc_type=ImportError)
    face = importlib.import_module(module)

    assert len(set(face.__all__)) == len(face.__all__)
    for name in face.__all__:
        assert getattr(face, name) is not None


def test_the_records_face_hides_nothing() -> None:
    tree = ast.parse(Path(records.__file__).read_text(encoding="utf-8"))
    public = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").startswith("tallystick.records.")
        for alias in node.names
    }

    assert public == set(records.__all__)


def test_the_drawn_tree_of_errors_is_the_real_one() -> None:
    drawn = _drawn_tree(errors.__doc__ or "")
    real = {
        name: value.__mro__[1].__name__
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, errors.TallystickError)
    }

    assert drawn == real


def test_every_error_tells_what_happened_and_is_listed() -> None:
    classes = [
        value
        for value in vars(errors).values()
        if inspect.isclass(value) and issubclass(value, Exception)
    ]

    for value in classes:
        assert value.__doc__, value
        assert value.__name__ in errors.__all__


def _drawn_tree(doc: str) -> dict[str, str]:
    parents: dict[str, str] = {}
    path: list[str] = []
    for line in doc.splitlines():
        found = re.match(r"^(?P<indent>[│├└─ ]*)(?P<name>[A-Z]\w+)", line)
        if found is None or (not found["indent"] and line != "TallystickError"):
            continue
        depth = len(found["indent"]) // 4
        path = [*path[:depth], found["name"]]
        parents[found["name"]] = path[-2] if depth else "Exception"
    return parents


def test_the_version_is_the_one_of_the_distribution() -> None:
    from importlib.metadata import version

    assert tallystick.__version__ == version("tallystick")


def test_a_benchmark_that_imports_another_is_run_as_a_module() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    scripts = re.findall(r"/python (tests/benchmarks/\w+\.py)", makefile)
    importing = [
        name
        for name in scripts
        if re.search(r"^from tests\b", (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE)
    ]

    assert scripts
    assert importing == []
