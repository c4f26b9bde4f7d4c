"""TallyCallbackHandler: LangChain's callbacks become runs, steps and receipts.

The root of a call tree is the run; model calls, tools and retrievers are its steps. Inside a `bound.run(…)` the
steps join that run, and a model or tool call inside an open step of its kind adds its view to that step, so that
nothing is recorded twice. Hooks hand over and return; the end of the run acknowledges everything.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, ParamSpec
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.messages import BaseMessage
from langchain_core.outputs import LLMResult

from tallystick.errors import TallystickError
from tallystick.logs import get_logger
from tallystick.recorder import Run, Step, status_for
from tallystick.records import Actor, Scope, StepKind, StepStatus
from tallystick.tally import Binder, BoundTally, Tally
from tallystick_langchain.messages import answer_of, goal_of, model_of, request_of

__all__ = ["TallyCallbackHandler"]

P = ParamSpec("P")

ActorSource = Actor | Callable[[Mapping[str, Any]], Actor | None]
"""Who acts: an Actor, or a callable from the metadata of the call."""


def _captured(hook: Callable[P, None]) -> Callable[P, None]:
    """A hook whose failure is counted and logged, and raised only in a strict handler: recording breaks no run."""

    @wraps(hook)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            hook(*args, **kwargs)
        except TallystickError as error:
            handler = args[0]
            assert isinstance(handler, TallyCallbackHandler)
            handler.failures += 1
            get_logger("langchain").warning("capture.failed", error=type(error).__name__, failures=handler.failures)
            if handler.raise_error:
                raise

    return guarded


class TallyCallbackHandler(BaseCallbackHandler):
    """Records what LangChain does: `chain.invoke(x, config={"callbacks": [TallyCallbackHandler(tally)]})`.

    One handler serves any number of calls and threads.
    """

    run_inline = True
    """On the thread and in the context of the call, so that order holds and the open step is known."""

    def __init__(
        self, tally: Tally | BoundTally, *, actor: ActorSource | None = None, scope: str | Scope | None = None,
        agent_name: str | None = None, strict: bool = False,
    ) -> None:  # fmt: skip
        """`agent_name` names the runs (by default the name of the root runnable). With `strict` a failure to
        record is raised into the call; otherwise it is counted in `failures` and logged."""
        self.raise_error = strict
        self.failures = 0
        """Events that could not be recorded."""
        self._binder = Binder[Mapping[str, Any]](tally, surface="langchain", actor=actor, scope=scope)
        self._agent_name = agent_name
        self._guard = threading.Lock()
        self._runs: dict[UUID, tuple[Run, bool]] = {}
        """Root id to its run, and whether this handler ends it."""
        self._roots: dict[UUID, UUID] = {}
        self._steps: dict[UUID, tuple[Step, bool]] = {}
        """Callback id to its step, and whether this handler ends it."""
        self._leaves: dict[UUID, Callable[[], None]] = {}
        """Callback id of a tool to what leaves its step again."""

    def run_of(self, run_id: UUID) -> Run | None:
        """The run that a callback under way belongs to."""
        with self._guard:
            root = self._roots.get(run_id)
            return None if root is None else self._runs[root][0]

    @_captured
    def on_chain_start(
        self, serialized: dict[str, Any] | None, inputs: Any, *, run_id: UUID, parent_run_id: UUID | None = None,
        tags: list[str] | None = None, metadata: dict[str, Any] | None = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        """The root chain starts the run; inner ones are part of it."""
        self._enter(run_id, parent_run_id, metadata, kwargs.get("name"), inputs)

    @_captured
    def on_chain_end(self, outputs: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """The root chain ends the run."""
        self._leave(run_id, "completed")

    @_captured
    def on_chain_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """The root chain ends the run as failed, or as cancelled."""
        self._leave(run_id, status_for(type(error)))

    @_captured
    def on_chat_model_start(
        self, serialized: dict[str, Any], messages: list[list[BaseMessage]], *, run_id: UUID,
        parent_run_id: UUID | None = None, tags: list[str] | None = None, metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:  # fmt: skip
        """A model call starts: its final messages, tools and parameters."""
        parameters = kwargs.get("invocation_params") or {}
        step = self._begin("model_call", run_id, parent_run_id, metadata, kwargs.get("name"))
        step.record(
            "request", lambda: request_of(messages[0], parameters),
            summary={"model": model_of(parameters), "messages": len(messages[0])},
        )  # fmt: skip

    @_captured
    def on_llm_start(
        self, serialized: dict[str, Any], prompts: list[str], *, run_id: UUID, parent_run_id: UUID | None = None,
        tags: list[str] | None = None, metadata: dict[str, Any] | None = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        """Same as `on_chat_model_start`, for a model that completes text."""
        parameters = kwargs.get("invocation_params") or {}
        model = model_of(parameters)
        step = self._begin("model_call", run_id, parent_run_id, metadata, kwargs.get("name"))
        step.record(
            "request", {"level": "runtime", "model": model, "prompt": prompts[0], "parameters": parameters},
            summary={"model": model},
        )  # fmt: skip

    @_captured
    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        """A model call ends: its answer and usage."""
        self._finish(run_id, "response", lambda: answer_of(response), _usage(response))

    @_captured
    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """A model call failed."""
        self._fail(run_id, error)

    @_captured
    def on_tool_start(
        self, serialized: dict[str, Any] | None, input_str: str, *, run_id: UUID, parent_run_id: UUID | None = None,
        tags: list[str] | None = None, metadata: dict[str, Any] | None = None,
        inputs: dict[str, Any] | None = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        """A tool call starts: its name and arguments."""
        name = str((serialized or {}).get("name") or kwargs.get("name") or "tool")
        step = self._begin("tool_call", run_id, parent_run_id, metadata, name)
        arguments = inputs if inputs is not None else input_str
        call = {"name": name, "arguments": arguments, "tool_call_id": kwargs.get("tool_call_id")}
        step.record("tool_call", call, summary={"tool": name})
        # What the tool remembers or recalls belongs to its step; hooks run inline, in the context of the tool.
        leave = step.enter()
        with self._guard:
            self._leaves[run_id] = leave

    @_captured
    def on_tool_end(self, output: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """A tool call ends: its result."""
        self._finish(run_id, "tool_result", {"result": output}, {})

    @_captured
    def on_tool_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """A tool call failed."""
        self._fail(run_id, error)

    @_captured
    def on_retriever_start(
        self, serialized: dict[str, Any] | None, query: str, *, run_id: UUID, parent_run_id: UUID | None = None,
        tags: list[str] | None = None, metadata: dict[str, Any] | None = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        """A retrieval starts: its query."""
        name = str((serialized or {}).get("name") or kwargs.get("name") or "retriever")
        step = self._begin("other", run_id, parent_run_id, metadata, name)
        step.record("request", {"level": "runtime", "query": query}, summary={"retriever": name})

    @_captured
    def on_retriever_end(self, documents: Sequence[Document], *, run_id: UUID, **kwargs: Any) -> None:
        """A retrieval ends: its documents."""
        found = [document.model_dump(mode="json") for document in documents]
        self._finish(run_id, "response", {"documents": found}, {"documents": len(found)})

    @_captured
    def on_retriever_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """A retrieval failed."""
        self._fail(run_id, error)

    def _enter(
        self,
        run_id: UUID,
        parent: UUID | None,
        metadata: Mapping[str, Any] | None,
        name: str | None,
        inputs: Any = None,
    ) -> Run:
        """The run that a callback belongs to, started when the callback is the root of its tree."""
        with self._guard:
            root = self._roots.get(parent) if parent is not None else None
            if root is not None:
                self._roots[run_id] = root
                return self._runs[root][0]
            bound = self._binder.bound(metadata or {})
            run, owned = bound.join_run(self._agent_name or name or "agent", goal=goal_of(inputs))
            self._roots[run_id] = run_id
            self._runs[run_id] = (run, owned)
            return run

    def _leave(self, run_id: UUID, status: StepStatus) -> None:
        """Forget a callback; end the run if it was the root."""
        with self._guard:
            root = self._roots.pop(run_id, None)
            if root is None or root != run_id:
                return
            run, owned = self._runs.pop(root)
            for child in [child for child, of in self._roots.items() if of == root]:
                del self._roots[child]
        if owned:
            run.close(status)

    def _begin(
        self, kind: StepKind, run_id: UUID, parent: UUID | None, metadata: Mapping[str, Any] | None,
        name: str | None,
    ) -> Step:  # fmt: skip
        run = self._enter(run_id, parent, metadata, name)
        step, owned = run.join(kind, name=name, metadata=_identity(run_id, metadata or {}))
        with self._guard:
            self._steps[run_id] = (step, owned)
        return step

    def _taken(self, run_id: UUID) -> tuple[Step | None, bool]:
        """The step of a callback that ends, no longer current."""
        with self._guard:
            leave = self._leaves.pop(run_id, None)
            step, owned = self._steps.pop(run_id, (None, False))
        if leave is not None:
            leave()
        return step, owned

    def _finish(self, run_id: UUID, kind: Any, payload: Any, summary: Mapping[str, Any]) -> None:
        step, owned = self._taken(run_id)
        if step is not None:
            step.record(kind, payload, summary=summary)
            if owned:
                step.close("completed")
        self._leave(run_id, "completed")

    def _fail(self, run_id: UUID, error: BaseException) -> None:
        step, owned = self._taken(run_id)
        if step is not None and owned:
            step.fail(error)
        self._leave(run_id, status_for(type(error)))


def _usage(response: LLMResult) -> dict[str, Any]:
    message = getattr(response.generations[0][0], "message", None)
    usage = getattr(message, "usage_metadata", None)
    return {"usage": dict(usage)} if usage else {}


_JOIN = ("thread_id", "langgraph_step", "langgraph_node", "langgraph_checkpoint_ns")
"""What LangGraph says of the place of a call; the last part of the namespace is the task id."""


def _identity(run_id: UUID, metadata: Mapping[str, Any]) -> dict[str, Any]:
    place = {name: metadata[name] for name in _JOIN if name in metadata}
    return {"langchain_run_id": str(run_id), **place}
