"""Open steps over HTTP: one agent, recorded in Python and over HTTP, leaves the same."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tallystick.errors import InvalidInput, NotFound, RunClosed
from tallystick.kit.rendering import ToolCall, record_tool_call, record_tool_result
from tallystick.records import ContextItem, Json, PolicyRule
from tallystick.tally import BoundTally
from tallystick_opentelemetry import export_run
from tallystick_server import RemoteTally

from .dashboard import Browser
from .frozen import frozen
from .served import ADA, BOB, Served, problem, served

MEMORIES = ("Herons nest in tall trees.", "Invoices are due on the tenth.")
AS_OF = datetime(2030, 1, 1, tzinfo=UTC)
CLEANING = PolicyRule(
    id="clean", name="Clean", description="", effect="redact", applies_to="tool_call"
)


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("steps"), rules=[CLEANING]) as there:
        there.tally.bind(ADA).remember_many(MEMORIES)
        yield there


@pytest.fixture
def ada(there: Served) -> Iterator[RemoteTally]:
    with there.remote() as remote:
        yield remote


def _items(*texts: str) -> list[ContextItem]:
    return [
        ContextItem(
            id=f"m{number}", kind="user_msg" if number % 2 == 0 else "tool_result", content=text
        )
        for number, text in enumerate(texts)
    ]


def act(tally: BoundTally | RemoteTally) -> str:
    """An agent of two model calls and a tool call; return the id of its run."""
    question = "Where do herons nest?"
    with tally.run("naturalist", goal=question) as run:
        for number, texts in enumerate(([question], [question, "Tall trees: 12.", question])):
            with run.step("model_call", name="scripted") as step:
                hits = tally.recall(question, limit=2)
                compiled = tally.compile(
                    [*_items(*texts), *hits], budget=400, model="scripted", as_of=AS_OF
                )
                prompt: Json = [item.content for item in compiled.selected_items]
                step.record("request", {"prompt": prompt}, summary={"model": "scripted"})
                step.record("response", {"answer": {"text": f"In trees. {number}"}})
            if number == 0:
                with run.step("tool_call", name="count") as step:
                    arguments = _checked(tally, "count", {"what": "trees"})
                    called = ToolCall("count", arguments, "c1")
                    record_tool_call(step, called)  # type: ignore[arg-type]
                    record_tool_result(step, "Tall trees: 12.")  # type: ignore[arg-type]
    return run.id


def _checked(tally: BoundTally | RemoteTally, name: str, arguments: Any) -> Any:
    if isinstance(tally, RemoteTally):
        return tally.check_call("tool_call", name, arguments).arguments
    return tally.check_tool_call(name, arguments).arguments


def _blank(value: Any) -> Any:
    """Plain values without what differs from run to run."""
    text = re.sub(r"\b[\d.,]+ (ms|s|µs)\b", "<time>", str(frozen(value)))
    text = re.sub(r"\b[0-9a-f]{8}\b", "<id>", text)
    return re.sub(r"\d\d:\d\d(:\d\d)?", "<time>", text)


def test_one_agent_in_python_and_over_http_leaves_the_same(there: Served, ada: RemoteTally) -> None:
    bound = there.tally.bind(ADA)
    runs = [act(bound), act(ada)]

    with Browser(there.tcp, there.token(ADA, token_class="session")) as browser:
        left: list[list[Any]] = []
        models_of: list[list[str]] = []
        for run_id in runs:
            steps = bound.recordings.steps(run_id)
            models = [step.id for step in steps if step.step_kind == "model_call"]
            models_of.append(models)
            left.append(
                [
                    [(step.step_kind, step.name, step.status) for step in steps],
                    [
                        [
                            (entry.kind, sorted(entry.summary))
                            for entry in bound.recordings.entries(step.id)
                        ]
                        for step in steps
                    ],
                    [[item.dump() for item in ada.recordings.knew(step)] for step in models],
                    [[item.dump() for item in ada.recordings.unseen(step)] for step in models],
                    [ada.recordings.trace(step, "Herons nest")[0].dump() for step in models],
                    ada.recordings.changed(models[1]).dump(),
                    ada.recordings.replay(models[1], token_budget=60)
                    .model_copy(update={"recipe": None, "run_id": None, "step_id": None})
                    .model_dump(),
                    [_blank(browser.get(f"steps/{step}").text) for step in models],
                ]
            )

    for here, over_http in zip(*left, strict=True):
        assert _blank(here) == _blank(over_http)
    for here, over_http in zip(*models_of, strict=True):
        diff = bound.recordings.diff(here, over_http)
        assert diff.compile is not None
        assert (diff.compile.is_empty, diff.request, diff.response) == (True, (), ())
    page = left[1][-1][1]
    assert "What the model saw" in page
    assert "Replay it" in page


def test_a_step_takes_as_long_as_its_client_measures(there: Served, ada: RemoteTally) -> None:
    took: list[float] = []
    with ada.run("timed") as run:
        for is_open in (False, True):
            with run.step("model_call", name="scripted") as step:
                began = time.perf_counter()
                if is_open:
                    ada.compile(_items("Hello."), budget=100)
                time.sleep(0.05)
                step.record("response", {"text": "Hi."})
                took.append(time.perf_counter() - began)
    steps = there.tally.bind(ADA).recordings.steps(run.id)

    assert [step.step_kind for step in steps] == ["model_call", "model_call"]
    for recorded, seconds in zip(steps, took, strict=True):
        assert recorded.ended_at is not None
        assert abs((recorded.ended_at - recorded.started_at) / 1_000_000 - seconds) < 0.005
        assert steps[0].started_at >= run.record.started_at
    spans, tracer = InMemorySpanExporter(), TracerProvider()
    tracer.add_span_processor(SimpleSpanProcessor(spans))
    export_run(there.tally.bind(ADA), run.id, tracer)
    calls = [span for span in spans.get_finished_spans() if span.name == "chat scripted"]
    lasted = [(span.end_time or 0) - (span.start_time or 0) for span in calls]
    assert lasted == pytest.approx([seconds * 1e9 for seconds in took], abs=5e6)


def test_entries_of_one_call_are_recorded_all_or_none(there: Served) -> None:
    """What is refused is sent again, and then stands once."""
    http = there.http(there.token())
    run = http.post("/v1/runs", json={"agent_name": "raw"}).json()["result"]
    opened = http.post(f"/v1/runs/{run['id']}/steps", json={"kind": "other", "open": True}).json()
    entries = f"/v1/steps/{opened['result']['id']}/entries"
    late = (datetime.now(UTC) + timedelta(seconds=60)).isoformat()
    both = [{"kind": "response", "payload": 1}, {"kind": "response", "payload": 2}]
    for wrong in ({"at": late}, {"kind": "gap"}):
        refused = http.post(entries, json={"entries": [both[0], both[1] | wrong]})
        assert refused.status_code == 422
    assert http.get(entries).json()["result"] == []
    assert http.post(entries, json={"entries": both}).status_code == 200
    assert len(http.get(entries).json()["result"]) == 2


def test_a_tool_call_that_is_refused_leaves_no_step_that_failed(there: Served) -> None:
    """The tool did its work: a false time, or a result beside an error, is the report's fault."""
    http = there.http(there.token())
    run = http.post("/v1/runs", json={"agent_name": "raw"}).json()["result"]
    steps = f"/v1/runs/{run['id']}/steps"
    call = {"run_id": run["id"], "name": "count", "result": "Twelve."}
    late = (datetime.now(UTC) + timedelta(seconds=60)).isoformat()
    refused: list[dict[str, Any]] = [
        {"ended_at": late},
        {"started_at": late},
        {"started_at": run["started_at"] + 9, "ended_at": run["started_at"] + 8},
        {"error": "gone"},
    ]
    for each in refused:
        assert http.post("/v1/tools/result", json=call | each).status_code == 422
    assert http.get(steps).json()["result"] == []
    opened = http.post(steps, json={"kind": "tool_call", "name": "count", "open": True}).json()
    inside = {"tallystick-step": opened["result"]["id"]}
    timed = http.post("/v1/tools/result", json=call | {"started_at": None}, headers=inside)
    assert timed.status_code == 200
    assert [step["status"] for step in http.get(steps).json()["result"]] == ["running"]


def test_the_times_of_a_step_are_those_that_its_client_sends(there: Served) -> None:
    http = there.http(there.token())
    run = http.post("/v1/runs", json={"agent_name": "raw"}).json()["result"]
    at, place = run["started_at"], f"/v1/runs/{run['id']}/steps"
    time.sleep(0.02)
    whole = http.post(
        place,
        json={"kind": "other", "started_at": at + 1_000, "ended_at": at + 8_000},
    ).json()["result"]
    iso = datetime.fromtimestamp((at + 2_000) / 1e6, UTC).isoformat()
    opened = http.post(place, json={"kind": "other", "open": True, "started_at": iso}).json()
    step = f"/v1/steps/{opened['result']['id']}"
    late = (datetime.now(UTC) + timedelta(seconds=60)).isoformat()
    refused = [
        http.post(place, json={"kind": "other", "started_at": at - 1}),
        http.post(place, json={"kind": "other", "started_at": late}),
        http.post(place, json={"kind": "other", "started_at": at + 9, "ended_at": at + 8}),
        http.post(place, json={"kind": "other", "open": True, "status": "failed"}),
        http.post(f"{step}/entries", json={"entries": [{"kind": "note", "at": at}]}),
        http.post(f"{step}/end", json={"ended_at": at + 1_999}),
        http.post(f"{step}/end", json={"ended_at": late}),
    ]
    entry = {"kind": "note", "payload": "x", "at": at + 3_000}
    noted = http.post(f"{step}/entries", json={"entries": [entry]})
    receipt = http.post(f"{step}/end", json={"ended_at": at + 5_000, "status": "failed"}).json()
    after = http.post(f"{step}/entries", json={"entries": [entry]})
    stored = there.tally.bind(ADA).recordings

    assert (whole["started_at"], whole["ended_at"]) == (at + 1_000, at + 8_000)
    assert [problem(each)["code"] for each in refused] == ["invalid_input"] * 7
    assert {each.status_code for each in refused} == {422}
    assert noted.json()["result"]["ended_at"] is None
    end = receipt["result"]
    assert (end["started_at"], end["ended_at"], end["status"]) == (at + 2_000, at + 5_000, "failed")
    assert [each.at for each in stored.entries(end["step_id"])] == [at + 3_000]
    assert (after.status_code, problem(after)["code"]) == (409, "run_closed")
    assert len(stored.steps(run["id"])) == 2, "what was refused left a step"


def test_a_step_id_carries_no_authority(there: Served, ada: RemoteTally) -> None:
    run = ada.run("mine")
    step = run.step("model_call")
    in_step = {"tallystick-step": step.id}
    compiling = {"items": [], "budget": 100}
    reader = there.http(
        there.token(token_class="scoped", operations=["read", "inspect"]), **in_step
    )
    refused = [
        there.http(there.token(BOB), **in_step).post("/v1/context/compile", json=compiling),
        reader.post("/v1/context/compile", json=compiling),
        there.http(there.token(), **{"tallystick-step": "none"}).post(
            "/v1/recall", json={"query": "x"}
        ),
    ]
    with ada.run("another") as other:
        mixed = there.http(there.token(), **in_step, **{"tallystick-run": other.id})
        refused.append(mixed.post("/v1/context/compile", json=compiling))
    step.end()
    ended = there.http(there.token(), **in_step).post("/v1/context/compile", json=compiling)
    run.end()

    codes = [(each.status_code, problem(each)["code"]) for each in [*refused, ended]]
    assert codes == [
        (404, "not_found"),
        (403, "denied"),
        (404, "not_found"),
        (422, "invalid_input"),
        (409, "run_closed"),
    ]
    assert [entry.kind for entry in ada.recordings.entries(step.id)] == []


def test_a_step_is_known_by_the_id_of_its_compile(there: Served, ada: RemoteTally) -> None:
    compiled_twice, steps = [], []
    with ada.run("compiling") as run:
        for _ in range(2):
            with run.step("model_call") as step:
                compiled_twice.append(ada.compile(_items("A question."), budget=100, as_of=AS_OF))
            steps.append(step.id)
    [compiled, again] = compiled_twice
    assert compiled.id == again.id
    http, path = there.http(there.token()), f"/v1/compilations/{compiled.id}"
    by_compile, by_step = http.get(path), http.get(f"/v1/compilations/{steps[1]}")
    strangers = there.http(there.token(BOB)).get(path)

    assert by_compile.json()["result"] == by_step.json()["result"], "the latest step that made it"
    assert problem(strangers)["code"] == "not_found"
    assert there.tally.bind(ADA).recordings.knew(compiled.id)[0].item_id == "m0"
    assert problem(http.get("/v1/compilations/sha256:0"))["code"] == "not_found"


def test_a_tool_result_and_a_check_stand_in_the_step_that_is_named(
    there: Served, ada: RemoteTally
) -> None:
    http = there.http(there.token())
    run = ada.run("tools")
    step = run.step("tool_call", name="ls")
    in_step = {"tallystick-step": step.id}
    call = {"name": "ls", "arguments": {"path": "."}, "tool_call_id": "c1"}
    check = {"kind": "tool_call", **{k: call[k] for k in ("name", "arguments")}}
    http.post("/v1/policy/check", json=check, headers=in_step)
    first = http.post("/v1/tools/result", json={**call, "result": "a b"}, headers=in_step).json()
    second = http.post("/v1/tools/result", json={**call, "error": "gone"}, headers=in_step).json()
    nowhere = http.post("/v1/tools/result", json=call)
    step.end()
    run.end()
    recorded = there.tally.bind(ADA).recordings

    kinds = [entry.kind for entry in recorded.entries(step.id)]
    assert kinds == ["policy_check", "tool_call", "tool_result"]
    assert (first["result"]["id"], first["result"]["status"]) == (step.id, "running")
    assert recorded.step(second["result"]["step_id"]).parent_step_id == step.id
    assert second["result"]["status"] == "failed"
    assert problem(nowhere)["code"] == "invalid_input"


def test_a_step_that_stays_open_ends_with_its_run(there: Served, ada: RemoteTally) -> None:
    run = ada.run("left")
    step = run.step("other")
    opened = step.id
    run.end()

    assert there.tally.bind(ADA).recordings.step(opened).status == "interrupted"
    with pytest.raises(RunClosed):
        step.record("note", "late")
    with pytest.raises(RunClosed):
        run.step("other")


def test_an_exception_leaves_a_step_as_it_does_in_python(there: Served, ada: RemoteTally) -> None:
    left = []
    for tally in (there.tally.bind(ADA), ada):
        for error in (ValueError("broken"), KeyboardInterrupt()):
            run = tally.run("failing")
            with pytest.raises(type(error)), run, run.step("tool_call", name="ls"):
                raise error
            [step] = ada.recordings.steps(run.id)
            entries = ada.recordings.entries(step.id)
            shown = [(each.kind, each.payload, each.summary) for each in entries]
            left.append((step.status, ada.recordings.run(run.id).status, shown))

    assert left[:2] == left[2:]


def test_an_unknown_time_is_refused_in_python_too(there: Served) -> None:
    with there.tally.bind(ADA).run("here") as run:
        with pytest.raises(InvalidInput, match="started_at"):
            run.step("other", started_at=run.record.started_at - 1)
        step = run.step("other", started_at=run.record.started_at)
        with pytest.raises(InvalidInput, match="ended_at"):
            step.end(ended_at=step.started_at - 1)
        ahead = run.step("other", started_at=there.tally._services.store.clock.now() + 4_000_000)
    [first, second] = there.tally.bind(ADA).recordings.steps(run.id)

    assert first.ended_at is not None
    assert (second.id, second.ended_at) == (ahead.id, ahead.started_at), "the end is not before"
    with pytest.raises(NotFound):
        there.tally.bind(BOB).recordings.step(first.id)
