"""The description of the server, OpenAPI 3.1, is true: what it allows is taken, what it asks for is
needed, and clients can be generated from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import Response
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.integrations.described_values import values_of
from tests.integrations.served import Served, served

from tallystick.operations import Operation
from tallystick_server import openapi
from tallystick_server.routes import ROUTES

DESCRIBED = openapi()
SCHEMAS = DESCRIBED["components"]["schemas"]
ENTRIES = {
    entry["operationId"]: (method, path, entry)
    for path, methods in DESCRIBED["paths"].items()
    for method, entry in methods.items()
}
OPERATIONS = sorted({route.operation for route in ROUTES})


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("served")) as there:
        yield there


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_request_that_the_description_allows_is_taken(
    there: Served, operation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The verb itself is left out: what it makes of the tally's state is another matter."""
    monkeypatch.setattr(Operation, "call", lambda *given: None)
    monkeypatch.setattr("tallystick_server.endpoints.answer", lambda *given, **more: Response())
    monkeypatch.setattr("tallystick_server.endpoints._VERSIONED", ())
    method, path, entry = ENTRIES[operation]
    http = there.socket()

    @settings(
        max_examples=10,
        phases=[Phase.generate],
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )
    @given(st.data())
    def check(data: Any) -> None:
        url, query = path, {}
        for parameter in entry.get("parameters", ()):
            name, schema = parameter["name"], parameter["schema"]
            if parameter["in"] == "path":
                url = url.replace(f"{{{name}}}", _IN_PATH.get(name, schema.get("enum", ["x"])[0]))
            elif parameter["in"] == "query" and (parameter.get("required") or data.draw(_COIN)):
                value = data.draw(values_of(schema, SCHEMAS))
                if isinstance(value, bool):
                    value = str(value).lower()
                if value is not None:
                    query[name] = value
        body = entry.get("requestBody")
        sent: dict[str, Any] = {}
        if body is not None:
            schema = body["content"]["application/json"]["schema"]
            sent = {"json": data.draw(values_of(schema, SCHEMAS))}
        response = http.request(method, url, params=query, **sent)
        assert response.status_code == 200, (query, sent, response.json()["detail"])

    check()


_COIN = st.booleans()
_IN_PATH = {"scope": "team:support"}


def test_a_field_with_a_default_is_not_required_and_a_token_is_described() -> None:
    assert DESCRIBED["openapi"].startswith("3.1")
    [(name, scheme)] = DESCRIBED["components"]["securitySchemes"].items()
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")
    assert DESCRIBED["security"] == [{name: []}]
    assert [path for path in _with_defaults(SCHEMAS) if path] == []
    remember = SCHEMAS["RememberBody"]
    assert remember["required"] == ["content"]
    assert remember["properties"]["kind"]["description"].endswith('Default: "note".')


def _with_defaults(value: Any, path: str = "") -> Iterator[str]:
    """The places of schemas that have a default."""
    if isinstance(value, dict):
        if "default" in value and not path.endswith("/properties"):
            yield path
        for name, each in value.items():
            yield from _with_defaults(each, f"{path}/{name}")
    elif isinstance(value, list):
        for each in value:
            yield from _with_defaults(each, f"{path}/-")


def test_a_method_that_a_path_does_not_take_is_answered_with_those_that_it_takes(
    there: Served,
) -> None:
    http = there.socket()
    for path, methods in DESCRIBED["paths"].items():
        url = path.replace("{scope}", "team:support").replace("{", "").replace("}", "")
        refused = http.request("TRACE", url)
        allowed = set(refused.headers["allow"].split(", "))
        assert refused.status_code == 405, path
        assert {method.upper() for method in methods} <= allowed, path
        for method in {"GET", "POST", "PUT", "PATCH", "DELETE"} - allowed:
            assert http.request(method, url).status_code == 405, (method, path)
