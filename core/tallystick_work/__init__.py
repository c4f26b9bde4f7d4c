"""Work: tasks with their states and links, and what is handed over from one session to the next."""

from tallystick_work.extension import EXTENSION

__all__ = ["EXTENSION"]
