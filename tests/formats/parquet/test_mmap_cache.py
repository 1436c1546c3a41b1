"""If this fails, a file that was replaced is read as the old one, or a process keeps more mapped than it says."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from warpdata.formats.parquet.mmap_cache import MappedFiles
from warpdata.limits import MAX_OPEN_HANDLES


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def test_a_file_is_mapped_once(tmp_path: Path) -> None:
    files = MappedFiles(100)
    path = written(tmp_path / "a", b"12345")
    first = files.open(path)
    (tmp_path / "b").symlink_to(path)
    assert files.open(path) is first
    assert files.open(tmp_path / "b") is first
    assert first.source.read_at(3, 1) == b"234"


def test_a_file_that_was_replaced_is_another(tmp_path: Path) -> None:
    files = MappedFiles(100)
    path = written(tmp_path / "a", b"12345")
    first = files.open(path)
    first.sound.add((0, 0))
    status = path.stat()
    other = written(tmp_path / "b", b"abcde")
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    other.replace(path)
    second = files.open(path)
    assert not second.sound
    assert (first.source.read_at(5, 0), second.source.read_at(5, 0)) == (b"12345", b"abcde")


def test_the_files_read_last_stay_as_far_as_there_is_room(tmp_path: Path) -> None:
    files = MappedFiles(10)
    paths = [written(tmp_path / name, name.encode() * 4) for name in "abc"]
    a, b = files.open(paths[0]), files.open(paths[1])
    assert files.open(paths[0]) is a
    c = files.open(paths[2])
    assert files.open(paths[2]) is c
    assert files.open(paths[0]) is a
    assert files.open(paths[1]) is not b
    assert b.source.read_at(4, 0) == b"bbbb", "who still has it may go on"


def test_a_file_that_is_too_large_pushes_nothing_out(tmp_path: Path) -> None:
    files = MappedFiles(10)
    small, large = written(tmp_path / "a", b"12345"), written(tmp_path / "b", b"x" * 11)
    kept = files.open(small)
    assert files.open(large) is not files.open(large)
    assert files.open(small) is kept


def test_small_files_do_not_use_up_what_a_process_may_have_open(tmp_path: Path) -> None:
    files = MappedFiles(1 << 30)
    paths = [written(tmp_path / str(number), b"x") for number in range(MAX_OPEN_HANDLES + 1)]
    first, *_ = [files.open(path) for path in paths]
    assert files.open(paths[-1]) is files.open(paths[-1])
    assert files.open(paths[0]) is not first


def test_threads_that_come_at_once_get_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = MappedFiles(100)
    path = written(tmp_path / "a", b"12345")
    both_are_here = threading.Barrier(2, timeout=30)
    memory_map = pa.memory_map

    def slow(name: str) -> Any:
        both_are_here.wait()
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
def test_a_forked_process_begins_with_nothing_and_waits_for_nobody(tmp_path: Path) -> None:
    from warpdata.formats.parquet.mmap_cache import MAPPED

    path = written(tmp_path / "a", b"12345")
    MAPPED.open(path).sound.add((0, 0))
    with MAPPED._lock:
        child = os.fork()
        if child == 0:
            os._exit(0 if MAPPED.open(path).sound == set() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
