"""The flight recorder: what each step saw, why, what it did and what changed; provable and
replayable.
"""

from tallystick.recorder.bundle import is_bundle, verify_bundle
from tallystick.recorder.capture import Capture, Speakers
from tallystick.recorder.kept import KeptTexts, let_go_of_texts
from tallystick.recorder.parameters import offered, recordable
from tallystick.recorder.pieces import Written
from tallystick.recorder.recorder import Recorder
from tallystick.recorder.replay import Call, Render, neutral_request
from tallystick.recorder.room import RecorderRoom
from tallystick.recorder.run import Run, current_run
from tallystick.recorder.settle import settle
from tallystick.recorder.step import Step, current_step, status_for
from tallystick.recorder.stream import streamed
from tallystick.recorder.tape import Player, read_tape, tool_form, write_tape
from tallystick.recorder.wire import asks, tap

__all__ = [
    "Call",
    "Capture",
    "KeptTexts",
    "Player",
    "Recorder",
    "RecorderRoom",
    "Render",
    "Run",
    "Speakers",
    "Step",
    "Written",
    "asks",
    "current_run",
    "current_step",
    "is_bundle",
    "let_go_of_texts",
    "neutral_request",
    "offered",
    "streamed",
    "read_tape",
    "recordable",
    "settle",
    "status_for",
    "tap",
    "tool_form",
    "verify_bundle",
    "write_tape",
]
