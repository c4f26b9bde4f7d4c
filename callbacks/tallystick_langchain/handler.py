"""TallyCallbackHandler: LangChain's callbacks become runs, steps and receipts.

The root of a call tree is the run; model calls, tools and retrievers are its steps. Inside a
`bound.run(…)` the steps join that run, and a model or tool call inside an open step of its kind
adds its view to that step, so that nothing is recorded twice. Hooks hand over and return; the end
of the run acknowledges everything.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, ParamSpec
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.messages import BaseMessage
from langchain_core.outputs import LLMResult

from tallystick.recorder import (
    Capture,
    Run,
    Speakers,
    Step,
    attribute_requests,
    current_step,
    status_for,
)
from tallystick.records import Actor, EntryKind, Scope, StepKind, StepStatus
from tallystick.tally import Binder, BoundTally, Tally
from tallystick.tokens import usage_of
from tallystick_langchain.messages import (
    answer_of,
    completion_of,
    goal_of,
    model_of,
    request_of,
    result_of,
    said_in,
)

__all__ = ["TallyCallbackHandler", "place_of", "session_of", "stop"]

P = ParamSpec("P")

ActorSource = Actor | Callable[[Mapping[str, Any]], Actor | None]
"""Who acts: an Actor, or a callable from the metadata of the call."""


def _captured(hook: Callable[P, None]) -> Callable[P, None]:
    """A hook whose failure is counted, logged and told of by the run, and raised only in a strict
    handler.
    """

    @wraps(hook)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            hook(*args, **kwargs)
        except Exception as error:
            handler = args[0]
            assert isinstance(handler, TallyCallbackHandler)
            handler._capture.count_gap(error, handler._run_under_way(kwargs))
            if handler.raise_error:
                raise

    return guarded


@dataclass(slots=True)
class _Tree:
    """The callbacks under one root, and their run."""

    run: Run
    owned: bool
    """Whether the root ends the run."""
    waits: bool = False
    """Whether a person is asked."""
    bound: BoundTally | None = None
    asked: str | None = None
    """What the user said to the root, where that is to be remembered."""
    calls: list[int] = field(default_factory=list)
    """Callbacks that began under the root; those that never end are forgotten with it."""


@dataclass(slots=True)
class _Call:
    """A callback under way. One without a tree belongs to another handler of the same tally."""

    root: bool
    tree: _Tree | None
    path: tuple[str, ...] = ()
    """Names of the chains that it stands in, without the root."""
    step: Step | None = None
    owned: bool = False
    leave: Callable[[], None] | None = None
    chunks: int = 0
    first: int = 0
    last: int = 0
    """Microseconds from the start of the step to its first and to its last chunk."""


class TallyCallbackHandler(BaseCallbackHandler):
    """Records what LangChain does: `chain.invoke(x, config={"callbacks":
    [TallyCallbackHandler(tally)]})`.

    One handler serves any number of calls and threads. Of several handlers of one tally in the same
    call the first records it.
    """

    run_inline = True
    """On the thread and in the context of the call, so that order holds and the open step is known.
    """

    def __init__(
        self,
        tally: Tally | BoundTally,
        *,
        actor: ActorSource | None = None,
        scope: str | Scope | None = None,
        agent_name: str | None = None,
        strict: bool = False,
        capture: Speakers = "off",
    ) -> None:
        """`agent_name` names the runs (by default the name of the root runnable). With `strict` a
        failure to record is raised into the call; otherwise it is counted in `failures`, logged and
        told of by `verify`. `capture` remembers what the `user` said to the root, or what `both`
        said, with one write when it ends.
        """
        self.raise_error = strict
        self._binder = Binder[Mapping[str, Any]](
            tally, surface="langchain", actor=actor, scope=scope, session=session_of
        )
        self._context = self._binder.tally.recording
        self._capture = Capture(self._context, "langchain", strict=strict)
        self._agent_name, self._speakers = agent_name, capture
        self._calls: dict[int, _Call] = {}
        """Callbacks under way, by the number of their id, because a UUID hashes in Python.

        Never walked: calls of other threads come and go in it.
        """

    @property
    def failures(self) -> int:
        """Events that could not be recorded."""
        return self._capture.failures

    def run_of(self, run_id: UUID) -> Run | None:
        """The run that a callback under way belongs to."""
        call = self._calls.get(run_id.int)
        return None if call is None or call.tree is None else call.tree.run

    def _run_under_way(self, given: Mapping[str, Any]) -> Run | None:
        found = (
            self.run_of(one)
            for name in ("run_id", "parent_run_id")
            if (one := given.get(name)) is not None
        )
        return next((run for run in found if run is not None), None)

    @_captured
    def on_chain_start(
        self,
        serialized: dict[str, Any] | None,
        inputs: Any,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        tags: list[str] | None = None,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """The root chain starts the run; inner ones say where a step stands."""
        call = self._enter(run_id, parent_run_id, metadata, kwargs.get("name"), tags, inputs)
        if parent_run_id is not None and (name := kwargs.get("name")) and not call.root:
            call.path = (*call.path, str(name))

    @_captured
    def on_chain_end(self, outputs: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """The root chain ends the run."""
        call = self._calls.get(run_id.int)
        try:
            if call is not None and call.root and call.tree is not None:
                self._keep(call.tree, outputs)
        finally:
            self._leave(run_id, "completed")

    @_captured
    def on_chain_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """A chain failed, or waits for a person: where no step says so yet, one of its own does."""
        call = self._calls.get(run_id.int)
        try:
            if call is not None and call.tree is not None:
                self._tell(call, call.tree, error)
        finally:
            self._leave(run_id, "completed" if _bubbles(error) else status_for(type(error)))

    @_captured
    def on_chat_model_start(
        self,
        serialized: dict[str, Any],
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        tags: list[str] | None = None,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """A model call starts: its final messages, tools and parameters."""
        parameters = kwargs.get("invocation_params") or {}
        model = model_of(parameters)
        step = self._begin(
            "model_call",
            run_id,
            parent_run_id,
            metadata,
            model or _named(serialized, kwargs),
            tags,
            messages[0],
        )
        if step is None:
            return
        step.record(
            "request",
            lambda: request_of(messages[0], parameters),
            summary={"model": model, "messages": len(messages[0])},
        )

    @_captured
    def on_llm_start(
        self,
        serialized: dict[str, Any],
        prompts: list[str],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        tags: list[str] | None = None,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Same as `on_chat_model_start`, for a model that completes text."""
        parameters = kwargs.get("invocation_params") or {}
        model = model_of(parameters)
        step = self._begin(
            "model_call",
            run_id,
            parent_run_id,
            metadata,
            model or _named(serialized, kwargs),
            tags,
            prompts,
        )
        if step is None:
            return
        step.record(
            "request", lambda: completion_of(prompts[0], parameters), summary={"model": model}
        )

    @_captured
    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        """A model call ends: its answer, its usage, and of a stream when its first and its last
        chunk came.
        """
        call = self._calls.get(run_id.int)
        if call is not None and call.root and call.tree is not None:
            self._keep(
                call.tree,
                getattr(_first(response), "message", None)
                or getattr(_first(response), "text", None),
            )
        self._finish(run_id, "response", lambda: answer_of(response), _told(response, call))

    @_captured
    def on_llm_new_token(self, token: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """A chunk of a stream came."""
        call = self._calls.get(run_id.int)
        if call is not None and call.step is not None:
            call.last = self._context.store.clock.now() - call.step.started_at
            call.first = call.first if call.chunks else call.last
            call.chunks += 1

    def on_stream_event(self, event: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """A chunk of a stream came that is told in events."""
        if event["event"] == "content-block-delta":
            self.on_llm_new_token("", run_id=run_id)

    @_captured
    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """A model call failed; what it said until then is kept."""
        call = self._calls.get(run_id.int)
        said = kwargs.get("response")
        if (
            call is not None
            and call.step is not None
            and isinstance(said, LLMResult)
            and any(said.generations)
        ):
            call.step.record("response", lambda: answer_of(said), summary=_told(said, call))
        self._fail(run_id, error)

    @_captured
    def on_retry(self, retry_state: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """A call is tried again: its step says how often, and what went wrong."""
        call = self._calls.get(run_id.int)
        if call is not None and call.step is not None:
            outcome = getattr(retry_state, "outcome", None)
            error = outcome.exception() if outcome is not None and outcome.failed else None
            kind = None if error is None else type(error).__name__
            retry = {"attempt": retry_state.attempt_number, "type": kind}
            call.step.record(
                "note", {"retry": retry, "message": str(error or "")}, summary={"retry": retry}
            )

    @_captured
    def on_custom_event(
        self,
        name: str,
        data: Any,
        *,
        run_id: UUID,
        tags: list[str] | None = None,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """An event of the user's own: a note in the step under way, else in one of its own."""
        call = self._calls.get(run_id.int)
        if call is None or call.tree is None:
            return
        run, active = call.tree.run, call.step or current_step()
        within = active is not None and active.run is run and active.is_open
        step = (
            active
            if active is not None and within
            else run.step("other", name=name, metadata=_place(call, tags))
        )
        step.record("note", {"event": name, "data": data}, summary={"event": name})
        if not within:
            step.end(wait=False)

    @_captured
    def on_tool_start(
        self,
        serialized: dict[str, Any] | None,
        input_str: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        tags: list[str] | None = None,
        metadata: dict[str, Any] | None = None,
        inputs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """A tool call starts: its name and arguments."""
        name = _named(serialized, kwargs) or "tool"
        step = self._begin("tool_call", run_id, parent_run_id, metadata, name, tags)
        if step is None:
            return
        arguments = inputs if inputs is not None else input_str
        call = {"name": name, "arguments": arguments, "tool_call_id": kwargs.get("tool_call_id")}
        step.record("tool_call", call, summary={"tool": name})
        # What the tool remembers or recalls belongs to its step; hooks run inline, in the context
        # of the tool.
        self._calls[run_id.int].leave = step.enter()

    @_captured
    def on_tool_end(self, output: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """A tool call ends: its result, which may be an error that the model is told of."""
        failed = getattr(output, "status", None) == "error"
        self._finish(
            run_id,
            "tool_result",
            {"result": result_of(output)},
            {},
            "failed" if failed else "completed",
        )

    @_captured
    def on_tool_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """A tool call failed, or waits for a person."""
        self._fail(run_id, error)

    @_captured
    def on_retriever_start(
        self,
        serialized: dict[str, Any] | None,
        query: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        tags: list[str] | None = None,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """A retrieval starts: its query."""
        name = _named(serialized, kwargs) or "retriever"
        step = self._begin("other", run_id, parent_run_id, metadata, name, tags)
        if step is None:
            return
        step.record("request", {"level": "runtime", "query": query}, summary={"retriever": name})

    @_captured
    def on_retriever_end(
        self, documents: Sequence[Document], *, run_id: UUID, **kwargs: Any
    ) -> None:
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
        tags: Sequence[str] | None,
        inputs: Any = None,
    ) -> _Call:
        """The callback, in the run of its root; the root starts one."""
        above = self._calls.get(parent.int) if parent is not None else None
        if above is not None:
            call = self._calls[run_id.int] = _Call(False, above.tree, above.path)
            if above.tree is not None:
                above.tree.calls.append(run_id.int)
            return call
        tree = None
        if self._context.claims.take(("langchain", run_id), self):
            bound = self._binder.bound(metadata or {})
            thread = (
                {"thread_id": metadata["thread_id"]} if metadata and "thread_id" in metadata else {}
            )
            known = {"langchain_run_id": str(run_id), **thread, **_tags(tags)}
            run, owned = bound.join_run(
                self._agent_name or name or "agent", goal=goal_of(inputs), metadata=known
            )
            tree = _Tree(run, owned)
            if self._speakers != "off":
                tree.bound, tree.asked = bound, said_in(inputs)
        call = self._calls[run_id.int] = _Call(True, tree)
        return call

    def _keep(self, tree: _Tree, outputs: Any) -> None:
        """Remember what was said, where that is asked for; an answer that is no text is not."""
        if tree.bound is not None and not tree.waits:
            with self._capture(tree.run):
                answer = said_in(outputs) if self._speakers == "both" else None
                tree.bound.keep_turn(tree.run, user=tree.asked, assistant=answer)

    def _leave(self, run_id: UUID, status: StepStatus) -> None:
        """Forget a callback; end the run if it was the root."""
        call = self._calls.pop(run_id.int, None)
        if call is None or not call.root:
            return
        for child in call.tree.calls if call.tree is not None else ():
            self._calls.pop(child, None)
        self._context.claims.release(("langchain", run_id), self)
        if call.tree is not None and call.tree.owned:
            call.tree.run.end(
                "blocked" if call.tree.waits and status == "completed" else status, wait=False
            )

    def _begin(
        self,
        kind: StepKind,
        run_id: UUID,
        parent: UUID | None,
        metadata: Mapping[str, Any] | None,
        name: str | None,
        tags: Sequence[str] | None,
        inputs: Any = None,
    ) -> Step | None:
        call = self._enter(run_id, parent, metadata, name, tags, inputs)
        if call.tree is None:
            return None
        known = {**_identity(run_id, metadata or {}), **_place(call, tags)}
        if known.get("path") == known.get("langgraph_node"):
            # The place in the graph says it already.
            known.pop("path", None)
        call.step, call.owned = call.tree.run.join(kind, name=name, metadata=known)
        if kind == "model_call":
            attribute_requests(call.step)
        return call.step

    def _taken(self, run_id: UUID) -> _Call | None:
        """The callback that ends, if it has a step, which is no longer current."""
        call = self._calls.get(run_id.int)
        if call is None or call.step is None:
            return None
        if call.leave is not None:
            call.leave()
        return call

    def _finish(
        self,
        run_id: UUID,
        kind: EntryKind,
        payload: Any,
        summary: Mapping[str, Any],
        status: StepStatus = "completed",
    ) -> None:
        call = self._taken(run_id)
        try:
            if call is not None and call.step is not None:
                call.step.record(kind, payload, summary=summary)
                if call.owned:
                    call.step.end(status, wait=False)
        finally:
            self._leave(run_id, "completed")

    def _fail(self, run_id: UUID, error: BaseException) -> None:
        call = self._taken(run_id)
        try:
            if call is not None and call.step is not None and call.tree is not None and call.owned:
                call.tree.waits = stop(call.step, error)
        finally:
            self._leave(run_id, "completed" if _bubbles(error) else status_for(type(error)))

    def _tell(self, call: _Call, tree: _Tree, error: BaseException) -> None:
        """Record what went wrong in a chain, or what it waits for, unless a step has said so."""
        if tree.run.record.ended_at is not None or tree.run.has_noted(error):
            return
        asked = interrupts_of(error)
        if asked is None and _bubbles(error):
            # LangGraph's own way to jump to a node of the graph above: nothing went wrong.
            return
        kind: StepKind = "other" if asked is None else "human_approval"
        name = call.path[-1] if call.path else tree.run.record.agent_name
        tree.waits = stop(tree.run.step(kind, name=name, metadata=_place(call, None)), error)


def stop(step: Step, error: BaseException) -> bool:
    """Close a step that an exception left: failed, or blocked if it waits for a person, which is
    what is returned.
    """
    asked = interrupts_of(error)
    if asked is not None:
        step.record(
            "approval", {"interrupts": asked}, summary={"state": "asked", "interrupts": len(asked)}
        )
        step.run.note_error(error)
        step.end("blocked", wait=False)
    elif _bubbles(error):
        step.end(wait=False)
    else:
        step.fail(error)
    return asked is not None


def interrupts_of(error: BaseException) -> list[dict[str, Any]] | None:
    """What LangGraph asks a person, where that is what this exception means."""
    errors = sys.modules.get("langgraph.errors")
    if errors is None or not isinstance(error, errors.GraphInterrupt):
        return None
    asked = error.args[0] if error.args else ()
    return [{"id": getattr(one, "id", None), "value": getattr(one, "value", one)} for one in asked]


def _bubbles(error: BaseException) -> bool:
    """Whether this is how LangGraph leaves a node, rather than a failure."""
    errors = sys.modules.get("langgraph.errors")
    return errors is not None and isinstance(error, errors.GraphBubbleUp)


def _told(response: LLMResult, call: _Call | None) -> dict[str, Any]:
    """What a receipt says of an answer: usage, and of a stream its chunks and when the first and
    the last came.
    """
    message = getattr(_first(response), "message", None)
    counted = usage_of(
        getattr(message, "usage_metadata", None)
        or (response.llm_output or {}).get("token_usage")
        or {}
    )
    told: dict[str, Any] = {"usage": counted} if counted else {}
    if call is not None and call.chunks:
        told["stream"] = {"chunks": call.chunks, "first_us": call.first, "last_us": call.last}
    return told


def _first(response: LLMResult) -> Any:
    return response.generations[0][0] if any(response.generations) else None


def _named(serialized: Mapping[str, Any] | None, given: Mapping[str, Any]) -> str | None:
    name = (serialized or {}).get("name") or given.get("name")
    return None if name is None else str(name)


def _place(call: _Call, tags: Sequence[str] | None) -> dict[str, Any]:
    return {**({"path": "/".join(call.path)} if call.path else {}), **_tags(tags)}


def _tags(tags: Sequence[str] | None) -> dict[str, Any]:
    """The user's own tags, without those by which LangChain counts its parts."""
    own = [tag for tag in tags or () if not tag.startswith(_COUNTED)]
    return {"tags": own} if own else {}


_COUNTED = ("seq:step:", "map:key:", "graph:step:", "langsmith:")
_JOIN = ("thread_id", "langgraph_step", "langgraph_node", "langgraph_checkpoint_ns")
"""What LangGraph says of the place of a call; the last part of the namespace is the task id."""


def _identity(run_id: UUID, metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {"langchain_run_id": str(run_id), **place_of(metadata)}


def session_of(metadata: Mapping[str, Any]) -> str | None:
    """The thread, conversation or session that a call belongs to, which the history of what it
    changes names.
    """
    named = (metadata.get(name) for name in ("thread_id", "session_id", "conversation_id"))
    return next((str(one) for one in named if one), None)


def place_of(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """What LangGraph says of the place of a call, by which its step is joined to a checkpoint."""
    return {name: metadata[name] for name in _JOIN if name in metadata}
