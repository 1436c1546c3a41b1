"""Manifests to bytes: encoded, and decoded again before they are stored.

A manifest that its own parser refuses would make a version unreadable for good. So the encoder runs the parser over
its result. Implements "Encoding" of docs/specs/manifest.md.
"""

from __future__ import annotations

from collections.abc import Mapping

from warpdata.errors import BadInputError, LimitExceededError, ManifestCorruptedError, UnsupportedError
from warpdata.limits import MAX_MANIFEST_BYTES, MAX_METADATA_BYTES
from warpdata.repository.manifest.canonical import canonical_json
from warpdata.repository.manifest.codec import to_document, version_of
from warpdata.repository.manifest.model import Manifest
from warpdata.repository.manifest.parse import parse_manifest

__all__ = ["encode_manifest"]

_ENCODED = "encoded"
_NAME_BYTES = len(',"metadata":')


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the bytes to store. Raise `LimitExceededError` if they exceed the size of a manifest.

    Raise `BadInputError` if a reader could not parse them. A manifest is encoded and parsed once.
    """
    known = manifest.memo.get(_ENCODED)
    if known is None:
        known = manifest.memo[_ENCODED] = _encode(manifest)
    return known


def _encode(manifest: Manifest) -> bytes:
    version = version_of(manifest)
    document = {**to_document(manifest, with_uris=True), "version_hash": version}
    encoded = canonical_json(document)
    _check_size("the manifest", manifest, encoded, MAX_MANIFEST_BYTES - MAX_METADATA_BYTES)
    if not isinstance(manifest.metadata, Mapping):
        raise BadInputError(f"metadata must be a mapping, not a {type(manifest.metadata).__name__}")
    if manifest.metadata:
        metadata = dict(manifest.metadata)
        size_bytes = MAX_METADATA_BYTES - _NAME_BYTES
        _check_size("the metadata", manifest, canonical_json(metadata, fractions=True), size_bytes)
        encoded = canonical_json({**document, "metadata": metadata}, fractions=True)
    try:
        parse_manifest(encoded, version)
    except (ManifestCorruptedError, UnsupportedError) as error:
        raise BadInputError(f"{manifest.dataset_id} cannot be stored, because {error.message}") from error
    return encoded


def _check_size(what: str, manifest: Manifest, data: bytes, limit: int) -> None:
    """Check one of the two budgets. Metadata has its own, so that it never changes the layout of a version."""
    if len(data) > limit:
        raise LimitExceededError(
            f"{what} of {manifest.dataset_id} would have {len(data)} bytes; the limit is {limit}",
            hint="Use fewer tables or shorter metadata; shard lists are paged and do not count.",
        )
