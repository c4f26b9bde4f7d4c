"""A compiled context sent by the SDKs of OpenAI and Anthropic: what goes out, what comes back, what
is recorded, and what is refused before anything is sent.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import anthropic
import httpx2
import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.integrations.provider_servers import Anthropics, Openais, Server, refusing

from tallystick import Actor, Tally
from tallystick.errors import (
    ActionDenied,
    BudgetInfeasible,
    CompileError,
    InvalidContext,
    InvalidInput,
    MissingExtra,
    SettingsError,
    TapeDiverged,
)
from tallystick.ports import ModelProvider
from tallystick.records import (
    CompiledContext,
    ContextItem,
    ModelToolCall,
    PolicyRule,
    StepRecord,
    ToolSpec,
)
from tallystick.settings import Settings
from tallystick.tally import BoundTally
from tallystick_anthropic import MessagesProvider
from tallystick_anthropic import memory_tools as messages_tools
from tallystick_openai import ResponsesProvider, conversation_context
from tallystick_openai import memory_tools as responses_tools

OpenTally = Callable[..., Tally]
ANN = Actor(user="ann")
WEIGH = ToolSpec(
    name="weigh",
    description="Weigh a boat.",
    parameters={"type": "object", "properties": {"boat": {"type": "string"}}},
)


@dataclass(frozen=True)
class Case:
    """One provider with its server."""

    server: Any
    provider: Callable[..., Any]
    model: str
    name: str
    rate_limited: type[Exception]
    overloaded: type[Exception]

    def __repr__(self) -> str:
        return self.name

    def make(self, *answers: Any, **options: Any) -> tuple[Any, Any]:
        server = self.server(*answers)
        return server, self.provider(self.model, client=server.client, **options)


CASES = (
    Case(
        Openais,
        ResponsesProvider,
        "gpt-5",
        "openai",
        openai.RateLimitError,
        openai.InternalServerError,
    ),
    Case(
        Anthropics,
        MessagesProvider,
        "claude-sonnet-5",
        "anthropic",
        anthropic.RateLimitError,
        anthropic.APIStatusError,
    ),
)
either = pytest.mark.parametrize("case", CASES, ids=repr)


@pytest.fixture
def bound(open_sqlite: OpenTally) -> BoundTally:
    return open_sqlite().bind(ANN)


def asked(bound: BoundTally, *items: Any, **options: Any) -> CompiledContext:
    message = ContextItem(id="u1", kind="user_msg", content="Weigh both boats.")
    system = ContextItem(id="s", kind="system", content="You weigh boats.")
    return bound.compile([system, message, *items], budget=2_000, tools=(WEIGH,), **options)


def step_of(bound: BoundTally, step_id: str) -> StepRecord:
    return bound.recordings.step(step_id)


def summary(bound: BoundTally, step_id: str, kind: str) -> Any:
    entries = bound.recordings.entries(step_id)
    return next(entry.summary for entry in entries if entry.kind == kind)


@either
def test_a_call_is_sent_and_recorded_with_usage_cache_cost_and_limits(
    case: Case, bound: BoundTally
) -> None:
    server, provider = case.make(case.server.answer(case.server.text("Three tons.")))

    call = bound.call_model(asked(bound), provider=provider)

    assert (call.text, call.answer.stop, call.tool_calls) == ("Three tons.", "completed", ())
    assert call.usage["input_tokens"] == 1_000
    assert call.usage["cache_read_tokens"] == 600
    assert call.cost.amount is not None
    assert float(call.cost.amount) > 0
    facts = summary(bound, call.step_id, "response")
    assert facts["usage"] == call.usage
    assert facts["cost"]["amount"] == call.cost.amount
    assert facts["request_id"] == "req_1"
    assert list(facts["rate_limits"].values()) == ["99"]
    assert "cookie" not in str(facts)
    assert server.bodies == [call.request]
    step = step_of(bound, call.step_id)
    assert (step.step_kind, step.name, step.status) == ("model_call", case.model, "completed")
    run = bound.recordings.run(call.run_id)
    assert (run.goal, run.status) == ("Weigh both boats.", "completed")
    assert bound.recordings.verify(call.run_id).ok


@either
def test_the_answer_is_what_the_sdk_itself_reads(case: Case, bound: BoundTally) -> None:
    made = case.server.answer(
        case.server.thought("Two boats."),
        case.server.text("I weigh them."),
        case.server.call("c1", "weigh", boat="one"),
        case.server.call("c2", "weigh", boat="two"),
        **({"stop_reason": "tool_use"} if case.name == "anthropic" else {}),
    )
    server, provider = case.make(made)

    call = bound.call_model(asked(bound), provider=provider)

    if case.name == "openai":
        own: Any = server.client.responses.create(model="gpt-5", input="x")
        assert own.output_text == call.text
    else:
        own = server.client.messages.create(
            model="claude-sonnet-5", max_tokens=9, messages=[{"role": "user", "content": "x"}]
        )
    assert own.to_dict(mode="json") == call.response
    assert call.answer.reasoning == "Two boats."
    assert call.answer.stop == "tool_calls"
    assert [(each.id, each.arguments) for each in call.tool_calls] == [
        ("c1", {"boat": "one"}),
        ("c2", {"boat": "two"}),
    ]


@either
def test_a_loop_of_tools_sends_answers_back_as_they_came_and_each_request_begins_as_the_last(
    case: Case, bound: BoundTally
) -> None:
    asks = {"stop_reason": "tool_use"} if case.name == "anthropic" else {}
    first = case.server.answer(
        case.server.thought("Two boats."),
        case.server.call("c1", "weigh", boat="one"),
        case.server.call("c2", "weigh", boat="two"),
        **asks,
    )
    second = case.server.answer(case.server.call("c3", "weigh", boat="three"), **asks)
    last = case.server.answer(case.server.text("Ten tons."))
    server, provider = case.make(first, second, last)
    items: list[ContextItem] = []

    with bound.run("weigher") as run:
        while True:
            call = bound.call_model(asked(bound, *items), provider=provider)
            items.append(call.item())
            if not call.tool_calls:
                break
            items += [
                ContextItem(
                    id=f"r-{each.id}",
                    kind="tool_result",
                    content="three tons",
                    tool_call_id=each.id,
                )
                for each in call.tool_calls
            ]

    assert call.text == "Ten tons."
    assert bound.recordings.verify(run.id).ok
    messages = "input" if case.name == "openai" else "messages"
    prompts = [json.dumps(_unmarked(body[messages]))[:-1] for body in server.bodies]
    heads = [json.dumps([body.get("tools"), _unmarked(system_of(body))]) for body in server.bodies]
    assert len(prompts) == 3
    assert len(set(heads)) == 1
    assert prompts[1].startswith(prompts[0])
    assert prompts[2].startswith(prompts[1])
    carried = "encrypted_content" if case.name == "openai" else "signature"
    assert [carried in prompt for prompt in prompts] == [False, True, True]
    # The results of parallel calls stand together, in their order, right after them.
    assert prompts[2].index("three tons") > prompts[2].index('"c2"')


def system_of(body: dict[str, Any]) -> Any:
    return body.get("instructions") or body.get("system")


def _unmarked(value: Any) -> Any:
    """Without the marks of a cache, which move and are no part of what it compares."""
    if isinstance(value, list):
        return [_unmarked(each) for each in value]
    if isinstance(value, dict):
        marks = ("cache_control", "prompt_cache_breakpoint")
        return {key: _unmarked(each) for key, each in value.items() if key not in marks}
    return value


@either
def test_an_answer_that_the_compiler_changed_does_not_go_back_as_it_was(
    case: Case, bound: BoundTally
) -> None:
    secret = "The key is sk-proj-" + "Ab3" * 20
    server, provider = case.make(case.server.answer(case.server.text(secret)))
    call = bound.call_model(asked(bound), provider=provider)
    rule = PolicyRule.load(
        {
            "id": "clean",
            "name": "clean",
            "applies_to": "context_item",
            "effect": "redact",
        }
    )
    more = ContextItem(id="u2", kind="user_msg", content="And?")

    bound.call_model(asked(bound, call.item("a1"), more, rules=[rule]), provider=provider)

    assert "sk-proj-" not in json.dumps(server.bodies[-1])
    assert "[redacted by rule clean]" in json.dumps(server.bodies[-1])


@either
def test_images_and_built_in_tools_pass_through(case: Case, bound: BoundTally) -> None:
    server, provider = case.make(case.server.answer(case.server.text("A boat.")))
    builtin = {
        "openai": {"type": "web_search", "search_context_size": "low"},
        "anthropic": {"type": "web_search_20250305", "name": "web_search", "max_uses": 2},
    }[case.name]
    images: Any = [
        {"url": "https://example.org/boat.png"},
        {"media_type": "image/png", "data": "QQ=="},
    ]
    picture = ContextItem(
        id="u2", kind="user_msg", content="What is this?", metadata={"images": images}
    )

    bound.call_model(asked(bound, picture), provider=provider, parameters={"tools": [builtin]})

    body = server.bodies[0]
    assert body["tools"][1:] == [builtin]
    assert body["tools"][0]["name"] == "weigh"
    sent = json.dumps(body)
    assert "https://example.org/boat.png" in sent
    assert "QQ==" in sent
    broken = picture.model_copy(update={"metadata": {"images": [{"path": "x.png"}]}})
    with pytest.raises(InvalidContext, match="An image of 'u2'"):
        provider.render(asked(bound, broken))
    with pytest.raises(InvalidInput, match="Two tools are named weigh"):
        provider.render(asked(bound), tools=[{"type": "x", "name": "weigh"}])


def test_a_refusal_a_full_answer_and_a_filtered_one_are_told_apart(bound: BoundTally) -> None:
    stops = []
    for answer in (
        Openais.answer(Openais.refusal("I will not.")),
        Openais.answer(status="incomplete", incomplete_details={"reason": "max_output_tokens"}),
        Openais.answer(status="incomplete", incomplete_details={"reason": "content_filter"}),
        Openais.answer(status="failed", error={"code": "server_error", "message": "no"}),
    ):
        _, provider = CASES[0].make(answer)
        call = bound.call_model(asked(bound), provider=provider)
        stops.append((call.answer.stop, call.answer.refusal))
    assert stops == [
        ("refusal", "I will not."),
        ("length", None),
        ("filtered", None),
        ("failed", None),
    ]

    stops = []
    for reason in ("refusal", "max_tokens", "model_context_window_exceeded", "pause_turn"):
        _, provider = CASES[1].make(Anthropics.answer(Anthropics.text("So."), stop_reason=reason))
        stops.append((bound.call_model(asked(bound), provider=provider).answer.stop, None))
    assert [stop for stop, _ in stops] == ["refusal", "length", "length", "paused"]


@either
def test_a_stream_is_read_as_it_comes_and_recorded_whole(case: Case, bound: BoundTally) -> None:
    made = case.server.answer(
        case.server.text("Three tons each."),
        case.server.call("c1", "weigh", boat="one"),
        **({"stop_reason": "tool_use"} if case.name == "anthropic" else {}),
    )
    server, provider = case.make(made)

    with bound.stream_model(asked(bound), provider=provider) as stream:
        words = list(stream.texts())

    assert words == ["Three ", "tons ", "each. "]
    call = stream.call
    assert call.tool_calls == (ModelToolCall(id="c1", name="weigh", arguments={"boat": "one"}),)
    assert call.usage["output_tokens"] == 20
    facts = summary(bound, call.step_id, "response")
    assert facts["stream"]["chunks"] > 3
    assert facts["request_id"] == "req_1"
    assert step_of(bound, call.step_id).status == "completed"
    assert server.bodies[0]["stream"] is True


@either
def test_a_stream_that_breaks_leaves_what_came_until_then(case: Case, bound: BoundTally) -> None:
    answer = case.server.answer(
        case.server.text("Three tons each, I think."), case.server.call("c1", "weigh", boat="one")
    )

    class Broken(httpx2.SyncByteStream):
        def __iter__(self) -> Any:
            yield from server.events(answer, until=5)
            raise httpx2.ReadError("the line went dead")

    headers = {"content-type": "text/event-stream"}
    server, provider = case.make(lambda _: httpx2.Response(200, headers=headers, stream=Broken()))

    with (
        pytest.raises(Exception, match=r"the line went dead|Connection error"),
        bound.run("weigher") as run,
        bound.stream_model(asked(bound), provider=provider) as stream,
    ):
        list(stream)

    step = bound.recordings.steps(run.id)[-1]
    assert step.status == "failed"
    entries = {entry.kind: entry for entry in bound.recordings.entries(step.id)}
    assert entries["response"].summary["stop"] == "broken_off"
    payload: Any = entries["response"].payload
    assert payload["answer"]["text"].startswith("Three tons")
    assert payload["answer"]["tool_calls"] == []
    assert "error" in entries
    assert bound.recordings.verify(run.id).ok


@either
def test_a_stream_that_is_left_early_is_recorded_as_cancelled(
    case: Case, bound: BoundTally
) -> None:
    _, provider = case.make(case.server.answer(case.server.text("One two three four")))

    with bound.run("weigher") as run, bound.stream_model(asked(bound), provider=provider) as stream:
        next(stream.texts())

    step = bound.recordings.steps(run.id)[-1]
    assert step.status == "cancelled"
    assert summary(bound, step.id, "response")["stop"] == "broken_off"


@either
@pytest.mark.parametrize("status", [429, 529, 400])
def test_errors_are_those_of_the_sdk_and_the_step_has_failed(
    case: Case, bound: BoundTally, status: int
) -> None:
    kind = {429: "rate_limit_error", 529: "overloaded_error", 400: "context_length_exceeded"}[
        status
    ]
    _, provider = case.make(refusing(status, kind))
    expected: Any = {429: case.rate_limited, 529: case.overloaded}.get(status)
    module: Any = openai if case.name == "openai" else anthropic

    with (
        pytest.raises(expected or module.BadRequestError, match=kind),
        bound.run("weigher") as run,
    ):
        bound.call_model(asked(bound), provider=provider)

    step = bound.recordings.steps(run.id)[-1]
    assert (step.step_kind, step.status) == ("model_call", "failed")


@either
def test_retries_are_those_of_the_client(case: Case, bound: BoundTally) -> None:
    server = case.server(
        refusing(429, "rate_limit_error", **{"retry-after-ms": "1"}),
        case.server.answer(case.server.text("At last.")),
    )
    provider = case.provider(case.model, client=server.client.with_options(max_retries=1))

    assert bound.call_model(asked(bound), provider=provider).text == "At last."
    assert len(server.bodies) == 2


@either
def test_what_does_not_pair_is_refused_before_it_is_sent(case: Case, bound: BoundTally) -> None:
    server, provider = case.make(case.server.answer(case.server.text("Never.")))
    calls = [{"id": "c1", "name": "weigh", "args": {"boat": "one"}}]
    waiting = ContextItem.load(
        {
            "id": "a1",
            "kind": "assistant_msg",
            "content": "",
            "tool_call_ids": ["c1"],
            "metadata": {"tool_calls": calls},
        }
    )
    with pytest.raises(InvalidContext, match="'c1' has no result"):
        bound.call_model(asked(bound, waiting), provider=provider)

    whole = provider.render(asked(bound))
    field = "input" if case.name == "openai" else "messages"
    for spoiled in (
        {**whole, field: []},
        {**whole, field: [*whole[field], {"role": "robot", "content": "x"}]},
        {**whole, field: [*whole[field], "x"]},
        {**whole, "model": None},
    ):
        with pytest.raises(InvalidContext):
            provider.check(spoiled)
    with pytest.raises(InvalidInput, match="comes from the compiled context"):
        provider.render(asked(bound), **{field: []})
    assert server.requests == []


_WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=8)
_TURNS = st.lists(
    st.tuples(
        st.sampled_from(("user_msg", "assistant_msg", "tool_result")),
        _WORDS,
        st.lists(st.sampled_from(("c1", "c2", "c3")), max_size=2),
    ),
    min_size=1,
    max_size=7,
)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BoundTally]:
    with Tally.open(tmp_path_factory.mktemp("providers") / "t", background=False) as tally:
        yield tally.bind(ANN)


@either
@settings(max_examples=settings().max_examples // 2)
@given(turns=_TURNS)
def test_whatever_is_sent_pairs_and_whatever_does_not_is_never_sent(
    case: Case, shared: BoundTally, turns: list[tuple[Any, str, list[str]]]
) -> None:
    server, provider = case.make(case.server.answer(case.server.text("Fine.")))
    items = []
    for place, (kind, text, ids) in enumerate(turns):
        fields: dict[str, Any] = {"id": f"i{place}", "kind": kind, "content": text}
        if kind == "assistant_msg" and ids:
            calls = [{"id": each, "name": "weigh", "args": {"boat": each}} for each in ids]
            fields |= {"tool_call_ids": ids, "metadata": {"tool_calls": calls}}
        elif kind == "tool_result" and ids:
            fields |= {"tool_call_id": ids[0]}
        items.append(ContextItem.load(fields))
    try:
        call = shared.call_model(asked(shared, *items), provider=provider)
    except (CompileError, InvalidInput):
        assert server.requests == []
        return
    assert server.bodies == [call.request]
    assert _pairs(call.request)


def _pairs(request: dict[str, Any]) -> bool:
    """Whether each call is answered once, after it, and nothing else is answered."""
    waiting: list[str] = []
    for item in request.get("input", ()):
        if item["type"] == "function_call":
            waiting.append(item["call_id"])
        elif item["type"] == "function_call_output":
            waiting.remove(item["call_id"])
    for message in request.get("messages", ()):
        answers = [b["tool_use_id"] for b in message["content"] if b["type"] == "tool_result"]
        if sorted(answers) != sorted(waiting):
            return False
        waiting = [block["id"] for block in message["content"] if block["type"] == "tool_use"]
    return not waiting


@either
def test_a_missing_key_an_unknown_model_and_a_missing_sdk_say_what_to_do(
    case: Case, bound: BoundTally, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/nonexistent")
    compiled = asked(bound)

    with pytest.raises(SettingsError, match=f"{case.name.upper()}_API_KEY is not set"):
        bound.call_model(compiled, provider=f"{case.name}:{case.model}")
    with pytest.raises(InvalidInput, match=f"Did you mean .*{case.model}"):
        bound.call_model(compiled, provider=case.provider(f"{case.model}x"))
    with pytest.raises(InvalidInput, match="anthropic:MODEL, openai:MODEL"):
        bound.call_model(compiled, provider="nobody:x")
    with pytest.raises(InvalidInput, match="compile was for none"):
        bound.call_model(compiled, provider=case.provider())

    def find_spec(name: str, package: str | None = None) -> Any:
        return None if name == case.name else found(name, package)

    found = importlib.util.find_spec
    monkeypatch.setattr("tallystick.errors.base.find_spec", find_spec)
    with pytest.raises(MissingExtra, match=rf"\[{case.name}\]"):
        bound.call_model(compiled, provider=case.provider(case.model))


@either
def test_rules_over_model_calls_bite_before_anything_is_sent(
    case: Case, open_sqlite: OpenTally
) -> None:
    server, provider = case.make(case.server.answer(case.server.text("No.")))
    deny = PolicyRule.load(
        {
            "id": "no-cloud",
            "name": "no cloud",
            "applies_to": "model_call",
            "effect": "deny",
            "conditions": {"provider": [case.name]},
        }
    )
    bound = open_sqlite(rules=[deny]).bind(ANN)

    with pytest.raises(InvalidInput, match="names the model"):
        bound.call_model(asked(bound), provider=provider, parameters={"model": "another"})
    with pytest.raises(ActionDenied, match="no cloud"), bound.run("weigher") as run:
        bound.call_model(asked(bound), provider=provider, preflight="refuse")

    assert server.requests == []
    assert bound.recordings.steps(run.id)[-1].status == "failed"


@either
def test_a_rule_that_redacts_cleans_what_is_sent(case: Case, open_sqlite: OpenTally) -> None:
    server, provider = case.make(case.server.answer(case.server.text("Fine.")))
    clean = PolicyRule.load(
        {"id": "clean", "name": "clean", "applies_to": "model_call", "effect": "redact"}
    )
    bound = open_sqlite(rules=[clean]).bind(ANN)
    mail = ContextItem(id="u2", kind="user_msg", content="Write to ann@example.org.")

    bound.call_model(asked(bound, mail), provider=provider)

    assert "ann@example.org" not in json.dumps(server.bodies)


@either
def test_a_request_that_the_provider_counts_as_too_large_is_refused_or_compiled_for_less(
    case: Case, bound: BoundTally
) -> None:
    server, provider = case.make(case.server.answer(case.server.text("Fine.")))
    notes = [
        ContextItem(
            id=f"n{number}", kind="retrieval_doc", content=f"Weigh boat {number}. " + "rope " * 80
        )
        for number in range(12)
    ]
    server.counts = [2_400]
    with pytest.raises(BudgetInfeasible, match="2400 tokens and the budget leaves 2000"):
        bound.call_model(asked(bound, *notes), provider=provider, preflight="refuse")
    assert server.bodies == []

    server.counts = [2_400, 1_900]
    with bound.run("weigher"):
        call = bound.call_model(asked(bound, *notes), provider=provider, preflight="recompile")

    whole, sent = (
        json.dumps(body) for body in (provider.render(asked(bound, *notes)), call.request)
    )
    assert len(sent) < len(whole)
    _, recorded = bound.recordings.compiled(call.step_id)
    assert recorded.token_allocation["budget"] < 2_000


@either
def test_prices_of_your_own_come_first_and_an_unknown_model_costs_unknown(
    case: Case, open_sqlite: OpenTally, tmp_path: Any
) -> None:
    table = tmp_path / "prices.toml"
    table.write_text(
        'dated = "2026-11-01"\ncurrency = "EUR"\n'
        f'[models."{case.name}:{case.model}"]\ninput = 2\noutput = 10\ncache_read = 0.5\n'
    )
    bound = open_sqlite(settings=Settings.read(prices=table)).bind(ANN)
    answer = case.server.answer(case.server.text("Fine."))
    snapshot = {**answer, "model": f"{case.model}-2031-01-01"}
    server, provider = case.make(answer, snapshot)
    other = case.provider("nobody-1", client=server.client, any_model=True)

    cost = bound.call_model(asked(bound), provider=provider).cost
    assert bound.call_model(asked(bound), provider=provider).cost == cost
    server.answers = [{**answer, "model": "nobody-1"}]
    unknown = bound.call_model(asked(bound), provider=other).cost

    # 400 tokens at 2, 600 from the cache at 0.5, 20 at 10, a million each
    assert (cost.amount, cost.currency, cost.prices) == ("0.0013", "EUR", "own 2026-11-01")
    assert (unknown.amount, str(unknown)) == (None, "unknown")
    for text in ("models = 1", "dated = 1\n[models.x]\ninput = 1", "[models.x]\ninput=1\noutput=2"):
        table.write_text(text)
        with pytest.raises(SettingsError, match="prices: "):
            open_sqlite(settings=Settings.read(prices=table))


@either
def test_a_tape_answers_without_a_key_and_knows_another_request(
    case: Case, bound: BoundTally
) -> None:
    _, provider = case.make(case.server.answer(case.server.text("Three tons.")))
    with bound.run("weigher") as run:
        bound.call_model(asked(bound), provider=provider)
    offline = case.provider(case.model)

    taped = offline.on_tape(bound.recordings.player(run.id))
    assert bound.call_model(asked(bound), provider=taped).text == "Three tons."

    streamed = offline.on_tape(bound.recordings.player(run.id))
    with bound.stream_model(asked(bound), provider=streamed) as stream:
        assert list(stream.texts()) == ["Three tons."]
    other = offline.on_tape(bound.recordings.player(run.id))
    more = ContextItem(id="u2", kind="user_msg", content="Something else.")
    with pytest.raises(TapeDiverged):
        bound.call_model(asked(bound, more), provider=other)


def test_a_step_of_one_provider_is_replayed_as_a_request_of_the_other(bound: BoundTally) -> None:
    _, first = CASES[0].make(Openais.answer(Openais.text("Three tons.")))
    call = bound.call_model(asked(bound), provider=first)
    server, other = CASES[1].make(Anthropics.answer(Anthropics.text("Four tons.")))

    exact = bound.recordings.replay(call.step_id, call=first.answer, render=first.render)
    assert (exact.request_matches, exact.response_matches) == (True, True)

    rendered = bound.recordings.preview_replay(
        call.step_id,
        provider_override="anthropic",
        model_override="claude-sonnet-5",
        render=other.render,
    )
    request: Any = rendered.request
    assert request["system"][0]["text"] == "You weigh boats."
    assert server.requests == []

    sent = bound.recordings.replay(
        call.step_id,
        provider_override="anthropic",
        model_override="claude-sonnet-5",
        render=other.render,
        call=other.answer,
    )
    assert server.bodies == [request]
    assert sent.response_matches is False
    response: Any = sent.response
    assert response["answer"]["text"] == "Four tons."


@either
def test_the_wire_tap_records_the_bytes(case: Case, bound: BoundTally) -> None:
    server, provider = case.make(case.server.answer(case.server.text("Fine.")), wire=True)

    call = bound.call_model(asked(bound), provider=provider)

    entries = {entry.kind: entry for entry in bound.recordings.entries(call.step_id)}
    payload: Any = entries["wire_request"].payload
    assert payload["body"] == server.bodies[0]
    assert "sk-" not in json.dumps(payload)


async def test_a_model_is_called_and_streamed_from_coroutines(bound: BoundTally) -> None:
    _, provider = CASES[1].make(Anthropics.answer(Anthropics.text("Three tons.")))

    async with bound.aio.run("weigher") as run:
        call = await bound.aio.call_model(asked(bound), provider=provider)
        async with bound.aio.stream_model(asked(bound), provider=provider) as stream:
            words = [event.text async for event in stream if event.kind == "text"]
        streamed = await stream.call()

    assert call.text == "Three tons."
    assert words == ["Three ", "tons. "]
    assert streamed.text.strip() == call.text
    kinds = [step.step_kind for step in bound.recordings.steps(run.id)]
    assert kinds.count("model_call") == 2


def test_the_open_model_step_takes_the_call_and_a_second_call_its_own(bound: BoundTally) -> None:
    _, provider = CASES[0].make(Openais.answer(Openais.text("Fine.")))

    with bound.run("weigher") as run, run.step("model_call", name="mine") as step:
        compiled = asked(bound)
        first = bound.call_model(compiled, provider=provider)
        second = bound.call_model(compiled, provider=provider)

    assert first.step_id == step.id
    assert second.step_id != step.id
    kinds = [entry.kind for entry in bound.recordings.entries(step.id)]
    assert kinds == ["compile_request", "compiled", "request", "response"]


def test_openai_may_keep_the_state_and_gets_only_what_is_new(bound: BoundTally) -> None:
    first = Openais.answer(Openais.call("c1", "weigh", boat="one"), store=True)
    last = Openais.answer(Openais.text("Three tons."), id="resp_2", store=True)
    server, provider = CASES[0].make(first, last, continuation="previous_response_id")

    call = bound.call_model(asked(bound), provider=provider)
    result = ContextItem(id="r1", kind="tool_result", content="three tons", tool_call_id="c1")
    done = bound.call_model(asked(bound, call.item("a1"), result), provider=provider)
    more = ContextItem(id="u2", kind="user_msg", content="And the third?")
    bound.call_model(
        asked(bound, call.item("a1"), result, done.item("a2"), more), provider=provider
    )

    tools, next_turn = server.bodies[1:]
    assert server.bodies[0]["store"] is True
    assert (tools["previous_response_id"], next_turn["previous_response_id"]) == (
        "resp_1",
        "resp_2",
    )
    assert [item["type"] for item in tools["input"]] == ["function_call_output"]
    assert "And the third?" in json.dumps(next_turn["input"])
    assert "Weigh both boats." not in json.dumps(next_turn["input"])
    assert next_turn["instructions"] == "You weigh boats."


def test_openai_compacts_a_request_outside_of_the_core(bound: BoundTally) -> None:
    item = {"type": "compaction", "id": "cmp_1", "encrypted_content": "zzz"}
    usage = Openais.answer()["usage"]
    made = {
        "id": "resp_9",
        "created_at": 1,
        "object": "response.compaction",
        "output": [item],
        "usage": usage,
    }
    server, provider = CASES[0].make(made)

    request = provider.compact(provider.render(asked(bound)))

    assert server.requests[0]["_path"].endswith("/responses/compact")
    assert request["input"] == [item]
    assert request["instructions"] == "You weigh boats."
    provider.check(request)


def test_anthropic_thinks_behind_a_flag_and_marks_at_most_four_breakpoints(
    bound: BoundTally,
) -> None:
    server, provider = CASES[1].make(Anthropics.answer(Anthropics.text("Fine.")), thinking=True)

    bound.call_model(asked(bound, reserve=900), provider=provider)

    body = server.bodies[0]
    assert body["thinking"] == {"type": "adaptive"}
    assert body["max_tokens"] == 900
    assert 1 < json.dumps(body).count("cache_control") <= 4
    marked = {**body, "system": [{**body["system"][0], "cache_control": {}} for _ in range(5)]}
    spoiled = {
        **marked,
        "system": [{"type": "text", "text": "x", "cache_control": {"type": "e"}}] * 5,
    }
    with pytest.raises(InvalidContext, match="may have one"):
        provider.check(spoiled)


def test_the_last_turns_and_what_is_remembered_are_one_call(bound: BoundTally) -> None:
    server, provider = CASES[0].make(Openais.answer(Openais.text("No nuts.")))
    bound.remember("I am allergic to nuts.")
    for message in ("May I eat nuts for dinner?", "And for lunch?"):
        with bound.run("cook", metadata={"thread_id": "c1"}) as run:
            compiled = conversation_context(
                bound, message, conversation="c1", budget=2_000, system="You cook."
            )
            call = bound.call_model(compiled, provider=provider)
            bound.keep_turn(run, user=message, assistant=call.text)

    body = server.bodies[-1]
    texts = [json.dumps(item["content"]) for item in body["input"]]
    assert "May I eat nuts for dinner?" in texts[0]
    assert "No nuts." in texts[1]
    assert "I am allergic to nuts." in json.dumps(server.bodies[0])
    assert "And for lunch?" in texts[-1]
    project = {"scope": "project:apollo"}
    colleagues = [
        bound.tally.bind(Actor(user=user, projects=frozenset({"apollo"})), **project)
        for user in ("ann", "bob")
    ]
    for each in colleagues:
        with each.run("cook", metadata={"thread_id": "c2"}) as run:
            each.keep_turn(run, user=f"{each.actor.user} asks.", assistant="No nuts.")
    shared = conversation_context(colleagues[0], "And now?", conversation="c2", budget=2_000)
    roles = [message["role"] for message in provider.render(shared)["input"]]
    assert roles == ["user", "assistant", "user", "assistant", "user"]
    unbound: Any = bound.tally
    with pytest.raises(InvalidInput, match="tally that is bound"):
        conversation_context(unbound, "Hi.", conversation="c1", budget=2_000)
    wrong: Any = 7
    with pytest.raises(InvalidInput, match="no provider of models"):
        bound.call_model(compiled, provider=wrong)
    with pytest.raises(InvalidInput, match="no message"):
        conversation_context(bound, " ", conversation="c1", budget=2_000)


@pytest.mark.parametrize(
    ("make", "case"),
    [(responses_tools, CASES[0]), (messages_tools, CASES[1])],
    ids=["openai", "anthropic"],
)
def test_memory_tools_run_what_the_model_asks_for_and_ask_before_they_forget(
    make: Any, case: Case, bound: BoundTally
) -> None:
    kept = bound.remember("I am allergic to nuts.")
    asked_for: list[str] = []

    def ask(question: Any) -> bool | str:
        asked_for.append(question.tool)
        return question.arguments["reason"] == "wrong" or "not today"

    tools = make(bound, ask=ask)
    response = case.server.answer(
        case.server.call("c1", "memory_search", query="nuts"),
        case.server.call("c2", "memory_forget", memory_id=kept.id, reason="bored"),
        case.server.call("c3", "memory_search", query=["no text"]),
        case.server.call("c4", "weigh", boat="one"),
        **({"stop_reason": "tool_use"} if case.name == "anthropic" else {}),
    )

    with bound.run("helper") as run:
        outputs = tools.outputs(response)

    texts = [json.loads(each.get("output") or each["content"]) for each in outputs]
    assert [text["memories"][0]["text"] for text in texts[:1]] == ["I am allergic to nuts."]
    assert texts[1]["reason"] == "not_approved"
    assert "not today" in texts[1]["message"]
    assert texts[2]["error"] == "InvalidInput"
    assert len(texts) == 3
    assert asked_for == ["memory_forget"]
    steps = bound.recordings.steps(run.id)
    assert [(step.name, step.status) for step in steps if step.step_kind == "tool_call"] == [
        ("memory_search", "completed"),
        ("memory_forget", "failed"),
        ("memory_search", "failed"),
    ]
    assert bound.get(kept.id).state == "active"
    forget = ModelToolCall(
        id="c5", name="memory_forget", arguments={"memory_id": kept.id, "reason": "wrong"}
    )
    assert make(bound).run(forget)["reason"] == "not_approved"
    assert tools.run(forget)["state"] == "deleted"
    with pytest.raises(InvalidInput, match="no memory tool"):
        tools.run(ModelToolCall(id="c6", name="weigh", arguments={}))


@pytest.mark.parametrize("make", [responses_tools, messages_tools], ids=["openai", "anthropic"])
def test_whom_a_rule_asks_is_asked_once_through_the_memory_tools(
    make: Any, open_sqlite: OpenTally
) -> None:
    rule = PolicyRule.load(
        {
            "id": "ask",
            "name": "ask first",
            "applies_to": "tool_call",
            "effect": "require_approval",
            "conditions": {"tool": ["memory_forget"]},
        }
    )
    bound = open_sqlite(rules=[rule]).bind(ANN)
    kept = bound.remember("I am allergic to nuts.")
    arguments: Any = {"memory_id": kept.id, "reason": "wrong"}
    forget = ModelToolCall(id="c1", name="memory_forget", arguments=arguments)

    assert make(bound).run(forget)["error"] == "approval_required"
    assert make(bound, ask=lambda _: "not today").run(forget)["error"] == "action_denied"
    assert bound.get(kept.id).state == "active"
    asked_for: list[str] = []

    def allow(question: Any) -> bool:
        asked_for.append(question.tool)
        return True

    again = ModelToolCall(
        id="c2", name="memory_forget", arguments={**arguments, "reason": "no longer true"}
    )
    answer = make(bound, ask=allow).run(again)
    assert answer["state"] == "deleted"
    assert asked_for == ["memory_forget"]


@pytest.mark.parametrize(
    ("make", "case"),
    [(responses_tools, CASES[0]), (messages_tools, CASES[1])],
    ids=["openai", "anthropic"],
)
def test_definitions_of_memory_tools_are_what_the_sdk_sends(
    make: Any, case: Case, bound: BoundTally
) -> None:
    server = case.server(case.server.answer(case.server.text("Hm.")))
    definitions = make(bound).definitions
    if case.name == "openai":
        server.client.responses.create(model=case.model, input="x", tools=definitions)
    else:
        server.client.messages.create(
            model=case.model,
            max_tokens=9,
            messages=[{"role": "user", "content": "x"}],
            tools=definitions,
        )
    sent = server.bodies[0]["tools"]
    assert sent == definitions
    assert [tool["name"] for tool in sent] == sorted(tool["name"] for tool in sent)
    schema = sent[0].get("parameters") or sent[0]["input_schema"]
    assert schema["required"] == ["memory_id", "reason"]


@either
def test_a_provider_fits_the_port(case: Case) -> None:
    assert isinstance(case.provider(case.model), ModelProvider)
    assert repr(case.provider(case.model)).endswith(f"({case.model!r})")
    assert isinstance(case.server("x"), Server)
