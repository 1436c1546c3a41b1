"""S3 keys of users."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002_s3_keys"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table of S3 keys."""
    op.create_table(
        "s3_keys",
        sa.Column("access_key", sa.String(length=20), nullable=False),
        sa.Column("user_id", sa.String(length=32), nullable=False),
        sa.Column("name", sa.String(length=256), nullable=False),
        sa.Column("right", sa.String(length=16), nullable=False),
        sa.Column("workspace", sa.String(length=256), nullable=False),
        sa.Column("dataset", sa.String(length=256), nullable=False),
        sa.Column("ref", sa.String(length=256), nullable=False),
        sa.Column("master", sa.String(length=16), nullable=False),
        sa.Column("created", sa.String(length=24), nullable=False),
        sa.Column("expires", sa.String(length=24), nullable=True),
        sa.Column("revoked", sa.String(length=24), nullable=True),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("access_key"),
    )
    op.create_index("ix_s3_keys_user_id", "s3_keys", ["user_id"], unique=False)
