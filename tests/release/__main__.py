"""Build and check a release: `make release`. Nothing is published.

It builds the wheel and the sdist twice and compares them byte for byte, builds the thin
distributions, checks metadata and licences, and writes a list of what an installation holds
(CycloneDX), notes with the head of the ledger, and a signature. Everything is in `dist/`.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.gates.names import GATES
from tests.release.building import (
    ROOT,
    build,
    digests,
    problems,
    project,
    thin_distributions,
    write_thin,
)
from tests.release.newcomer import first_receipt, install

DIST = ROOT / "dist"
LEDGER = ROOT / "build" / "evidence" / "ledger.jsonl"


def main() -> int:
    """Build, check, and return 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--extras", action="store_true", help="install each extra by itself too")
    parser.add_argument("--key", help="the private key to sign with, from `tally keygen`")
    chosen = parser.parse_args()
    epoch = int(_output("git", "log", "-1", "--format=%ct"))
    shutil.rmtree(DIST, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        build(ROOT, DIST, epoch=epoch)
        build(ROOT, scratch / "again", epoch=epoch)
        for thin in thin_distributions():
            write_thin(thin, scratch / thin.name)
            build(scratch / thin.name, DIST, epoch=epoch)
            build(scratch / thin.name, scratch / "again", epoch=epoch)
        wrong = [] if digests(DIST) == digests(scratch / "again") else ["two builds differ"]
        [wheel] = DIST.glob("tallystick-*.whl")
        wrong += problems(wheel)
        files = sorted(str(file) for file in DIST.iterdir())
        subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *files], check=True)
        python = install(scratch / "all", f"{wheel}[all]")
        first_receipt(python)
        _write_sbom(python, epoch)
        if chosen.extras:
            wrong += _with_each_extra(wheel, scratch)
        _seal(python, chosen.key)
    for each in wrong:
        print(f"✗ {each}")
    print(f"{len(files)} distributions, an SBOM, notes and a signature are in {DIST}")
    print(f"{len(wrong)} problems")
    return 1 if wrong else 0


def _write_sbom(python: Path, epoch: int) -> None:
    target = DIST / f"tallystick-{project()['version']}.cdx.json"
    subprocess.run(
        [
            *(sys.executable, "-m", "cyclonedx_py", "environment"),
            *("--pyproject", str(ROOT / "pyproject.toml"), "--output-reproducible"),
            *("--output-format", "JSON", "-o", str(target), str(python)),
        ],
        env={"SOURCE_DATE_EPOCH": str(epoch), "PATH": "/usr/bin:/bin"},
        check=True,
    )


def _seal(python: Path, key: str | None) -> None:
    """Write the notes and sign, with what is released."""
    changed = ["--changed"] if _output("git", "status", "--porcelain") else []
    subprocess.run(
        [
            *(str(python), "-I", str(ROOT / "tests" / "release" / "seal.py"), str(DIST)),
            *("--version", project()["version"], "--commit", _output("git", "rev-parse", "HEAD")),
            *("--ledger", str(LEDGER), "--changelog", str(ROOT / "CHANGELOG.md"), *changed),
            *("--gates", *GATES),
            *(() if key is None else ("--key", str(Path(key).absolute()))),
        ],
        check=True,
    )


def _with_each_extra(wheel: Path, scratch: Path) -> list[str]:
    """Install each extra, and each thin distribution, in an environment of its own."""
    wrong = []
    requirements = {extra: f"{wheel}[{extra}]" for extra in project()["optional-dependencies"]}
    requirements |= {thin.name: thin.name for thin in thin_distributions()}
    modules = {thin.name: thin.module for thin in thin_distributions()}
    for name, requirement in requirements.items():
        module = modules.get(name, "tallystick")
        try:
            python = install(scratch / name, requirement, "--find-links", str(DIST))
            first_receipt(python)
            subprocess.run([str(python), "-I", "-c", f"import {module}"], check=True)
        except (subprocess.CalledProcessError, SystemExit) as error:
            wrong.append(f"{name} does not install: {error}")
        else:
            print(f"✓ {requirement.rpartition('/')[2]}", flush=True)
        shutil.rmtree(scratch / name, ignore_errors=True)
    return wrong


def _output(*command: str) -> str:
    done = subprocess.run(command, cwd=ROOT, text=True, capture_output=True, check=True)
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
