"""The manifest a publish leads to, and the page blobs it needs. Pure.

Lists are inline while short; if the manifest would still be too large, all of them are paged. Either
way the result depends only on the content, so appending in steps and publishing at once meet in the
same version. Implements "Layout" of docs/specs/manifest.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace

from warpdata.errors import LimitExceededError
from warpdata.limits import INLINE_SHARDS, MAX_SECTION_ENTRIES
from warpdata.repository.manifest import (
    Binding,
    JsonObject,
    LoadPage,
    Manifest,
    Payload,
    Shard,
    ShardList,
    TableEntry,
    encode_manifest,
    extend_shards,
)

__all__ = ["Addition", "Layout", "lay_out"]


@dataclass(frozen=True, slots=True)
class Layout:
    manifest: Manifest
    new_pages: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Addition:
    """Columns and shards for tables, whole payloads by their shards and an entry that awaits its list, and bindings."""

    tables: Mapping[str, tuple[Sequence[str], Sequence[Shard]]]
    """The columns and shards of each."""
    artifacts: Mapping[str, tuple[Payload, Sequence[Shard]]] = field(default_factory=dict)
    bindings: tuple[Binding, ...] = ()
    episodes: Mapping[str, tuple[Payload, Sequence[Shard]]] = field(default_factory=dict)
    tensors: Mapping[str, tuple[Payload, Sequence[Shard]]] = field(default_factory=dict)


def lay_out(base: Manifest, addition: Addition, metadata: JsonObject, load_page: LoadPage) -> Layout:
    """`base` with shards added to its tables; tables that it lacks are made, and artifacts and bindings added."""
    for section, names in (
        ("tables", base.tables.keys() | addition.tables.keys()),
        ("artifacts", base.artifacts.keys() | addition.artifacts.keys()),
        ("sets of episodes", base.episodes.keys() | addition.episodes.keys()),
        ("tensors", base.tensors.keys() | addition.tensors.keys()),
    ):
        if len(names) > MAX_SECTION_ENTRIES:
            raise LimitExceededError(f"{base.dataset_id} would have more than {MAX_SECTION_ENTRIES} {section}")
    try:
        return _lay_out(base, addition, metadata, load_page, INLINE_SHARDS)
    except LimitExceededError:
        return _lay_out(base, addition, metadata, load_page, 0)


def _lay_out(
    base: Manifest, addition: Addition, metadata: JsonObject, load_page: LoadPage, inline_limit: int
) -> Layout:
    tables: dict[str, TableEntry] = {}
    new_pages: dict[str, bytes] = {}
    added = addition.tables
    for name in base.tables.keys() | added.keys():
        entry = base.tables.get(name, TableEntry(ShardList()))
        columns, shards = added.get(name, ((), ()))
        schema = entry.schema if entry.shards.shard_count or not shards else TableEntry.listing(columns)
        paged = extend_shards(entry.shards, shards, load_page, inline_limit=inline_limit)
        tables[name] = replace(entry, shards=paged.shards, schema=schema)
        new_pages |= paged.new_pages
    sections: dict[str, dict[str, Payload]] = {}
    for section, there, more in (
        ("artifacts", base.artifacts, addition.artifacts),
        ("episodes", base.episodes, addition.episodes),
        ("tensors", base.tensors, addition.tensors),
    ):
        sections[section] = {}
        for name in there.keys() | more.keys():
            payload, shards = more.get(name) or (there[name], ())
            paged = extend_shards(payload.shards, shards, load_page, inline_limit=inline_limit)
            sections[section][name] = replace(payload, shards=paged.shards)
            new_pages |= paged.new_pages
    manifest = replace(
        base,
        tables=tables,
        artifacts=sections["artifacts"],
        episodes=sections["episodes"],
        tensors=sections["tensors"],
        bindings=tuple(sorted({*base.bindings, *addition.bindings}, key=astuple)),
        metadata={},
    )
    encode_manifest(manifest)  # does it fit?
    return Layout(replace(manifest, metadata=metadata), new_pages)
