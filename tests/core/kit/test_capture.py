"""Direct calls of BoundTally keep the contract of capture adapters: the measure for those. A
failure to record costs the run nothing.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from functools import partial
from operator import mul
from typing import Any

from pydantic import BaseModel

from tallystick import Tally
from tallystick.kit import Capture, dump_model, recordable_metadata
from tallystick.recorder import Run, Step, current_step
from tallystick.records import Json
from tallystick.tally import BoundTally
from tallystick.testing.capture import CaptureContract, Scene


class TestDirectCalls(CaptureContract):
    def play(self, bound: BoundTally, scene: Scene) -> None:
        with bound.run("agent") as run:
            if scene == "streaming":
                self._asked(run, stream={"chunks": 3, "first_us": 10, "last_us": 30})
                return
            if scene == "parallel tools":
                self._doubled(run)
                return
            self._asked(run)
            if scene == "error":
                self._called(run, "divide", {"value": 0}, lambda: 1 / 0)
            elif scene == "nested agent":
                self._called(run, "expert", {"question": "How much?"}, lambda: self._inner(run))
            elif scene == "retry":
                self._flaky(run)
                self._asked(run)
                self._called(run, "flaky", {"value": 1}, lambda: 1)
            elif scene == "approval":
                with run.step("tool_call", name="erase") as step:
                    step.record(
                        "tool_call",
                        {"name": "erase", "arguments": {"value": 1}, "tool_call_id": "c1"},
                    )
                    step.record("approval", {"name": "erase", "arguments": {"value": 1}})
                    step.end("blocked", wait=False)
                self._called(run, "erase", {"value": 1}, lambda: "gone")
            if scene != "text":
                self._asked(run)

    def answer_text(self, response: Json) -> str:
        assert isinstance(response, dict)
        return str(response["text"])

    def _asked(
        self, run: Run, *, parent: Step | None = None, stream: dict[str, int] | None = None
    ) -> None:
        with run.step("model_call", parent=None if parent is None else parent.id) as step:
            step.record("request", {"messages": ["How much?"]})
            step.record(
                "response", {"text": "It is 42."}, summary={"stream": stream} if stream else {}
            )

    def _doubled(self, run: Run) -> None:
        """Ask for two calls at once, make them, and send all of it along with the next request."""
        said: list[Json] = [{"role": "user", "content": "How much?"}]
        calls: list[Json] = [
            {"id": str(value), "name": "double", "args": {"value": value}} for value in (1, 2)
        ]
        answer: Json = {"role": "assistant", "text": "", "tool_calls": calls}
        with run.step("model_call") as step:
            step.record("request", {"messages": list(said)})
            step.record("response", answer)
        said.append(answer)
        for value in (1, 2):
            self._called(run, "double", {"value": value}, partial(mul, 2, value), str(value))
            said.append({"role": "tool", "tool_call_id": str(value), "content": 2 * value})
        with run.step("model_call") as step:
            step.record("request", {"messages": said})
            step.record("response", {"text": "It is 42."})

    def _inner(self, run: Run) -> str:
        self._asked(run, parent=current_step())
        return "It is 42."

    def _called(
        self,
        run: Run,
        name: str,
        arguments: dict[str, Any],
        tool: Callable[[], object],
        call: str = "c1",
    ) -> None:
        with run.step("tool_call", name=name) as step:
            step.record("tool_call", {"name": name, "arguments": arguments, "tool_call_id": call})
            step.record("tool_result", {"result": tool()})

    def _flaky(self, run: Run) -> None:
        step = run.step("tool_call", name="flaky")
        step.record("tool_call", {"name": "flaky", "arguments": {"value": 1}, "tool_call_id": "c1"})
        step.fail(ValueError("try again"))


OpenTally = Callable[..., Tally]


class Session:
    """What a user's call holds while it runs."""


def test_a_failure_keeps_nothing_of_the_call_alive(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        capture = Capture(tally, "langchain", strict=False)

        def call() -> weakref.ref[Session]:
            session = Session()
            with capture():
                try:
                    raise KeyError("inner")
                except KeyError as error:
                    raise ValueError(session, "no such thing") from error
            return weakref.ref(session)

        alive = call()
        gc.collect()

        assert alive() is None
        failure = capture.error
        assert failure is not None
        assert (capture.failures, failure.type) == (1, "ValueError")
        assert "no such thing" in failure.message
        assert "KeyError" in failure.text
        assert "in call" in failure.text


def test_whatever_a_config_holds_is_recorded_as_its_text() -> None:
    class Anything:
        def __repr__(self) -> str:
            return "<anything>"

    endless: dict[str, Any] = {}
    endless["self"] = endless
    recorded = recordable_metadata(
        {
            "text": "t",
            "number": 7,
            "object": Anything(),
            "list": [Anything(), 1],
            "keys": {(1, 2): 3},
            "endless": endless,
            "nan": float("nan"),
        }
    )
    assert recorded == {
        "text": "t",
        "number": 7,
        "object": "<anything>",
        "list": ["<anything>", 1],
        "keys": "{(1, 2): 3}",
        "endless": "{'self': {...}}",
        "nan": "nan",
    }


def test_a_model_of_a_runtime_with_any_object_in_it_is_json() -> None:
    class Document(BaseModel):
        metadata: dict[str, Any]
        embedding: list[float] = []

    document = Document(metadata={"id": Session, "n": 1}, embedding=[1.0])
    assert dump_model(document, exclude={"embedding"}) == {"metadata": {"id": str(Session), "n": 1}}
