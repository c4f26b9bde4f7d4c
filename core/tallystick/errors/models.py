"""Errors of embedders and models, and of the jobs that call them."""

from __future__ import annotations

from tallystick.errors.base import Retry, TallystickError


class EmbeddingError(TallystickError):
    """Text could not be embedded. What was remembered stays recallable by its words.

    A job that meets it is tried again until the embedder answers, however long that takes.
    """

    code = "embedding_error"
    retry: Retry = "until_back"


class EmbedderUnavailable(EmbeddingError):
    """The embedder's package or weights are not there. The message says what to install."""

    code = "embedder_unavailable"


class EmbedderFailed(EmbeddingError):
    """The embedder raised an error of its own, or did not answer in time. Look at the text and at
    the embedder, then retry the job.
    """

    code = "embedder_failed"
    retry = "some_times"
    end_state = "dead"

    def __init__(self, message: str | None = None, *, timed_out: bool = False) -> None:
        self.needs_proof = timed_out
        super().__init__(message)


class TextRefused(EmbeddingError):
    """The embedder will not take this text, now or later: it is too long, or forbidden there."""

    code = "text_refused"
    retry = "never"
    needs_proof = True
    end_state = "dead"


class UnusableVectors(EmbeddingError):
    """The embedder answered, but not with one usable vector for each text."""

    code = "unusable_vectors"
    retry = "some_times"


class DimensionMismatch(UnusableVectors):
    """Vectors of two sizes cannot be compared."""

    code = "dimension_mismatch"
    _facts = ("name", "expected", "got")

    def __init__(self, *, name: str, expected: int, got: int) -> None:
        self.name = name
        self.expected = expected
        self.got = got
        super().__init__(
            f"Embedder {name} returned {got} dimensions where {expected} were expected."
        )


class ExtractionError(TallystickError):
    """Extraction, a decision or a summary failed: no usable answer came, and nothing was concluded.

    The text itself stays recallable. A job that meets it is tried again some times, and is then
    `failed`.
    """

    code = "extraction_error"


class ModelUnavailable(ExtractionError):
    """The model is away. What waits for it is tried again until it is back."""

    code = "model_unavailable"
    retry: Retry = "until_back"


class CredentialRefused(ModelUnavailable, EmbeddingError):
    """A model or an embedder refused the key that it was given. Mend the key: what waits for it
    goes on then.
    """

    code = "credential_refused"


class ModelFailed(ExtractionError):
    """The model raised an error of its own, or did not answer in time. Look at the text and at the
    model, then retry the job.
    """

    code = "model_failed"
    end_state = "dead"

    def __init__(self, message: str | None = None, *, timed_out: bool = False) -> None:
        self.needs_proof = timed_out
        super().__init__(message)


class ModelRefused(ExtractionError):
    """The model will not take this text, now or later: it is too long, or a filter stopped it."""

    code = "model_refused"
    retry = "never"
    needs_proof = True
    end_state = "dead"


class EgressDenied(ExtractionError):
    """The text may not leave for this model. Pass the model in code, add its name to
    `remote_allow`, or use a local one.
    """

    code = "egress_denied"
    retry = "never"


class BudgetSpent(ExtractionError):
    """A budget of calls of models is used up. What waits for a day's goes on when the day is over;
    where a job used up its own, raise the limit and retry the job.
    """

    code = "budget_spent"
    _facts = ("limit", "spent", "allowed")

    def __init__(self, limit: str, *, spent: int, allowed: int) -> None:
        self.limit, self.spent, self.allowed = limit, spent, allowed
        self.holds = next(each for each in ("job", "scope", "day") if f"_per_{each}" in limit)
        """What is held back: one job, a scope, or for the budget of a day everything."""
        self.retry = "never" if self.holds == "job" else "until_back"
        super().__init__(
            f"The budget `{limit}` is used up: {spent} of {allowed}. Raise the setting, or wait "
            f"for the next day; nothing was sent, and what was remembered stays recallable."
        )


class LeaseLost(TallystickError):
    """A worker no longer holds its job: the lease ran out, or the job was cancelled. Nothing was
    stored.
    """

    code = "lease_lost"
