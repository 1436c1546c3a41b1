"""If this fails, `compose_wshard` writes other bytes than `save_wshard`, or needs memory for whole channels."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from tests.formats.wshard.scenes import full_episode, same_episode
from warpdata.errors import BadInputError
from warpdata.wshard import DType, Episode, RowSource, compose_wshard, load_wshard, open_wshard, save_wshard


def taken_apart(episode: Episode) -> tuple[Episode, dict[str, RowSource]]:
    """Return the episode without its channels, and the channels as row sources."""
    rows: dict[str, RowSource] = {}
    for block, channel in episode.lanes().items():
        if not block.startswith("residual/"):
            rows[block] = RowSource(
                channel.stored_dtype,
                channel.step_shape,
                len(channel.data),
                lambda start, stop, data=channel.data: data[start:stop],  # type: ignore[misc]
                channel.attributes,
            )
    return replace(episode, observations={}, actions={}, omens={}, uncertainties={}), rows


@pytest.mark.parametrize("compression", ["none", "zstd", "lz4"])
@pytest.mark.parametrize("length", [0, 1, 40])
def test_composed_file_equals_saved_file(
    tmp_path: Path, compression: Literal["none", "zstd", "lz4"], length: int
) -> None:
    episode = full_episode(max(length, 1)) if length else Episode("none", 0)
    save_wshard(episode, tmp_path / "a.wshard", compression=compression)
    rest, rows = taken_apart(episode)
    compose_wshard(rest, tmp_path / "b.wshard", rows, compression=compression)
    assert (tmp_path / "b.wshard").read_bytes() == (tmp_path / "a.wshard").read_bytes()
    same_episode(load_wshard(tmp_path / "b.wshard"), episode)


def test_memory_is_independent_of_the_channel_size(tmp_path: Path) -> None:
    source = RowSource(DType.U8, (2**20,), 64, lambda start, stop: np.zeros((stop - start, 2**20), np.uint8))
    tracemalloc.start()
    compose_wshard(Episode("big", 64), tmp_path / "a.wshard", {"signal/x": source}, compression="zstd")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 * 2**20, peak


def test_encoded_blocks_are_not_compressed(tmp_path: Path) -> None:
    def zeros(start: int, stop: int) -> np.ndarray[Any, Any]:
        return np.zeros(stop - start, np.uint8)

    video = RowSource(DType.U8, (), 5000, zeros, {"encoding": "h264"})
    plain = RowSource(DType.U8, (), 5000, zeros)
    rows = {"signal/video": video, "signal/plain": plain}
    compose_wshard(Episode("ep", 5000), tmp_path / "a.wshard", rows, compression="zstd")
    with open_wshard(tmp_path / "a.wshard") as file:
        assert [file[name].entry.codec.name for name in rows] == ["NONE", "ZSTD"]


def test_inconsistent_row_sources_are_refused(tmp_path: Path) -> None:
    def rows(read: Any, count: int = 4) -> dict[str, RowSource]:
        return {"signal/x": RowSource(DType.F32, (2,), count, read)}

    path = tmp_path / "a.wshard"
    good: Any = lambda start, stop: np.zeros((stop - start, 2), np.float32)  # noqa: E731
    for bad in (
        rows(lambda start, stop: np.zeros((stop - start, 3), np.float32)),
        rows(lambda start, stop: np.zeros((stop - start, 2), np.float64)),
        rows(good, 5),
        {"reward": rows(good)["signal/x"]},
        {"signal/": rows(good)["signal/x"]},
    ):
        with pytest.raises(BadInputError):
            compose_wshard(Episode("ep", 4), path, bad)
    assert not list(tmp_path.iterdir())
    compose_wshard(Episode("ep", 4), path, rows(good))
    assert load_wshard(path).observations["x"].data.shape == (4, 2)
