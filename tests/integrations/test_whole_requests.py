"""Long conversations stay within their budget in every runtime, and each prompt begins as the one
before as far as it can.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
from tests.integrations.runtimes.base import Runtime, Script
from tests.integrations.runtimes.direct import Direct
from tests.integrations.runtimes.langchain import LangChain, LangGraph
from tests.integrations.runtimes.llama_index import LlamaIndex, ReAct
from tests.integrations.runtimes.pydantic_ai import PydanticAI

from tallystick import Actor, Tally
from tallystick.compiler import prefix_reuse
from tallystick.records import CompiledContext
from tallystick.tally import BoundTally

OpenTally = Callable[..., Tally]
ANNA = Actor(user="anna")
BUDGET, TURNS = 8_000, 40
RUNTIMES: list[Runtime] = [
    LangGraph(),
    PydanticAI(),
    LlamaIndex(),
    ReAct(),
    Direct(),
    Direct("http"),
]
pytestmark = pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")
in_every_runtime = pytest.mark.parametrize("runtime", [LangChain(), *RUNTIMES], ids=repr)


@cache
def _request(number: int) -> str:
    """Return a request of 6 kB."""
    words = f"Boat {number} is moored at berth {number * 7}, and its hull wants a look. "
    return f"Look at boat {number}. {words * 85}"[:6_000]


def _talk(runtime: Runtime, bound: BoundTally, turns: int) -> Script:
    script = Script(*(f"Boat {number} is sound." for number in range(turns)))
    requests = [_request(number) for number in range(turns)]
    runtime.run(
        script,
        earlier=requests[:-1],
        prompt=requests[-1],
        budget=BUDGET,
        recorded=bound,
        ruled=bound,
    )
    return script


def _contexts(bound: BoundTally) -> list[CompiledContext]:
    return [
        bound.recordings.compiled(step.id).compiled
        for run in reversed(bound.recordings.runs(limit=100))
        for step in bound.recordings.steps(run.id)
        if step.step_kind == "model_call"
    ]


@in_every_runtime
def test_forty_turns_of_six_kilobytes_stay_within_the_budget(
    open_sqlite: OpenTally, runtime: Runtime
) -> None:
    with open_sqlite() as tally:
        bound = tally.bind(ANNA)
        sent = _talk(runtime, bound, TURNS).sent
        used = [compiled.token_allocation["used"] for compiled in _contexts(bound)]
        assert len(sent) == len(used) == TURNS
        assert max(used) <= BUDGET
        # The text that was sent has four characters a token, and what a runtime writes around it.
        assert max(map(len, sent)) <= 4 * BUDGET * 1.5
        # The latest request is whole.
        assert all(_request(number)[:5_900] in text for number, text in enumerate(sent))


@in_every_runtime
def test_a_changed_replay_holds_the_latest_request(
    open_sqlite: OpenTally, runtime: Runtime
) -> None:
    with open_sqlite() as tally:
        bound = tally.bind(ANNA)
        _talk(runtime, bound, 4)
        step = next(
            step
            for step in bound.recordings.steps(bound.recordings.runs()[0].id)
            if step.step_kind == "model_call"
        )
        again: Any = bound.recordings.replay(step.id, token_budget=4_000)
        assert ("user_msg", _request(3)) in [
            (item["kind"], item["content"]) for item in again.request["items"]
        ]


@pytest.mark.parametrize("runtime", RUNTIMES, ids=repr)
def test_a_prompt_begins_as_the_one_before_as_far_as_in_langchain(
    open_sqlite: OpenTally, runtime: Runtime
) -> None:
    with open_sqlite() as tally:
        shares = []
        for each, actor in ((LangChain(), ANNA), (runtime, Actor(user="ben"))):
            bound = tally.bind(actor)
            _talk(each, bound, 16)
            pairs = [prefix_reuse(*pair) for pair in pairwise(_contexts(bound))]
            shares.append(sum(each.reused for each in pairs) / sum(each.before for each in pairs))
        assert shares[0] > 0.4
        assert shares[1] == pytest.approx(shares[0], abs=0.05)
