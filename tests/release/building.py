"""Distributions: the wheel and sdist of Tallystick, and the thin ones under names that people look
for; what is in them, and whether two builds are the same.
"""

from __future__ import annotations

import email
import email.message
import hashlib
import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
HERE = Path(__file__).parent
_TEXTS = (".py", ".sql", ".html", ".css", ".typed", ".txt")


@dataclass(frozen=True)
class Thin:
    """A distribution that brings Tallystick with one extra."""

    name: str
    extra: str
    module: str
    pieces: tuple[str, ...]
    summary: str


def project() -> dict[str, Any]:
    """Return the `project` table of pyproject.toml."""
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return table


def thin_distributions() -> list[Thin]:
    """Return the thin distributions, in their order."""
    entries = tomllib.loads((HERE / "thin.toml").read_text())["thin"]
    return [Thin(**entry | {"pieces": tuple(entry["pieces"])}) for entry in entries]


def write_thin(thin: Thin, folder: Path) -> None:
    """Write the source of a thin distribution into a folder."""
    own = project()
    pieces = ", ".join(thin.pieces)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "LICENSE").write_bytes((ROOT / "LICENSE").read_bytes())
    (folder / "README.md").write_text(
        f"# {thin.name}\n\n{thin.summary}\n\n"
        f"This installs `tallystick[{thin.extra}]` and has no code of its own:\n\n"
        f"```python\nfrom {thin.module} import {pieces}\n```\n"
    )
    (folder / "pyproject.toml").write_text(
        "[build-system]\n"
        'requires = ["hatchling>=1.27"]\n'
        'build-backend = "hatchling.build"\n\n'
        "[project]\n"
        f'name = "{thin.name}"\n'
        f'version = "{own["version"]}"\n'
        f'description = "{thin.summary}"\n'
        'readme = "README.md"\n'
        f'requires-python = "{own["requires-python"]}"\n'
        'license = "MIT"\n'
        'license-files = ["LICENSE"]\n'
        f'dependencies = ["tallystick[{thin.extra}]=={own["version"]}"]\n\n'
        "[tool.hatch.build.targets.wheel]\n"
        "bypass-selection = true\n"
    )


def build(source: Path, folder: Path, *, epoch: int, kinds: str = "sdist wheel") -> list[Path]:
    """Build a source's distributions into a folder, dated by `epoch`; return them by name."""
    targets = [f"--{kind}" for kind in kinds.split()]
    subprocess.run(
        [sys.executable, "-m", "build", "-q", "-n", *targets, "-o", str(folder), str(source)],
        env={**os.environ, "SOURCE_DATE_EPOCH": str(epoch)},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return sorted(folder.iterdir())


def digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file of a folder, by name."""
    return {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.iterdir())
        if file.suffix in (".whl", ".gz")
    }


def metadata_of(file: Path) -> email.message.Message:
    """Return the metadata of a wheel or sdist."""
    if file.suffix == ".whl":
        with zipfile.ZipFile(file) as wheel:
            [name] = [each for each in wheel.namelist() if each.endswith(".dist-info/METADATA")]
            return email.message_from_bytes(wheel.read(name))
    with tarfile.open(file) as sdist:
        [member] = [
            each
            for each in sdist.getmembers()
            if each.name.endswith("/PKG-INFO") and each.name.count("/") == 1
        ]
        content = sdist.extractfile(member)
        assert content is not None
        return email.message_from_bytes(content.read())


def problems(wheel: Path) -> Iterator[str]:
    """Yield what is wrong with the wheel of Tallystick."""
    own, metadata = project(), metadata_of(wheel)
    vendored = _vendored()
    for field, wanted in (
        ("Name", own["name"]),
        ("Version", own["version"]),
        ("License-Expression", own["license"]),
        ("Requires-Python", ",".join(own["requires-python"].split(","))),
    ):
        if metadata[field] != wanted:
            yield f"{field} is {metadata[field]!r}, not {wanted!r}"
    licences = set(metadata.get_all("License-File", []))
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    named = vendored.keys() | {entry.get("text") for entry in vendored.values()}
    for name in sorted(names):
        if Path(name).suffix not in _TEXTS and name not in named:
            yield f"{name} is no source text, and tests/release/vendored.toml does not name it"
    for path, entry in vendored.items():
        if path not in names:
            yield f"{path} is in vendored.toml and not in the wheel"
        text = entry.get("text")
        if entry["licence"] not in own["license"]:
            yield f"the licence of {path}, {entry['licence']}, is not in the licence expression"
        if entry["origin"].startswith("ours"):
            continue
        if text is None or text not in names or f"integrations/{text}" not in licences:
            yield f"the licence of {path} does not go along"
    for package in sorted({name.partition("/")[0] for name in names}):
        if f"{package}/py.typed" not in names:
            yield f"{package} has no py.typed"
    for name in sorted(names):
        if name.startswith(("tests", "docs", "examples")):
            yield f"{name} does not belong into the wheel"


def _vendored() -> Mapping[str, Mapping[str, str]]:
    entries = tomllib.loads((HERE / "vendored.toml").read_text())["file"]
    return {entry["path"]: entry for entry in entries}
