"""Quotas: the most bytes and files that the datasets of a workspace may hold, with what is being uploaded.

Usage comes from the index, so it counts the heads of `main`. Older versions share most of their bytes with them.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import func, select

from warpdata.errors import ErrorKind, LimitExceededError
from warpdata.server.database import DatasetRow, QuotaRow, UploadFileRow, UploadRow
from warpdata.server.service import Service

__all__ = ["Usage", "check_quota", "find_usage", "set_quota"]


@dataclass(frozen=True, slots=True)
class Usage:
    """What a workspace holds, and the most that it may. None is no limit."""

    workspace: str
    used_bytes: int
    used_files: int
    max_bytes: int | None
    max_files: int | None


def find_usage(service: Service, workspace: str) -> Usage:
    """Return the usage of a workspace: the heads of its datasets, and files of uploads without a commit."""
    heads = select(func.sum(DatasetRow.size_bytes), func.sum(DatasetRow.file_count)).where(
        DatasetRow.workspace == workspace
    )
    waiting = (
        select(func.sum(UploadFileRow.size_bytes), func.count(UploadFileRow.path))
        .join(UploadRow, UploadRow.id == UploadFileRow.upload_id)
        .where(UploadRow.workspace == workspace, UploadRow.version.is_(None))
    )
    with service.database.read() as db:
        quota = db.get(QuotaRow, workspace)
        counts = [[int(one or 0) for one in db.execute(query).one()] for query in (heads, waiting)]
    used_bytes, used_files = (sum(column) for column in zip(*counts, strict=True))
    return Usage(
        workspace, used_bytes, used_files, quota.max_bytes if quota else None, quota.max_files if quota else None
    )


def check_quota(service: Service, workspace: str, files: int, size_bytes: int) -> None:
    """Raise `LimitExceededError` if the workspace may not hold this much more."""
    with service.database.read() as db:
        if db.get(QuotaRow, workspace) is None:
            return
    usage = find_usage(service, workspace)
    for used, more, most, unit in (
        (usage.used_bytes, size_bytes, usage.max_bytes, "bytes"),
        (usage.used_files, files, usage.max_files, "files"),
    ):
        if most is not None and used + more > most:
            raise LimitExceededError(
                f"workspace {workspace!r} may hold {most:,} {unit}; it has {used:,}, and {more:,} more were sent",
                hint="Remove what is not needed, or ask an administrator for a larger quota.",
                kind=ErrorKind.QUOTA_EXCEEDED,
            )


def set_quota(service: Service, workspace: str, max_bytes: int | None, max_files: int | None) -> Usage:
    """Limit a workspace. None for both removes the quota."""
    with service.database.write() as db:
        row = db.get(QuotaRow, workspace)
        if row is not None and max_bytes is None and max_files is None:
            db.delete(row)
        elif row is not None:
            row.max_bytes, row.max_files = max_bytes, max_files
        elif max_bytes is not None or max_files is not None:
            db.add(QuotaRow(workspace=workspace, max_bytes=max_bytes, max_files=max_files))
    return find_usage(service, workspace)
