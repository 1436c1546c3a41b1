"""Many small files in one request: an uncompressed tar archive, which is stored as it came.

Files are found in the archive by their place, and nothing is unpacked. Links, devices and sparse files are refused.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator

from warpdata.errors import BadInputError
from warpdata.kinds.artifacts import check_member_path
from warpdata.limits import MAX_UPLOAD_FILES
from warpdata.primitives.hashing import sha256_hex
from warpdata.server.database import UploadRow
from warpdata.server.service import Service
from warpdata.server.uploads.image_check import HEADER_BYTES, check_image
from warpdata.server.uploads.received import Piece, ReceivedFile, check_room, object_key, record_files

__all__ = ["receive_archive"]


def receive_archive(service: Service, upload: UploadRow, data: bytes) -> list[ReceivedFile]:
    """Store the files of an archive, and return their receipts. All of them are acknowledged, or none."""
    name = sha256_hex(data)
    found: dict[str, tuple[ReceivedFile, list[Piece]]] = {}
    for path, start, size in _members(data):
        if path in found:
            raise BadInputError(f"the archive has {path!r} twice")
        content = memoryview(data)[start : start + size]
        if upload.only_images:
            check_image(path, bytes(content[:HEADER_BYTES]))
        found[path] = (ReceivedFile(path, sha256_hex(content), size), [(name, start, size)])
    if not found:
        raise BadInputError("the archive has no files")
    check_room(service, upload, len(found), sum(file.size_bytes for file, _ in found.values()))
    service.session.writer.create(object_key(upload.id, name), data)
    record_files(service, upload.id, list(found.values()))
    return [file for file, _ in found.values()]


def _members(data: bytes) -> Iterator[tuple[str, int, int]]:
    """Yield path, first byte and size of each file. Every value is compared with the archive itself."""
    count = 0
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
            for member in archive:
                count += 1
                if count > 2 * MAX_UPLOAD_FILES:
                    raise BadInputError(f"the archive has more than {MAX_UPLOAD_FILES:,} entries")
                if member.isdir():
                    continue
                path = member.name.removeprefix("./")
                if not member.isreg() or member.sparse is not None:
                    raise BadInputError(f"{path[:200]!r} in the archive is not a plain file")
                check_member_path(path, "upload")
                if member.size < 0 or member.offset_data + member.size > len(data):
                    raise BadInputError(f"the archive ends inside of {path!r}", hint="Send it again.")
                yield path, member.offset_data, member.size
    except (tarfile.TarError, ValueError, OverflowError, EOFError, OSError, RecursionError) as error:
        if isinstance(error, BadInputError):
            raise
        raise BadInputError(f"the body is not a tar archive: {error}", hint="Send it without compression.") from error
