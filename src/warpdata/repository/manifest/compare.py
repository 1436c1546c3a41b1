"""The difference between two versions, and the blobs that a version refers to. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from warpdata.primitives.hashing import Blob
from warpdata.primitives.reprs import short_repr
from warpdata.repository.manifest.model import Binding, Manifest, ManifestEntry, Page, Payload, Shard, ShardList
from warpdata.repository.manifest.pages import LoadPage, LocatedShard, iter_shards, lowest_pages, open_page

__all__ = ["EntryChange", "VersionDiff", "compare", "differing_shards", "kept_blobs", "paged_blobs"]


@dataclass(frozen=True, slots=True)
class EntryChange:
    """A table, payload or binding that differs. `change` is "added", "removed" or "changed".

    A shard whose file stayed counts as neither added nor removed. Its rows count by the number that readers see.
    """

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
        edited = _pair_edited(removed, added)
        row_changes = [(two.row_count or 0) - (one.row_count or 0) for one, two in edited]
        changes.append(
            EntryChange(
                *key,
                change,
                shards_added=added.total(),
                shards_removed=removed.total(),
                rows_added=_sum_rows(added) + sum(max(rows, 0) for rows in row_changes),
                rows_removed=_sum_rows(removed) - sum(min(rows, 0) for rows in row_changes),
                bytes_added=_sum_bytes(added) + sum(_new_bytes(one, two) for one, two in edited),
                bytes_removed=_sum_bytes(removed) + sum(_new_bytes(two, one) for one, two in edited),
            )
        )
    return VersionDiff(tuple(changes))


def kept_blobs(manifest: Manifest, load_page: LoadPage) -> Iterator[Blob]:
    """Yield every blob that a reader of this version may need: pages, shards and indexes. Blobs may repeat."""
    for entries in manifest.sections().values():
        for entry in entries.values():
            if isinstance(entry, Payload) and entry.index is not None:
                yield entry.index
            yield from paged_blobs(entry.shards.pages, entry.shards.levels, load_page)
            for shard in entry.shards.shards:
                yield from shard.blobs()


def paged_blobs(
    pages: Sequence[Page], level: int, load_page: LoadPage, is_known: Callable[[Page], bool] = lambda _: False
) -> Iterator[Blob]:
    """Yield the pages and all blobs that they list. Known pages, which were walked before, are left out."""
    for page in pages:
        if is_known(page):
            continue
        yield page.blob
        for entry in open_page(page, load_page(page), level - 1):
            if isinstance(entry, Page):
                yield from paged_blobs([entry], level - 1, load_page, is_known)
            else:
                yield from entry.blobs()


def differing_shards(
    old: ShardList, new: ShardList, load_page: LoadPage
) -> tuple[list[LocatedShard], list[LocatedShard]]:
    """Return the shards of each list that the other does not have with the same rows, ids and deletes.

    Pages that both have at the same stored row are not loaded.
    """
    old_pages, new_pages = ({(p.page, p.first_stored_row): p for p in _lowest(side, load_page)} for side in (old, new))
    before = [placed for key, page in old_pages.items() if key not in new_pages for placed in page.shards(load_page)]
    after = [placed for key, page in new_pages.items() if key not in old_pages for placed in page.shards(load_page)]
    shared = {(placed.rows_key, placed.shard) for placed in before} & {
        (placed.rows_key, placed.shard) for placed in after
    }
    return (
        [placed for placed in before if (placed.rows_key, placed.shard) not in shared],
        [placed for placed in after if (placed.rows_key, placed.shard) not in shared],
    )


@dataclass(frozen=True, slots=True)
class _LowestPage:
    """A page that lists shards, or the inline list, with what is before it."""

    page: Page | tuple[Shard, ...]
    index: int
    first_row: int
    first_stored_row: int

    def shards(self, load_page: LoadPage) -> Iterator[LocatedShard]:
        listed = self.page if isinstance(self.page, tuple) else open_page(self.page, load_page(self.page), 0)
        index, row, stored_row = self.index, self.first_row, self.first_stored_row
        for shard in listed:
            assert isinstance(shard, Shard)
            yield LocatedShard(index, row, stored_row, shard)
            index, row, stored_row = index + 1, row + (shard.row_count or 0), stored_row + shard.stored_count


def _lowest(shards: ShardList, load_page: LoadPage) -> Iterator[_LowestPage]:
    if not shards.levels:
        yield _LowestPage(shards.shards, 0, 0, 0)
        return
    index = row = stored_row = 0
    for page in lowest_pages(shards, load_page):
        yield _LowestPage(page, index, row, stored_row)
        index, row, stored_row = index + page.shard_count, row + page.row_count, stored_row + page.stored_count


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


def _pair_edited(removed: Counter[Shard], added: Counter[Shard]) -> list[tuple[Shard, Shard]]:
    """Take the shards whose file stayed out of both, and return them as pairs: before and after the edit."""
    by_hash: dict[str, list[Shard]] = {}
    for shard in removed.elements():
        by_hash.setdefault(shard.hash, []).append(shard)
    pairs = [(by_hash[shard.hash].pop(0), shard) for shard in added.elements() if by_hash.get(shard.hash)]
    for one, two in pairs:
        removed[one] -= 1
        added[two] -= 1
    return pairs


def _sum_rows(shards: Counter[Shard]) -> int:
    return sum((shard.row_count or 0) * count for shard, count in shards.items())


def _sum_bytes(shards: Counter[Shard]) -> int:
    return sum(blob.byte_size * count for shard, count in shards.items() for blob in shard.blobs())


def _new_bytes(old: Shard, new: Shard) -> int:
    """Return the size of the blobs that a shard has and its other state has not."""
    known = set(old.blobs())
    return sum(blob.byte_size for blob in new.blobs() if blob not in known)


def _without(shards: ShardList, shared: Counter[Page]) -> ShardList:
    left = Counter(shared)
    kept = []
    for page in shards.pages:
        if left[page] > 0:
            left[page] -= 1
        else:
            kept.append(page)
    return ShardList(shards.shards, tuple(kept), shards.levels)
