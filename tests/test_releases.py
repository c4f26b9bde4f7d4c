"""What would be published is what it says: metadata, licences, the same bytes each time, thin
distributions that hold no code, and a first receipt for somebody who has the wheel alone.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from tests.release.building import (
    ROOT,
    build,
    digests,
    metadata_of,
    problems,
    project,
    thin_distributions,
    write_thin,
)
from tests.release.newcomer import RUNTIMES, first_receipt, lines_of
from tests.release.newest import pinned

import tallystick

EPOCH = 1_700_000_000

in_checkout = pytest.mark.skipif(
    not (ROOT / "core").is_dir(), reason="the source is out of reach here"
)


@in_checkout
def test_the_wheel_is_accounted_for_and_built_twice_has_the_same_bytes(tmp_path: Path) -> None:
    [wheel] = build(ROOT, tmp_path / "first", epoch=EPOCH, kinds="wheel")
    build(ROOT, tmp_path / "second", epoch=EPOCH, kinds="wheel")
    assert digests(tmp_path / "first") == digests(tmp_path / "second")
    assert list(problems(wheel)) == []
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("tallystick/helper.min.js", "")
        archive.writestr("tests/helper.py", "")
    assert [problem.partition(" ")[0] for problem in problems(wheel)] == [
        "tallystick/helper.min.js",
        "tests",
        "tests/helper.py",
    ]


def test_a_thin_distribution_brings_one_extra_and_no_code(tmp_path: Path) -> None:
    own = project()
    for thin in thin_distributions():
        spec = importlib.util.find_spec(thin.module)
        assert spec is not None
        assert spec.origin is not None
        source = Path(spec.origin).read_text(encoding="utf-8")
        assert all(f'"{piece}"' in source for piece in thin.pieces)
        assert thin.extra in own["optional-dependencies"]
        write_thin(thin, tmp_path / thin.name)
    thin = thin_distributions()[0]
    [wheel] = build(tmp_path / thin.name, tmp_path / "built", epoch=EPOCH, kinds="wheel")
    metadata = metadata_of(wheel)
    assert metadata.get_all("Requires-Dist") == [f"tallystick[{thin.extra}]=={own['version']}"]
    assert (metadata["Name"], metadata["License-Expression"]) == (thin.name, "MIT")
    with zipfile.ZipFile(wheel) as archive:
        assert all(".dist-info/" in name for name in archive.namelist())


@in_checkout
def test_the_changelog_begins_with_the_version_of_the_package() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    first = re.search(r"^## (\S+)(?: \(release candidate (\d+))?", changelog, re.MULTILINE)
    assert first is not None
    version = first[1] + (f"rc{first[2]}" if first[2] else "")
    assert version == project()["version"] == tallystick.__version__


@in_checkout
def test_the_tested_runtimes_are_those_that_an_installation_admits() -> None:
    extras = project()["optional-dependencies"].values()
    admitted = {
        requirement.name: requirement.specifier
        for requirement in (Requirement(line) for lines in extras for line in lines)
    }
    oldest, newest = pinned(ROOT / "tests/oldest.txt"), pinned(ROOT / "tests/newest.txt")
    assert oldest.keys() <= newest.keys() <= admitted.keys()
    for version_of in (oldest, newest):
        for name, version in version_of.items():
            assert admitted[name].contains(version), (name, version)


def test_what_a_newcomer_does_ends_in_a_receipt() -> None:
    assert first_receipt(Path(sys.executable)).startswith("sha256:")


@in_checkout
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_the_lines_of_readme_are_found_for_each_runtime(runtime: str) -> None:
    """`make newcomer` pastes them into an environment that has the wheel and nothing else."""
    script, printed = lines_of(runtime)

    compile(script, runtime, "exec")
    assert bool(printed) == (runtime != "MCP")


@in_checkout
def test_ci_times_the_way_from_the_wheel_to_the_first_receipt() -> None:
    steps = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "tests/release/newcomer.py --here" in steps
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    assert {"build", "hatchling"} <= {Requirement(line).name for line in groups["release"]}
