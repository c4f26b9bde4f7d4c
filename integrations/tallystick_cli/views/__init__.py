"""Views of records for a person at a terminal: tables and panels of rich, one file for each kind of
record.
"""

from tallystick_cli.views.approvals import approval_line, approval_table, approval_view
from tallystick_cli.views.changes import (
    change_line,
    correction_view,
    crossing_view,
    forgetting_view,
)
from tallystick_cli.views.common import short
from tallystick_cli.views.contexts import (
    decision_table,
    diff_table,
    replay_view,
    step_diff_view,
)
from tallystick_cli.views.jobs import job_table, job_view, outbound_table
from tallystick_cli.views.memories import (
    explored_view,
    history_table,
    hit_table,
    inspection_view,
    memory_table,
    remembered_line,
)
from tallystick_cli.views.reviews import proposal_table, proposal_view
from tallystick_cli.views.runs import (
    receipt_table,
    run_table,
    state_table,
    step_table,
    step_view,
)
from tallystick_cli.views.spaces import member_table, preview_table, space_table
from tallystick_cli.views.tokens import token_line, token_table
from tallystick_cli.views.upkeep import (
    backup_view,
    doctor_table,
    erasure_view,
    migration_view,
    proof_view,
    purge_view,
    rebuilt_view,
    reconciled_view,
    sizes_table,
    transfer_preview,
    transfer_view,
)
from tallystick_cli.views.verification import verification_view

__all__ = [
    "backup_view",
    "migration_view",
    "proposal_table",
    "proposal_view",
    "token_line",
    "token_table",
    "approval_line",
    "approval_table",
    "approval_view",
    "change_line",
    "correction_view",
    "crossing_view",
    "decision_table",
    "diff_table",
    "doctor_table",
    "erasure_view",
    "explored_view",
    "forgetting_view",
    "history_table",
    "hit_table",
    "inspection_view",
    "job_table",
    "job_view",
    "outbound_table",
    "member_table",
    "memory_table",
    "preview_table",
    "proof_view",
    "purge_view",
    "rebuilt_view",
    "reconciled_view",
    "remembered_line",
    "replay_view",
    "receipt_table",
    "run_table",
    "short",
    "sizes_table",
    "space_table",
    "state_table",
    "step_diff_view",
    "step_table",
    "step_view",
    "transfer_preview",
    "transfer_view",
    "verification_view",
]
