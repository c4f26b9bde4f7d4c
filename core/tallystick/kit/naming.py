"""Names and goals of runs that people recognise, where a runtime gives none."""

from __future__ import annotations

import sys
from pathlib import Path

from tallystick.tally import BoundTally

_LOOK_BACK = 200
"""Runs of the scope, the newest, among which an earlier one of a thread is looked for."""


def default_agent_name() -> str:
    """Return the name of an agent that has none: that of the script which was started, such as
    `support_bot` of `python support_bot.py`; else `agent`.
    """
    main = sys.modules.get("__main__")
    file = getattr(main, "__file__", None)
    # A module started with `-m` has a spec, and a console script no suffix: both are launchers.
    if isinstance(file, str) and file.endswith(".py") and getattr(main, "__spec__", None) is None:
        return Path(file).stem
    return "agent"


def goal_of_thread(bound: BoundTally, thread_id: str) -> str | None:
    """Return the goal of the newest run of a thread that has one, for a run that goes on with it;
    None if none of the newest 200 runs of the scope does.
    """
    return next(
        (
            run.goal
            for run in bound.recordings.runs(limit=_LOOK_BACK)
            if run.goal and str(run.metadata.get("thread_id")) == thread_id
        ),
        None,
    )
