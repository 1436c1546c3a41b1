"""If this fails, `num_workers="auto"` starts processes that do not pay, or more than the memory holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import warpdata as wd
from warpdata.errors import BadInputError
from warpdata.primitives.concurrency import MachineLimit
from warpdata.settings import local_world_size
from warpdata.streaming import StreamOptions
from warpdata.streaming.worker_count import MachineShare, choose_worker_count

GB = 10**9


def unchanged(sample: dict[str, Any]) -> dict[str, Any]:
    return sample


@pytest.mark.parametrize("cores", [1, 2, 3])
def test_few_cores_use_threads(cores: int) -> None:
    assert choose_worker_count(50_000, StreamOptions(), MachineShare(cores, 64 * GB)).count == 0


def test_many_cores_get_a_worker_each() -> None:
    chosen = choose_worker_count(50_000, StreamOptions(resize={"image": (224, 224)}), MachineShare(16, 64 * GB))
    assert (chosen.count, chosen.reason) == (16, "one for each of 16 usable cores")


def test_rows_without_media_need_no_workers_but_a_transform_does() -> None:
    for options in (StreamOptions(), StreamOptions(collate="arrow"), StreamOptions(decode=False)):
        assert choose_worker_count(0, options, MachineShare(64, 64 * GB)).count == 0
    assert choose_worker_count(50_000, StreamOptions(decode=False), MachineShare(64, 64 * GB)).count == 0
    assert choose_worker_count(0, StreamOptions(transform=unchanged), MachineShare(8, 64 * GB)).count == 8
    assert choose_worker_count(0, StreamOptions(transform=unchanged), MachineShare(2, 64 * GB)).count == 0


@given(st.floats(0, 1e8), st.integers(1, 4096), st.integers(1, 256), st.integers(0, 200 * GB), st.integers(0, 16))
def test_workers_fit_into_memory_and_cores(
    media_bytes: float, batch_size: int, cores: int, memory_bytes: int, prefetch: int
) -> None:
    options = StreamOptions(batch_size=batch_size, prefetch=prefetch)
    chosen = choose_worker_count(media_bytes, options, MachineShare(cores, memory_bytes))
    assert 0 <= chosen.count <= cores
    assert chosen.count != 1
    assert chosen.reason
    assert chosen.count * prefetch * batch_size * media_bytes <= memory_bytes


def test_workers_fit_into_shared_memory() -> None:
    """A worker that fills /dev/shm dies of a bus error, and containers often have 64 MB of it."""
    options = StreamOptions(batch_size=64, resize={"image": (224, 224)})
    assert choose_worker_count(50_000, options, MachineShare(16, 64 * GB, 64_000_000)).count == 0
    chosen = choose_worker_count(50_000, options, MachineShare(16, 64 * GB, 200_000_000))
    assert 1 < chosen.count < 8
    assert "shared memory" in chosen.reason


@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")
def test_a_loader_resolves_auto_and_refuses_other_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="the extra torch is not installed")
    wd.DatasetBuilder("a/t", tmp_path.as_uri()).add_table("main", pa.table({"id": range(40)})).publish()
    dataset = wd.dataset("a/t", store=tmp_path.as_uri())
    plain = dataset.to_torch(8, num_workers="auto")
    assert (plain.num_workers, plain.num_workers_reason) == (0, "nothing to decode: threads suffice")
    monkeypatch.setattr("warpdata.streaming.worker_count.usable_cores", lambda: 4)
    monkeypatch.setattr("warpdata.streaming.worker_count.memory_limit", lambda: MachineLimit(64 * GB, "a test"))
    busy = dataset.to_torch(8, num_workers="auto", transform=unchanged, shuffle=True)
    assert busy.num_workers == 4
    assert [batch["id"].tolist() for batch in busy.epoch(1)] == [
        batch["id"].tolist() for batch in dataset.to_torch(8, num_workers=0, shuffle=True).epoch(1)
    ]
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert dataset.to_torch(8, num_workers="auto", transform=unchanged, shard=(0, 1)).num_workers == 0
    for bad in ("many", -1, True, 1.5):
        with pytest.raises(BadInputError, match="num_workers"):
            dataset.to_torch(8, num_workers=bad)  # type: ignore[arg-type]


def test_ranks_of_torchrun_share_the_cores() -> None:
    assert local_world_size({}) == 1
    assert local_world_size({"LOCAL_WORLD_SIZE": "8"}) == 8
    for bad in ("0", "-1", "x", "", "²"):
        with pytest.raises(BadInputError, match="LOCAL_WORLD_SIZE"):
            local_world_size({"LOCAL_WORLD_SIZE": bad})
