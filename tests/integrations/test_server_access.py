"""Who may do what over HTTP: every way in for every class of token, and nothing of others."""

from __future__ import annotations

import asyncio
import os
import random
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import httpx2
import pytest
from fastapi import FastAPI
from starlette.routing import Mount
from tests.scripted import concluder

from tallystick import Actor
from tallystick_mcp import serve
from tallystick_server import create_app
from tallystick_server.routes import OWN, PREFIX, ROUTES

from .permission_matrix import (
    ASKING_DEPLOYS,
    MCP_CALLS,
    PROMPTS,
    RESOURCES,
    SCOPES,
    WAYS,
    matrix,
    matrix_settings,
    outcome,
    table,
)
from .served import ADA, BOB, ROOT, Served, served

DOCS = Path(__file__).parents[2] / "docs"
EVE = Actor(user="eve")


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(
        tmp_path_factory.mktemp("served"),
        rules=[ASKING_DEPLOYS],
        settings=matrix_settings(tmp_path_factory.mktemp("birds")),
        learning_model=concluder(),
    ) as there:
        yield there


def _documented(kind: str, scope: str) -> tuple[str, str, str]:
    """Return a matrix of the page, and what stands before and after it."""
    text = (DOCS / "reference" / "server.md").read_text(encoding="utf-8")
    start, end = f"<!-- matrix: {kind}, {scope} -->\n", "\n<!-- /matrix -->"
    head, _, rest = text.partition(start)
    shown, _, tail = rest.partition(end)
    return shown, head + start, end + tail


@pytest.mark.parametrize("kind", WAYS)
def test_each_way_answers_every_third_caller_as_the_docs_say(there: Served, kind: str) -> None:
    shown, _, _ = _documented(kind, "private:ada")
    cells = [line.strip("|").split("|") for line in shown.splitlines()[4:]]
    documented = {name.strip(" `"): [cell.strip(" `") for cell in row] for name, *row in cells}

    made = matrix(there, "private:ada", WAYS[kind], every=3)

    assert made == {
        name: [cell and told for cell, told in zip(made[name], row, strict=True)]
        for name, row in documented.items()
    }


@pytest.mark.slow
@pytest.mark.parametrize("kind", WAYS)
@pytest.mark.parametrize("scope", SCOPES)
def test_the_permission_matrix_in_the_docs_is_what_the_server_does(
    there: Served, kind: str, scope: str
) -> None:
    """Set WRITE_PERMISSION_MATRIX to write it."""
    page = DOCS / "reference" / "server.md"
    made = f"{SCOPES[scope]}:\n\n{table(kind, matrix(there, scope, WAYS[kind]))}"
    shown, before, after = _documented(kind, scope)
    if os.environ.get("WRITE_PERMISSION_MATRIX"):
        page.write_text(before + made + after, encoding="utf-8")
        shown = made

    assert shown == made


def test_the_matrix_walks_every_route_that_there_is(there: Served) -> None:
    """A route of the server, the dashboard or MCP that the matrix does not walk fails here."""
    app = create_app(there.tally)
    served_places = set(places_of(cast(FastAPI, app.application).routes))
    aliases = {f"{method} {path}" for route in ROUTES for method, path in route.also}
    operations = {f"{route.method} {route.path}" for route in ROUTES}
    mcp = serve(there.tally)
    tools = {tool.name for tool in asyncio.run(mcp.list_tools())}
    resources = {each.uri_template for each in asyncio.run(mcp.list_resource_templates())}
    prompts = {prompt.name for prompt in asyncio.run(mcp.list_prompts())}

    # The last three describe the routes, or are another path of one of `OWN`.
    described = {"GET /openapi.json", "POST /runs/start", "POST /compile"}
    assert served_places == operations | aliases | set(OWN) | described
    assert set(WAYS["operation"]) == {route.operation for route in ROUTES}
    assert set(WAYS["route that is no operation"]) == set(OWN)
    assert tools == {tool for tool, _ in MCP_CALLS.values()}
    assert resources == set(RESOURCES)
    assert prompts == set(PROMPTS)
    [root] = asyncio.run(mcp.list_resources())
    assert str(root.uri) == "tally://files/memories"


def places_of(routes: Iterable[Any]) -> Iterator[str]:
    """The methods and paths of routes, those of included routers too; pages are listed apart."""
    for route in routes:
        inner = getattr(route, "original_router", None)
        if inner is not None:
            yield from places_of(inner.routes)
        elif isinstance(route, Mount):
            assert route.path == "/ui"
        else:
            for method in route.methods - {"HEAD"}:
                yield f"{method} {route.path.removeprefix(PREFIX)}"


def test_an_open_run_takes_nothing_from_a_token_that_may_not_record(there: Served) -> None:
    """The bounds of the token that calls count, whichever token of the user started the run."""
    full = there.http(there.token())
    run_id = full.post("/v1/runs", json={"agent_name": "coder"}).json()["result"]["id"]
    full.post(f"/v1/runs/{run_id}/steps", json={"kind": "other"})
    readers = (
        there.http(there.token(token_class="scoped", operations=["read", "inspect"])),
        there.http(there.token(token_class="scoped", scopes=["project:apollo"])),
    )
    absent = there.tally.new_id()

    def calls(http: httpx2.Client, run: str) -> list[str]:
        in_run = {"tallystick-run": run}
        return [
            outcome(http.post(f"/v1/runs/{run}/steps", json={"kind": "other", "name": "forged"})),
            outcome(http.post("/v1/tools/result", json={"run_id": run, "name": "pay"})),
            outcome(http.post("/v1/recall", json={"query": "heron"}, headers=in_run)),
            outcome(http.post(f"/v1/runs/{run}/end", json={"status": "failed"})),
        ]

    assert [calls(http, run_id) for http in readers] == [
        ["outside_credential"] * 4,
        ["not found"] * 4,
    ]
    assert [calls(http, absent) for http in readers] == [["not found"] * 4] * 2
    recorder = there.http(there.token(token_class="scoped", operations=["record"]))
    assert calls(recorder, run_id) == ["yes", "yes", "outside_credential", "yes"]
    steps = full.get(f"/v1/runs/{run_id}/steps").json()["result"]
    assert [step["name"] for step in steps] == [None, "forged", "pay", "recall"]


def test_a_run_is_not_replaced_by_another_of_its_id_and_none_is_left_open(there: Served) -> None:
    ada, bob = there.http(there.token()), there.http(there.token(BOB))
    run_id = ada.post("/v1/runs", json={"agent_name": "coder"}).json()["result"]["id"]
    again = {"agent_name": "coder", "run_id": run_id}
    taken = bob.post("/v1/runs", json=again)
    step = ada.post(f"/v1/runs/{run_id}/steps", json={"kind": "other"})
    end = ada.post(f"/v1/runs/{run_id}/end", json={})

    assert taken.json()["code"] == "invalid_input"
    assert [step.status_code, end.status_code] == [200, 200]
    assert ada.post("/v1/runs", json=again).json()["code"] == "invalid_input"
    assert ada.post(f"/v1/runs/{run_id}/steps", json={"kind": "other"}).json()["code"] == (
        "run_closed"
    )
    assert ada.post(f"/v1/runs/{run_id}/verify", json={}).json()["result"]["ok"]


CANARY = re.compile(r"canary-(\w+)-\d+")


def test_random_callers_never_see_what_others_keep(there: Served, request: Any) -> None:
    """Writes, reads and changes of three users, an agent and an operator, interleaved: no byte of
    an answer has what another keeps in private, and ids of others are like ids of nobody.
    """
    soaks = request.config.getoption("--hypothesis-profile") == "soak"
    chance = random.Random(random.SystemRandom().randrange(2**32) if soaks else 11)
    actors = {"ada": ADA, "bob": BOB, "eve": EVE, "root": ROOT, "agent": BOB.replace(agent="x")}
    clients = {name: there.http(there.token(actor)) for name, actor in actors.items()}
    # An agent that comes in by itself reaches her user's private scope where its token says so.
    given = there.token(actors["agent"], token_class="scoped", scopes=["private:bob"])
    clients["agent"] = there.http(given)
    # A second token of ada's, which reaches her private scope and no other.
    narrow = there.token(ADA, token_class="scoped", scopes=["private:ada"])
    clients["narrow"] = there.http(narrow)
    owner_of = {"agent": "bob", "narrow": "ada"}
    ids: dict[str, list[str]] = {name: [] for name in ("ada", "bob", "eve", "root")}
    seen, hidden = 0, 0
    for number in range(4_000 if soaks else 160):
        name = chance.choice(list(clients))
        http, home = clients[name], owner_of.get(name, name)
        verb = chance.choice(["write", "recall", "get", "inspect", "list", "change", "explore"])
        other = chance.choice(list(ids))
        memory_id = chance.choice(ids[other] or ["nothing"])
        path = f"/v1/memories/{memory_id}"
        if verb == "write":
            text = f"canary-{home}-{number} nests in March."
            response = http.post("/v1/memories", json={"content": text})
            ids[home].append(response.json()["result"]["id"])
        elif verb == "recall":
            response = http.post("/v1/recall", json={"query": "canary nests", "limit": 50})
        elif verb == "list":
            headers = {"tallystick-scope": f"private:{other}"}
            response = http.get("/v1/memories", headers=headers)
            assert (response.status_code == 200) == (other == home)
        elif verb == "explore":
            response = http.get("/v1/explore", params={"around": f"private:{other}"})
        elif verb == "change":
            body = {"reason": "r", "changes": {"tags": [f"t{number}"]}}
            response = http.patch(path, json=body)
        else:
            response = http.get(path if verb == "get" else f"{path}/inspect")
        owners = set(CANARY.findall(response.text))
        assert owners <= {home}, (name, verb, response.text[:500])
        seen += bool(owners)
        if verb in ("get", "change") and other != home and memory_id != "nothing":
            unknown = memory_id[:-4] + "0000"
            like = (
                http.get(f"/v1/memories/{unknown}")
                if verb == "get"
                else http.patch(
                    f"/v1/memories/{unknown}", json={"reason": "r", "changes": {"tags": []}}
                )
            )
            assert (response.status_code, like.status_code) == (404, 404)
            told = {response.text.replace(memory_id, "ID"), like.text.replace(unknown, "ID")}
            assert len(told) == 1
            hidden += 1

    assert seen > 10
    assert hidden > 5
