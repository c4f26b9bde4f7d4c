"""Provider errors: sorts what a model or an embedder of somebody else raised, by status and kind.

An error is sorted by the first HTTP status among it and its causes, else by its classes. No runtime
is imported: every client names its status and its classes much alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tallystick.errors import (
    CredentialRefused,
    EmbedderFailed,
    EmbeddingError,
    ModelFailed,
    ModelRefused,
    ModelUnavailable,
    TallystickError,
    TextRefused,
)

_CREDENTIAL = frozenset({401, 403})
_AWAY = frozenset({408, 409, 425, 429})
_REFUSED = frozenset({400, 404, 413, 414, 415, 422})
"""HTTP statuses by which a service refuses a request for what it contains."""
_FILTERED = frozenset({"ContentFilterError", "ContentFilterFinishReasonError"})
"""Classes of errors of a content filter that have no status."""
_MOST_CAUSES = 10


@dataclass(frozen=True)
class ProviderErrors:
    """The errors of ours for one sort of provider."""

    away: Callable[[str], TallystickError]
    refused: Callable[[str], TallystickError]
    failed: Callable[[str], TallystickError]
    timed_out: Callable[[str], TallystickError]


EMBEDDER = ProviderErrors(
    EmbeddingError,
    TextRefused,
    EmbedderFailed,
    lambda message: EmbedderFailed(message, timed_out=True),
)
MODEL = ProviderErrors(
    ModelUnavailable,
    ModelRefused,
    ModelFailed,
    lambda message: ModelFailed(message, timed_out=True),
)


def sort_error(name: str, error: BaseException, errors: ProviderErrors) -> TallystickError:
    """Return the error of ours for what the provider `name` raised; one of ours stays itself.

    The message has the class or the status only: what a provider says may repeat the text.
    """
    if isinstance(error, TallystickError):
        return error
    if isinstance(error, BaseExceptionGroup):
        # Of several providers that were asked in turn: one that is away may answer later.
        members = [sort_error(name, each, errors) for each in error.exceptions]
        return min(
            members, key=lambda each: ("until_back", "some_times", "never").index(each.retry)
        )
    causes = list(_causes(error))
    status = next((code for each in causes if (code := _status_of(each)) is not None), None)
    if status is not None:
        answered = f"{name} answered with the status {status} ({type(error).__name__})."
        if status in _CREDENTIAL:
            return CredentialRefused(answered)
        if status in _REFUSED:
            return errors.refused(answered)
        return (errors.away if status in _AWAY or status >= 500 else errors.failed)(answered)
    raised = f"{name} raised {type(error).__name__}."
    classes = {kind.__name__ for each in causes for kind in type(each).__mro__}
    if classes & _FILTERED:
        return errors.refused(raised)
    if any("ConnectTimeout" in each for each in classes):
        return errors.away(raised)
    if any("Timeout" in each for each in classes):
        return errors.timed_out(raised)
    if "OSError" in classes or any("Connect" in each or "Transport" in each for each in classes):
        return errors.away(raised)
    return errors.failed(raised)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and what it was raised from, at most ten."""
    each: BaseException | None = error
    for _ in range(_MOST_CAUSES):
        if each is None:
            return
        yield each
        each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)


def _status_of(error: BaseException) -> int | None:
    """Return the HTTP status of an error by the names under which clients keep it, or None."""
    response: Any = getattr(error, "response", None)
    if isinstance(response, Mapping):  # of botocore
        statuses = [response.get("ResponseMetadata", {}).get("HTTPStatusCode")]
    else:
        statuses = [getattr(response, "status_code", None)]
    statuses += [getattr(error, name, None) for name in ("status_code", "status", "code")]
    return next(
        (
            int(each)
            for each in statuses
            if isinstance(each, int) and not isinstance(each, bool) and 400 <= each <= 599
        ),
        None,
    )
