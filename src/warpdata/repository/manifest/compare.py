"""What changed between two versions, and which blobs a version keeps alive. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from warpdata.primitives.hashing import Blob
from warpdata.repository.manifest.model import Binding, Manifest, Page, Payload, Shard, ShardList, TableEntry
from warpdata.repository.manifest.pages import LoadPage, iter_shards, open_page

__all__ = ["EntryChange", "VersionDiff", "compare", "kept_blobs"]


@dataclass(frozen=True, slots=True)
class EntryChange:
    """One named table, artifact, binding, … that differs. Counts are of shards, rows and bytes."""

    section: str
    name: str
    change: str
    shards_added: int
    shards_removed: int
    rows_added: int
    rows_removed: int
    bytes_added: int
    bytes_removed: int


@dataclass(frozen=True, slots=True)
class VersionDiff:
    changes: tuple[EntryChange, ...]

    def __bool__(self) -> bool:
        return bool(self.changes)


def compare(old: Manifest, new: Manifest, load_page: LoadPage) -> VersionDiff:
    """Entries that differ, in section and name order. Shared pages are skipped, not loaded."""
    changes = []
    before, after = _entries(old), _entries(new)
    for key in sorted(before.keys() | after.keys()):
        if before.get(key) == after.get(key):
            continue
        change = "changed" if key in before and key in after else "added" if key in after else "removed"
        removed, added = _shard_changes(_shards(before.get(key)), _shards(after.get(key)), load_page)
        changes.append(
            EntryChange(
                *key,
                change,
                shards_added=added.total(),
                shards_removed=removed.total(),
                rows_added=sum((shard.row_count or 0) * n for shard, n in added.items()),
                rows_removed=sum((shard.row_count or 0) * n for shard, n in removed.items()),
                bytes_added=sum(shard.byte_size * n for shard, n in added.items()),
                bytes_removed=sum(shard.byte_size * n for shard, n in removed.items()),
            )
        )
    return VersionDiff(tuple(changes))


def kept_blobs(manifest: Manifest, load_page: LoadPage) -> Iterator[Blob]:
    """Every blob a reader of this version may need: pages, shards and member indexes."""
    for shards in manifest.shard_lists():
        yield from _blobs(shards.pages, shards.levels, load_page)
        yield from (shard.blob for shard in shards.shards)
    for section in manifest.payloads().values():
        yield from (payload.index for payload in section.values() if payload.index is not None)


def _blobs(pages: tuple[Page, ...] | list[Page], level: int, load_page: LoadPage) -> Iterator[Blob]:
    for page in pages:
        yield page.blob
        for entry in open_page(page, load_page(page), level - 1):
            if isinstance(entry, Page):
                yield from _blobs([entry], level - 1, load_page)
            else:
                yield entry.blob


_Entry = TableEntry | Payload | Binding


def _entries(manifest: Manifest) -> Mapping[tuple[str, str], _Entry]:
    out: dict[tuple[str, str], _Entry] = {("tables", name): entry for name, entry in manifest.tables.items()}
    for section, payloads in manifest.payloads().items():
        out.update({(section, name): payload for name, payload in payloads.items()})
    for binding in manifest.bindings:
        out["bindings", f"{binding.table}.{binding.column} → {binding.artifact}"] = binding
    return out


def _shards(entry: _Entry | None) -> ShardList:
    return entry.shards if isinstance(entry, TableEntry | Payload) else ShardList()


def _shard_changes(old: ShardList, new: ShardList, load_page: LoadPage) -> tuple[Counter[Shard], Counter[Shard]]:
    """As multisets, since one file may be listed twice."""
    if old.levels == new.levels:
        shared = Counter(old.pages) & Counter(new.pages)
        old, new = _without(old, shared), _without(new, shared)
    before, after = Counter(iter_shards(old, load_page)), Counter(iter_shards(new, load_page))
    return before - after, after - before


def _without(shards: ShardList, shared: Counter[Page]) -> ShardList:
    left = Counter(shared)
    kept = []
    for page in shards.pages:
        if left[page] > 0:
            left[page] -= 1
        else:
            kept.append(page)
    return ShardList(shards.shards, tuple(kept), shards.levels)
