"""Isolation over MCP: whatever several callers do, no answer shows anybody what is not theirs.

Each text carries a mark of its scope, and each id is known to the scope that it was made in, so
that a leak is seen wherever it comes out: hits, lists, links, previews, histories or errors.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from contextlib import AsyncExitStack
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from mcp import Client
from mcp.shared.exceptions import MCPError
from tests.integrations.mcp_clients import ERAS

from tallystick import Actor
from tallystick.records import Credential, Scope
from tallystick.tally import Tally
from tallystick_mcp import serve
from tallystick_mcp.routes import EXPLORE

ANN = Actor(user="ann", projects={"apollo", "hermes"})
BOB = Actor(user="bob", projects={"hermes"})
APOLLO, HERMES = "project:apollo", "project:hermes"


def bounded(actor: Actor, *scopes: str) -> Actor:
    return actor.replace(credential=Credential(scopes=tuple(map(Scope.parse, scopes))))


CALLERS: dict[str, tuple[Actor, list[str] | None, set[str]]] = {
    "ann": (ANN, None, {"private:ann", APOLLO, HERMES}),
    "ann in apollo": (ANN, [APOLLO], {APOLLO}),
    "ann with a token for hermes": (bounded(ANN, HERMES), None, {HERMES}),
    "bob": (BOB, None, {"private:bob", HERMES}),
    "bob at home": (BOB, ["private:bob"], {"private:bob"}),
}
"""The callers, how they are bounded, and what they may see."""

_callers = st.sampled_from(sorted(CALLERS))
_projects = st.sampled_from([None, "apollo", "hermes", "private:ann", "private:bob", "nowhere"])
_places = st.integers(0, 30)
_actions = st.one_of(
    st.tuples(st.just("add"), _callers, _projects, st.none(), st.none()),
    st.tuples(st.just("search"), _callers, _projects, st.booleans(), st.none()),
    st.tuples(st.just("explore"), _callers, _projects, st.sampled_from(sorted(EXPLORE)), _places),
    st.tuples(
        st.just("manage"),
        _callers,
        _projects,
        st.sampled_from(["modify", "forget", "recover", "correct", "pin", "forget_matching"]),
        _places,
    ),
    st.tuples(st.just("read"), _callers, st.none(), st.none(), _places),
)


@settings(max_examples=max(6, settings().max_examples // 12))
@given(st.lists(_actions, min_size=8, max_size=25))
def test_no_answer_shows_anybody_what_is_not_theirs(actions: list[Any]) -> None:
    asyncio.run(_act(actions))


async def _act(actions: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder, Tally.open(folder, background=False) as tally:
        ids: dict[str, str] = {}
        for actor, _, visible in CALLERS.values():
            plain = actor.replace(credential=None)
            for scope in sorted(visible):
                stored = tally.bind(plain, scope).remember(f"mark-{scope} of a first note")
                ids[stored.id] = scope
        async with AsyncExitStack() as stack:
            clients = {}
            for place, (name, (actor, scopes, _)) in enumerate(sorted(CALLERS.items())):
                server = serve(tally, actor=actor, scopes=scopes)
                clients[name] = await stack.enter_async_context(
                    Client(server, mode=ERAS[place % 2])
                )
            for number, (tool, caller, project, what, place) in enumerate(actions):
                identity = sorted(ids)[place % len(ids)] if place is not None else ""
                answers = await _call(clients[caller], tool, project, what, identity, number)
                visible = CALLERS[caller][2]
                for answer in answers:
                    _learn(ids, answer)
                    _require_own(json.dumps(answer), visible, ids, identity)


async def _call(
    client: Client, tool: str, project: str | None, what: Any, identity: str, number: int
) -> list[dict[str, Any]]:
    """The answers of one action: of a change its preview, and the change with the token."""
    where = {} if project is None else {"project": project}
    if tool == "read":
        try:
            read = await client.read_resource(f"tally://memory/{identity}")
        except MCPError as error:
            return [{"error": str(error)}]
        return [{"text": read.contents[0].text}]  # type: ignore[union-attr]
    arguments: dict[str, Any] = {**where}
    if tool == "add":
        arguments["content"] = f"note {number}"
    elif tool == "search":
        arguments |= {"query": "mark of a first note"} if what else {}
    elif tool == "explore":
        arguments["mode"] = what
        arguments |= {"id": identity} if "id" in EXPLORE[what].arguments else {}
        arguments |= {"query": "mark"} if "query" in EXPLORE[what].arguments else {}
    else:
        arguments |= {"action": what, "reason": "because"}
        if what == "forget_matching":
            arguments["query"] = "mark of a first note"
        else:
            arguments["id"] = identity
        arguments |= {"changes": {"tags": [f"t{number}"]}} if what == "modify" else {}
        arguments |= {"correction": "mark_stale"} if what == "correct" else {}
    answer = (await client.call_tool(tool, arguments)).structured_content
    answers = [answer]
    token = (answer.get("preview") or {}).get("confirm_token")
    if token is not None:
        confirmed = {**arguments, "mode": "apply", "confirm_token": token}
        answers.append((await client.call_tool(tool, confirmed)).structured_content)
    return answers


def _learn(ids: dict[str, str], answer: dict[str, Any]) -> None:
    if answer.get("status") == "created":
        ids[answer["id"]] = answer["scope"]


def _require_own(text: str, visible: set[str], ids: dict[str, str], given_id: str) -> None:
    for identity, scope in ids.items():
        if scope not in visible:
            assert f"mark-{scope} " not in text, text
            assert identity == given_id or identity not in text, text
