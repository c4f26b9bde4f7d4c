"""Errors of compiling a context, and of recording and replaying."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tallystick.errors.base import TallystickError


class CompileError(TallystickError):
    """The context could not be compiled. No model was called."""

    code = "compile_error"


class RequestDenied(CompileError):
    """Policy denies the latest request of the user, so nothing was compiled: without it a model
    would answer something else. Correct the rule, or leave the request out yourself.
    """

    code = "request_denied"
    _facts = ("item_id", "rule_id")

    def __init__(self, item_id: str, *, why: str, rule_id: str | None = None) -> None:
        self.item_id = item_id
        self.rule_id = rule_id
        super().__init__(
            f"The latest request ({item_id}) may not be sent: {why}. Nothing was compiled. Correct "
            "the rule, or leave the request out of the candidates."
        )


class BudgetInfeasible(CompileError):
    """Required items alone exceed the budget. Raise the budget or shorten what `required` lists."""

    code = "budget_infeasible"
    _facts = ("budget", "required")

    def __init__(self, *, budget: int, required: Mapping[str, int]) -> None:
        self.budget = budget
        self.required = dict(required)
        listed = ", ".join(f"{item} ({tokens})" for item, tokens in self.required.items())
        super().__init__(
            f"Required items need {sum(self.required.values())} tokens and the budget leaves "
            f"{budget}: {listed}. "
            "Raise the budget, lower `response_reserve`, or shorten these items."
        )


class InvalidContext(CompileError):
    """The items contradict one another; the request would be refused by a provider."""

    code = "invalid_context"
    _facts = ("item_ids",)

    def __init__(self, message: str, *, item_ids: Sequence[str] = ()) -> None:
        self.item_ids = tuple(item_ids)
        super().__init__(message)


class RecorderError(TallystickError):
    """The recorder could not do what was asked. What was acknowledged is kept."""

    code = "recorder_error"


class RunClosed(RecorderError):
    """The run or step has ended; nothing can be added to it. Start a new one."""

    code = "run_closed"


class NotReplayable(RecorderError):
    """The retention mode kept too little to replay this step."""

    code = "not_replayable"
    _facts = ("step_id", "retention")

    def __init__(
        self, step_id: str, *, retention: str, missing: str, hint: str | None = None
    ) -> None:
        self.step_id = step_id
        self.retention = retention
        self.missing = missing
        advice = hint or "Record with retention='redacted_payloads' or 'full_payloads'."
        super().__init__(
            f"Step {step_id} cannot be replayed: {missing} (retention {retention}). {advice}"
        )


class TapeDiverged(RecorderError):
    """An agent that plays a tape asked for something else than was recorded. The diff says what."""

    code = "tape_diverged"
    _facts = ("step_id",)

    def __init__(self, what: str, *, step_id: str | None, diff: Sequence[str] = ()) -> None:
        self.what = what
        self.step_id = step_id
        self.diff = tuple(diff)
        super().__init__("\n".join([f"The agent left its tape: {what}.", *self.diff]))


class RecordedFailure(RecorderError):
    """The call failed when it was recorded, and so it fails when the tape is played.

    It is raised as the class that was recorded too, where that is known, so that retries and
    handlers take it.
    """

    code = "recorded_failure"
    _facts = ("kind",)

    def __init__(self, kind: str, message: str) -> None:
        self.kind = kind
        self.message = message
        # Not by way of `super`: beside this class may stand one whose constructor takes other
        # arguments.
        Exception.__init__(self, message)

    def __str__(self) -> str:
        return self.message
