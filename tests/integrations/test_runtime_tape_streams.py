"""A tape of each runtime plays as the stream that it was: pieces that add up to the recorded
answer.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.integrations.runtimes.base import Runtime, Script, call, player_of
from tests.integrations.runtimes.runtimes import in_ways

from tallystick import Tally
from tallystick.errors import RecordedFailure

OpenTally = Callable[..., Tally]
TEXT = "It weighs three tons."
STREAMS = ("stream", "astream", "run_stream", "run_stream_events", "streamed run")
in_each_stream = in_ways(*STREAMS)


def weigh(what: str) -> str:
    """Weigh something."""
    return f"{what}: 3 tons"


@in_each_stream
def test_an_agent_streams_its_tape_in_as_many_pieces_as_were_recorded(
    open_sqlite: OpenTally, runtime: Runtime
) -> None:
    recorded: list[str] = []
    played: list[str] = []
    script = Script([call("weigh", what="green tea 🍵")], TEXT)
    with open_sqlite() as tally:
        runtime.run(script, [weigh], recorded=tally, pieces=recorded)
        player = player_of(tally)
        outcome = runtime.run(None, [weigh], player=player, recorded=tally, pieces=played)
        again = player_of(tally).tape

    assert outcome.text == "".join(recorded) == "".join(played) == TEXT
    assert len(recorded) == 4
    # LangChain ends a stream with an empty piece, LlamaIndex with the whole answer.
    assert len(played) == (4 if runtime.name in ("pydantic_ai", "openai_agents") else 5)
    assert player.finish().matches
    assert again.calls[-1].chunks == player.tape.calls[-1].chunks == len(played)


@in_ways(
    *STREAMS,
    fails={
        "langchain": "the handler keeps no part of an answer that broke inside of a graph",
        "openai_agents": "the SDK drops the pieces that nobody has read when a stream breaks",
    },
)
def test_a_stream_that_broke_breaks_where_it_did(open_sqlite: OpenTally, runtime: Runtime) -> None:
    recorded: list[str] = []
    heard: list[str] = []
    with open_sqlite() as tally:
        script = Script(("It ", "weighs ", ConnectionError("the line is dead")))
        with pytest.raises(ConnectionError):
            runtime.run(script, recorded=tally, pieces=recorded)
        players = [player_of(tally) for _ in range(2)]
    with pytest.raises(ConnectionError, match="the line is dead") as caught:
        runtime.run(player=players[0], pieces=heard)
    assert isinstance(caught.value, RecordedFailure)
    assert "".join(heard) == "".join(recorded) == "It weighs "
    with pytest.raises(ConnectionError, match="the line is dead"):
        type(runtime)().run(player=players[1])


@in_each_stream
def test_an_answer_that_was_not_streamed_is_played_as_a_stream_all_the_same(
    open_sqlite: OpenTally, runtime: Runtime
) -> None:
    heard: list[str] = []
    with open_sqlite() as tally:
        type(runtime)().run(Script(TEXT), recorded=tally)
        player = player_of(tally)
    runtime.run(player=player, pieces=heard)
    assert heard == ["It we", "ighs ", "three", " tons."]
