"""Manifests as JSON documents, the version hash, and the rules for the members of format 2.

The hash covers the manifest without `version_hash`, `metadata` and every `uri`. Manifests and pages share the encoding
of shards. Implements "Version" and "Rows" of docs/specs/manifest.md; `parse.py` is the way back.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import msgspec

from warpdata.limits import INLINE_POSITIONS, INLINE_RUNS, MAX_COLUMN_FILES, MAX_SCHEMA_CHANGES, MAX_URI_LENGTH
from warpdata.primitives.hashing import Blob, blob_key, is_digest, sha256_hex
from warpdata.repository.manifest.canonical import Json, JsonObject, canonical_json
from warpdata.repository.manifest.model import (
    Binding,
    ColumnFile,
    Deletes,
    External,
    Footer,
    Ids,
    Manifest,
    Page,
    Payload,
    SchemaChange,
    Shard,
    ShardList,
    TableEntry,
)

__all__ = [
    "ROW_MEMBERS",
    "check_changes",
    "check_shard",
    "convert_changes",
    "convert_row_members",
    "page_json",
    "shard_json",
    "to_document",
    "version_of",
]

ROW_MEMBERS = ("revision", "ids", "deletes", "files", "external")
"""The members of a shard that format 2 adds."""

_VERSION = "version"
_MAX_COUNT = 2**53
_TYPES: dict[str, Any] = {
    "revision": int,
    "ids": Ids,
    "deletes": Deletes,
    "files": tuple[ColumnFile, ...],
    "external": External,
}


def version_of(manifest: Manifest) -> str:
    """Return the version: 64 hex digits, the hash of the content. Computed once for each manifest."""
    known = manifest.memo.get(_VERSION)
    if known is None:
        known = sha256_hex(canonical_json(to_document(manifest, with_uris=False))).encode()
        manifest.memo[_VERSION] = known
    return known.decode()


def to_document(manifest: Manifest, *, with_uris: bool) -> dict[str, Json]:
    """Return the document of a manifest, without its version and its metadata."""
    document: dict[str, Json] = {
        "format": manifest.format,
        "dataset_id": manifest.dataset_id,
        "tables": {name: _table(entry, with_uris) for name, entry in manifest.tables.items()},
        "stats": {"total_rows": manifest.row_count, "total_bytes": manifest.data_bytes},
    }
    for section, payloads in manifest.payloads().items():
        if payloads:
            document[section] = {name: _payload(entry, with_uris) for name, entry in payloads.items()}
    if manifest.generations:
        document["generations"] = dict(manifest.generations)
    if manifest.bindings:
        document["bindings"] = [_binding(binding) for binding in sorted(manifest.bindings, key=_binding_order)]
    return document


def _table(entry: TableEntry, with_uris: bool) -> Json:
    out: dict[str, Json] = {"format": entry.format, **_shards(entry.shards, with_uris)}
    if entry.schema is not None:
        out["schema"] = entry.schema
    if entry.changes:
        out["schema_changes"] = [_change(change) for change in entry.changes]
    if entry.next_id is not None:
        out["next_id"] = entry.next_id
    return out


def _change(change: SchemaChange) -> Json:
    renamed = {} if change.renamed_to is None else {"renamed_to": change.renamed_to}
    return {"column": change.column, **renamed}


def _payload(entry: Payload, with_uris: bool) -> Json:
    out: dict[str, Json] = {"kind": entry.kind, **_shards(entry.shards, with_uris)}
    if entry.index is not None:
        index: dict[str, Json] = {"hash": entry.index.hash, "byte_size": entry.index.byte_size}
        out["index"] = _placed(index, entry.index.hash, with_uris)
    if entry.attributes:
        out["attributes"] = dict(entry.attributes)
    return out


def _shards(shards: ShardList, with_uris: bool) -> dict[str, Json]:
    out: dict[str, Json] = {"shards": [_shard(shard, with_uris) for shard in shards.shards]}
    if shards.levels:
        pages: list[Json] = [_placed(page_json(page), page.hash, with_uris) for page in shards.pages]
        out["shard_pages"] = {"levels": shards.levels, "pages": pages}
    return out


def _shard(shard: Shard, with_uris: bool) -> Json:
    return _placed(shard_json(shard), shard.hash, with_uris and shard.external is None)


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


def shard_json(shard: Shard) -> dict[str, Json]:
    """Encode a shard, for manifests and pages."""
    out = _file_json(shard.hash, shard.byte_size, shard.footer, shard.revision)
    if shard.row_count is not None:
        out["row_count"] = shard.row_count
    if shard.ids is not None:
        out["ids"] = _present(shard.ids)
    if shard.deletes is not None:
        out["deletes"] = _present(shard.deletes)
    if shard.files:
        out["files"] = [_file_json(file.hash, file.byte_size, file.footer, file.revision) for file in shard.files]
    if shard.external is not None:
        out["external"] = _present(shard.external)
    return out


def page_json(page: Page) -> dict[str, Json]:
    """Encode a page reference, for manifests and pages."""
    out: dict[str, Json] = {
        "hash": page.hash,
        "byte_size": page.byte_size,
        "shard_count": page.shard_count,
        "row_count": page.row_count,
        "data_bytes": page.data_bytes,
    }
    if page.deleted_count:
        out["deleted_count"] = page.deleted_count
    if page.format != 1:
        out["format"] = page.format
    return out


def convert_row_members(entry: JsonObject) -> dict[str, Any]:
    """Return the members of format 2, typed. Raise `msgspec.ValidationError` for another shape."""
    return {name: msgspec.convert(entry[name], type=_TYPES[name]) for name in ROW_MEMBERS if name in entry}


def convert_changes(value: Json) -> tuple[SchemaChange, ...]:
    """Return the schema changes of a table, typed. Raise `msgspec.ValidationError` for another shape."""
    return msgspec.convert(value, type=tuple[SchemaChange, ...])


def check_changes(changes: tuple[SchemaChange, ...]) -> Iterator[tuple[str, str]]:
    """Yield the member and the problem of everything that breaks a rule."""
    if not 1 <= len(changes) <= MAX_SCHEMA_CHANGES:
        yield "", f"lists {len(changes)} changes, not 1 to {MAX_SCHEMA_CHANGES}"
    for at, change in enumerate(changes):
        if not change.column or change.renamed_to == "" or change.renamed_to == change.column:
            yield f"[{at}]", "does not name a column and, for a rename, another name"


def check_shard(shard: Shard, revisions: int = MAX_SCHEMA_CHANGES) -> Iterator[tuple[str, str]]:
    """Yield the member and the problem of everything that breaks a rule of format 2.

    `revisions` is the number of schema changes of the table, if it is known.
    """
    if not 0 <= shard.revision <= revisions:
        yield "revision", f"is {shard.revision}; the table has {revisions} schema changes"
    if shard.ids is not None:
        yield from (("ids", problem) for problem in _check_ids(shard.ids, shard.stored_count))
    if shard.deletes is not None:
        yield from (("deletes", problem) for problem in _check_deletes(shard.deletes, shard.stored_count))
    if len(shard.files) > MAX_COLUMN_FILES:
        yield "files", f"lists {len(shard.files)} files; the limit is {MAX_COLUMN_FILES}"
    for at, file in enumerate(shard.files):
        where = f"files[{at}]"
        yield from ((where, problem) for problem in _check_blob(file.blob))
        if file.footer is not None and not 0 <= file.footer.byte_size <= file.byte_size:
            yield f"{where}.footer", f"has {file.footer.byte_size} bytes, more than its file"
        if not 0 <= file.revision <= revisions:
            yield f"{where}.revision", f"is {file.revision}; the table has {revisions} schema changes"
    if shard.external is not None and not 1 <= len(shard.external.uri) <= MAX_URI_LENGTH:
        yield "external.uri", f"has {len(shard.external.uri)} characters, not 1 to {MAX_URI_LENGTH}"


def _check_ids(ids: Ids, stored_count: int) -> Iterator[str]:
    forms = [ids.first is not None, ids.runs is not None, ids.hash is not None or ids.byte_size is not None]
    if sum(forms) != 1:
        yield "needs one of `first`, `runs`, or `hash` and `byte_size`"
    if ids.first is not None and not 0 <= ids.first <= _MAX_COUNT - stored_count:
        yield f"begins at {ids.first}, which does not fit in 53 bits"
    if ids.runs is not None:
        if not 2 <= len(ids.runs) <= INLINE_RUNS:
            yield f"lists {len(ids.runs)} runs, not 2 to {INLINE_RUNS}"
        if any(count < 1 or not 0 <= first <= _MAX_COUNT - count for first, count in ids.runs):
            yield "has an empty run, or ids that do not fit in 53 bits"
        if any(first + count == after for (first, count), (after, _) in pairwise(ids.runs)):
            yield "has two runs that are one"
        if sum(count for _, count in ids.runs) != stored_count:
            yield f"lists {sum(count for _, count in ids.runs)} ids; the file has {stored_count} rows"
    if forms[2]:
        yield from _check_blob(Blob(ids.hash or "", -1 if ids.byte_size is None else ids.byte_size))


def _check_deletes(deletes: Deletes, stored_count: int) -> Iterator[str]:
    forms = [deletes.positions is not None, deletes.hash is not None or deletes.byte_size is not None]
    if sum(forms) != 1:
        yield "needs either `positions`, or `hash` and `byte_size`"
    if not 1 <= deletes.row_count <= stored_count:
        yield f"counts {deletes.row_count} rows of {stored_count}"
    if deletes.positions is not None:
        if len(deletes.positions) > INLINE_POSITIONS or len(deletes.positions) != deletes.row_count:
            yield f"lists {len(deletes.positions)} positions for {deletes.row_count} rows (limit {INLINE_POSITIONS})"
        is_ascending = all(low < high for low, high in pairwise((-1, *deletes.positions, stored_count)))
        if not is_ascending:
            yield "has positions that do not ascend within the file"
    else:
        yield from _check_blob(Blob(deletes.hash or "", -1 if deletes.byte_size is None else deletes.byte_size))


def _check_blob(blob: Blob) -> Iterator[str]:
    if not is_digest(blob.hash):
        yield f"has the hash {blob.hash[:80]!r}, not 64 hex digits"
    if not 0 <= blob.byte_size < _MAX_COUNT:
        yield f"has {blob.byte_size} bytes, which is not a count"


def _file_json(digest: str, byte_size: int, footer: Footer | None, revision: int) -> dict[str, Json]:
    out: dict[str, Json] = {"hash": digest, "byte_size": byte_size}
    if footer is not None:
        out["footer"] = {"byte_size": footer.byte_size, "xxh3": footer.xxh3}
    if revision:
        out["revision"] = revision
    return out


def _present(struct: msgspec.Struct) -> dict[str, Json]:
    """Encode a struct without the members that are None."""
    return {name: value for name, value in msgspec.to_builtins(struct).items() if value is not None}
