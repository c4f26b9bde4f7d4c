"""Answers of services over HTTP: what a status means for an import, and bodies with a limit."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import IO, TYPE_CHECKING, Any

from tallystick_ingest.contract import AuthorizationNeeded, RateLimitReached

if TYPE_CHECKING:
    import httpx2

LARGEST_ANSWER = 20_000_000
"""Bytes of an answer that is not a file."""
_RATE_REASONS = frozenset(
    ("rateLimitExceeded", "userRateLimitExceeded", "dailyLimitExceeded", "quotaExceeded")
)
_WITHHELD_REASONS = frozenset(
    (
        "appNotAuthorizedToFile",
        "cannotDownloadAbusiveFile",
        "cannotDownloadFile",
        "cannotExportFile",
        "fileNotDownloadable",
        "fileNotExportable",
        "insufficientFilePermissions",
    )
)
"""Reasons of Google that concern one file, not the credential."""


class NotThere(Exception):
    """A service has nothing by that name, or shows it to nobody with this credential."""


class TooLarge(Exception):
    """An answer has more bytes than are read."""


class ServiceFailed(Exception):
    """A service answered with an error: the import tries again later."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that was read to its end."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Return what the body holds. Raises ServiceFailed."""
        try:
            return json.loads(self.body)
        except ValueError as error:
            raise ServiceFailed("an answer that is no JSON") from error


def fetch(
    client: httpx2.Client,
    service: str,
    url: str,
    *,
    params: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    largest: int = LARGEST_ANSWER,
    into: IO[bytes] | None = None,
) -> Answer:
    """Return the answer to a GET request; with `into` its body is written there instead.

    Raises AuthorizationNeeded, RateLimitReached, NotThere, TooLarge, ServiceFailed, none of which
    holds a word of the request; errors of httpx2 where nothing answers.
    """
    with client.stream("GET", url, params=params, headers=headers) as response:
        is_error = response.status_code >= 400
        kept: list[bytes] = []
        size = 0
        for piece in response.iter_bytes(65_536):
            size += len(piece)
            if size > (LARGEST_ANSWER if is_error else largest):
                raise TooLarge(f"an answer of more than {largest} bytes")
            if into is None or is_error:
                kept.append(piece)
            else:
                into.write(piece)
        answer = Answer(response.status_code, response.headers, b"".join(kept))
    if is_error:
        _refuse(answer, service)
    return answer


def retry_after(headers: Mapping[str, str], now: float | None = None) -> float | None:
    """Return the seconds that an answer asks to wait, None where it does not say."""
    moment = time.time() if now is None else now
    value = headers.get("retry-after", "").strip()
    try:
        if value.replace(".", "", 1).isdigit():
            return float(value)
        if value:
            return max(parsedate_to_datetime(value).timestamp() - moment, 0.0)
        if headers.get("x-ratelimit-remaining") == "0":
            return max(float(headers["x-ratelimit-reset"]) - moment, 0.0)
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    return None


def _refuse(answer: Answer, service: str) -> None:
    status, headers = answer.status, answer.headers
    reasons = _reasons(answer)
    is_limited = headers.get("x-ratelimit-remaining") == "0" or "retry-after" in headers
    if status == 429 or (status in (403, 503) and (is_limited or reasons & _RATE_REASONS)):
        raise RateLimitReached(f"{service} asks to wait", retry_after(headers))
    if status == 403 and "exportSizeLimitExceeded" in reasons:
        raise TooLarge("a document that is too large to be exported")
    if status == 403 and reasons & _WITHHELD_REASONS:
        raise NotThere(f"{service} does not hand it out")
    if status in (401, 403):
        raise AuthorizationNeeded(f"{service} refuses the credential ({status})")
    if status in (404, 410):
        raise NotThere(f"{service} has nothing there ({status})")
    raise ServiceFailed(f"{service} answered {status}")


def _reasons(answer: Answer) -> set[str]:
    """Return the reasons that Google names in an error."""
    try:
        return {str(each["reason"]) for each in json.loads(answer.body)["error"]["errors"]}
    except (ValueError, KeyError, TypeError):
        return set()
