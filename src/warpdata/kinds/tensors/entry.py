"""A set of tensors in a manifest: the generic payload ↔ a typed entry. Pure, and without NumPy.

Implements "In the manifest" of docs/specs/tensors.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from warpdata.errors import ArtifactNotFoundError, ManifestCorruptedError, UnsupportedFormatError
from warpdata.primitives.hashing import Blob
from warpdata.primitives.suggest import suggest
from warpdata.repository.manifest import Manifest, Payload, ShardList

__all__ = ["TensorsEntry", "find_tensors"]

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
            raise UnsupportedFormatError(
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


def find_tensors(dataset_id: str, manifest: Manifest, name: str | None) -> tuple[str, TensorsEntry]:
    """Return a set by name, or the only set. `ArtifactNotFoundError` lists the names."""
    names = sorted(manifest.tensors)
    if name is None:
        if len(names) != 1:
            hint = f"Name one of: {', '.join(names)}." if names else None
            raise ArtifactNotFoundError(f"{dataset_id} has {len(names)} sets of tensors", hint=hint)
        name = names[0]
    payload = manifest.tensors.get(name)
    if payload is None:
        hint = suggest(name, names, label="Tensors")
        raise ArtifactNotFoundError(f"{dataset_id} has no tensors {name!r}", hint=hint)
    return name, TensorsEntry.of(name, payload)
