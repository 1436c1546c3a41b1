"""Modes that users choose, and policies that say when a whole blob is fetched.

Implements "Modes" of docs/specs/cache.md.
"""

from __future__ import annotations

from enum import Enum, StrEnum

from warpdata.errors import BadInputError
from warpdata.limits import KIB

__all__ = ["FetchPolicy", "Mode", "parse_mode"]


class Mode(StrEnum):
    """`auto` caches what is read often, `remote` nothing, `hybrid` all that is read; `local` uses no store."""

    AUTO = "auto"
    REMOTE = "remote"
    HYBRID = "hybrid"
    LOCAL = "local"


def parse_mode(text: str) -> Mode:
    """Return the mode of that name; `BadInputError` for any other text."""
    try:
        return Mode(text)
    except ValueError:
        raise BadInputError(f"{text!r} is not a mode", hint=f"Use one of {', '.join(Mode)}.") from None


class FetchPolicy(Enum):
    """When reads of a blob cause the whole blob to be fetched in the background.

    A blob is due after `after_reads` reads, or when reads asked for `after_fraction` of its bytes and for
    `record_after_bytes`. A blob that is not due keeps what reads fetch, once they asked for `record_after_bytes`.
    An `is_eager` policy evicts any entry that is not in use; others evict only idle entries.
    """

    MEDIA = (8, None, 256 * KIB, False)
    """For single members of large shards."""
    TABLES = (None, 0.5, 64 * KIB, False)
    """For column chunks, which may be a small part of a shard."""
    EPOCHS = (1, None, 0, False)
    """For streams that will read everything."""
    EAGER = (1, None, 0, True)
    """For mode `hybrid` and for warming."""

    def __init__(
        self, after_reads: int | None, after_fraction: float | None, record_after_bytes: int, is_eager: bool
    ) -> None:
        self.after_reads = after_reads
        self.after_fraction = after_fraction
        self.record_after_bytes = record_after_bytes
        self.is_eager = is_eager

    def is_due(self, read_count: int, asked_bytes: int, size_bytes: int | None) -> bool:
        if self.after_reads is not None and read_count >= self.after_reads:
            return True
        if self.after_fraction is None or size_bytes is None:
            return False
        return asked_bytes >= max(self.record_after_bytes, self.after_fraction * size_bytes)
