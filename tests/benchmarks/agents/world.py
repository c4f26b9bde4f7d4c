"""The world of an arm: the model, the embedder, the file of a task and its tools, and a record of
every request that reaches the model.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from langchain_core.callbacks import BaseCallbackHandler, CallbackManagerForLLMRun
from langchain_core.embeddings import Embeddings
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import BaseTool, tool
from tests.benchmarks.agents.policy import Call, Message, reply
from tests.benchmarks.agents.tasks import Workspace

from tallystick.embedding import StaticEmbedder

INSTRUCTIONS = "You are a careful assistant. Say so when you do not know."
BUDGET = 3_000
"""Tokens at which an arm has to compact what it sends."""
DIMENSIONS = 256

Say = Callable[[str, str, str], str]
"""Say a text as a user in a thread, and return the answer: `say(user, thread, text)`."""


class Arm(Protocol):
    """A way to give an agent memory, in a file of its own."""

    TITLE: str

    @staticmethod
    def opened(world: World) -> Any:
        """Return a context manager that gives a `Say`."""


@dataclass(frozen=True)
class Request:
    """A request as it reached the model."""

    user: str
    thread: str
    text: str
    """Schemas of the tools and all messages, in the order in which a provider reads them."""

    is_upkeep: bool = False
    """True if a memory or a summary asks the model, and not the agent."""

    @property
    def tokens(self) -> int:
        """Tokens, at four characters each."""
        return len(self.text) // 4


@dataclass
class World:
    """What every arm gets, the same for all."""

    folder: Path
    model_name: str | None = None
    """A real model, such as `openai:gpt-5`; None is the policy."""
    workspace: Workspace | None = None
    """The files of the task under way."""
    requests: list[Request] = field(default_factory=list)
    user: str = ""
    thread: str = ""

    @contextmanager
    def conversation(self, user: str, thread: str) -> Iterator[None]:
        """Note the requests of a block under this user and thread."""
        self.user, self.thread = user, thread
        yield

    def note(self, text: str, *, is_upkeep: bool = False) -> None:
        """Note a request that reached the model."""
        self.requests.append(Request(self.user, self.thread, text, is_upkeep))

    def model(self, *, is_upkeep: bool = False) -> BaseChatModel:
        """Return the chat model, whose requests are noted: the agent's, or one for upkeep."""
        callbacks: list[Any] = [_Noting(self, is_upkeep)]
        if self.model_name is None:
            return PolicyModel(callbacks=callbacks)
        from langchain.chat_models import init_chat_model

        made: BaseChatModel = init_chat_model(self.model_name, temperature=0, callbacks=callbacks)
        return made

    def tools(self) -> list[BaseTool]:
        """Return the tools over the file of the task under way."""
        return [tool(function) for function in self.functions()]

    def functions(self) -> list[Callable[..., Any]]:
        """Return the same as functions."""

        def read_file(path: str) -> str:
            """Read a file."""
            return self.workspace.read_file(path) if self.workspace else "There are no files."

        def replace_in_file(path: str, old: str, new: str) -> str:
            """Replace the last occurrence of a text in a file."""
            if self.workspace is None:
                return "There are no files."
            return self.workspace.replace_in_file(path, old, new)

        return [read_file, replace_in_file]


class SharedEmbeddings(Embeddings):
    """The embedder of every arm: the static table that Tallystick uses, as LangChain takes it."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        vectors: list[list[float]] = StaticEmbedder().embed(texts).tolist()
        return vectors

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]


class PolicyModel(BaseChatModel):
    """The policy as a chat model of LangChain."""

    tool_names: tuple[str, ...] = ()

    @property
    def _llm_type(self) -> str:
        return "policy"

    def bind_tools(self, tools: Sequence[Any], **options: Any) -> Any:
        names = tuple(each.name for each in tools)
        model = self.model_copy(update={"tool_names": names})
        from langchain_core.utils.function_calling import convert_to_openai_tool

        return model.bind(tools=[convert_to_openai_tool(each) for each in tools])

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **options: Any,
    ) -> ChatResult:
        answer = reply([_of_langchain(message) for message in messages], self.tool_names)
        # An id says where in the conversation a call is, so that no two are equal.
        calls = [
            {"name": call.name, "args": dict(call.arguments), "id": f"call-{len(messages)}-{n}"}
            for n, call in enumerate(answer.calls)
        ]
        message = AIMessage(answer.text, tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=message)])


class _Noting(BaseCallbackHandler):
    """Notes every request of the model that it is given to."""

    def __init__(self, world: World, is_upkeep: bool) -> None:
        self._world, self._is_upkeep = world, is_upkeep

    def on_chat_model_start(
        self, serialized: Any, messages: list[list[BaseMessage]], **options: Any
    ) -> None:
        tools = (options.get("invocation_params") or {}).get("tools") or []
        for each in messages:
            said = [f"{message.type}\n{_text(message)}" for message in each]
            text = "\n".join([json.dumps(tools), *said])
            self._world.note(text, is_upkeep=self._is_upkeep)


def _of_langchain(message: BaseMessage) -> Message:
    roles = {"human": "user", "ai": "assistant", "tool": "tool", "system": "system"}
    calls = tuple(Call(call["name"], call["args"]) for call in getattr(message, "tool_calls", ()))
    return Message(roles.get(message.type, "user"), message.text, calls)


def _text(message: BaseMessage) -> str:
    calls = [
        {"name": call["name"], "args": call["args"]} for call in getattr(message, "tool_calls", ())
    ]
    return f"{message.text}\n{json.dumps(calls)}" if calls else message.text
