"""What the agent can do, as plain functions, and the rules under which it may.

Reading and testing runs at once, a patch waits for a person, and so does a command that destroys.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

from examples.coding_agent.workspace import Workspace

from tallystick import PolicyRule, SourceRef
from tallystick.records import PolicyConditions, ToolClass
from tallystick.tally import BoundTally

RULES = [
    PolicyRule(
        id="ask-before-writing",
        name="Ask before a patch",
        description="a person reads the patch",
        effect="require_approval",
        applies_to="tool_call",
        conditions=PolicyConditions(tool=("apply_patch",), tool_class=("write",)),
    ),
    PolicyRule(
        id="ask-before-destroying",
        name="Ask before a command that destroys",
        description="a person looks at what would be destroyed",
        effect="require_approval",
        applies_to="tool_call",
        conditions=PolicyConditions(tool=("shell",), tool_class=("destructive",)),
    ),
]
_READS = (("ls",), ("cat",), ("head",), ("wc",), ("git", "diff"), ("git", "log"), ("git", "status"))


def class_of_command(arguments: Any) -> ToolClass:
    """Return the class of a shell command: what is not known to read counts as destructive."""
    command = str(arguments["command"])
    words = tuple(shlex.split(command))
    is_plain = not set(command) & set(";&|><`$\n") and "--output" not in command
    reads = any(words[: len(known)] == known for known in _READS)
    return "read_only" if is_plain and reads else "destructive"


TOOL_CLASSES: dict[str, Any] = {
    "run_tests": "read_only",
    "read_file": "read_only",
    "remember_convention": "read_only",
    "apply_patch": "write",
    "shell": class_of_command,
}
"""The class of each tool by its name. An undeclared tool would count as destructive."""


def coding_tools(bound: BoundTally, workspace: Workspace) -> list[Callable[..., str]]:
    """Return the tools of a coding agent on this workspace and this memory."""

    def run_tests() -> str:
        """Run the project's tests and return what pytest prints."""
        return workspace.run_tests().output

    def read_file(path: str) -> str:
        """Read a file of the project."""
        try:
            return workspace.read(path)
        except ValueError as error:
            return str(error)

    def apply_patch(patch: str) -> str:
        """Apply a unified diff to the project. Tests cannot be edited."""
        return workspace.apply(patch) or "applied"

    def shell(command: str) -> str:
        """Run a command in the workspace, such as `git diff`."""
        return f"{command} ran: {workspace.run(command)}"

    def remember_convention(text: str, path: str) -> str:
        """Remember a convention of the project, with the file that states it."""
        stored = bound.remember(
            text,
            kind="constraint",
            subject="rounding",
            tags=["convention"],
            source=SourceRef(source_type="file", uri=path, title="Conventions", author="project"),
        )
        return f"remembered as {stored.id}"

    return [run_tests, read_file, apply_patch, shell, remember_convention]
