"""Operations on recorded runs: list, read, ask, verify, replay."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tallystick.operations.operation import Arguments, Before, Operation, RunId, StepId
from tallystick.records import (
    ContextCandidate,
    Foil,
    Job,
    MemoryUse,
    Provenance,
    Receipt,
    RecordedWrite,
    ReplayRecipe,
    ReplayResult,
    RunRecord,
    StepDiff,
    StepEntry,
    StepRecord,
    Verification,
)


class Runs(Arguments):
    """Arguments of `runs`."""

    limit: Annotated[int, Field(description="Runs at most.", ge=1)] = 20
    before: Before = None


class OfRun(Arguments):
    """Arguments of a question about a run."""

    run_id: RunId


class OfStep(Arguments):
    """Arguments of a question about a step."""

    step_id: StepId


class Steps(Arguments):
    """Arguments of `steps`."""

    run_id: RunId
    after: Annotated[int | None, Field(description="The last index of the page before.")] = None
    limit: Annotated[int | None, Field(description="Steps at most.", ge=1)] = None


class Trace(Arguments):
    """Arguments of `trace`."""

    step_id: StepId
    text: Annotated[str, Field(description="A sentence of the step's context.")]


class Diff(Arguments):
    """Arguments of `diff`."""

    before: Annotated[str, Field(description="Id of the one step.")]
    after: Annotated[str, Field(description="Id of the other step.")]


class Uses(Arguments):
    """Arguments of `uses`."""

    memory_id: Annotated[str, Field(description="Id of a memory.")]
    most: Annotated[int | None, Field(description="Steps at most, the newest.", ge=1)] = None


class Verify(Arguments):
    """Arguments of `verify`."""

    run_id: RunId
    foil: Annotated[
        Foil | None, Field(description="The head that was kept elsewhere, to be matched.")
    ] = None


class Replay(Arguments):
    """Arguments of `replay` and `replay_later`."""

    step_id: StepId
    recipe: Annotated[
        ReplayRecipe | None, Field(description="What to change; without it nothing.")
    ] = None


_NOT_FOUND = ("not_found",)

OPERATIONS = (
    Operation(
        name="runs",
        title="List runs",
        description="List recorded runs, newest first.",
        effect="read",
        arguments=Runs,
        result=list[RunRecord],
        errors=("denied", "not_found"),
        verb="runs",
    ),
    Operation(
        name="run",
        title="Read a run",
        description="Read one recorded run.",
        effect="read",
        arguments=OfRun,
        result=RunRecord,
        errors=_NOT_FOUND,
        verb="recordings.run",
    ),
    Operation(
        name="steps",
        title="List steps",
        description="List the steps of a run, in the order in which they started.",
        effect="read",
        arguments=Steps,
        result=list[StepRecord],
        errors=_NOT_FOUND,
        verb="recordings.steps",
    ),
    Operation(
        name="step",
        title="Read a step",
        description="Read one recorded step.",
        effect="read",
        arguments=OfStep,
        result=StepRecord,
        errors=_NOT_FOUND,
        verb="recordings.step",
    ),
    Operation(
        name="entries",
        title="Read what a step recorded",
        description="Read what was recorded in a step, with the payloads that are kept.",
        effect="read",
        arguments=OfStep,
        result=list[StepEntry],
        errors=("not_found", "corrupt_tally"),
        verb="recordings.entries",
    ),
    Operation(
        name="receipt",
        title="Read a receipt",
        description="Read the receipt of a step.",
        effect="read",
        arguments=OfStep,
        result=Receipt,
        errors=_NOT_FOUND,
        verb="recordings.receipt",
    ),
    Operation(
        name="knew",
        title="What the agent knew",
        description="List what went into the context of a step, and why.",
        effect="read",
        arguments=OfStep,
        result=list[ContextCandidate],
        errors=_NOT_FOUND,
        verb="recordings.knew",
    ),
    Operation(
        name="unseen",
        title="What the agent did not see",
        description="List what was left out of the context of a step, and why.",
        effect="read",
        arguments=OfStep,
        result=list[ContextCandidate],
        errors=_NOT_FOUND,
        verb="recordings.unseen",
    ),
    Operation(
        name="trace",
        title="Trace a sentence",
        description="Show where a sentence of a step's context came from, to the raw source.",
        effect="read",
        arguments=Trace,
        result=list[Provenance],
        errors=_NOT_FOUND,
        verb="recordings.trace",
    ),
    Operation(
        name="changed",
        title="What changed since the step before",
        description="Show what changed since the step of the same kind before.",
        effect="read",
        arguments=OfStep,
        result=StepDiff,
        errors=_NOT_FOUND,
        verb="recordings.changed",
    ),
    Operation(
        name="diff",
        title="Compare two steps",
        description="Show how two steps differ: context, request and response.",
        effect="read",
        arguments=Diff,
        result=StepDiff,
        errors=_NOT_FOUND,
        verb="recordings.diff",
    ),
    Operation(
        name="written",
        title="What a run wrote",
        description="List what the steps of a run wrote to memory, and by whom.",
        effect="read",
        arguments=OfRun,
        result=list[RecordedWrite],
        errors=_NOT_FOUND,
        verb="recordings.written",
    ),
    Operation(
        name="uses",
        title="Steps that used a memory",
        description="List the recorded steps that recalled, saw, left out or wrote a memory.",
        effect="read",
        arguments=Uses,
        result=list[MemoryUse],
        errors=(),
        verb="recordings.uses",
    ),
    Operation(
        name="verify",
        title="Verify a run",
        description="Check every byte that a run's chain covers, and its checkpoint threads; with "
        "a foil that they match.",
        effect="read",
        arguments=Verify,
        result=Verification,
        errors=_NOT_FOUND,
        verb="verify",
    ),
    Operation(
        name="replay",
        title="Replay a step",
        description="Make a recorded model step again as the step of a new run, exactly or with "
        "changes.",
        effect="change",
        arguments=Replay,
        result=ReplayResult,
        errors=("not_found", "denied", "invalid_input", "not_replayable"),
        verb="replay",
    ),
    Operation(
        name="replay_later",
        title="Replay a step later",
        description="Enqueue the replay of a recorded model step, without a model, as a job.",
        effect="change",
        arguments=Replay,
        result=Job,
        errors=("not_found", "denied", "invalid_input"),
        verb="replay_later",
    ),
)
"""In the order in which surfaces list them."""
