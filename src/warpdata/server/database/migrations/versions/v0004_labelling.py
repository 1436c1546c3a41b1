"""Connections to labelling tools, batches that were sent there, and uploads of images alone."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the tables of labelling, and let an upload refuse files that are no images."""
    op.create_table(
        "label_connections",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("workspace", sa.String(length=256), nullable=False),
        sa.Column("dataset", sa.String(length=256), nullable=False),
        sa.Column("tool", sa.String(length=16), nullable=False),
        sa.Column("name", sa.String(length=256), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("token", sa.Text(), nullable=False),
        sa.Column("access_key", sa.String(length=20), nullable=False),
        sa.Column("secret", sa.String(length=64), nullable=False),
        sa.Column("owner_id", sa.String(length=32), nullable=False),
        sa.Column("echo", sa.String(length=32), nullable=True),
        sa.Column("last_event", sa.String(length=24), nullable=True),
        sa.Column("created", sa.String(length=24), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_label_connections_workspace", "label_connections", ["workspace"], unique=False)
    op.create_table(
        "label_batches",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("connection_id", sa.String(length=32), nullable=False),
        sa.Column("title", sa.String(length=256), nullable=False),
        sa.Column("version", sa.String(length=64), nullable=False),
        sa.Column("ref", sa.String(length=256), nullable=False),
        sa.Column("project", sa.String(length=32), nullable=True),
        sa.Column("tasks", _BIG, nullable=False),
        sa.Column("labelled", _BIG, nullable=False),
        sa.Column("received", _BIG, nullable=False),
        sa.Column("author", sa.String(length=256), nullable=False),
        sa.Column("job_id", sa.String(length=32), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("polled", sa.String(length=24), nullable=True),
        sa.Column("created", sa.String(length=24), nullable=False),
        sa.ForeignKeyConstraint(["connection_id"], ["label_connections.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_label_batches_connection_id", "label_batches", ["connection_id"], unique=False)
    op.add_column("uploads", sa.Column("only_images", sa.Boolean(), nullable=False, server_default=sa.false()))
