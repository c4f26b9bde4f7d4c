"""Labels: the attributes by which lists and recall filter memories."""

from __future__ import annotations

from tallystick.records import Memory

__all__ = ["LABELS", "labels_asked", "labels_of_memory"]

LABELS = ("status", "project", "assignee", "language")
"""Attributes that are labels, where they are texts."""


def labels_of_memory(memory: Memory) -> tuple[tuple[str, str], ...]:
    """Return the labels of a memory. One of a project's scope belongs to the project unless it
    names another.
    """
    labels = {
        name: value
        for name in LABELS
        if isinstance(value := memory.attributes.get(name), str) and value.strip()
    }
    if memory.kind in ("task", "milestone"):
        labels.setdefault("status", "todo")
    if memory.scope.kind == "project" and memory.scope.key:
        labels.setdefault("project", memory.scope.key)
    return tuple(labels.items())


def labels_asked(
    status: str | None, project: str | None, assignee: str | None, language: str | None
) -> dict[str, str]:
    """Return the labels that a call filters by."""
    values = dict(zip(LABELS, (status, project, assignee, language), strict=True))
    return {name: value for name, value in values.items() if value is not None}
