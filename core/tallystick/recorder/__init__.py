"""The recorder: runs and their steps, receipts that prove them, and replay.

A hook records through `run` (the handles `Run` and `Step`); `payloads` turns what it passes into
bytes, without secrets; `pending` and `write_queue` bring them to the database; `chain` and
`receipts` say what the journal gets. `recordings` reads, follows and verifies; `replay` and `tape`
do it again.
"""

from typing import TYPE_CHECKING

from tallystick.loading import late_names

if TYPE_CHECKING:
    from tallystick.recorder.bundle import is_bundle, verify_bundle
    from tallystick.recorder.context import RecorderContext
    from tallystick.recorder.current import (
        active_run,
        active_step,
        current_run,
        current_step,
    )
    from tallystick.recorder.payloads import Preserialized, TextMemo, clear_text_memos
    from tallystick.recorder.recordings import Recordings
    from tallystick.recorder.recovery import recover_interrupted_runs
    from tallystick.recorder.replay import Call, Render, neutral_request
    from tallystick.recorder.run import Run, Step, status_for, time_of
    from tallystick.recorder.subscriptions import Listener, RecordingEvent, Subscription
    from tallystick.recorder.tape import Player, read_tape, stream_pieces, tool_form, write_tape
else:
    __getattr__ = late_names(
        __name__,
        {
            "bundle": "is_bundle verify_bundle",
            "context": "RecorderContext",
            "current": "active_run active_step current_run current_step",
            "payloads": "Preserialized TextMemo clear_text_memos",
            "recordings": "Recordings",
            "recovery": "recover_interrupted_runs",
            "replay": "Call Render neutral_request",
            "run": "Run Step status_for time_of",
            "subscriptions": "Listener RecordingEvent Subscription",
            "tape": "Player read_tape stream_pieces tool_form write_tape",
        },
    )

__all__ = [
    "Call",
    "Listener",
    "Player",
    "Preserialized",
    "Recordings",
    "RecorderContext",
    "RecordingEvent",
    "Render",
    "Run",
    "Step",
    "Subscription",
    "TextMemo",
    "active_run",
    "active_step",
    "current_run",
    "current_step",
    "is_bundle",
    "clear_text_memos",
    "neutral_request",
    "stream_pieces",
    "read_tape",
    "recover_interrupted_runs",
    "status_for",
    "time_of",
    "tool_form",
    "verify_bundle",
    "write_tape",
]
