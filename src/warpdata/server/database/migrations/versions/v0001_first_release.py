"""The tables of the first release."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create all tables, those that others refer to first."""
    _create_access()
    _create_credentials()
    _create_audit()
    _create_jobs()
    _create_requests()
    _create_index()


def _create_access() -> None:
    """Create users and their roles."""
    op.create_table(
        "users",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("name", sa.String(length=256), nullable=False),
        sa.Column("is_admin", sa.Boolean(), nullable=False),
        sa.Column("is_active", sa.Boolean(), nullable=False),
        sa.Column("created", sa.String(length=24), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
    )
    op.create_table(
        "members",
        sa.Column("user_id", sa.String(length=32), nullable=False),
        sa.Column("workspace", sa.String(length=256), nullable=False),
        sa.Column("dataset", sa.String(length=256), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("user_id", "workspace", "dataset"),
    )


def _create_credentials() -> None:
    """Create what users sign in with, and the keys of URLs."""
    op.create_table(
        "sign_in_codes",
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("user_id", sa.String(length=32), nullable=False),
        sa.Column("expires", sa.String(length=24), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("hash"),
    )
    op.create_table(
        "sign_ins",
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("user_id", sa.String(length=32), nullable=False),
        sa.Column("created", sa.String(length=24), nullable=False),
        sa.Column("expires", sa.String(length=24), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("hash"),
    )
    op.create_table(
        "tokens",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("user_id", sa.String(length=32), nullable=False),
        sa.Column("name", sa.String(length=256), nullable=False),
        sa.Column("scope", sa.String(length=16), nullable=False),
        sa.Column("workspace", sa.String(length=256), nullable=False),
        sa.Column("dataset", sa.String(length=256), nullable=False),
        sa.Column("created", sa.String(length=24), nullable=False),
        sa.Column("expires", sa.String(length=24), nullable=False),
        sa.Column("revoked", sa.String(length=24), nullable=True),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("hash"),
    )
    op.create_index("ix_tokens_user_id", "tokens", ["user_id"], unique=False)
    op.create_table(
        "signing_keys",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("secret", sa.String(length=64), nullable=False),
        sa.Column("created", sa.String(length=24), nullable=False),
        sa.Column("retired", sa.String(length=24), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )


def _create_audit() -> None:
    """Create the audit log."""
    op.create_table(
        "audit",
        sa.Column("sequence", _BIG, autoincrement=False, nullable=False),
        sa.Column("time", sa.String(length=24), nullable=False),
        sa.Column("actor", sa.String(length=256), nullable=False),
        sa.Column("token_id", sa.String(length=32), nullable=False),
        sa.Column("ip", sa.String(length=64), nullable=False),
        sa.Column("action", sa.String(length=64), nullable=False),
        sa.Column("workspace", sa.String(length=256), nullable=False),
        sa.Column("resource", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("previous", sa.String(length=64), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("sequence"),
    )
    op.create_index("ix_audit_workspace", "audit", ["workspace"], unique=False)
    op.create_table(
        "audit_tip",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("sequence", _BIG, nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )


def _create_jobs() -> None:
    """Create jobs and events."""
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("workspace", sa.String(length=256), nullable=False),
        sa.Column("dataset", sa.String(length=256), nullable=False),
        sa.Column("owner_id", sa.String(length=32), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("arguments", sa.JSON(), nullable=False),
        sa.Column("checkpoint", sa.JSON(), nullable=True),
        sa.Column("result", sa.JSON(), nullable=True),
        sa.Column("error", sa.JSON(), nullable=True),
        sa.Column("done", _BIG, nullable=False),
        sa.Column("total", _BIG, nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("worker", sa.String(length=32), nullable=True),
        sa.Column("is_cancelled", sa.Boolean(), nullable=False),
        sa.Column("created", sa.String(length=24), nullable=False),
        sa.Column("started", sa.String(length=24), nullable=True),
        sa.Column("heartbeat", sa.String(length=24), nullable=True),
        sa.Column("finished", sa.String(length=24), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("jobs_by_state", "jobs", ["state", "created"], unique=False)
    op.create_table(
        "job_log",
        sa.Column("sequence", _BIG, autoincrement=True, nullable=False),
        sa.Column("job_id", sa.String(length=32), nullable=False),
        sa.Column("time", sa.String(length=24), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("sequence"),
    )
    op.create_index("ix_job_log_job_id", "job_log", ["job_id"], unique=False)
    op.create_table(
        "events",
        sa.Column("sequence", _BIG, autoincrement=True, nullable=False),
        sa.Column("time", sa.String(length=24), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("workspace", sa.String(length=256), nullable=False),
        sa.Column("dataset", sa.String(length=256), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("sequence"),
    )


def _create_requests() -> None:
    """Create uploads and the answers to repeated requests."""
    op.create_table(
        "uploads",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("workspace", sa.String(length=256), nullable=False),
        sa.Column("dataset", sa.String(length=256), nullable=False),
        sa.Column("user_id", sa.String(length=32), nullable=False),
        sa.Column("artifact", sa.String(length=256), nullable=False),
        sa.Column("created", sa.String(length=24), nullable=False),
        sa.Column("version", sa.String(length=64), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "upload_files",
        sa.Column("upload_id", sa.String(length=32), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("size_bytes", _BIG, nullable=False),
        sa.ForeignKeyConstraint(["upload_id"], ["uploads.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("upload_id", "path"),
    )
    op.create_table(
        "idempotency",
        sa.Column("user_id", sa.String(length=32), nullable=False),
        sa.Column("key", sa.String(length=128), nullable=False),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("created", sa.String(length=24), nullable=False),
        sa.Column("status", sa.Integer(), nullable=True),
        sa.Column("body", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("user_id", "key"),
    )


def _create_index() -> None:
    """Create the index of the store."""
    op.create_table(
        "datasets",
        sa.Column("id", sa.String(length=260), nullable=False),
        sa.Column("workspace", sa.String(length=256), nullable=False),
        sa.Column("name", sa.String(length=256), nullable=False),
        sa.Column("version", sa.String(length=64), nullable=False),
        sa.Column("commit", sa.String(length=64), nullable=False),
        sa.Column("updated", sa.String(length=40), nullable=False),
        sa.Column("row_count", _BIG, nullable=False),
        sa.Column("size_bytes", _BIG, nullable=False),
        sa.Column("sections", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_datasets_workspace", "datasets", ["workspace"], unique=False)
