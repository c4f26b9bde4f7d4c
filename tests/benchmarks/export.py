"""Measure how long a run of 1,000 steps takes to leave as spans, beside reading its receipts alone.

make bench-export
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tallystick import Actor, Tally
from tallystick.testing import HashEmbedder
from tallystick_opentelemetry import export_run


def main() -> None:
    """Record, export and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1_000)
    steps = parser.parse_args().steps
    with (
        tempfile.TemporaryDirectory() as folder,
        Tally.open(Path(folder) / "tally", embedder=HashEmbedder()) as tally,
    ):
        bound = tally.bind(Actor(user="anna"))
        with bound.run("coder") as run:
            for number in range(steps):
                with run.step("model_call", name="m") as step:
                    said = {"messages": [{"role": "user", "content": f"Question {number}?"}]}
                    step.record("request", said, summary={"model": "m", "provider": "openai"})
                    usage = {"usage": {"input_tokens": 12, "output_tokens": 5}}
                    step.record("response", {"answer": "Yes."}, summary=usage)
        start = time.perf_counter()
        bound.recordings.receipts(run.id)
        read = time.perf_counter() - start
        print(f"read the receipts of {steps:,} steps: {read:.2f} s")
        for content in (False, True):
            provider, spans = TracerProvider(), InMemorySpanExporter()
            provider.add_span_processor(SimpleSpanProcessor(spans))
            start = time.perf_counter()
            count = export_run(bound, run.id, provider, content=content)
            took = time.perf_counter() - start
            print(f"export {count:,} spans{' with content' if content else ''}: {took:.2f} s")


if __name__ == "__main__":
    main()
