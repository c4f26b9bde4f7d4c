"""TallyInstrumentation: LlamaIndex's events and spans become runs, steps and receipts.

The root of a tree of spans is the run; model calls, tools and retrievals are its steps. Inside a
`bound.run(…)` the steps join that run, and a model or tool call inside an open step of its kind
adds its view to that step, so that nothing is recorded twice. Hooks hand over and return.
LlamaIndex swallows whatever a handler raises, so what could not be recorded is counted here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from inspect import BoundArguments
from typing import Any, Self

from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.chat_engine.types import BaseChatEngine
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.instrumentation.events import BaseEvent
from llama_index.core.instrumentation.events.exception import ExceptionEvent
from llama_index.core.instrumentation.events.llm import (
    LLMChatEndEvent,
    LLMChatInProgressEvent,
    LLMChatStartEvent,
    LLMCompletionEndEvent,
    LLMCompletionInProgressEvent,
    LLMCompletionStartEvent,
)
from llama_index.core.instrumentation.events.retrieval import RetrievalEndEvent, RetrievalStartEvent
from llama_index.core.instrumentation.span import BaseSpan
from llama_index.core.instrumentation.span_handlers import BaseSpanHandler
from llama_index.core.schema import QueryBundle
from llama_index.core.tools import BaseTool, ToolOutput
from llama_index.core.workflow import Workflow
from llama_index_instrumentation import get_dispatcher
from llama_index_instrumentation.dispatcher import Dispatcher, active_instrument_tags
from pydantic import PrivateAttr

from tallystick.recorder import Capture, Run, Speakers, Step, attribute_requests, status_for
from tallystick.records import Actor, EntryKind, Scope, StepKind, StepStatus
from tallystick.tally import Binder, BoundTally, Tally
from tallystick_llama_index.messages import answer_of, found_of, model_of, request_of, usage

try:
    from workflows.runtime.types.results import WaitingForEvent
except ImportError:  # early workflows wait inside the tool, which then simply takes long
    WaitingForEvent = None  # type: ignore[assignment,misc]

__all__ = ["TallyInstrumentation", "unrecorded"]

ActorSource = Actor | Callable[[Mapping[str, Any]], Actor | None]
"""Who acts: an Actor, or a callable from the tags of the call (`instrument_tags`)."""

_unrecorded: ContextVar[bool] = ContextVar("tallystick_unrecorded", default=False)


@contextmanager
def unrecorded() -> Iterator[None]:
    """Calls inside belong to no run: a replay asks a model again, and nobody's agent did that."""
    token = _unrecorded.set(True)
    try:
        yield
    finally:
        _unrecorded.reset(token)


@dataclass
class _Tree:
    """The spans under one root, and their run once there is one."""

    root: str
    name: str
    asked: str | None
    tags: Mapping[str, Any]
    run: Run | None = None
    owned: bool = False
    leave: Callable[[], None] | None = None
    spans: set[str] = field(default_factory=set)
    open: set[str] = field(default_factory=set)
    """Spans whose step is open."""
    ended: StepStatus | None = None
    """How the root ended, while streams that it gave back are still read."""
    workflow: bool = False
    """Whether the root is a workflow, which ends with an event unless somebody cancels it."""


@dataclass
class _Span:
    """A span under way. One without a tree belongs to another instrumentation of the same tally."""

    id: str
    parent: _Span | None
    tree: _Tree | None
    tool: str | None = None
    """The tool that is called, and the id of the call as an agent gave it."""
    call_id: str | None = None


@dataclass
class _Doing:
    """A step under way."""

    step: Step
    owned: bool
    tree: _Tree
    leave: Callable[[], None] | None = None
    asked: Mapping[str, Any] = field(default_factory=dict)
    nested: int = 0
    """Starts inside it that are part of it: a chat that is made of a completion."""
    streams: bool = False
    """Whether its span has ended and its answer is still read."""
    chunks: int = 0
    first: int = 0
    last: int = 0
    """Microseconds from the start of the step to its first and to its last chunk."""
    said: Any = None


class TallyInstrumentation:
    """Records what LlamaIndex does: `with TallyInstrumentation(tally): …`, or
    `TallyInstrumentation(tally).attach()`.

    LlamaIndex's dispatcher serves the whole process: one instrumentation records every call until
    it is detached, from any number of threads and loops.
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
        """`agent_name` names the runs (by default the name of the agent, or the class of what was
        called). A failure to record is counted in `failures` and logged; with `strict` the first
        one is raised by `detach`. `capture` remembers what the `user` said to the root, or what
        `both` said, when it ends.
        """
        self._binder = Binder[Mapping[str, Any]](
            tally, surface="llama_index", actor=actor, scope=scope
        )
        self._capture = Capture(self._binder.tally.recording, "llama_index", strict=False)
        self._claims = self._binder.tally.recording.claims
        self._strict = strict
        self._agent_name, self._speakers = agent_name, capture
        self._guard = threading.RLock()
        self._spans: dict[str, _Span] = {}
        self._doing: dict[str, _Doing] = {}
        self._trees: dict[str, _Tree] = {}
        self._dispatcher: Dispatcher | None = None
        self._handlers = _Events.of(self), _Spans.of(self)

    @property
    def failures(self) -> int:
        """Events that could not be recorded."""
        return self._capture.failures

    def attach(self, dispatcher: Dispatcher | None = None) -> Self:
        """Begin to record what goes through `dispatcher` (by default the root: everything). Attach
        only once.
        """
        self._dispatcher = dispatcher or get_dispatcher()
        events, spans = self._handlers
        self._dispatcher.add_event_handler(events)
        self._dispatcher.add_span_handler(spans)
        return self

    def detach(self) -> None:
        """Stop recording. Runs that have not ended end as interrupted. If strict, raises what could
        not be recorded.
        """
        dispatcher, self._dispatcher = self._dispatcher, None
        if dispatcher is not None:
            dispatcher.event_handlers = [
                one for one in dispatcher.event_handlers if one is not self._handlers[0]
            ]
            dispatcher.span_handlers = [
                one for one in dispatcher.span_handlers if one is not self._handlers[1]
            ]
        with self._guard:
            left = list(self._trees.values())
            self._spans.clear()
            self._doing.clear()
        for tree in left:
            with self._capture(tree.run):
                if tree.leave is not None:
                    tree.leave()
                self._end(tree, "interrupted")
        if self._strict and self._capture.error is not None:
            error, self._capture.error = self._capture.error, None
            raise error

    def __enter__(self) -> Self:
        return self.attach()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: Any
    ) -> None:
        try:
            self.detach()
        except Exception:
            # What the user's own code raised comes first.
            if error is None:
                raise

    def on_span_start(
        self,
        span_id: str,
        parent_id: str | None,
        instance: Any,
        arguments: BoundArguments,
        tags: Mapping[str, Any],
    ) -> None:
        """The root span is the run; the call of a tool is a step."""
        parent = self._spans.get(parent_id) if parent_id is not None else None
        tree = (
            parent.tree if parent is not None else self._rooted(span_id, instance, arguments, tags)
        )
        span = _Span(span_id, parent, tree)
        with self._guard:
            self._spans[span_id] = span
            if tree is not None:
                tree.spans.add(span_id)
        called = arguments.arguments.get("ev")
        span.call_id = getattr(called, "tool_id", None) or (
            parent.call_id if parent is not None else None
        )
        if tree is None:
            return
        if tree.root == span_id and isinstance(
            instance, Workflow | BaseQueryEngine | BaseChatEngine
        ):
            # What happens in it belongs to it, also outside of any step; hooks run in the context
            # of the call.
            tree.leave = self._run_of(tree).enter()
        if isinstance(instance, BaseTool):
            self._tool(span_id, span, instance, arguments)

    def _tool(self, span_id: str, span: _Span, tool: BaseTool, arguments: BoundArguments) -> None:
        name = tool.metadata.get_name()
        if not span_id.partition("-")[0].endswith((".call", ".acall", ".__call__")):
            return
        span.tool = name
        if span.parent is not None and span.parent.tool == name:
            # One way to call a tool leads to another.
            return
        doing = self._begin("tool_call", span_id, name)
        given = dict(arguments.arguments.get("kwargs") or {})
        given.pop(getattr(tool, "ctx_param_name", None) or "", None)
        rest = {
            key: value
            for key, value in arguments.arguments.items()
            if key not in ("args", "kwargs")
        }
        asked = {
            **({"args": list(args)} if (args := arguments.arguments.get("args")) else {}),
            **rest,
            **given,
        }
        doing.asked = {"name": name, "arguments": asked, "tool_call_id": span.call_id}
        doing.step.record("tool_call", doing.asked, summary={"tool": name})
        # What the tool remembers or recalls belongs to its step.
        doing.leave = doing.step.enter()

    def on_span_end(self, span_id: str, result: Any) -> None:
        """The result of a tool; the end of the run."""
        span = self._spans.get(span_id)
        doing = self._doing.get(span_id)
        stopped = False
        try:
            if doing is not None and span is not None and span.tool is not None:
                self._result(span_id, doing, result)
            elif doing is not None:
                doing.streams = True
            if span is not None and span.tree is not None and span.tree.root == span_id:
                stopped = span.tree.workflow and result is None
                self._keep(span.tree, result)
        finally:
            self._leave(span_id, "cancelled" if stopped else "completed")

    def _keep(self, tree: _Tree, result: Any) -> None:
        """Remember what was said, where that is asked for; an answer that still streams is not text
        yet.
        """
        if self._speakers == "off" or tree.run is None or tree.asked is None:
            return
        with self._capture(tree.run):
            answer = _text_of(result) if self._speakers == "both" else None
            self._binder.bound(tree.tags).keep_turn(tree.run, user=tree.asked, assistant=answer)

    def _result(self, span_id: str, doing: _Doing, result: Any) -> None:
        output = result if isinstance(result, ToolOutput) else None
        value = result if output is None else output.raw_output
        if output is None or not output.is_error:
            self._finish(span_id, "tool_result", {"result": value}, {})
            return
        error = getattr(output, "exception", None)
        kind = type(error).__name__ if error is not None else "ToolError"
        self._finish(
            span_id, "error", {"type": kind, "message": output.content}, {"type": kind}, "failed"
        )

    def on_span_drop(self, span_id: str, error: BaseException | None) -> None:
        """A call that failed: its step, if it has one, and the run if it was the root."""
        failed = error if error is not None else RuntimeError("the span was dropped")
        doing = self._doing.get(span_id)
        try:
            if (
                doing is not None
                and WaitingForEvent is not None
                and isinstance(error, WaitingForEvent)
            ):
                # The tool will be called again with the answer that it waits for.
                self._finish(
                    span_id,
                    "approval",
                    doing.asked,
                    {"tool": doing.asked.get("name"), "state": "asked"},
                    "blocked",
                )
            elif doing is not None:
                self._fail(span_id, failed)
        finally:
            self._leave(span_id, status_for(type(failed)))

    def on_event(self, event: BaseEvent) -> None:
        """Model calls and retrievals start, go on and end."""
        span_id = event.span_id
        if span_id is None:
            return
        if isinstance(event, LLMChatInProgressEvent | LLMCompletionInProgressEvent):
            self._chunk(span_id, event.response)
        elif isinstance(event, LLMChatStartEvent):
            self._ask(span_id, event.messages, event)
        elif isinstance(event, LLMCompletionStartEvent):
            self._ask(span_id, event.prompt, event)
        elif isinstance(event, LLMChatEndEvent | LLMCompletionEndEvent):
            self._answer(span_id, event.response)
        elif isinstance(event, RetrievalStartEvent):
            self._look(span_id, event.str_or_query_bundle)
        elif isinstance(event, RetrievalEndEvent):
            nodes = event.nodes
            self._finish(
                span_id,
                "response",
                lambda: {"documents": found_of(nodes)},
                {"documents": len(nodes)},
            )
        elif isinstance(event, ExceptionEvent):
            self._break(span_id, event.exception)

    def run_of(self, span_id: str) -> Run | None:
        """The run that a span or a stream under way belongs to."""
        doing, span = self._doing.get(span_id), self._spans.get(span_id)
        tree = doing.tree if doing is not None else span.tree if span is not None else None
        return None if tree is None else tree.run

    def _ask(
        self, span_id: str, said: Any, event: LLMChatStartEvent | LLMCompletionStartEvent
    ) -> None:
        outer = self._asking(span_id)
        if outer is not None:
            outer.nested += outer is self._doing.get(span_id)
            return
        if self._is_foreign(span_id):
            return
        model = model_of(event.model_dict)
        doing = self._begin("model_call", span_id, model or event.model_dict.get("class_name"))
        attribute_requests(doing.step)
        given, described = event.additional_kwargs, event.model_dict
        summary = (
            {"model": model} if isinstance(said, str) else {"model": model, "messages": len(said)}
        )
        doing.step.record("request", lambda: request_of(said, given, described), summary=summary)

    def _asking(self, span_id: str) -> _Doing | None:
        """The model call that a span stands in: a chat may be made of a completion."""
        doing, span = self._doing.get(span_id), self._spans.get(span_id)
        while doing is None and span is not None:
            span = span.parent
            doing = None if span is None else self._doing.get(span.id)
        return doing if doing is not None and doing.step.kind == "model_call" else None

    def _chunk(self, span_id: str, response: Any) -> None:
        doing = self._doing.get(span_id)
        if doing is None or doing.nested:
            return
        since = doing.step.run.context.store.clock.now() - doing.step.started_at
        doing.first, doing.last = (doing.first if doing.chunks else since), since
        doing.chunks += 1
        doing.said = response

    def _answer(self, span_id: str, response: Any) -> None:
        doing = self._doing.get(span_id)
        if doing is None:
            return
        if doing.nested:
            doing.nested -= 1
            return
        self._finish(span_id, "response", lambda: answer_of(response), _told(doing, response))

    def _break(self, span_id: str, error: BaseException) -> None:
        """A stream failed, or nobody read on: what was said until then is kept."""
        doing = self._doing.get(span_id)
        if doing is None:
            return
        if doing.chunks:
            said = doing.said
            doing.step.record("response", lambda: answer_of(said), summary=_told(doing, said))
        self._fail(span_id, error)

    def _look(self, span_id: str, asked: str | QueryBundle) -> None:
        if self._is_foreign(span_id):
            return
        name = span_id.partition(".")[0]
        query = asked if isinstance(asked, str) else asked.query_str
        doing = self._begin("other", span_id, name)
        doing.step.record(
            "request", {"level": "runtime", "query": query}, summary={"retriever": name}
        )
        doing.leave = doing.step.enter()

    def _is_foreign(self, span_id: str) -> bool:
        span = self._spans.get(span_id)
        return span is None or span.tree is None

    def _rooted(
        self, span_id: str, instance: Any, arguments: BoundArguments, tags: Mapping[str, Any]
    ) -> _Tree | None:
        """A new tree, unless another instrumentation of this tally has it, or nobody is to record
        it.
        """
        if _unrecorded.get() or not self._claims.take(("llama_index", span_id), self):
            return None
        name = getattr(instance, "name", None)
        called = name if isinstance(name, str) and name else type(instance).__name__
        tree = _Tree(
            span_id,
            called if instance is not None else span_id.partition("-")[0],
            _asked(arguments),
            tags,
            workflow=isinstance(instance, Workflow),
        )
        with self._guard:
            self._trees[span_id] = tree
        return tree

    def _run_of(self, tree: _Tree) -> Run:
        if tree.run is None:
            bound = self._binder.bound(tree.tags)
            known = (
                {"llama_index_run_id": tree.tags["llamaindex.run_id"]}
                if "llamaindex.run_id" in tree.tags
                else {}
            )
            tree.run, tree.owned = bound.join_run(
                self._agent_name or tree.name, goal=tree.asked, metadata=known
            )
        return tree.run

    def _begin(self, kind: StepKind, span_id: str, name: str | None) -> _Doing:
        span = self._spans[span_id]
        tree = span.tree
        assert tree is not None
        step, owned = self._run_of(tree).join(
            kind, name=name, metadata={"llama_index_span_id": span_id}
        )
        doing = _Doing(step, owned, tree)
        with self._guard:
            self._doing[span_id] = doing
            tree.open.add(span_id)
        return doing

    def _taken(self, span_id: str) -> _Doing | None:
        """The step of a call that ends, no longer current."""
        with self._guard:
            doing = self._doing.pop(span_id, None)
            if doing is not None:
                doing.tree.open.discard(span_id)
        if doing is not None and doing.leave is not None:
            doing.leave()
        return doing

    def _finish(
        self,
        span_id: str,
        kind: EntryKind,
        payload: Any,
        summary: Mapping[str, Any],
        status: StepStatus = "completed",
    ) -> None:
        doing = self._taken(span_id)
        if doing is None:
            return
        try:
            doing.step.record(kind, payload, summary=summary)
            if doing.owned:
                doing.step.end(status, wait=False)
        finally:
            self._settle(doing.tree)

    def _fail(self, span_id: str, error: BaseException) -> None:
        doing = self._taken(span_id)
        if doing is None:
            return
        try:
            if doing.owned:
                doing.step.fail(error)
        finally:
            self._settle(doing.tree)

    def _leave(self, span_id: str, status: StepStatus) -> None:
        """Forget a span; end the run if it was the root, or let the last of its streams do so."""
        with self._guard:
            span = self._spans.pop(span_id, None)
            tree = None if span is None else span.tree
            if tree is None or tree.root != span_id:
                return
            tree.ended = status
            for key in tree.spans:
                self._spans.pop(key, None)
            for key in [key for key in tree.open if not self._doing[key].streams]:
                tree.open.discard(key)
                del self._doing[key]
        if tree.leave is not None:
            tree.leave()
        self._settle(tree)

    def _settle(self, tree: _Tree) -> None:
        if tree.ended is not None and not tree.open:
            self._end(tree, tree.ended)

    def _end(self, tree: _Tree, status: StepStatus) -> None:
        with self._guard:
            known = self._trees.pop(tree.root, None)
        self._claims.release(("llama_index", tree.root), self)
        if known is not None and tree.run is not None and tree.owned:
            tree.run.end(status, wait=False)


class _Events(BaseEventHandler):
    """LlamaIndex's events, handed on."""

    _to: Any = PrivateAttr()

    @classmethod
    def of(cls, to: TallyInstrumentation) -> _Events:
        made = cls()
        made._to = to
        return made

    @classmethod
    def class_name(cls) -> str:
        """The name of the class, for LlamaIndex's own serialisation."""
        return "TallyEvents"

    def handle(self, event: BaseEvent, **kwargs: Any) -> None:
        """Record an event."""
        to: TallyInstrumentation = self._to
        with to._capture(to.run_of(event.span_id or "")):
            to.on_event(event)


class _Spans(BaseSpanHandler[BaseSpan]):
    """LlamaIndex's spans, handed on; none is kept here."""

    _to: Any = PrivateAttr()

    @classmethod
    def of(cls, to: TallyInstrumentation) -> _Spans:
        made = cls()
        made._to = to
        return made

    @classmethod
    def class_name(cls) -> str:
        """The name of the class, for LlamaIndex's own serialisation."""
        return "TallySpans"

    def span_enter(
        self,
        id_: str,
        bound_args: BoundArguments,
        instance: Any | None = None,
        parent_id: str | None = None,
        tags: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """A call starts."""
        to: TallyInstrumentation = self._to
        with to._capture(to.run_of(parent_id or "")):
            to.on_span_start(id_, parent_id, instance, bound_args, tags or _active_tags())

    def span_exit(
        self,
        id_: str,
        bound_args: BoundArguments,
        instance: Any | None = None,
        result: Any | None = None,
        **kwargs: Any,
    ) -> None:
        """A call ends."""
        to: TallyInstrumentation = self._to
        with to._capture(to.run_of(id_)):
            to.on_span_end(id_, result)

    def span_drop(
        self,
        id_: str,
        bound_args: BoundArguments,
        instance: Any | None = None,
        err: BaseException | None = None,
        **kwargs: Any,
    ) -> None:
        """A call failed."""
        to: TallyInstrumentation = self._to
        with to._capture(to.run_of(id_)):
            to.on_span_drop(id_, err)

    def new_span(self, *args: Any, **kwargs: Any) -> None:
        """No span of LlamaIndex's own."""

    def prepare_to_exit_span(self, *args: Any, **kwargs: Any) -> None:
        """Same as `new_span`."""

    def prepare_to_drop_span(self, *args: Any, **kwargs: Any) -> None:
        """Same as `new_span`."""


def _told(doing: _Doing, response: Any) -> dict[str, Any]:
    """What a receipt says of an answer: usage, and of a stream its chunks and when the first and
    the last came.
    """
    counted = usage(response)
    told: dict[str, Any] = {"usage": counted} if counted else {}
    if doing.chunks:
        told["stream"] = {"chunks": doing.chunks, "first_us": doing.first, "last_us": doing.last}
    return told


def _asked(arguments: BoundArguments) -> str | None:
    """What the caller said, as far as the arguments of the root span say it."""
    given = arguments.arguments
    started = given.get("start_event")
    named = [
        given.get(name) for name in ("user_msg", "str_or_query_bundle", "message", "query", "input")
    ]
    for said in (*named, getattr(started, "user_msg", None), getattr(started, "input", None)):
        text = (
            said.query_str
            if isinstance(said, QueryBundle)
            else said.content
            if isinstance(said, ChatMessage)
            else said
        )
        if isinstance(text, str) and text:
            return text
    return None


def _text_of(result: Any) -> str | None:
    """The text of an agent's, an engine's or a model's answer."""
    said = getattr(result, "response", result)
    text = getattr(getattr(said, "message", said), "content", said)
    return text if isinstance(text, str) else None


def _active_tags() -> Mapping[str, Any]:
    """The tags of the context, where a workflow gives none to its own span."""
    tags: Mapping[str, Any] = active_instrument_tags.get()
    return tags
