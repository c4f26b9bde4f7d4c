"""Write `tests/newest.txt`: what the tests of this environment ran with, of Python and of what the
extras bring.

Run it after `make` was green: `.venv/bin/python -m tests.release.newest`.
"""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version
from tests.release.building import project

HEAD = "# The newest that the tests ran with; `python -m tests.release.newest` writes it.\n"
PYTHON = "python"
_ROOT = Path(__file__).parents[2]


def pinned(file: Path) -> dict[str, str]:
    """Return the versions of a file of pins, by name."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


def admitted() -> dict[str, dict[str, Requirement]]:
    """Return what each extra brings, by name; extras of extras are those themselves."""
    own = project()
    return {
        extra: {
            requirement.name: requirement
            for requirement in map(Requirement, lines)
            if requirement.name != own["name"]
        }
        for extra, lines in own["optional-dependencies"].items()
    }


def _installed(name: str) -> str | None:
    """Return the version of a package here, or in an environment of its own such as `adk`."""
    try:
        return version(name)
    except PackageNotFoundError:
        elsewhere = [str(path) for path in sorted(_ROOT.glob(".venv/*/lib/python*/site-packages"))]
        found = [each.version for each in distributions(name=name, path=elsewhere)]
        return max(found, key=Version, default=None)


def main() -> None:
    """Write the versions of the environments, of what is installed there."""
    lines = [f"{PYTHON}=={platform.python_version()}\n"]
    for name in sorted({name for extra in admitted().values() for name in extra}):
        if (found := _installed(name)) is not None:
            lines.append(f"{name}=={found}\n")
    newest = _ROOT / "tests" / "newest.txt"
    newest.write_text(HEAD + "".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
