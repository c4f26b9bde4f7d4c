"""Facts of LangGraph about a call: its place in the graph, and the way it leaves a node."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from tallystick.kit import UNNAMED_AGENT
from tallystick.recorder import Step

_UNNAMED = "LangGraph"
"""The name of a graph that was compiled without one."""
_NAMES = ("lc_agent_name", "graph_id")
"""Metadata that names an agent: of `create_agent(name=…)`, and of LangGraph's server."""

_PLACE = ("thread_id", "langgraph_step", "langgraph_node", "langgraph_checkpoint_ns")
"""Metadata of the place of a call; the last part of the namespace is the task id."""


def place_of(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the place of a call in its graph, which joins its step to a checkpoint."""
    place = {name: metadata[name] for name in _PLACE if name in metadata}
    if "thread_id" in place:
        # As the checkpointer names the thread, whatever the application names it with.
        place["thread_id"] = str(place["thread_id"])
    return place


def agent_name_of(name: str | None, metadata: Mapping[str, Any]) -> str:
    """Return the name of the agent of a root: that of its runnable, or the one in its metadata,
    else `agent`.
    """
    if name is not None and name != _UNNAMED:
        return name
    named = (metadata.get(key) for key in _NAMES)
    return next((each for each in named if isinstance(each, str) and each), UNNAMED_AGENT)


def goes_on(inputs: Any) -> bool:
    """Return True if a graph goes on where it stopped: its input is a Command, or nothing."""
    types = sys.modules.get("langgraph.types")
    return inputs is None or (types is not None and isinstance(inputs, types.Command))


def interrupts_of(error: BaseException) -> list[dict[str, Any]] | None:
    """Return the interrupts in an exception by which LangGraph asks a person; None in others."""
    errors = sys.modules.get("langgraph.errors")
    if errors is None or not isinstance(error, errors.GraphInterrupt):
        return None
    interrupts = error.args[0] if error.args else ()
    return [
        {"id": getattr(interrupt, "id", None), "value": getattr(interrupt, "value", interrupt)}
        for interrupt in interrupts
    ]


def is_bubble_up(error: BaseException) -> bool:
    """Return True if an exception is LangGraph's way to leave a node, which is no failure."""
    errors = sys.modules.get("langgraph.errors")
    return errors is not None and isinstance(error, errors.GraphBubbleUp)


def stop_step(step: Step, error: BaseException) -> bool:
    """End a step that an exception left: failed, completed, or blocked where it waits for a person.

    Return True if it waits.
    """
    interrupts = interrupts_of(error)
    if interrupts is not None:
        step.record(
            "approval",
            {"interrupts": interrupts},
            summary={"state": "asked", "interrupts": len(interrupts)},
        )
        step.run.note_error(error)
        step.end("blocked", wait=False)
    elif is_bubble_up(error):
        step.end(wait=False)
    else:
        step.fail(error)
    return interrupts is not None
