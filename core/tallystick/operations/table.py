"""The table of operations: every verb that a surface may offer, by name."""

from __future__ import annotations

from collections.abc import Mapping

from tallystick.operations import (
    approvals,
    jobs,
    memory,
    operate,
    reviews,
    runs,
    spaces,
    tokens,
)
from tallystick.operations.operation import Operation

OPERATIONS: Mapping[str, Operation] = {
    operation.name: operation
    for operation in (
        *memory.OPERATIONS,
        *reviews.OPERATIONS,
        *runs.OPERATIONS,
        *approvals.OPERATIONS,
        *spaces.OPERATIONS,
        *tokens.OPERATIONS,
        *jobs.OPERATIONS,
        *operate.OPERATIONS,
    )
}
"""The operations by name, in the order in which surfaces list them."""

NOT_OPERATIONS: Mapping[str, str] = {
    "activity": "entries of a journal, which the dashboard shows as a diary",
    "aio": "the same verbs, awaited",
    "call_model": "calls a model in this process, with objects of its SDK",
    "stream_model": "calls a model in this process, with objects of its SDK",
    "check_model_call": "guards a call that happens in this process",
    "check_tool_call": "guards a call that happens in this process",
    "compile": "takes candidates as objects of the runtime, which only an adapter has",
    "diary": "another view",
    "items": "the store of a runtime, which its adapter offers",
    "join_run": "for adapters, which record what they observe",
    "keep_turn": "for adapters, which observe a turn",
    "on": "another view",
    "operator": "has operations of its own",
    "reads": "lines of the access log, which the dashboard shows",
    "recordings": "has operations of its own",
    "spaces": "has operations of its own",
    "still_stand": "for adapters, which show recalled memories again",
    "threads": "the checkpoints of a runtime, which its adapter offers",
    "tokens": "has operations of its own",
    "traced": "another view",
    "working": "has verbs of its own, which a run's agent uses through its adapter",
    "run": "starts a recording, which an adapter or a `with` block ends",
    "recordings.candidates": "`knew` and `unseen` in one answer",
    "recordings.compiled": "two large records, which `entries` has as payloads",
    "recordings.export_receipt": "bytes of a bundle, which a surface writes to a file",
    "recordings.find": "completes an id, which a surface does before it asks",
    "recordings.foil": "the end of a chain, which `verify` and the end of a run have",
    "recordings.player": "plays a tape to an agent in this process",
    "recordings.prefix_reuse": "figures of compiles, which `entries` has in its summaries",
    "recordings.receipts": "the receipts of `steps`, one by one",
    "recordings.replay": "`replay`, recorded as a run of its own",
    "recordings.replayed": "`replay` with objects for adapters",
    "recordings.runs": "`runs`, of several scopes",
    "recordings.start_run": "starts a recording, which an adapter or a `with` block ends",
    "recordings.step_counts": "a count for lists of runs",
    "recordings.steps_of_task": "the link of a graph's task, which its adapter follows",
    "recordings.summaries": "the summaries that the receipts of a run have",
    "recordings.subscribe": "calls a function in this process",
    "recordings.tape": "calls to be played, which a surface writes to a file",
    "recordings.verify": "`verify`, with the checkpoint threads of the run",
}
"""Public verbs of a bound tally and its parts that no surface offers, each with the reason."""
