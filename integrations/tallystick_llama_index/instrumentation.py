"""TallyInstrumentation: LlamaIndex's events and spans become runs, steps and receipts.

The root of a tree of spans is the run; model calls, tools and retrievals are its steps. Inside a
`bound.run(…)` the steps join that run, and a model or tool call inside an open step of its kind
adds its view to that step, so that nothing is recorded twice. Hooks hand over and return.
LlamaIndex swallows the exceptions of a handler, so events that could not be recorded are counted
here. A ruled tool call that nothing enforces can therefore be noted and not stopped; a ruled model
call is refused by a callback of the model itself, whose exceptions count.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from inspect import BoundArguments
from typing import Any, Self
from weakref import WeakSet

from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.base.llms.base import BaseLLM
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.callbacks import CallbackManager, EventPayload
from llama_index.core.chat_engine.types import BaseChatEngine, StreamingAgentChatResponse
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
from llama_index.core.schema import NodeWithScore, QueryBundle
from llama_index.core.tools import BaseTool, ToolOutput
from llama_index.core.workflow import Workflow
from llama_index_instrumentation import get_dispatcher
from llama_index_instrumentation.dispatcher import Dispatcher
from llama_index_instrumentation.span import active_span_id

from tallystick.errors import RecorderError
from tallystick.kit import (
    ActorSource,
    Background,
    Binder,
    Capture,
    OpenCall,
    RootRun,
    Speakers,
    ToolCall,
    attribute_requests,
    begin_call,
    check_flag,
    checked_speakers,
    is_nested,
    record_approval,
    record_tool_call,
    record_tool_error,
    record_tool_result,
    record_unenforced,
    refuse_unenforced_model_call,
    rules_requests,
)
from tallystick.kit.binder import id_text
from tallystick.kit.rendering import without_frames
from tallystick.recorder import Run, status_for
from tallystick.records import Scope, StepKind, StepStatus
from tallystick.tally import BoundTally, Tally
from tallystick_llama_index.actors import call_of_tags
from tallystick_llama_index.conversations import enter_session
from tallystick_llama_index.hooks import Events, Refusal, Spans
from tallystick_llama_index.memory import TallyMemory
from tallystick_llama_index.messages import (
    answer_of,
    arguments_of_tool,
    documents_of,
    facts_of_response,
    model_of,
    provider_of,
    request_of,
    text_of_result,
    text_of_user,
)
from tallystick_llama_index.models import is_suspended, take_call
from tallystick_llama_index.policy import is_ruled
from tallystick_llama_index.render import own_messages, read_request
from tallystick_llama_index.spans import Span, SpanCall, Tree

try:
    from workflows.runtime.types.results import WaitingForEvent
except ImportError:  # early workflows wait inside the tool, which then simply takes long
    WaitingForEvent = None  # type: ignore[assignment,misc]


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
        """`actor` says who acts, by default what the tags of a call name (`instrument_tags`;
        docs/who-acts.md). `agent_name` names the runs (by default the name of the agent,
        or the class of the root). A failure to record is counted in `failures` and logged; with
        `strict` the first one is raised by `detach`, as a RecorderError. `capture` remembers the
        words of the `user` to the root, or those of `both`, when it ends; on an event loop in a
        thread of its own, for which `detach` and every reader in this process wait.
        """
        self._binder = Binder(
            tally, runtime="llama_index", piece="TallyInstrumentation", actor=actor, scope=scope
        )
        self._capture = Capture(self._binder.tally, "llama_index", strict=False)
        self._background = Background(self._binder.tally)
        check_flag("strict", strict)
        self._strict = strict
        self._agent_name, self._speakers = agent_name, checked_speakers(capture)
        self._guard = threading.RLock()
        self._spans: dict[str, Span] = {}
        self._calls: dict[str, SpanCall] = {}
        self._trees: dict[str, Tree] = {}
        self._dispatcher: Dispatcher | None = None
        self._handlers = Events.of(self), Spans.of(self)
        self._refusal = Refusal(self)
        self._refusing: WeakSet[CallbackManager] = WeakSet()

    def __repr__(self) -> str:
        return self._binder.describe(
            agent_name=self._agent_name,
            capture=None if self._speakers == "off" else self._speakers,
        )

    @property
    def failures(self) -> int:
        """Events that could not be recorded."""
        return self._capture.failures

    @property
    def guard_of_hooks(self) -> Capture:
        """The guard in which the hooks call this."""
        return self._capture

    def attach(self, dispatcher: Dispatcher | None = None) -> Self:
        """Record what goes through `dispatcher`, by default the root: everything. Attach once."""
        self._dispatcher = dispatcher or get_dispatcher()
        events, spans = self._handlers
        self._dispatcher.add_event_handler(events)
        self._dispatcher.add_span_handler(spans)
        return self

    def detach(self) -> None:
        """Stop recording; open runs end as interrupted. If strict, raise
        RecorderError with the type, the message and the traceback of the first failure.
        """
        dispatcher, self._dispatcher = self._dispatcher, None
        if dispatcher is not None:
            events, spans = self._handlers
            dispatcher.event_handlers = [
                handler for handler in dispatcher.event_handlers if handler is not events
            ]
            dispatcher.span_handlers = [
                handler for handler in dispatcher.span_handlers if handler is not spans
            ]
        self._background.finish()
        with self._guard:
            trees = list(self._trees.values())
            self._spans.clear()
            self._calls.clear()
            managers, self._refusing = list(self._refusing), WeakSet()
        for manager in managers:
            manager.remove_handler(self._refusal)
        for tree in trees:
            with self._capture(tree.run):
                if tree.leave is not None:
                    tree.leave()
                self._end(tree, "interrupted")
        if self._strict and self._capture.error is not None:
            failure, self._capture.error = self._capture.error, None
            error = RecorderError(
                f"An event could not be recorded. {failure.type}: {failure.message}"
            )
            error.add_note(failure.text)
            raise error

    def __enter__(self) -> Self:
        return self.attach()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: Any
    ) -> None:
        try:
            self.detach()
        except Exception:
            # The exception of the user's own code comes first.
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
        """Start the run at the root span, and a step at the call of a tool."""
        parent = self._spans.get(parent_id) if parent_id is not None else None
        tree = parent.tree if parent is not None else self._root(span_id, instance, arguments, tags)
        is_writer = isinstance(instance, StreamingAgentChatResponse)
        span = Span(span_id, parent, tree, is_writer=is_writer)
        with self._guard:
            self._spans[span_id] = span
            if tree is not None:
                tree.spans.add(span_id)
        event = arguments.arguments.get("ev")
        span.tool_call_id = getattr(event, "tool_id", None) or (
            parent.tool_call_id if parent is not None else None
        )
        if isinstance(instance, BaseLLM) and rules_requests(self._binder.tally):
            self._watch(instance)
        if tree is None:
            return
        if tree.root_id == span_id and (
            isinstance(instance, Workflow | BaseQueryEngine | BaseChatEngine)
            or is_ruled(instance, self._binder.tally)
        ):
            # Whatever the call records belongs to the run, also outside of any step; hooks run in
            # the context of the call.
            tree.leave = _enter(self._run_of(tree), tree.session)
        if isinstance(instance, BaseTool):
            self._begin_tool(span_id, span, instance, arguments)

    def _begin_tool(
        self, span_id: str, span: Span, tool: BaseTool, arguments: BoundArguments
    ) -> None:
        name = tool.metadata.get_name()
        if not span_id.partition("-")[0].endswith((".call", ".acall", ".__call__")):
            return
        span.tool = name
        if span.parent is not None and span.parent.tool == name:
            # One way to call a tool leads to another.
            return
        span_call = self._begin("tool_call", span_id, name)
        call = span_call.call
        call.tool_call = ToolCall(name, arguments_of_tool(tool, arguments), span.tool_call_id)
        record_tool_call(call.step, call.tool_call)
        if not is_ruled(tool, self._binder.tally):
            bound = self._binder.bound(call_of_tags(self._binder))
            record_unenforced(bound, call.tool_call, call.step)
        # Memories that the tool stores or recalls belong to its step.
        call.enter()

    def on_span_end(self, span_id: str, result: Any) -> None:
        """Record the result of a tool; end the run at the root."""
        span = self._spans.get(span_id)
        span_call = self._calls.get(span_id)
        ends = False
        try:
            if span_call is not None and span is not None and span.tool is not None:
                self._finish_tool(span_id, result)
            elif span_call is not None:
                span_call.is_streaming = True
            if span is not None and span.tree is not None and span.tree.root_id == span_id:
                tree, ends = span.tree, True
                is_cancelled = tree.is_workflow and result is None
                status: StepStatus = "cancelled" if is_cancelled else "completed"
                if not self._ends_later(span_id, tree, result):
                    self._background.run(lambda: self._end_root(span_id, tree, result, status))
            elif span is not None and span.is_writer:
                self._end_written(span, None)
        finally:
            if not ends:
                self._leave(span_id, "completed")

    def _end_root(self, span_id: str, tree: Tree, result: Any, status: StepStatus) -> None:
        """Remember the turn of a run that has answered, and end the run."""
        try:
            if status == "completed":
                self._keep_turn(tree, result)
        finally:
            self._leave(span_id, status)

    def _ends_later(self, span_id: str, tree: Tree, result: Any) -> bool:
        """Return True if another thread or task of LlamaIndex puts the answer into the memory:
        the run goes on until then, and its turn has the whole answer.
        """
        is_stream = isinstance(result, StreamingAgentChatResponse)
        if not is_stream or not result.is_writing_to_memory:
            return False
        # Here and now: what ends the run later may be another thread, and the next call of this one
        # belongs to a run of its own.
        if tree.leave is not None:
            tree.leave()
            tree.leave = None
        with self._guard:
            if tree.is_written:
                return False
            tree.end_later = lambda status: self._end_root(
                span_id, tree, result, status or "completed"
            )
        return True

    def _end_written(self, span: Span, status: StepStatus | None) -> None:
        """End the run that has waited for its answer to be written."""
        if span.tree is None:
            return
        with self._guard:
            span.tree.is_written = True
            end, span.tree.end_later = span.tree.end_later, None
        if end is not None:
            self._background.run(lambda: end(status))

    def _keep_turn(self, tree: Tree, result: Any) -> None:
        """Remember the turn, if one is to be; an answer still streaming is no text yet."""
        run = tree.run
        if self._speakers == "off" or run is None or tree.user_text is None or is_nested():
            return
        is_stream = isinstance(result, StreamingAgentChatResponse)
        if tree.session is not None and is_stream and not result.is_writing_to_memory:
            # Whoever reads the stream has the engine put the turn into the memory.
            return
        with self._capture(run):
            answer = text_of_result(result)
            self._binder.bound(call_of_tags(self._binder, tags=tree.tags)).keep_turn(
                run,
                user=tree.user_text,
                assistant=answer if self._speakers == "both" else None,
                unkept_answer=answer,
                observer="TallyInstrumentation",
            )

    def _finish_tool(self, span_id: str, result: Any) -> None:
        output = result if isinstance(result, ToolOutput) else None
        with self._ending(span_id) as call:
            if call is None:
                return
            if output is None or not output.is_error:
                record_tool_result(call.step, result if output is None else output.raw_output)
                call.end()
                return
            record_tool_error(call.step, getattr(output, "exception", None), output.content)
            call.end("failed")

    def on_span_drop(self, span_id: str, error: BaseException | None) -> None:
        """Record a call that failed: in its step, if it has one, and in the run at the root."""
        failure = error if error is not None else RuntimeError("the span was dropped")
        try:
            with self._ending(span_id) as call:
                if call is None:
                    return
                if (
                    call.tool_call is not None
                    and WaitingForEvent is not None
                    and isinstance(error, WaitingForEvent)
                ):
                    # The tool will be called again with the answer that it waits for.
                    if not call.step.has("approval"):
                        record_approval(call.step, call.tool_call)
                    call.end("blocked")
                else:
                    call.fail(failure)
        finally:
            span = self._spans.get(span_id)
            if span is not None and span.is_writer:
                self._end_written(span, status_for(type(failure)))
            self._leave(span_id, status_for(type(failure)))

    def on_event(self, event: BaseEvent) -> None:
        """Record the start, the chunks and the end of model calls and retrievals."""
        span_id = event.span_id
        if span_id is None:
            return
        if isinstance(event, LLMChatInProgressEvent | LLMCompletionInProgressEvent):
            self._add_chunk(span_id, event.response)
        elif isinstance(event, LLMChatStartEvent):
            self._begin_model(span_id, event.messages, event)
        elif isinstance(event, LLMCompletionStartEvent):
            self._begin_model(span_id, event.prompt, event)
        elif isinstance(event, LLMChatEndEvent | LLMCompletionEndEvent):
            self._finish_model(span_id, event.response)
        elif isinstance(event, RetrievalStartEvent):
            self._begin_retrieval(span_id, event.str_or_query_bundle)
        elif isinstance(event, RetrievalEndEvent):
            self._finish_retrieval(span_id, event.nodes)
        elif isinstance(event, ExceptionEvent):
            self._fail_model(span_id, event.exception)

    def _watch(self, model: BaseLLM) -> None:
        """Have a model ask before it is called: unlike those of the dispatcher, the handlers of its
        callback manager may stop it.
        """
        manager = model.callback_manager
        with self._guard:
            if self._refusal not in manager.handlers:
                manager.add_handler(self._refusal)
                self._refusing.add(manager)

    def refuse_unenforced(self, payload: Mapping[Any, Any]) -> None:
        """Raise ActionDenied for a ruled model call that no enforcing piece has in hand."""
        if is_suspended():
            return
        bound = self._binder.bound(call_of_tags(self._binder))
        around = self._model_call_around(active_span_id.get() or "")
        tools = (payload.get(EventPayload.ADDITIONAL_KWARGS) or {}).get("tools")
        prompt = ChatMessage(payload.get(EventPayload.PROMPT))
        # What a TallyMemory added went through its compile.
        messages = own_messages(
            payload.get(EventPayload.MESSAGES) or [prompt], partial(without_frames, bound)
        )
        request = read_request(messages, tools if isinstance(tools, Sequence) else ())
        with nullcontext() if around is None else around.call.step.active():
            refuse_unenforced_model_call(
                bound,
                model=model_of(payload.get(EventPayload.SERIALIZED) or {}),
                items=request.items,
                tools=request.tools,
            )

    def run_of(self, span_id: str) -> Run | None:
        """Return the run that a span or a stream under way belongs to."""
        span_call, span = self._calls.get(span_id), self._spans.get(span_id)
        if span_call is not None:
            return span_call.tree.run
        return None if span is None or span.tree is None else span.tree.run

    def _begin_model(
        self, span_id: str, prompt: Any, event: LLMChatStartEvent | LLMCompletionStartEvent
    ) -> None:
        outer = self._model_call_around(span_id) or self._find_reader(span_id, prompt)
        if outer is not None:
            outer.nested += outer is self._calls.get(span_id)
            return
        if self._is_foreign(span_id):
            return
        model = model_of(event.model_dict)
        name = model or event.model_dict.get("class_name")
        span_call = self._begin("model_call", span_id, name)
        call, span_call.prompt = span_call.call, prompt
        take_call(call)
        call.provider, call.model, step = provider_of(event.model_dict), model, call.step
        asked = {} if call.provider is None else {"provider": call.provider}
        attribute_requests(step)
        parameters, description = event.additional_kwargs, event.model_dict
        messages = {} if isinstance(prompt, str) else {"messages": len(prompt)}
        step.record(
            "request",
            lambda: request_of(prompt, parameters, description),
            summary={"model": model, **asked, **messages},
        )

    def _model_call_around(self, span_id: str) -> SpanCall | None:
        """Return the model call that a span is part of: a chat may be made of a completion."""
        span_call, span = self._calls.get(span_id), self._spans.get(span_id)
        while span_call is None and span is not None:
            span_call, span = span.part_of, span.parent
            if span_call is None and span is not None:
                span_call = self._calls.get(span.id)
        is_model = span_call is not None and span_call.call.step.kind == "model_call"
        return span_call if is_model else None

    def _find_reader(self, span_id: str, prompt: Any) -> SpanCall | None:
        """Return the asynchronous stream that reads this synchronous one of its model, with the
        same prompt. Two of one kind are two calls.
        """
        called = span_id.partition("-")[0]
        model, _, method = called.rpartition(".")
        with self._guard:
            reader = next(
                (
                    each
                    for reader_id, each in self._calls.items()
                    if reader_id.startswith(f"{model}.a{method}-") and each.reads(prompt)
                ),
                None,
            )
        if reader is not None and (span := self._spans.get(span_id)) is not None:
            span.part_of = reader
        return reader

    def _add_chunk(self, span_id: str, response: Any) -> None:
        span_call = self._calls.get(span_id)
        if span_call is not None and not span_call.nested:
            span_call.call.times.add_chunk()
            span_call.partial = response

    def _finish_model(self, span_id: str, response: Any) -> None:
        span_call = self._calls.get(span_id)
        if span_call is None:
            return
        if span_call.nested:
            span_call.nested -= 1
            return
        with self._ending(span_id) as call:
            if call is not None:
                summary = call.answer_summary(facts_of_response(response))
                call.finish("response", lambda: answer_of(response), summary)

    def _fail_model(self, span_id: str, error: BaseException) -> None:
        """Record that a stream failed or was not read on, with the answer until then."""
        span_call = self._calls.get(span_id)
        if span_call is None:
            return
        call, partial = span_call.call, span_call.partial
        if call.times.chunks:
            summary = call.answer_summary(facts_of_response(partial))
            call.step.record("response", lambda: answer_of(partial), summary=summary)
        if span_call.tree.end_status == "completed":
            # The root has handed its stream out: the run ends as that does.
            span_call.tree.end_status = status_for(type(error))
        with self._ending(span_id):
            call.fail(error)

    def _begin_retrieval(self, span_id: str, question: str | QueryBundle) -> None:
        if self._is_foreign(span_id):
            return
        name = span_id.partition(".")[0]
        query = question if isinstance(question, str) else question.query_str
        call = self._begin("retrieval", span_id, name).call
        request = {"level": "runtime", "query": query}
        call.step.record("request", request, summary={"retriever": name})
        call.enter()

    def _finish_retrieval(self, span_id: str, nodes: Sequence[NodeWithScore]) -> None:
        with self._ending(span_id) as call:
            if call is not None:
                call.finish(
                    "response",
                    lambda: {"documents": documents_of(nodes)},
                    {"documents": len(nodes)},
                )

    def _is_foreign(self, span_id: str) -> bool:
        span = self._spans.get(span_id)
        return span is None or span.tree is None

    def _root(
        self, span_id: str, instance: Any, arguments: BoundArguments, tags: Mapping[str, Any]
    ) -> Tree | None:
        """Start a tree, unless another instrumentation of this tally records it."""
        if is_suspended() or not self._capture.claim(span_id, self):
            return None
        name = getattr(instance, "name", None)
        class_name = type(instance).__name__ if instance is not None else span_id.partition("-")[0]
        tree = Tree(
            span_id,
            name if isinstance(name, str) and name else class_name,
            text_of_user(arguments),
            tags,
            is_workflow=isinstance(instance, Workflow),
            session=_session_of(self._binder.tally, instance, arguments),
        )
        with self._guard:
            self._trees[span_id] = tree
        return tree

    def _run_of(self, tree: Tree) -> Run:
        if tree.root is None:
            run_id = tree.tags.get("llamaindex.run_id")
            # The runs of one conversation are those of one thread, as in every runtime.
            thread = id_text(tree.tags.get("thread_id")) or tree.session
            tree.root = RootRun.join(
                self._binder.bound(call_of_tags(self._binder, tags=tree.tags)),
                self._agent_name or tree.name,
                goal=tree.user_text,
                metadata={
                    **({} if run_id is None else {"llama_index_run_id": run_id}),
                    **({"thread_id": thread} if thread else {}),
                },
            )
        return tree.root.run

    def _begin(self, kind: StepKind, span_id: str, name: str | None) -> SpanCall:
        tree = self._spans[span_id].tree
        assert tree is not None
        place = {"llama_index_span_id": span_id}
        call = begin_call(self._run_of(tree), kind, name=name, metadata=place)
        span_call = SpanCall(call, tree)
        with self._guard:
            self._calls[span_id] = span_call
            tree.open_calls.add(span_id)
        return span_call

    @contextmanager
    def _ending(self, span_id: str) -> Iterator[OpenCall | None]:
        """Take the call of a span that ends: inside, its step is no longer current.

        Afterwards its tree ends, if the root has ended and this was the last open call.
        """
        with self._guard:
            span_call = self._calls.pop(span_id, None)
            if span_call is not None:
                span_call.tree.open_calls.discard(span_id)
        if span_call is None:
            yield None
            return
        span_call.call.leave()
        try:
            yield span_call.call
        finally:
            self._end_if_done(span_call.tree)

    def _leave(self, span_id: str, status: StepStatus) -> None:
        """Drop a span; end the run if it was the root, or let the last of its streams do so."""
        with self._guard:
            span = self._spans.pop(span_id, None)
            tree = None if span is None else span.tree
            if tree is None or tree.root_id != span_id:
                return
            tree.end_status = status
            for key in tree.spans:
                self._spans.pop(key, None)
            for key in [key for key in tree.open_calls if not self._calls[key].is_streaming]:
                tree.open_calls.discard(key)
                del self._calls[key]
        if tree.leave is not None:
            tree.leave()
        self._end_if_done(tree)

    def _end_if_done(self, tree: Tree) -> None:
        if tree.end_status is not None and not tree.open_calls:
            self._end(tree, tree.end_status)

    def _end(self, tree: Tree, status: StepStatus) -> None:
        with self._guard:
            is_open = self._trees.pop(tree.root_id, None) is not None
        self._capture.release(tree.root_id, self)
        if is_open and tree.root is not None:
            tree.root.end(status)


def _enter(run: Run, session: str | None) -> Callable[[], None]:
    """Make a run and a session current; return what makes them so no longer."""
    leave_run, leave_session = run.enter(), enter_session(session)

    def leave() -> None:
        leave_session()
        leave_run()

    return leave


def _session_of(tally: Tally, instance: Any, arguments: BoundArguments) -> str | None:
    """Return the session of the memory on a tally with which an agent or an engine is called."""
    for memory in (arguments.arguments.get("memory"), getattr(instance, "_memory", None)):
        if isinstance(memory, TallyMemory) and memory.is_on(tally):
            return memory.session_id
    return None
