"""TallyHooks: what the hooks of a coding agent do, in the process of the Claude Agent SDK."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from claude_agent_sdk import HookContext, HookInput, HookJSONOutput, HookMatcher
from claude_agent_sdk.types import HookEvent

from tallystick.aio import in_thread
from tallystick.kit import ActorSource, Binder, has_rules
from tallystick.records import Scope
from tallystick.tally import BoundTally, Tally
from tallystick_hooks.formats import CLAUDE_EVENTS
from tallystick_hooks.handling import handle
from tallystick_hooks.quick import DECIDING

_EVENTS: tuple[HookEvent, ...] = (
    "UserPromptSubmit",
    "PreToolUse",
    "PermissionRequest",
    "PostToolUse",
    "PostToolUseFailure",
    "SubagentStart",
    "SubagentStop",
    "PreCompact",
    "Stop",
)
"""The events that the SDK tells in process; it has none for the start and the end of a session."""


class TallyHooks:
    """Memory for prompts and subagents, rules and approvals before tools, a record of calls, and
    the words of each turn: `ClaudeAgentOptions(hooks=TallyHooks(tally).hooks())`.

    A failure leaves the agent alone and is recorded as a gap; before a tool, where rules are
    installed, it stops the tool instead.
    """

    def __init__(
        self,
        tally: Tally | BoundTally,
        *,
        actor: ActorSource | None = None,
        scope: str | Scope | None = None,
    ) -> None:
        """`actor` says who acts, by default the owner or the view's (docs/who-acts.md); the SDK
        tells a hook nothing of users, so hooks are for one. Raises InvalidInput.
        """
        self._binder = Binder(
            tally, runtime="claude_agent", piece="TallyHooks", actor=actor, scope=scope
        )

    def __repr__(self) -> str:
        return self._binder.describe()

    def hooks(
        self, beside: Mapping[HookEvent, list[HookMatcher]] | None = None
    ) -> dict[HookEvent, list[HookMatcher]]:
        """Return the hooks for the options of an agent, after those of yours `beside` them.

        Where the tally has rules, a hook before a tool that fails blocks the tool.
        """
        made: dict[HookEvent, list[HookMatcher]] = {
            event: list(matchers) for event, matchers in (beside or {}).items()
        }
        closed = has_rules(self._binder.bound(), "tool_call")
        for event in _EVENTS:
            is_deciding = CLAUDE_EVENTS[event] in DECIDING
            on_failure = {"on_failure": "block"} if closed and is_deciding else {}
            matcher = HookMatcher(hooks=[self._answer], **cast(Any, on_failure))
            made.setdefault(event, []).append(matcher)
        return made

    async def _answer(
        self, input: HookInput, tool_use_id: str | None, context: HookContext
    ) -> HookJSONOutput:
        payload: dict[str, Any] = {"tool_use_id": tool_use_id, **input}
        call = self._binder.call(session=payload.get("session_id"))
        answered = await in_thread(
            lambda: handle(self._binder.bound(call), None, payload, "claude-code")
        )
        return cast(HookJSONOutput, answered)
