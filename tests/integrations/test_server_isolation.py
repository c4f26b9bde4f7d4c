"""Isolation over HTTP: several tokens on one tally, each narrowed in another way, and whatever they
call shows nobody what is not theirs, nor that it is there.

Each text carries a mark of its scope, and each id is known to the scope that it was made in, so
that a leak is seen wherever it comes out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
from tests.integrations.served import ASKING, Served, served
from tests.scripted import concluder

from tallystick import Actor
from tallystick.errors import ApprovalRequired
from tallystick.operations import OPERATIONS
from tallystick.settings import Settings
from tallystick.tally import BoundTally
from tallystick_learning import Learning
from tallystick_server.routes import OF_THE_URL, PREFIX, ROUTES, Route

ADA = Actor(user="ada", projects={"apollo", "hermes"})
BOB = Actor(user="bob", projects={"hermes"})
APOLLO, HERMES = "project:apollo", "project:hermes"
VISIBLE = {
    "ada": {"private:ada", APOLLO, HERMES},
    "ada, a token for hermes": {"private:ada", HERMES},
    "ada, bounded to apollo": {APOLLO},
    "ada, reading in hermes": {HERMES},
    "bob": {"private:bob", HERMES},
    "bob, bounded to home": {"private:bob"},
}
SCOPES = sorted(set().union(*VISIBLE.values()))
KINDS = ("memory_id", "source_id", "run_id", "step_id", "proposal_id", "approval_id", "job_id")
_ID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
REFLECTING = Settings(reflection="review")
ABSENT = "01997f00-0000-7000-8000-000000000000"


def bounded(*scopes: str) -> dict[str, Any]:
    return {"token_class": "scoped", "scopes": list(scopes)}


@dataclass
class Place:
    """A served tally with something of every kind in each scope."""

    there: Served
    callers: dict[str, httpx2.Client]
    ids: dict[str, tuple[str, str]]
    """What has an id: its kind and its scope."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("isolation")
    with served(folder, settings=REFLECTING, learning_model=concluder(), rules=[ASKING]) as there:
        tokens: dict[str, dict[str, Any]] = {
            "ada": {"actor": ADA},
            "ada, a token for hermes": {"actor": ADA.replace(projects={"hermes"})},
            "ada, bounded to apollo": {"actor": ADA, **bounded(APOLLO)},
            "ada, reading in hermes": {"actor": ADA, **bounded(HERMES), "operations": ["read"]},
            "bob": {"actor": BOB},
            "bob, bounded to home": {"actor": BOB, **bounded("private:bob")},
        }
        callers = {name: there.http(there.token(**given)) for name, given in tokens.items()}
        ids: dict[str, tuple[str, str]] = {}
        for scope in SCOPES:
            actor = BOB if scope == "private:bob" else ADA
            _fill(there.tally.bind(actor, scope), ids)
        yield Place(there, callers, ids)


def _fill(bound: BoundTally, ids: dict[str, tuple[str, str]]) -> None:
    """Make something of every kind in a scope, each with the scope's mark."""
    scope = str(bound.scope)
    stored = bound.remember(f"We decided that mark-{scope} stays.", tags=[f"mark-{scope}"])
    with (
        bound.run(f"mark-{scope} run", goal=f"mark-{scope} goal") as run,
        run.step("other") as step,
    ):
        bound.compile([*bound.recall(f"mark-{scope}")], budget=300)
    [proposal] = Learning(bound).reflect([stored.id]).proposals
    with pytest.raises(ApprovalRequired) as asked:
        bound.check_tool_call("deploy", {"what": f"mark-{scope}"})
    ids |= {
        stored.id: ("memory_id", scope),
        stored.source_id: ("source_id", scope),
        run.id: ("run_id", scope),
        step.id: ("step_id", scope),
        proposal.id: ("proposal_id", scope),
        asked.value.approvals[0].id: ("approval_id", scope),
        Learning(bound).reflect([stored.id], mode="async").job_id or "": ("job_id", scope),
    }


GIVEN: dict[str, Any] = {
    "reason": "r",
    "changes": {"tags": ["late"]},
    "correction": "mark_stale",
    "query": "mark",
    "text": "mark",
    "decision": "defer",
    "into": "project:hermes",
    "around": "project:apollo",
}
"""Arguments beside ids, for routes that need some."""
UNASKED = (
    # Of the whole tally, for whoever runs it; what users may read of it is asked.
    *(
        each.name
        for each in OPERATIONS.values()
        if each.verb.startswith(("steward.", "comparing.")) and each.effect != "read"
    ),
    "erase",
    "purge",
    "freeze",
    "thaw",
    "choose_windows",
    "doctor",
    "health_scores",
    "sizes",
    "rebuild_index",
    "make_token",
    "tokens",
)
"""Operations of the whole tally, and tokens: the permission matrix has them."""


def about(route: Route, identity: str) -> str:
    """The argument of a route that an id is given as, or an empty text."""
    fields = OPERATIONS[route.operation].arguments.model_fields
    return next((name for name in fields if name in (*KINDS, "before", "after", "sources")), "")


def send(http: httpx2.Client, route: Route, identity: str, **headers: str) -> httpx2.Response:
    """Call a route about an id."""
    fields = OPERATIONS[route.operation].arguments.model_fields
    arguments: dict[str, Any] = {
        name: GIVEN[name] for name, field in fields.items() if field.is_required() and name in GIVEN
    }
    for name in fields:
        if name in (*KINDS, "before", "after"):
            arguments[name] = identity
    if "sources" in fields:
        arguments["sources"] = [identity]
    path = PREFIX + route.path
    for name in [name for name in arguments if f"{{{name}}}" in path]:
        path = path.replace(f"{{{name}}}", str(arguments.pop(name)))
    for name in route.fixed:
        arguments.pop(name, None)
    if route.method in OF_THE_URL:
        return http.request(route.method, path, params=arguments, headers=headers)
    return http.request(route.method, path, json=arguments, headers=headers)


BY_ID = [route for route in ROUTES if about(route, "") and route.operation not in UNASKED]
WHOLE = [
    route
    for route in ROUTES
    if "{" not in route.path and not about(route, "") and route.operation not in UNASKED
]


def told(response: httpx2.Response, scope: str = "-") -> tuple[int, str]:
    """What an answer says, whatever the id, the scope and the entry of the journal."""
    text = response.text if scope == "-" else response.text.replace(scope, "SCOPE")
    return response.status_code, _ID.sub("ID", text)


def require_own(place: Place, caller: str, response: httpx2.Response, given: str = "") -> None:
    """Require that an answer has no mark and no id of a scope that the caller does not see."""
    for scope in SCOPES:
        if scope not in VISIBLE[caller]:
            assert f"mark-{scope} " not in response.text, response.text[:800]
            assert f'mark-{scope}"' not in response.text, response.text[:800]
    for identity, (_, scope) in place.ids.items():
        if scope not in VISIBLE[caller] and identity != given:
            assert identity not in response.text, response.text[:800]


@pytest.mark.parametrize(
    "caller",
    [name if "bounded" in name else pytest.param(name, marks=pytest.mark.slow) for name in VISIBLE],
)
def test_what_has_an_id_elsewhere_is_as_if_it_were_not(place: Place, caller: str) -> None:
    """Of each kind, by each route that takes an id, in any scope that the caller names."""
    http, hidden, shown = place.callers[caller], 0, 0
    for route in BY_ID:
        absent = send(http, route, ABSENT)
        for identity, (_, scope) in place.ids.items():
            if scope in VISIBLE[caller]:
                if OPERATIONS[route.operation].effect == "read":
                    response = send(http, route, identity, **{"tallystick-scope": scope})
                    require_own(place, caller, response)
                    shown += f"mark-{scope}" in response.text
                continue
            response = send(http, route, identity)
            require_own(place, caller, response, identity)
            assert told(response) == told(absent), route
            hidden += 1
    assert hidden > 200
    assert shown > 3


@pytest.mark.parametrize("caller", VISIBLE)
def test_what_is_searched_and_listed_is_ones_own(place: Place, caller: str) -> None:
    """By each route without an id, without a scope, in each that is one's own and in each other."""
    http, seen = place.callers[caller], set[str]()
    for route in WHOLE:
        for scope in (None, *SCOPES):
            response = send(http, route, "", **({"tallystick-scope": scope} if scope else {}))
            require_own(place, caller, response)
            seen |= {name for name in VISIBLE[caller] if f"mark-{name}" in response.text}
            if scope is not None and scope not in VISIBLE[caller]:
                other = f"{scope.split(':')[0]}:nobody"
                nowhere = send(http, route, "", **{"tallystick-scope": other})
                assert told(response, scope) == told(nowhere, other), route
    assert seen == VISIBLE[caller]
