"""Manifests: the content of a version, its canonical bytes and its hash. Pure values, no I/O.

docs/specs/manifest.md is the normative text; `schema.json` is the JSON Schema of the stored form.
"""

from warpdata.repository.manifest.canonical import Json, JsonObject, canonical_json
from warpdata.repository.manifest.codec import version_of
from warpdata.repository.manifest.compare import EntryChange, VersionDiff, compare, kept_blobs
from warpdata.repository.manifest.encoder import encode_manifest
from warpdata.repository.manifest.model import (
    FORMAT,
    PAYLOAD_SECTIONS,
    Binding,
    Footer,
    Manifest,
    ManifestEntry,
    Page,
    Payload,
    Shard,
    ShardList,
    TableEntry,
)
from warpdata.repository.manifest.pages import (
    LoadPage,
    PagedShards,
    ShardLookup,
    extend_shards,
    iter_rows,
    iter_shards,
    page_shards,
)
from warpdata.repository.manifest.parse import ARTIFACT_KINDS, DATASET_ID, ENTRY_NAME, REF_TYPES, parse_manifest

__all__ = [
    "ARTIFACT_KINDS",
    "DATASET_ID",
    "ENTRY_NAME",
    "FORMAT",
    "PAYLOAD_SECTIONS",
    "REF_TYPES",
    "Binding",
    "EntryChange",
    "Footer",
    "Json",
    "JsonObject",
    "LoadPage",
    "Manifest",
    "ManifestEntry",
    "Page",
    "PagedShards",
    "Payload",
    "Shard",
    "ShardList",
    "ShardLookup",
    "TableEntry",
    "VersionDiff",
    "canonical_json",
    "compare",
    "encode_manifest",
    "extend_shards",
    "iter_rows",
    "iter_shards",
    "kept_blobs",
    "page_shards",
    "parse_manifest",
    "version_of",
]
