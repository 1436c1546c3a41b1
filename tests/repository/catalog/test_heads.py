"""If this fails, the newest version of a branch is not found, or finding it costs too much."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.faults.scenes import link, memory, replace
from warpdata.errors import UnsupportedError
from warpdata.repository.catalog import Catalog, parse_address
from warpdata.storage import ObjectInfo
from warpdata.testing import FaultyStore


class _Unlistable(FaultyStore):
    """Like a plain web server: knows files by name only."""

    def list_objects(self, prefix: str, *, max_count: int | None = None) -> Iterator[ObjectInfo]:
        raise UnsupportedError("no listing here")

    def list_folders(self, prefix: str) -> list[str]:
        raise UnsupportedError("no listing here")


@given(st.integers(1, 20))
def test_the_newest_entry_is_found_with_hint_listing_or_neither(commits: int) -> None:
    store = memory(f"heads-{commits}")
    if Catalog(store).branches("a/b"):
        return
    for step in range(commits):
        replace(link(store, seed=step), step)
    newest = Catalog(store).resolve(parse_address("a/b"))
    store.delete("datasets/a/b/latest.json")
    assert Catalog(store).resolve(parse_address("a/b")) == newest
    probing = _Unlistable(store)
    assert Catalog(probing).resolve(parse_address("a/b")) == newest
    assert len(probing.log) <= 2 + 2 * commits.bit_length() + 1


def test_opening_the_newest_version_takes_three_small_reads() -> None:
    store = memory("three-reads")
    for step in range(5):
        replace(link(store, seed=step), step)
    counting = FaultyStore(store)
    catalog = Catalog(counting)
    catalog.manifest(catalog.resolve(parse_address("a/b")))
    assert [operation.name for operation in counting.log] == ["read", "read", "read"]


def test_a_store_that_cannot_list_still_says_what_is_missing() -> None:
    from warpdata.errors import DatasetNotFoundError, NotFoundError

    store = memory("unlistable")
    replace(link(store), 0)
    catalog = Catalog(_Unlistable(store))
    with pytest.raises(DatasetNotFoundError):
        catalog.resolve(parse_address("a/c"))
    with pytest.raises(NotFoundError):
        catalog.resolve(parse_address("a/b@v9"))
