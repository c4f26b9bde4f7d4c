"""What a newcomer does: install the wheel, remember something, recall it, record a step, and check
its receipt. `make newcomer` runs it in an environment of its own; it says how long each part took.

With `--here` it uses the Python that runs it, where the wheel is installed already.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FIRST_RECEIPT = """
from tallystick import Tally

with Tally.open(".tally") as tally:
    me = tally.bind()
    me.remember("We indent with four spaces.", kind="preference")
    [hit, *_] = me.recall("how do we indent?")
    with me.run("newcomer") as run, run.step("model_call") as step:
        step.record("request", {"prompt": hit.content})
        step.record("response", {"text": "Four spaces."})
    foil = run.end()
    checked = me.recordings.verify(run.id, foil=foil)
    assert checked.ok, checked
    print(me.recordings.receipt(step.id).digest)
"""


def install(folder: Path, *requirements: str) -> Path:
    """Make an environment with the requirements; return its Python."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = folder / "bin" / "python"
    # uv does what pip does in a tenth of the time; the Makefile says where it is.
    uv = shutil.which(os.environ.get("UV", "uv"))
    command = [uv, "pip", "install", "--python", str(python)] if uv else None
    subprocess.run(
        [*(command or [str(python), "-m", "pip", "install"]), "-q", *requirements], check=True
    )
    return python


def first_receipt(python: Path) -> str:
    """Return the digest of the first receipt, made in an empty folder, offline and without the
    source.
    """
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [str(python), "-I", "-W", "error", "-c", FIRST_RECEIPT],
            cwd=folder,
            env={**os.environ, "HF_HUB_OFFLINE": "1"},
            text=True,
            capture_output=True,
            check=False,
        )
    if done.returncode:
        raise SystemExit(f"There is no receipt:\n{done.stderr}")
    return done.stdout.strip()


def main() -> None:
    """Install and make the first receipt, and print how long both took."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("wheel", nargs="?", help="the wheel, with extras if you like: x.whl[all]")
    parser.add_argument("--here", action="store_true", help="use the Python that runs this")
    chosen = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        if chosen.here:
            python = Path(sys.executable)
        else:
            python = install(Path(folder) / "env", chosen.wheel)
        installed = time.monotonic()
        receipt = first_receipt(python)
    took = "" if chosen.here else f"pip install took {installed - began:.0f} s, "
    print(f"{took}the first receipt {time.monotonic() - installed:.1f} s: {receipt}")


if __name__ == "__main__":
    main()
