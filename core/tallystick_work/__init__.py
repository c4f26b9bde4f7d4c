"""Work: tasks with their states and links, and what is handed over from one session to the next.

`Work(bound)` starts, blocks, submits and completes tasks, and says what to do next.
"""

from tallystick_work.extension import EXTENSION
from tallystick_work.work import AsyncWork, Work, WorkVerbs

__all__ = ["EXTENSION", "AsyncWork", "Work", "WorkVerbs"]
