"""Who may do what, everywhere: each way into a tally over HTTP, the dashboard and MCP, and the
answer of each to every class of caller.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

import httpx2
import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult

from tallystick.errors import ApprovalRequired
from tallystick.operations import OPERATIONS
from tallystick.recorder import Step
from tallystick.records import Credential, PolicyConditions
from tallystick.settings import Settings
from tallystick.tally.services import services_of
from tallystick_ingest import Ingest
from tallystick_learning import Learning
from tallystick_mcp import TallyServer
from tallystick_mcp import serve as serve_mcp
from tallystick_mcp.arguments import ExploreMode, ManageAction
from tallystick_mcp.callers import caller_of
from tallystick_mcp.routes import MANAGE
from tallystick_server.dashboard.application import ROUTES as PAGES
from tallystick_server.routes import OWN, PREFIX, ROUTES, Route
from tallystick_synthesis import Synthesis

from .mcp_clients import connected
from .served import ADA, ASKING, BOB, ROOT, Served

ASKING_DEPLOYS = ASKING.model_copy(update={"conditions": PolicyConditions(tool=("deploy",))})
DENIALS = ("denied", "not_found", "action_denied", "run_closed")
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
SCOPES: Mapping[str, str] = {
    "private:ada": "On what the user Ada has in her private scope",
    "project:apollo": "On what Ada stored in the project apollo, by calls in its scope",
}
"""The scopes of the matrix, each with what the page says of it. Of the callers Ada and her agents
are members of the project, the operators and the other user are not.
"""


SOURCE = "tests.core.ingest.folder_source:Folder"


def matrix_settings(folder: Path) -> Settings:
    """Return the settings of a tally in which every operation has something to do."""
    (folder / "heron.md").write_text("The heron nests in March.")
    return Settings(
        reflection="review",
        graph=True,
        source_roots=(folder,),
        sources={"folder": SOURCE, "crawl": SOURCE},
        served_sources=("folder", "crawl"),
    )


class World:
    """What one caller's calls are about: everything was made by Ada, in one scope."""

    def __init__(self, there: Served, owner: httpx2.Client, scope: str) -> None:
        self.scope, self.owner = scope, owner
        self.ada, self.root = there.tally.bind(ADA, scope), there.tally.bind(ROOT)
        # A member of a project decides nothing there.
        self.steward = self.ada if scope == "private:ada" else there.tally.bind(ROOT, scope)
        self.folder = str(services_of(there.tally).settings.source_roots[0])
        self.ingest = Ingest(there.tally.bind(ADA))
        self.memory = self.ada.remember(f"The heron nests in March. {there.tally.new_id()}")
        self.drain = there.tally.drain

    @cached_property
    def imported(self) -> str:
        """An import of Ada, which is private."""
        return self.ingest.start_import(self.folder, adapter="folder").id

    @cached_property
    def document(self) -> str:
        return Ingest(self.ada).add_document("The heron nests in March.", name=self.memory.id).id

    @cached_property
    def forgotten(self) -> str:
        memory_id = self.ada.remember(f"The heron left. {self.memory.id}").id
        self.ada.forget(memory_id, reason="r")
        return memory_id

    def names(self) -> dict[str, Any]:
        """Two names that the graph has."""
        self.ada.remember("Heron and Egret came.", entities=("Heron", "Egret"))
        self.drain()
        return {"name": "Heron", "other": "Egret"}

    @cached_property
    def task(self) -> str:
        return self.ada.remember(f"Feed the heron. {self.memory.id}", kind="task").id

    @cached_property
    def synthesis(self) -> str:
        synthesis = Synthesis(self.ada)
        run = synthesis.plan("Where does the heron nest?")
        synthesis.sections(run.id)
        synthesis.draft(run.id)
        return synthesis.verify(run.id).id

    @cached_property
    def plan(self) -> str:
        steps: Any = {"steps": ["Fish."]}
        text = f"Feed it daily. {self.memory.id}"
        return self.ada.remember(text, kind="plan", attributes=steps).id

    @cached_property
    def step(self) -> Step:
        task = {"thread_id": "t", "langgraph_checkpoint_ns": "node:task"}
        with (
            self.ada.run("coder", goal="Mend it.") as run,
            run.step("model_call", metadata=task) as step,
        ):
            self.ada.compile([*self.ada.recall("heron")], budget=300)
            step.record("request", {"prompt": "x"})
            step.record("response", {"text": "y"})
        return step

    @cached_property
    def open_run(self) -> str:
        """A run that Ada started over HTTP, and that goes on."""
        started = self.owner.post(
            "/v1/runs", json={"agent_name": "coder"}, headers={"tallystick-scope": self.scope}
        )
        run_id = str(started.json()["result"]["id"])
        self.owner.post(f"/v1/runs/{run_id}/steps", json={"kind": "other"})
        return run_id

    @cached_property
    def open_step(self) -> str:
        """A step of that run, which goes on."""
        opened = self.owner.post(
            f"/v1/runs/{self.open_run}/steps", json={"kind": "other", "open": True}
        )
        return str(opened.json()["result"]["id"])

    @cached_property
    def job(self) -> str:
        return self.ada.recordings.replay_later(self.step.id).id

    @cached_property
    def ended_job(self) -> str:
        job_id = self.ada.recordings.replay_later(self.step.id).id
        self.ada.jobs.cancel(job_id, reason="r")
        return job_id

    @cached_property
    def approval(self) -> str:
        with pytest.raises(ApprovalRequired) as blocked:
            self.ada.check_tool_call("deploy", {"to": self.memory.id})
        return blocked.value.approvals[0].id

    @cached_property
    def proposal(self) -> str:
        text = f"We decided to feed the heron at noon. {self.memory.id}"
        [made] = Learning(self.ada).reflect([self.ada.remember(text).id]).proposals
        return made.id

    @cached_property
    def granted(self) -> str:
        return self.steward.approvals.approve(self.approval, reason="r").id

    @cached_property
    def space(self) -> str:
        scope = f"team:{self.memory.id}"
        self.root.spaces.create(scope, name="Birds", reason="r")
        return scope

    @cached_property
    def entry(self) -> str:
        entries = self.ada.recordings.entries(self.step.id)
        return str(next(entry.position for entry in entries if entry.kind == "response"))

    def arguments(self, operation: str) -> dict[str, Any]:
        """Arguments with which the operation does what it is for."""
        given: dict[str, Callable[[], Any]] = {
            "memory_id": lambda: self.memory.id,
            "source_id": lambda: self.memory.source_id,
            "task_id": lambda: self.task,
            "plan_id": lambda: self.plan,
            "synthesis_id": lambda: self.synthesis,
            "number": lambda: 1,
            "blocker": lambda: "The river is frozen.",
            "run_id": lambda: self.step.run.id,
            "step_id": lambda: self.step.id,
            "before": lambda: self.step.id,
            "after": lambda: self.step.id,
            "approval_id": lambda: self.approval,
            "proposal_id": lambda: self.proposal,
            "job_id": lambda: self.job,
            "token_id": lambda: self.ada.tokens.make("t").id,
            "scope": lambda: self.space,
            "domain": lambda: "queue",
            "analysis": lambda: "usage",
            "work": lambda: "embed",
            "subject": lambda: self.memory.id,
            "act": lambda: "none",
            "since": lambda: 1,
            "import_id": lambda: self.imported,
            "document_id": lambda: self.document,
            "target": lambda: self.folder,
            "adapter": lambda: "folder",
            "record_id": lambda: "heron.md",
            "memory_ids": lambda: [self.memory.id],
            "actor": lambda: {"user": "ada"},
            "items": lambda: [{"content": "One of several."}],
            "changes": lambda: {"tags": ["late"]},
            "correction": lambda: "mark_stale",
            "into": lambda: "project:apollo" if self.scope == "private:ada" else "private:ada",
        }
        special: dict[str, Callable[[], dict[str, Any]]] = {
            "recover_many": lambda: {"by_actor": "nobody", "since": 1},
            # An action rests, but for another target.
            "repair": lambda: {"action": "release_lease", "target": self.memory.id},
            "add_document": lambda: {"content": "The tide turns.", "name": "tide"},
            "recover": lambda: {"memory_id": self.forgotten},
            "prove_unreachable": lambda: {"memory_id": self.forgotten},
            "modify_many": lambda: {
                "items": [{"memory_id": self.memory.id, "reason": "r", "tags": ["late"]}]
            },
            "forget_matching": lambda: {"query": "heron"},
            "create_space": lambda: {"scope": f"team:{self.memory.id}-new"},
            "update_space": lambda: {"changes": {"description": "d"}},
            "erase": lambda: {"mode": "apply"},
            "erase_user": lambda: {"user": "ada", "mode": "apply"},
            "erase_recorded": lambda: {"mode": "apply"},
            "purge": lambda: {"mode": "apply", "reason": "r"},
            "choose_windows": lambda: {"done_jobs_days": 14},
            "revoke": lambda: {"approval_id": self.granted},
            "explore": lambda: {"around": self.memory.id},
            "make_token": lambda: {"actor": {"user": "ada"}},
            "reflect": lambda: {"sources": [self.memory.id]},
            "review": lambda: {"decision": "defer"},
            "preview_access": lambda: {"scopes": [self.scope]},
            "preview_member": lambda: {"member": {"principal_id": "eve"}},
            "keep_apart": self.names,
            "synthesize_plan": lambda: {"query": "Where does the heron nest?"},
            "working_set": lambda: {"name": "plan", "thread": "t"},
            "working_get": lambda: {"name": "plan", "thread": "t"},
            "working_list": lambda: {"thread": "t"},
            "working_drop": lambda: {"name": "plan", "thread": "t"},
            "retry_jobs": lambda: {"job_ids": [self.ada.recordings.replay_later(self.step.id).id]},
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


@dataclass(frozen=True)
class Visitor:
    """One caller, on every surface."""

    http: httpx2.Client
    mcp: TallyServer
    form_key: str


def visitor(there: Served, options: dict[str, Any] | None) -> Visitor:
    """A caller of the matrix: with a token, or through the socket."""
    secret = None if options is None else there.token(**options)
    http = there.socket() if secret is None else there.http(secret)
    if secret is None:
        actor = ROOT.replace(surface="mcp", credential=Credential())
    else:
        actor = there.tally.authenticate(secret).caller("mcp")
    caller = caller_of(there.tally, actor)
    # Programs confirm what they previewed, and the application has asked for agents: what remains
    # is what the caller may do.
    server = serve_mcp(there.tally, callers=lambda _: caller, person=True, approval="elsewhere")
    key = re.search(r'name="form_key" value="(\w+)"', http.get("/ui/health").text)
    assert key is not None
    return Visitor(http, server, key[1])


Way = Callable[[World, Visitor], str]
"""One way in, which a visitor takes: the outcome."""


def outcome(response: httpx2.Response) -> str:
    """`yes`, the reason of a refusal, or `not found`, which a caller who may not see gets too."""
    if response.status_code < 300:
        return "yes"
    problem = response.json()
    return _reason(problem["code"], problem["facts"], response.text)


def _reason(code: str, facts: Mapping[str, Any], text: str) -> str:
    if code in ("state_conflict", "egress_denied"):
        return "yes"  # the caller may, and there is nothing to be done, or no model to do it
    assert code in DENIALS, text
    if code in ("not_found", "run_closed"):
        return code.replace("_", " ")
    return str(facts["reason"])


def _filled(
    fields: Mapping[str, Callable[[World], dict[str, Any]]], name: str, world: World
) -> dict[str, Any]:
    """The fields that a way of this name sends, or none."""
    return fields[name](world) if name in fields else {}


def way_of_operation(route: Route) -> Way:
    return lambda world, visitor: outcome(world.send(visitor.http, route))


# Routes of the server that are no operation

_BODIES: Mapping[str, Callable[[World], Any]] = {
    "POST /context/compile": lambda world: {
        "items": [{"id": "t", "kind": "user_msg", "content": "When?"}],
        "budget": 300,
    },
    "POST /model/call": lambda world: {
        "provider": "unlisted",
        "model": "m",
        "step_id": world.step.id,
    },
    "POST /policy/check": lambda world: {"kind": "model_call", "arguments": {}},
    "POST /runs": lambda world: {"agent_name": "coder"},
    "POST /runs/{run_id}/steps": lambda world: {"kind": "other"},
    "POST /runs/{run_id}/end": lambda world: {},
    "POST /steps/{step_id}/entries": lambda world: {"entries": [{"kind": "note"}]},
    "POST /steps/{step_id}/end": lambda world: {},
    "POST /tools/result": lambda world: {"run_id": world.open_run, "name": "ls", "result": "a"},
    "POST /items": lambda world: {"puts": [{"namespace": ["n"], "key": "k", "value": {"a": 1}}]},
    "POST /items/get": lambda world: {"addresses": [[["n"], "k"]]},
    "POST /items/find": lambda world: {},
    "POST /items/namespaces": lambda world: None,
    "POST /items/sweep": lambda world: None,
    "POST /frames": lambda world: {"texts": ["The heron."]},
    "POST /hooks/{event}": lambda world: {
        "payload": {"session": "s"},
        "scope": None if world.scope == "private:ada" else world.scope,
    },
    "POST /tools/{name}": lambda world: {"query": "heron"},
}
"""What is sent, where there is a body."""


def way_of_own(place: str) -> Way:
    method, path = place.split(" ")

    def walk(world: World, visitor: Visitor) -> str:
        is_open = place in ("POST /runs/{run_id}/steps", "POST /runs/{run_id}/end")
        run_id = world.open_run if is_open else world.step.run.id
        parts = {
            "run_id": run_id,
            "step_id": world.open_step if "{step_id}" in place else "",
            "job_id": world.ended_job,
            "event": "session-start",
            "name": "memory_search",
        }
        has_scope = world.scope == "private:ada" or place == "POST /hooks/{event}"
        headers = {} if has_scope else {"tallystick-scope": world.scope}
        body = _BODIES[place](world) if place in _BODIES else None
        options: dict[str, Any] = {} if body is None else {"json": body}
        if place == "GET /events/stream":
            options["params"] = {"follow": False}
        response = visitor.http.request(
            method, PREFIX + path.format(**parts), headers=headers, **options
        )
        return outcome(response)

    return walk


# Pages of the dashboard

_QUERIES: Mapping[str, Callable[[World], dict[str, Any]]] = {
    "GET /find": lambda world: {"id": world.step.run.id},
    "GET /diff": lambda world: {"before": world.step.id, "after": world.step.id},
    "GET /spaces/access": lambda world: {"user": "ada"},
    "GET /steps/{step_id}/trace": lambda world: {"text": "heron"},
    "GET /policy": lambda world: {"tool": "deploy"},
}
_FORMS: Mapping[str, Callable[[World], dict[str, Any]]] = {
    "POST /syntheses": lambda world: {"query": "heron"},
    "POST /syntheses/{synthesis_id}": lambda world: {"action": "verify"},
    "POST /source-imports/{import_id}": lambda world: {"action": "pause"},
    "POST /make/{making}": lambda world: {"mode": "apply", "content": "The heron is grey."},
    "POST /jobs/retry": lambda world: {"job_id": world.job, "reason": "r"},
    "POST /jobs/cancel": lambda world: {"job_id": world.job},
    "POST /tokens/revoke": lambda world: {"token_id": world.ada.tokens.make("t").id},
    "POST /approvals/{approval_id}": lambda world: {"decision": "approve"},
    "POST /reviews/{proposal_id}": lambda world: {"decision": "defer"},
    "POST /steps/{step_id}/replay": lambda world: {"how": "exact"},
}


def way_of_page(place: str) -> Way:
    method, path = place.split(" ")

    def walk(world: World, visitor: Visitor) -> str:
        given: dict[str, Callable[[], str]] = {
            "memory_id": lambda: world.memory.id,
            "source_id": lambda: world.memory.source_id,
            "run_id": lambda: world.step.run.id,
            "step_id": lambda: world.step.id,
            "approval_id": lambda: world.approval,
            "proposal_id": lambda: world.proposal,
            "job_id": lambda: world.job,
            "import_id": lambda: world.imported,
            "document_id": lambda: world.document,
            "synthesis_id": lambda: world.synthesis,
            "change": lambda: "hide",
            "making": lambda: "remember",
            "number": lambda: world.entry if "/entries/" in path else "1",
        }
        names = re.findall(r"{(\w+)}", path)
        address = "/ui" + path.format(**{name: given[name]() for name in names})
        where = {} if world.scope == "private:ada" else {"scope": world.scope}
        if method == "GET":
            query = where | _filled(_QUERIES, place, world)
            response = visitor.http.get(address, params=query)
        else:
            form = where | {"form_key": visitor.form_key, "reason": "r"}
            form |= _filled(_FORMS, place, world)
            file = {"file": ("heron.md", b"The heron is grey.")} if path.endswith("/file") else None
            response = visitor.http.post(address, data=form, files=file)
        if response.status_code in (200, 303, 409):
            return "yes"
        assert response.status_code in (403, 404), (place, response.text)
        return "refused" if response.status_code == 403 else "not found"

    return walk


def places_of_pages() -> list[str]:
    """Every page of the dashboard and every form; the one that ends a session comes last."""
    places = [
        f"{method} {page.path}" for page in PAGES for method in (page.methods or set()) - {"HEAD"}
    ]
    return sorted(places, key=lambda place: place == "POST /sign-out")


# MCP

_SUBJECTS: Mapping[str, Callable[[World], Any]] = {
    **dict.fromkeys(
        ("related", "dependencies", "get", "inspect", "history", "uses"),
        lambda world: world.memory.id,
    ),
    **dict.fromkeys(
        ("modify", "forget", "correct", "promote", "share", "pin", "unpin"),
        lambda world: world.memory.id,
    ),
    **dict.fromkeys(
        (
            "start_task",
            "block_task",
            "unblock_task",
            "submit_review",
            "complete_task",
            "archive",
            "estimate",
        ),
        lambda world: world.task,
    ),
    "link_alike": lambda world: world.memory.id,
    **dict.fromkeys(
        (
            "synthesize_draft",
            "synthesize_verify",
            "synthesis",
        ),
        lambda world: world.synthesis,
    ),
    **dict.fromkeys(("accept", "defer", "reject", "undo"), lambda world: world.proposal),
    **dict.fromkeys(("receipt", "why", "trace", "replay"), lambda world: world.step.id),
    **dict.fromkeys(("steps", "verify"), lambda world: world.step.run.id),
    **dict.fromkeys(("working", "hold"), lambda _: "t"),
    "source": lambda world: world.memory.source_id,
    "recover": lambda world: world.forgotten,
    **dict.fromkeys(("refresh", "import_status"), lambda world: world.imported),
}
"""What `id` is, by mode or action."""
_MORE: Mapping[str, Callable[[World], dict[str, Any]]] = {
    "about": lambda world: {"query": world.names()["name"]},
    "context": lambda world: {"query": "heron"},
    "trace": lambda world: {"query": "heron"},
    "policy": lambda world: {"query": "deploy"},
    "crawl": lambda world: {"query": world.folder},
    "sync": lambda world: {"query": world.folder, "field": "folder"},
    "hold": lambda world: {"field": "plan", "replacement": "mend it"},
    "modify": lambda world: {"changes": {"tags": ["late"]}},
    "synthesize_plan": lambda world: {"query": "heron"},
    "block_task": lambda world: {"by": "The river is frozen."},
    "forget_matching": lambda world: {"query": "heron"},
    "correct": lambda world: {"correction": "mark_stale"},
    **dict.fromkeys(
        ("promote", "share"), lambda world: {"into": world.arguments("promote")["into"]}
    ),
}
_REASONED = frozenset(get_args(ManageAction)) - {
    *("hold", "replay", "health", "stats", "crawl", "sync", "refresh", "import_status"),
    *("estimate", "prioritize", "detect_cycles"),
    *("synthesize_plan", "synthesize_draft", "synthesize_verify"),
}
_PREVIEWED = ("forget_matching", "correct", "promote", "share")
RESOURCES: Mapping[str, Callable[[World], str]] = {
    "tally://memory/{id}": lambda world: world.memory.id,
    "tally://source/{id}": lambda world: world.memory.source_id,
    "tally://run/{id}": lambda world: world.step.run.id,
    "tally://run/{id}/artifacts": lambda world: world.step.run.id,
    "tally://step/{id}/receipt": lambda world: world.step.id,
    "tally://context/{scope}": lambda world: world.scope,
    "tally://files/{+path}": lambda world: (
        "memories/notes.md"
        if world.scope == "private:ada"
        else f"memories/projects/{world.scope.partition(':')[2]}/notes.md"
    ),
}
PROMPTS: Mapping[str, dict[str, str]] = {
    "recall_first": {"request": "heron"},
    "hand_over": {},
    "review_memory": {},
}
MCP_CALLS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "search": ("search", {"query": "heron"}),
    "search, without words": ("search", {}),
    **{f"explore {mode}": ("explore", {"mode": mode}) for mode in get_args(ExploreMode)},
    "add": ("add", {"content": "The tide turns."}),
    **{f"manage {action}": ("manage", {"action": action}) for action in get_args(ManageAction)},
}


def way_of_tool(tool: str, fixed: Mapping[str, Any]) -> Way:
    def walk(world: World, visitor: Visitor) -> str:
        name = str(fixed.get("mode") or fixed.get("action"))
        arguments = {**fixed, **_filled(_MORE, name, world)}
        if name in _SUBJECTS:
            arguments["id"] = _SUBJECTS[name](world)
        if "action" in fixed and name in _REASONED:
            arguments["reason"] = "r"
        if world.scope != "private:ada":
            arguments["project"] = world.scope
        try:
            answer = asyncio.run(visitor.mcp.call_tool(tool, arguments))
            assert isinstance(answer, CallToolResult)
            asks = "action" in fixed and MANAGE[name].asks
            if asks and name not in _PREVIEWED and not answer.is_error:
                preview = (answer.structured_content or {})["preview"]
                token = preview.get("confirm_token")
                arguments |= {"mode": "apply"} | ({"confirm_token": token} if token else {})
                answer = asyncio.run(visitor.mcp.call_tool(tool, arguments))
        except MCPError as error:
            return _of_mcp(error)
        assert isinstance(answer, CallToolResult)
        if not answer.is_error:
            return "yes"
        assert answer.structured_content is not None
        refusal = answer.structured_content["error"]
        return _reason(refusal["code"], refusal["facts"], str(refusal))

    return walk


def _of_mcp(error: MCPError) -> str:
    data = error.error.data
    if "code" not in data:
        return "not found"  # the SDK's own error about an address
    return _reason(data["code"], data["facts"], str(error))


def way_of_resource(template: str) -> Way:
    def walk(world: World, visitor: Visitor) -> str:
        subject = RESOURCES[template](world)
        address = re.sub(r"{\+?\w+}", subject, template)
        return asyncio.run(_read(visitor, address))

    return walk


async def _read(visitor: Visitor, address: str) -> str:
    async with connected(visitor.mcp, "auto") as client:
        try:
            await client.read_resource(address)
        except MCPError as error:
            return _of_mcp(error)
        return "yes"


def way_of_prompt(name: str) -> Way:
    def walk(world: World, visitor: Visitor) -> str:
        return asyncio.run(_get_prompt(visitor, name))

    return walk


async def _get_prompt(visitor: Visitor, name: str) -> str:
    async with connected(visitor.mcp, "auto") as client:
        try:
            await client.get_prompt(name, PROMPTS[name])
        except MCPError as error:
            return _of_mcp(error)
        return "yes"


# All of them

WAYS: Mapping[str, Mapping[str, Way]] = {
    "operation": {route.operation: way_of_operation(route) for route in ROUTES},
    "route that is no operation": {place: way_of_own(place) for place in OWN},
    "page of the dashboard": {place: way_of_page(place) for place in places_of_pages()},
    "tool, resource or prompt of MCP": {
        **{name: way_of_tool(*call) for name, call in MCP_CALLS.items()},
        **{template: way_of_resource(template) for template in RESOURCES},
        **{f"prompt {name}": way_of_prompt(name) for name in PROMPTS},
    },
}
"""Every way in, by its kind and name."""


def _changes(name: str) -> bool:
    operation = OPERATIONS.get(name)
    if operation is not None:
        return operation.effect != "read"
    return name.startswith(("POST", "add", "manage"))


def matrix(
    there: Served, scope: str, ways: Mapping[str, Way], *, every: int = 1
) -> dict[str, list[str]]:
    """The outcome of every way for every caller, on what Ada made in a scope; or of each way for
    every third caller, in turn, and nothing for the others.
    """
    owner = there.http(there.token())
    visitors = [visitor(there, options) for options in CALLERS.values()]
    rows: dict[str, list[str]] = {}
    for number, (name, way) in enumerate(ways.items()):
        row: list[str] = []
        world = World(there, owner, scope)
        for place, each in enumerate(visitors):
            row.append("" if (number + place) % every else way(world, each))
            if row[-1] == "yes" and _changes(name):
                if name.endswith("freeze"):
                    there.tally.bind(ROOT).operator.thaw(reason="for the others")
                # What was done would change the next answer.
                world = World(there, owner, scope)
        rows[name] = row
    return rows


def table(kind: str, rows: Mapping[str, list[str]]) -> str:
    """The matrix as the page shows it."""
    lines = [f"| {kind} | " + " | ".join(CALLERS) + " |", "| --- |" + " --- |" * len(CALLERS)]
    for name, row in rows.items():
        plain = ("yes", "refused", "not found", "run closed")
        cells = [cell if cell in plain else f"`{cell}`" for cell in row]
        lines.append(f"| `{name}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)
