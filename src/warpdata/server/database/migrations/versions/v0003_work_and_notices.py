"""Uploads in parts, quotas, schedules, webhooks and sign-in providers."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002_s3_keys"
branch_labels = None
depends_on = None

_BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Add tables and columns. The index of datasets is emptied, and filled again from the store."""
    _extend_uploads()
    _extend_index()
    _create_schedules()
    _create_webhooks()
    _create_providers()


def _extend_uploads() -> None:
    """Say where the bytes of a file are. Files that wait for a commit are objects of their own."""
    op.add_column("upload_files", sa.Column("pieces", sa.JSON(), nullable=True))
    files = sa.table(
        "upload_files",
        sa.column("upload_id", sa.String),
        sa.column("path", sa.Text),
        sa.column("sha256", sa.String),
        sa.column("size_bytes", _BIG),
        sa.column("pieces", sa.JSON),
    )
    connection = op.get_bind()
    for row in connection.execute(sa.select(files)).all():
        here = (files.c.upload_id == row.upload_id) & (files.c.path == row.path)
        connection.execute(sa.update(files).where(here).values(pieces=[[row.sha256, 0, row.size_bytes]]))
    with op.batch_alter_table("upload_files") as changed:
        changed.alter_column("pieces", existing_type=sa.JSON(), nullable=False)
    op.create_table(
        "partial_files",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("upload_id", sa.String(length=32), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("length", _BIG, nullable=False),
        sa.Column("offset", _BIG, nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=True),
        sa.Column("pieces", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["upload_id"], ["uploads.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_partial_files_upload_id", "partial_files", ["upload_id"], unique=False)


def _extend_index() -> None:
    """Count files in the index, and limit workspaces."""
    op.execute(sa.text("DELETE FROM datasets"))
    op.add_column("datasets", sa.Column("file_count", _BIG, nullable=False, server_default="0"))
    with op.batch_alter_table("datasets") as changed:
        changed.alter_column("file_count", existing_type=_BIG, server_default=None)
    op.create_table(
        "quotas",
        sa.Column("workspace", sa.String(length=256), nullable=False),
        sa.Column("max_bytes", _BIG, nullable=True),
        sa.Column("max_files", _BIG, nullable=True),
        sa.PrimaryKeyConstraint("workspace"),
    )


def _create_schedules() -> None:
    """Create the schedules of jobs."""
    op.create_table(
        "schedules",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("workspace", sa.String(length=256), nullable=False),
        sa.Column("dataset", sa.String(length=256), nullable=False),
        sa.Column("owner_id", sa.String(length=32), nullable=False),
        sa.Column("arguments", sa.JSON(), nullable=False),
        sa.Column("every_s", _BIG, nullable=False),
        sa.Column("next_run", sa.String(length=24), nullable=False),
        sa.Column("last_job_id", sa.String(length=32), nullable=True),
        sa.Column("is_active", sa.Boolean(), nullable=False),
        sa.Column("created", sa.String(length=24), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_schedules_next_run", "schedules", ["next_run"], unique=False)


def _create_webhooks() -> None:
    """Create webhooks and what is sent to them."""
    op.create_table(
        "webhooks",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("workspace", sa.String(length=256), nullable=False),
        sa.Column("dataset", sa.String(length=256), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("secret", sa.String(length=64), nullable=False),
        sa.Column("events", sa.JSON(), nullable=False),
        sa.Column("is_active", sa.Boolean(), nullable=False),
        sa.Column("owner_id", sa.String(length=32), nullable=False),
        sa.Column("created", sa.String(length=24), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_webhooks_workspace", "webhooks", ["workspace"], unique=False)
    op.create_table(
        "webhook_deliveries",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("webhook_id", sa.String(length=32), nullable=False),
        sa.Column("event", sa.String(length=32), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("next_attempt", sa.String(length=24), nullable=False),
        sa.Column("status", sa.Integer(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("created", sa.String(length=24), nullable=False),
        sa.Column("finished", sa.String(length=24), nullable=True),
        sa.ForeignKeyConstraint(["webhook_id"], ["webhooks.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_webhook_deliveries_webhook_id", "webhook_deliveries", ["webhook_id"], unique=False)
    op.create_index("webhook_deliveries_by_state", "webhook_deliveries", ["state", "next_attempt"], unique=False)


def _create_providers() -> None:
    """Create users of providers, and sign-ins that are under way."""
    op.create_table(
        "identities",
        sa.Column("issuer", sa.String(length=512), nullable=False),
        sa.Column("subject", sa.String(length=256), nullable=False),
        sa.Column("user_id", sa.String(length=32), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("issuer", "subject"),
    )
    op.create_table(
        "provider_sign_ins",
        sa.Column("state", sa.String(length=64), nullable=False),
        sa.Column("verifier", sa.String(length=128), nullable=False),
        sa.Column("nonce", sa.String(length=64), nullable=False),
        sa.Column("expires", sa.String(length=24), nullable=False),
        sa.PrimaryKeyConstraint("state"),
    )
