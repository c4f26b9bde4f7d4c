"""Run packages that others build on the runtimes with our pieces: `make test-peers`.

Each script of `packages/` follows the package's own example, with a scripted model, on the newest
releases and in an environment of its own. It prints the sentences that hold. With `--write` these
become `works_with.json` and `docs/works-with.md`; else they are compared with the former.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
ENVIRONMENTS = ROOT / ".venv" / "packages"
STORED = HERE / "works_with.json"
PAGE = ROOT / "docs" / "works-with.md"

_HEAD = """\
# Works with

Packages that others build on the runtimes, with our pieces in them.
`make test-peers` runs a script for each, in an environment of its own, on the newest releases.
The script follows the package's own example with a scripted model, and checks each sentence below.
This page is made from these scripts.

| package | release | our pieces |
| --- | --- | --- |
"""


@dataclass(frozen=True)
class Package:
    """A package and its script."""

    name: str
    """Name of the script in `packages/`."""
    title: str
    requires: tuple[str, ...]
    """What is installed beside our package; the first is the one that is tried."""
    extras: str
    pieces: str

    @property
    def distribution(self) -> str:
        """The name of the package itself, without bounds."""
        return re.split(r"[\[<>=]", self.requires[0])[0]

    @property
    def python(self) -> Path:
        """The Python of its environment."""
        return ENVIRONMENTS / self.name / "bin" / "python"

    def recipe(self) -> str:
        """Return the part of the script that an application would have, with its imports."""
        script = (HERE / "packages" / f"{self.name}.py").read_text(encoding="utf-8")
        part = script.partition("# recipe\n")[2].partition("# end\n")[0]
        code = textwrap.dedent(part.rpartition("\n")[0]).strip()
        used = {node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)}
        groups: dict[bool, list[str]] = {False: [], True: []}
        for node in ast.parse(script).body:
            names = node.names if isinstance(node, ast.ImportFrom) else []
            needed = [each.name for each in names if each.name in used and each.name != "Any"]
            if isinstance(node, ast.ImportFrom) and needed:
                line = f"from {node.module} import {', '.join(needed)}"
                groups[str(node.module).startswith("tallystick")].append(line)
        parts = ["\n".join(lines) for lines in groups.values() if lines]
        return "\n\n".join([*parts, code])


def packages() -> list[Package]:
    """Return the packages, in the order of the page."""
    content: dict[str, Any] = tomllib.loads((HERE / "packages.toml").read_text(encoding="utf-8"))
    return [Package(**{**each, "requires": tuple(each["requires"])}) for each in content["package"]]


def page_of(stored: dict[str, Any]) -> str:
    """Return the page for what was seen of each package."""
    rows = [
        f"| [{each.title}](#{_anchor(each.title)}) "
        f"| {each.distribution} {stored[each.name]['version']} | {each.pieces} |"
        for each in packages()
    ]
    parts = [_HEAD + "\n".join(rows)]
    for each in packages():
        promises = "\n".join(f"- {sentence}" for sentence in stored[each.name]["holds"])
        reason = f"<!-- no-run: needs the package {each.distribution} -->"
        parts.append(
            f"## {each.title}\n\n{promises}\n\n{reason}\n\n```python\n{each.recipe()}\n```"
        )
    return "\n\n".join(parts) + "\n"


def _anchor(title: str) -> str:
    return re.sub(r"[^a-z0-9_-]", "", title.lower().replace(" ", "-"))


def make_environment(package: Package) -> None:
    """Make the environment of a package anew, with the newest releases."""
    folder = ENVIRONMENTS / package.name
    shutil.rmtree(folder, ignore_errors=True)
    uv = os.environ.get("UV") or shutil.which("uv") or str(ROOT / ".venv" / "bin" / "uv")
    wanted = ["-e", f"{ROOT}[{package.extras}]", *package.requires]
    if Path(uv).exists():
        subprocess.run([uv, "venv", "-q", "--python", sys.executable, str(folder)], check=True)
        command = [uv, "pip", "install", "-q", "--python", str(package.python)]
    else:
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        command = [str(package.python), "-m", "pip", "install", "-q"]
    subprocess.run([*command, *wanted], check=True)


def seen_of(package: Package) -> dict[str, Any]:
    """Run the script of a package; return its release and the sentences that hold.

    Raises SystemExit for a script that fails.
    """
    version = f"from importlib.metadata import version; print(version({package.distribution!r}))"
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "LANGSMITH_TRACING": "false",
        # For a server of ours that a client of another package starts.
        "SERVER_PYTHON": sys.executable,
    }
    run = [str(package.python), "-m", f"tests.peers.packages.{package.name}"]
    result = subprocess.run(
        run, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    if result.returncode:
        raise SystemExit(f"{package.title} does not work with us.\n{result.stderr}")
    release = subprocess.run(
        [str(package.python), "-c", version], capture_output=True, text=True, check=True
    )
    return {"version": release.stdout.strip(), "holds": result.stdout.splitlines()}


def main() -> int:
    """Run the scripts; return 1 if the page says something else."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", help="names of packages; all by default")
    parser.add_argument("--keep", action="store_true", help="use the environments that there are")
    parser.add_argument("--write", action="store_true", help="write what holds, and the page")
    arguments = parser.parse_args()
    stored: dict[str, Any] = json.loads(STORED.read_text(encoding="utf-8"))
    is_well = True
    for package in packages():
        if arguments.only and package.name not in arguments.only:
            continue
        if not (arguments.keep and package.python.exists()):
            make_environment(package)
        seen, before = seen_of(package), stored.get(package.name, {})
        is_well = is_well and seen["holds"] == before.get("holds")
        print(f"{package.title} {seen['version']}: {len(seen['holds'])} promises hold", flush=True)
        stored[package.name] = seen
    if arguments.write:
        STORED.write_text(json.dumps(stored, indent=2) + "\n", encoding="utf-8")
        PAGE.write_text(page_of(stored), encoding="utf-8")
        # Code is indented in a script, and breaks its lines elsewhere on the page.
        subprocess.run(
            [str(Path(sys.executable).parent / "ruff"), "format", "-q", PAGE], check=True
        )
    elif not is_well:
        print("What holds is not what docs/works-with.md says: write it with --write.")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
