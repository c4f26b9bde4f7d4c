"""Agents of LlamaIndex run again on their tape: the same requests match, others show in a diff."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent, base_agent
from llama_index.core.base.llms.types import ChatMessage, TextBlock
from llama_index.core.llms import MockLLM
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.llms.llm import ToolSelection
from llama_index.core.prompts import PromptTemplate
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.tools import AsyncBaseTool, FunctionTool, ToolMetadata, ToolOutput
from llama_index.core.workflow import Context, HumanResponseEvent, InputRequiredEvent
from pydantic import BaseModel
from tests.integrations.llama_scripted import Scripted, calls

from tallystick import Actor, Tally
from tallystick.errors import InvalidInput, NotReplayable, TapeDiverged
from tallystick.recorder import Player
from tallystick.tally import BoundTally
from tallystick_llama_index import (
    TallyInstrumentation,
    TallyMemory,
    TallyRetriever,
    TapeLLM,
    tape_tools,
)

OpenTally = Callable[..., Tally]
ANNA = Actor(user="anna")
KEY, OTHER_KEY = (f"sk-proj-{letter * 40}A1b2" for letter in "ab")

# LlamaIndex's agents look at every attribute of their pydantic selves, deprecated ones too.
pytestmark = pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")


WEIGH = ("c1", "weigh", {"what": "tea"})


class Scale:
    """Tools that say how often they really ran."""

    def __init__(self) -> None:
        self.ran: list[str] = []

        async def weigh(what: str) -> dict[str, Any]:
            """Weigh something."""
            self.ran.append(f"weigh {what}")
            return {"what": what, "tons": 3}

        def lift(what: str) -> str:
            """Lift something."""
            self.ran.append(f"lift {what}")
            raise OSError(f"{what} is too heavy")

        self.tools: list[Any] = [weigh, FunctionTool.from_defaults(lift)]


def _agent(llm: FunctionCallingLLM, tools: Sequence[Any] = (), **options: Any) -> FunctionAgent:
    return FunctionAgent(
        **{
            "name": "weigher",
            "llm": llm,
            "tools": list(tools),
            "system_prompt": "You weigh things.",
            **options,
        }
    )


def _run(agent: Any, prompt: str = "How heavy?", **options: Any) -> str:
    async def ask() -> str:
        return str(await agent.run(prompt, **options))

    return asyncio.run(ask())


def _recorded(
    tally: Tally | BoundTally, agent: Any, prompt: str = "How heavy?", **options: Any
) -> str:
    with TallyInstrumentation(tally, strict=True):
        return _run(agent, prompt, **options)


def _player(tally: Tally | BoundTally, **options: Any) -> Player:
    bound = tally.bind() if isinstance(tally, Tally) else tally
    return bound.recordings.player(bound.runs()[0].run_id, **options)


@pytest.mark.smoke
@pytest.mark.parametrize("streaming", [False, True])
def test_an_agent_runs_again_on_its_tape_and_no_tool_is_run(
    open_tally: OpenTally, streaming: bool
) -> None:
    scale = Scale()
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        tool_calls = calls(WEIGH, ("c2", "lift", {"what": "ship"}))
        model = Scripted(tool_calls, "Three tons, and too heavy.")
        answer = _recorded(anna, _agent(model, scale.tools, streaming=streaming))
        assert set(scale.ran) == {"weigh tea", "lift ship"}
        players = [_player(anna) for _ in range(2)]

    for player, streamed in zip(players, (streaming, not streaming), strict=True):
        again = _agent(TapeLLM(player), tape_tools(player, scale.tools), streaming=streamed)
        assert _run(again) == answer
        report = player.finish()
        assert (report.fidelity, report.calls, report.matches) == ("exact", 4, True)
    assert len(scale.ran) == 2


def test_a_changed_system_prompt_is_a_divergence_with_a_diff(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        _recorded(tally, _agent(Scripted("I cannot say.")))
        player = _player(tally)
    with pytest.raises(TapeDiverged) as caught:
        _run(_agent(TapeLLM(player), system_prompt="You guess weights."))
    assert caught.value.what.startswith("call 1 is not the recorded one (model call ")
    changed = [line for line in caught.value.diff if line.startswith(("-  ", "+  "))]
    assert [line[1:].strip() for line in changed] == [
        '"text": "You weigh things."',
        '"text": "You guess weights."',
    ]


def test_tools_that_changed_or_are_called_otherwise_are_divergences(open_sqlite: OpenTally) -> None:
    def weigh(what: str, exactly: bool = False) -> str:
        """Weigh something."""
        return what

    class _Careless(TapeLLM):
        """Calls for something else than the tape says."""

        def get_tool_calls_from_response(self, *args: Any, **kwargs: Any) -> list[ToolSelection]:
            selections = super().get_tool_calls_from_response(*args, **kwargs)
            return [
                selection.model_copy(update={"tool_kwargs": {"what": "coffee"}})
                for selection in selections
            ]

    scale = Scale()
    with open_sqlite() as tally:
        _recorded(tally, _agent(Scripted(calls(WEIGH), "Heavy."), scale.tools))
        changed, called = _player(tally), _player(tally)
    with pytest.raises(TapeDiverged, match="call 1 is not the recorded one"):
        _run(_agent(TapeLLM(changed), tape_tools(changed, [weigh, scale.tools[1]])))
    # The agent takes the error for that of the tool, and is told again when it goes on.
    with pytest.raises(TapeDiverged, match="call 2 is not the recorded one") as caught:
        _run(_agent(cast(Any, _Careless)(called), tape_tools(called, scale.tools)))
    assert {'-    "what": "tea"', '+    "what": "coffee"'} <= set(caught.value.diff)


def test_an_agent_that_asks_more_or_less_than_its_tape_is_told_so(open_sqlite: OpenTally) -> None:
    scale = Scale()
    with open_sqlite() as tally:
        _recorded(tally, _agent(Scripted(calls(WEIGH), "Heavy."), scale.tools))
        more, less = _player(tally), _player(tally)
    agent = _agent(TapeLLM(more), tape_tools(more, scale.tools))
    _run(agent)
    with pytest.raises(
        TapeDiverged, match="call 4 asks a model, and the tape holds no such call any more"
    ):
        _run(agent)
    messages = [ChatMessage("You weigh things.", role="system"), ChatMessage("How heavy?")]
    TapeLLM(less).chat_with_tools([*tape_tools(less, scale.tools)], chat_history=messages)
    with pytest.raises(
        TapeDiverged, match="ended before 2 of 3 recorded calls; the next was tool call weigh"
    ):
        less.finish()


def test_safe_tools_run_for_real_and_are_compared(open_sqlite: OpenTally) -> None:
    def weigh(what: str) -> dict[str, Any]:
        """Weigh something."""
        return {"what": what, "tons": 4}

    scale = Scale()
    with open_sqlite() as tally:
        answer = _recorded(tally, _agent(Scripted(calls(WEIGH), "Heavy."), scale.tools))
        player, other = _player(tally), _player(tally)
    scale.ran.clear()
    assert _run(_agent(TapeLLM(player), tape_tools(player, scale.tools, safe={"weigh"}))) == answer
    assert scale.ran == ["weigh tea"]
    assert player.finish().matches
    with pytest.raises(TapeDiverged) as caught:
        _run(_agent(TapeLLM(other), tape_tools(other, [weigh, scale.tools[1]], safe={"weigh"})))
    assert any(line.startswith("+") and "'tons': 4" in line for line in caught.value.diff)
    with pytest.raises(InvalidInput, match="sing is not among the tools"):
        tape_tools(other, scale.tools, safe={"sing"})


def test_a_tool_that_is_given_its_context_runs_with_it_or_is_played_without(
    open_sqlite: OpenTally,
) -> None:
    seen: list[bool] = []

    async def note(ctx: Context, text: str) -> str:
        """Note it."""
        seen.append(isinstance(ctx, Context))
        return f"noted {text}"

    # LlamaIndex looks for the class itself, which is text in this module.
    note.__annotations__ = {"ctx": Context, "text": str, "return": str}

    with open_sqlite() as tally:
        answer = _recorded(
            tally, _agent(Scripted(calls(("c1", "note", {"text": "tea"})), "Noted."), [note])
        )
        played, real = _player(tally), _player(tally)
    assert _run(_agent(TapeLLM(played), tape_tools(played, [note]))) == answer
    assert played.finish().matches
    assert _run(_agent(TapeLLM(real), tape_tools(real, [note], safe={"note"}))) == answer
    assert real.finish().matches
    assert seen == [True, True]


class Lookup(AsyncBaseTool):
    """A tool that is no function."""

    @property
    def metadata(self) -> ToolMetadata:
        return ToolMetadata("Look something up.", name="lookup")

    def call(self, input: Any) -> ToolOutput:
        return ToolOutput(
            "lookup",
            blocks=[TextBlock(text=f"{input}:"), TextBlock(text="found")],
            raw_input={"input": input},
        )

    async def acall(self, input: Any) -> ToolOutput:
        return self.call(input)


def test_tools_that_are_no_functions_play_with_their_blocks(open_sqlite: OpenTally) -> None:
    call = calls(("c1", "lookup", {"input": "tea"}))
    with open_sqlite() as tally:
        answer = _recorded(tally, _agent(Scripted(call, "Found."), [Lookup()]))
        played, real = _player(tally), _player(tally)
    assert _run(_agent(TapeLLM(played), tape_tools(played, [Lookup()]))) == answer
    assert played.finish().matches
    assert _run(_agent(TapeLLM(real), tape_tools(real, [Lookup()], safe={"lookup"}))) == answer
    assert real.finish().matches


def test_models_are_asked_without_an_agent_too(open_sqlite: OpenTally) -> None:
    scale = Scale()
    with open_sqlite() as tally:
        with (
            tally.bind().run("caller") as run,
            run.active(),
            TallyInstrumentation(tally, strict=True),
        ):
            model = Scripted("heron", "stork", "crane", "rook", calls(WEIGH))
            answer = [
                model.chat([ChatMessage("Say it.")]).message.content,
                [piece.message.content for piece in model.stream_chat([ChatMessage("Say it.")])][
                    -1
                ],
                model.complete("Say it.").text,
                asyncio.run(model.acomplete("Say more.")).text,
                model.predict_and_call(
                    [FunctionTool.from_defaults(async_fn=scale.tools[0])], "How heavy?"
                ).response,
            ]
        player = tally.recordings.player(run.id)
    silent = TapeLLM(player)
    again = [
        silent.chat([ChatMessage("Say it.")]).message.content,
        [piece.message.content for piece in silent.stream_chat([ChatMessage("Say it.")])][-1],
        [piece.text for piece in silent.stream_complete("Say it.")][-1],
        asyncio.run(silent.acomplete("Say more.")).text,
        silent.predict_and_call([*tape_tools(player, scale.tools[:1])], "How heavy?")
        .sources[0]
        .raw_output,
    ]
    assert again[:4] == answer[:4]
    assert again[4] == {"what": "tea", "tons": 3}
    assert player.finish().matches
    assert scale.ran == ["weigh tea"]


def test_a_query_engine_is_played_and_its_retrieval_is_real(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        tally.bind().remember("The heron nests in March.", speaker="Ada")
        with TallyInstrumentation(tally, strict=True):
            answer = str(
                RetrieverQueryEngine.from_args(TallyRetriever(tally), llm=MockLLM()).query("When?")
            )
        same, other = _player(tally), _player(tally)
        assert (
            str(
                RetrieverQueryEngine.from_args(TallyRetriever(tally), llm=TapeLLM(same)).query(
                    "When?"
                )
            )
            == answer
        )
        assert same.finish().matches
        tally.bind().remember("The heron nests again in June.")
        with pytest.raises(TapeDiverged):
            RetrieverQueryEngine.from_args(TallyRetriever(tally), llm=TapeLLM(other)).query("When?")


class Weight(BaseModel):
    """An answer."""

    tons: int


def test_structured_output_is_played(open_sqlite: OpenTally) -> None:
    prompt = PromptTemplate("How heavy is {what}?")
    call = calls(("c1", "Weight", {"tons": 3}))
    with open_sqlite() as tally:
        with TallyInstrumentation(tally, strict=True):
            assert Scripted(call).structured_predict(Weight, prompt, what="tea") == Weight(tons=3)
        player = _player(tally)
    assert TapeLLM(player).structured_predict(Weight, prompt, what="tea") == Weight(tons=3)
    assert player.finish().matches


def test_a_retry_is_played_as_it_went(open_sqlite: OpenTally) -> None:
    def patient(model: FunctionCallingLLM) -> str:
        for _ in range(2):
            try:
                return str(model.chat([ChatMessage("Say it.")]).message.content)
            except ConnectionError:
                continue
        raise AssertionError

    with open_sqlite() as tally:
        with (
            tally.bind().run("caller") as run,
            run.active(),
            TallyInstrumentation(tally, strict=True),
        ):
            assert patient(Scripted(ConnectionError("no route"), "heron")) == "heron"
        player = tally.recordings.player(run.id)
    assert patient(TapeLLM(player)) == "heron"
    assert player.finish().matches


def test_an_agent_that_is_a_tool_is_played_as_one_or_runs_on_the_tape_itself(
    open_sqlite: OpenTally,
) -> None:
    def boss(model: FunctionCallingLLM, inner: FunctionAgent) -> Any:
        async def ask_expert(question: str) -> str:
            """Ask the expert."""
            return str(await inner.run(question))

        return model, ask_expert

    scale = Scale()
    with open_sqlite() as tally:
        expert = _agent(Scripted(calls(WEIGH), "Three tons."), scale.tools, name="expert")
        model, ask = boss(
            Scripted(calls(("c9", "ask_expert", {"question": "tea?"})), "The expert agrees."),
            expert,
        )
        answer = _recorded(tally, _agent(model, [ask]))
        played, real = _player(tally), _player(tally)
    assert len(played.tape.calls) == 6
    model, ask = boss(TapeLLM(played), expert)
    assert _run(_agent(model, tape_tools(played, [ask]))) == answer
    assert played.finish().matches

    model, ask = boss(
        TapeLLM(real), _agent(TapeLLM(real), tape_tools(real, scale.tools), name="expert")
    )
    assert _run(_agent(model, tape_tools(real, [ask], safe={"ask_expert"}))) == answer
    assert real.finish().matches
    assert scale.ran == ["weigh tea"]


def test_agents_that_hand_over_to_one_another_are_played(open_sqlite: OpenTally) -> None:
    def team(
        first: FunctionCallingLLM, second: FunctionCallingLLM, tools: Sequence[Any]
    ) -> AgentWorkflow:
        boss = FunctionAgent(
            name="boss", description="Decides.", llm=first, can_handoff_to=["clerk"]
        )
        clerk = FunctionAgent(name="clerk", description="Weighs.", llm=second, tools=list(tools))
        return AgentWorkflow(agents=[boss, clerk], root_agent="boss")

    scale = Scale()
    with open_sqlite() as tally:
        over = calls(("c1", "handoff", {"to_agent": "clerk", "reason": "It can weigh."}))
        tool_calls = calls(("c2", "weigh", {"what": "tea"}))
        answer = _recorded(
            tally, team(Scripted(over), Scripted(tool_calls, "Three tons."), scale.tools)
        )
        player = _player(tally)
    again = team(TapeLLM(player), TapeLLM(player), tape_tools(player, scale.tools))
    assert _run(again) == answer
    assert player.finish().matches
    assert scale.ran == ["weigh tea"]


@pytest.mark.skipif(
    "WaitingForEvent" not in inspect.getsource(base_agent),
    reason="this release of LlamaIndex does not let tools of agents wait",
)
def test_a_tool_that_waits_for_a_person_is_played_with_the_answer_or_asks_again(
    open_sqlite: OpenTally,
) -> None:
    async def pay(ctx: Context, amount: int) -> str:
        """Pay."""
        asks, answers = cast(Any, InputRequiredEvent), HumanResponseEvent
        answer = await ctx.wait_for_event(
            answers, waiter_id="sure", waiter_event=asks(prefix="really?"), timeout=60
        )
        return f"paid {amount}: {answer.response}"

    # LlamaIndex looks for the class itself, which is text in this module.
    pay.__annotations__ = {"ctx": Context, "amount": int, "return": str}
    questions: list[str] = []

    def drive(agent: FunctionAgent) -> str:
        async def ask() -> str:
            running, answers = agent.run("Pay 7."), cast(Any, HumanResponseEvent)
            async for event in running.stream_events():
                if isinstance(event, InputRequiredEvent):
                    questions.append("really?")
                    assert running.ctx is not None
                    running.ctx.send_event(answers(response="yes"))
            return str(await running)

        return asyncio.run(ask())

    with open_sqlite() as tally:
        with TallyInstrumentation(tally, strict=True):
            recorded_answer = drive(
                _agent(Scripted(calls(("c1", "pay", {"amount": 7})), "Paid."), [pay])
            )
        played, real = _player(tally), _player(tally)
    assert questions == ["really?"]
    assert drive(_agent(TapeLLM(played), tape_tools(played, [pay]))) == recorded_answer
    assert played.finish().matches
    assert questions == ["really?"]
    assert drive(_agent(TapeLLM(real), tape_tools(real, [pay], safe={"pay"}))) == recorded_answer
    assert real.finish().matches
    assert questions == ["really?", "really?"]


def test_with_like_the_settings_of_the_model_are_compared(open_sqlite: OpenTally) -> None:
    scale = Scale()
    with open_sqlite() as tally:
        _recorded(tally, _agent(Scripted(calls(WEIGH), "Heavy."), scale.tools))
        same, warmer, serial, unlike = (_player(tally) for _ in range(4))
    _run(_agent(TapeLLM(same, like=Scripted()), tape_tools(same, scale.tools)))
    assert same.finish().matches
    with pytest.raises(TapeDiverged, match=r'"temperature": 1\.0'):
        _run(
            _agent(TapeLLM(warmer, like=Scripted(temperature=1.0)), tape_tools(warmer, scale.tools))
        )
    one_by_one: Any = {"allow_parallel_tool_calls": False}
    with pytest.raises(TapeDiverged, match='"parallel_tool_calls": false'):
        _run(
            _agent(TapeLLM(serial, like=Scripted()), tape_tools(serial, scale.tools), **one_by_one)
        )
    _run(_agent(TapeLLM(unlike), tape_tools(unlike, scale.tools), **one_by_one))
    assert unlike.finish().matches


def test_memories_in_a_request_match_where_a_tally_recalls_the_same(tmp_path: Path) -> None:
    def bound(tally: Tally) -> BoundTally:
        anna = tally.bind(ANNA)
        anna.remember("Anna's tea weighs three tons.")
        return anna

    def remembering(anna: BoundTally) -> dict[str, Any]:
        return {"memory": TallyMemory.from_defaults(anna, session_id="s1")}

    # What is said becomes a memory itself, so that the replay stands on a tally as it was before.
    places = [Tally.open(tmp_path / name, background=False) for name in ("first", "second")]
    with places[0] as tally, places[1] as other:
        anna, again = bound(tally), bound(other)
        question = "How heavy is Anna's tea?"
        answer = _recorded(anna, _agent(Scripted("Three tons.")), question, **remembering(anna))
        player, without = _player(anna), _player(anna)
        assert "Anna's tea weighs" in json.dumps(player.tape.calls[0].request)
        assert _run(_agent(TapeLLM(player)), question, **remembering(again)) == answer
        assert player.finish().matches
        with pytest.raises(TapeDiverged, match="with memories that a tally recalled") as caught:
            _run(_agent(TapeLLM(without)), question)
        assert any(
            line.startswith("-") and "Anna's tea weighs three tons" in line
            for line in caught.value.diff
        )


def test_a_replay_may_be_recorded_and_its_tape_is_the_same_one(open_sqlite: OpenTally) -> None:
    scale = Scale()
    with open_sqlite() as tally:
        _recorded(tally, _agent(Scripted(calls(WEIGH), "Heavy."), scale.tools))
        player = _player(tally)
        answer = _recorded(tally, _agent(TapeLLM(player), tape_tools(player, scale.tools)))
        assert answer == "Heavy."
        again = _player(tally)
        assert [call.kind for call in again.tape.calls] == [call.kind for call in player.tape.calls]
        assert _run(_agent(TapeLLM(again), tape_tools(again, scale.tools))) == answer
        assert again.finish().matches


def test_a_secret_in_the_prompt_matches_whatever_it_is(open_sqlite: OpenTally) -> None:
    scale = Scale()
    with open_sqlite() as tally:
        model = Scripted(calls(("c1", "weigh", {"what": KEY})), f"{KEY} weighs 3 tons.")
        _recorded(
            tally,
            _agent(model, scale.tools, system_prompt=f"The key is {KEY}."),
            f"How heavy is {KEY}?",
        )
        players = [_player(tally) for _ in range(3)]
    assert KEY not in players[0].tape.dumps()
    for player, key in zip(players, (KEY, OTHER_KEY), strict=False):
        agent = _agent(
            TapeLLM(player), tape_tools(player, scale.tools), system_prompt=f"The key is {key}."
        )
        _run(agent, f"How heavy is {key}?")
        assert player.finish().fidelity == "exact_redacted"
    with pytest.raises(TapeDiverged):
        _run(
            _agent(
                TapeLLM(players[2]),
                tape_tools(players[2], scale.tools),
                system_prompt=f"The key is {KEY}.",
            ),
            "?",
        )


def test_a_run_without_payloads_has_no_tape(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        with tally.bind().run("weigher", retention="metadata_only") as run, run.active():
            _recorded(tally, _agent(Scripted("I cannot say.")))
        with pytest.raises(NotReplayable, match="its request was not kept"):
            tally.recordings.tape(run.id)
