"""CaptureContract: the same scripted agent in every runtime gives equivalent receipts, as direct
calls do.

An adapter implements `play`, which runs one scene in its runtime with the adapter recording to a
bound tally, and `said`, which reads an answer's text off a recorded response. Needs pytest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, NamedTuple

from tallystick.kit.transcripts import (
    OtherPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    answer_messages,
    request_messages,
)
from tallystick.records import Actor, Json
from tallystick.storage.rows import journal
from tallystick.storage.rows.journal import run_stream
from tallystick.tally import BoundTally, Tally
from tallystick.tally.services import services_of

OpenTally = Callable[..., Tally]
ANNA = Actor(user="anna")

Scene = Literal["text", "parallel tools", "error", "retry", "streaming", "nested agent", "approval"]


class CapturedStep(NamedTuple):
    """One recorded step, in words that belong to no runtime."""

    what: Literal["asks a model", "calls a tool", "waits"]
    name: str | None
    """Of the tool."""
    status: str
    parent: int | None = None
    """Place of the step that it was made in."""


ASKS = CapturedStep("asks a model", None, "completed")
SCENES: Mapping[Scene, tuple[CapturedStep, ...]] = {
    # The model is asked "How much?" and says "It is 42."
    "text": (ASKS,),
    # The model asks for double(value=1) and double(value=2) at once, then says "It is 42."
    "parallel tools": (
        ASKS,
        CapturedStep("calls a tool", "double", "completed"),
        CapturedStep("calls a tool", "double", "completed"),
        ASKS,
    ),
    # The model asks for divide(value=0), which raises ZeroDivisionError; what follows is up to the
    # runtime.
    "error": (ASKS, CapturedStep("calls a tool", "divide", "failed")),
    # The model asks for flaky(value=1), which asks to be tried again in the runtime's own way; the
    # model does.
    "retry": (
        ASKS,
        CapturedStep("calls a tool", "flaky", "failed"),
        ASKS,
        CapturedStep("calls a tool", "flaky", "completed"),
        ASKS,
    ),
    # The model says "It is 42." in several chunks.
    "streaming": (ASKS,),
    # The model asks for expert(question="How much?"), a tool that asks another agent, which says
    # "It is 42."
    "nested agent": (
        ASKS,
        CapturedStep("calls a tool", "expert", "completed"),
        CapturedStep("asks a model", None, "completed", 1),
        ASKS,
    ),
    # The model asks for erase(value=1), which wants a person, who agrees; then the model says "It
    # is 42."
    "approval": (
        ASKS,
        CapturedStep("waits", "erase", "blocked"),
        CapturedStep("calls a tool", "erase", "completed"),
        ASKS,
    ),
}
"""The expected steps of each scene, in order."""


class CaptureContract:
    """The records of every capture adapter."""

    sees_chunks: ClassVar[bool] = True
    """True if the adapter sees the chunks of a stream; one that does not keeps the answer without
    their times.
    """

    def play(self, bound: BoundTally, scene: Scene) -> None:
        """Run a scene in the runtime. An error that the runtime lets through is the suite's to
        catch.
        """
        raise NotImplementedError

    def answer_text(self, response: Json) -> str:
        """Return the text of a recorded answer."""
        raise NotImplementedError

    def test_a_text_answer(self, open_tally: OpenTally) -> None:
        with open_tally() as tally:
            bound = self._play_scene(tally, "text")
            [entries] = _payloads(bound)
            assert self.answer_text(entries["response"]) == "It is 42."
            assert "How much?" in str(entries["request"])

    def test_tools_that_run_side_by_side(self, open_tally: OpenTally) -> None:
        with open_tally() as tally:
            bound = self._play_scene(tally, "parallel tools")
            called = [entries for entries in _payloads(bound) if "tool_call" in entries]
            assert sorted(entries["tool_call"]["arguments"]["value"] for entries in called) == [
                1,
                2,
            ]
            assert all(entries["tool_result"] for entries in called)
            assert len({entries["tool_call"]["tool_call_id"] for entries in called}) == 2

    def test_a_tool_that_fails(self, open_tally: OpenTally) -> None:
        with open_tally() as tally:
            bound = self._play_scene(tally, "error")
            failed = _payloads(bound)[1]
            assert failed["error"]["type"] == "ZeroDivisionError"
            assert failed["tool_call"]["arguments"] == {"value": 0}

    def test_a_tool_that_is_tried_again(self, open_tally: OpenTally) -> None:
        with open_tally() as tally:
            bound = self._play_scene(tally, "retry")
            assert "tool_result" in _payloads(bound)[3]

    def test_an_answer_in_chunks(self, open_tally: OpenTally) -> None:
        with open_tally() as tally:
            bound = self._play_scene(tally, "streaming")
            [entries] = _payloads(bound)
            assert self.answer_text(entries["response"]) == "It is 42."
            [step] = _steps(bound)
            [summary] = [
                entry.summary
                for entry in bound.recordings.receipt(step.step_id).entries
                if entry.kind == "response"
            ]
            if self.sees_chunks:
                times: Any = summary["stream"]
                assert times["chunks"] > 1
                assert 0 <= times["first_us"] <= times["last_us"]

    def test_an_agent_in_a_tool(self, open_tally: OpenTally) -> None:
        with open_tally() as tally:
            bound = self._play_scene(tally, "nested agent")
            assert len(bound.recordings.runs()) == 1

    def test_what_was_said_reads_the_same_whatever_the_runtime(self, open_tally: OpenTally) -> None:
        with open_tally() as tally:
            bound = self._play_scene(tally, "parallel tools")
            first, *_, last = (each for each in _payloads(bound) if "request" in each)
            said = request_messages(last["request"])
            assert [message.role for message in said if message.role != "system"][:2] == [
                "user",
                "assistant",
            ]
            assert [message.text for message in said if message.role == "user"] == ["How much?"]
            [asks] = answer_messages(first["response"])
            assert [part for part in asks.parts if not isinstance(part, TextPart)] == [
                part for message in said for part in message.parts if isinstance(part, ToolCallPart)
            ]
            [answer] = answer_messages(last["response"])
            assert (answer.role, answer.text) == ("assistant", "It is 42.")

    def test_calls_and_results_read_the_same_whatever_the_runtime(
        self, open_tally: OpenTally
    ) -> None:
        with open_tally() as tally:
            bound = self._play_scene(tally, "parallel tools")
            *_, last = (each for each in _payloads(bound) if "request" in each)
            said = request_messages(last["request"])
            parts = [part for message in said for part in message.parts]
            calls = [part for part in parts if isinstance(part, ToolCallPart)]
            assert [(part.name, part.arguments) for part in calls] == [
                ("double", {"value": 1}),
                ("double", {"value": 2}),
            ]
            results = [part for part in parts if isinstance(part, ToolResultPart)]
            assert [(part.id, str(part.result)) for part in results] == [
                (calls[0].id, "2"),
                (calls[1].id, "4"),
            ]
            assert [part for part in parts if isinstance(part, OtherPart)] == []

    def test_a_person_is_asked(self, open_tally: OpenTally) -> None:
        with open_tally() as tally:
            bound = self._play_scene(tally, "approval")
            waits = _payloads(bound)[1]
            assert "approval" in waits
            assert "tool_result" not in waits
            assert _payloads(bound)[2]["tool_call"]["arguments"] == {"value": 1}

    def _play_scene(self, tally: Tally, scene: Scene) -> BoundTally:
        """Play a scene, and compare its receipts with the expected steps."""
        bound = tally.bind(ANNA)
        try:
            self.play(bound, scene)
        except ZeroDivisionError:
            assert scene == "error"
        effects, expected = _captured_steps(bound), SCENES[scene]
        assert effects[: len(expected)] == list(expected)
        if scene != "error":
            assert len(effects) == len(expected)
        for run in reversed(bound.recordings.runs()):
            verified = bound.recordings.verify(run.run_id)
            assert (verified.ok, verified.gaps) == (True, {})
            with services_of(tally).store.database.read() as connection:
                events = [
                    entry.event for entry in journal.entries(connection, run_stream(run.run_id))
                ]
            assert events == ["run.start", *["receipt"] * (len(events) - 2), "run.end"]
        return bound


def _steps(bound: BoundTally) -> list[Any]:
    """The steps of all runs, in the order in which they began."""
    return [
        step
        for run in reversed(bound.recordings.runs())
        for step in bound.recordings.steps(run.run_id)
    ]


def _payloads(bound: BoundTally) -> list[dict[str, Any]]:
    """Return the recorded payloads of each step, by kind."""
    return [
        {entry.kind: entry.payload for entry in bound.recordings.entries(step.step_id)}
        for step in _steps(bound)
    ]


def _captured_steps(bound: BoundTally) -> list[CapturedStep]:
    steps = _steps(bound)
    places = {step.step_id: place for place, step in enumerate(steps)}
    scene: list[CapturedStep] = []
    for step in steps:
        kinds = {entry.kind for entry in bound.recordings.entries(step.step_id)}
        parent = places.get(step.parent_step_id) if step.parent_step_id is not None else None
        if step.status == "blocked":
            assert "approval" in kinds
            scene.append(CapturedStep("waits", step.name, step.status, parent))
        elif step.step_kind == "model_call":
            assert {"request", "response"} <= kinds
            scene.append(CapturedStep("asks a model", None, step.status, parent))
        elif step.step_kind == "tool_call":
            assert "tool_call" in kinds
            assert ("tool_result" in kinds) or ("error" in kinds)
            scene.append(CapturedStep("calls a tool", step.name, step.status, parent))
    return scene
