"""What every example has in common: its options, its receipts, and the command that runs all."""

from __future__ import annotations

import argparse
import importlib
import io
import sys
import tempfile
import time
from contextlib import redirect_stdout
from pathlib import Path

from tallystick import Actor, Tally

EXAMPLES = (
    "openai_context_demo",
    "coding_agent",
    "anthropic_coding_agent",
    "langgraph_wrapper",
    "deep_agent",
    "research_agent",
    "refund_desk",
    "claude_sessions",
    "mcp_ingest",
    "support_service",
    "overview",
)
"""The examples, in the order in which they are best read."""

APART = ("harbour_desk",)
"""Examples whose runtime has an environment of its own: `make test-adk` runs them."""

OPERATOR = Actor(user="local", role="operator")
"""The owner of the tallies of the examples: who looks at the receipts of everybody."""


def example_options(description: str | None) -> argparse.ArgumentParser:
    """Return a parser of the options that every example has."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--tally", default=":memory:", help="a folder to keep the tally in (by default none)"
    )
    return parser


def check_receipts(tally: Tally) -> str:
    """Verify every run that a tally has recorded, and return the outcome in a sentence.

    Raises SystemExit where a receipt does not match what is stored, or nothing was recorded.
    """
    operator = tally.bind(OPERATOR)
    runs = operator.recordings.runs_of(tally.scopes(), limit=1_000)
    verified = [operator.recordings.verify(run.id) for run in runs]
    problems = [problem for each in verified for problem in each.problems]
    if problems or not verified:
        raise SystemExit(f"The receipts do not verify: {problems or 'nothing was recorded'}")
    return f"receipts that verify: {sum(each.receipts for each in verified)}, runs: {len(runs)}"


def main() -> None:
    """Run every example offline on a tally of its own, then verify what each has recorded."""
    names = sys.argv[1:] or EXAMPLES
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        for name in names:
            began, folder = time.monotonic(), str(Path(home) / name)
            module = importlib.import_module(f"examples.{name}.__main__")
            with redirect_stdout(io.StringIO()):
                module.main(["--tally", folder])
            with Tally.open(folder, create=False, background=False) as tally:
                receipts = check_receipts(tally)
            print(f"{name:24} {time.monotonic() - began:4.1f} s  {receipts}", flush=True)


if __name__ == "__main__":
    main()
