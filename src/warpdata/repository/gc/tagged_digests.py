"""A compact map from digests to small numbers, for stores with many millions of blobs.

Entries are appended to 256 buffers by their first byte and made unique when a buffer has doubled. One bucket at a
time becomes a dictionary. A digest takes 34 bytes, at most twice while it waits for that.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["TaggedDigests"]

_WIDTH = 34
_FIRST_COMPACTION_BYTES = 64 * _WIDTH * 16


class TaggedDigests:
    """The smallest tag of each digest. Tags are 0 to 65,535. Not safe to share between threads."""

    def __init__(self) -> None:
        self._buckets = [bytearray() for _ in range(256)]
        self._compact_at = [_FIRST_COMPACTION_BYTES] * 256

    def __len__(self) -> int:
        """The number of distinct digests."""
        for place in range(256):
            self._compact(place)
        return sum(len(bucket) for bucket in self._buckets) // _WIDTH

    @property
    def size_bytes(self) -> int:
        """Memory of the buffers."""
        return sum(len(bucket) for bucket in self._buckets)

    def update(self, digests: Iterable[str], tag: int) -> None:
        """Add digests of 64 hex digits with one tag. A smaller tag of the same digest wins."""
        suffix = tag.to_bytes(2, "big")
        for digest in digests:
            place = int(digest[:2], 16)
            bucket = self._buckets[place]
            bucket += bytes.fromhex(digest) + suffix
            if len(bucket) >= self._compact_at[place]:
                self._compact(place)

    def bucket(self, place: int) -> dict[str, int]:
        """Return the digests that begin with this byte, with their tags."""
        return {digest.hex(): tag for digest, tag in self._tags(place).items()}

    def _compact(self, place: int) -> None:
        tags = self._tags(place)
        self._buckets[place] = bytearray(b"".join(digest + tag.to_bytes(2, "big") for digest, tag in tags.items()))
        self._compact_at[place] = max(_FIRST_COMPACTION_BYTES, 2 * len(self._buckets[place]))

    def _tags(self, place: int) -> dict[bytes, int]:
        bucket = bytes(self._buckets[place])
        tags: dict[bytes, int] = {}
        for start in range(0, len(bucket), _WIDTH):
            digest, tag = bucket[start : start + 32], int.from_bytes(bucket[start + 32 : start + _WIDTH], "big")
            tags[digest] = min(tag, tags.get(digest, tag))
        return tags
