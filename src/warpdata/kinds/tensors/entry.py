"""A set of tensors in a manifest: the generic payload ↔ a typed entry. Pure, and without NumPy.

Implements "In the manifest" of docs/specs/tensors.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from warpdata.errors import ManifestCorruptedError, UnsupportedError
from warpdata.primitives.hashing import Blob
from warpdata.repository.manifest import Payload, ShardList

__all__ = ["TensorsEntry"]

_KIND = "tensor_shards"
_KNOWN = {"artifact_id", "tensors"}


@dataclass(frozen=True, slots=True)
class TensorsEntry:
    """`shards` are the data, `index` is the blob with the tail of a canonical file."""

    shards: ShardList
    index: Blob
    artifact_id: str
    tensor_count: int

    @property
    def kind(self) -> str:
        return _KIND

    def payload(self) -> Payload:
        """Return the manifest form."""
        attributes: dict[str, int | str] = {"artifact_id": self.artifact_id, "tensors": self.tensor_count}
        return Payload(_KIND, self.shards, self.index, attributes)

    @staticmethod
    def of(name: str, payload: Payload) -> TensorsEntry:
        """Parse a payload. `ManifestCorruptedError` if a required field is absent or wrong."""
        attributes = payload.attributes
        unknown = sorted(attributes.keys() - _KNOWN)
        if payload.kind != _KIND or unknown:
            raise UnsupportedError(
                f"tensors {name!r} have kind {payload.kind!r} and attributes {unknown}, "
                "which this release does not support",
                hint="Upgrade warpdata.",
            )
        identity, count = attributes.get("artifact_id"), attributes.get("tensors")
        if payload.index is None:
            raise ManifestCorruptedError(f"tensors {name!r} have no index")
        if not isinstance(identity, str) or not identity.startswith("mi2:") or identity.count(":") != 2:
            raise ManifestCorruptedError(f"tensors {name!r} have the id {identity!r}, which is not an artifact id")
        if not isinstance(count, int) or isinstance(count, bool) or count < 0:
            raise ManifestCorruptedError(f"tensors {name!r} have the count {count!r}, which is not a number of tensors")
        return TensorsEntry(payload.shards, payload.index, identity, count)
