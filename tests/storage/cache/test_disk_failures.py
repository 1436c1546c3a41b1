"""If these fail, a disk that is full, read-only or broken makes reads fail."""

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
from warpdata.limits import MIB
from warpdata.primitives.hashing import blob_key
from warpdata.storage import ByteRange, IOMetrics
from warpdata.storage.cache import BlobCache, CachedReader, FetchPolicy, Refusal
from warpdata.storage.cache.blob_cache import BACKOFF_S

SIZE = 2 * MIB


def read_all_ways(reader: CachedReader, scene: Scene, seed: int = 0) -> None:
    """Read a blob by every method, and compare with the bytes of the store."""
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


@pytest.mark.parametrize("policy", FetchPolicy)
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_a_file_in_place_of_the_directory(tmp_path: Path, policy: FetchPolicy, depth: int) -> None:
    scene = Scene(tmp_path)
    scene.cache.directory.mkdir()
    scene.cache.directory.rmdir()
    directory = scene.cache.directory.joinpath(*["sub"] * depth)
    scene.cache.directory.write_bytes(b"not a directory")
    counters = IOMetrics()
    reader = CachedReader(scene.store, BlobCache(directory, 100 * MIB, scene.clock, counters), policy)
    read_all_ways(reader, scene)
    reader.close()
    assert counters.snapshot().stepped_aside > 0
    assert scene.cache.directory.read_bytes() == b"not a directory"


CALLS: dict[str, Callable[..., Any]] = {
    "os.pwrite": os.pwrite,
    "os.ftruncate": os.ftruncate,
    "os.fsync": os.fsync,
    "os.pread": os.pread,
    "os.open": os.open,
    "pathlib.Path.mkdir": Path.mkdir,
    "pathlib.Path.replace": Path.replace,
    "fcntl.flock": fcntl.flock,
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EIO, errno.ENOLCK])
def test_a_system_call_that_fails_is_no_error(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, call: str, code: int
) -> None:
    original = CALLS[call]

    def refuse(*arguments: Any, **options: Any) -> Any:
        file = arguments[0]
        path = str(Path(f"/proc/self/fd/{file}").readlink()) if isinstance(file, int) else str(file)
        if str(scene.cache.directory) not in path:
            return original(*arguments, **options)  # a file of the store
        raise OSError(code, os.strerror(code))

    blob, _ = scene.blob(SIZE)
    reader = scene.reader(FetchPolicy.EAGER)
    scene.cache.directory.mkdir()
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "warpdata.storage.cache"):
        patch.setattr(call, refuse)
        read_all_ways(reader, scene)
        eventually(lambda: scene.counters.snapshot().stepped_aside > 0)
        reader.close()
    assert sum("is bypassed" in line for line in caplog.messages) == 1, "one warning"
    assert not scene.cache.contains(blob.hash)
    assert not scene.cache.can_fill(eager=True), "no fill is tried for a while"
    assert scene.cache.open_partial(blob.hash, "0" * 16, SIZE, eager=True) is Refusal.BACKOFF
    assert isinstance(scene.clock, Clock)
    scene.clock.now += BACKOFF_S
    later = scene.reader(FetchPolicy.EAGER)
    read_all_ways(later, scene, seed=1)
    other, _ = scene.blob(SIZE, 1)

    def is_cached_in_time() -> bool:
        """A reader that finds a file busy tries again later, so time must pass."""
        scene.clock.now += 1.0  # type: ignore[attr-defined]
        later.prefetch([other])
        return scene.cache.contains(other.hash)

    eventually(is_cached_in_time)
    scene.cache.collect(0)


def test_the_directory_may_vanish_at_any_time(scene: Scene) -> None:
    reader = scene.reader(FetchPolicy.EAGER)
    for seed in range(4):
        read_all_ways(reader, scene, seed)
        shutil.rmtree(scene.cache.directory, ignore_errors=True)
        read_all_ways(reader, scene, seed)


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write anywhere")
def test_a_read_only_directory(scene: Scene) -> None:
    blob, data = scene.blob(SIZE)
    scene.reader(FetchPolicy.EAGER).fill(blob)
    scene.cache.opened.release(0)
    for path in (scene.blobs / blob.hash[:2], scene.cache.directory):
        path.chmod(0o555)
    try:
        reader = scene.reader(FetchPolicy.EAGER)
        scene.store.clear()
        read_members(reader, blob, data, members(SIZE, 1))
        assert scene.store.counts() == {}, "entries are used"
        read_all_ways(reader, scene, seed=1)
    finally:
        for path in (scene.cache.directory, scene.blobs / blob.hash[:2]):
            path.chmod(0o755)


def test_a_file_size_limit(tmp_path: Path) -> None:
    """The system refuses to make a file as large as the blob."""
    scene = Scene(tmp_path)
    blob, _ = scene.blob(SIZE)
    code = """
import resource, sys, time
from pathlib import Path
from tests.storage.cache.scenes import Scene, members, read_members
from warpdata.storage.cache import FetchPolicy
from warpdata.errors import StorageError
scene = Scene(Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
reader = scene.reader(FetchPolicy.EAGER)
from tests.storage.cache.scenes import noise
from warpdata.primitives.hashing import Blob
blob = Blob(sys.argv[2], 2 * 1024 * 1024)
data = noise(0, blob.byte_size)
read_members(reader, blob, data, members(blob.byte_size, 1)[:20])
try:
    reader.fill(blob)
except StorageError:
    print("full")
read_members(reader, blob, data, members(blob.byte_size, 1)[:20])
scene.close()
"""
    assert resource.getrlimit(resource.RLIMIT_FSIZE)
    process = run_python(code, tmp_path, blob.hash, expected_error="is bypassed")
    assert process == "full\n"
    assert scene.files() == {}


def test_errors_of_the_store_do_not_disable_the_cache(scene: Scene) -> None:
    """Errors of a store are `OSError` too, and must not be taken for errors of the disk."""
    blob, data = scene.blob(SIZE)
    reader = scene.reader(FetchPolicy.EAGER)

    def fail(span: ByteRange) -> None:
        raise StorageError("the store failed")

    scene.store.before = lambda span: fail(span) if span.size_bytes > 100_000 else None
    read_members(reader, blob, data, members(SIZE, 1)[:5])
    eventually(lambda: scene.counters.snapshot().failed_fills == 1)
    assert scene.counters.snapshot().stepped_aside == 0
    assert scene.cache.can_fill(eager=True)
