"""A model called for those who have no key: over HTTP, by a replay, and on a page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest

from tallystick.errors import (
    ApprovalRequired,
    BudgetSpent,
    EgressDenied,
    InvalidInput,
    ModelUnavailable,
)
from tallystick.records import (
    CallBudget,
    ContextItem,
    JsonObject,
    PolicyConditions,
    PolicyRule,
    StepEntry,
)
from tallystick.settings import Settings
from tallystick_openai import ResponsesProvider
from tallystick_server import RemoteTally

from .dashboard import Browser
from .provider_servers import Openais, refusing
from .served import BOB, Served, problem, served

ASKING = PolicyRule(
    id="ask-mini",
    name="Ask",
    description="",
    effect="require_approval",
    applies_to="model_call",
    conditions=PolicyConditions(model=("gpt-5-mini",)),
)
DENYING = ASKING.model_copy(
    update={
        "id": "no-nano",
        "effect": "deny",
        "conditions": PolicyConditions(model=("gpt-5-nano",)),
    }
)


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(
        tmp_path_factory.mktemp("models"),
        rules=[ASKING, DENYING],
        settings=Settings(providers=("openai:*",)),
    ) as there:
        yield there


@pytest.fixture
def ada(there: Served) -> Iterator[RemoteTally]:
    with there.remote() as remote:
        yield remote


@pytest.fixture(autouse=True)
def openais(monkeypatch: pytest.MonkeyPatch) -> Openais:
    """OpenAI's server, which the provider of the settings reaches."""
    server = Openais(Openais.answer(Openais.text("In March.")))
    point = SimpleNamespace(
        load=lambda: lambda model: ResponsesProvider(model, client=server.client, any_model=True)
    )
    points = {"openai": point, "anthropic": point}
    monkeypatch.setattr("tallystick.tally.model_calls._points", lambda: points)
    return server


ITEMS = [ContextItem(id="q", kind="user_msg", content="When does the heron nest?")]


def _usage(entry: StepEntry) -> Any:
    return entry.summary["usage"]


def _recorded(remote: RemoteTally) -> str:
    """A step of a model call through the server; its id."""
    with remote.run("birds") as run, run.step("model_call", name="gpt-5") as step:
        compiled = remote.compile(ITEMS, budget=500, provider="openai", model="gpt-5")
        remote.call_model(compiled, provider="openai:gpt-5")
    return step.id


def test_a_call_is_recorded_in_the_open_step_that_compiled_its_context(
    there: Served, ada: RemoteTally, openais: Openais
) -> None:
    with ada.run("birds") as run:
        with run.step("model_call", name="gpt-5") as step:
            compiled = ada.compile(ITEMS, budget=500, model="gpt-5")
            call = ada.call_model(compiled, provider="openai:gpt-5", parameters={"store": False})
        again = ada.call_model(compiled, provider="openai:gpt-5")
    entries = ada.recordings.entries(step.id)

    assert (call.answer.text, call.step_id, call.run_id) == ("In March.", step.id, run.id)
    kinds = [entry.kind for entry in entries]
    assert kinds == ["compile_request", "compiled", "policy_check", "request", "response"]
    assert _usage(entries[-1])["input_tokens"] == 1_000
    assert openais.bodies[0]["store"] is False
    assert "heron" in json.dumps(openais.bodies[0]["input"])
    assert (again.run_id, again.step_id != step.id) == (run.id, True)
    assert ada.recordings.knew(again.step_id) == ada.recordings.knew(step.id)


def test_a_call_is_of_one_context_which_its_caller_may_record(
    there: Served, ada: RemoteTally, openais: Openais
) -> None:
    step_id = _recorded(ada)
    http = there.http(there.token())
    model = {"provider": "openai", "model": "gpt-5"}
    plain = {"items": [{"id": "q", "kind": "user_msg", "content": "When?"}], "budget": 300}
    compiled_here = http.post("/v1/model/call", json={**model, "request": plain}).json()["result"]
    by_step = http.post("/v1/model/call", json={**model, "step_id": step_id}).json()["result"]
    sent = len(openais.bodies)
    several = http.post("/v1/model/call", json={**model, "step_id": step_id, "request": plain})
    none = http.post("/v1/model/call", json=model)
    strangers = there.http(there.token(BOB)).post(
        "/v1/model/call", json={**model, "step_id": step_id}
    )
    reader = there.http(there.token(token_class="scoped", operations=["read", "inspect"]))
    reading = reader.post("/v1/model/call", json={**model, "step_id": step_id})

    assert compiled_here["answer"]["text"] == by_step["answer"]["text"] == "In March."
    assert ada.recordings.knew(compiled_here["step_id"])[0].item_id == "q"
    codes = [problem(each)["code"] for each in (several, none, strangers, reading)]
    assert codes == ["invalid_input", "invalid_input", "not_found", "denied"]
    assert len(openais.bodies) == sent


def test_a_model_that_the_settings_do_not_list_gets_nothing(
    there: Served, ada: RemoteTally, openais: Openais, tmp_path: Any
) -> None:
    with ada.run("birds"):
        compiled = ada.compile(ITEMS, budget=500)
        with pytest.raises(EgressDenied, match="providers"):
            ada.call_model(compiled, provider="anthropic:claude-sonnet-5")
    with served(tmp_path) as closed, closed.remote() as remote, remote.run("birds"):
        compiled = remote.compile(ITEMS, budget=500)
        with pytest.raises(EgressDenied, match="now none"):
            remote.call_model(compiled, provider="openai:gpt-5")

    assert openais.bodies == []


def test_rules_and_the_budget_hold_and_what_the_provider_raises_is_an_error_of_ours(
    there: Served, ada: RemoteTally, openais: Openais
) -> None:
    with ada.run("birds"):
        compiled = ada.compile(ITEMS, budget=500)
        http = there.http(there.token())
        asking = {"provider": "openai", "compile_id": compiled.id}
        denied = http.post("/v1/model/call", json={**asking, "model": "gpt-5-nano"})
        waits = http.post("/v1/model/call", json={**asking, "model": "gpt-5-mini"})
        openais.counts = [9_000]
        large = {**asking, "model": "gpt-5", "preflight": "refuse"}
        too_large = http.post("/v1/model/call", json=large)
    assert openais.bodies == []
    openais.answers[:] = [refusing(429, "rate_limit")]
    with ada.run("birds"), pytest.raises(ModelUnavailable, match="429"):
        ada.call_model(compiled, provider="openai:gpt-5")

    codes = [problem(each)["code"] for each in (denied, waits, too_large)]
    assert codes == ["action_denied", "approval_required", "budget_infeasible"]
    [approval] = problem(waits)["facts"]["approvals"]
    with there.remote(token_class="session") as person:
        token = person.approvals.approve(approval["id"], reason="fine").token
    openais.answers[:] = [Openais.answer(Openais.text("In March."))]
    granted = {**asking, "model": "gpt-5-mini", "approval_token": token}
    assert http.post("/v1/model/call", json=granted).status_code == 200
    assert problem(http.post("/v1/model/call", json=granted))["code"] == "token_refused"


def _streamed(response: httpx2.Response) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in response.iter_lines() if line.startswith("data: ")]


def test_an_answer_comes_as_events_and_is_recorded_whole(
    there: Served, ada: RemoteTally, openais: Openais
) -> None:
    http = there.http(there.token())
    body = {
        "provider": "openai",
        "model": "gpt-5",
        "stream": True,
        "request": {"items": [ITEMS[0].dump()], "budget": 300},
    }
    with http.stream("POST", "/v1/model/call", json=body) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        start, *pieces, end = _streamed(response)
    refused = http.post("/v1/model/call", json={**body, "model": "gpt-5-nano"})

    assert start == {"type": "start"}
    assert "".join(each["text"] for each in pieces).split() == ["In", "March."]
    assert {each["type"] for each in pieces} == {"text"}
    assert end["call"]["answer"]["text"] == "In March."
    [response_entry] = [
        each for each in ada.recordings.entries(end["call"]["step_id"]) if each.kind == "response"
    ]
    assert "stream" in response_entry.summary
    assert ada.recordings.step(end["call"]["step_id"]).status == "completed"
    assert (refused.status_code, problem(refused)["code"]) == (403, "action_denied")


def test_a_reader_who_leaves_a_stream_ends_the_call(there: Served, ada: RemoteTally) -> None:
    http = there.http(there.token())
    run = ada.run("left")
    body = {
        "provider": "openai",
        "model": "gpt-5",
        "stream": True,
        "request": {"items": [ITEMS[0].dump()], "budget": 300},
    }
    in_run = {"tallystick-run": run.id}
    with http.stream("POST", "/v1/model/call", json=body, headers=in_run) as response:
        next(response.iter_lines())
    run.end()

    assert {step.status for step in ada.recordings.steps(run.id)} <= {
        "completed",
        "cancelled",
        "interrupted",
    }


def test_a_stored_context_is_sent_only_while_its_memories_may_be_seen(
    there: Served, ada: RemoteTally, openais: Openais
) -> None:
    kept = ada.remember("The heron nests in the old mill.")
    with ada.run("birds"):
        compiled = ada.compile([*ITEMS, *ada.recall("heron")], budget=500, model="gpt-5")
        call = ada.call_model(compiled, provider="openai:gpt-5")
        ada.forget(kept.id, reason="gone")
        with pytest.raises(InvalidInput, match=f"{kept.id}, which may not be seen any more"):
            ada.call_model(compiled, provider="openai:gpt-5")
    with there.remote(token_class="session") as person:
        with pytest.raises(InvalidInput, match="may not be seen any more"):
            person.recordings.replay(call.step_id, send=True)
        person.recordings.replay(call.step_id, send=True, context_mutations={kept.id: None})

    assert ["old mill" in json.dumps(each) for each in openais.bodies] == [True, False]


def test_a_replay_asks_the_model_again_for_a_person_and_shows_what_differs(
    there: Served, ada: RemoteTally, openais: Openais
) -> None:
    step_id = _recorded(ada)
    openais.answers[:] = [Openais.answer(Openais.text("In April."))]
    with there.remote(token_class="session") as person:
        exact = person.recordings.replay(step_id, send=True)
        changed = person.recordings.replay(step_id, send=True, token_budget=400)
    answered = [line for line in exact.response_diff if line[:1] in "+-"]

    assert (exact.request_matches, exact.response_matches) == (True, False)
    assert any("In March." in line for line in answered)
    assert any("In April." in line for line in answered)
    assert changed.response_matches is False
    assert exact.step_id is not None
    [response] = [e for e in ada.recordings.entries(exact.step_id) if e.kind == "response"]
    assert _usage(response)["output_tokens"] == 20
    assert openais.bodies[-2] == openais.bodies[0], "the recorded request, once more"


def test_who_is_no_person_asks_a_model_again_with_the_approval_of_a_person(
    there: Served, ada: RemoteTally, openais: Openais
) -> None:
    step_id = _recorded(ada)
    sent = len(openais.bodies)
    with pytest.raises(ApprovalRequired) as asked:
        ada.recordings.replay(step_id, send=True)
    [approval] = asked.value.approvals
    assert (approval.action, approval.subject) == ("model_call", "gpt-5")
    assert len(openais.bodies) == sent
    with there.remote(token_class="session") as person:
        person.approvals.approve(approval.id, reason="look again")
    again = ada.recordings.replay(step_id, send=True)
    with pytest.raises(ApprovalRequired):
        ada.recordings.replay(step_id, send=True)

    assert again.response_matches is True
    assert len(openais.bodies) == sent + 1


def test_a_page_replays_with_the_model_where_one_is_listed(
    there: Served, ada: RemoteTally, openais: Openais
) -> None:
    step_id = _recorded(ada)
    openais.answers[:] = [Openais.answer(Openais.text("In April."))]
    with Browser(there.tcp, there.token(token_class="session")) as browser:
        form = browser.get(f"steps/{step_id}/replay").forms[2]
        page = browser.send(form, send="yes")

    assert "Side by side" in page.text
    assert "The model answered something else." in page.text
    assert "In April." in page.text


@pytest.mark.parametrize("unit", ["calls", "tokens", "micros"])
def test_what_is_called_for_others_stays_within_a_budget_of_its_own(
    unit: str, openais: Openais, tmp_path: Path
) -> None:
    """The answer of the script costs 1,000 tokens in; the request says how long one may be."""
    table = 'dated = "2026-11-01"\n[models."openai:gpt-5"]\ninput = 1.0\noutput = 1.0\n'
    (tmp_path / "prices.toml").write_text(table, encoding="utf-8")
    most = {"calls": 1, "tokens": 1_500, "micros": 1_500}[unit]
    settings = Settings(
        providers=("openai:*",),
        providers_budget=CallBudget(**{f"{unit}_per_scope_and_day": most}),
        prices=tmp_path / "prices.toml",
    )
    short: JsonObject = {"max_output_tokens": 400}
    with served(tmp_path / "tally", settings=settings) as there, there.remote() as remote:
        with remote.run("birds"):
            compiled = remote.compile(ITEMS, budget=500)
            openais.answers[:] = [refusing(429, "rate_limit")]
            if unit != "calls":
                with pytest.raises(ModelUnavailable):
                    remote.call_model(compiled, provider="openai:gpt-5", parameters=short)
            openais.answers[:] = [Openais.answer(Openais.text("In March."))]
            remote.call_model(compiled, provider="openai:gpt-5", parameters=short)
            with pytest.raises(BudgetSpent) as refused:
                remote.call_model(compiled, provider="openai:gpt-5", parameters=short)
        calls = there.tally.bind().operator.outbound_calls(purpose="call")

    assert refused.value.facts()["limit"] == f"providers_budget.{unit}_per_scope_and_day"
    assert (calls[0].outcome, calls[0].input_tokens) == ("answered", 1_000)
    assert calls[0].micros == calls[0].input_tokens + calls[0].output_tokens
    assert [call.outcome for call in calls[1:]] == ([] if unit == "calls" else ["RateLimitError"])


def test_where_money_is_limited_a_model_without_a_price_gets_nothing(
    openais: Openais, tmp_path: Path
) -> None:
    settings = Settings(
        providers=("openai:*",), providers_budget=CallBudget(micros_per_day=1_000_000)
    )
    with (
        served(tmp_path, settings=settings) as there,
        there.remote() as remote,
        remote.run("birds"),
    ):
        compiled = remote.compile(ITEMS, budget=500)
        with pytest.raises(EgressDenied, match="price of openai:of-tomorrow is not known"):
            remote.call_model(compiled, provider="openai:of-tomorrow")

    assert openais.bodies == []


def test_a_limit_below_nothing_makes_no_call_cheaper(openais: Openais, tmp_path: Path) -> None:
    settings = Settings(providers=("openai:*",), providers_budget=CallBudget(tokens_per_day=1_500))
    below: JsonObject = {"max_output_tokens": -100_000}
    with (
        served(tmp_path, settings=settings) as there,
        there.remote() as remote,
        remote.run("birds"),
    ):
        compiled = remote.compile(ITEMS, budget=500)
        with pytest.raises(BudgetSpent):
            remote.call_model(compiled, provider="openai:gpt-5", parameters=below)

    assert openais.bodies == []
