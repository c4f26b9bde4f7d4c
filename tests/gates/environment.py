"""Where a gate measures: everything beside the product that moves a figure, without a name or a
path of the machine.
"""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from pathlib import Path

from tests.gates.catalogue import Gate, Sizes

from tallystick.embedding import StaticEmbedder
from tallystick.ports import Embedder
from tallystick.ranking import RecallWeights
from tallystick.records.canonical import digest
from tallystick.settings import Settings
from tallystick.testing import HashEmbedder
from tallystick.tokens import counter_for
from tallystick_cli.evidence_files import Environment, Machine

ROOT = Path(__file__).parents[2]
_CPU = Path("/proc/cpuinfo")
_WIDEST = ("avx512f", "avx2", "asimd")
"""Instructions by which floating point sums differ, the widest first."""


def environment_of(gate: Gate, sizes: Sizes) -> Environment:
    """Return the environment of a gate that is about to run. Raises FileNotFoundError for a set of
    the project that is not there.
    """
    embedder: Embedder = StaticEmbedder() if gate.embedder == "static" else HashEmbedder()
    settings = Settings()
    return Environment(
        machine=machine() if gate.has_times else None,
        embedder=embedder.fingerprint,
        dimension=embedder.dimension,
        weights=embedder.fingerprint.split(":")[1],
        tokenizer=counter_for(None, cache_dir=ROOT / "build").method,
        model=gate.model(),
        index={
            "vector_search": settings.vector_search,
            "large_scope": settings.large_scope,
            "recall_weights": digest("recall-weights", _in_words(RecallWeights())),
        },
        corpora={_name(path): file_digest(path) for path in gate.corpora},
        seeds=dict(gate.seeds),
        sizes=dict(sizes),
    )


def _in_words(weights: RecallWeights) -> dict[str, str]:
    return {name: repr(value) for name, value in vars(weights).items()}


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def file_digest(path: Path) -> str:
    """Return the digest of a file, as `sha256sum` says it."""
    return f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


def machine() -> Machine:
    """Return the class of this machine."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    flags = set(_CPU.read_text().split()) if _CPU.is_file() else set()
    widest = next((each for each in _WIDEST if each in flags), "")
    return Machine(
        cores=cores,
        processor=f"{platform.machine()} {widest}".strip(),
        system=platform.system(),
        python=".".join(platform.python_version_tuple()[:2]),
    )


def commit() -> tuple[str, bool]:
    """Return the commit, and whether files differ from it; "unknown" outside of a repository."""
    try:
        head = _git("rev-parse", "HEAD")
        return head, bool(_git("status", "--porcelain"))
    except (OSError, subprocess.CalledProcessError):
        return "unknown", True


def _git(*command: str) -> str:
    done = subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()
