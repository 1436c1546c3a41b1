"""Files outside of the store that a version names by URL: allowed by the settings, found, and read in place.

Implements "External shards" of docs/specs/manifest.md.
"""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from warpdata.errors import BadInputError, CorruptError, DeniedError, ObjectNotFoundError
from warpdata.primitives.hashing import Blob, blob_key
from warpdata.primitives.redaction import redact
from warpdata.settings import Settings
from warpdata.storage.from_url import SCHEMES, open_store
from warpdata.storage.generations import RenamedReader
from warpdata.storage.types import Reader

__all__ = ["check_external_url", "open_external"]


def check_external_url(url: str) -> str:
    """Return an absolute URL of a file. `BadInputError` for one that could mean another place, or carries secrets."""
    parts = urlsplit(url)
    is_plain = parts.scheme in SCHEMES and not parts.query and not parts.fragment and "@" not in parts.netloc
    steps = unquote(parts.path).split("/")[1:]
    if not is_plain or not steps or any(step in ("", ".", "..") for step in steps):
        raise BadInputError(
            f"{redact(url)!r} is not the plain URL of a file",
            hint="Write scheme://place/path/file, without a query and without relative steps.",
        )
    return url


def open_external(url: str, blob: Blob, settings: Settings, etag: str | None = None) -> Reader:
    """Return a reader that has the file under the key of its blob. Makes one request.

    Raise `DeniedError` unless the settings allow the place, and `CorruptError` if the file has another size or tag.
    """
    check_external_url(url)
    if not any(_is_below(url, prefix) for prefix in settings.external_prefixes):
        raise DeniedError(
            f"a shard of the table is the file {redact(url)} outside of the store, and the settings do not allow it",
            hint=f"Allow its place: WARP_EXTERNAL_PREFIXES={redact(url.rpartition('/')[0])}/",
        )
    place, _, name = url.rpartition("/")
    key = blob_key(blob.hash)
    reader = RenamedReader(open_store(place, settings), {key: unquote(name) if url.startswith("file://") else name})
    try:
        found = reader.stat(key)
    except ObjectNotFoundError as error:
        raise CorruptError(f"the external file {redact(url)} is gone", hint=_AGAIN) from error
    if found.size_bytes != blob.byte_size:
        raise CorruptError(
            f"the external file {redact(url)} has {found.size_bytes} bytes; {blob.byte_size} were published",
            hint=_AGAIN,
        )
    if etag is not None and found.etag != etag:
        raise CorruptError(
            f"the external file {redact(url)} was replaced: its tag is {found.etag}, and {etag} was published",
            hint=_AGAIN,
        )
    return reader


_AGAIN = "Restore the file, or publish the table again."


def _is_below(url: str, prefix: str) -> bool:
    """Return whether a URL is a place or below it. `s3://bucket/a` does not allow `s3://bucket/ab`."""
    return url == prefix or url.startswith(f"{prefix.rstrip('/')}/")
