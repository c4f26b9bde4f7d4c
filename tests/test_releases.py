"""What would be published is what it says: metadata, licences, the same bytes each time, thin
distributions that hold no code, and a first receipt for somebody who has the wheel alone.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
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
from tests.release.newest import PYTHON, admitted, pinned
from tests.release.seal import (
    NOTES,
    PUBLIC_KEY,
    SIGNATURE,
    TEST_KEY,
    notes,
    seal,
    standing,
)
from tests.release.seal import (
    problems as problems_of_seal,
)

import tallystick
from tallystick.recorder.ledger import appending
from tallystick.recorder.signing import new_key
from tallystick_cli.evidence_files import DECISION, GATE, evidence_digest

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
    first = re.search(r"^## (\S+)", changelog, re.MULTILINE)
    assert first is not None
    assert first[1] == project()["version"] == tallystick.__version__


@in_checkout
def test_the_tested_runtimes_are_those_that_an_installation_admits() -> None:
    windows = {
        name: requirement.specifier
        for requirements in admitted().values()
        for name, requirement in requirements.items()
    } | {PYTHON: SpecifierSet(project()["requires-python"])}
    oldest, newest = pinned(ROOT / "tests/oldest.txt"), pinned(ROOT / "tests/newest.txt")
    assert oldest.keys() <= newest.keys() <= windows.keys()
    for version_of in (oldest, newest):
        for name, version in version_of.items():
            assert windows[name].contains(version), (name, version)


@in_checkout
def test_each_extra_has_its_window_in_the_table_of_the_page() -> None:
    page = (ROOT / "docs" / "releases.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w.-]+)` \| (`[^|]+`) \|", page, re.MULTILINE)
    assert {(name, extra) for name, extras in rows for extra in extras.split(", ")} >= {
        (name, f"`{extra}`") for extra, requirements in admitted().items() for name in requirements
    }


@pytest.fixture
def released(tmp_path: Path) -> Path:
    """A folder with a wheel and notes, sealed with a key of which `kept.pub` was kept elsewhere."""
    folder, key = tmp_path / "dist", new_key()
    folder.mkdir()
    with zipfile.ZipFile(folder / "tallystick-0.1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tallystick/__init__.py", "")
    (folder / NOTES).write_text("Verdict: hold")
    seal(folder, key.private_key)
    (tmp_path / "kept.pub").write_bytes(key.public_key)
    return folder


def _edit_wheel(folder: Path) -> None:
    [wheel] = folder.glob("*.whl")
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("tallystick/more.py", "")


def _edit_wheel_and_sums(folder: Path) -> None:
    signature = (folder / SIGNATURE).read_bytes()
    _edit_wheel(folder)
    seal(folder, new_key().private_key)
    (folder / SIGNATURE).write_bytes(signature)


def _seal_anew(folder: Path) -> None:
    _edit_wheel(folder)
    seal(folder, new_key().private_key)


@pytest.mark.parametrize(
    ("edit", "found"),
    [
        (lambda folder: None, []),
        (_edit_wheel, ["tallystick-0.1.0-py3-none-any.whl was changed"]),
        (_edit_wheel_and_sums, ["SHA256SUMS was not signed with this key, or was changed"]),
        (_seal_anew, ["SHA256SUMS was not signed with this key, or was changed"]),
        (lambda folder: (folder / NOTES).unlink(), ["RELEASE-NOTES.md is missing"]),
        (lambda folder: (folder / "x.whl").touch(), ["x.whl is not in SHA256SUMS"]),
    ],
)
def test_what_was_edited_after_it_was_signed_is_found(
    released: Path, tmp_path: Path, edit: Callable[[Path], object], found: list[str]
) -> None:
    edit(released)
    assert list(problems_of_seal(released, (tmp_path / "kept.pub").read_bytes())) == found


@in_checkout
@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no OpenSSL here")
@pytest.mark.parametrize(
    ("edit", "holds"),
    [
        (lambda folder: None, True),
        (_edit_wheel, False),
        (_edit_wheel_and_sums, False),
        (_seal_anew, False),
    ],
)
def test_the_documented_commands_find_an_edited_wheel(
    released: Path, tmp_path: Path, edit: Callable[[Path], object], holds: bool
) -> None:
    page = (ROOT / "docs" / "releases.md").read_text(encoding="utf-8")
    commands = re.findall(r"^\$ ((?:openssl|sha256sum) .*)$", page, re.MULTILINE)
    assert len(commands) == 2
    edit(released)
    shutil.copy(tmp_path / "kept.pub", released / PUBLIC_KEY)
    codes = [
        subprocess.run(command.split(), cwd=released, capture_output=True, check=False).returncode
        for command in commands
    ]
    assert (codes == [0, 0]) is holds


def test_only_receipts_of_this_commit_and_a_key_of_ones_own_let_a_release_ship(
    tmp_path: Path,
) -> None:
    path = tmp_path / "ledger.jsonl"
    for name in ("recall", "steward"):
        (tmp_path / f"{name}.json").write_bytes(b"{}")
    passed = {"evidence": evidence_digest(b"{}"), "commit": "c1", "dirty": False, "verdict": "pass"}

    def stands(*, commit: str = "c1", is_clean: bool = True, is_signed: bool = True) -> list[str]:
        gates = ("recall", "steward")
        at = standing(path, gates, commit=commit, is_clean=is_clean, is_signed=is_signed)
        text = notes("0.1.0", commit, at, "- A change.")
        assert f"Verdict: **{at.verdict}**" in text
        assert all(each in text for each in at.missing)
        assert at.head is None or at.head in text
        assert (at.verdict == "ship") is (not at.missing)
        return list(at.missing)

    def ran(gate: str, **details: Any) -> None:
        with appending(path) as ledger:
            ledger.append(GATE, by="local", subject_id=gate, details={**passed, **details})

    assert stands() == ["no gate was run: `make gates` writes the ledger"]
    ran("recall")
    with appending(path) as ledger:
        ledger.append(DECISION, by="local", details={"verdict": "ship", "commit": "c1"})
    assert stands() == ["steward: has not run"]  # whatever somebody wrote was decided
    ran("steward", verdict="drift")
    assert stands() == ["steward: drift"]
    ran("steward")
    assert stands() == []
    assert stands(commit="c2") == [
        f"{name}: ran on another commit" for name in ("recall", "steward")
    ]
    assert stands(is_clean=False) == ["the source has changes that are not committed"]
    assert stands(is_signed=False) == [TEST_KEY]
    ran("recall", dirty=True)
    assert stands() == ["recall: ran with files that are not committed"]
    path.write_bytes(path.read_bytes().replace(b"drift", b"pass "))
    assert any(problem.startswith("the ledger was changed: ") for problem in stands())


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
