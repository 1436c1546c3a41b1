"""Entries of artifacts in a manifest, converted from and to generic payloads. Pure.

Implements "In the manifest" of docs/specs/artifacts.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from warpdata.errors import ManifestCorruptedError, UnsupportedError
from warpdata.primitives.hashing import Blob
from warpdata.repository.manifest import ARTIFACT_KINDS, Footer, JsonObject, Payload, ShardList

__all__ = ["ArtifactEntry"]

_KNOWN = {"members", "index_footer", "compression"}
_COMPRESSED_KIND = "tar_shards"
_SMALLEST_FOOTER = 40
"""An empty root page and the trailer."""


@dataclass(frozen=True, slots=True)
class ArtifactEntry:
    kind: str
    shards: ShardList
    index: Blob
    index_footer: Footer
    member_count: int
    compression: str | None = None

    def payload(self) -> Payload:
        attributes: dict[str, int | str | dict[str, int | str]] = {
            "members": self.member_count,
            "index_footer": {"byte_size": self.index_footer.byte_size, "xxh3": self.index_footer.xxh3},
        }
        if self.compression is not None:
            attributes["compression"] = self.compression
        return Payload(self.kind, self.shards, self.index, attributes)

    @staticmethod
    def of(name: str, payload: Payload) -> ArtifactEntry:
        """Parse a payload. Raise `ManifestCorruptedError` if a field is missing or impossible."""
        attributes = payload.attributes
        members, footer, compression = (attributes.get(key) for key in ("members", "index_footer", "compression"))
        unknown = sorted(attributes.keys() - _KNOWN)
        is_known = payload.kind in ARTIFACT_KINDS if compression is None else payload.kind == _COMPRESSED_KIND
        if unknown or not is_known or compression not in (None, "zstd"):
            raise UnsupportedError(
                f"artifact {name!r} needs a newer release of warpdata: "
                f"kind {payload.kind!r}, compression {compression!r}, attributes {unknown}",
                hint="Upgrade warpdata.",
            )
        if payload.index is None or not isinstance(footer, dict):
            raise ManifestCorruptedError(f"artifact {name!r} has no member index")
        if not isinstance(members, int) or isinstance(members, bool) or members < 0:
            raise ManifestCorruptedError(f"artifact {name!r} cannot have {members!r} members")
        return ArtifactEntry(
            kind=payload.kind,
            shards=payload.shards,
            index=payload.index,
            index_footer=_footer(name, footer, payload.index.byte_size),
            member_count=members,
            compression=str(compression) if compression else None,
        )


def _footer(name: str, footer: JsonObject, limit: int) -> Footer:
    size, xxh3 = footer.get("byte_size"), footer.get("xxh3")
    if footer.keys() - {"byte_size", "xxh3"}:
        raise UnsupportedError(
            f"the index footer of artifact {name!r} needs a newer release of warpdata: {dict(footer)}",
            hint="Upgrade warpdata.",
        )
    if (
        not isinstance(size, int)
        or not isinstance(xxh3, str)
        or not _SMALLEST_FOOTER <= size <= limit
        or not _is_hex(xxh3)
    ):
        raise ManifestCorruptedError(f"artifact {name!r} has an impossible index footer: {dict(footer)}")
    return Footer(size, xxh3)


def _is_hex(text: str) -> bool:
    return len(text) == 16 and all(digit in "0123456789abcdef" for digit in text)
