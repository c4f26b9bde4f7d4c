"""The client of a served tally: the verbs, records and errors of a bound tally, over HTTP."""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.scripted import concluder

from tallystick import errors
from tallystick.access import AccessTokens
from tallystick.errors import (
    ApprovalRequired,
    Denied,
    InvalidInput,
    RateLimited,
    TallystickError,
    Unauthenticated,
    UnknownArgument,
    UnknownName,
    Unreachable,
    VersionConflict,
)
from tallystick.memory import Put, WorkingMemory
from tallystick.operations import OPERATIONS
from tallystick.recorder import verify_bundle
from tallystick.records import AccessDecision, ContextItem, Record
from tallystick.tally import (
    BoundApprovals,
    BoundRecordings,
    BoundSpaces,
    BoundTally,
    Corrections,
    Jobs,
    Operator,
    Reviews,
)
from tallystick_comparing import Comparing
from tallystick_graph import Graph
from tallystick_ingest import Ingest
from tallystick_learning import Learning
from tallystick_server import RemoteTally, openapi
from tallystick_server.client.calls import error_of
from tallystick_server.guard import problem_of
from tallystick_server.routes import EXCLUDED, PREFIX
from tallystick_steward import Steward
from tallystick_synthesis import Synthesis
from tallystick_work import Work

from .permission_matrix import matrix_settings
from .served import ADA, ASKING, Served, served


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(
        tmp_path_factory.mktemp("served"),
        rules=[ASKING],
        settings=matrix_settings(tmp_path_factory.mktemp("birds")),
        learning_model=concluder(),
    ) as there:
        yield there


@pytest.fixture
def ada(there: Served) -> Iterator[RemoteTally]:
    with there.remote() as remote:
        yield remote


PARTS: dict[str, tuple[str, type]] = {
    "": ("", BoundTally),
    "operator.": ("operator", Operator),
    "spaces.": ("spaces", BoundSpaces),
    "corrections.": ("corrections", Corrections),
    "reviews.": ("reviews", Reviews),
    "learning.": ("learning", Learning),
    "graph.": ("graph", Graph),
    "ingest.": ("ingest", Ingest),
    "work.": ("work", Work),
    "steward.": ("steward", Steward),
    "comparing.": ("comparing", Comparing),
    "synthesis.": ("synthesis", Synthesis),
    "approvals.": ("approvals", BoundApprovals),
    "jobs.": ("jobs", Jobs),
    "tokens.": ("tokens", AccessTokens),
    "recordings.": ("recordings", BoundRecordings),
    "working.": ("working", WorkingMemory),
}


def test_the_client_has_every_verb_that_http_offers(there: Served, ada: RemoteTally) -> None:
    for operation in OPERATIONS.values():
        if operation.name in EXCLUDED:
            continue
        part, _, name = operation.verb.rpartition(".")
        for client in (ada, ada.aio):
            face = getattr(client, part) if part else client
            verb = getattr(face, name)
            kind = PARTS[f"{part}." if part else ""][1]
            assert inspect.signature(verb.__wrapped__) == inspect.signature(getattr(kind, name))


def test_each_request_of_the_client_is_in_the_description(
    there: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sends one call of every verb to a server that writes down what it was asked for."""
    from .permission_matrix import World

    described = openapi()
    known = {
        (method.upper(), *(part if "{" not in part else "*" for part in path.split("/"))): entry
        for path, methods in described["paths"].items()
        for method, entry in methods.items()
    }
    sent: list[Any] = []
    remote = there.remote()
    monkeypatch.setattr(remote.connection.server, "send", lambda call, scope: sent.append(call))
    monkeypatch.setattr(
        "tallystick_server.client.connections.result_of", lambda call, content: None
    )
    world = World(there, there.http(there.token()), "private:ada")
    for operation in OPERATIONS.values():
        if operation.name in EXCLUDED:
            continue
        arguments = world.arguments(operation.name)
        spread = arguments.pop(operation.spread, {}) if operation.spread else {}
        part, _, name = operation.verb.rpartition(".")
        if operation.name == "export":
            arguments = {"mode": "preview"}
        getattr(getattr(remote, part) if part else remote, name)(**arguments, **spread)
    offered = {operation.name for operation in OPERATIONS.values()} - set(EXCLUDED)

    found = set()
    for call in sent:
        parts = call.path.removeprefix(PREFIX).split("/")
        [entry] = [
            entry
            for (method, *path), entry in known.items()
            if method == call.method
            and len(path) == len(parts) + 1
            and all(mine in ("*", theirs) for mine, theirs in zip(path[2:], parts[1:], strict=True))
            and (entry["operationId"] not in found or "*" in path)
        ][:1]
        found.add(entry["operationId"])
        described_parameters = {each["name"].lower() for each in entry.get("parameters", ())}
        assert {name.lower() for name, _ in call.query} <= described_parameters, call.path
        assert {name.lower() for name in call.headers} <= described_parameters, call.path
        assert (call.body is None) == ("requestBody" not in entry) or call.body == b"{}", call.path
    assert found == offered


def test_results_are_the_records_that_the_verbs_return(there: Served, ada: RemoteTally) -> None:
    here = there.tally.bind(ADA)
    moment = datetime(2026, 3, 1, tzinfo=UTC)
    stored = ada.remember(
        "The heron nests in March.",
        tags=["bird"],
        occurred_at=moment,
        expires_at=timedelta(days=900),
        attributes={"legs": 2},
    )
    ada.remember_many(["One.", {"content": "Two.", "kind": "fact"}])
    calls: list[Callable[[Any], Any]] = [
        lambda tally: tally.get(stored.id),
        lambda tally: tally.memories(kinds=["fact"], limit=5),
        lambda tally: tally.recall("When does the heron nest?", tags=["bird"]),
        lambda tally: tally.inspect(stored.id),
        lambda tally: tally.source(stored.source_id),
        lambda tally: tally.history(stored.id),
        lambda tally: tally.explore(stored.id),
        lambda tally: tally.pack("heron", budget_tokens=300),
        lambda tally: tally.spaces.list(),
        lambda tally: tally.approvals.list(state=None),
        lambda tally: tally.jobs.list(limit=3),
    ]
    for call in calls:
        over_http, direct = call(ada), call(here)
        assert type(over_http) is type(direct)
        assert _steady(over_http) == _steady(direct)


def _steady(value: Any) -> Any:
    """A result without what each look moves: the count of looks."""
    if isinstance(value, Record):
        value = value.dump()
    if isinstance(value, dict):
        moved = ("access_count", "last_accessed", "surface", "audit_id", "id_of_pack")
        return {key: _steady(each) for key, each in value.items() if key not in moved}
    if isinstance(value, list | tuple):
        return [_steady(each) for each in value]
    if hasattr(value, "hits"):
        return [_steady(hit) for hit in value.hits]
    return value


def _example(kind: type[TallystickError]) -> TallystickError:
    """An error of a class, with facts."""
    decision = AccessDecision(allowed=False, reason="rate_limited", operation="read", surface="t")
    made: dict[type[TallystickError], Callable[[], TallystickError]] = {
        Denied: lambda: Denied(decision),
        RateLimited: lambda: RateLimited(decision, retry_after_us=3_000_000),
        VersionConflict: lambda: VersionConflict("m", expected=1, actual=2),
        InvalidInput: lambda: InvalidInput("No.", argument="limit"),
        errors.RecordedFailure: lambda: errors.RecordedFailure("ValueError", "broken"),
    }
    if kind in made:
        return made[kind]()
    error = kind.__new__(kind)
    Exception.__init__(error, f"What {kind.__name__} says.")
    return error


@pytest.mark.parametrize(
    "kind",
    [
        value
        for value in vars(errors).values()
        if inspect.isclass(value) and issubclass(value, TallystickError)
    ],
)
def test_an_error_is_raised_as_what_it_was(kind: type[TallystickError]) -> None:
    raised = _example(kind)
    try:
        facts = raised.facts()
    except AttributeError:  # its constructor alone sets them
        facts = None
        problem = {"status": 500, "code": kind.code, "detail": str(raised), "facts": {}}
        status, content = 500, json.dumps(problem).encode()
    else:
        status, _, content = problem_of(raised)
    again = error_of(status, content)

    assert type(again) is kind
    assert str(again) == str(raised)
    if facts is not None:
        assert again.facts() == facts


def test_a_compile_and_a_run_are_recorded_on_the_server(there: Served, ada: RemoteTally) -> None:
    ada.remember("Herons eat fish.")
    with ada.run("coder", goal="Mend it.") as run:
        hits = ada.recall("What do herons eat?")
        item = ContextItem(id="q", kind="user_msg", content="What do herons eat?")
        compiled = ada.compile([item, *hits], budget=300)
        with run.step("model_call", name="scripted") as step:
            step.record("request", {"prompt": "x"})
            step.record("response", {"text": "Fish."})
    recorded = there.tally.bind(ADA).recordings

    assert {decision.item_id for decision in compiled.decisions} >= {"q"}
    assert [each.name for each in recorded.steps(run.id)] == ["recall", "compile", "scripted"]
    assert step.receipt == recorded.receipt(recorded.steps(run.id)[-1].id)
    assert ada.recordings.verify(run.id, foil=run.ended_with).ok
    assert verify_bundle(ada.recordings.export_receipt(run.id), foil=run.ended_with).ok
    assert recorded.run(run.id).status == "completed"


def test_a_step_that_fails_is_recorded_as_failed(there: Served, ada: RemoteTally) -> None:
    run = ada.run("coder")
    with pytest.raises(ValueError, match="broken"), run, run.step("tool_call", name="ls"):
        raise ValueError("broken")
    [step] = there.tally.bind(ADA).recordings.steps(run.id)

    assert step.status == "failed"
    assert there.tally.bind(ADA).recordings.run(run.id).status == "failed"


async def test_the_verbs_are_awaited_without_holding_the_loop(
    there: Served, ada: RemoteTally
) -> None:
    stored = await ada.aio.remember("Awaited.")
    found, memory = await asyncio.gather(ada.aio.recall("awaited"), ada.aio.get(stored.id))

    assert memory.content == "Awaited."
    assert stored.id in [hit.memory.id for hit in found]
    assert await ada.aio.tokens.list()
    assert (await ada.aio.whoami()).user == "ada"
    with pytest.raises(ApprovalRequired):  # the rule of the server asks for every tool
        await ada.aio.call_tool("memory_search", {"query": "awaited"})
    assert await ada.aio.frame_codes(["one"]) == ada.frame_codes(["one"])
    await ada.aio.items.put([Put(("aio",), "a", {"n": 1})])
    [item] = await ada.aio.items.get([(("aio",), "a")])
    assert item == ada.items.get([(("aio",), "a")])[0]


class _Flaky(BaseHTTPRequestHandler):
    """A server that is busy, or hangs up, before it answers."""

    asked: list[tuple[str, str | None]] = []
    failures = 0
    hangs_up = False

    def _answer(self) -> None:
        length = int(self.headers.get("content-length", 0))
        self.rfile.read(length)
        kind = type(self)
        kind.asked.append((self.command, self.headers.get("idempotency-key")))
        if len(kind.asked) <= kind.failures and kind.hangs_up:
            self.close_connection = True
            return
        busy = len(kind.asked) <= kind.failures
        content = b'{"code":"busy_tally","detail":"busy","facts":{}}'
        if not busy:
            content = b'{"result":{"id":"i","status":"created","source_id":"s","version":1}}'
        self.send_response(503 if busy else 200)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PATCH = _answer

    def log_message(self, format: str, *arguments: Any) -> None: ...


@pytest.fixture
def flaky() -> Iterator[tuple[type[_Flaky], RemoteTally]]:
    kind = type("Flaky", (_Flaky,), {"asked": []})
    server = HTTPServer(("127.0.0.1", 0), kind)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    remote = RemoteTally.connect(f"http://127.0.0.1:{server.server_port}", token="t")
    remote.connection.server._sleep = lambda seconds: None
    yield kind, remote
    remote.close()
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("hangs_up", [False, True])
def test_a_change_is_sent_again_under_the_same_key(
    flaky: tuple[type[_Flaky], RemoteTally], hangs_up: bool
) -> None:
    kind, remote = flaky
    kind.failures, kind.hangs_up = 2, hangs_up

    remote.remember("Once.")

    assert len(kind.asked) == 3
    assert len({key for _, key in kind.asked}) == 1
    assert kind.asked[0][1]


def test_what_may_not_be_repeated_is_sent_once(
    flaky: tuple[type[_Flaky], RemoteTally],
) -> None:
    kind, remote = flaky
    kind.failures = 1
    with pytest.raises(errors.BusyTally):
        remote.run("coder")

    assert len(kind.asked) == 1


def test_what_is_no_server_of_ours_is_said_to_be_none(
    flaky: tuple[type[_Flaky], RemoteTally], tmp_path: Path
) -> None:
    _, remote = flaky
    with pytest.raises(Unreachable, match="no Tallystick server"):
        remote.recall("x")
    with pytest.raises(Unreachable, match="tally serve"):
        RemoteTally.connect(f"unix:{tmp_path / 'nobody'}", attempts=1).recall("x")
    for address in ("127.0.0.1:80", "ftp://x", "unix:", ""):
        with pytest.raises(InvalidInput, match="address"):
            RemoteTally.connect(address)


def test_the_client_reads_nothing_from_the_environment(
    there: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    with there.remote() as remote:
        assert list(remote.tokens.list())
    with RemoteTally.connect(there.tcp) as nobody, pytest.raises(Unauthenticated):
        nobody.recall("x")


def test_a_call_works_in_the_scope_that_it_names(there: Served, ada: RemoteTally) -> None:
    apollo = ada.within("project:apollo")
    stored = apollo.remember("For the project.")

    assert str(there.tally.bind(ADA, "project:apollo").get(stored.id).scope) == "project:apollo"
    with pytest.raises(Denied) as refused:
        ada.within("private:bob").remember("x")
    assert (refused.value.reason, refused.value.decision.surface) == ("principal_mismatch", "http")
    with pytest.raises(errors.InvalidScope):
        ada.within("nonsense")


def test_wrong_arguments_are_refused_before_anything_is_sent(ada: RemoteTally) -> None:
    wrong: Any = {"limit": "many"}
    with pytest.raises(InvalidInput, match="limit"):
        ada.recall("x", **wrong)
    with pytest.raises(InvalidInput, match="folder"):
        ada.operator.export("somewhere")
    with pytest.raises(InvalidInput, match="mode='preview' alone"):
        ada.operator.export()
    assert ada.operator.export(mode="preview").mode == "preview"
    with pytest.raises(TypeError):
        ada.recall()  # type: ignore[call-arg]


@pytest.mark.parametrize("text", ["漢字 🐝", "a\u202eb", "half \ud800", '"\\', "x" * 9_000])
def test_a_text_arrives_whole_or_is_refused_as_it_is_here(
    there: Served, ada: RemoteTally, text: str
) -> None:
    here = there.tally.bind(ADA)

    def outcome(call: Callable[[], Any]) -> str:
        try:
            return str(here.get(call().id).content)
        except InvalidInput as refused:
            return f"refused: {refused}"

    assert outcome(lambda: ada.remember(text)) == outcome(lambda: here.remember(text))


def test_names_of_other_memories_are_answered_before_anything_is_sent() -> None:
    remote: Any = RemoteTally.connect("http://127.0.0.1:9")
    for name, spelling in (
        ("add", 'bound.remember("…")'),
        ("approve", "bound.approvals.approve(…)"),
        ("reflect", "bound.learning.reflect(…)"),
    ):
        with pytest.raises(UnknownName) as refused:
            getattr(remote, name)
        assert str(refused.value).endswith(f"Write {spelling}.")
        with pytest.raises(UnknownName, match=r"Write await bound\.aio\."):
            getattr(remote.aio, name)
    with pytest.raises(UnknownArgument, match="Write limit=5"):
        remote.recall("x", k=5)
    with pytest.raises(UnknownArgument, match="Write attributes="):
        remote.remember("x", metadata={"a": 1})
    with pytest.raises(TypeError, match=r"^recall\(\) got an unexpected keyword argument 'user'$"):
        remote.recall("x", user="ada")
