"""Files that jobs make for their users, such as exports. They are in the store, and removed after a week."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import select

from warpdata.errors import NotFoundError
from warpdata.primitives.hashing import fingerprint_file
from warpdata.server.database import JobRow
from warpdata.server.service import Service

__all__ = ["ResultFile", "keep_result", "remove_old_results", "result_key"]

_ROOT = "service/results"
_KEPT_S = 7 * 24 * 3600
_PAGE = 50

ResultFile = dict[str, str | int]
"""Members of the result of a job: `filename`, `size_bytes` and `sha256`."""


def keep_result(service: Service, job_id: str, path: Path, filename: str) -> ResultFile:
    """Store a file as the result of a job. A repetition of the job takes its place."""
    found = fingerprint_file(path)
    service.session.writer.create_file(_key(job_id, found.blob.hash), path, found)
    return {"filename": filename, "size_bytes": found.blob.byte_size, "sha256": found.blob.hash}


def result_key(row: JobRow) -> str:
    """Return the key of the result of a job. `NotFoundError` if it has none, or not any more."""
    file = (row.result or {}).get("file")
    if not isinstance(file, dict):
        raise NotFoundError(f"job {row.id} has no file", hint="Exports have one, for a week after their end.")
    return _key(row.id, str(file["sha256"]))


def remove_old_results(service: Service) -> None:
    """Remove files of jobs that ended more than a week ago."""
    query = select(JobRow).where(JobRow.kind == "export", JobRow.finished < service.later(-_KEPT_S))
    with service.database.read() as db:
        old = [row for row in db.scalars(query.order_by(JobRow.finished)) if "file" in (row.result or {})][:_PAGE]
    for row in old:
        listed = service.session.writer.list_objects(f"{_ROOT}/{row.id}")
        service.session.writer.delete_many([info.key for info in listed])
        with service.database.write() as db:
            fresh = db.get_one(JobRow, row.id)
            fresh.result = {name: value for name, value in (fresh.result or {}).items() if name != "file"}


def _key(job_id: str, digest: str) -> str:
    return f"{_ROOT}/{job_id}/{digest}"
