"""If this fails, a read returns other bytes than those of the file, or fetches far more than it needs.

Every kind of artifact is compared with its source files.
"""

from __future__ import annotations

import io
import itertools
import threading
from dataclasses import dataclass, replace
from hashlib import shake_256
from pathlib import Path

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from tests.kinds.artifacts.scenes import Stored, Watched, memory, store_artifact, store_tars
from tests.kinds.artifacts.tars import END, entry
from warpdata.errors import BadInputError, CorruptError, ObjectNotFoundError, UnsupportedError
from warpdata.kinds.artifacts import Artifact, ByteLocation, FileRef, read_many
from warpdata.limits import MEMBER_CHUNK_BYTES
from warpdata.primitives.hashing import blob_key
from warpdata.storage import LocalStore, Writer

CHUNK = MEMBER_CHUNK_BYTES
VIDEO = shake_256(b"video").digest(CHUNK * 2 + 700)
FILES: dict[str, bytes] = {
    "empty": b"",
    "one": b"1",
    "block": b"b" * 512,
    "chunk": VIDEO[:CHUNK],
    "chunk and one": VIDEO[: CHUNK + 1],
    "video": VIDEO,
    "two chunks": VIDEO[: 2 * CHUNK],
    "é": b"composed",
    "e\u0301": b"decomposed",
    **{f"small/{number:03d}": shake_256(b"%d" % number).digest(number * 7) for number in range(60)},
}
KINDS = ["tar_shards", "compressed", "files", "webdataset_shards"]


def store_as(kind: str, store: Writer, folder: Path, files: dict[str, bytes]) -> Stored:
    if kind == "webdataset_shards":
        paths = [folder / "first.tar", folder / "second.tar"]
        for start, path in enumerate(paths):
            members = itertools.islice(files.items(), start, None, 2)
            path.write_bytes(b"".join(entry(name, content) for name, content in members) + END)
        return store_tars(store, paths, folder)
    compression = "zstd" if kind == "compressed" else None
    kind = "tar_shards" if kind == "compressed" else kind
    return store_artifact(store, files, folder, kind=kind, compression=compression, shard_bytes=1000)


@dataclass(frozen=True)
class Scene:
    store: Watched
    stored: Stored

    def fresh(self) -> Artifact:
        """Nothing remembered, nothing counted."""
        self.store.clear()
        self.store.asked.clear()
        return self.stored.open()

    def of_shards(self) -> list[tuple[str, int]]:
        """Return the key and size of each request for a shard."""
        keys = {blob_key(blob.hash) for blob in self.stored.shards}
        return [(key, span.size_bytes) for key, span in self.store.asked if key in keys]


@pytest.fixture(scope="module", params=KINDS)
def scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    store = Watched(memory())
    return Scene(store, store_as(request.param, store, tmp_path_factory.mktemp("stored"), FILES))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    store = Watched(memory())
    return Scene(store, store_as("tar_shards", store, tmp_path_factory.mktemp("stored"), FILES))


# Whole members


def test_every_member_is_the_file_it_was(scene: Scene) -> None:
    artifact = scene.fresh()
    assert len(artifact) == len(FILES)
    assert [member.path for member in artifact.members()] == sorted(FILES, key=str.encode)
    for path, content in FILES.items():
        assert path in artifact
        assert artifact.read(path) == content
        assert artifact.size_of(path) == len(content)
    assert artifact.read_many(list(FILES)) == list(FILES.values())


@given(data=st.data())
def test_many_are_read_in_the_order_asked_for(scene: Scene, data: st.DataObject) -> None:
    paths = data.draw(st.lists(st.sampled_from(sorted(FILES)), max_size=12))
    assert scene.stored.open().read_many(paths) == [FILES[path] for path in paths]


def test_a_local_store_gives_the_same(scene: Scene, tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "store")
    for blob in (*scene.stored.shards, scene.stored.entry.index):
        store.create(blob_key(blob.hash), scene.stored.bytes_of(blob))
    artifact = scene.stored.open(store)
    assert artifact.read_many([*FILES, *FILES]) == [*FILES.values(), *FILES.values()]
    assert artifact.read("empty") == b""
    with artifact.open("video") as video:
        assert video.read() == VIDEO


def test_neighbours_share_a_request(plain: Scene) -> None:
    wanted = [path for path in FILES if path.startswith("small/")]
    artifact = plain.fresh()
    list(artifact.members())
    plain.store.clear()
    assert artifact.read_many(wanted) == [FILES[path] for path in wanted]
    shards = {artifact.shard_of(path) for path in wanted}
    assert len(shards) > 5
    assert dict(plain.store.counts()) == {"read_range": len(shards)}


def test_one_small_member_is_one_request_beside_the_index(scene: Scene) -> None:
    artifact = scene.fresh()
    assert artifact.read("one") == b"1"
    assert dict(scene.store.counts()) == {"read_range": 2}, "the index, which is small, and the member"


def test_a_member_that_is_not_there_comes_with_near_ones(plain: Scene) -> None:
    artifact = plain.fresh()
    for path in ("small/0001", "video ", "nothing like it", "", "half a \ud800 pair", "small"):
        assert path not in artifact
        with pytest.raises(ObjectNotFoundError) as caught:
            artifact.read(path)
        assert repr(path) in caught.value.message
        assert caught.value.hint
    with pytest.raises(ObjectNotFoundError, match="small/001"):
        artifact.member("small/0001")
    assert 7 not in artifact


def test_threads_may_share_an_artifact(scene: Scene) -> None:
    artifact = scene.fresh()
    wrong: list[object] = []

    def read(start: int) -> None:
        paths = list(FILES)[start:] + list(FILES)[:start]
        for path in paths:
            if path.startswith("small/") and artifact.read(path) != FILES[path]:
                wrong.append(path)

    threads = [threading.Thread(target=read, args=(start,)) for start in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# As a file

offsets = st.sampled_from(
    [0, 1, 511, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, len(VIDEO) - 1, len(VIDEO), len(VIDEO) + 5]
)
steps = st.one_of(
    st.tuples(st.just("seek"), offsets),
    st.tuples(st.just("skip"), st.integers(0, 9000) | offsets),
    st.tuples(st.just("back"), st.integers(0, 700)),
    st.tuples(st.just("read"), st.integers(0, 20) | st.sampled_from([8192, 100_000, CHUNK + 3])),
    st.tuples(st.just("into"), st.integers(0, 20_000)),
    st.tuples(st.just("rest"), st.just(0)),
    st.tuples(st.just("line"), st.integers(0, 100)),
)


def take(file: io.BufferedIOBase, step: tuple[str, int]) -> tuple[object, int]:
    kind, number = step
    if kind == "seek":
        return file.seek(number), file.tell()
    if kind == "skip":
        return file.seek(number, io.SEEK_CUR), file.tell()
    if kind == "back":
        size = file.seek(0, io.SEEK_END)
        return file.seek(-min(number, size), io.SEEK_END), file.tell()
    if kind == "into":
        buffer = bytearray(number)
        return (file.readinto(buffer), bytes(buffer)), file.tell()
    if kind == "line":
        return file.readline(number), file.tell()
    return file.read() if kind == "rest" else file.read(number), file.tell()


opened = st.sampled_from(["video", "chunk and one", "two chunks", "chunk", "one", "empty"])


@given(path=opened, taken=st.lists(steps, max_size=8))
def test_an_opened_member_is_a_file_like_any_other(scene: Scene, path: str, taken: list[tuple[str, int]]) -> None:
    with scene.stored.open().open(path) as file, io.BytesIO(FILES[path]) as expected:
        assert file.readable()
        assert file.seekable()
        for step in taken:
            assert take(file, step) == take(expected, step)  # type: ignore[arg-type]


def test_seeking_before_the_beginning_is_an_error(plain: Scene) -> None:
    with plain.fresh().open("video") as file:
        with pytest.raises((ValueError, OSError)):
            file.seek(-1)
        assert file.read(3) == VIDEO[:3]


def test_a_part_of_a_video_costs_the_chunks_that_hold_it(scene: Scene) -> None:
    artifact = scene.fresh()
    with artifact.open("video") as video:
        assert scene.of_shards() == []
        video.seek(CHUNK + 1000)
        assert video.read(100) == VIDEO[CHUNK + 1000 : CHUNK + 1100]
        assert len(scene.of_shards()) == 1
        assert scene.of_shards()[0][1] <= CHUNK + CHUNK // 100
        video.seek(2 * CHUNK - 50)
        assert video.read(100) == VIDEO[2 * CHUNK - 50 : 2 * CHUNK + 50]
        assert len(scene.of_shards()) == 2
    assert scene.of_shards()[1][1] <= 1000


# Bytes named directly


def located(artifact: Artifact, path: str) -> ByteLocation:
    member = artifact.member(path)
    return ByteLocation(member.shard, member.offset, member.size_bytes, xxhash.xxh3_64_intdigest(FILES[path]))


def test_bytes_may_be_named_directly(scene: Scene) -> None:
    artifact = scene.fresh()
    wanted = ["video", "empty", "one", "small/030", "one"]
    places = [located(artifact, path) for path in wanted]
    if scene.stored.entry.compression:
        for place in places:
            with pytest.raises(UnsupportedError, match="compressed"):
                artifact.read_at([place])
        return
    assert artifact.read_at(places) == [FILES[path] for path in wanted]
    assert artifact.read_at([replace(place, xxh3=None) for place in places]) == [FILES[path] for path in wanted]
    assert artifact.read_at([places[0], "one", places[1]]) == [VIDEO, b"1", b""]
    for place, path in zip(places, wanted, strict=True):
        assert artifact.open_at(place).read() == FILES[path]
        assert artifact.size_of(place) == len(FILES[path])
        assert artifact.shard_of(place) == artifact.shard_of(path)


def test_named_bytes_with_another_checksum_are_refused(plain: Scene) -> None:
    artifact = plain.fresh()
    place = located(artifact, "small/030")
    for wrong in (replace(place, xxh3=0), replace(place, offset=place.offset + 1), replace(place, length=3)):
        with pytest.raises(CorruptError, match=f"bytes {wrong.offset}…{wrong.offset + wrong.length} of shard"):
            artifact.read_at([wrong])


@pytest.mark.parametrize("shard", [-1, 10_000, 2**40])
def test_a_shard_that_is_not_there_can_not_be_named(plain: Scene, shard: int) -> None:
    with pytest.raises(BadInputError, match=f"no shard {shard}"):
        plain.fresh().read_at([ByteLocation(shard, 0, 1)])


@pytest.mark.parametrize(
    ("offset", "length"), [(0, 2**40), (2**63, 1), (10**9, 0), (-1, 1), (-5, 10), (5, -1), (0, -5)]
)
def test_bytes_outside_of_a_shard_can_not_be_named(plain: Scene, offset: int, length: int) -> None:
    artifact = plain.fresh()
    for places in ([ByteLocation(0, offset, length)], [ByteLocation(0, 0, 1), ByteLocation(0, offset, length)]):
        with pytest.raises((CorruptError, BadInputError)):
            artifact.read_at(places)


# As files of this machine, and as addresses


def test_only_files_have_an_address_and_a_place_of_their_own(scene: Scene, tmp_path: Path) -> None:
    made: list[bytes] = []

    def extract(content: bytes) -> Path:
        made.append(content)
        return tmp_path / "extracted"

    store = LocalStore(tmp_path / "store")
    for blob in (*scene.stored.shards, scene.stored.entry.index):
        store.create(blob_key(blob.hash), scene.stored.bytes_of(blob))
    artifact = Artifact("media", scene.stored.entry, replace(scene.stored.origin(store), extract=extract))
    for path in ("video", "one", "empty"):
        here = artifact.local_path(path)
        if scene.stored.entry.kind == "files":
            assert here.read_bytes() == FILES[path]
        else:
            assert here == tmp_path / "extracted"
            assert made.pop() == FILES[path]
            with pytest.raises(UnsupportedError, match="are not separate objects"):
                artifact.signed_url(path, 60)
    assert not made


# References


def test_references_to_several_artifacts_are_read_together(plain: Scene, tmp_path: Path) -> None:
    other = store_artifact(memory(), {"one": b"another one"}, tmp_path).open()
    artifact = plain.fresh()
    refs = [FileRef(artifact, "one"), None, FileRef(other, "one"), FileRef(artifact, "video"), FileRef(artifact, "one")]
    assert read_many(refs) == [b"1", None, b"another one", VIDEO, b"1"]
    assert read_many([]) == []
    assert read_many([None]) == [None]
    with pytest.raises(BadInputError, match="not a str"):
        read_many(["one"])  # type: ignore[list-item]
