"""The flight recorder: what each step saw, why, what it did and what changed; provable and replayable."""

from tallystick.recorder.recorder import Recorder
from tallystick.recorder.room import RecorderRoom
from tallystick.recorder.run import Run, Step, current_run, current_step, status_for
from tallystick.recorder.settle import settle

__all__ = ["Recorder", "RecorderRoom", "Run", "Step", "current_run", "current_step", "settle", "status_for"]
