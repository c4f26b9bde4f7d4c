"""A made-up next version of the schema: migrations are tested with it, beside the real ones."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tallystick.storage.engine import migrate

BEFORE = migrate.HEAD
NEXT = f"{int(BEFORE[:4]) + 1:04}.0123456789ab"
_SCRIPT = f'''"""Colours: each memory may have one."""

import sqlalchemy as sa
from alembic import op

revision = "{NEXT}"
down_revision = "{BEFORE}"


def upgrade() -> None:
    op.add_column(
        "memories", sa.Column("colour", sa.Text(), nullable=False, server_default="grey")
    )
    op.create_index("ix_memories_colour", "memories", ["colour"])
'''


def write_migrations(folder: Path) -> None:
    """Write the migrations of the next version to a new folder."""
    shutil.copytree(migrate.FOLDER, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "versions" / f"{NEXT[:4]}_colours.py").write_text(_SCRIPT)


def install(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let this process be the release with the next version, whose migrations are in `folder`."""
    if not folder.exists():
        write_migrations(folder)
    monkeypatch.setattr(migrate, "FOLDER", folder)
    monkeypatch.setattr(migrate, "HEAD", NEXT)
