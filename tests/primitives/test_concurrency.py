"""If this fails, readers use cores or memory they do not have, or leave those idle that they have."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from warpdata.primitives import concurrency
from warpdata.primitives.concurrency import (
    _cgroup_directories,
    _find_memory,
    _read_quota,
    core_limit,
    default_read_memory,
    memory_limit,
    set_threads,
    usable_cores,
)


def write(directory: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu.max": "150000 100000\n"}, 2),
        ({"cpu.max": "400000 100000\n"}, 4),
        ({"cpu.cfs_quota_us": "-1\n", "cpu.cfs_period_us": "100000\n"}, None),
        ({"cpu.cfs_quota_us": "50000\n", "cpu.cfs_period_us": "100000\n"}, 1),
        ({"cpu.max": "nonsense\n"}, None),
        ({}, None),
    ],
)
def test_the_quota_of_a_container_bounds_the_cores(tmp_path: Path, files: dict[str, str], cores: int | None) -> None:
    write(tmp_path, files)
    found = _read_quota(tmp_path)
    assert found == cores if cores else found > 4096


@pytest.mark.parametrize(
    ("own", "files", "cores"),
    [
        ("0::/\n", {"cpu.max": "300000 100000"}, 3),
        ("0::/a/b\n", {"a/cpu.max": "200000 100000", "a/b/cpu.max": "500000 100000"}, 2),
        ("0::/a/b\n", {"a/b/cpu.max": "100000 100000", "cpu.max": "max 100000"}, 1),
        ("3:cpu,cpuacct:/x\n0::/\n", {"cpu/x/cpu.cfs_quota_us": "400000", "cpu/x/cpu.cfs_period_us": "100000"}, 4),
        ("nonsense\n", {"cpu.max": "600000 100000"}, 6),
        ("0::/gone\n", {}, None),
    ],
)
def test_every_group_around_the_process_counts(
    tmp_path: Path, own: str, files: dict[str, str], cores: int | None
) -> None:
    write(tmp_path / "cgroup", files)
    (tmp_path / "own").write_text(own)
    found = min(map(_read_quota, _cgroup_directories("cpu", tmp_path / "cgroup", tmp_path / "own")))
    assert found == cores if cores else found > 4096


def test_the_memory_of_a_container_counts(tmp_path: Path) -> None:
    write(tmp_path, {"a/memory.max": "1073741824\n", "a/b/memory.max": "max\n", "a/b/memory.high": "536870912\n"})
    found = _find_memory(iter([tmp_path / "a/b", tmp_path / "a", tmp_path]))
    assert (found.value, found.reason) == (512 << 20, "of the container")
    whole = _find_memory(iter([tmp_path / "none"]))
    assert (whole.value, whole.reason) == (memory_limit().value, memory_limit().reason) or whole.value > 1 << 29


def test_reads_hold_a_small_part_of_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    for memory, expected in ((1 << 30, 256 << 20), (16 << 30, 1 << 30), (1 << 40, 4 << 30)):
        default_read_memory.cache_clear()
        monkeypatch.setattr(concurrency, "memory_limit", lambda memory=memory: concurrency.MachineLimit(memory, "made"))
        assert default_read_memory() == expected
    default_read_memory.cache_clear()


def test_cores_follow_the_affinity_and_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2}, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(concurrency._quota, "cores", lambda: 1 << 20)
    assert usable_cores() == core_limit().value == 3
    assert "affinity" in core_limit().reason
    monkeypatch.setattr(concurrency._quota, "cores", lambda: 2)
    assert usable_cores() == core_limit().value == 2
    assert "quota" in core_limit().reason
    set_threads(5)
    assert usable_cores() == core_limit().value == 5
    assert core_limit().reason == "set by WARP_THREADS"
