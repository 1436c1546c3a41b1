"""If this fails, a hostile index crashes a reader, exhausts its memory, or lists paths outside the artifact.

Each index has correct checksums, so that a rule rejects it and not a checksum. There is one for each rule of "Member
index" in docs/specs/artifacts.md, then random fields and bytes.
"""

from __future__ import annotations

import resource
import struct
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from tests.kinds.artifacts.scenes import memory
from warpdata.errors import CorruptError, WarpError
from warpdata.kinds.artifacts import Artifact, ArtifactBackend, ArtifactEntry, MemberIndex
from warpdata.limits import MAX_INDEX_PAGE_BYTES, MEMBER_CHUNK_BYTES
from warpdata.primitives.hashing import Blob, blob_key, sha256_hex
from warpdata.repository.manifest import Footer, Shard, ShardList
from warpdata.storage import Reader

MAGIC = b"WARPMBR1"
HUGE = 2**64 - 1
ALLOWANCE_BYTES = 2**30
SHARD = bytes(range(256)) * 8


@pytest.fixture(scope="module", autouse=True)
def bounded_memory() -> Iterator[None]:
    """No index here deserves more than a little beyond what the process already has."""
    statm = Path("/proc/self/statm")
    if not statm.exists():
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(statm.read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + ALLOWANCE_BYTES, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@dataclass(frozen=True)
class Record:
    """A member as a leaf writes it. `end` and `key` are right unless given."""

    name: bytes
    offset: int = 0
    stored: int = 100
    size: int = 100
    xxh3: int = xxhash.xxh3_64_intdigest(SHARD[:100])
    table: int = 0
    shard: int = 0
    end: int | None = None
    key: int | None = None


def leaf(records: list[Record], count: int | None = None, name_bytes: int | None = None) -> bytes:
    names = b"".join(record.name for record in records)
    keys, rows, end = b"", b"", 0
    for record in records:
        end += len(record.name)
        keys += struct.pack("<Q", xxhash.xxh3_64_intdigest(record.name) if record.key is None else record.key)
        rows += struct.pack("<QQQQQ", record.offset, record.stored, record.size, record.xxh3, record.table)
        rows += struct.pack("<II", record.shard, end if record.end is None else record.end)
    return struct.pack("<II", *_said(records, count, names, name_bytes)) + keys + rows + names


@dataclass(frozen=True)
class Child:
    """A page as the page above it lists it."""

    first: bytes
    offset: int
    size: int
    xxh3: int
    members: int
    end: int | None = None


def inner(children: list[Child], count: int | None = None, name_bytes: int | None = None) -> bytes:
    names = b"".join(child.first for child in children)
    rows, end = b"", 0
    for child in children:
        end += len(child.first)
        rows += struct.pack("<QQQ", child.offset, child.xxh3, child.members)
        rows += struct.pack("<II", child.size, end if child.end is None else child.end)
    return struct.pack("<II", *_said(children, count, names, name_bytes)) + rows + names


def _said(listed: list[Any], count: int | None, names: bytes, name_bytes: int | None) -> tuple[int, int]:
    return len(listed) if count is None else count, len(names) if name_bytes is None else name_bytes


@dataclass
class Forge:
    """Writes an index page by page; whatever is not said is right."""

    data: bytearray = field(default_factory=lambda: bytearray(MAGIC))

    def page(self, page: bytes, first: bytes = b"a", members: int = 1) -> Child:
        child = Child(first, len(self.data), len(page), xxhash.xxh3_64_intdigest(page), members)
        self.data += page
        return child

    def finish(self, root: bytes, members: int = 1, levels: int = 0, trailer: bytes | None = None) -> Forged:
        made = struct.pack("<QQII8s", members, 1, len(root), levels, MAGIC)
        footer = root + (made if trailer is None else trailer)
        self.data += footer
        return Forged(bytes(self.data), Footer(len(footer), xxhash.xxh3_64_hexdigest(footer)))


@dataclass(frozen=True)
class Forged:
    data: bytes
    footer: Footer

    @property
    def blob(self) -> Blob:
        return Blob(sha256_hex(self.data), len(self.data))

    def index(self) -> MemberIndex:
        return MemberIndex(self.store(), self.blob, self.footer)

    def store(self, shard: bytes = SHARD) -> Reader:
        store = memory()
        store.create(blob_key(self.blob.hash), self.data)
        store.create(blob_key(sha256_hex(shard)), shard)
        return store

    def artifact(self, compression: str | None = None, shard: bytes = SHARD, members: int = 1) -> Artifact:
        shards = ShardList((Shard(sha256_hex(shard), len(shard)),))
        entry = ArtifactEntry("tar_shards", shards, self.blob, self.footer, members, compression)
        return Artifact("media", entry, ArtifactBackend(self.store(shard), _none, _none, _none))


def _none(*_: object) -> Any:
    raise AssertionError("not needed here")


def of_leaf(page: bytes, members: int = 1) -> Forged:
    forge = Forge()
    return forge.finish(inner([forge.page(page, members=members)]), members)


def of_records(*records: Record) -> Forged:
    return of_leaf(leaf(list(records)), len(records))


A, B = Record(b"a"), Record(b"b")


def test_without_a_fault_they_are_read() -> None:
    assert of_levels(4).artifact().read("a") == SHARD[:100]
    assert of_chunks(LARGE_CHUNKS, LARGE, content=bytes(LARGE)).read("a") == bytes(LARGE)
    forged = of_records(A, B)
    assert [member.path for member in forged.index().members()] == ["a", "b"]
    assert forged.artifact(members=2).read_many(["b", "a"]) == [SHARD[:100]] * 2


def test_an_index_of_another_artifact_is_refused() -> None:
    with pytest.raises(CorruptError, match=r"\(2, 1\), but the manifest states \(3, 1\)"):
        of_records(A, B).artifact(members=3).read("a")


# The footer


def with_trailer(*values: Any, cut: int = 0) -> Forged:
    forge = Forge()
    root = inner([forge.page(leaf([A]))])
    numbers = [1, 1, len(root), 0, MAGIC]
    numbers[: len(values)] = [new if new is not None else old for new, old in zip(values, numbers, strict=False)]
    return forge.finish(root, trailer=struct.pack("<QQII8s", *numbers)[cut:])


def short_footer(size: int) -> Forged:
    forged = of_records(A)
    tail = forged.data[len(forged.data) - size :]
    return Forged(forged.data, Footer(size, xxhash.xxh3_64_hexdigest(tail)))


def large_footer() -> Forged:
    data = MAGIC + bytes(MAX_INDEX_PAGE_BYTES + 100)
    return Forged(data, Footer(MAX_INDEX_PAGE_BYTES + 33, xxhash.xxh3_64_hexdigest(data[-MAX_INDEX_PAGE_BYTES - 33 :])))


def of_children(change: Callable[[Child], list[Child]], levels: int = 0, **said: int) -> Forged:
    forge = Forge()
    children = change(forge.page(leaf([A])))
    return forge.finish(inner(children, **said), sum(child.members for child in children), levels)


FOOTERS: dict[str, Callable[[], Forged]] = {
    "one byte": lambda: short_footer(1),
    "less than a trailer": lambda: short_footer(31),
    "only a trailer": lambda: short_footer(32),
    "larger than the index": lambda: replace(of_records(A), footer=Footer(10_000, "0" * 16)),
    "larger than any page": large_footer,
    "another checksum": lambda: replace(of_records(A), footer=Footer(of_records(A).footer.byte_size, "0" * 16)),
    "another magic": lambda: with_trailer(None, None, None, None, b"WARPMBR2"),
    "a root that is longer": lambda: with_trailer(None, None, 2**32 - 1),
    "a root that is shorter": lambda: with_trailer(None, None, 0),
    "too many levels": lambda: with_trailer(None, None, None, 5),
    "endless levels": lambda: with_trailer(None, None, None, 2**32 - 1),
    "levels that are not there": lambda: with_trailer(None, None, None, 1),
    "more members than there are": lambda: with_trailer(2),
    "no members": lambda: with_trailer(0),
    "more entries than there are": lambda: of_children(lambda child: [child], count=2),
    "four billion entries": lambda: of_children(lambda child: [child], count=2**32 - 1),
    "fewer entries than there are": lambda: of_children(lambda child: [child], count=0),
    "more names than there are": lambda: of_children(lambda child: [child], name_bytes=2**32 - 1),
    "a name that ends too late": lambda: of_children(lambda child: [replace(child, end=2**32 - 1)]),
    "a name that ends too early": lambda: of_children(lambda child: [replace(child, end=0)]),
    "names that run backwards": lambda: of_children(lambda c: [replace(c, end=2), replace(c, first=b"bc", end=1)]),
    "entries out of order": lambda: of_children(lambda child: [replace(child, first=b"b"), child]),
    "an entry twice": lambda: of_children(lambda child: [child, child]),
    "an entry without members": lambda: of_children(lambda child: [child, replace(child, first=b"b", members=0)]),
    "too many entries": lambda: of_children(lambda c: [replace(c, first=b"%03d" % n) for n in range(513)]),
}


# Pages


def of_page(change: Callable[[Child], Child]) -> Callable[[], Forged]:
    return lambda: of_children(lambda child: [change(child)])


def bytes_as_inner(page: bytes) -> Forged:
    forge = Forge()
    return forge.finish(inner([forge.page(page)]), 1, levels=1)


def of_levels(levels: int) -> Forged:
    forge = Forge()
    below = forge.page(leaf([A]))
    for _ in range(levels):
        below = forge.page(inner([below]))
    return forge.finish(inner([below]), levels=levels)


def of_leaf_said(**said: int) -> Callable[[], Forged]:
    return lambda: of_leaf(leaf([A], **said))


PAGES: dict[str, Callable[[], Forged]] = {
    "a page after the end": of_page(lambda child: replace(child, offset=10_000)),
    "a page at the end of numbers": of_page(lambda child: replace(child, offset=HUGE)),
    "a page that runs over the end": of_page(lambda child: replace(child, size=10_000)),
    "a page of four gigabytes": of_page(lambda child: replace(child, size=2**32 - 1)),
    "a page of no bytes": of_page(lambda child: replace(child, size=0, xxh3=xxhash.xxh3_64_intdigest(b""))),
    "a page with another checksum": of_page(lambda child: replace(child, xxh3=child.xxh3 ^ 1)),
    "a leaf with fewer members than promised": of_page(lambda child: replace(child, members=2)),
    "an inner page that is a leaf": lambda: bytes_as_inner(leaf([A])),
    "an inner page of nothing": lambda: bytes_as_inner(inner([])),
    "an inner page of seven bytes": lambda: bytes_as_inner(bytes(7)),
    "an inner page that counts wrongly": lambda: bytes_as_inner(inner([Child(b"a", 8, 9, 9, 2)])),
    "a leaf of seven bytes": lambda: of_leaf(bytes(7)),
    "a leaf with more members than fit": of_leaf_said(count=2),
    "a leaf with four billion members": of_leaf_said(count=2**32 - 1),
    "a leaf with fewer members than there are": of_leaf_said(count=0),
    "a leaf with more names than there are": of_leaf_said(name_bytes=2**32 - 1),
    "a name that ends too late": lambda: of_records(replace(A, end=2)),
    "a leaf of more than four megabytes": lambda: of_records(Record(b"a" * MAX_INDEX_PAGE_BYTES)),
    "five levels of valid pages": lambda: of_levels(5),
    "a name that ends very late": lambda: of_records(replace(A, end=2**32 - 1)),
    "a name that ends too early": lambda: of_records(replace(A, end=0)),
    "names that run backwards": lambda: of_records(Record(b"a", end=2), Record(b"b", end=1), Record(b"c")),
}


@pytest.mark.parametrize("forge", [*FOOTERS.values(), *PAGES.values()], ids=[*FOOTERS, *PAGES])
def test_an_index_that_can_not_be_is_refused(forge: Callable[[], Forged]) -> None:
    forged = forge()
    with _refused(forged):
        forged.index().find("a")
    with _refused(forged):
        list(forged.index().members())


def _refused(forged: Forged) -> AbstractContextManager[object]:
    return pytest.raises(CorruptError, match=f"member index {forged.blob.hash} .*corrupt")


@pytest.mark.parametrize("name", [b"", b"..", b"../up", b"/etc/passwd", b"a//b", b"a\0b", b"\xff", b"\xed\xa0\x80"])
def test_a_path_outside_the_artifact_is_never_listed(name: bytes) -> None:
    """Callers may use listed paths to write files."""
    forged = of_records(Record(name))
    with _refused(forged):
        list(forged.index().members())


def test_pages_that_repeat_are_walked_no_further_than_promised() -> None:
    """Five levels that list one page 512 times each would have 35 trillion leaves."""
    forge = Forge()
    below = forge.page(leaf([A]))
    for _ in range(4):
        many = [replace(below, first=b"%03d" % number) for number in range(512)]
        below = forge.page(inner(many), members=below.members * 512 % 2**64)
    forged = forge.finish(inner([below]), below.members, levels=4)
    index = forged.index()
    assert index.member_count == 512**4
    assert next(index.members()).path == "a"
    assert index.find("zzz") is None


# Members


def of_member(compression: str | None = None, content: bytes = SHARD, **fields: int) -> Artifact:
    return of_records(replace(A, **fields)).artifact(compression, content)  # type: ignore[arg-type]


def of_chunks(
    chunks: list[tuple[int, int]],
    size: int,
    compression: str | None = None,
    content: bytes = SHARD,
    **fields: int,
) -> Artifact:
    forge = Forge()
    table = b"".join(struct.pack("<QQ", *chunk) for chunk in chunks)
    made = forge.page(table)
    changes = {"size": size, "stored": sum(chunk[0] for chunk in chunks) % 2**64, "xxh3": made.xxh3, **fields}
    record = replace(A, **{"table": made.offset, **changes})  # type: ignore[arg-type]
    return forge.finish(inner([forge.page(leaf([record]))])).artifact(compression, content)


def bomb(size: int) -> bytes:
    return bytes(pa.compress(bytes(size), codec="zstd", asbytes=True))


LARGE = MEMBER_CHUNK_BYTES + 10
LARGE_XXH3 = xxhash.xxh3_64_intdigest(bytes(LARGE))
LARGE_CHUNKS = [(size, xxhash.xxh3_64_intdigest(bytes(size))) for size in (MEMBER_CHUNK_BYTES, 10)]
MEMBERS: dict[str, Callable[[], Artifact]] = {
    "a shard that is not there": lambda: of_member(shard=1),
    "the last shard of all": lambda: of_member(shard=2**32 - 1),
    "after the end of its shard": lambda: of_member(offset=len(SHARD)),
    "at the end of numbers": lambda: of_member(offset=HUGE),
    "over the end of its shard": lambda: of_member(stored=len(SHARD) + 1, size=len(SHARD) + 1),
    "as long as numbers go": lambda: of_member(stored=HUGE, size=HUGE),
    "a size that is not stored": lambda: of_member(size=101),
    "an endless size": lambda: of_member(size=HUGE),
    "another checksum": lambda: of_member(xxh3=1),
    "large and without chunks": lambda: of_member(None, bytes(LARGE), size=LARGE, stored=LARGE, xxh3=LARGE_XXH3),
    "compressed, an endless size": lambda: of_member("zstd", size=HUGE),
    "compressed, a size of an exabyte": lambda: of_member("zstd", size=2**60),
    "compressed, a size of a terabyte": lambda: of_member("zstd", size=2**40),
    "compressed, but not": lambda: of_member("zstd"),
    "compressed, no bytes": lambda: of_member("zstd", stored=0),
    "compressed, less than promised": lambda: of_member("zstd", bomb(99), stored=len(bomb(99))),
    "compressed, far more than promised": lambda: of_member("zstd", bomb(2**28), stored=len(bomb(2**28))),
    "a chunk table after the end": lambda: of_chunks([(MEMBER_CHUNK_BYTES, 1), (10, 1)], LARGE, table=10_000),
    "a chunk table at the end of numbers": lambda: of_chunks([(MEMBER_CHUNK_BYTES, 1), (10, 1)], LARGE, table=HUGE),
    "a chunk table with another checksum": lambda: of_chunks([(MEMBER_CHUNK_BYTES, 1), (10, 1)], LARGE, xxh3=1),
    "a chunk table for an endless member": lambda: of_chunks([(1, 1), (1, 1)], HUGE),
    "chunks that are more than their member": lambda: of_chunks([(100, 1), (100, 1)], LARGE, stored=100),
    "chunks that are less than their member": lambda: of_chunks([(100, 1), (100, 1)], LARGE, stored=300),
    "valid chunks of another sum": lambda: of_chunks(LARGE_CHUNKS, LARGE, None, bytes(LARGE), stored=LARGE + 1),
    "chunks as long as numbers go": lambda: of_chunks([(HUGE, 1), (HUGE, 1)], LARGE),
    "chunks over the end of their shard": lambda: of_chunks([(MEMBER_CHUNK_BYTES, 1), (10, 1)], LARGE),
    "chunks that are not full": lambda: of_chunks([(100, 1), (10, 1)], LARGE),
    "compressed chunks that are not": lambda: of_chunks([(100, 1), (10, 1)], LARGE, "zstd"),
}


@pytest.mark.parametrize("fault", MEMBERS)
def test_a_member_that_can_not_be_is_refused(fault: str) -> None:
    uses: list[Callable[[Artifact], object]] = [
        lambda a: a.read("a"),
        lambda a: a.read_many(["a", "a"]),
        lambda a: a.open("a").read(),
    ]
    for use in uses:
        with pytest.raises(CorruptError):
            use(MEMBERS[fault]())


def test_the_wrong_key_only_hides_its_own_member() -> None:
    forged = of_records(replace(A, key=7), B)
    assert forged.index().find("a") is None
    assert forged.artifact(members=2).read("b") == SHARD[:100]


# At random

numbers = st.sampled_from([0, 1, 7, 100, 2048, 2**31, 2**32 - 1, 2**63, HUGE]) | st.integers(0, HUGE)
small_numbers = st.sampled_from([0, 1, 2, 3, 100, 2**31, 2**32 - 1]) | st.integers(0, 2**32 - 1)
records = st.builds(
    Record,
    name=st.binary(max_size=4),
    offset=numbers,
    stored=numbers,
    size=numbers,
    xxh3=numbers,
    table=st.just(0) | numbers,
    shard=st.just(0) | small_numbers,
    end=st.none() | small_numbers,
)
children = st.builds(
    Child, first=st.binary(max_size=4), offset=numbers, size=small_numbers, xxh3=numbers, members=numbers, end=st.none()
)


def use_everything(forged: Forged, compression: str | None) -> None:
    """Every failure must be a `WarpError`."""
    artifact = forged.artifact(compression)
    paths = ["a", "b", "", "é"]
    with suppress(CorruptError):
        for number, member in enumerate(artifact.members()):
            paths.append(member.path)
            if number == 20:
                break
    for path in paths:
        with suppress(WarpError):
            artifact.read(path)
        with suppress(WarpError):
            artifact.open(path).read(10)


@given(st.lists(records, max_size=4), st.none() | small_numbers, st.none() | small_numbers, st.booleans())
def test_a_leaf_of_any_numbers_is_refused_or_read(
    listed: list[Record], count: int | None, name_bytes: int | None, is_compressed: bool
) -> None:
    use_everything(of_leaf(leaf(listed, count, name_bytes), len(listed)), "zstd" if is_compressed else None)


@given(st.lists(children, max_size=4), st.integers(0, 6), st.none() | numbers)
def test_a_root_of_any_numbers_is_refused_or_read(listed: list[Child], levels: int, members: int | None) -> None:
    forge = Forge()
    true = forge.page(leaf([A, B]), members=2)
    root = inner([true, *listed])
    total = sum(child.members for child in [true, *listed]) % 2**64
    use_everything(forge.finish(root, total if members is None else members, levels), None)


edits = st.lists(st.tuples(st.integers(0, 400), st.binary(min_size=1, max_size=8)), max_size=4)


@given(edits, edits)
def test_pages_of_any_bytes_are_refused_or_read(
    leaf_edits: list[tuple[int, bytes]], root_edits: list[tuple[int, bytes]]
) -> None:
    forge = Forge()
    page = _edited(leaf([A, B, Record(b"c", size=0, stored=0, xxh3=xxhash.xxh3_64_intdigest(b""))]), leaf_edits)
    root = inner([forge.page(page, members=3)])
    trailer = struct.pack("<QQII8s", 3, 1, len(root), 0, MAGIC)
    footer = _edited(root + trailer, root_edits)
    use_everything(forge.finish(footer[: len(root)], trailer=footer[len(root) :]), None)


def _edited(data: bytes, changes: list[tuple[int, bytes]]) -> bytes:
    out = bytearray(data)
    for position, new in changes:
        at = position % len(data)
        out[at : at + len(new)] = new
    return bytes(out[: len(data)])
