"""A working copy of the fixture project, and the tools that touch it: real files, a real patch, a
real pytest.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).parent / "project"


@dataclass(frozen=True)
class TestRun:
    """The result of pytest."""

    passed: bool
    output: str


class Workspace:
    """A copy of the project in a temporary folder, which goes when the demo ends."""

    def __init__(self) -> None:
        self._home = tempfile.TemporaryDirectory(
            prefix="tallystick-demo-", ignore_cleanup_errors=True
        )
        self.root = Path(self._home.name) / "project"
        shutil.copytree(
            PROJECT, self.root, ignore=shutil.ignore_patterns("__pycache__", ".pytest_cache")
        )

    def close(self) -> None:
        """Remove the copy."""
        self._home.cleanup()

    def files(self) -> list[str]:
        """Return the paths of the project's files, sorted."""
        paths = (
            path.relative_to(self.root).as_posix()
            for path in self.root.rglob("*")
            if path.is_file()
        )
        return sorted(
            name for name in paths if "__pycache__" not in name and not name.endswith("conftest.py")
        )

    def read(self, path: str) -> str:
        """Return the text of a file of the project. Raises ValueError for one outside it."""
        file = (self.root / path).resolve()
        if not file.is_relative_to(self.root.resolve()) or not file.is_file():
            raise ValueError(f"{path} is not a file of this project")
        return file.read_text()

    def apply(self, patch: str) -> str:
        """Apply a unified diff; tests are not to be touched. Return the output of git, empty when
        all is well.
        """
        touched = [line[6:] for line in patch.splitlines() if line.startswith(("--- a/", "+++ b/"))]
        if any(path.startswith("tests/") for path in touched):
            return "refused: this patch edits tests"
        process = subprocess.run(
            ["git", "apply", "--whitespace=nowarn", "-"],
            cwd=self.root,
            input=patch,
            text=True,
            capture_output=True,
            env=_clean_environment(),
            timeout=60,
            check=False,
        )
        return (process.stdout + process.stderr).strip()

    def run_tests(self) -> TestRun:
        """Run the project's tests in a process of their own."""
        process = subprocess.run(
            [
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "--no-header",
                "--tb=line",
                "-p",
                "no:cacheprovider",
                "--color=no",
            ],
            cwd=self.root,
            text=True,
            capture_output=True,
            env=_clean_environment(),
            timeout=120,
            check=False,
        )
        return TestRun(process.returncode == 0, (process.stdout + process.stderr).strip())


def _clean_environment() -> dict[str, str]:
    """Return the environment without variables that would change git, or what pytest prints: on a
    build machine it shortens nothing, and the same failure would need more tokens there.
    """
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("GIT_", "PYTEST_"))
        and name not in ("BUILD_NUMBER", "CI", "COLUMNS", "FORCE_COLOR")
    }
    return {**environment, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONDONTWRITEBYTECODE": "1"}
