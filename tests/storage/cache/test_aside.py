"""If these fail, a disk that is full, read-only or odd takes the data down with it."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.storage.cache.scenes import Clock, Scene, eventually, members, read_members, run_python
from warpdata.errors import StorageError
from warpdata.limits import CACHE_REST_S, MIB
from warpdata.primitives.hashing import blob_key
from warpdata.storage import ByteRange
from warpdata.storage.cache import (
    FILL_EAGERLY,
    FILL_FOR_MEDIA,
    FILL_FOR_TABLES,
    BlobCache,
    CachedReader,
    FillPolicy,
    IOMetrics,
    Refusal,
)

SIZE = 2 * MIB


def everything(reader: CachedReader, scene: Scene, seed: int = 0) -> None:
    """All ways to read, which must all give the bytes of the store."""
    blob, data = scene.blob(SIZE, seed)
    key = blob_key(blob.hash)
    read_members(reader, blob, data, members(SIZE, 1)[:20])
    read_members(reader, blob, data, [ByteRange(start, start + MIB) for start in (0, MIB)])
    assert reader.read(key).data == data
    assert b"".join(reader.stream(key)) == data
    assert reader.invalidate(key) in (True, False)
    path = reader.local_path(key)
    assert path is None or path.read_bytes() == data
    reader.prefetch([blob])
    read_members(reader, blob, data, members(SIZE, 2)[:20])


@pytest.mark.parametrize("policy", [FILL_EAGERLY, FILL_FOR_MEDIA, FILL_FOR_TABLES])
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_a_file_in_place_of_the_folder(tmp_path: Path, policy: FillPolicy, depth: int) -> None:
    scene = Scene(tmp_path)
    scene.cache.folder.mkdir()
    scene.cache.folder.rmdir()
    folder = scene.cache.folder.joinpath(*["sub"] * depth)
    scene.cache.folder.write_bytes(b"not a folder")
    counters = IOMetrics()
    reader = CachedReader(scene.store, BlobCache(folder, 100 * MIB, scene.clock, counters), policy)
    everything(reader, scene)
    reader.close()
    assert counters.snapshot().stepped_aside > 0
    assert scene.cache.folder.read_bytes() == b"not a folder"


CALLS: dict[str, Callable[..., Any]] = {
    "os.pwrite": os.pwrite,
    "os.ftruncate": os.ftruncate,
    "os.fsync": os.fsync,
    "os.pread": os.pread,
    "os.open": os.open,
    "pathlib.Path.mkdir": Path.mkdir,
    "pathlib.Path.replace": Path.replace,
    "pathlib.Path.write_bytes": Path.write_bytes,
    "fcntl.flock": fcntl.flock,
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EIO, errno.ENOLCK])
def test_any_call_that_fails_is_done_without(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, call: str, code: int
) -> None:
    whole = CALLS[call]

    def refuse(*arguments: Any, **options: Any) -> Any:
        file = arguments[0]
        path = str(Path(f"/proc/self/fd/{file}").readlink()) if isinstance(file, int) else str(file)
        if str(scene.cache.folder) not in path:
            return whole(*arguments, **options)  # what the store does with its own files
        raise OSError(code, os.strerror(code))

    blob, _ = scene.blob(SIZE)
    reader = scene.reader(FILL_EAGERLY)
    scene.cache.folder.mkdir()
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "warpdata.storage.cache"):
        patch.setattr(call, refuse)
        everything(reader, scene)
        eventually(lambda: scene.counters.snapshot().stepped_aside > 0)
        reader.close()
    assert sum("is done without" in line for line in caplog.messages) == 1, "it is said once"
    assert not scene.cache.is_entry(blob.hash)
    assert not scene.cache.has_hope(eager=True), "and left in peace for a while"
    assert scene.cache.begin(blob, eager=True) is Refusal.RESTING
    assert isinstance(scene.clock, Clock)
    scene.clock.now += CACHE_REST_S
    everything(scene.reader(FILL_EAGERLY), scene, seed=1)
    other, _ = scene.blob(SIZE, 1)
    eventually(lambda: scene.cache.is_entry(other.hash))
    scene.cache.collect(0)


def test_the_folder_may_vanish_at_any_time(scene: Scene) -> None:
    reader = scene.reader(FILL_EAGERLY)
    for seed in range(4):
        everything(reader, scene, seed)
        shutil.rmtree(scene.cache.folder, ignore_errors=True)
        everything(reader, scene, seed)


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to the superuser")
def test_a_folder_that_may_not_be_written(scene: Scene) -> None:
    blob, data = scene.blob(SIZE)
    scene.reader(FILL_EAGERLY).fill(blob)
    scene.cache.opened.release(0)
    for path in (scene.shelves / blob.hash[:2], scene.cache.folder):
        path.chmod(0o555)
    try:
        reader = scene.reader(FILL_EAGERLY)
        scene.store.clear()
        read_members(reader, blob, data, members(SIZE, 1))
        assert scene.store.counts() == {}, "what is there is used"
        everything(reader, scene, seed=1)
    finally:
        for path in (scene.cache.folder, scene.shelves / blob.hash[:2]):
            path.chmod(0o755)


def test_a_quota_that_is_reached(tmp_path: Path) -> None:
    """The system itself refuses to make a file as large as the blob."""
    scene = Scene(tmp_path)
    blob, _ = scene.blob(SIZE)
    code = """
import resource, sys, time
from pathlib import Path
from tests.storage.cache.scenes import Scene, members, read_members
from warpdata.storage.cache import FILL_EAGERLY
from warpdata.errors import StoreFullError
scene = Scene(Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
reader = scene.reader(FILL_EAGERLY)
from tests.storage.cache.scenes import noise
from warpdata.primitives.hashing import Blob
blob = Blob(sys.argv[2], 2 * 1024 * 1024)
data = noise(0, blob.byte_size)
read_members(reader, blob, data, members(blob.byte_size, 1)[:20])
try:
    reader.fill(blob)
except StoreFullError:
    print("full")
read_members(reader, blob, data, members(blob.byte_size, 1)[:20])
scene.close()
"""
    assert resource.getrlimit(resource.RLIMIT_FSIZE)
    process = run_python(code, tmp_path, blob.hash, complaints="is done without")
    assert process == "full\n"
    assert scene.files() == {}


def test_errors_of_the_disk_are_never_those_of_a_read(scene: Scene) -> None:
    """`OSError` is also what a store's failures inherit; they must not be mistaken for the disk's."""
    blob, data = scene.blob(SIZE)
    reader = scene.reader(FILL_EAGERLY)

    def fail(span: ByteRange) -> None:
        raise StorageError("the store, not the disk")

    scene.store.before = lambda span: fail(span) if span.size_bytes > MIB else None
    read_members(reader, blob, data, members(SIZE, 1)[:5])
    eventually(lambda: scene.counters.snapshot().failed_fills == 1)
    assert scene.counters.snapshot().stepped_aside == 0
    assert scene.cache.has_hope(eager=True)
