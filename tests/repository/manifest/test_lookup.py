"""If this fails, a look-up by number returns another shard or row."""

from __future__ import annotations

from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpdata.errors import BadInputError
from warpdata.primitives.hashing import sha256_hex
from warpdata.repository.manifest import Page, Shard, ShardLookup, page_shards, pages


@given(st.lists(st.integers(0, 5), min_size=1, max_size=400), st.integers(0, 20), st.sampled_from([1, 256]), st.data())
def test_shards_and_rows_are_found_by_number(
    row_counts: list[int], inline_limit: int, top_pages: int, data: st.DataObject
) -> None:
    shards = [Shard(sha256_hex(str(n).encode()), n, count) for n, count in enumerate(row_counts)]
    with mock.patch.object(pages, "MAX_TOP_PAGES", top_pages):
        paged = page_shards(shards, inline_limit=inline_limit)
    loaded: list[Page] = []

    def load(page: Page) -> bytes:
        loaded.append(page)
        return paged.new_pages[page.hash]

    lookup = ShardLookup(paged.shards, load)
    assert len(lookup) == len(shards)
    assert [lookup.at(number) for number in range(len(shards))] == shards
    rows = [(sum(row_counts[:number]), shard) for number, shard in enumerate(shards) for _ in range(row_counts[number])]
    assert [lookup.holding(row) for row in range(len(rows))] == rows
    assert len(loaded) == len(set(loaded)), "a page is opened once"
    wanted = data.draw(
        st.lists(st.integers(0, max(len(rows) - 1, 0)), max_size=8 if rows else 0, unique=True).map(sorted)
    )
    needed = ShardLookup(paged.shards, load)
    loaded.clear()
    needed.prepare(wanted, map)
    before = list(loaded)
    assert [needed.holding(row) for row in wanted] == [rows[row] for row in wanted]
    assert loaded == before, "every page that holds a wanted row was opened before"
    loaded.clear()
    fresh = ShardLookup(paged.shards, load)
    assert [fresh.holding(row) for row in wanted] == [rows[row] for row in wanted]
    assert sorted(page.hash for page in loaded) == sorted(page.hash for page in before), "and no other"
    for number in (-1, len(shards)):
        with pytest.raises(BadInputError, match=f"no shard {number}"):
            lookup.at(number)
    with pytest.raises(BadInputError, match=f"no row {len(rows)}"):
        lookup.holding(len(rows))
