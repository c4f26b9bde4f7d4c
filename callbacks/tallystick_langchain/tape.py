"""Tape mode for LangChain and LangGraph: models and tools that answer what was recorded."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from typing import Any

from langchain_core.callbacks import BaseCallbackHandler, CallbackManagerForLLMRun
from langchain_core.language_models import LLM, BaseChatModel
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ToolMessage,
    message_chunk_to_message,
    messages_from_dict,
)
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult, GenerationChunk
from langchain_core.runnables import Runnable, RunnableBinding, RunnableParallel, RunnableSequence
from langchain_core.tools import BaseTool, ToolException
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import PrivateAttr, ValidationError

from tallystick.errors import InvalidInput, NotReplayable
from tallystick.kit import check_player
from tallystick.kit.tapes import (
    check_safe_tools,
    comparable_request,
    recorded_model,
    recorded_requests,
)
from tallystick.recorder import Player, stream_pieces
from tallystick.records import Json, TapeCall
from tallystick_langchain.chunks import chunks_of
from tallystick_langchain.messages import ENVELOPE, completion_of, request_of

_EMPTY: tuple[Json, ...] = (None, [], {}, "")
_NOT_SENT = (*ENVELOPE, "artifact", "type", "tool_call_chunks", "chunk_position")


class TapeChatModel(BaseChatModel):
    """A chat model that plays a tape: `create_agent(TapeChatModel(player), tape_tools(player,
    tools))`.

    `like` is the model that the agent was recorded with; it is never called, only asked how it
    binds tools and what its parameters are. With it, these are compared too.
    """

    player: Any
    like: BaseChatModel | None = None
    model_name: str | None = None
    """Name of the recorded model, so that decisions that depend on it are made as they were."""

    def __init__(self, player: Player, *, like: BaseChatModel | None = None, **fields: Any) -> None:
        check_player(player, "TapeChatModel")
        if like is not None:
            fields = {"profile": like.profile, **fields}
        super().__init__(
            **{"player": player, "like": like, "model_name": _model_name(player, like), **fields}
        )

    @property
    def _llm_type(self) -> str:
        return "tallystick-tape"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Runnable[Any, AIMessage]:
        """Bind tools as the recorded model does, else in the form that most providers take."""
        if self.like is None:
            return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **kwargs)
        bound = self.like.bind_tools(tools, **kwargs)
        # A model of a test may bind nothing.
        return self if bound is self.like else _in_place(bound, self.like, self)

    def with_structured_output(
        self, schema: Any, *, include_raw: bool = False, **kwargs: Any
    ) -> Runnable[Any, Any]:
        """Ask for structured output as the recorded model does, else by a tool."""
        if self.like is None:
            return super().with_structured_output(schema, include_raw=include_raw, **kwargs)
        runnable = self.like.with_structured_output(schema, include_raw=include_raw, **kwargs)
        return _in_place(runnable, self.like, self)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        played = self.player.answer(self._play(messages, stop, kwargs))
        return ChatResult(generations=[ChatGeneration(message=_message(played))])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        call = self._play(messages, stop, kwargs)
        if call.response is not None:
            yield from chunks_of(call, _message(call.response))
        self.player.answer(call)  # a stream that broke breaks where it did

    def _play(
        self, messages: list[BaseMessage], stop: list[str] | None, options: dict[str, Any]
    ) -> TapeCall:
        parameters = (
            {**options, "stop": stop}
            if self.like is None
            else self.like._get_invocation_params(stop=stop, **options)
        )
        form = (
            _with_parameters if self.like is not None and _has_parameters(self.player) else normal
        )
        call: TapeCall = self.player.call_model(request_of(messages, parameters), normal=form)
        return call


class TapeLLM(LLM):
    """A model that completes text and plays a tape: `prompt | TapeLLM(player)`."""

    player: Any

    def __init__(self, player: Player, **fields: Any) -> None:
        check_player(player, "TapeLLM")
        super().__init__(**{"player": player, **fields})

    @property
    def _llm_type(self) -> str:
        return "tallystick-tape"

    def _call(
        self,
        prompt: str,
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> str:
        return _completion(self.player.answer(self._play(prompt, stop, kwargs)))

    def _stream(
        self,
        prompt: str,
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[GenerationChunk]:
        call = self._play(prompt, stop, kwargs)
        if call.response is not None:
            for piece in stream_pieces(call, [_completion(call.response)])[0]:
                chunk = GenerationChunk(text=piece)
                if run_manager is not None:
                    run_manager.on_llm_new_token(piece, chunk=chunk)
                yield chunk
        self.player.answer(call)

    def _play(self, prompt: str, stop: list[str] | None, options: dict[str, Any]) -> TapeCall:
        call: TapeCall = self.player.call_model(
            completion_of(prompt, {**options, "stop": stop}), normal=normal
        )
        return call


def _completion(response: Any) -> str:
    answer = response.get("answer") or {}
    if "text" not in answer:
        raise InvalidInput("This call was answered by a chat model. Play it with TapeChatModel.")
    return str(answer["text"])


def tape_tools(
    player: Player, tools: Sequence[BaseTool], *, safe: Collection[str] = ()
) -> list[BaseTool]:
    """Return the tools with their recorded results; those whose names are in `safe` are compared
    and run for real.

    A change that a tool makes to the state of a graph (`Command`) is not recorded, so that such a
    tool must be safe.
    """
    check_player(player, "tape_tools", ", tools")
    check_safe_tools(safe, (tool.name for tool in tools))
    return [
        _real(player, tool) if tool.name in safe else _TapeTool.of(player, tool) for tool in tools
    ]


def normal(request: Json) -> Json:
    """Return messages and tools of a request, without ids of messages, usage and provider
    metadata.
    """
    return comparable_request(request, _message_form, "stop")


def _message_form(message: Json) -> Json:
    """Return a message in the form in which it is compared."""
    if not isinstance(message, dict) or not isinstance(message.get("data"), dict):
        return message
    data = message["data"]
    assert isinstance(data, dict)
    fields: Json = {
        name: value for name, value in data.items() if name not in _NOT_SENT and value not in _EMPTY
    }
    # A streamed answer is the same answer, whatever its class was called.
    kind = str(message.get("type")).removesuffix("MessageChunk").lower()
    return {"type": kind, "data": fields}


def _with_parameters(request: Json) -> Json:
    """Same as `normal`, with the name of the model and its parameters."""
    return comparable_request(request, _message_form, "stop", "model", "parameters")


def _has_parameters(player: Player) -> bool:
    """Return True if the tape has the parameters of models: the middleware records only a name."""
    parameter_sets = [request.get("parameters") for request in recorded_requests(player)]
    return any(
        isinstance(parameters, dict) and set(parameters) - {"model", "model_name"}
        for parameters in parameter_sets
    )


def _model_name(player: Player, like: BaseChatModel | None) -> str | None:
    if like is None:
        return recorded_model(player)
    return getattr(like, "model_name", None) or getattr(like, "model", None)


def _in_place(
    runnable: Runnable[Any, Any], like: BaseChatModel, tape: TapeChatModel
) -> Runnable[Any, Any]:
    """Return the runnable that `like` made of itself, with the tape in its place. Raises
    InvalidInput if `like` is not in it.
    """
    if runnable is like:
        return tape
    if isinstance(runnable, RunnableBinding) and runnable.bound is like:
        return runnable.model_copy(update={"bound": tape})
    if isinstance(runnable, RunnableSequence):
        first, *rest = runnable.steps
        return RunnableSequence(_in_place(first, like, tape), *rest)
    if isinstance(runnable, RunnableParallel) and "raw" in runnable.steps__:
        return RunnableParallel(
            {**runnable.steps__, "raw": _in_place(runnable.steps__["raw"], like, tape)}
        )
    raise InvalidInput(
        "This model binds tools in a way of its own; give the tape model without `like`.",
        argument="like",
    )


def _message(response: Any) -> BaseMessage:
    """Return a recorded answer as LangChain's own object."""
    answer, envelope = response.get("answer") or {}, response.get("envelope") or {}
    data = {**answer, **{name: value for name, value in envelope.items() if value is not None}}
    message = messages_from_dict([{"type": data.get("type", "ai"), "data": data}])[0]
    return message_chunk_to_message(message)


class _TapeTool(BaseTool):
    """A tool that reads its arguments as the real one does, and returns the recorded result."""

    _player: Player = PrivateAttr()
    _like: BaseTool = PrivateAttr()

    @classmethod
    def of(cls, player: Player, tool: BaseTool) -> _TapeTool:
        tape_tool = cls(
            name=tool.name,
            description=tool.description,
            args_schema=tool.args_schema or tool.get_input_schema(),
            return_direct=tool.return_direct,
            handle_tool_error=tool.handle_tool_error,
            handle_validation_error=tool.handle_validation_error,
            tags=tool.tags,
            metadata=tool.metadata,
        )
        tape_tool._player, tape_tool._like = player, tool
        return tape_tool

    @cached_property
    def _injected_args_keys(self) -> frozenset[str]:
        return self._like._injected_args_keys

    def _to_args_and_kwargs(
        self, tool_input: str | dict[str, Any], tool_call_id: str | None
    ) -> tuple[tuple[str, ...], dict[str, Any]]:
        # The arguments of the model are compared, not the form that the schema gives them.
        arguments = (
            self._filter_injected_args(tool_input) if isinstance(tool_input, dict) else tool_input
        )
        try:
            super()._to_args_and_kwargs(tool_input, tool_call_id)
        except ValidationError:
            # Refused then as now: the call is on the tape, and the refusal is repeated here.
            self._player.call_tool(self.name, {"arguments": arguments})
            raise
        return (), {"arguments": arguments, "tool_call_id": tool_call_id}

    def _run(self, arguments: Any, tool_call_id: str | None) -> Any:
        recorded = self._player.call_tool(self.name, {"arguments": arguments})
        result: Any = self._player.result(recorded, errors=(ToolException,))
        if isinstance(result, dict) and result.get("type") == "tool":
            return ToolMessage(
                **{
                    **result,
                    "tool_call_id": tool_call_id or result.get("tool_call_id") or "",
                    "id": None,
                }
            )
        if tool_call_id is not None:
            raise NotReplayable(
                recorded.step_id,
                retention=self._player.tape.retention,
                missing=f"the tool {self.name} gave no message but changed the state of its graph",
                hint=f"Let it run for real: tape_tools(player, tools, safe={{{self.name!r}}}).",
            )
        return result

    async def _arun(self, arguments: Any, tool_call_id: str | None) -> Any:
        return self._run(arguments, tool_call_id)


class _CompareCalls(BaseCallbackHandler):
    """Compares the calls of a tool that runs for real with the tape."""

    raise_error = True
    run_inline = True

    def __init__(self, player: Player, name: str) -> None:
        self._player = player
        self._name = name

    def on_tool_start(
        self,
        serialized: dict[str, Any],
        input_str: str,
        *,
        inputs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Compare the arguments before the tool runs."""
        request = {"arguments": input_str if inputs is None else inputs}
        self._player.call_tool(self._name, request, real=True)


def _real(player: Player, tool: BaseTool) -> BaseTool:
    """Return a tool that runs for real, its calls compared with the tape."""
    callbacks = tool.callbacks
    if callbacks is None or isinstance(callbacks, list):
        return tool.model_copy(
            update={"callbacks": [*(callbacks or []), _CompareCalls(player, tool.name)]}
        )
    manager = callbacks.copy()
    manager.add_handler(_CompareCalls(player, tool.name), inherit=False)
    return tool.model_copy(update={"callbacks": manager})
