"""Models of LlamaIndex whose requests are compiled, and go by the rules of the tally.

LlamaIndex has no hook that sees a whole request and may change it: the model itself is the hook.
`ruled_llm` returns it, to be given to an agent, a workflow or an engine in place of the original
one. Inside a run it opens the step of the call, so that the compile is part of it.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.llms.llm import LLM
from llama_index_instrumentation import get_dispatcher
from llama_index_instrumentation.dispatcher import active_instrument_tags
from llama_index_instrumentation.span import active_span_id

from tallystick.aio import in_thread
from tallystick.kit import (
    MEMORIES,
    MEMORY_BUDGET,
    ActorSource,
    Binder,
    ContextMode,
    OpenCall,
    RequestCompiler,
    RequestParts,
    begin_call,
    check_model,
    enforcing,
    has_rules,
    register_enforcer,
    run_under_way,
)
from tallystick.kit.rendering import without_frames
from tallystick.recorder import current_run
from tallystick.records import Compaction, CompileConfig, Scope
from tallystick.tally import BoundTally, Tally
from tallystick_llama_index.actors import call_of_tags
from tallystick_llama_index.conversations import take_over
from tallystick_llama_index.messages import (
    answer_of,
    clean_messages,
    description_of,
    facts_of_response,
    model_of,
    request_of,
)
from tallystick_llama_index.policy import RULED
from tallystick_llama_index.render import (
    Rendered,
    own_messages,
    read_request,
    render,
    tool_spec,
    with_memory,
)
from tallystick_llama_index.tape import normal

Model = TypeVar("Model", bound=LLM)

_END = object()
"""The end of a stream."""
_CHATS = {
    "chat": False,
    "stream_chat": False,
    "complete": False,
    "stream_complete": False,
    "achat": True,
    "astream_chat": True,
    "acomplete": True,
    "astream_complete": True,
}
"""The methods by which LlamaIndex calls a model, and whether each is asynchronous."""
_WITH_TOOLS = {
    "chat_with_tools": False,
    "stream_chat_with_tools": False,
    "achat_with_tools": True,
    "astream_chat_with_tools": True,
}
"""Those that offer tools, which lead to a chat."""


def ruled_llm(
    tally: Tally | BoundTally,
    llm: Model,
    *,
    context: ContextMode = "request",
    budget: int | None = None,
    reserve: int = 0,
    memory_budget: int = MEMORY_BUDGET,
    memories: int = MEMORIES,
    history_share: int | None = None,
    turn_share: int | None = None,
    compile_config: CompileConfig | None = None,
    compaction: Compaction = "cut",
    actor: ActorSource | None = None,
    scope: str | Scope | None = None,
    provider: str | None = None,
    task_type: str | None = None,
) -> Model:
    """Return a model like `llm` whose chats and completions are compiled, and go by the rules of
    the tally: `FunctionAgent(llm=ruled_llm(tally, llm), …)`.

    The whole request goes through one compile: system texts, history, tool calls with their
    results, tools, and the best of `memories` that are recalled for the latest request, in at most
    `memory_budget` tokens. `budget` is the size of a request in tokens, `reserve` of which stay
    free for the answer; by default the window that the model states, else 32,000. With
    `context="memory"` only what is recalled is compiled, and the rest stays as it is.
    `compaction="summary"` shows long memories that do not fit by their summaries. A denied
    request raises ActionDenied or RequestDenied; one that waits raises ApprovalRequired, and passes
    once it was granted. `provider` and `task_type` state facts that LlamaIndex does not know.
    """
    binder = Binder(
        tally,
        runtime="llama_index",
        piece="ruled_llm",
        actor=actor,
        scope=scope,
        usage="ruled_llm({}, llm)",
    )
    check_model(llm, LLM, "ruled_llm(tally, OpenAI(…))")
    compiler = RequestCompiler(
        context=context,
        budget=budget,
        reserve=reserve,
        memory_budget=memory_budget,
        memories=memories,
        history_share=history_share,
        turn_share=turn_share,
        compile_config=compile_config,
        compaction=compaction,
    )
    requests = _Requests(binder, llm, compiler, provider, task_type)
    kind = type(llm)
    methods = {name: _chat_method(requests, name) for name in _CHATS}
    methods |= {
        name: _tool_method(requests, getattr(kind, name), name)
        for name in _WITH_TOOLS
        if hasattr(kind, name)
    }
    clone: Any = copy.copy(llm)
    # A subclass for this one model: LlamaIndex asks what class a model is of. The model itself does
    # the work, so that one way to call it may lead to another.
    ruled = type(kind.__name__, (kind,), {**methods, "__module__": kind.__module__})
    setattr(ruled, RULED, binder.tally)
    clone.__class__ = ruled
    ruled_model: Model = clone
    return ruled_model


class _Requests:
    """The requests of one model: compiled, checked, and recorded in a run under way."""

    def __init__(
        self,
        binder: Binder,
        llm: LLM,
        compiler: RequestCompiler,
        provider: str | None,
        task_type: str | None,
    ) -> None:
        self.llm = llm
        self._binder, self._compiler = binder, compiler
        self._provider, self._task_type = provider, task_type
        register_enforcer(binder.tally, "model_call", "ruled_llm")

    @property
    def name(self) -> str | None:
        """The name of the model."""
        return model_of(description_of(self.llm))

    def in_hand(self) -> AbstractContextManager[None]:
        """Have the call in hand that the code inside makes."""
        return enforcing(self._binder.tally, "model_call", self.name)

    def begin(self) -> OpenCall | None:
        """Open the step of a call in the run under way, or take it over from the call around it;
        None outside of a run.
        """
        run = run_under_way(self._bound())
        if run is None or is_suspended():
            return None
        model, place = self.name, {"llama_index_span_id": active_span_id.get()}
        call = begin_call(run, "model_call", name=model or type(self.llm).__name__, metadata=place)
        call.provider, call.model = self._provider, model
        take_call(call)
        return call

    def compile(self, messages: Sequence[ChatMessage], tools: Sequence[Any]) -> Rendered:
        """Return the request to send. Raises ApprovalRequired, ActionDenied, CompileError."""
        given = take_over(messages, whole=self._compiler.is_whole)
        bound = self._binder.bound(call_of_tags(self._binder, session=given.session))
        own = own_messages(given.messages, partial(without_frames, bound))
        request = read_request(own, tools, bound.tally.counter(self.name).count)
        facts = self.llm.metadata
        known = facts.model_fields_set if facts.context_window > 0 else frozenset()
        run = current_run()
        # The run of a workflow answers one request of the user.
        turn = active_instrument_tags.get().get("llamaindex.run_id") or getattr(run, "id", None)
        compiled = self._compiler.compile(
            bound,
            RequestParts(
                items=request.items,
                tools=request.tools,
                text=request.text,
                turn=given.turn or turn,
                conversation=given.session,
                model=self.name,
                provider=self._provider,
                window=facts.context_window if "context_window" in known else None,
                reserve=max(0, facts.num_output) if "num_output" in known else 0,
                task_type=self._task_type,
            ),
        )
        if self._compiler.is_whole:
            return render(compiled, request)
        return Rendered(with_memory(own, compiled), frozenset(each.name for each in request.tools))

    def compile_prompt(self, prompt: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Same as `compile`, for the arguments of a chat or a completion."""
        is_text = isinstance(prompt, str)
        messages = [ChatMessage(prompt, role=MessageRole.USER)] if is_text else list(prompt)
        tools = options.get("tools")
        listed = tools if isinstance(tools, Sequence) else ()
        rendered = self.compile(messages, listed)
        offered = [
            tool
            for place, tool in enumerate(listed)
            if tool_spec(tool, place).name in rendered.tools
        ]
        if len(offered) < len(listed):
            options = {**options, "tools": offered}
        if is_text:
            return "\n\n".join(each.content or "" for each in rendered.messages), options
        return rendered.messages, options

    def check(self, prompt: Any, options: Mapping[str, Any]) -> Any:
        """Return a request as the rules over model calls let it go. Raises ActionDenied,
        ApprovalRequired.
        """
        if not has_rules(self._binder.tally, "model_call"):
            return prompt
        request = request_of(prompt, options, description_of(self.llm))
        check = self._bound().check_model_call(
            piece="ruled_llm",
            provider=self._provider,
            model=self.name,
            request=normal(request),
            task_type=self._task_type,
        )
        if not check.redacts:
            return prompt
        return (
            check.clean(prompt) if isinstance(prompt, str) else clean_messages(prompt, check.clean)
        )

    def prepare(self, prompt: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Return the request to send, compiled if no call around it has done so, and checked. One
        that a replay sends again was compiled.
        """
        if _compiled_by.get() is not self and not is_suspended():
            prompt, options = self.compile_prompt(prompt, options)
        return self.check(prompt, options), options

    def _bound(self) -> BoundTally:
        return self._binder.bound(call_of_tags(self._binder))


_opened: ContextVar[OpenCall | None] = ContextVar("tallystick_opened_call", default=None)
"""The model call whose step is open, until an observer takes it."""
_compiled_by: ContextVar[_Requests | None] = ContextVar("tallystick_compiled_by", default=None)
"""The model whose request was compiled on its way to a chat."""


_suspended: ContextVar[bool] = ContextVar("tallystick_recording_suspended", default=False)


@contextmanager
def _setting(variable: ContextVar[Any], value: Any) -> Iterator[None]:
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def suspend_recording() -> AbstractContextManager[None]:
    """Record nothing of the calls inside: a replay asks a model again, which no agent did."""
    return _setting(_suspended, True)


def is_suspended() -> bool:
    """Return True inside of `suspend_recording`."""
    return _suspended.get()


def take_call(call: OpenCall) -> None:
    """Let a call that observes the same step end it, in place of the one that opened it."""
    opened = _opened.get()
    if opened is not None and opened.step is call.step and opened.is_own:
        call.is_own, opened.is_own = True, False


@contextmanager
def _during(call: OpenCall | None) -> Iterator[None]:
    """Make the step of a call the current one; an error fails it, unless an observer took it."""
    if call is None:
        yield
        return
    try:
        with _setting(_opened, call), call.step.active():
            yield
    except BaseException as error:
        call.fail(error)
        raise


@dataclass(frozen=True)
class _Sent:
    """A request on its way to the model, with the step of its call."""

    requests: _Requests
    call: OpenCall | None
    prompt: Any
    options: Mapping[str, Any]

    def take(self, answer: Any) -> Any:
        """Return an answer, which is recorded: a stream once it was read."""
        if isinstance(answer, Generator):
            return self.pieces(answer)
        if isinstance(answer, AsyncGenerator):
            return self.async_pieces(answer)
        self.finish(answer)
        return answer

    def finish(self, answer: Any, error: BaseException | None = None) -> None:
        """Record the request and the answer, or as far as it came, and end the step, unless an
        observer does.
        """
        call = self.call
        if call is None or not call.is_own:
            return
        model = description_of(self.requests.llm)
        call.step.record(
            "request",
            lambda: request_of(self.prompt, self.options, model),
            summary={"model": call.model},
        )
        if answer is not None or error is None:
            summary = call.answer_summary(facts_of_response(answer))
            call.step.record("response", lambda: answer_of(answer), summary=summary)
        if error is None:
            call.end()
        else:
            call.fail(error)

    def pieces(self, answer: Generator[Any, None, None]) -> Generator[Any, None, None]:
        """Yield the pieces of a stream, each made while the call is in hand: some models call
        themselves as they are read.
        """
        last = None
        try:
            while True:
                with self.requests.in_hand():
                    piece = next(answer, _END)
                if piece is _END:
                    break
                last = self._counted(piece)
                yield piece
        except BaseException as error:
            self.finish(last, error)
            raise
        finally:
            answer.close()
        self.finish(last)

    async def async_pieces(self, answer: AsyncGenerator[Any, None]) -> AsyncGenerator[Any, None]:
        """Same as `pieces`, of an asynchronous stream."""
        last = None
        try:
            while True:
                with self.requests.in_hand():
                    piece = await anext(answer, _END)
                if piece is _END:
                    break
                last = self._counted(piece)
                yield piece
        except BaseException as error:
            self.finish(last, error)
            raise
        finally:
            await answer.aclose()
        self.finish(last)

    def _counted(self, piece: Any) -> Any:
        if self.call is not None and self.call.is_own:
            self.call.times.add_chunk()
        return piece


def _chat_method(requests: _Requests, name: str) -> Callable[..., Any]:
    """Return a method that compiles and checks a request before the model gets it."""
    parameter = "messages" if "chat" in name else "prompt"

    def ruled(self: Any, *args: Any, **options: Any) -> Any:
        prompt, *rest = args or (options.pop(parameter),)
        call = requests.begin()
        with _during(call):
            sent = _Sent(requests, call, *requests.prepare(prompt, options))
            with requests.in_hand():
                answer = getattr(requests.llm, name)(sent.prompt, *rest, **sent.options)
        return sent.take(answer)

    async def ruled_async(self: Any, *args: Any, **options: Any) -> Any:
        prompt, *rest = args or (options.pop(parameter),)
        call = await in_thread(requests.begin)
        with _during(call):
            sent = _Sent(requests, call, *await in_thread(requests.prepare, prompt, options))
            with requests.in_hand():
                answer = await getattr(requests.llm, name)(sent.prompt, *rest, **sent.options)
        return sent.take(answer)

    return ruled_async if _CHATS[name] else ruled


def _tool_method(requests: _Requests, method: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Return a method that compiles a request while its tools are LlamaIndex's own; what it leads
    to is a chat of the same model.
    """

    def prepare(
        call: OpenCall | None, tools: Any, user_msg: Any, history: Any, options: dict[str, Any]
    ) -> tuple[_Sent, list[Any]]:
        if isinstance(user_msg, str):
            user_msg = ChatMessage(user_msg, role=MessageRole.USER)
        new = [] if user_msg is None else [user_msg]
        rendered = requests.compile([*(history or ()), *new], tools)
        offered = [tool for tool in tools if tool_spec(tool).name in rendered.tools]
        if len(offered) < len(tools):
            # The tool that was chosen may be gone.
            options = {name: each for name, each in options.items() if name != "tool_choice"}
        return _Sent(requests, call, rendered.messages, options), offered

    def ruled(
        self: Any,
        tools: Any,
        user_msg: Any = None,
        chat_history: Any = None,
        *rest: Any,
        **more: Any,
    ) -> Any:
        call = requests.begin()
        with _during(call), _setting(_compiled_by, requests):
            sent, offered = prepare(call, tools, user_msg, chat_history, more)
            answer = method(self, offered, None, sent.prompt, *rest, **sent.options)
        return sent.take(answer)

    async def ruled_async(
        self: Any,
        tools: Any,
        user_msg: Any = None,
        chat_history: Any = None,
        *rest: Any,
        **more: Any,
    ) -> Any:
        call = await in_thread(requests.begin)
        with _during(call), _setting(_compiled_by, requests):
            sent, offered = await in_thread(prepare, call, tools, user_msg, chat_history, more)
            answer = await method(self, offered, None, sent.prompt, *rest, **sent.options)
        return sent.take(answer)

    # A span, so that what is recorded of the compile belongs to the run of this call.
    span = get_dispatcher(__name__).span
    decorated: Callable[..., Any] = span(ruled_async if _WITH_TOOLS[name] else ruled)
    return decorated
