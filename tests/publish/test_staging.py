"""If this fails, a killed publish leaves its files on disk for ever, or another process loses those it still needs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import warpdata as wd
from tests.cli.scenes import ask, run
from tests.faults.scenes import rows
from warpdata.errors import BadInputError, ErrorKind, InvalidSourceError, NotFoundError, StorageError
from warpdata.storage.cache import StagingDirectory, reclaim_staging

STAGE_AND_WAIT = """
import sys, time, numpy as np, pyarrow as pa, warpdata as wd
builder = wd.DatasetBuilder("a/b", sys.argv[1]).add_table("main", {"n": np.arange(100_000)})
builder.plan()
print("staged", flush=True)
time.sleep(60)
"""


def staged_dirs(cache: Path) -> list[Path]:
    return sorted(path for path in cache.glob("staging-*") if path.is_dir())


@pytest.fixture
def cache() -> Path:
    return wd.load_settings().cache_dir


@pytest.fixture
def killed(cache: Path, tmp_path: Path) -> Path:
    """The staging directory of a publish that was killed."""
    publisher = subprocess.Popen(
        [sys.executable, "-c", STAGE_AND_WAIT, f"{tmp_path}/store"], stdout=subprocess.PIPE, text=True
    )
    assert publisher.stdout is not None
    assert publisher.stdout.readline() == "staged\n"
    (directory,) = staged_dirs(cache)
    assert reclaim_staging(cache).directories == 0, "its owner lives"
    assert directory.exists()
    publisher.send_signal(signal.SIGKILL)
    publisher.wait()
    publisher.stdout.close()
    assert directory.exists()
    return directory


def test_the_next_publish_removes_what_a_killed_one_left(killed: Path, tmp_path: Path) -> None:
    wd.DatasetBuilder("a/b", f"{tmp_path}/store").add_table("main", rows(0)).publish()
    assert not killed.exists()


@pytest.mark.parametrize("command", [("cache", "gc"), ("cache", "clear", "--yes"), ("doctor",)])
def test_commands_remove_what_a_killed_publish_left(killed: Path, command: tuple[str, ...]) -> None:
    done = run(*command)
    assert done.exit_code == 0
    assert "1 staging directory of killed publishes" in " ".join(done.stdout.split())
    assert not killed.exists()
    assert list(killed.parent.glob("staging-*")) == []


def test_the_directory_of_a_running_publish_stays(cache: Path, tmp_path: Path) -> None:
    builder = wd.DatasetBuilder("a/b", f"{tmp_path}/store").add_table("main", rows(0))
    builder.plan()
    (directory,) = staged_dirs(cache)
    assert ask("cache", "clear", "--yes")["staging_directories"] == 0
    assert reclaim_staging(cache).directories == 0
    assert builder.publish().changed
    assert directory.exists()
    del builder
    assert list(cache.glob("staging-*")) == []


def test_a_forked_child_does_not_remove_the_directory_of_its_parent(cache: Path) -> None:
    staging = StagingDirectory(cache)
    child = os.fork()
    if child == 0:
        staging.remove()
        os._exit(0)
    os.waitpid(child, 0)
    assert staging.path.exists()
    assert reclaim_staging(cache).directories == 0, "the child did not release the lock"
    staging.remove()
    assert list(cache.glob("staging-*")) == []


def test_a_directory_of_an_older_release_goes_after_a_day(cache: Path) -> None:
    old = cache / "staging-abc"
    old.mkdir(parents=True)
    (old / "rows.parquet").write_bytes(bytes(100))
    assert reclaim_staging(cache).directories == 0
    before = time.time() - 2 * 24 * 3600
    for path in (old / "rows.parquet", old):
        os.utime(path, (before, before))
    done = reclaim_staging(cache)
    assert (done.directories, done.size_bytes) == (1, 100)


def test_a_link_is_not_followed(cache: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_bytes(b"1")
    cache.mkdir(parents=True, exist_ok=True)
    (cache / "staging-evil").symlink_to(precious)
    (cache / "staging-evil.lock").touch()
    reclaim_staging(cache)
    assert (precious / "file").exists()


# Typed errors


PUBLISH_WITHOUT_SPACE = """
import resource, sys, numpy as np, warpdata as wd
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
try:
    wd.DatasetBuilder("a/b", sys.argv[1]).add_table("main", {"n": np.random.rand(100_000)}).publish()
except wd.errors.StorageError as error:
    print(error.kind, error, sep="|")
"""


def test_a_full_disk_in_staging_is_a_storage_error(tmp_path: Path) -> None:
    """The system limits the size of files, which is the same to a writer as a full disk."""
    done = subprocess.run(
        [sys.executable, "-c", PUBLISH_WITHOUT_SPACE, f"{tmp_path}/store"], capture_output=True, text=True, check=True
    )
    kind, _, message = done.stdout.partition("|")
    assert kind == "store_full"
    assert "cannot be written: File too large" in message
    assert "WARP_CACHE_DIR" in message


def test_a_source_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "gone.parquet").symlink_to(tmp_path / "nothing")
    store = f"{tmp_path}/store"
    for builder in (
        wd.DatasetBuilder("a/b", store).add_table("main", tmp_path / "gone.parquet"),
        wd.DatasetBuilder("a/b", store).add_tensors("weights", tmp_path / "gone.safetensors"),
        wd.DatasetBuilder("a/b", store).add_episodes("demos", tmp_path / "gone.wshard"),
        wd.DatasetBuilder("a/b", store).add_artifact("raw", tmp_path / "gone"),
    ):
        with pytest.raises((BadInputError, NotFoundError), match="gone"):
            builder.publish()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_at_the_upload_is_a_storage_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packed shards are written to disk when they are uploaded."""
    real = Path.open

    def open_full(self: Path, mode: str = "r", *rest: Any, **how: Any) -> Any:
        return real(Path("/dev/full") if self.suffix == ".shard" and "w" in mode else self, mode, *rest, **how)

    monkeypatch.setattr(Path, "open", open_full)
    builder = wd.DatasetBuilder("a/b", f"{tmp_path}/store").add_artifact("raw", {"a.bin": bytes(100_000)})
    with pytest.raises(StorageError, match="No space left") as raised:
        builder.publish()
    assert raised.value.kind is ErrorKind.STORE_FULL


@pytest.mark.parametrize("at", [0.3, 0.5, 0.7])
def test_rewriting_a_damaged_file_is_an_invalid_source(at: float, tmp_path: Path) -> None:
    path = tmp_path / "damaged.parquet"
    pq.write_table(pa.table({"s": [f"text {n}" for n in range(5000)]}), path, write_page_checksum=True)
    data = bytearray(path.read_bytes())
    footer = int.from_bytes(data[-8:-4], "little") + 8
    start = int(at * (len(data) - footer))
    data[start : start + 64] = bytes(64)
    path.write_bytes(data)
    builder = wd.DatasetBuilder("a/b", f"{tmp_path}/store").add_table("main", path, rewrite=True)
    with pytest.raises(InvalidSourceError, match=r"damaged\.parquet cannot be decoded"):
        builder.publish()


def test_binding_a_column_of_a_damaged_file_is_an_invalid_source(tmp_path: Path) -> None:
    path = tmp_path / "damaged.parquet"
    pq.write_table(pa.table({"file": ["a.bin"] * 5000}), path, use_dictionary=False, compression="snappy")
    data = bytearray(path.read_bytes())
    data[30:60] = b"\xff" * 30
    path.write_bytes(data)
    builder = wd.DatasetBuilder("a/b", f"{tmp_path}/store").add_table("main", path).add_artifact("raw", {"a.bin": b"1"})
    with pytest.raises(InvalidSourceError, match=r"'file' of .* cannot be decoded"):
        builder.bind("main", "file", "raw").publish()
