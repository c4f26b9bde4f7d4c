"""Work: tasks with their states and links, and what is handed over from one session to the next.

`Work(bound)` starts, blocks, submits and completes tasks, and says what to do next.
"""

from typing import TYPE_CHECKING

from tallystick.loading import late_names
from tallystick_work.extension import EXTENSION

if TYPE_CHECKING:
    from tallystick_work.work import AsyncWork, Work, WorkVerbs
else:
    __getattr__ = late_names(__name__, {"work": "AsyncWork Work WorkVerbs"})

__all__ = ["EXTENSION", "AsyncWork", "Work", "WorkVerbs"]
