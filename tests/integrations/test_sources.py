"""Each source is found by its name, and says what it needs."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from tallystick.errors.base import install_line
from tallystick_ingest.contract import Connector

ROOT = Path(__file__).parents[2]
NEEDED = {
    "files": "pathspec",
    "github": "httpx2",
    "gdrive": "httpx2",
    "crawl": "httpx2",
}
CONNECTORS = {"github", "gdrive"}


@pytest.mark.skipif(not (ROOT / "core").is_dir(), reason="the source is out of reach here")
def test_the_five_are_declared_by_their_names() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = project["entry-points"]["tallystick.sources"]

    assert sorted(declared) == ["crawl", "files", "gdrive", "github", "mailbox"]
    for name, place in declared.items():
        module, _, kind = place.partition(":")
        source = getattr(import_module(module), kind)()
        assert source.name == name
        assert isinstance(source, Connector) == (name in CONNECTORS)
        assert getattr(source, "reads_paths", True) == (name in ("files", "mailbox"))
        assert name in project["optional-dependencies"]


@pytest.mark.parametrize("source", NEEDED)
def test_a_source_without_its_library_says_what_to_install(source: str) -> None:
    package = NEEDED[source]
    code = f"""
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] == {package!r}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
try:
    import tallystick_sources.{source}
except ImportError as error:
    print(type(error).__name__, error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], text=True, capture_output=True, timeout=120, check=False
    )

    assert done.stdout.strip() == (
        f"MissingExtra {package} is not installed. Run: {install_line(source)}"
    ), done.stderr
