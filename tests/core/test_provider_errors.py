"""What clients of models and embedders raise is sorted by status and kind, by one function."""

from __future__ import annotations

from typing import Any

import anthropic
import httpx
import httpx2
import openai
import pytest
import requests
from pydantic_ai.exceptions import (
    ContentFilterError,
    FallbackExceptionGroup,
    ModelAPIError,
    ModelHTTPError,
)

from tallystick.errors import (
    CredentialRefused,
    EmbedderFailed,
    EmbeddingError,
    ModelFailed,
    ModelRefused,
    ModelUnavailable,
    TextRefused,
)
from tallystick.provider_errors import EMBEDDER, MODEL, sort_error

ADDRESS = "https://models.example/v1/chat"
REQUEST = httpx2.Request("POST", ADDRESS)
SECRET = "The heron nests in March."


def of_openai(status: int) -> Exception:
    response = httpx2.Response(status, request=REQUEST, json={"error": {"message": SECRET}})
    return openai.OpenAI(api_key="k")._make_status_error_from_response(response)


def of_anthropic(status: int) -> Exception:
    response = httpx2.Response(status, request=REQUEST, json={"error": {"message": SECRET}})
    return anthropic.Anthropic(api_key="k")._make_status_error_from_response(response)


def of_httpx(status: int) -> Exception:
    request = httpx.Request("POST", ADDRESS)
    response = httpx.Response(status, request=request)
    return httpx.HTTPStatusError(SECRET, request=request, response=response)


def of_requests(status: int) -> Exception:
    response = requests.Response()
    response.status_code = status
    return requests.HTTPError(SECRET, response=response)


class ClientError(Exception):
    """As botocore raises it."""

    def __init__(self, status: int) -> None:
        super().__init__(SECRET)
        self.response = {"Error": {}, "ResponseMetadata": {"HTTPStatusCode": status}}


def of_pydantic_ai(status: int) -> Exception:
    return ModelHTTPError(status, "m-1", {"message": SECRET})


def of_a_wrapper(status: int) -> Exception:
    return _raised(RuntimeError(SECRET), cause=of_openai(status))


def _raised(error: Exception, *, cause: Exception) -> Exception:
    try:
        raise error from cause
    except Exception as raised:  # noqa: BLE001 - what a wrapper of a client raises
        return raised


each_client = pytest.mark.parametrize(
    "raised",
    [
        of_openai,
        of_anthropic,
        of_httpx,
        of_requests,
        ClientError,
        of_pydantic_ai,
        of_a_wrapper,
    ],
)


@each_client
def test_a_status_decides_alike_for_every_client(raised: Any) -> None:
    expected = {
        **dict.fromkeys((400, 404, 413, 422), (ModelRefused, TextRefused)),
        **dict.fromkeys((408, 409, 425, 429, 500, 503, 529), (ModelUnavailable, EmbeddingError)),
        **dict.fromkeys((401, 403), (CredentialRefused, CredentialRefused)),
        405: (ModelFailed, EmbedderFailed),
    }
    for status, kinds in expected.items():
        error = raised(status)
        sorted_errors = [sort_error("far", error, each) for each in (MODEL, EMBEDDER)]
        assert tuple(type(each) for each in sorted_errors) == kinds, status
        assert all(SECRET not in str(each) for each in sorted_errors)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ConnectionResetError(), ModelUnavailable),
        (OSError("no route to host"), ModelUnavailable),
        (httpx.ConnectError(SECRET), ModelUnavailable),
        (httpx2.ConnectError(SECRET), ModelUnavailable),
        (httpx.ConnectTimeout(SECRET), ModelUnavailable),
        (httpx.RemoteProtocolError(SECRET), ModelUnavailable),
        (openai.APIConnectionError(request=REQUEST), ModelUnavailable),
        (anthropic.APIConnectionError(request=REQUEST), ModelUnavailable),
        (requests.ConnectionError(), ModelUnavailable),
        (
            _raised(ModelAPIError("m-1", SECRET), cause=openai.APIConnectionError(request=REQUEST)),
            ModelUnavailable,
        ),
        (TimeoutError(), ModelFailed),
        (httpx.ReadTimeout(SECRET), ModelFailed),
        (httpx2.ReadTimeout(SECRET), ModelFailed),
        (openai.APITimeoutError(request=REQUEST), ModelFailed),
        (ContentFilterError(SECRET), ModelRefused),
        (openai.ContentFilterFinishReasonError(), ModelRefused),
        (FallbackExceptionGroup("all", [of_openai(400), of_openai(503)]), ModelUnavailable),
        (FallbackExceptionGroup("all", [of_openai(400), of_anthropic(413)]), ModelRefused),
        (ValueError(SECRET), ModelFailed),
        (MemoryError(), ModelFailed),
        (SystemExit(), ModelFailed),
    ],
)
def test_an_error_without_a_status_is_sorted_by_its_kind(
    error: BaseException, kind: type[Exception]
) -> None:
    sorted_error = sort_error("far", error, MODEL)
    assert type(sorted_error) is kind
    assert SECRET not in str(sorted_error)
    is_timeout = kind is ModelFailed and "Timeout" in type(error).__name__
    assert sorted_error.needs_proof == (is_timeout or kind is ModelRefused)
