"""The media type of a file by its name, for browsers.

A type that a browser may run is only ever a download; everything else is shown in a sandbox, and never sniffed.
"""

from __future__ import annotations

__all__ = ["is_active", "media_type"]

_DEFAULT = "application/octet-stream"
_TYPES = {
    "avif": "image/avif",
    "bmp": "image/bmp",
    "gif": "image/gif",
    "jpeg": "image/jpeg",
    "jpg": "image/jpeg",
    "png": "image/png",
    "svg": "image/svg+xml",
    "tif": "image/tiff",
    "tiff": "image/tiff",
    "webp": "image/webp",
    "flac": "audio/flac",
    "mp3": "audio/mpeg",
    "oga": "audio/ogg",
    "ogg": "audio/ogg",
    "wav": "audio/wav",
    "mkv": "video/x-matroska",
    "mov": "video/quicktime",
    "mp4": "video/mp4",
    "webm": "video/webm",
    "csv": "text/csv; charset=utf-8",
    "htm": "text/html",
    "html": "text/html",
    "json": "application/json",
    "jsonl": "application/x-ndjson",
    "md": "text/plain; charset=utf-8",
    "parquet": "application/vnd.apache.parquet",
    "pdf": "application/pdf",
    "txt": "text/plain; charset=utf-8",
    "xhtml": "application/xhtml+xml",
    "xml": "text/xml",
}
_SHOWN = ("image/", "audio/", "video/", "text/plain", "text/csv", "application/json")


def media_type(path: str) -> str:
    """Return the type that the name of a file says; a general one for other names."""
    return _TYPES.get(path.rpartition(".")[2].lower(), _DEFAULT)


def is_active(kind: str) -> bool:
    """Return whether a browser could run this type, or is not known to show it harmlessly."""
    return kind == "image/svg+xml" or not kind.startswith(_SHOWN)
