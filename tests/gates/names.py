"""The names of the gates: each is needed to ship."""

GATES = (
    "memory-trust",
    "everyday",
    "recall",
    "synthesis",
    "ingest",
    "pipeline",
    "steward",
    "bench",
    "agents",
)
