"""Changes of a collection behind a service: files are sent, receipts compared, and all is committed by one request.

Small files travel together in archives, large ones in parts. What the service has acknowledged is not sent again, also
not by another process: the id of an upload follows from its files.
"""

from __future__ import annotations

import base64
import io
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warpdata.collections.changes import StoredFile
from warpdata.collections.tables import FILES
from warpdata.errors import ConflictError, InvalidSourceError
from warpdata.limits import MIB
from warpdata.primitives.hashing import sha256_hex
from warpdata.primitives.parallel import IO_POOL
from warpdata.primitives.progress import Progress, ProgressCounter
from warpdata.storage import ServiceClient

__all__ = ["COMMIT_TIMEOUT_S", "LocalFile", "UploadRequest", "send_upload"]

_ARCHIVE_BYTES, _ARCHIVE_FILES = 4 * MIB, 1_000
_PART_BYTES = 8 * MIB
_MAX_ATTEMPTS = 1_000
_TUS = {"Tus-Resumable": "1.0.0"}
COMMIT_TIMEOUT_S = 600.0
"""A commit copies and hashes all files of its batch before it answers."""


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file to send, and the hash that it had when it was added."""

    stored: StoredFile
    content: Path


@dataclass(frozen=True, slots=True)
class UploadRequest:
    """One commit: files, and what is said about images. With a key, it is done at most once."""

    dataset_id: str
    files: Sequence[LocalFile]
    plan: Mapping[str, Any]
    key: str | None


def send_upload(client: ServiceClient, request: UploadRequest, progress: Progress) -> str:
    """Send the files that the service does not have, commit, and return the version."""
    root = f"/datasets/{request.dataset_id}/uploads"
    upload = _begin(client, root, request)
    if upload["version"] is not None:
        return str(upload["version"])
    base, known = f"{root}/{upload['id']}", {one["path"]: one["sha256"] for one in upload["files"]}
    counter = ProgressCounter(
        progress, "upload", sum(one.stored.size_bytes for one in request.files), len(request.files)
    )
    missing = []
    for one in request.files:
        if known.get(one.stored.path) == one.stored.hash:
            _count(counter, [one])
        else:
            missing.append(one)

    def send(group: Sequence[LocalFile]) -> None:
        if group[0].stored.size_bytes > _ARCHIVE_BYTES:
            _send_parts(client, base, group[0], counter)
        else:
            _send_archive(client, base, group)
            _count(counter, group)

    IO_POOL.map_all(send, list(_groups(missing)))
    reply = client.send_json("POST", f"{base}/commit", dict(request.plan), timeout_s=COMMIT_TIMEOUT_S)
    return str(reply["version"])


def _begin(client: ServiceClient, root: str, request: UploadRequest) -> Mapping[str, Any]:
    """Begin the upload of a key, or of these files. One of equal files that was committed before is another upload."""
    listed = "".join(f"{one.stored.hash} {one.stored.path}\n" for one in request.files)
    digest = sha256_hex(listed.encode())
    for attempt in range(_MAX_ATTEMPTS):
        name = f"key {request.key}" if request.key is not None else f"files {digest} {attempt}"
        upload: Mapping[str, Any] = client.send_json("POST", root, {"artifact": FILES, "key": name})
        if request.key is not None or upload["version"] is None:
            return upload
    raise ConflictError(f"these files were uploaded {_MAX_ATTEMPTS:,} times already", hint="Pass a key.")


def _groups(files: Iterable[LocalFile]) -> Iterator[list[LocalFile]]:
    """Yield large files alone, and small ones together."""
    group: list[LocalFile] = []
    size = 0
    for one in files:
        if one.stored.size_bytes > _ARCHIVE_BYTES:
            yield [one]
            continue
        if group and (size + one.stored.size_bytes > _ARCHIVE_BYTES or len(group) >= _ARCHIVE_FILES):
            yield group
            group, size = [], 0
        group.append(one)
        size += one.stored.size_bytes
    if group:
        yield group


def _send_archive(client: ServiceClient, base: str, group: Sequence[LocalFile]) -> None:
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for one in group:
            data = _read(one)
            member = tarfile.TarInfo(one.stored.path)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    headers = {"Content-Type": "application/x-tar"}
    reply = client.send("POST", f"{base}/archive", body=body.getvalue(), headers=headers, is_repeatable=True)
    received = {file["path"]: file["sha256"] for file in reply.json()["files"]}
    for one in group:
        if received.get(one.stored.path) != one.stored.hash:
            raise _changed(one)


def _send_parts(client: ServiceClient, base: str, one: LocalFile, counter: ProgressCounter) -> None:
    """Send a file by the tus protocol, from the byte that the service has."""
    named = {"filename": one.stored.path, "sha256": one.stored.hash}
    metadata = ",".join(f"{name} {base64.b64encode(value.encode()).decode()}" for name, value in named.items())
    begun = client.send(
        "POST",
        f"{base}/partial",
        headers={**_TUS, "Upload-Length": str(one.stored.size_bytes), "Upload-Metadata": metadata},
        is_repeatable=True,
    )
    path = f"{base}/partial/{begun.headers['location'].rpartition('/')[2]}"
    offset = int(begun.headers["upload-offset"])
    counter.add_bytes(offset)
    with one.content.open("rb") as file:
        while offset < one.stored.size_bytes:
            file.seek(offset)
            data = file.read(min(_PART_BYTES, one.stored.size_bytes - offset))
            if not data:
                raise _changed(one)
            checksum = base64.b64encode(bytes.fromhex(sha256_hex(data))).decode()
            offset = _send_part(client, path, offset, data, f"sha256 {checksum}")
            counter.add_bytes(len(data))
    counter.finish_file()


def _send_part(client: ServiceClient, path: str, offset: int, data: bytes, checksum: str) -> int:
    """Send one part, and return the offset behind it. A conflict may be the echo of a part that has arrived."""
    headers = {
        **_TUS,
        "Content-Type": "application/offset+octet-stream",
        "Upload-Offset": str(offset),
        "Upload-Checksum": checksum,
    }
    try:
        reply = client.send("PATCH", path, body=data, headers=headers, is_repeatable=True)
    except ConflictError:
        found = int(client.send("HEAD", path, headers=_TUS, is_repeatable=True).headers["upload-offset"])
        if found != offset + len(data):
            raise
        return found
    return int(reply.headers["upload-offset"])


def _read(one: LocalFile) -> bytes:
    data = one.content.read_bytes()
    if len(data) != one.stored.size_bytes:
        raise _changed(one)
    return data


def _count(counter: ProgressCounter, files: Iterable[LocalFile]) -> None:
    for one in files:
        counter.add_bytes(one.stored.size_bytes)
        counter.finish_file()


def _changed(one: LocalFile) -> InvalidSourceError:
    return InvalidSourceError(f"{one.content} changed while it was added as {one.stored.path!r}")
