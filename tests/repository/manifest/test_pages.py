"""If this fails, equal shard lists get different versions, or a long list costs more than its change."""

from __future__ import annotations

import hashlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpdata.errors import ManifestCorruptedError
from warpdata.limits import MAX_MANIFEST_BYTES
from warpdata.primitives.hashing import sha256_hex
from warpdata.repository.manifest import (
    Manifest,
    Page,
    Shard,
    ShardList,
    TableEntry,
    compare,
    edit_shards,
    encode_manifest,
    extend_shards,
    iter_rows,
    iter_shards,
    kept_blobs,
    page_shards,
)


class Pages:
    """Page blobs in memory; counts what is loaded."""

    def __init__(self) -> None:
        self.stored: dict[str, bytes] = {}
        self.loads = 0

    def load(self, page: Page) -> bytes:
        self.loads += 1
        data = self.stored[page.hash]
        assert sha256_hex(data) == page.hash
        return data


def shard(number: int, rows: int = 3) -> Shard:
    return Shard(hashlib.sha256(str(number).encode()).hexdigest(), 100 + number % 7, rows)


def page_end(number: int) -> Shard:
    """A shard that ends a page, if the page is long enough."""
    return msgspec.structs.replace(shard(number), hash=f"{number * 512:08x}" + shard(number).hash[8:])


counts = st.one_of(st.integers(0, 40), st.integers(600, 5000))


@given(st.integers(0, 40) | st.integers(150, 900), st.data())
def test_editing_equals_paging_at_once(count: int, data: st.DataObject) -> None:
    pages = Pages()
    shards = [page_end(n) if n % 40 == 7 else shard(n) for n in range(count)]
    paged = page_shards(shards)
    pages.stored |= paged.new_pages
    positions = st.dictionaries(st.integers(0, max(count - 1, 0)), st.integers(0, 10**6) | st.none(), max_size=6)
    changes = {
        at: None if new is None else shard(new, 9) for at, new in (data.draw(positions) if count else {}).items()
    }
    kept = [changes.get(at, old) for at, old in enumerate(shards)]
    added = [shard(10**7 + n) for n in range(data.draw(st.integers(0, 100)))]
    expected = page_shards([*(each for each in kept if each is not None), *added])
    edited = edit_shards(paged.shards, changes, added, pages.load)
    assert edited.shards == expected.shards
    assert {**pages.stored, **edited.new_pages}.items() >= expected.new_pages.items()


def test_editing_two_levels_loads_few_pages() -> None:
    pages = Pages()
    shards = [page_end(n) if n % 64 == 63 else shard(n) for n in range(17_000)]
    paged = page_shards(shards)
    assert paged.shards.levels == 2
    pages.stored |= paged.new_pages
    changed = msgspec.structs.replace(shards[5000], row_count=2)
    edited = edit_shards(paged.shards, {5000: changed}, [], pages.load)
    assert edited.shards == page_shards([*shards[:5000], changed, *shards[5001:]]).shards
    assert pages.loads <= len(paged.shards.pages) + 1
    assert len(edited.new_pages) <= 4


@given(counts, st.lists(st.integers(0, 900), max_size=4))
def test_appending_in_steps_equals_paging_at_once(start: int, steps: list[int]) -> None:
    pages = Pages()
    shards = [shard(n) for n in range(start)]
    paged = page_shards(shards)
    pages.stored |= paged.new_pages
    for step in steps:
        added = [shard(len(shards) + n) for n in range(step)]
        shards += added
        paged = extend_shards(paged.shards, added, pages.load)
        pages.stored |= paged.new_pages
        whole = page_shards(shards)
        assert paged.shards == whole.shards
        assert set(whole.new_pages) <= set(pages.stored)
    assert list(iter_shards(paged.shards, pages.load)) == shards
    assert paged.shards.shard_count == len(shards)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=300), st.data())
def test_rows_are_found_without_loading_the_rest(rows: list[int], data: st.DataObject) -> None:
    shards = [shard(n, count) for n, count in enumerate(rows)]
    paged = page_shards(shards, inline_limit=0)
    pages = Pages()
    pages.stored = paged.new_pages
    total = sum(rows)
    start = data.draw(st.integers(0, total))
    stop = data.draw(st.integers(start, total))
    expected, first = [], 0
    for each in shards:
        count = each.row_count or 0
        if first + count > start and first < stop:
            expected.append((first, each))
        first += count
    if start == 0 and stop == 0:
        expected = []
    assert list(iter_rows(paged.shards, pages.load, start, stop)) == expected


def test_append_to_a_hundred_thousand_shards_writes_the_edge_only() -> None:
    base = page_shards(shard(n) for n in range(100_000))
    pages = Pages()
    pages.stored = dict(base.new_pages)
    grown = extend_shards(base.shards, [shard(100_000)], pages.load)
    assert grown.shards == page_shards(shard(n) for n in range(100_001)).shards
    written = {digest: data for digest, data in grown.new_pages.items() if digest not in base.new_pages}
    whole = sum(len(data) for data in base.new_pages.values())
    assert sum(len(data) for data in written.values()) < whole / 25
    assert pages.loads <= 3
    manifest = Manifest("a/b", {"main": TableEntry(grown.shards)})
    assert len(encode_manifest(manifest)) <= MAX_MANIFEST_BYTES


def test_insert_in_the_middle_rewrites_its_neighbourhood_only() -> None:
    shards = [shard(n) for n in range(50_000)]
    before = page_shards(shards)
    after = page_shards([*shards[:25_000], shard(999_999), *shards[25_000:]])
    fresh = set(after.new_pages) - set(before.new_pages)
    assert len(fresh) <= 4


@pytest.mark.soak
def test_root_stays_small_at_a_million_shards() -> None:
    paged = page_shards(shard(n) for n in range(1_000_000))
    assert paged.shards.levels == 2
    assert len(encode_manifest(Manifest("a/b", {"main": TableEntry(paged.shards)}))) <= MAX_MANIFEST_BYTES


def test_a_page_that_breaks_its_promise_is_refused() -> None:
    paged = page_shards([shard(n) for n in range(40)])
    page = paged.shards.pages[0]
    lying = Page(page.hash, page.byte_size, page.shard_count, page.row_count + 1, page.data_bytes)
    with pytest.raises(ManifestCorruptedError, match="does not match its reference"):
        list(iter_shards(ShardList(pages=(lying,), levels=1), lambda asked: paged.new_pages[asked.hash]))
    with pytest.raises(ManifestCorruptedError, match="cannot be decoded"):
        list(iter_shards(paged.shards, lambda asked: b"not a page"))


@given(st.lists(st.integers(0, 200), max_size=120), st.lists(st.integers(0, 200), max_size=120))
def test_difference_counts_shards_as_multisets(old: list[int], new: list[int]) -> None:
    from collections import Counter

    pages = Pages()
    manifests = []
    for numbers in (old, new):
        paged = page_shards([shard(n) for n in numbers])
        pages.stored |= paged.new_pages
        manifests.append(Manifest("a/b", {"main": TableEntry(paged.shards)}))
    found = compare(manifests[0], manifests[1], pages.load)
    added, removed = Counter(new) - Counter(old), Counter(old) - Counter(new)
    if old == new:
        assert not found
    else:
        (change,) = found.changes
        assert (change.shards_added, change.shards_removed) == (added.total(), removed.total())
        assert change.rows_added == 3 * added.total()


def test_kept_blobs_name_pages_and_shards() -> None:
    paged = page_shards([shard(n) for n in range(3000)])
    manifest = Manifest("a/b", {"main": TableEntry(paged.shards)})
    kept = {blob.hash for blob in kept_blobs(manifest, lambda page: paged.new_pages[page.hash])}
    assert kept == set(paged.new_pages) | {shard(n).hash for n in range(3000)}
