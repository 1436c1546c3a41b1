"""Manifests as JSON documents, and the version hash.

The hash covers the manifest without `version_hash`, `metadata` and every `uri`. Implements "Version" of
docs/specs/manifest.md; `parse.py` is the way back.
"""

from __future__ import annotations

from warpdata.primitives.hashing import blob_key, sha256_hex
from warpdata.repository.manifest.canonical import Json, canonical_json
from warpdata.repository.manifest.model import FORMAT, Binding, Manifest, Payload, ShardList, TableEntry
from warpdata.repository.manifest.pages import page_json, shard_json

__all__ = ["to_document", "version_of"]


def version_of(manifest: Manifest) -> str:
    """Return the version: 64 hex digits, the hash of the content."""
    return sha256_hex(canonical_json(to_document(manifest, with_uris=False)))


def to_document(manifest: Manifest, *, with_uris: bool) -> dict[str, Json]:
    """Return the document of a manifest, without its version and its metadata."""
    document: dict[str, Json] = {
        "format": FORMAT,
        "dataset_id": manifest.dataset_id,
        "tables": {name: _table(entry, with_uris) for name, entry in manifest.tables.items()},
        "stats": {"total_rows": manifest.row_count, "total_bytes": manifest.data_bytes},
    }
    for section, payloads in manifest.payloads().items():
        if payloads:
            document[section] = {name: _payload(entry, with_uris) for name, entry in payloads.items()}
    if manifest.bindings:
        document["bindings"] = [_binding(binding) for binding in sorted(manifest.bindings, key=_binding_order)]
    return document


def _table(entry: TableEntry, with_uris: bool) -> Json:
    out: dict[str, Json] = {"format": entry.format, **_shards(entry.shards, with_uris)}
    if entry.schema is not None:
        out["schema"] = entry.schema
    return out


def _payload(entry: Payload, with_uris: bool) -> Json:
    out: dict[str, Json] = {"kind": entry.kind, **_shards(entry.shards, with_uris)}
    if entry.index is not None:
        index: dict[str, Json] = {"hash": entry.index.hash, "byte_size": entry.index.byte_size}
        out["index"] = _placed(index, entry.index.hash, with_uris)
    if entry.attributes:
        out["attributes"] = dict(entry.attributes)
    return out


def _shards(shards: ShardList, with_uris: bool) -> dict[str, Json]:
    out: dict[str, Json] = {"shards": [_placed(shard_json(shard), shard.hash, with_uris) for shard in shards.shards]}
    if shards.levels:
        pages: list[Json] = [_placed(page_json(page), page.hash, with_uris) for page in shards.pages]
        out["shard_pages"] = {"levels": shards.levels, "pages": pages}
    return out


def _placed(entry: dict[str, Json], digest: str, with_uris: bool) -> dict[str, Json]:
    """Add the key of the blob, if wanted."""
    return {**entry, "uri": blob_key(digest)} if with_uris else entry


def _binding(binding: Binding) -> Json:
    return {
        "table": binding.table,
        "column": binding.column,
        "artifact": binding.artifact,
        "ref_type": binding.ref_type,
    }


def _binding_order(binding: Binding) -> tuple[str, str, str, str]:
    return binding.table, binding.column, binding.artifact, binding.ref_type
