"""TallyCallbackHandler: LangChain's callbacks become runs, steps and receipts.

The root of a call tree is the run; model calls, tools and retrievers are its steps. Inside a
`bound.run(…)` the steps join that run, and a model or tool call inside an open step of its kind
adds its view to that step, so that nothing is recorded twice. Hooks hand over and return; the end
of the run acknowledges everything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial, wraps
from typing import Any, ParamSpec
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.outputs import LLMResult
from langchain_core.runnables.config import ensure_config

from tallystick.kit import (
    ActorSource,
    Binder,
    Capture,
    Speakers,
    ToolCall,
    attribute_requests,
    check_flag,
    checked_speakers,
    dump_model,
    has_rules,
    record_sent,
    record_tool_call,
    record_tool_result,
    refuse_unenforced,
    refuse_unenforced_model_call,
    rules_requests,
)
from tallystick.kit.rendering import without_frames
from tallystick.recorder import Run, current_step, status_for
from tallystick.records import ContextItem, Scope
from tallystick.tally import BoundTally, Tally
from tallystick_langchain.graph import (
    is_bubble_up,
)
from tallystick_langchain.hooks import awaitable
from tallystick_langchain.messages import (
    answer_of,
    completion_of,
    facts_of_answer,
    first_generation,
    model_of,
    request_of,
    result_of,
)
from tallystick_langchain.render import CONTEXT_ID, items_of, tool_specs
from tallystick_langchain.trees import CallTrees

P = ParamSpec("P")


def _guard_hook(hook: Callable[P, None]) -> Callable[P, None]:
    """Guard what records: its failure is a gap of the run, and is raised only in a strict handler.

    What judges a call is not guarded: a call that could not be judged must not happen.
    """

    @wraps(hook)
    def guarded_hook(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            hook(*args, **kwargs)
        except Exception as error:
            handler = args[0]
            assert isinstance(handler, TallyCallbackHandler)
            handler._capture.count_gap(error, handler._trees.run_under_way(kwargs))
            if handler._capture.strict:
                raise

    return guarded_hook


ENFORCED = "tallystick_enforces_rules"
"""Metadata of a tool that checks the rules of its tally by itself."""


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
        """`agent_name` names the runs (by default the name of the root runnable, or for an unnamed
        graph `agent`). With `strict` a failure to record is raised into the call;
        otherwise it is counted in `failures`, logged, and reported by `verify` and `tally doctor`.
        `capture` remembers the words of the `user` to the root, or those of `both`, with one write
        when it ends or waits for a person.
        """
        check_flag("strict", strict)
        # LangChain passes on what a hook raises only then; the guard of the hooks decides what that
        # is.
        self.raise_error = True
        self._binder = Binder(
            tally, runtime="langchain", piece="TallyCallbackHandler", actor=actor, scope=scope
        )
        self._capture = Capture(self._binder.tally, "langchain", strict=strict)
        self._agent_name, self._speakers = agent_name, checked_speakers(capture)
        self._trees = CallTrees(
            self._binder,
            self._capture,
            self,
            agent_name=self._agent_name,
            speakers=self._speakers,
        )

    def __repr__(self) -> str:
        return self._binder.describe(
            agent_name=self._agent_name,
            capture=None if self._speakers == "off" else self._speakers,
        )

    @property
    def failures(self) -> int:
        """Events that could not be recorded."""
        return self._capture.failures

    def run_of(self, run_id: UUID) -> Run | None:
        """Return the run that a callback under way belongs to; it starts now, if it has not.

        None where another handler records it, or where it was refused.
        """
        callback = self._trees.callbacks.get(run_id.int)
        if callback is None or callback.tree is None:
            return None
        with self._capture():
            root = self._trees.started_root(callback.tree)
            return None if root is None else root.run
        return None

    def may_wait(self, arguments: Mapping[str, Any]) -> bool:
        """Return True if a hook may wait for a disk: it starts the run, judges a call, or remembers
        the turn.
        """
        callback = self._trees.callbacks.get(arguments["run_id"].int)
        parent = arguments.get("parent_run_id")
        above = callback or (self._trees.callbacks.get(parent.int) if parent is not None else None)
        tally = self._binder.tally
        if above is None or has_rules(tally, "tool_call") or rules_requests(tally):
            return True
        is_waiting_to_start = above.tree is not None and above.tree.root is None
        is_end = callback is not None and callback.is_root and self._speakers != "off"
        return is_waiting_to_start or is_end

    def enter_context(self, arguments: Mapping[str, Any]) -> None:
        """Make current, in the context of the call itself, what a hook in another thread began."""
        call = self._trees.call_of(arguments["run_id"])
        if call is not None and call.step.is_open:
            if call.step.kind == "tool_call":
                call.enter()
            elif call.step.kind == "model_call":
                attribute_requests(call.step)

    @awaitable
    @_guard_hook
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
        """Start the run at the root chain; inner chains are the path of a step."""
        name = kwargs.get("name")
        callback = self._trees.enter(run_id, parent_run_id, metadata, name, tags, inputs)
        if parent_run_id is not None and name and not callback.is_root:
            callback.path = (*callback.path, str(name))

    @awaitable
    @_guard_hook
    def on_chain_end(self, outputs: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """End the run at the root chain."""
        callback = self._trees.callbacks.get(run_id.int)
        try:
            if callback is not None and callback.is_root and callback.tree is not None:
                self._trees.keep_turn(callback.tree, outputs)
        finally:
            self._trees.leave(run_id, "completed")

    @awaitable
    @_guard_hook
    def on_chain_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """Record that a chain failed or waits for a person, unless a step has recorded it."""
        callback = self._trees.callbacks.get(run_id.int)
        try:
            if callback is not None and callback.tree is not None:
                self._trees.record_error(callback, callback.tree, error)
        finally:
            self._trees.leave(
                run_id, "completed" if is_bubble_up(error) else status_for(type(error))
            )

    @awaitable
    def on_chat_model_start(
        self,
        serialized: dict[str, Any],
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Record a model call as it starts: its final messages, tools and parameters.

        Raises what stops the call: see `_refuse`.
        """
        self._start_model(
            messages[0],
            partial(request_of, messages[0]),
            {"messages": len(messages[0])},
            serialized,
            run_id=run_id,
            metadata=metadata,
            **kwargs,
        )
        self._refuse_unenforced_model(run_id, metadata, kwargs, messages[0])

    @awaitable
    def on_llm_start(
        self,
        serialized: dict[str, Any],
        prompts: list[str],
        *,
        run_id: UUID,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Same as `on_chat_model_start`, for a model that completes text."""
        self._start_model(
            prompts,
            partial(completion_of, prompts[0]),
            {},
            serialized,
            run_id=run_id,
            metadata=metadata,
            **kwargs,
        )
        self._refuse_unenforced_model(run_id, metadata, kwargs, list(map(HumanMessage, prompts)))

    @_guard_hook
    def _start_model(
        self,
        inputs: Any,
        request: Callable[[Any], Any],
        summary: Mapping[str, Any],
        serialized: dict[str, Any],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        tags: list[str] | None = None,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Begin a step with the request that `request` makes of the parameters of the call."""
        parameters = kwargs.get("invocation_params") or {}
        model = model_of(parameters)
        name = model or _name_of(serialized, kwargs)
        call = self._trees.begin("model_call", run_id, parent_run_id, metadata, name, tags, inputs)
        if call is not None:
            call.provider, call.model = (metadata or {}).get("ls_provider"), model
            asked = {} if call.provider is None else {"provider": call.provider}
            call.step.record(
                "request",
                lambda: request(parameters),
                summary={"model": model, **asked, **summary},
            )
            callback = self._trees.callbacks.get(run_id.int)
            bound = None if callback is None or callback.tree is None else callback.tree.bound
            if bound is not None:
                record_sent(bound, inputs, call.step)

    @awaitable
    @_guard_hook
    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        """Record the answer of a model call, its usage, and the times of a stream."""
        callback = self._trees.callbacks.get(run_id.int)
        if callback is not None and callback.is_root and callback.tree is not None:
            generation = first_generation(response)
            answer = getattr(generation, "message", None) or getattr(generation, "text", None)
            self._trees.keep_turn(callback.tree, answer)
        call = self._trees.call_of(run_id)
        summary = {} if call is None else call.answer_summary(facts_of_answer(response))
        self._trees.finish(run_id, "response", lambda: answer_of(response), summary)

    @_guard_hook
    def on_llm_new_token(self, token: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """Count a chunk of a stream."""
        call = self._trees.call_of(run_id)
        if call is not None:
            call.times.add_chunk()

    def on_stream_event(self, event: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """Count a chunk of a stream that comes as events."""
        if event["event"] == "content-block-delta":
            self.on_llm_new_token("", run_id=run_id)

    @awaitable
    @_guard_hook
    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """Record a failed model call, with its answer until then."""
        call, partial = self._trees.call_of(run_id), kwargs.get("response")
        if call is not None and isinstance(partial, LLMResult) and any(partial.generations):
            summary = call.answer_summary(facts_of_answer(partial))
            call.step.record("response", lambda: answer_of(partial), summary=summary)
        self._trees.fail(run_id, error)

    @_guard_hook
    def on_retry(self, retry_state: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """Record that a call is tried again, with the number of the attempt and the error."""
        call = self._trees.call_of(run_id)
        if call is not None:
            outcome = getattr(retry_state, "outcome", None)
            error = outcome.exception() if outcome is not None and outcome.failed else None
            kind = None if error is None else type(error).__name__
            retry = {"attempt": retry_state.attempt_number, "type": kind}
            call.step.record(
                "note", {"retry": retry, "message": str(error or "")}, summary={"retry": retry}
            )

    @awaitable
    @_guard_hook
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
        """Record an event of the user's own in the step under way, else in a step of its own."""
        callback = self._trees.callbacks.get(run_id.int)
        if callback is None or callback.tree is None:
            return
        root = self._trees.started_root(callback.tree, metadata)
        if root is None:
            return
        run = root.run
        active = current_step() if callback.call is None else callback.call.step
        note = {"event": name, "data": data}
        if active is not None and active.run is run and active.is_open:
            active.record("note", note, summary={"event": name})
            return
        step = run.step("event", name=name, metadata=callback.place(tags))
        step.record("note", note, summary={"event": name})
        step.end(wait=False)

    @awaitable
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
        """Record a tool call as it starts: its name and arguments.

        Raises what stops the call: see `_refuse`.
        """
        tool_call = ToolCall(
            _name_of(serialized, kwargs) or "tool",
            inputs if inputs is not None else input_str,
            kwargs.get("tool_call_id"),
        )
        self._start_tool(
            tool_call, run_id=run_id, parent_run_id=parent_run_id, metadata=metadata, tags=tags
        )
        if has_rules(self._binder.tally, "tool_call") and not (metadata or {}).get(ENFORCED):
            tool_class = (metadata or {}).get("tool_class")
            self._refuse(
                run_id,
                lambda bound: refuse_unenforced(
                    bound, tool_call, tool_class=tool_class, is_written=True
                ),
                metadata,
            )

    @_guard_hook
    def _start_tool(
        self,
        tool_call: ToolCall,
        *,
        run_id: UUID,
        parent_run_id: UUID | None,
        metadata: dict[str, Any] | None,
        tags: list[str] | None,
    ) -> None:
        call = self._trees.begin("tool_call", run_id, parent_run_id, metadata, tool_call.name, tags)
        if call is not None:
            if not call.step.has("tool_call"):
                record_tool_call(call.step, tool_call)
            # What the tool remembers or recalls belongs to its step: hooks run inline, in the
            # context of the tool.
            call.enter()

    def _refuse_unenforced_model(
        self,
        run_id: UUID,
        metadata: Mapping[str, Any] | None,
        arguments: Mapping[str, Any],
        messages: Sequence[BaseMessage],
    ) -> None:
        if not rules_requests(self._binder.tally):
            return
        parameters = arguments.get("invocation_params") or {}

        def refuse(bound: BoundTally) -> None:
            refuse_unenforced_model_call(
                bound,
                provider=(metadata or {}).get("ls_provider"),
                model=model_of(parameters),
                items=[
                    _own_item(bound, item)
                    for item, message in items_of(messages, len).values()
                    if not _is_added(bound, message)
                ],
                tools=tool_specs(parameters.get("tools") or ()),
            )

        self._refuse(run_id, refuse, metadata)

    def _refuse(
        self,
        run_id: UUID,
        refuse: Callable[[BoundTally], None],
        metadata: Mapping[str, Any] | None,
    ) -> None:
        """Refuse a ruled call that no enforcing piece has in hand; its step fails.

        Raises Blocked, and what keeps the call from being judged: Denied where the places of a call
        disagree about who acts, StorageError.
        """
        callback, call = self._trees.callbacks.get(run_id.int), self._trees.call_of(run_id)
        if callback is not None and callback.tree is None:
            # Another handler of this tally records the call, and refuses it.
            return
        try:
            # The root sees less of the call than is seen here, and so fewer places that disagree.
            seen = self._binder.bound(self._trees.call_context(metadata or {}))
            bound = None if callback is None or callback.tree is None else callback.tree.bound
            bound = seen if bound is None else bound
            with nullcontext() if call is None else call.step.active():
                refuse(bound)
        except Exception as error:
            self._trees.fail(run_id, error)
            raise

    @awaitable
    @_guard_hook
    def on_tool_end(self, output: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """Record the result of a tool call, which may be an error that the model reads."""
        call = self._trees.leave_step(run_id)
        try:
            if call is not None:
                record_tool_result(call.step, result_of(output))
                failed = getattr(output, "status", None) == "error"
                call.end("failed" if failed else "completed")
        finally:
            self._trees.leave(run_id, "completed")

    @awaitable
    @_guard_hook
    def on_tool_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """Record that a tool call failed, or waits for a person."""
        self._trees.fail(run_id, error)

    @awaitable
    @_guard_hook
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
        """Record a retrieval as it starts: its query."""
        name = _name_of(serialized, kwargs) or "retriever"
        call = self._trees.begin("retrieval", run_id, parent_run_id, metadata, name, tags)
        if call is None:
            return
        request = {"level": "runtime", "query": query}
        call.step.record("request", request, summary={"retriever": name})

    @awaitable
    @_guard_hook
    def on_retriever_end(
        self, documents: Sequence[Document], *, run_id: UUID, **kwargs: Any
    ) -> None:
        """Record the documents of a retrieval."""
        payload = {"documents": [dump_model(document) for document in documents]}
        self._trees.finish(run_id, "response", payload, {"documents": len(documents)})

    @awaitable
    @_guard_hook
    def on_retriever_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """Record that a retrieval failed."""
        self._trees.fail(run_id, error)


def handler_run() -> Run | None:
    """Return the run of a TallyCallbackHandler in the callbacks of the call under way, or None."""
    manager = ensure_config().get("callbacks")
    handlers = getattr(manager, "handlers", manager) or ()
    parent = getattr(manager, "parent_run_id", None)
    for handler in handlers if isinstance(handlers, Sequence) else ():
        if isinstance(handler, TallyCallbackHandler) and parent is not None:
            return handler.run_of(parent)
    return None


def _own_item(bound: BoundTally, item: ContextItem) -> ContextItem:
    """Return an item as somebody wrote it: what memory put behind instructions went through a
    compile.
    """
    if item.kind != "system":
        return item
    return item.model_copy(update={"content": without_frames(bound, item.content).strip()})


def _is_added(bound: BoundTally, message: BaseMessage) -> bool:
    """Return True for the message with what memory adds, which went through a compile."""
    return message.id == CONTEXT_ID and not without_frames(bound, str(message.text)).strip()


def _name_of(serialized: Mapping[str, Any] | None, arguments: Mapping[str, Any]) -> str | None:
    name = (serialized or {}).get("name") or arguments.get("name")
    return None if name is None else str(name)
