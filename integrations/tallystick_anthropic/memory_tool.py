"""Anthropic's memory tool on a tally: `/memories` is a view of what the user's agents remember."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tallystick.aio import in_thread
from tallystick.errors import require
from tallystick.kit import ActorSource, MemoryFiles, PlainApproval, ToolQuestion
from tallystick.tally import BoundTally, Tally

require("anthropic", extra="anthropic")

from anthropic.lib.tools import (  # noqa: E402
    BetaAbstractMemoryTool,
    BetaAsyncAbstractMemoryTool,
    ToolError,
)

if TYPE_CHECKING:
    from anthropic.types.beta import BetaCacheControlEphemeralParam


class _FilesTool:
    """What the two tools have alike."""

    def __init__(
        self,
        tally: Tally | BoundTally,
        *,
        actor: ActorSource | None = None,
        approval: PlainApproval = "ask",
        ask: Callable[[ToolQuestion], bool | str] | None = None,
        cache_control: BetaCacheControlEphemeralParam | None = None,
    ) -> None:
        """A changed or removed line of a memory asks a person by `ask`, which answers True, False,
        or the reason against it; without it that is refused. With `approval="elsewhere"` it is done
        at once, for agents whose own code asks. Other files ask nobody. All go by the rules of the
        tally. Raises InvalidInput.
        """
        base: Any = super()
        base.__init__(cache_control=cache_control)
        self._files = MemoryFiles(
            tally,
            runtime="anthropic",
            piece=type(self).__name__,
            actor=actor,
            approval=approval,
            ask=ask,
        )


class TallyMemoryTool(_FilesTool, BetaAbstractMemoryTool):
    """The memory tool for `client.beta.messages.tool_runner(…, tools=[tool])`. Thread-safe."""

    def _command(self, command: Any) -> str:
        """Run a command on files and folders. Raises ToolError with what the model is to read."""
        return _run(self._files, command)

    view = create = str_replace = insert = delete = rename = _command


class TallyAsyncMemoryTool(_FilesTool, BetaAsyncAbstractMemoryTool):
    """Same as `TallyMemoryTool`, for the asynchronous client: each command runs in a thread, and
    `ask` is called there.
    """

    async def _command(self, command: Any) -> str:
        """Same as that of `TallyMemoryTool`."""
        return await in_thread(_run, self._files, command)

    view = create = str_replace = insert = delete = rename = _command


def _run(files: MemoryFiles, command: Any) -> str:
    answer = files.run(command.to_dict(mode="python", warnings=False))
    if answer.is_error:
        raise ToolError(answer.text)
    return answer.text
