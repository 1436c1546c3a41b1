"""If this fails, a corrupt byte is returned as content, or a corrupt file affects valid neighbours.

The tests flip bits of stored shards and indexes one by one, corrupt cached copies, and make the store unavailable
during a read.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from hashlib import shake_256
from pathlib import Path

import pytest

from tests.kinds.artifacts.scenes import NearCopy, Stored, flipped, memory, store_artifact
from warpdata.errors import CorruptError, ObjectNotFoundError, StoreUnavailableError
from warpdata.kinds.artifacts import Artifact
from warpdata.limits import MEMBER_CHUNK_BYTES
from warpdata.primitives.hashing import Blob, blob_key
from warpdata.testing import FailReads, FaultyStore

FILES = {
    "a": b"first",
    "empty": b"",
    "letter": b"dear reader, " * 90,
    "long/" * 40 + "name": b"behind an extended header",
    "z": shake_256(b"noise").digest(700),
}
VIDEO = shake_256(b"video").digest(2 * MEMBER_CHUNK_BYTES + 700)
KINDS = {"plain": (None, "tar_shards"), "compressed": ("zstd", "tar_shards"), "files": (None, "files")}


@pytest.fixture(params=KINDS)
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Stored:
    compression, kind = KINDS[request.param]
    return store_artifact(memory(), FILES, tmp_path, kind=kind, compression=compression)


@pytest.fixture
def video(tmp_path: Path) -> Stored:
    return store_artifact(memory(), {"video": VIDEO, "small": b"small"}, tmp_path)


def holders(artifact: Artifact, stored: Stored) -> dict[tuple[Blob, int], str]:
    """Return the member of each stored byte."""
    return {
        (stored.shards[member.shard], position): member.path
        for member in artifact.members()
        for position in range(member.offset, member.offset + member.stored_bytes)
    }


def test_a_flipped_bit_of_a_shard_fails_the_members_that_contain_it(stored: Stored) -> None:
    sound = stored.open()
    holder = holders(sound, stored)
    found = 0
    for blob in stored.shards:
        key, data = blob_key(blob.hash), stored.bytes_of(blob)
        for position in range(len(data)):
            stored.store.replace(key, flipped(data, position, position % 8))
            path = holder.get((blob, position))
            if path is not None:
                found += _is_refused(sound, path, stored.entry.compression)
            other = next(name for name in FILES if name != path)
            assert sound.read(other) == FILES[other]
        stored.store.replace(key, data)
    assert found >= 0.99 * len(holder)


def _is_refused(artifact: Artifact, path: str, compression: str | None) -> bool:
    """One bit in the header of a zstd frame means nothing, so that flipping it does no harm."""
    try:
        content = artifact.read(path)
    except CorruptError as error:
        message = error.message
    else:
        assert compression
        assert content == FILES[path]
        return False
    assert repr(path) in message
    with pytest.raises(CorruptError):
        artifact.read_many(["a", path, "z"])
    return True


def test_a_flipped_bit_of_an_index_is_found_or_does_not_matter(stored: Stored) -> None:
    blob = stored.entry.index
    key, data = blob_key(blob.hash), stored.bytes_of(blob)
    expected = list(stored.open().members())
    for position in range(len(data)):
        stored.store.replace(key, flipped(data, position, position % 8))
        artifact = stored.open()
        if position >= 8:
            with pytest.raises(CorruptError, match=blob.hash):
                list(artifact.members())
            with pytest.raises(CorruptError, match=blob.hash):
                artifact.read("a")
        else:
            assert list(artifact.members()) == expected, "the first magic is for people who look at the file"
    stored.store.replace(key, data)
    assert stored.open().read("letter") == FILES["letter"]


def test_a_flipped_bit_of_a_video_affects_its_chunk_only(video: Stored) -> None:
    (blob,) = video.shards
    member = video.open().member("video")
    wrong = member.offset + MEMBER_CHUNK_BYTES + 5
    video.store.replace(blob_key(blob.hash), flipped(video.bytes_of(blob), wrong))
    artifact = video.open()
    with artifact.open("video") as file:
        assert file.read(100) == VIDEO[:100]
        file.seek(2 * MEMBER_CHUNK_BYTES)
        assert file.read() == VIDEO[2 * MEMBER_CHUNK_BYTES :]
        file.seek(MEMBER_CHUNK_BYTES)
        with pytest.raises(CorruptError, match="'video'"):
            file.read(1)
        file.seek(0)
        assert file.read(100) == VIDEO[:100]
    with pytest.raises(CorruptError, match="'video'"):
        artifact.read("video")
    assert artifact.read("small") == b"small"


def test_a_flipped_bit_of_a_chunk_table_is_found(video: Stored) -> None:
    blob = video.entry.index
    member = video.open().member("video")
    video.store.replace(blob_key(blob.hash), flipped(video.bytes_of(blob), member.chunk_table + 1))
    artifact = video.open()
    assert artifact.read("small") == b"small"
    with pytest.raises(CorruptError, match=blob.hash):
        artifact.read("video")


@pytest.mark.parametrize("change", [lambda data: data[:-1000], lambda data: b"", lambda data: data[:100]])
def test_a_shard_that_was_cut_is_an_error_and_never_a_shorter_file(
    stored: Stored, change: Callable[[bytes], bytes]
) -> None:
    for blob in stored.shards:
        stored.store.replace(blob_key(blob.hash), change(stored.bytes_of(blob)))
    artifact = stored.open()
    for path, content in FILES.items():
        with suppress(CorruptError, ObjectNotFoundError, StoreUnavailableError):
            assert artifact.read(path) == content


def test_a_shard_or_index_that_is_gone_is_named(stored: Stored) -> None:
    for blob in (*stored.shards, stored.entry.index):
        if not blob.byte_size:
            continue
        data = stored.bytes_of(blob)
        stored.store.delete(blob_key(blob.hash))
        with pytest.raises(ObjectNotFoundError, match=blob.hash):
            stored.open().read_many(list(FILES))
        stored.store.create(blob_key(blob.hash), data)


# Cached copies


def spoiled(stored: Stored, blob: Blob) -> dict[str, bytes]:
    return {blob_key(blob.hash): bytes(byte ^ 0xFF for byte in stored.bytes_of(blob))}


def test_a_wrong_copy_is_dropped_and_the_store_is_asked(stored: Stored) -> None:
    for blob in (*stored.shards, stored.entry.index):
        if not blob.byte_size:
            continue
        for use in (_read_one_by_one, _read_at_once, _read_as_files):
            reader = NearCopy(stored.store, spoiled(stored, blob))
            use(stored.open(reader))
            assert reader.distrusted == [blob_key(blob.hash)]


def _read_one_by_one(artifact: Artifact) -> None:
    assert {path: artifact.read(path) for path in FILES} == FILES


def _read_at_once(artifact: Artifact) -> None:
    assert artifact.read_many(list(FILES)) == list(FILES.values())


def _read_as_files(artifact: Artifact) -> None:
    for path, content in FILES.items():
        with artifact.open(path) as file:
            assert file.read() == content


def test_a_copy_that_comes_back_wrong_ends_in_an_error(stored: Stored) -> None:
    """A cache that fetches the same damage again must not be asked for ever."""
    for blob in (*stored.shards, stored.entry.index):
        if not blob.byte_size:
            continue
        reader = NearCopy(stored.store, spoiled(stored, blob), refills=True)
        with pytest.raises(CorruptError):
            _read_one_by_one(stored.open(reader))
        with pytest.raises(CorruptError):
            _read_at_once(stored.open(reader))
        assert len(reader.distrusted) <= 2 * 2


# A store that goes away


def test_a_read_that_fails_leaves_nothing_behind(stored: Stored) -> None:
    """Each of the first requests fails once; asked again, the same artifact answers."""
    for at in range(4):
        artifact = stored.open(FaultyStore(stored.store, FailReads(at)))
        failures = 0
        for path, content in FILES.items():
            try:
                assert artifact.read(path) == content
            except StoreUnavailableError:
                failures += 1
                assert artifact.read(path) == content
        assert failures == 1
        assert artifact.read_many(list(FILES)) == list(FILES.values())


def test_a_failed_request_among_many_is_raised(tmp_path: Path) -> None:
    files = {f"{number:02d}": bytes([number]) * 100 for number in range(40)}
    stored = store_artifact(memory(), files, tmp_path, shard_bytes=100)
    artifact = stored.open(FaultyStore(stored.store, FailReads(20)))
    with pytest.raises(StoreUnavailableError):
        artifact.read_many(list(files))
    assert artifact.read_many(list(files)) == list(files.values())
