"""Memory as files for a model: the commands of the memory tree, under the rules of the tally.

What a command changes is asked about as the memory tool that would change the same: an added line
as `memory_store`, an edited one as `memory_modify`, a removed one as `memory_forget`, each with its
own arguments, so that no rule over these is passed by.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from pydantic import Field, StrictInt, StrictStr, TypeAdapter, ValidationError

from tallystick.errors import (
    ApprovalRequired,
    InvalidInput,
    StoredApproval,
    TallystickError,
    VersionConflict,
)
from tallystick.errors.base import explain_validation
from tallystick.kit.binder import ActorSource, Binder
from tallystick.kit.plain_tools import Asking, PlainApproval, ToolQuestion
from tallystick.kit.rendering import (
    ToolCall,
    record_tool_call,
    record_tool_error,
    record_tool_result,
)
from tallystick.memory.files import Add, Alter, Drop, Edit
from tallystick.recorder import current_run
from tallystick.records import JsonObject, Record
from tallystick.tally import AllowedToolCall, BoundTally, MemoryTree, SeenVersions, Tally

MEMORY_FILES = "memory"
"""The name of the tool, as a model calls it."""
_PIECE = "memory_files"
_REASON = "the line was removed from its file"


class _View(Record):
    command: Literal["view"]
    path: StrictStr
    view_range: tuple[StrictInt, StrictInt] | None = None


class _Create(Record):
    command: Literal["create"]
    path: StrictStr
    file_text: StrictStr


class _StrReplace(Record):
    command: Literal["str_replace"]
    path: StrictStr
    old_str: StrictStr
    new_str: StrictStr = ""


class _Insert(Record):
    command: Literal["insert"]
    path: StrictStr
    insert_line: StrictInt
    insert_text: StrictStr


class _Delete(Record):
    command: Literal["delete"]
    path: StrictStr


class _Rename(Record):
    command: Literal["rename"]
    old_path: StrictStr
    new_path: StrictStr


_Command = Annotated[
    _View | _Create | _StrReplace | _Insert | _Delete | _Rename, Field(discriminator="command")
]
_COMMANDS: TypeAdapter[Any] = TypeAdapter(_Command)


@dataclass(frozen=True)
class FileAnswer:
    """The answer of a command, as a model reads it."""

    text: str
    is_error: bool = False


class MemoryFiles:
    """The memories of one tally as files, for commands that a model gives. Thread-safe."""

    def __init__(
        self,
        tally: Tally | BoundTally,
        *,
        runtime: str,
        piece: str = _PIECE,
        actor: ActorSource | None = None,
        approval: PlainApproval = "ask",
        ask: Callable[[ToolQuestion], bool | str] | None = None,
    ) -> None:
        """Changes and removals of lines that are memories ask a person by `ask`, which answers
        True, False, or the reason against it; without it they are refused. With
        `approval="elsewhere"` they act at once. Files of the model's own ask nobody. All go by the
        rules of the tally.
        """
        self._binder = Binder(tally, runtime=runtime, piece=piece, actor=actor)
        self._asking = Asking(approval, ask, _PIECE)
        self._seen = SeenVersions()

    def run(self, command: Mapping[str, Any]) -> FileAnswer:
        """Run a command and return its answer; a refusal is an answer that the model reads.

        Inside of a run of this tally the command is a step of it.
        """
        bound = self._binder.bound(None)
        run = current_run()
        if run is None or run.id != self._binder.current_run_id():
            return self._answer(bound, command)
        with run.step("tool_call", name=MEMORY_FILES) as step:
            record_tool_call(step, ToolCall(MEMORY_FILES, dict(command), None))
            answer = self._answer(bound, command)
            if answer.is_error:
                record_tool_error(step, None, answer.text)
                step.end("failed", wait=False)
            else:
                record_tool_result(step, answer.text)
        return answer

    def _answer(self, bound: BoundTally, command: Mapping[str, Any]) -> FileAnswer:
        try:
            return FileAnswer(self._run(bound, command))
        except VersionConflict:
            return FileAnswer(
                "Nothing was changed: the file was changed meanwhile. View it again, and decide "
                "anew.",
                is_error=True,
            )
        except TallystickError as error:
            text = str(error).encode("utf-8", "replace").decode()  # it may repeat the command
            return FileAnswer(text, is_error=True)

    def _run(self, bound: BoundTally, command: Mapping[str, Any]) -> str:
        arguments = _read_command(command)
        paths = [value for name, value in arguments.items() if name.endswith("path")]
        scope = MemoryTree(bound).scope_of(paths[0])
        bound = bound if scope is None else replace(bound, scope=scope)
        permission = FilePermission(bound, self._asking)
        check = permission.check(MEMORY_FILES, arguments)
        arguments = dict(check.arguments)
        name = str(arguments.pop("command"))
        tree = MemoryTree(bound, self._seen, permission)
        answer: str = check.result(getattr(tree, name)(**arguments))
        return answer


def _read_command(command: Mapping[str, Any]) -> JsonObject:
    """Return a command with its arguments. Raises InvalidInput."""
    given = {name: value for name, value in command.items() if value is not None}
    try:
        valid = _COMMANDS.validate_python(given)
    except ValidationError as error:
        raise InvalidInput(explain_validation(error, whole=MEMORY_FILES)) from error
    arguments: JsonObject = valid.model_dump(mode="json")
    return arguments


@dataclass(frozen=True)
class FilePermission:
    """The rules of a tally, and the person who is asked, over one command of a `MemoryTree`."""

    bound: BoundTally
    asking: Asking = field(default_factory=lambda: Asking("ask", piece=_PIECE))

    def read(self, tool: str, arguments: JsonObject, text: str) -> str:
        """Return what the rules let a memory tool read of a text. Raises Blocked."""
        cleaned: str = self.check(tool, arguments).result(text)
        return cleaned

    def changes(self, edits: Sequence[Edit], *, is_file: bool) -> list[Edit]:
        """Return edits with what the rules leave of them. Raises Blocked, which lists every
        approval that they wait for, and InvalidInput where a person who is asked says no.
        """
        allowed: list[Edit] = []
        waiting: list[StoredApproval] = []
        for edit in edits:
            try:
                allowed.append(self._change(edit, is_file=is_file))
            except ApprovalRequired as error:
                # All are asked for at once: a grant is good for one try of the whole command.
                waiting += error.approvals
        if waiting:
            raise ApprovalRequired(waiting)
        return allowed

    def _change(self, edit: Edit, *, is_file: bool) -> Edit:
        tool, arguments = _as_tool(edit)
        check = self.check(tool, arguments)
        if not is_file and check.approval is None:
            refusal = self.asking.refusal(tool, arguments)
            if refusal is not None:
                raise InvalidInput(str(refusal["message"]))
        return _as_edit(edit, check.arguments)

    def check(self, tool: str, arguments: JsonObject) -> AllowedToolCall:
        """Check a call by the rules; a person whom a rule asks answers. Raises Blocked."""
        return self.asking.check(self.bound, ToolCall(tool, arguments))


def _as_tool(edit: Edit) -> tuple[str, JsonObject]:
    """Return the memory tool that makes the same change, with its arguments."""
    if isinstance(edit, Add):
        return "memory_store", {"content": edit.new.content, "kind": edit.new.kind}
    if isinstance(edit, Drop):
        return "memory_forget", {"memory_id": edit.memory.id, "reason": _REASON}
    return "memory_modify", {
        "memory_id": edit.memory.id,
        "if_version": edit.memory.version,
        **edit.changes,
    }


def _as_edit(edit: Edit, arguments: JsonObject) -> Edit:
    """Return an edit with the arguments that the rules left."""
    if isinstance(edit, Add):
        new = edit.new.model_copy(update={"content": str(arguments["content"])})
        return replace(edit, new=new)
    if isinstance(edit, Alter):
        return replace(edit, changes={name: arguments[name] for name in edit.changes})
    return edit
