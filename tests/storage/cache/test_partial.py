"""If these fail, a reader gets bytes that no reader has written, or two readers fetch the same unit."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.storage.cache.scenes import Scene, noise, open_partial, write_range
from warpdata.limits import MIB
from warpdata.primitives.hashing import Blob, sha256_hex
from warpdata.primitives.lock_file import LockFile
from warpdata.primitives.ranges import RangeSet
from warpdata.storage import ByteRange
from warpdata.storage.cache import BlobCache, Refusal
from warpdata.storage.cache.partial import UNIT_BYTES, PartialBlob, PartialState

SIZE = 10 * UNIT_BYTES + 77
DATA = noise(1, SIZE)
BLOB = Blob(sha256_hex(DATA), SIZE)
SPANS = st.tuples(st.integers(0, SIZE), st.integers(0, SIZE)).map(lambda ends: ByteRange(min(ends), max(ends)))


def two_views(directory: Path) -> tuple[BlobCache, PartialBlob, PartialBlob]:
    """Return two views of one partial blob, as two processes would have them."""
    cache = BlobCache(directory, 100 * MIB, time.time)
    return cache, open_partial(cache, BLOB), open_partial(BlobCache(directory, 100 * MIB, time.time), BLOB)


@given(st.lists(SPANS, max_size=8), SPANS)
@settings(max_examples=60, deadline=None)
def test_a_view_reads_what_another_view_wrote(
    tmp_path_factory: pytest.TempPathFactory, written: list[ByteRange], wanted: ByteRange
) -> None:
    cache, one, other = two_views(tmp_path_factory.mktemp("cache"))
    present = RangeSet()
    for span in written:
        write_range(one, DATA, span.start, span.end)
        if span.size_bytes:
            first, end = span.start // UNIT_BYTES, -(-span.end // UNIT_BYTES)
            present.add((first * UNIT_BYTES, min(end * UNIT_BYTES, SIZE)))
    assert other.present_bytes() == -(-present.size_bytes // UNIT_BYTES) * UNIT_BYTES or other.is_complete
    missing = RangeSet(other.missing([wanted]))
    assert not any(present.overlaps(gap) for gap in missing)
    if not missing:
        assert other.read(wanted) == DATA[wanted.start : wanted.end]
    cache.abandon(one)
    assert other.state is PartialState.LIVE, "another view uses it"
    cache.abandon(other)
    assert [name for _, _, names in os.walk(cache.directory) for name in names] == ["ledger"]


@given(st.lists(st.tuples(st.booleans(), SPANS, st.booleans()), max_size=12))
@settings(max_examples=60, deadline=None)
def test_no_unit_is_claimed_twice(
    tmp_path_factory: pytest.TempPathFactory, turns: list[tuple[bool, ByteRange, bool]]
) -> None:
    cache, *views = two_views(tmp_path_factory.mktemp("cache"))
    held: list[tuple[PartialBlob, list[ByteRange]]] = []
    for which, span, is_kept in turns:
        view = views[which]
        claimed = view.claim([span])
        for _, others in held:
            assert not any(RangeSet(others).overlaps(one) for one in claimed)
        present = RangeSet([(0, SIZE)]) - RangeSet(view.missing([ByteRange(0, SIZE)]))
        assert not any(present.overlaps(one) for one in claimed)
        if is_kept:
            held.append((view, claimed))
        else:
            for one in claimed:
                view.write(one, memoryview(DATA)[one.start : one.end])
            view.release(claimed)
    for view, claimed in held:
        view.release(claimed)
    free = views[0].claim([ByteRange(0, SIZE)])
    assert RangeSet(free) == RangeSet(views[1].missing([ByteRange(0, SIZE)])), "ended claims are free again"
    for view in views:
        cache.abandon(view)


def test_claims_end_with_their_process(scene: Scene) -> None:
    other = BlobCache(scene.cache.directory, 100 * MIB, time.time)
    victim, survivor = open_partial(scene.cache, BLOB), open_partial(other, BLOB)
    assert victim.claim([ByteRange(0, SIZE)])
    assert survivor.claim([ByteRange(0, SIZE)]) == []
    victim.data.close()  # as by the end of its process
    victim.map.close()
    assert survivor.claim([ByteRange(0, SIZE)]) == [ByteRange(0, SIZE)]
    assert scene.cache.open_partial(BLOB.hash, "0" * 16, None, eager=True) is not Refusal.UNKNOWN_SIZE
    other.abandon(survivor)


def test_pieces_skip_what_another_view_has_claimed(tmp_path: Path) -> None:
    cache, one, other = two_views(tmp_path)
    assert one.claim([ByteRange(2 * UNIT_BYTES, 5 * UNIT_BYTES)])
    assert other.claim_next(UNIT_BYTES) == [ByteRange(0, UNIT_BYTES)]
    assert other.claim_next(100 * UNIT_BYTES) == [ByteRange(UNIT_BYTES, 2 * UNIT_BYTES)]
    assert other.claim_next(100 * UNIT_BYTES) == [ByteRange(5 * UNIT_BYTES, SIZE)]
    assert other.claim_next(100 * UNIT_BYTES) == []
    for view in (one, other):
        cache.abandon(view)


def test_one_view_commits(tmp_path: Path) -> None:
    cache, one, other = two_views(tmp_path)
    write_range(one, DATA, 0, SIZE)
    assert other.is_complete
    assert one.begin_commit()
    assert not one.begin_commit()
    assert not other.begin_commit()
    assert cache.commit(one, one.hashes()[1])
    assert other.state is PartialState.COMMITTED
    assert other.read(ByteRange(5, 500)) == DATA[5:500]
    assert other.claim([ByteRange(0, SIZE)]) == []
    assert cache.commit(other, one.hashes()[1]) is False
    cache.abandon(other)
    assert cache.find(BLOB.hash) is not None
    cache.opened.release(0)
    assert cache.clear().kept_pinned == 0, "a view of a committed blob does not pin the entry"


def test_the_commit_falls_to_another_view(tmp_path: Path) -> None:
    cache, one, other = two_views(tmp_path)
    write_range(one, DATA, 0, SIZE)
    assert one.begin_commit()
    cache.abandon(one)  # as if its process had failed to write the record
    assert other.begin_commit()
    assert cache.commit(other, other.hashes()[1])
    assert cache.verify() == []


def test_a_rejected_blob_ends_for_all_views(tmp_path: Path) -> None:
    cache, one, other = two_views(tmp_path)
    cache.abandon(one, for_all=True)
    assert other.state is PartialState.DROPPED
    fresh = open_partial(cache, BLOB)
    assert fresh.present_bytes() == 0
    cache.abandon(other)
    assert fresh.state is PartialState.LIVE, "the end of an old view does not touch a new partial blob"
    cache.abandon(fresh)


def test_bytes_of_another_store_are_not_shared(tmp_path: Path) -> None:
    """Unverified bytes of a corrupt store must not reach readers of a valid one."""
    cache = BlobCache(tmp_path, 100 * MIB, time.time)
    corrupt, valid = open_partial(cache, BLOB, "a" * 16), open_partial(cache, BLOB, "b" * 16)
    write_range(corrupt, bytes(SIZE), 0, SIZE)
    assert valid.present_bytes() == 0
    write_range(valid, DATA, 0, SIZE)
    assert cache.commit(valid, valid.hashes()[1])
    cache.abandon(corrupt)
    assert cache.verify() == []


def test_what_was_written_is_not_written_over(tmp_path: Path) -> None:
    cache, one, other = two_views(tmp_path)
    write_range(one, DATA, 0, 3 * UNIT_BYTES)
    write_range(other, bytes(SIZE), 0, 2 * UNIT_BYTES)
    write_range(other, DATA, 0, SIZE)
    assert one.hashes()[0] == BLOB.hash
    for view in (one, other):
        cache.abandon(view)


@pytest.mark.parametrize("cut", [0, 5, 20])
def test_a_map_that_was_cut_off_is_an_error(tmp_path: Path, cut: int) -> None:
    cache, one, other = two_views(tmp_path)
    os.ftruncate(one.map.fd, cut)
    with pytest.raises(OSError, match="ends at unit"):
        other.missing([ByteRange(0, SIZE)])
    file = LockFile.open(one.paths.map, os.O_RDWR)
    assert not file.try_lock(exclusive=True), "views keep it in use"
    assert cache.open_partial(BLOB.hash, "0" * 16, SIZE, eager=True) is Refusal.BUSY
    for view in (one, other):
        cache.abandon(view)
