"""The table of operations: every verb that a surface may offer, by name."""

from __future__ import annotations

from collections.abc import Mapping

from tallystick.operations import (
    approvals,
    jobs,
    memory,
    operate,
    reviews,
    runs,
    spaces,
    tokens,
)
from tallystick.operations.operation import Operation

OPERATIONS: Mapping[str, Operation] = {
    operation.name: operation
    for operation in (
        *memory.OPERATIONS,
        *reviews.OPERATIONS,
        *runs.OPERATIONS,
        *approvals.OPERATIONS,
        *spaces.OPERATIONS,
        *tokens.OPERATIONS,
        *jobs.OPERATIONS,
        *operate.OPERATIONS,
    )
}
"""The operations by name, in the order in which surfaces list them."""
