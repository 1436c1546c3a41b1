"""A set of tensors in a manifest: generic payload ↔ what readers need. Pure, and without numpy.

Implements "In the manifest" of docs/specs/tensors.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from warpdata.errors import ManifestCorruptedError, UnsupportedFormatError
from warpdata.primitives.hashing import Blob
from warpdata.repository.manifest import Payload, ShardList

__all__ = ["TensorsEntry"]

_KIND = "tensor_shards"
_KNOWN = {"artifact_id", "tensors"}


@dataclass(frozen=True, slots=True)
class TensorsEntry:
    """`index` holds what a canonical file has behind its data, `shards` are the data."""

    shards: ShardList
    index: Blob
    artifact_id: str
    tensor_count: int

    @property
    def kind(self) -> str:
        return _KIND

    def payload(self) -> Payload:
        """As it stands in a manifest."""
        attributes: dict[str, int | str] = {"artifact_id": self.artifact_id, "tensors": self.tensor_count}
        return Payload(_KIND, self.shards, self.index, attributes)

    @staticmethod
    def of(name: str, payload: Payload) -> TensorsEntry:
        """`ManifestCorruptedError` if the entry lacks what a reader needs."""
        attributes = payload.attributes
        unknown = sorted(attributes.keys() - _KNOWN)
        if payload.kind != _KIND or unknown:
            raise UnsupportedFormatError(
                f"tensors {name!r} use what this release does not know: kind {payload.kind!r}, attributes {unknown}",
                hint="Upgrade warpdata.",
            )
        identity, count = attributes.get("artifact_id"), attributes.get("tensors")
        if payload.index is None:
            raise ManifestCorruptedError(f"tensors {name!r} lack their index")
        if not isinstance(identity, str) or not identity.startswith("mi2:") or identity.count(":") != 2:
            raise ManifestCorruptedError(f"tensors {name!r} cannot have the id {identity!r}")
        if not isinstance(count, int) or isinstance(count, bool) or count < 0:
            raise ManifestCorruptedError(f"tensors {name!r} cannot be {count!r} in number")
        return TensorsEntry(payload.shards, payload.index, identity, count)
