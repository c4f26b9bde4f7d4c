"""Who may do what over HTTP: every operation for every class of token, and nothing of others."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.scripted import concluder

from tallystick import Actor
from tallystick.errors import ApprovalRequired
from tallystick.operations import OPERATIONS
from tallystick.recorder import Step
from tallystick.settings import Settings
from tallystick_server.routes import PREFIX, ROUTES, Route

from .served import ADA, ASKING, BOB, ROOT, Served, served

DOCS = Path(__file__).parents[2] / "docs"
DENIALS = ("denied", "not_found", "action_denied")
EVE = Actor(user="eve")

CALLERS: Mapping[str, dict[str, Any] | None] = {
    "the socket": None,
    "a session of the owner": {"actor": ROOT, "token_class": "session"},
    "an operator": {"actor": ROOT},
    "the user": {"actor": ADA},
    "a session of the user": {"actor": ADA, "token_class": "session"},
    "an agent of the user": {"actor": ADA.replace(agent="coder")},
    "the user, to read": {
        "actor": ADA,
        "token_class": "scoped",
        "operations": ["read", "inspect"],
    },
    "the user, in a project": {
        "actor": ADA,
        "token_class": "scoped",
        "scopes": ["project:apollo"],
    },
    "another user": {"actor": BOB},
}
"""The callers of the matrix, each with how its token is made."""
REFLECTING = Settings(reflection="review")


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(
        tmp_path_factory.mktemp("served"),
        rules=[ASKING],
        settings=REFLECTING,
        extractor=concluder(),
    ) as there:
        yield there


SCOPES: Mapping[str, str] = {
    "private:ada": "On what the user Ada has in her private scope",
    "project:apollo": "On what Ada stored in the project apollo, by calls in its scope",
}
"""The scopes of the matrix, each with what the page says of it. Of the callers Ada and her agents
are members of the project, the operators and the other user are not.
"""


class World:
    """What one caller's calls are about: everything was made by Ada, in one scope."""

    def __init__(self, there: Served, scope: str = "private:ada") -> None:
        self.scope = scope
        self.ada, self.root = there.tally.bind(ADA, scope), there.tally.bind(ROOT)
        # A member of a project decides nothing there.
        self.steward = self.ada if scope == "private:ada" else there.tally.bind(ROOT, scope)
        self.memory = self.ada.remember(f"The heron nests in March. {there.tally.new_id()}")

    @cached_property
    def forgotten(self) -> str:
        memory_id = self.ada.remember(f"The heron left. {self.memory.id}").id
        self.ada.forget(memory_id, reason="r")
        return memory_id

    @cached_property
    def step(self) -> Step:
        with self.ada.run("coder", goal="Mend it.") as run, run.step("model_call") as step:
            self.ada.compile([*self.ada.recall("heron")], budget=300)
            step.record("request", {"prompt": "x"})
            step.record("response", {"text": "y"})
        return step

    @cached_property
    def approval(self) -> str:
        with pytest.raises(ApprovalRequired) as blocked:
            self.ada.check_tool_call(f"tool-{self.memory.id}")
        return blocked.value.approvals[0].id

    @cached_property
    def proposal(self) -> str:
        text = f"We decided to feed the heron at noon. {self.memory.id}"
        [made] = self.ada.reflect([self.ada.remember(text).id]).proposals
        return made.id

    @cached_property
    def granted(self) -> str:
        return self.steward.approve(self.approval, reason="r").id

    @cached_property
    def space(self) -> str:
        scope = f"team:{self.memory.id}"
        self.root.spaces.create(scope, name="Birds", reason="r")
        return scope

    def arguments(self, operation: str) -> dict[str, Any]:
        """Arguments with which the operation does what it is for."""
        given: dict[str, Callable[[], Any]] = {
            "memory_id": lambda: self.memory.id,
            "source_id": lambda: self.memory.source_id,
            "run_id": lambda: self.step.run.id,
            "step_id": lambda: self.step.id,
            "before": lambda: self.step.id,
            "after": lambda: self.step.id,
            "approval_id": lambda: self.approval,
            "proposal_id": lambda: self.proposal,
            "job_id": lambda: self.ada.replay_later(self.step.id).id,
            "token_id": lambda: self.ada.tokens.make("t").id,
            "scope": lambda: self.space,
            "memory_ids": lambda: [self.memory.id],
            "actor": lambda: {"user": "ada"},
            "items": lambda: [{"content": "One of several."}],
            "changes": lambda: {"tags": ["late"]},
            "correction": lambda: "mark_stale",
            "into": lambda: "project:apollo" if self.scope == "private:ada" else "private:ada",
        }
        special: dict[str, Callable[[], dict[str, Any]]] = {
            "recover": lambda: {"memory_id": self.forgotten},
            "prove_unreachable": lambda: {"memory_id": self.forgotten},
            "modify_many": lambda: {
                "items": [{"memory_id": self.memory.id, "reason": "r", "tags": ["late"]}]
            },
            "forget_matching": lambda: {"query": "heron"},
            "create_space": lambda: {"scope": f"team:{self.memory.id}-new"},
            "update_space": lambda: {"changes": {"description": "d"}},
            "erase": lambda: {"mode": "apply"},
            "erase_recorded": lambda: {"mode": "apply"},
            "purge": lambda: {"mode": "apply"},
            "choose_windows": lambda: {"done_jobs_days": 14},
            "revoke": lambda: {"approval_id": self.granted},
            "explore": lambda: {"around": self.memory.id},
            "make_token": lambda: {"actor": {"user": "ada"}},
            "reflect": lambda: {"sources": [self.memory.id]},
            "review": lambda: {"decision": "defer"},
            "preview_access": lambda: {"scopes": [self.scope]},
            "preview_member": lambda: {"member": {"principal_id": "eve"}},
            "retry_jobs": lambda: {"job_ids": [self.ada.replay_later(self.step.id).id]},
        }
        fields = OPERATIONS[operation].arguments.model_fields
        chosen = {
            name: given.get(name, lambda: "r")()
            for name, field in fields.items()
            if field.is_required()
        }
        return {**chosen, **special.get(operation, dict)()}

    def send(self, http: httpx2.Client, route: Route) -> httpx2.Response:
        arguments = self.arguments(route.operation)
        path = PREFIX + route.path
        for name in re.findall(r"{(\w+)(?::path)?}", route.path):
            path = re.sub(rf"{{{name}(:path)?}}", str(arguments.pop(name)), path)
        for name in route.fixed:
            arguments.pop(name, None)
        # In the private scope the caller names none: what Ada has is named by its ids.
        headers = {} if self.scope == "private:ada" else {"Tallystick-Scope": self.scope}
        if route.method in ("GET", "DELETE"):
            return http.request(route.method, path, params=arguments, headers=headers)
        return http.request(route.method, path, json=arguments, headers=headers)


def outcome(response: httpx2.Response) -> str:
    """`yes`, the reason of a refusal, or `not found`, which a caller who may not see gets too."""
    if response.status_code < 300:
        return "yes"
    told = response.json()
    if told["code"] == "state_conflict":
        return "yes"  # the caller may, and there is nothing to be done
    assert told["code"] in DENIALS, response.text
    if told["code"] == "not_found":
        return "not found"
    return str(told["facts"]["reason"])


def matrix(there: Served, scope: str) -> dict[str, list[str]]:
    """The outcome of every operation for every caller, on what Ada made in a scope."""
    callers = [
        there.socket() if options is None else there.http(there.token(**options))
        for options in CALLERS.values()
    ]
    rows: dict[str, list[str]] = {}
    for route in ROUTES:
        row: list[str] = []
        world = World(there, scope)
        for http in callers:
            row.append(outcome(world.send(http, route)))
            if route.operation == "freeze" and row[-1] == "yes":
                there.tally.bind(ROOT).operator.thaw(reason="for the others")
            if row[-1] == "yes" and OPERATIONS[route.operation].effect != "read":
                world = World(there, scope)  # what was done would change the next answer
        rows[route.operation] = row
    return rows


def table(rows: Mapping[str, list[str]]) -> str:
    """The matrix as the page shows it."""
    lines = ["| operation | " + " | ".join(CALLERS) + " |", "| --- |" + " --- |" * len(CALLERS)]
    for name, row in rows.items():
        cells = [cell if cell in ("yes", "not found") else f"`{cell}`" for cell in row]
        lines.append(f"| `{name}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def test_the_permission_matrix_in_the_docs_is_what_the_server_does(there: Served) -> None:
    """Set WRITE_PERMISSION_MATRIX to write it."""
    page = DOCS / "server.md"
    made = "\n\n".join(
        f"{told}:\n\n{table(matrix(there, scope))}" for scope, told in SCOPES.items()
    )
    text = page.read_text(encoding="utf-8")
    start, end = "<!-- matrix -->\n", "\n<!-- /matrix -->"
    if os.environ.get("WRITE_PERMISSION_MATRIX"):
        head, tail = text.split(start)[0], text.split(end)[1]
        page.write_text(f"{head}{start}{made}{end}{tail}", encoding="utf-8")
        text = page.read_text(encoding="utf-8")

    assert text.split(start)[1].split(end)[0] == made


def test_an_open_run_takes_nothing_from_a_token_that_may_not_record(there: Served) -> None:
    """The bounds of the token that calls count, whichever token of the user started the run."""
    full = there.http(there.token())
    run_id = full.post("/v1/runs", json={"agent_name": "coder"}).json()["result"]["run_id"]
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


def test_a_run_that_is_open_is_not_replaced_by_another_of_its_id(there: Served) -> None:
    ada, bob = there.http(there.token()), there.http(there.token(BOB))
    run_id = ada.post("/v1/runs", json={"agent_name": "coder"}).json()["result"]["run_id"]
    taken = bob.post("/v1/runs", json={"agent_name": "coder", "run_id": run_id})

    assert taken.json()["code"] == "invalid_input"
    assert ada.post(f"/v1/runs/{run_id}/steps", json={"kind": "other"}).status_code == 200
    assert ada.post(f"/v1/runs/{run_id}/end", json={}).status_code == 200


CANARY = re.compile(r"canary-(\w+)-\d+")


def test_random_callers_never_see_what_others_keep(there: Served, request: Any) -> None:
    """Writes, reads and changes of three users, an agent and an operator, interleaved: no byte of
    an answer has what another keeps in private, and ids of others are like ids of nobody.
    """
    soaks = request.config.getoption("--hypothesis-profile") == "soak"
    chance = random.Random(random.SystemRandom().randrange(2**32) if soaks else 11)
    actors = {"ada": ADA, "bob": BOB, "eve": EVE, "root": ROOT, "agent": BOB.replace(agent="x")}
    clients = {name: there.http(there.token(actor)) for name, actor in actors.items()}
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
