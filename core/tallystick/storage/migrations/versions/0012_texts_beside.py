"""Texts beside the chain: the journal of a thread is named by its number, and an idempotency key is
stored as a keyed digest.
"""

import sqlalchemy as sa
from alembic import op

from tallystick.storage.migrations import texts_beside

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    op.add_column("threads", sa.Column("stream", sa.Text()))
    texts_beside.upgrade(op.get_bind())
