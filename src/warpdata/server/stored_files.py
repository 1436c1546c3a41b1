"""Files of versions as HTTP answers: how one is found, and the status and headers of a read.

The routes and the fast path answer with what this module says, so that both say the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from warpdata.datasets import Dataset
from warpdata.kinds.artifacts import Artifact, Member
from warpdata.server.byte_ranges import parse_range
from warpdata.server.media_types import is_active, media_type

__all__ = [
    "FOREVER",
    "REVALIDATED",
    "SIGNED",
    "FileHead",
    "FileRequest",
    "StoredFile",
    "file_head",
    "find_file",
    "safe_name",
]

FOREVER = "private, max-age=31536000, immutable"
REVALIDATED = "private, no-cache"
SIGNED = "private, max-age=3600"
_CROSS_ORIGIN = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Expose-Headers": "ETag, Content-Length, Content-Range, Accept-Ranges",
    "Cross-Origin-Resource-Policy": "cross-origin",
}


@dataclass(frozen=True)
class StoredFile:
    """A file of one version, found but not read."""

    artifact: Artifact
    member: Member
    sha256: str | None

    @property
    def path(self) -> str:
        return self.member.path

    @property
    def size_bytes(self) -> int:
        return self.member.size_bytes

    @property
    def etag(self) -> str:
        return f'"{self.sha256}"' if self.sha256 else f'"xxh3-{self.member.xxh3:016x}-{self.size_bytes:x}"'


def find_file(dataset: Dataset, artifact: str | None, path: str) -> StoredFile:
    """Find a file in an artifact, by default the one called "images" or the only one."""
    chosen = "images" if artifact is None and "images" in dataset.manifest.artifacts else artifact
    opened = dataset.artifact(chosen)
    member = opened.member(path)
    is_whole = opened.entry.kind == "files" and opened.entry.compression is None
    return StoredFile(opened, member, opened.blob_of(member).hash if is_whole else None)


@dataclass(frozen=True, slots=True)
class FileRequest:
    """What a client asks of a file."""

    method: str
    range: str | None
    if_none_match: str | None
    caching: str
    is_cross_origin: bool = False
    """Any web page may read the answer."""


@dataclass(frozen=True, slots=True)
class FileHead:
    """Status and headers of an answer, and the bytes of the file that follow; None if none do."""

    status: int
    headers: dict[str, str]
    span: range | None


def file_head(file: StoredFile, request: FileRequest) -> FileHead:
    """Answer a read of a file, without its bytes."""
    kind, etag = media_type(file.path), file.etag
    headers = {
        "Accept-Ranges": "bytes",
        "ETag": etag,
        "Cache-Control": request.caching,
        "Content-Security-Policy": "sandbox; default-src 'none'",
        "Content-Disposition": f"{'attachment' if is_active(kind) else 'inline'}; {_disposition(file.path)}",
        **(_CROSS_ORIGIN if request.is_cross_origin else {}),
    }
    if request.if_none_match is not None and etag in request.if_none_match:
        return FileHead(304, headers, None)
    span = parse_range(request.range, file.size_bytes)
    if span is None:
        headers["Content-Range"] = f"bytes */{file.size_bytes}"
        return FileHead(416, headers, None)
    headers["Content-Length"] = str(len(span))
    headers["Content-Type"] = kind if not kind.startswith("text/") or "charset" in kind else f"{kind}; charset=utf-8"
    status = 200
    if request.range is not None and len(span) < file.size_bytes:
        status = 206
        headers["Content-Range"] = f"bytes {span.start}-{span.stop - 1}/{file.size_bytes}"
    return FileHead(status, headers, None if request.method == "HEAD" else span)


def safe_name(path: str) -> str:
    """Return the name of a file in letters that stay as they are in a URL."""
    name = path.rpartition("/")[2]
    return "".join(char if char.isascii() and (char.isalnum() or char in "._-") else "_" for char in name)[-128:]


def _disposition(path: str) -> str:
    return f"filename=\"{safe_name(path)}\"; filename*=UTF-8''{quote(path.rpartition('/')[2], safe='')}"
