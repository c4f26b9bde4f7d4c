"""Calls without a framework, as the contracts run them: compile, send, run the tools."""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tallystick import Actor, ContextItem, Tally
from tallystick.compiler import outline
from tallystick.kit import RequestCompiler, RequestParts
from tallystick.ports import ModelResponse
from tallystick.recorder import Run
from tallystick.records import CompiledContext, ModelAnswer, ModelToolCall, ToolSpec
from tallystick.tally import BoundTally, Candidate
from tallystick_server import RemoteTally, serve_in_background
from tallystick_server.client.runs import RemoteRun, RemoteStep

from .base import Options, Outcome, Runtime, Script, text_of

_ROLES = {"user_msg": "user", "assistant_msg": "assistant", "tool_result": "tool"}
_JSON_TYPES = {"str": "string", "int": "integer"}


def spec_of(tool: Callable[..., Any]) -> ToolSpec:
    """Return a function as a tool: its name, what it is for, and its arguments."""
    types = {
        name: str(each.annotation) for name, each in inspect.signature(tool).parameters.items()
    }
    properties: Any = {name: {"type": _JSON_TYPES[kind]} for name, kind in types.items()}
    return ToolSpec(
        name=tool.__name__,
        description=tool.__doc__ or "",
        parameters={"type": "object", "properties": properties},
    )


class ScriptedProvider:
    """A provider whose model answers by a script."""

    name, model = "scripted", "scripted-1"

    def __init__(self, script: Script) -> None:
        self._script = script

    def render(self, compiled: CompiledContext, **parameters: Any) -> dict[str, Any]:
        """Return everything that the model reads."""
        chosen = outline(compiled)
        context = [("user", chosen.context)] if chosen.context else []
        turns = [
            [(_ROLES[item.kind], item.content) for item in items]
            for items in (chosen.history, chosen.turn)
        ]
        return {
            "model": self.model,
            "system": chosen.system,
            "messages": [
                {"role": role, "content": text} for role, text in (*turns[0], *context, *turns[1])
            ],
            "tools": [item.content for item in chosen.tools],
            "offered": [item.source_ref.title for item in chosen.tools],
        }

    def check(self, request: Mapping[str, Any]) -> None:
        """Take every request."""

    def require_ready(self) -> None:
        """Be ready."""

    def count_tokens(self, request: Mapping[str, Any]) -> int:
        """Count characters."""
        return len(str(request))

    def send(self, request: Mapping[str, Any]) -> ModelResponse:
        """Return the next answer of the script."""
        answer = self._script.answer(request, request["offered"])
        if isinstance(answer, list):
            calls = [
                {"id": each.id, "name": each.name, "arguments": each.arguments} for each in answer
            ]
            return ModelResponse({"text": "", "tool_calls": calls})
        return ModelResponse({"text": text_of(answer), "tool_calls": []})

    def stream(self, request: Mapping[str, Any]) -> Any:
        """Never asked for."""
        raise NotImplementedError

    def parse(self, response: Mapping[str, Any]) -> ModelAnswer:
        """Return an answer."""
        calls = tuple(ModelToolCall.load(each) for each in response["tool_calls"])
        stop: Any = "tool_calls" if calls else "completed"
        return ModelAnswer(text=response["text"], tool_calls=calls, stop=stop)


@contextmanager
def _served(bound: BoundTally) -> Iterator[RemoteTally]:
    """Serve the tally of a view, and act as its actor over HTTP."""
    root = bound.tally.bind(Actor(user="root", role="operator"))
    token = root.tokens.make(
        "test", actor=bound.actor, token_class="scoped", scopes=[str(bound.scope)]
    ).secret
    with (
        tempfile.TemporaryDirectory() as folder,
        serve_in_background(bound.tally, uds=Path(folder) / "s", port=0) as (_, tcp),
        RemoteTally.connect(tcp, token=token) as remote,
    ):
        yield remote


class Direct(Runtime):
    """`bound.compile` with `bound.call_model`; over HTTP `remote.compile` and a model of one's
    own.
    """

    name = "direct"
    ways = ("call_model", "http")
    model_name = "scripted-1"

    def play(self, script: Script, tools: list[Any], options: Options) -> Outcome:
        given = options.ruled or options.remembering or options.recorded
        assert given is not None
        bound = given.bind() if isinstance(given, Tally) else given
        text = ""
        with ExitStack() as stack:
            remote = stack.enter_context(_served(bound)) if self.way == "http" else None
            conversation = _Conversation(bound, remote, script, tools, options)
            for prompt in (*options.earlier, options.prompt):
                text = conversation.ask(prompt)
        return Outcome(text)

    def text_in(self, answer: Any) -> str:
        return str(answer["text"])


class _Conversation:
    def __init__(
        self,
        bound: BoundTally,
        remote: RemoteTally | None,
        script: Script,
        tools: list[Callable[..., Any]],
        options: Options,
    ) -> None:
        self._bound, self._remote = bound, remote
        self._provider = ScriptedProvider(script)
        self._tools = {each.__name__: each for each in tools}
        self._specs = [spec_of(each) for each in tools]
        self._memories = 0 if options.remembering is None else 8
        self._budget = options.budget
        self._items = [ContextItem(id="system", kind="system", content=options.system)]

    def ask(self, prompt: str) -> str:
        """Answer a request of the user, with the tools that the model asks for."""
        self._add("user_msg", prompt)
        with (self._remote or self._bound).run("agent", goal=prompt) as run:
            while True:
                with run.step("model_call", name=self._provider.model) as step:
                    answer = self._answer(prompt, run, step)
                self._items.append(answer.item(f"message-{len(self._items)}"))
                for call in answer.tool_calls:
                    result = self._tools[call.name](**call.arguments)
                    self._add("tool_result", str(result), tool_call_id=call.id)
                if not answer.tool_calls:
                    return answer.text

    def _add(self, kind: Any, content: str, **fields: Any) -> None:
        item_id = f"message-{len(self._items)}"
        self._items.append(ContextItem(id=item_id, kind=kind, content=content, **fields))

    def _answer(self, prompt: str, run: Run | RemoteRun, step: RemoteStep | object) -> ModelAnswer:
        if isinstance(step, RemoteStep):
            assert self._remote is not None
            shown = self._remote.working_set(prompt, turn=run.id).pieces if self._memories else ()
            budget = self._budget or 32_000
            items: list[Candidate] = [*self._items, *shown]
            compiled = self._remote.compile(items, budget=budget, tools=self._specs)
            request = self._provider.render(compiled)
            step.record("request", request)
            response = self._provider.send(request).body
            step.record("response", response)
            return self._provider.parse(response)
        compiler = RequestCompiler(budget=self._budget, memories=self._memories)
        parts = RequestParts(items=self._items, tools=self._specs, text=prompt, turn=run.id)
        compiled = compiler.compile(self._bound, parts)
        return self._bound.call_model(compiled, provider=self._provider).answer
