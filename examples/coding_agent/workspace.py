"""A local git repository that an agent works in: real files, a real patch, a real pytest."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SAMPLE = Path(__file__).parent / "project"
_GENERATED = ("__pycache__", ".pytest_cache", "conftest.py")
_MOST = 100_000
"""Bytes of a file that is read: what is longer was hardly written by hand."""


@dataclass(frozen=True)
class TestRun:
    """The result of pytest."""

    __test__ = False

    passed: bool
    output: str

    @property
    def summary(self) -> str:
        """The last line of the output."""
        return self.output.splitlines()[-1] if self.output else "no output"


class Workspace:
    """A git repository: read, patch, test, and run commands in it."""

    def __init__(self, root: Path) -> None:
        """Raises ValueError for a folder that is no git repository."""
        self.root = root.resolve()
        if not (self.root / ".git").exists():
            raise ValueError(f"{root} is no git repository. Make it one: git init")

    @property
    def commit(self) -> str:
        """The commit that is checked out, abbreviated."""
        return self._git("rev-parse", "--short", "HEAD").stdout.strip()

    def files(self) -> list[str]:
        """Return the paths of the tracked text files, sorted."""
        tracked = self._git("ls-files", "--cached").stdout.splitlines()
        return sorted(path for path in tracked if self._is_readable(path))

    def read(self, path: str) -> str:
        """Return the text of a file of the project. Raises ValueError for one outside it."""
        file = (self.root / path).resolve()
        if not file.is_relative_to(self.root) or not file.is_file():
            raise ValueError(f"{path} is not a file of this project")
        return file.read_text(encoding="utf-8")

    def diff(self) -> str:
        """Return what has changed since the commit, as a unified diff; empty for nothing."""
        return self._git("diff").stdout

    def apply(self, patch: str) -> str:
        """Apply a unified diff; tests are not to be touched. Return the problem, empty for none."""
        touched = [line[6:] for line in patch.splitlines() if line.startswith(("--- a/", "+++ b/"))]
        if any(path.startswith("tests/") for path in touched):
            return "refused: this patch edits tests"
        done = self._git("apply", "--whitespace=nowarn", "-", stdin=patch)
        return (done.stdout + done.stderr).strip()

    def run(self, command: str) -> str:
        """Run a command, without a shell, and return what it prints on one line."""
        done = self._run(shlex.split(command))
        return " ".join((done.stdout + done.stderr).split()) or "done"

    def run_tests(self) -> TestRun:
        """Run the project's tests in a process of their own."""
        options = ("-q", "--no-header", "--tb=short", "--assert=plain", "--color=no")
        done = self._run([sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options])
        # The time that it took would make each output, and so each context, a little different.
        output = re.sub(r" in \d+\.\d+s", "", done.stdout + done.stderr)
        return TestRun(done.returncode == 0, output.strip())

    def summary(self) -> str:
        """Return a summary of the repository: its commit, its folders and its files."""
        lines = [f"{self.root.name} at {self.commit}"]
        for path in self.files():
            lines.append(f"{path}: {len(self.read(path).splitlines())} lines")
        return "\n".join(lines)

    def _is_readable(self, path: str) -> bool:
        file = self.root / path
        if any(part in _GENERATED for part in file.parts) or not file.is_file():
            return False
        return file.stat().st_size <= _MOST and b"\0" not in file.read_bytes()

    def _git(self, *arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        return self._run(["git", *arguments], stdin=stdin)

    def _run(
        self, command: Sequence[str], *, stdin: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=self.root,
            input=stdin,
            text=True,
            capture_output=True,
            env=_clean_environment(),
            timeout=120,
            check=False,
        )


@contextmanager
def sample_workspace() -> Iterator[Workspace]:
    """Yield a copy of the sample project as a repository in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="tallystick-", ignore_cleanup_errors=True) as home:
        root = Path(home) / "project"
        shutil.copytree(SAMPLE, root, ignore=shutil.ignore_patterns(*_GENERATED[:2]))
        # Whatever the settings of this machine say of authors and signatures.
        settings = ("user.name=Sample", "user.email=sample@example.org", "commit.gpgsign=false")
        options = [part for setting in settings for part in ("-c", setting)]
        for command in (
            ("init", "-q", "-b", "main"),
            ("add", "."),
            (*options, "commit", "-q", "-m", "A small ledger"),
        ):
            subprocess.run(["git", *command], cwd=root, env=_clean_environment(), check=True)
        yield Workspace(root)


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
    dates = {"GIT_AUTHOR_DATE": "2026-01-01T00:00Z", "GIT_COMMITTER_DATE": "2026-01-01T00:00Z"}
    ours = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    return {**environment, **dates, **ours}
