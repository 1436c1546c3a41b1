"""The manifest entry of an episode set: generic payload ↔ `EpisodesEntry`. Pure.

Implements "In the manifest" of docs/specs/episodes.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from warpdata.errors import ManifestCorruptedError, UnsupportedError
from warpdata.limits import EPISODES_MAX_CHECK_BYTES, MAX_FOOTER_BYTES
from warpdata.primitives.hashing import Blob
from warpdata.repository.manifest import Footer, Payload, Shard, ShardList, TableEntry

__all__ = ["KIND", "EpisodesEntry"]

KIND = "wshard"
_COUNTS = ("episodes", "steps", "check_bytes")
_KNOWN = {*_COUNTS, "files", "index_footer"}


@dataclass(frozen=True, slots=True)
class EpisodesEntry:
    """Episode files as shards, in order, and the index with a row for each episode."""

    shards: ShardList
    index: Blob
    index_footer: Footer
    episode_count: int
    step_count: int
    check_bytes: int
    file_count: int | None = None
    """Number of files if some episodes have several; None if each has one."""

    def payload(self) -> Payload:
        footer: dict[str, int | str] = {"byte_size": self.index_footer.byte_size, "xxh3": self.index_footer.xxh3}
        attributes: dict[str, int | dict[str, int | str]] = {
            "episodes": self.episode_count,
            "steps": self.step_count,
            "check_bytes": self.check_bytes,
            "index_footer": footer,
        }
        if self.file_count is not None:
            attributes["files"] = self.file_count
        return Payload(KIND, self.shards, self.index, attributes)

    def table_entry(self) -> TableEntry:
        """Return the index as a table of one file."""
        blob = self.index
        return TableEntry(ShardList((Shard(blob.hash, blob.byte_size, self.episode_count, self.index_footer),)))

    @staticmethod
    def of(name: str, payload: Payload) -> EpisodesEntry:
        """Parse a payload; raise `ManifestCorruptedError` if it is incomplete or inconsistent."""
        attributes = payload.attributes
        unknown = sorted(attributes.keys() - _KNOWN)
        if unknown or payload.kind != KIND:
            raise UnsupportedError(
                f"episodes {name!r} need a newer release: kind {payload.kind!r}, unknown attributes {unknown}",
                hint="Upgrade warpdata.",
            )
        footer = attributes.get("index_footer")
        if payload.index is None or not isinstance(footer, Mapping):
            raise ManifestCorruptedError(f"episodes {name!r} have no index")
        episodes, steps, check_bytes = (_count(attributes.get(key)) for key in _COUNTS)
        if min(episodes, steps) < 0 or not 1 <= check_bytes <= EPISODES_MAX_CHECK_BYTES:
            raise ManifestCorruptedError(f"episodes {name!r} have invalid counts: {dict(attributes)}")
        files = _count(attributes["files"]) if "files" in attributes else None
        is_consistent = payload.shards.shard_count == (episodes if files is None else files)
        if not is_consistent or (files is not None and files <= episodes):
            raise ManifestCorruptedError(
                f"episodes {name!r} have {payload.shards.shard_count} files, but attributes {dict(attributes)}"
            )
        return EpisodesEntry(
            payload.shards, payload.index, _footer(name, footer, payload.index), episodes, steps, check_bytes, files
        )


def _footer(name: str, footer: Mapping[str, object], index: Blob) -> Footer:
    size, xxh3 = footer.get("byte_size"), footer.get("xxh3")
    if footer.keys() - {"byte_size", "xxh3"}:
        raise UnsupportedError(
            f"the index footer of episodes {name!r} has unknown attributes: {dict(footer)}", hint="Upgrade warpdata."
        )
    is_valid = 0 < _count(size) <= min(index.byte_size, MAX_FOOTER_BYTES)
    if not is_valid or not isinstance(xxh3, str) or not _is_hex(xxh3):
        raise ManifestCorruptedError(f"the index footer of episodes {name!r} is invalid: {dict(footer)}")
    return Footer(_count(size), xxh3)


def _count(value: object) -> int:
    """Return the count, or -1 for any other value."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else -1


def _is_hex(text: str) -> bool:
    return len(text) == 16 and all(digit in "0123456789abcdef" for digit in text)
