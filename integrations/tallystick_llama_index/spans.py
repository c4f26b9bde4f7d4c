"""What is under way in LlamaIndex: trees of spans, and the calls of those that are steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import is_
from typing import Any

from tallystick.kit import OpenCall, RootRun
from tallystick.recorder import Run
from tallystick.records import StepStatus


@dataclass
class Tree:
    """The spans under one root, and their run once there is one."""

    root_id: str
    name: str
    user_text: str | None
    tags: Mapping[str, Any]
    root: RootRun | None = None
    leave: Callable[[], None] | None = None
    spans: set[str] = field(default_factory=set)
    open_calls: set[str] = field(default_factory=set)
    """Spans whose step is open."""
    end_status: StepStatus | None = None
    """The status with which the root ended, while streams that it returned are still read."""
    is_workflow: bool = False
    """True if the root is a workflow, which ends with an event unless somebody cancels it."""
    session: str | None = None
    """The session of the TallyMemory that the root was given."""
    end_later: Callable[[StepStatus | None], None] | None = None
    """Ends the run once the answer that the root returned as a stream is in the memory."""
    is_written: bool = False
    """True once that is so."""

    @property
    def run(self) -> Run | None:
        """The run of the root, once it has one."""
        return None if self.root is None else self.root.run


@dataclass
class Span:
    """A span under way."""

    id: str
    parent: Span | None
    tree: Tree | None
    """None if another instrumentation of the same tally records it."""
    tool: str | None = None
    """The tool that is called."""
    tool_call_id: str | None = None
    """The id of the tool call as an agent gave it."""
    is_writer: bool = False
    """True for what reads a chat's stream and puts the answer into the memory."""
    part_of: SpanCall | None = None
    """The stream that reads this one."""


@dataclass
class SpanCall:
    """The model call, tool call or retrieval of a span."""

    call: OpenCall
    tree: Tree
    nested: int = 0
    """Starts inside it that are part of it: a chat that is made of a completion."""
    prompt: Any = None
    """The messages or the text of a model call."""
    is_streaming: bool = False
    """True if its span has ended and its answer is still read."""
    partial: Any = None
    """The answer of a stream so far."""

    def reads(self, prompt: Any) -> bool:
        """Return True for a stream of which nothing was read yet and that has the same prompt: it
        may read another one of its model, as those of CustomLLM do.
        """
        if not self.is_streaming or self.call.times.chunks or type(prompt) is not type(self.prompt):
            return False
        if not isinstance(prompt, list):
            return prompt is self.prompt
        return len(prompt) == len(self.prompt) and all(map(is_, prompt, self.prompt))
