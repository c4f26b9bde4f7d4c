"""Write `tests/newest.txt`: the runtimes that the tests of this environment ran with.

Run it after `make` was green: `.venv/bin/python -m tests.release.newest`.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

HEAD = (
    "# The newest runtimes that the tests ran with; `python -m tests.release.newest` writes it.\n"
)


def pinned(file: Path) -> dict[str, str]:
    """Return the versions of a file of pins, by name."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


def main() -> None:
    """Write the versions of this environment, for the names whose oldest is tested."""
    folder = Path(__file__).parent.parent
    names = sorted({*pinned(folder / "oldest.txt"), "langchain"})
    lines = [f"{name}=={version(name)}\n" for name in names]
    (folder / "newest.txt").write_text(HEAD + "".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
