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
    from anthropic.types.beta import (
        BetaCacheControlEphemeralParam,
        BetaMemoryTool20250818CreateCommand,
        BetaMemoryTool20250818DeleteCommand,
        BetaMemoryTool20250818InsertCommand,
        BetaMemoryTool20250818RenameCommand,
        BetaMemoryTool20250818StrReplaceCommand,
        BetaMemoryTool20250818ViewCommand,
    )

_RUNTIME = "anthropic"


class TallyMemoryTool(BetaAbstractMemoryTool):
    """The memory tool for `client.beta.messages.tool_runner(…, tools=[tool])`. Thread-safe."""

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
        super().__init__(cache_control=cache_control)
        self._files = MemoryFiles(
            tally,
            runtime=_RUNTIME,
            piece="TallyMemoryTool",
            actor=actor,
            approval=approval,
            ask=ask,
        )

    def view(self, command: BetaMemoryTool20250818ViewCommand) -> str:
        """Show the lines of a file, or what a folder holds. Raises ToolError, as all commands."""
        return _run(self._files, command)

    def create(self, command: BetaMemoryTool20250818CreateCommand) -> str:
        """Create a file."""
        return _run(self._files, command)

    def str_replace(self, command: BetaMemoryTool20250818StrReplaceCommand) -> str:
        """Replace a text that a file has once."""
        return _run(self._files, command)

    def insert(self, command: BetaMemoryTool20250818InsertCommand) -> str:
        """Insert a text behind a line."""
        return _run(self._files, command)

    def delete(self, command: BetaMemoryTool20250818DeleteCommand) -> str:
        """Forget a file, a folder, or all memories of a kind."""
        return _run(self._files, command)

    def rename(self, command: BetaMemoryTool20250818RenameCommand) -> str:
        """Rename a file or a folder."""
        return _run(self._files, command)


class TallyAsyncMemoryTool(BetaAsyncAbstractMemoryTool):
    """Same as `TallyMemoryTool`, for the asynchronous client: each command runs in a thread."""

    def __init__(
        self,
        tally: Tally | BoundTally,
        *,
        actor: ActorSource | None = None,
        approval: PlainApproval = "ask",
        ask: Callable[[ToolQuestion], bool | str] | None = None,
        cache_control: BetaCacheControlEphemeralParam | None = None,
    ) -> None:
        """Same as that of `TallyMemoryTool`; `ask` is called in the thread."""
        super().__init__(cache_control=cache_control)
        self._files = MemoryFiles(
            tally,
            runtime=_RUNTIME,
            piece="TallyAsyncMemoryTool",
            actor=actor,
            approval=approval,
            ask=ask,
        )

    async def view(self, command: BetaMemoryTool20250818ViewCommand) -> str:
        """Show the lines of a file, or what a folder holds. Raises ToolError, as all commands."""
        return await in_thread(_run, self._files, command)

    async def create(self, command: BetaMemoryTool20250818CreateCommand) -> str:
        """Create a file."""
        return await in_thread(_run, self._files, command)

    async def str_replace(self, command: BetaMemoryTool20250818StrReplaceCommand) -> str:
        """Replace a text that a file has once."""
        return await in_thread(_run, self._files, command)

    async def insert(self, command: BetaMemoryTool20250818InsertCommand) -> str:
        """Insert a text behind a line."""
        return await in_thread(_run, self._files, command)

    async def delete(self, command: BetaMemoryTool20250818DeleteCommand) -> str:
        """Forget a file, a folder, or all memories of a kind."""
        return await in_thread(_run, self._files, command)

    async def rename(self, command: BetaMemoryTool20250818RenameCommand) -> str:
        """Rename a file or a folder."""
        return await in_thread(_run, self._files, command)


def _run(files: MemoryFiles, command: Any) -> str:
    """Run a command of the SDK. Raises ToolError with what the model is to read."""
    answer = files.run(command.to_dict(mode="python", warnings=False))
    if answer.is_error:
        raise ToolError(answer.text)
    return answer.text
