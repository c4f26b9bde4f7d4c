"""What a contract asks of a runtime: to run one scripted agent, whichever library runs it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from tallystick import Actor, Tally
from tallystick.recorder import Player
from tallystick.tally import BoundTally

Tool = Callable[..., Any]


class Call(NamedTuple):
    """A tool call of a scripted model."""

    id: str
    name: str
    arguments: dict[str, Any]


def call(name: str, **arguments: Any) -> Call:
    """Return a call; the script gives it an id."""
    return Call("", name, arguments)


Pieces = tuple[str | Exception, ...]
"""An answer as it is streamed; an exception breaks the stream."""
Turn = str | Exception | Pieces | list[Call]


class Script:
    """The answers of a model, and the requests that it got."""

    def __init__(self, *turns: Turn) -> None:
        self._turns = iter(turns)
        self.sent: list[str] = []
        """The requests, as text."""
        self.offered: set[str] = set()
        """Names of the tools that came with any of them."""

    def answer(self, request: Any, tools: Iterable[str] = ()) -> str | Pieces | list[Call]:
        """Return the next answer. An exception of the script is raised."""
        self.sent.append(str(request))
        self.offered.update(tools)
        turn = next(self._turns)
        if isinstance(turn, Exception):
            raise turn
        if isinstance(turn, list):
            return [
                Call(f"c{len(self.sent)}{place}_{each.name}", each.name, each.arguments)
                for place, each in enumerate(turn)
            ]
        return turn


def pieces_of(answer: str | Pieces) -> Pieces:
    """Return the pieces in which a text is streamed: its words."""
    if not isinstance(answer, str):
        return answer
    words = answer.split(" ")
    return (*(f"{word} " for word in words[:-1]), words[-1])


def text_of(answer: str | Pieces) -> str:
    """Return the whole text of an answer. An exception of it is raised."""
    for piece in pieces_of(answer):
        if isinstance(piece, Exception):
            raise piece
    return "".join(map(str, pieces_of(answer)))


class Question(NamedTuple):
    """A call about which a person is asked."""

    name: str
    arguments: dict[str, Any]
    approval: str | None
    """Id of the approval, where a rule asks."""


class ToolResult(NamedTuple):
    """The result of a tool call, as the model reads it."""

    text: str
    failed: bool


@dataclass
class Outcome:
    """The end of a run."""

    text: str
    """The last words of the agent."""
    tools: list[ToolResult] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)
    """The results of tools as the runtime has them."""
    waiting: list[Question] = field(default_factory=list)
    """The questions that nobody answered: the run stopped with them."""
    history: str = ""
    """The conversation that the runtime keeps."""
    native: Any = None
    """The result as the runtime has it."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Everything about a run but its model and its tools."""

    prompt: str = "How heavy?"
    earlier: Sequence[str] = ()
    """Requests of the same conversation that come before."""
    budget: int | None = None
    """Tokens of each request."""
    system: str = "You weigh things."
    recorded: Tally | BoundTally | None = None
    """The tally that records the run."""
    ruled: Tally | BoundTally | None = None
    """The tally whose rules hold for tools and models."""
    remembering: BoundTally | None = None
    """The tally whose memories the model is given."""
    tools_of: Any = None
    """The tally whose memory tools are offered."""
    player: Player | None = None
    """The tape that stands for the model and the tools."""
    safe: Collection[str] = ()
    temperature: float | None = None
    """The setting of the model; on a tape it is compared."""
    actor: Actor | None = None
    """The actor that the call itself names."""
    asks: bool = True
    """True if the run can ask a person."""
    asks_for: Collection[str] = ()
    """Tools for which the runtime itself asks a person."""
    pieces: list[str] = field(default_factory=list)
    """The texts that were streamed, filled as they come."""
    more: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the agent that only this runtime has."""
    seconds: float | None = None
    """The longest time of the run, where the runtime has a limit."""
    answers: Callable[[Question], bool | str] | None = None
    """The answers of a person: True, or the reason of a refusal. Without, the run stops."""


class Runtime:
    """A library that runs agents, and one of its ways to call them."""

    name: ClassVar[str]
    ways: ClassVar[tuple[str, ...]]
    """The ways to call an agent; the first is the plain one."""
    model_name: ClassVar[str]
    """Name of the scripted model in receipts."""
    tool_error: ClassVar[type[Exception]]
    """The error by which a tool tells the model that it failed."""
    model_error: ClassVar[Exception]
    """A failure of a model."""
    unasked: ClassVar[tuple[type[Exception], ...]]
    """The errors of a run in which nobody can be asked."""
    inherits: ClassVar[bool]
    """True if an agent in a tool has the observer of the agent around it."""
    watched: bool = False
    """True if two pieces of Tallystick observe the same run."""

    def __init__(self, way: str | None = None) -> None:
        self.way = way or self.ways[0]

    def __repr__(self) -> str:
        return f"{self.name} {self.way}"

    def run(
        self, script: Script | None = None, tools: Sequence[Any] = (), **options: Any
    ) -> Outcome:
        """Run an agent to its end, or to a question that nobody answers; see `Options`."""
        return self.play(script or Script(), list(tools), Options(**options))

    def play(self, script: Script, tools: list[Any], options: Options) -> Outcome:
        """Same as `run`."""
        raise NotImplementedError

    def use_tool(
        self, tally: Any, tool: str, arguments: Mapping[str, Any], **options: Any
    ) -> Outcome:
        """Run an agent that calls one memory tool."""
        return self.run(Script([call(tool, **arguments)], "done"), tools_of=tally, **options)

    def expert(self, script: Script | None, tools: Sequence[Tool], **options: Any) -> Tool:
        """Return a tool `expert` that runs another agent."""
        raise NotImplementedError

    def ask_once(self, player: Player, tools: Sequence[Tool]) -> None:
        """Make the first request of an agent on its tape, and nothing more."""
        raise NotImplementedError

    def patient_tool(self) -> Tool:
        """Return a tool `erase` that asks a person itself, in the way of the runtime."""
        raise NotImplementedError

    def tool_shapes(self, tally: Tally) -> list[tuple[str, str, list[str]]]:
        """Return the name, the description and the arguments of each memory tool."""
        raise NotImplementedError

    def model_call(self, script: Script) -> Callable[..., Any]:
        """Return a scripted model, as a replay calls it."""
        raise NotImplementedError

    def text_in(self, answer: Any) -> str:
        """Return the text of a recorded answer."""
        raise NotImplementedError


def player_of(tally: Tally | BoundTally, **options: Any) -> Player:
    """Return a player of the latest run."""
    bound = tally.bind() if isinstance(tally, Tally) else tally
    return bound.recordings.player(bound.recordings.runs()[0].id, **options)
