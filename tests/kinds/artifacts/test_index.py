"""If this fails, a published file is not found, another file is found in its place, or a look-up costs too much.

The index is compared with a dictionary, and with the reference reader, which follows only the specification.
"""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from tests.kinds.artifacts.scenes import MIB, is_allowed, member_paths, memory, open_index
from tests.reference import member_index_reader as reference
from warpdata.errors import InvalidSourceError
from warpdata.kinds.artifacts import Chunk, Member, MemberIndex, PackedMember, write_index
from warpdata.kinds.artifacts.index_pages import Leaf, encode_leaf, name_key
from warpdata.limits import INDEX_INNER_ENTRIES, INDEX_LEAF_ENTRIES, MEMBER_CHUNK_BYTES
from warpdata.primitives.hashing import blob_key, fingerprint_file
from warpdata.storage import LocalStore

TWO_READS = INDEX_INNER_ENTRIES * INDEX_LEAF_ENTRIES

families = member_paths.flatmap(
    lambda stem: st.sets(member_paths.map(lambda tail: stem + tail) | st.just(stem), max_size=40)
)
path_sets = (st.sets(member_paths, max_size=60) | families).map(lambda found: {p for p in found if is_allowed(p)})


def in_order(found: set[str] | list[str]) -> list[str]:
    return sorted(found, key=lambda path: path.encode())


def numbered(path: str, number: int) -> PackedMember:
    return PackedMember(Member(path, number % 7, number * 512, number % 1000, number % 1000, number * 2654435761))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all examples of a property: each writes its own files over those of the last."""
    return tmp_path_factory.mktemp("index")


@given(path_sets, st.lists(member_paths, max_size=5), st.integers(0, 4))
def test_an_index_is_a_dictionary(folder: Path, found: set[str], others: list[str], cut: int) -> None:
    members = {path: numbered(path, number).member for number, path in enumerate(in_order(found))}
    index, stored, footer = open_index(memory(), (PackedMember(member) for member in members.values()), folder)
    assert index.member_count == len(members)
    assert list(index.members()) == [members[path] for path in in_order(found)]
    assert {path: index.find(path) for path in members} == members
    assert index.missing([*found, *others]) == {path for path in others if path not in members}
    for prefix in {path[:cut] for path in [*found, *others]}:
        assert list(index.members(prefix)) == [members[path] for path in in_order(found) if path.startswith(prefix)]
    assert reference.walk(stored, footer.byte_size, footer.xxh3) == [second_view(m) for m in members.values()]
    for path in [*islice(members, 3), *others]:
        expected = members.get(path)
        assert index.find(path) == expected
        assert reference.look_up(stored, footer.byte_size, footer.xxh3, path) == (expected and second_view(expected))


def second_view(member: Member) -> reference.IndexedMember:
    """Return the members as the reference reader does."""
    where = (member.shard, member.offset, member.stored_bytes, member.size_bytes)
    return reference.IndexedMember(member.path, *where, member.xxh3, ())


@pytest.mark.parametrize("count", [0, 1, 127, 128, 129, 255, 256, 257])
def test_nothing_is_lost_at_the_borders_of_leaves(tmp_path: Path, count: int) -> None:
    """Each name is the beginning of the next ones, so that borders fall between the closest neighbours."""
    names = in_order(["a" * (1 + number // 2) + "/b" * (number % 2) for number in range(count)])
    index, stored, footer = open_index(memory(), map(numbered, names, range(count)), tmp_path)
    assert [member.path for member in index.members()] == names
    others = {name + "!" for name in names} | {"", "\ud800", "\U0010ffff"}
    assert index.missing([*names, *others]) == others
    for number, name in enumerate(names):
        assert index.find(name) == numbered(name, number).member
        assert index.find(name + "!") is None
        assert [m.path for m in islice(index.members(name), 3)] == [n for n in names if n.startswith(name)][:3]
    assert [member.path for member in reference.walk(stored, footer.byte_size, footer.xxh3)] == names


def large(count: int) -> Iterator[PackedMember]:
    for number in range(count):
        yield numbered(f"{number // 1000:05d}/é{number:08d}.jpg", number)


def test_an_index_of_three_levels_is_still_a_dictionary(tmp_path: Path) -> None:
    count = TWO_READS + 5000
    index, stored, footer = open_index(memory(), large(count), tmp_path)
    last = numbered(f"00070/é{count - 1:08d}.jpg", count - 1).member
    assert reference.look_up(stored, footer.byte_size, footer.xxh3, last.path) == second_view(last)
    assert len(reference.walk(stored, footer.byte_size, footer.xxh3)) == count
    near_borders = {n + d for n in range(0, count, INDEX_LEAF_ENTRIES * 37) for d in (-1, 0, 1)}
    for number in near_borders | {TWO_READS - 1, TWO_READS, count - 1}:
        if 0 <= number < count:
            path = f"{number // 1000:05d}/é{number:08d}.jpg"
            assert index.find(path) == numbered(path, number).member
            assert index.find(path + "\0") is None
            assert index.find(path[:-1]) is None
    near = [f"{n // 1000:05d}/é{n:08d}.jpg" for n in near_borders if 0 <= n < count]
    assert index.missing([*near, "", near[0] + "\0"]) == {"", near[0] + "\0"}
    assert index.find("") is None
    assert index.find("\U0010ffff") is None
    assert sum(1 for _ in index.members()) == count
    assert [member.path for member in index.members("00065/")] == [f"00065/é{n:08d}.jpg" for n in range(65000, 66000)]
    assert list(index.members("00065/é00064")) == []


def test_a_name_that_is_no_utf8_is_simply_not_there(tmp_path: Path) -> None:
    index, _, _ = open_index(memory(), [numbered("a", 1)], tmp_path)
    assert index.find("\ud800") is None
    assert list(index.members("\ud800")) == []


@pytest.mark.parametrize("is_open", [False, True], ids=["closed", "open"])
def test_look_ups_that_are_prepared_together_cost_one_request(tmp_path: Path, is_open: bool) -> None:
    """The footer is read after the whole index, and does not take its place."""
    store = memory()
    index, _, _ = open_index(store, large(3000), tmp_path)
    paths = [f"{number // 1000:05d}/é{number:08d}.jpg" for number in range(0, 3000, 50)]
    if is_open:
        assert index.find(paths[-1]) is not None
    store.clear()
    index.prepare(paths)
    assert all(index.find(path) for path in paths)
    assert dict(store.counts()) == {"read_range": 1}


@pytest.mark.parametrize(("count", "reads"), [(1, 1), (129, 1), (TWO_READS, 2), (TWO_READS + 1, 2)])
def test_the_first_member_costs_a_known_number_of_requests(tmp_path: Path, count: int, reads: int) -> None:
    """The end of the index comes in one piece: a small index is whole in it, and the inner pages of a larger one."""
    store = memory()
    index, _, _ = open_index(store, large(count), tmp_path)
    store.clear()
    assert index.find("00000/é00000000.jpg") is not None
    assert dict(store.counts()) == {"read_range": reads}
    assert index.find("00000/é00000000.jpg") is not None
    assert index.find("00000/é00000000.jpe") is None
    assert dict(store.counts()) == {"read_range": reads}


def test_listing_a_prefix_reads_the_pages_that_hold_it(tmp_path: Path) -> None:
    store = memory()
    index, _, _ = open_index(store, large(TWO_READS + 5000), tmp_path)
    store.clear()
    assert sum(1 for _ in index.members("00065/")) == 1000
    assert dict(store.counts()) == {"read_range": 1 + 9}, "the end, with the root and both inner pages, and the leaves"


def test_a_name_before_all_others_costs_the_footer_only(tmp_path: Path) -> None:
    store = memory()
    index, _, _ = open_index(store, large(500), tmp_path)
    store.clear()
    assert index.find("!") is None
    assert dict(store.counts()) == {"read_range": 1}


@pytest.mark.parametrize(
    ("count", "allowed_mib"), [(1_000_000, 16), pytest.param(10_000_000, 20, marks=pytest.mark.soak)]
)
def test_memory_does_not_grow_with_the_number_of_members(tmp_path: Path, count: int, allowed_mib: int) -> None:
    store = LocalStore(tmp_path / "store")
    written = write_index(large(count), 7, tmp_path / "members")
    fingerprint = fingerprint_file(written.path)
    store.create_file(blob_key(fingerprint.blob.hash), written.path, fingerprint)
    chance = random.Random(1)
    wanted = [chance.randrange(count) for _ in range(2000)]
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        index = MemberIndex(store, fingerprint.blob, written.footer)
        for number in wanted:
            found = index.find(f"{number // 1000:05d}/é{number:08d}.jpg")
            assert found is not None
            assert found.offset == number * 512
        assert tracemalloc.get_traced_memory()[1] - before < allowed_mib * MIB
    finally:
        tracemalloc.stop()


# Leaves: the right name among equal hashes


def test_a_hash_that_seems_to_stand_between_two_others_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {
        b"a": bytes([1, 2, 3, 4, 5, 6, 7, 8]),
        b"b": bytes([9, 10, 11, 12, 13, 14, 15, 16]),
        b"c": bytes([5, 6, 7, 8, 9, 10, 11, 12]),
        b"absent": bytes([13, 14, 15, 16, 5, 6, 7, 8]),
    }
    monkeypatch.setattr("warpdata.kinds.artifacts.index_pages.name_key", keys.__getitem__)
    leaf = Leaf(encode_leaf([numbered(name, number).member for number, name in enumerate("abc")]))
    assert leaf.find("c") == numbered("c", 2).member
    assert leaf.find("absent") is None
    keys[b"b"] = bytes([5, 6, 7, 8, 5, 6, 7, 8])
    leaf = Leaf(encode_leaf([numbered(name, number).member for number, name in enumerate("abc")]))
    assert leaf.find("b") == numbered("b", 1).member, "though it seems to stand half a key before"


def test_two_names_with_one_hash_are_distinct(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warpdata.kinds.artifacts.index_pages.name_key", lambda name: b"same key")
    names = [f"{number:03d}" for number in range(INDEX_LEAF_ENTRIES)]
    leaf = Leaf(encode_leaf([numbered(name, number).member for number, name in enumerate(names)]))
    for number, name in enumerate(names):
        assert leaf.find(name) == numbered(name, number).member
    assert leaf.find("0") is None
    assert leaf.find("128") is None


def test_a_key_within_the_records_is_not_taken_for_one(tmp_path: Path) -> None:
    """The look-up searches only the array of hashes, because a record may contain the same eight bytes."""
    fake = int.from_bytes(name_key(b"absent"), "little")
    members = [PackedMember(Member(name, 0, fake, fake % 999, 1, fake)) for name in ("a", "b")]
    index, _, _ = open_index(memory(), members, tmp_path)
    assert index.find("absent") is None


# Writing


def test_chunks_of_large_members_lie_in_the_index(tmp_path: Path) -> None:
    sizes = {
        "a": 10,
        "video": 2 * MEMBER_CHUNK_BYTES + 1,
        "video 2": MEMBER_CHUNK_BYTES + 1,
        "z": MEMBER_CHUNK_BYTES,
    }
    packed = []
    for number, (path, size) in enumerate(sizes.items()):
        count = -(-size // MEMBER_CHUNK_BYTES) if size > MEMBER_CHUNK_BYTES else 0
        chunks = tuple(Chunk(100 + k, xxhash.xxh3_64_intdigest(f"{path}{k}".encode())) for k in range(count))
        stored = sum(chunk.stored_bytes for chunk in chunks) or size
        packed.append(PackedMember(Member(path, 0, number, stored, size, number), chunks))
    index, stored_bytes, footer = open_index(memory(), packed, tmp_path)
    for one in packed:
        found = index.find(one.member.path)
        second = reference.look_up(stored_bytes, footer.byte_size, footer.xxh3, one.member.path)
        assert found is not None
        assert second is not None
        assert bool(found.chunk_table) == bool(one.chunks)
        assert second.chunks == tuple((chunk.stored_bytes, chunk.xxh3) for chunk in one.chunks)
        if one.chunks:
            assert index.chunks(found) == list(one.chunks)


def test_the_same_path_twice_is_refused_and_both_origins_are_named(tmp_path: Path) -> None:
    twice = [PackedMember(Member("a", 0, 0, 1, 1, 1), source=origin) for origin in ("here.tar", "there.tar")]
    with pytest.raises(InvalidSourceError, match=r"'a'.*here\.tar.*there\.tar"):
        write_index(twice, 1, tmp_path / "members")


def test_composed_and_decomposed_names_are_two_members(tmp_path: Path) -> None:
    names = in_order(["e\u0301.jpg", "\u00e9.jpg"])
    index, _, _ = open_index(memory(), map(numbered, names, range(2)), tmp_path)
    assert [index.find(name) for name in names] == [numbered(name, n).member for n, name in enumerate(names)]
