"""If these fail, another user of the machine can read cached data, plant bytes, or make a process overwrite files."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.storage.cache.scenes import Clock, Scene, noise, run_python, source_of, write_entry
from warpdata.errors import AccessDeniedError, NotCachedError
from warpdata.limits import KIB, MIB
from warpdata.primitives.hashing import Blob, blob_key, sha256_hex
from warpdata.repository.catalog import is_valid, key_policy
from warpdata.storage import ByteRange, MetadataCache, MetadataCacheFiles
from warpdata.storage.cache import BlobCache, CachedReader, FetchPolicy, Filled, OfflineReader
from warpdata.storage.cache.stats import add_to_totals

SIZE = 300 * KIB
OTHER_UID = 65534
SECRET = b"a file of the victim"

RECORD = b'{"checksum":"%s"}' % sha256_hex(b"{}").encode()
"""The smallest record that the metadata cache keeps."""
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser can become another user")


def read_and_fill(scene: Scene) -> Blob:
    """Read a blob, cache it, and cache a small object. Reads must work whatever the cache directory is."""
    blob, data = scene.blob(SIZE)
    reader = scene.reader(FetchPolicy.EAGER)
    assert reader.read_range(blob_key(blob.hash), ByteRange(5, 9)) == data[5:9]
    reader.fill(blob)
    scene.store.create("datasets/a/b/latest.json", RECORD)
    MetadataCache(scene.store, scene.cache.directory / "metadata", key_policy, is_valid).read(
        "datasets/a/b/latest.json"
    )
    scene.cache.save_counts()
    reader.close()
    return blob


def test_everything_in_the_cache_is_private(scene: Scene) -> None:
    old = os.umask(0)
    try:
        read_and_fill(scene)
        scene.cache.put(b"extracted")
    finally:
        os.umask(old)
    found = [scene.cache.directory, *scene.cache.directory.rglob("*")]
    modes = {path.relative_to(scene.cache.directory): stat.S_IMODE(path.stat().st_mode) for path in found}
    assert len(modes) > 10
    assert {name: mode for name, mode in modes.items() if mode not in (0o700, 0o600)} == {}


def test_a_cache_of_an_older_version_becomes_private(scene: Scene) -> None:
    blob = read_and_fill(scene)
    scene.cache.opened.release(0)
    for path in scene.cache.directory.rglob("*"):
        path.chmod(0o775 if path.is_dir() else 0o664)
    other = BlobCache(scene.cache.directory, MIB, scene.clock)
    assert other.find(blob.hash) is not None
    assert stat.S_IMODE((scene.cache.directory / "blobs").stat().st_mode) == 0o700
    assert stat.S_IMODE(scene.path(blob.hash).stat().st_mode) == 0o600


Plant = Callable[[Path, Path], None]
PLANTS: dict[str, Plant] = {
    "link": lambda path, victim: path.symlink_to(victim),
    "hard link": lambda path, victim: path.hardlink_to(victim),
    "dangling link": lambda path, victim: path.symlink_to(victim.with_name("made by the cache")),
    "fifo": lambda path, victim: os.mkfifo(path),
}


@pytest.mark.parametrize("name", [".part", ".map", ".new", ".ok", "", "ledger", "totals.json"])
@pytest.mark.parametrize("plant", PLANTS)
def test_a_planted_file_is_neither_followed_nor_believed(scene: Scene, plant: str, name: str) -> None:
    blob, data = scene.blob(SIZE)
    victim = scene.cache.directory.parent / "victim"
    victim.write_bytes(SECRET)
    partial = f".{source_of(scene.store)}" if name in (".part", ".map") else ""
    paths = {"ledger": scene.blobs / name, "totals.json": scene.cache.directory / name}
    path = paths.get(name, scene.path(blob.hash, partial + name))
    path.parent.mkdir(parents=True, exist_ok=True)
    PLANTS[plant](path, victim)
    read_and_fill(scene)
    assert victim.read_bytes() == SECRET
    assert not victim.with_name("made by the cache").exists()
    assert scene.cache.contains(blob.hash)
    entry = scene.cache.find_intact(blob.hash)
    assert entry is not None
    assert entry.view == data
    assert scene.cache.stats().entries == 1


@pytest.mark.parametrize("planted", ["blobs", "shard", "metadata"])
def test_a_planted_directory_is_refused(scene: Scene, tmp_path: Path, planted: str) -> None:
    blob, data = scene.blob(SIZE)
    victim = tmp_path / "victims directory"
    victim.mkdir()
    scene.blobs.mkdir(parents=True)
    path = {"blobs": scene.blobs, "shard": scene.path(blob.hash).parent, "metadata": scene.cache.directory / "metadata"}
    if planted == "blobs":
        scene.blobs.rmdir()
    path[planted].symlink_to(victim)
    reader = scene.reader(FetchPolicy.EAGER)
    assert reader.read_range(blob_key(blob.hash), ByteRange(5, 9)) == data[5:9]
    if planted == "metadata":
        scene.store.create("datasets/a/b/latest.json", RECORD)
        small = MetadataCache(scene.store, scene.cache.directory / "metadata", key_policy, is_valid)
        assert small.read("datasets/a/b/latest.json").data == RECORD
    else:
        with pytest.raises(AccessDeniedError) as caught:
            reader.fill(blob)
        assert "WARP_CACHE_DIR" in (caught.value.hint or "")
    assert list(victim.iterdir()) == []


def refused(directory: Path, scene: Scene) -> None:
    """Check that the cache is bypassed by reads, and that explicit operations raise a typed error."""
    blob, data = scene.blob(SIZE)
    cache = BlobCache(directory, MIB, Clock())
    reader = CachedReader(scene.store, cache, FetchPolicy.EAGER)
    assert reader.read_range(blob_key(blob.hash), ByteRange(5, 9)) == data[5:9]
    offline = OfflineReader("s3://lake", cache, MetadataCacheFiles("s3://lake", directory / "metadata"), "warm it")
    asks: list[Callable[[], object]] = [
        lambda: reader.fill(blob),
        cache.stats,
        cache.clear,
        lambda: offline.read(blob_key(blob.hash)),
    ]
    for ask in asks:
        with pytest.raises(AccessDeniedError) as caught:
            ask()
        assert str(directory) in caught.value.message
        assert "WARP_CACHE_DIR" in (caught.value.hint or "")
    assert not list(directory.rglob("*.part"))


def test_a_directory_that_everyone_can_write_is_refused_unless_it_is_sticky(scene: Scene, tmp_path: Path) -> None:
    directory = tmp_path / "shared"
    directory.mkdir()
    directory.chmod(0o777)
    refused(directory, scene)
    directory.chmod(0o1777)
    blob, _ = scene.blob(SIZE)
    cache = BlobCache(directory, MIB, Clock())
    assert CachedReader(scene.store, cache, FetchPolicy.EAGER).fill(blob) is Filled.FETCHED
    assert stat.S_IMODE((directory / "blobs").stat().st_mode) == 0o700


@needs_root
def test_a_directory_of_another_user_is_refused(scene: Scene, tmp_path: Path) -> None:
    directory = tmp_path / "foreign"
    directory.mkdir(0o700)
    os.chown(directory, OTHER_UID, OTHER_UID)
    refused(directory, scene)
    shared = tmp_path / "sticky"
    shared.mkdir()
    shared.chmod(0o1777)
    (shared / "blobs").mkdir()
    os.chown(shared / "blobs", OTHER_UID, OTHER_UID)
    refused(shared, scene)


@needs_root
def test_another_user_can_neither_read_nor_truncate_an_entry(scene: Scene, tmp_path: Path) -> None:
    """The directories above are open, as `/tmp` is. Only the modes of the cache protect it."""
    blob = read_and_fill(scene)
    for path in [tmp_path, *tmp_path.parents][:4]:
        path.chmod(path.stat().st_mode | 0o055)
    code = """
import os, sys
os.setgid(65534); os.setuid(65534)
for act in (lambda p: open(p, "rb").read(), lambda p: os.truncate(p, 0), lambda p: os.unlink(p), os.listdir):
    try:
        act(sys.argv[1] if act is not os.listdir else sys.argv[2])
    except PermissionError:
        print("denied")
"""
    out = run_python(code, scene.path(blob.hash), scene.cache.directory)
    assert out.split() == ["denied"] * 4


@needs_root
def test_an_entry_that_another_user_owns_is_never_mapped(scene: Scene) -> None:
    """Its owner could truncate it, which would kill a process that has it mapped."""
    blob = read_and_fill(scene)
    scene.cache.opened.release(0)
    os.chown(scene.path(blob.hash), OTHER_UID, OTHER_UID)
    assert BlobCache(scene.cache.directory, MIB, Clock()).find(blob.hash) is None


# The limit


@pytest.mark.parametrize(
    "forged", [b"warp-cache-1 %26d\n" % 0, b"warp-cache-1 %26d\n" % (SIZE // 2), b"junk", b"\xff" * 99]
)
def test_a_forged_total_does_not_break_the_limit(tmp_path: Path, forged: bytes) -> None:
    limit = 4 * SIZE
    cache = BlobCache(tmp_path / "cache", limit, Clock())
    for seed in range(4):
        assert write_entry(cache, noise(seed, SIZE)) is not None
    cache.opened.release(0)
    (tmp_path / "cache" / "blobs" / "ledger").write_bytes(forged)
    for seed in range(4, 12):
        other = BlobCache(tmp_path / "cache", limit, Clock(1_000_000.0 + 1000 * seed))
        assert write_entry(other, noise(seed, SIZE)) is not None
        found = other.stats()
        other.opened.release(0)
        assert found.bytes + found.part_bytes <= limit


def test_a_total_that_would_become_negative_is_counted_again(tmp_path: Path) -> None:
    cache = BlobCache(tmp_path / "cache", 4 * SIZE, Clock())
    blobs = [write_entry(cache, noise(seed, SIZE)) for seed in range(2)]
    quota_path = tmp_path / "cache" / "blobs" / "ledger"
    quota_path.write_bytes(b"warp-cache-1 %26d\n" % 10)
    assert blobs[0] is not None
    cache.remove(blobs[0].hash)
    assert quota_path.read_bytes() == b"", "unknown, so that the next reservation scans"
    write_entry(cache, noise(2, SIZE))
    assert int(quota_path.read_bytes().split()[1]) == 2 * SIZE


def test_counts_are_not_written_through_a_link(tmp_path: Path) -> None:
    from warpdata.storage import IOStats

    (tmp_path / "victim").write_bytes(SECRET)
    (tmp_path / "totals.json").symlink_to(tmp_path / "victim")
    assert add_to_totals(tmp_path, IOStats(hits=1))
    assert (tmp_path / "victim").read_bytes() == SECRET


def test_missing_bytes_are_still_not_cached(tmp_path: Path) -> None:
    cache = BlobCache(tmp_path / "cache", MIB, Clock())
    offline = OfflineReader(
        "s3://lake", cache, MetadataCacheFiles("s3://lake", tmp_path / "cache" / "metadata"), "warm"
    )
    with pytest.raises(NotCachedError):
        offline.read("datasets/a/b/latest.json")
