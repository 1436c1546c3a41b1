"""Records of finished tasks in the store, so that a job that was interrupted does not repeat them.

A record is created once, by the first worker that finishes the task. Later ones take it over, so a task has one result
even if its function does not always return the same. Implements "Records" of docs/specs/jobs.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from warpdata.errors import CorruptError, ObjectNotFoundError, UnsupportedError
from warpdata.jobs.plan import TaskBlob, TaskResult
from warpdata.primitives.hashing import blob_key, is_digest, sha256_hex
from warpdata.primitives.parallel import IO_POOL
from warpdata.primitives.strict_json import decode_json
from warpdata.repository.catalog import Pause, job_prefix, put_create_only, retry_unknown
from warpdata.repository.gc import CondemnedKeys
from warpdata.repository.manifest import Json, canonical_json
from warpdata.storage import Reader, Writer

__all__ = ["TaskRecords", "decode_result", "encode_result"]

_FORMAT = 1


@dataclass(frozen=True)
class TaskRecords:
    """The records of one job."""

    writer: Writer
    job_id: str
    pause: Pause

    def key(self, task_key: str) -> str:
        return f"{job_prefix(self.job_id)}/{task_key}.json"

    def put(self, task_key: str, result: TaskResult) -> TaskResult:
        """Record the result of a task, and return the recorded one: that of another worker, if it was first."""
        key = self.key(task_key)
        if put_create_only(self.writer, key, encode_result(task_key, result), self.pause):
            return result
        try:
            return decode_result(self.writer.read(key).data, task_key, key)
        except (CorruptError, ObjectNotFoundError):
            self.replace(task_key, result)
            return result

    def replace(self, task_key: str, result: TaskResult) -> None:
        """Overwrite a record that is of no use: it is corrupt, or names blobs that were collected."""
        data = encode_result(task_key, result)
        retry_unknown(lambda: self.writer.replace(self.key(task_key), data), self.pause)

    def load(self, task_keys: Iterable[str], condemned: CondemnedKeys) -> dict[str, TaskResult]:
        """Return the results of finished tasks whose blobs are still stored and not about to be collected."""
        stored = {info.key for info in self.writer.list_objects(job_prefix(self.job_id))}
        known = [task_key for task_key in task_keys if self.key(task_key) in stored]
        loaded = IO_POOL.map_all(lambda task_key: self._load(task_key, condemned), known)
        return {task_key: result for task_key, result in zip(known, loaded, strict=True) if result is not None}

    def remove(self) -> None:
        """Remove all records of the job, after its commit."""
        self.writer.delete_many([info.key for info in self.writer.list_objects(job_prefix(self.job_id))])

    def _load(self, task_key: str, condemned: CondemnedKeys) -> TaskResult | None:
        key = self.key(task_key)
        try:
            result = decode_result(self.writer.read(key).data, task_key, key)
        except (CorruptError, ObjectNotFoundError):
            return None
        is_usable = all(_is_stored(self.writer, made, condemned) for made in result.blobs)
        if not is_usable:
            self.writer.delete(key)  # else a worker would take it over
        return result if is_usable else None


def _is_stored(reader: Reader, made: TaskBlob, condemned: CondemnedKeys) -> bool:
    if made.generation is None and made.hash in condemned:
        return False
    try:
        return reader.stat(blob_key(made.hash, made.generation)).size_bytes == made.byte_size
    except ObjectNotFoundError:
        return False


def encode_result(task_key: str, result: TaskResult) -> bytes:
    """Return the bytes of a record."""
    blobs: list[Json] = [[made.hash, made.byte_size, made.generation] for made in result.blobs]
    body: dict[str, Json] = {"format": _FORMAT, "task": task_key, "value": result.value, "blobs": blobs}
    return canonical_json({**body, "checksum": sha256_hex(canonical_json(body))})


def decode_result(data: bytes, task_key: str, where: str) -> TaskResult:
    """Read a record. Raise `CorruptError` if it is not that of the task."""
    body: Any = decode_json(data, where)
    if not isinstance(body, dict):
        raise CorruptError(f"{where} is not a record of a task")
    checksum = body.pop("checksum", None)
    if checksum != sha256_hex(canonical_json(body)):
        raise CorruptError(f"{where} does not match its checksum")
    number = body.get("format")
    if isinstance(number, int) and number > _FORMAT:
        raise UnsupportedError(f"{where} has format {number}; this warpdata reads {_FORMAT}", hint="Upgrade warpdata.")
    if number != _FORMAT or body.get("task") != task_key or "value" not in body:
        raise CorruptError(f"{where} is not the record of task {task_key[:12]}")
    return TaskResult(body["value"], tuple(_blobs(body, where)))


def _blobs(body: Mapping[str, Any], where: str) -> list[TaskBlob]:
    try:
        listed = msgspec.convert(body.get("blobs"), list[tuple[str, int, str | None]])
    except msgspec.ValidationError as error:
        raise CorruptError(f"{where} lists no blobs: {error}") from error
    for digest, size, _ in listed:
        if not is_digest(digest) or size < 0:
            raise CorruptError(f"{where} names {digest!r} of {size} bytes, which is no blob")
    return [TaskBlob(*each) for each in listed]
