"""What a newcomer does: install the wheel with the extra of a runtime, paste the first lines of its
page,
and see in a second conversation what was said in a first one; then record a step and check its
receipt. `make newcomer` does so for each runtime, each in an environment of its own, and says how
long each part took.

With `--here` it uses the Python that runs it, where the wheel is installed, for the receipt.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

PAGE = Path(__file__).parent.parent.parent / "docs" / "runtimes.md"
RUNTIMES = {
    "LangGraph": "langgraph,langchain",
    "LangChain": "langgraph,langchain",
    "PydanticAI": "pydantic-ai",
    "LlamaIndex": "llama-index",
    "MCP": "mcp,cli",
    "Python": "",
}
"""The extras of each runtime, as README has them."""
OVER_MCP = """
import sys, anyio
from mcp import Client, StdioServerParameters

async def talk(tool, **arguments):
    line = ["-m", "tallystick_cli", "mcp", "--stdio", "--tally", ".tally"]
    async with Client(StdioServerParameters(command=sys.executable, args=line)) as client:
        answer = await client.call_tool(tool, arguments)
        return " ".join(part.text for part in answer.content)

anyio.run(lambda: talk("add", content="The gym opens at six."))
assert "The gym opens at six." in anyio.run(lambda: talk("search", query="When does the gym open?"))
"""
"""Two clients, one after the other, each with a server of its own."""
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


def run_alone(python: Path, script: str, *options: str) -> str:
    """Return what a script prints, run in an empty folder, offline and without the source."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [str(python), "-I", *options, "-c", script],
            cwd=folder,
            env={**os.environ, "HF_HUB_OFFLINE": "1"},
            text=True,
            capture_output=True,
            check=False,
        )
    if done.returncode:
        raise SystemExit(f"What a newcomer pastes fails:\n{done.stderr}")
    return done.stdout.strip()


def first_receipt(python: Path) -> str:
    """Return the digest of the first receipt."""
    return run_alone(python, FIRST_RECEIPT, "-W", "error")


def lines_of(runtime: str) -> tuple[str, str]:
    """Return the first lines of a runtime, as one script, and what the page says they print."""
    if runtime == "MCP":
        return OVER_MCP, ""
    text = PAGE.read_text(encoding="utf-8")
    fence = re.compile(r"^```python\n(.*?)^```$(?:\n+^```text\n(.*?)^```$)?", re.M | re.S)
    before, *sections = re.split(
        r"^\*\*(?=[A-Z])", text.partition("\n## The first lines")[2], flags=re.M
    )
    opening, stand_in = (code for code, _ in fence.findall(before))
    if runtime == "Python":
        memory = text.partition("\n### Memory\n")[2]
        code, printed = fence.findall(memory)[0]
        return f'{opening}\nada = tally.user("ada")\n{code}', printed
    [section] = [each for each in sections if each.startswith(runtime)]
    code, printed = fence.findall(section)[0]
    # PydanticAI's and LlamaIndex's own stand-ins need the function, and not the class.
    needs_class = runtime.startswith("Lang")
    helper = (
        stand_in if needs_class else stand_in[stand_in.index("def ") : stand_in.index("class ")]
    )
    model = "model = StandIn()\n" if needs_class else ""
    return f"{opening}\n{helper}\n{model}{code}", printed


def recall_in(python: Path, runtime: str) -> None:
    """Paste the lines of a runtime. Raises SystemExit where they print anything else than the page
    says.
    """
    script, printed = lines_of(runtime)
    said = run_alone(python, script)
    if said != printed.strip():
        raise SystemExit(f"{runtime}: the page says {printed.strip()!r}, and there came {said!r}")


def timed(act: Callable[[], object]) -> float:
    """Return how long something took, seconds."""
    began = time.monotonic()
    act()
    return time.monotonic() - began


def main() -> None:
    """Do what a newcomer does, in each runtime that is named, and print how long it took."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("wheel", nargs="?", help="the wheel")
    parser.add_argument("runtimes", nargs="*", metavar="|".join(RUNTIMES))
    parser.add_argument("--here", action="store_true", help="use the Python that runs this")
    chosen = parser.parse_args()
    if chosen.here:
        took = timed(lambda: print(f"The first receipt: {first_receipt(Path(sys.executable))}"))
        print(f"It took {took:.1f} s.")
        return
    print(f"{'runtime':12} {'install, s':>10} {'first memory recalled, s':>25} {'receipt, s':>11}")
    for runtime in chosen.runtimes or RUNTIMES:
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder) / "env"
            extras = f"[{RUNTIMES[runtime]}]" if RUNTIMES[runtime] else ""
            wheel = str(Path(chosen.wheel).absolute())
            installed = timed(lambda: install(place, wheel + extras))  # noqa: B023
            python = place / "bin" / "python"
            recalled = timed(lambda: recall_in(python, runtime))  # noqa: B023
            receipt = timed(lambda: first_receipt(python))  # noqa: B023
        print(f"{runtime:12} {installed:10.0f} {recalled:25.1f} {receipt:11.1f}", flush=True)


if __name__ == "__main__":
    main()
