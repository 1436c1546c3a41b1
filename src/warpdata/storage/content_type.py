"""Media types of stored objects, for browsers and tools that read a bucket directly.

The type follows from the key and the first bytes, so equal objects have equal types on every machine. A type that
makes a browser run code, such as HTML or SVG, is never stored. Implements "Object stores" of docs/specs/store.md.
"""

from __future__ import annotations

__all__ = ["SNIFFED_BYTES", "content_type"]

SNIFFED_BYTES = 512
_DEFAULT = "application/octet-stream"
_MAGIC = (
    (b"PAR1", "application/vnd.apache.parquet"),
    (b'{"entries":[', "application/json"),  # a page of a shard list
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"II*\0", "image/tiff"),
    (b"MM\0*", "image/tiff"),
    (b"BM", "image/bmp"),
    (b"ID3", "audio/mpeg"),
    (b"fLaC", "audio/flac"),
    (b"OggS", "audio/ogg"),
    (b"\x1a\x45\xdf\xa3", "video/webm"),
    (b"\x1f\x8b", "application/gzip"),
    (b"\x28\xb5\x2f\xfd", "application/zstd"),
    (b"PK\x03\x04", "application/zip"),
    (b"%PDF-", "application/pdf"),
)
_RIFF = {b"WAVE": "audio/wav", b"WEBP": "image/webp", b"AVI ": "video/x-msvideo"}
_TAR_AT = 257
_FTYP_AT = 4


def content_type(key: str, head: bytes) -> str:
    """Return the type of an object from its key and its first `SNIFFED_BYTES` bytes."""
    if key.endswith(".json"):
        return "application/json"
    if head[_TAR_AT : _TAR_AT + 5] == b"ustar":
        return "application/x-tar"
    if head[_FTYP_AT : _FTYP_AT + 4] == b"ftyp":
        return "image/avif" if head[8:12] in (b"avif", b"avis") else "video/mp4"
    if head.startswith(b"RIFF"):
        return _RIFF.get(head[8:12], _DEFAULT)
    return next((name for magic, name in _MAGIC if head.startswith(magic)), _DEFAULT)
