"""Events of a session, as a hook gets them, and its answers: plain values, without the core."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

EventName = Literal[
    "session-start",
    "prompt",
    "before-tool",
    "permission",
    "after-tool",
    "subagent-start",
    "subagent-end",
    "before-compact",
    "after-compact",
    "turn-end",
    "session-end",
]
EVENTS: tuple[EventName, ...] = get_args(EventName)
TELLING: tuple[EventName, ...] = (
    *("after-tool", "subagent-end", "before-compact", "turn-end", "session-end"),
)
"""Events that need no answer: an agent goes on alike, whether they are taken now or later."""
HookFormat = Literal["neutral", "claude-code", "codex", "gemini-cli"]
HookPath = Literal["project-hooks", "user-hooks", "project-plugin", "user-plugin"]
"""Where the hook is written down that tells: the settings or the plugin of a project or a user."""
PATHS: tuple[HookPath, ...] = get_args(HookPath)


@dataclass(frozen=True)
class Words:
    """What somebody said in a session."""

    key: str
    """The same words at the same place of a session have the same key."""
    speaker: Literal["user", "agent"]
    text: str


@dataclass(frozen=True)
class Event:
    """One event of a session."""

    name: EventName
    session: str
    agent: str = "agent"
    prompt: str | None = None
    """What the user asked."""
    tool: str | None = None
    arguments: Any = None
    call_id: str | None = None
    event_id: str | None = None
    """The id that the client gives the event itself: every hook that it calls for it has the same.
    """
    path: HookPath | None = None
    """The way by which it was told, where several may be open at once."""
    result: Any = None
    error: str | None = None
    """Why the tool failed."""
    words: tuple[Words, ...] = ()
    """What was said in the session so far; what was kept before is not kept again."""
    candidates: tuple[dict[str, Any], ...] = ()
    """What the agent would remember of the session, each with fields of `remember`."""
    subagent: str | None = None
    """The id of the subagent in which it happened; None in the session itself."""
    project: str | None = None
    """The project that the session works on, as the client names it: the folder of it."""
    spooled: str | None = None
    """The id under which it waited in the spool; None for one that is told to the tally itself."""
    at: int | None = None
    """When it was told, microseconds UTC, where that was before it was taken."""


@dataclass(frozen=True)
class Answer:
    """The answer of a hook."""

    context: str = ""
    """Text for the agent's prompt."""
    decision: Literal["allow", "deny", "ask"] | None = None
    """For a tool: allow or deny it, or let the client ask; None leaves it to the client."""
    reason: str = ""
    arguments: Any = None
    """The arguments that the tool is to have instead, where a rule cleaned them."""
    actor: str | None = None
    scope: str | None = None
    error: str | None = None
    """What failed in the hook itself."""
    stored: int = 0
    """Turns that were kept."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Approvals and rules that a refusal names."""
