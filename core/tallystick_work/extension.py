"""The extension: what work adds to a tally."""

from __future__ import annotations

from functools import partial

from tallystick.extension import Extension
from tallystick.loading import Late
from tallystick.operations import Operation

_READ = ("denied", "invalid_input", "not_found", "rate_limited")
_CHANGE = (
    "denied",
    "invalid_input",
    "invalid_record",
    "idempotency_mismatch",
    "rate_limited",
    "not_found",
    "version_conflict",
    "state_conflict",
)

_WORK = Late("tallystick_work.work:Work")

_read = partial(Operation, effect="read", errors=_READ, face=_WORK)
_change = partial(Operation, effect="change", errors=_CHANGE, face=_WORK)

EXTENSION: Extension[Operation] = Extension(
    on_rewrite=Late("tallystick_work.changing:follow_task"),
    operations=(
        _read(
            "tasks",
            "List tasks",
            "List tasks by state, assignee, technology, project and due time, each with what it "
            "waits for.",
            verb="work.list",
        ),
        _change("start_task", "Start a task", "Start a task, with a branch.", verb="work.start"),
        _change(
            "block_task",
            "Block a task",
            "Say what blocks a task: a memory, on which it then depends, or words.",
            verb="work.block",
        ),
        _change("unblock_task", "Unblock a task", "Let a task go on.", verb="work.unblock"),
        _change(
            "submit_task",
            "Submit a task",
            "Submit a task for review, with its commits and the address of the request.",
            verb="work.submit",
        ),
        _change(
            "complete_task",
            "Complete a task",
            "Complete a task that is in review: an episode with what was learned, error patterns "
            "of its blockers, and the progress of its project.",
            verb="work.complete",
        ),
        _change("cancel_task", "Cancel a task", "Cancel a task in any state.", verb="work.cancel"),
        _change(
            "archive_task",
            "Archive a task",
            "Take a task that is over off the board.",
            verb="work.archive",
        ),
        _read(
            "estimate_task",
            "Estimate a task",
            "Show the hours that done tasks like this one took.",
            errors=(*_READ, "state_conflict"),
            verb="work.estimate",
        ),
        _read(
            "prioritize_tasks",
            "What to do next",
            "List open tasks in the order in which to do them, with reasons; blocked ones last.",
            verb="work.prioritize",
        ),
        _read(
            "task_cycles",
            "Find circles",
            "List circles in which memories depend on one another.",
            verb="work.cycles",
        ),
        _read("plan", "Read a plan", "Read a plan with its steps.", verb="work.plan"),
        _change(
            "advance_plan", "Advance a plan", "Give a step of a plan a state.", verb="work.advance"
        ),
        _change(
            "link_alike",
            "Link what is alike",
            "Preview or make links to the patterns, rules, templates, error patterns and topics "
            "that a memory is like.",
            verb="work.link_alike",
        ),
    ),
)
