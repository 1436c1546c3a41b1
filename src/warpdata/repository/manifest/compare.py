"""The difference between two versions, and the blobs that a version refers to. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from warpdata.primitives.hashing import Blob
from warpdata.primitives.reprs import short_repr
from warpdata.repository.manifest.model import Binding, Manifest, ManifestEntry, Page, Payload, Shard, ShardList
from warpdata.repository.manifest.pages import LoadPage, iter_shards, open_page

__all__ = ["EntryChange", "VersionDiff", "compare", "kept_blobs"]


@dataclass(frozen=True, slots=True)
class EntryChange:
    """A table, payload or binding that differs. `change` is "added", "removed" or "changed"."""

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
    """The entries that differ between two versions. False if there are none."""

    changes: tuple[EntryChange, ...]

    def __repr__(self) -> str:
        return short_repr("VersionDiff", [f"{change.section}/{change.name}" for change in self.changes])

    def __bool__(self) -> bool:
        return bool(self.changes)


def compare(old: Manifest, new: Manifest, load_page: LoadPage) -> VersionDiff:
    """Return the entries that differ, in section and name order. Pages that both share are not loaded."""
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
    """Yield every blob that a reader of this version may need: pages, shards and indexes. Blobs may repeat."""
    for entries in manifest.sections().values():
        for entry in entries.values():
            if isinstance(entry, Payload) and entry.index is not None:
                yield entry.index
            yield from _page_blobs(entry.shards.pages, entry.shards.levels, load_page)
            yield from (shard.blob for shard in entry.shards.shards)


def _page_blobs(pages: Sequence[Page], level: int, load_page: LoadPage) -> Iterator[Blob]:
    for page in pages:
        yield page.blob
        for entry in open_page(page, load_page(page), level - 1):
            if isinstance(entry, Page):
                yield from _page_blobs([entry], level - 1, load_page)
            else:
                yield entry.blob


def _entries(manifest: Manifest) -> Mapping[tuple[str, str], ManifestEntry | Binding]:
    out: dict[tuple[str, str], ManifestEntry | Binding] = {
        (section, name): entry for section, entries in manifest.sections().items() for name, entry in entries.items()
    }
    for binding in manifest.bindings:
        out["bindings", f"{binding.table}.{binding.column} → {binding.artifact}"] = binding
    return out


def _shards(entry: ManifestEntry | Binding | None) -> ShardList:
    return ShardList() if entry is None or isinstance(entry, Binding) else entry.shards


def _shard_changes(old: ShardList, new: ShardList, load_page: LoadPage) -> tuple[Counter[Shard], Counter[Shard]]:
    """Return removed and added shards. They are multisets, because a list may name one file twice."""
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
