"""The manifest a publish leads to, and the page blobs it needs. Pure.

Lists are inline while short; if the manifest would still be too large, all of them are paged. Either
way the result depends only on the content, so appending in steps and publishing at once meet in the
same version. Implements "Layout" of docs/specs/manifest.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from warpdata.errors import LimitExceededError
from warpdata.limits import INLINE_SHARDS, MAX_SECTION_ENTRIES
from warpdata.manifest import (
    JsonObject,
    LoadPage,
    Manifest,
    Shard,
    ShardList,
    TableEntry,
    encode_manifest,
    extend_shards,
)

__all__ = ["Layout", "lay_out"]


@dataclass(frozen=True, slots=True)
class Layout:
    manifest: Manifest
    new_pages: Mapping[str, bytes]


def lay_out(base: Manifest, added: Mapping[str, Sequence[Shard]], metadata: JsonObject, load_page: LoadPage) -> Layout:
    """`base` with shards added to its tables; tables that it lacks are made."""
    if len(base.tables.keys() | added.keys()) > MAX_SECTION_ENTRIES:
        raise LimitExceededError(f"{base.dataset_id} would have more than {MAX_SECTION_ENTRIES} tables")
    try:
        return _lay_out(base, added, metadata, load_page, INLINE_SHARDS)
    except LimitExceededError:
        return _lay_out(base, added, metadata, load_page, 0)


def _lay_out(
    base: Manifest, added: Mapping[str, Sequence[Shard]], metadata: JsonObject, load_page: LoadPage, inline_limit: int
) -> Layout:
    tables: dict[str, TableEntry] = {}
    new_pages: dict[str, bytes] = {}
    for name in base.tables.keys() | added.keys():
        entry = base.tables.get(name, TableEntry(ShardList()))
        paged = extend_shards(entry.shards, added.get(name, ()), load_page, inline_limit=inline_limit)
        tables[name] = replace(entry, shards=paged.shards)
        new_pages |= paged.new_pages
    manifest = replace(base, tables=tables, metadata={})
    encode_manifest(manifest)  # does it fit?
    return Layout(replace(manifest, metadata=metadata), new_pages)
