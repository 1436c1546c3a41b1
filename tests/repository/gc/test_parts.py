"""If these fail, lists of condemned keys or sets of digests lose or invent entries."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpdata.errors import CorruptError, UnsupportedError
from warpdata.primitives.hashing import blob_key, sha256_hex
from warpdata.repository.gc.condemned import CondemnedKeys, decode_part, encode_part
from warpdata.repository.gc.tagged_digests import TaggedDigests
from warpdata.storage import ByteRange, GenerationReader, LocalStore

DIGESTS = st.integers(0, 300).map(lambda number: sha256_hex(number.to_bytes(2, "big")))


@given(st.dictionaries(DIGESTS, st.integers(0, 2**40), max_size=20), st.booleans())
def test_lists_survive_a_round_trip(sizes: dict[str, int], is_finished: bool) -> None:
    keys = [(blob_key(digest), size) for digest, size in sizes.items()]
    part = decode_part(encode_part(keys, is_finished=is_finished), "part")
    assert part.keys == tuple(sorted(keys))
    assert part.is_finished is is_finished


@given(st.sets(DIGESTS, max_size=30), st.sets(DIGESTS, max_size=30))
def test_look_ups_find_exactly_what_is_condemned(condemned: set[str], others: set[str]) -> None:
    keys = CondemnedKeys([*map(blob_key, condemned), f"datasets/a/b/manifests/{'ab' * 32}.json"])
    assert len(keys) == len(condemned) + 1
    assert all(digest in keys for digest in condemned)
    assert not any(digest in keys for digest in others - condemned)
    assert "ab" * 32 in keys


@given(st.integers(0, 400), st.integers(0, 255))
def test_a_flipped_bit_is_detected(place: int, value: int) -> None:
    data = bytearray(encode_part([(blob_key(sha256_hex(b"x")), 17)]))
    place %= len(data)
    if data[place] == value:
        return
    before = decode_part(bytes(data), "part")
    data[place] = value
    try:
        assert decode_part(bytes(data), "part").keys == before.keys
    except (CorruptError, UnsupportedError):
        return


@given(st.lists(st.tuples(st.lists(DIGESTS, max_size=40), st.integers(0, 9)), max_size=12))
def test_tagged_digests_equal_a_dictionary(added: list[tuple[list[str], int]]) -> None:
    found, expected = TaggedDigests(), dict[str, int]()
    for digests, tag in added:
        found.update(digests, tag)
        for digest in digests:
            expected[digest] = min(tag, expected.get(digest, tag))
    assert len(found) == len(expected)
    assert {digest: tag for place in range(256) for digest, tag in found.bucket(place).items()} == expected


def test_tagged_digests_stay_small() -> None:
    """Many versions name the same blobs: the buffers are compacted, and hold 34 bytes for each, at most twice."""
    found, digests = TaggedDigests(), [sha256_hex(number.to_bytes(4, "big")) for number in range(50_000)]
    for _ in range(20):
        found.update(digests, 0)
    assert found.size_bytes <= 256 * 34 * 1024 + 2 * 34 * len(digests)
    assert len(found) == len(digests)


def test_blobs_of_later_generations_are_read_by_their_hash(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    digest = sha256_hex(b"data")
    key = blob_key(digest)
    store.create(blob_key(digest, "0123abcd"), b"data")
    reader = GenerationReader(store, {digest: "0123abcd"})
    assert reader.read(key).data == b"data"
    assert bytes(reader.read_range(key, ByteRange(1, 3))) == b"at"
    assert [bytes(part) for part in reader.read_ranges(key, [ByteRange(0, 4)])] == [b"data"]
    assert b"".join(reader.stream(key)) == b"data"
    assert (reader.stat(key).key, reader.stat(key).size_bytes) == (key, 4)
    assert reader.local_path(key) == tmp_path / f"{key}.0123abcd"
    assert reader.read_if_changed(key, "other") is not None
    assert reader.is_local(key)
    assert not reader.invalidate(key)
    other = blob_key(sha256_hex(b"other"))
    store.create(other, b"other")
    assert reader.read(other).data == b"other"


def test_old_temporary_files_are_removed(tmp_path: Path) -> None:
    import os
    from datetime import UTC, datetime

    store = LocalStore(tmp_path)
    store.create("a", b"x")
    for name, age_s in (("old", 7200), ("young", 60)):
        path = tmp_path / ".tmp" / name
        path.write_bytes(b"four")
        os.utime(path, (path.stat().st_mtime - age_s,) * 2)
    before = datetime.fromtimestamp(store.stat("a").modified.timestamp() - 3600, UTC)  # type: ignore[union-attr]
    assert store.remove_abandoned(before, dry_run=True) == (1, 4)
    assert store.remove_abandoned(before) == (1, 4)
    assert [path.name for path in (tmp_path / ".tmp").iterdir()] == ["young"]


def test_an_empty_list_is_no_list() -> None:
    assert not CondemnedKeys()
    with pytest.raises(CorruptError):
        decode_part(b"", "part")
