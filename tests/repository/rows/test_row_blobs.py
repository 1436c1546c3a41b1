"""If these fail, a deleted row comes back, a live one disappears, or a row changes its identity."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpdata.errors import CorruptError
from warpdata.limits import INLINE_POSITIONS, INLINE_RUNS
from warpdata.primitives.hashing import sha256_hex
from warpdata.repository.manifest import Deletes, Ids
from warpdata.repository.rows import (
    DeletionVector,
    IdSequence,
    decode_deletes,
    decode_ids,
    encode_deletes,
    encode_ids,
)

IDS = st.lists(st.integers(0, 60) | st.integers(0, 2**53 - 1), unique=True, max_size=80)


@given(IDS, st.integers(0, 5))
def test_ids_are_read_back(listed: list[int], first_stored_row: int) -> None:
    sequence = IdSequence.of_ids(np.array(listed, np.int64))
    ids, data = encode_ids(sequence, first_stored_row)
    assert (data is not None) == (len(sequence.firsts) > INLINE_RUNS)
    assert data is None or (ids is not None and ids.hash == sha256_hex(data))
    assert decode_ids(ids, len(listed), first_stored_row, data).ids.tolist() == listed


def test_ids_that_follow_from_the_position_are_omitted() -> None:
    assert encode_ids(IdSequence.consecutive(40, 3), 40) == (None, None)
    assert encode_ids(IdSequence.consecutive(41, 3), 40) == (Ids(first=41), None)


@given(IDS)
def test_ids_of_development_versions_are_read(listed: list[int]) -> None:
    sequence = IdSequence.of_ids(np.array(listed, np.int64))
    data = np.stack([sequence.firsts, sequence.counts], axis=1).astype("<u8").tobytes()
    found = decode_ids(Ids(hash="0" * 64, byte_size=len(data)), len(listed), 0, data)
    assert found.ids.tolist() == listed


def test_scattered_ids_take_few_bytes() -> None:
    """1,000 scattered ids of a million take 3 kB."""
    _, data = encode_ids(IdSequence.of_ids(np.arange(7, 1_000_000, 1000, dtype=np.int64)), 0)
    assert data is not None
    assert data[:8].hex() == "5749445300000001"
    assert data[8:14].hex(" ") == "0e 00 ce 0f 00 ce"
    assert len(data) < 3100


@given(st.binary(max_size=40))
def test_any_bytes_are_ids_of_one_form_or_corrupt(body: bytes) -> None:
    data = b"WIDS\0\0\0\1" + body
    reference = Ids(hash="0" * 64, byte_size=len(data))
    for stored_count in (1, 2, 3, 20):
        try:
            found = decode_ids(reference, stored_count, 0, data)
        except CorruptError:
            continue
        assert len(found) == stored_count
        assert found.ids.min() >= 0
        assert found.ids.max() < 2**53


_MAGIC = b"WIDS\0\0\0\1"


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"123", np.array([1, 0], "<u8").tobytes(), np.array([2**60, 2], "<u8").tobytes()),
        *(_MAGIC, _MAGIC + b"\2", _MAGIC + b"\2\x81", _MAGIC + b"\2\x81\0", _MAGIC + b"\1\1", _MAGIC + b"\2\2"),
        *(_MAGIC + b"\xff" * 8 + b"\1\1", _MAGIC + b"\xff" * 7 + b"\x7f\1", _MAGIC + b"\2\0" * 20),
    ],
)
def test_invalid_blobs_of_ids_are_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptError):
        decode_ids(Ids(hash=sha256_hex(data), byte_size=len(data)), 2, 0, data)


@given(st.sets(st.integers(0, 199), max_size=60), st.integers(0, 200))
def test_deleted_rows_are_read_back(deleted: set[int], position: int) -> None:
    vector = DeletionVector.of_positions(np.array(sorted(deleted), np.int64), 200)
    deletes, data = encode_deletes(vector)
    if deletes is None:
        assert not deleted
        return
    assert (data is not None) == (len(deleted) > INLINE_POSITIONS)
    found = decode_deletes(deletes, 200, data)
    assert set(found.deleted.tolist()) == deleted
    assert found.live.tolist() == [row for row in range(200) if row not in deleted]
    assert found.live_before(position) == sum(row < position for row in found.live)


def test_a_bitmap_of_other_rows_is_corrupt() -> None:
    vector = DeletionVector.of_positions(np.arange(100, dtype=np.int64), 200)
    _, data = encode_deletes(vector)
    assert data is not None
    for deletes, stored_count in ((Deletes(99, hash="0" * 64, byte_size=9), 200), (Deletes(100, hash="0" * 64), 99)):
        with pytest.raises(CorruptError):
            decode_deletes(deletes, stored_count, data)
    with pytest.raises(CorruptError):
        decode_deletes(Deletes(100, hash="0" * 64), 200, data[:-3])
    with pytest.raises(CorruptError, match="not a bitmap"):
        decode_deletes(Deletes(100, hash="0" * 64), 200, b"")


def test_scattered_deletes_take_few_bytes() -> None:
    """400 scattered rows of 400,000 take less than a kilobyte, not a new Parquet file."""
    _, data = encode_deletes(DeletionVector.of_positions(np.arange(0, 400_000, 1000, dtype=np.int64), 400_000))
    assert data is not None
    assert len(data) < 1000
