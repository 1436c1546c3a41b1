"""If this fails, a replaced file is read as the old one, or a process maps more bytes than its limit."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from warpdata.formats.parquet import mmap_cache
from warpdata.formats.parquet.mmap_cache import MMAP_CACHE, MmapCache


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def test_a_file_is_mapped_once(tmp_path: Path) -> None:
    files = MmapCache(100)
    path = written(tmp_path / "a", b"12345")
    first = files.open(path)
    (tmp_path / "b").symlink_to(path)
    assert files.open(path) is first
    assert files.open(tmp_path / "b") is first
    assert first.source.read_at(3, 1) == b"234"


def test_a_replaced_file_is_mapped_again(tmp_path: Path) -> None:
    files = MmapCache(100)
    path = written(tmp_path / "a", b"12345")
    first = files.open(path)
    first.verified.add((0, 0))
    status = path.stat()
    other = written(tmp_path / "b", b"abcde")
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    other.replace(path)
    second = files.open(path)
    assert not second.verified
    assert (first.source.read_at(5, 0), second.source.read_at(5, 0)) == (b"12345", b"abcde")


def test_the_most_recently_used_files_stay_mapped(tmp_path: Path) -> None:
    files = MmapCache(10)
    paths = [written(tmp_path / name, name.encode() * 4) for name in "abc"]
    a, b = files.open(paths[0]), files.open(paths[1])
    assert files.open(paths[0]) is a
    c = files.open(paths[2])
    assert files.open(paths[2]) is c
    assert files.open(paths[0]) is a
    assert files.open(paths[1]) is not b
    assert b.source.read_at(4, 0) == b"bbbb", "a reader of an evicted file can continue"


def test_a_file_above_the_limit_evicts_nothing(tmp_path: Path) -> None:
    files = MmapCache(10)
    small, large = written(tmp_path / "a", b"12345"), written(tmp_path / "b", b"x" * 11)
    kept = files.open(small)
    assert files.open(large) is not files.open(large)
    assert files.open(small) is kept


def test_the_number_of_mapped_files_is_bounded(tmp_path: Path) -> None:
    files = MmapCache(1 << 30)
    paths = [written(tmp_path / str(number), b"x") for number in range(mmap_cache._MAX_FILES + 1)]
    first, *_ = [files.open(path) for path in paths]
    assert files.open(paths[-1]) is files.open(paths[-1])
    assert files.open(paths[0]) is not first


def test_threads_that_open_a_file_together_share_the_mapping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = MmapCache(100)
    path = written(tmp_path / "a", b"12345")
    both_arrived = threading.Barrier(2, timeout=30)
    memory_map = pa.memory_map

    def slow(name: str) -> Any:
        both_arrived.wait()
        return memory_map(name)

    monkeypatch.setattr(pa, "memory_map", slow)
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(files.open(path))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[0] is found[1] is files.open(path)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process")
def test_a_forked_child_starts_empty_and_unlocked(tmp_path: Path) -> None:
    path = written(tmp_path / "a", b"12345")
    MMAP_CACHE.open(path).verified.add((0, 0))
    with MMAP_CACHE._files._lock:
        child = os.fork()
        if child == 0:
            os._exit(0 if MMAP_CACHE.open(path).verified == set() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
