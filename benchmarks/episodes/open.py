"""Opening episodes: one small channel of a large episode, and the index of a thousand episodes.

Every run opens its file, reads, and closes it; warpdata opens by path, and from a published dataset. Values are
compared before anything is timed. Files are in the page cache, and libraries are imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from benchmarks.episodes.peers import write_h5
from benchmarks.episodes.recordings import open_episodes, publish_files, to_episode
from benchmarks.harness.data import make_once
from benchmarks.harness.machine import is_installed, skip_lines
from benchmarks.harness.timing import Arm, RunOptions, Timings, format_bytes, interleave
from benchmarks.results import Measurement, Outcome
from warpdata.wshard import open_wshard, save_wshard

__all__ = ["run"]

_STEPS = 1000
_REPEATS = 100
_FEWER_REPEATS = {"zarr": 20, "Parquet": 20, "from a name": 20}
Read: TypeAlias = Callable[[], Any]
_NOTES = (
    "warpdata verifies the checksum of the channel, `.npz` a CRC-32. h5py, zarr, `.npy` and Parquet verify nothing.",
    "The index has the id, length, environment and metadata of each episode; h5py opens every file for attributes.",
    "For the index, warpdata resolves the name of the dataset in every run.",
)


def run(options: RunOptions) -> Outcome:
    side, count = (32, 20) if options.is_smoke else (128, 1000)
    size = format_bytes(_STEPS * side * side * 3)
    return Outcome(
        title="Opening episodes",
        method=f"One channel of {_STEPS:,}×7 f32 (28 kB) out of an episode of {size}; the index of {count:,} episodes. "
        "Nothing is compressed.",
        measurements=[*_measure_channel(_make_large(side), size, options), *_measure_index(_make_many(count), options)],
        notes=_NOTES,
        skipped=skip_lines(["h5py", "zarr"]),
    )


def _make_large(side: int) -> Path:
    """Write one large episode in every format whose library is installed."""
    with_zarr = is_installed("zarr")

    def make(directory: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        rng = np.random.default_rng(5)
        video = rng.integers(0, 256, (_STEPS, side, side, 3), np.uint8)
        arrays = {"rgb": video, "joint": rng.normal(size=(_STEPS, 7)).astype(np.float32)}
        save_wshard(to_episode("large", arrays, ()), directory / "large.wshard")
        if is_installed("h5py"):
            write_h5(directory / "large.h5", arrays, "none")
        np.savez(directory / "large.npz", allow_pickle=False, **arrays)
        np.save(directory / "joint.npy", arrays["joint"])
        if with_zarr:
            import zarr

            group = zarr.open_group(directory / "large.zarr", mode="w")
            for name, array in arrays.items():
                group.create_array(name, data=array, chunks=array.shape, compressors=None)
        frame = pa.binary(side * side * 3)
        columns = {
            "rgb": pa.FixedSizeBinaryArray.from_buffers(frame, _STEPS, [None, pa.py_buffer(video)]),
            "joint": pa.FixedSizeListArray.from_arrays(arrays["joint"].reshape(-1), 7),
        }
        pq.write_table(pa.table(columns), directory / "large.parquet", compression="none", use_dictionary=False)
        publish_files(directory / "large.wshard", directory / "store")

    return make_once(f"episode-large-{side}" + ("-zarr" if with_zarr else ""), make)


def _peer_reads(directory: Path) -> dict[str, Read]:
    import pyarrow.parquet as pq

    def hdf5() -> Any:
        import h5py

        with h5py.File(directory / "large.h5", "r") as file:
            return file["joint"][:]

    def npz() -> Any:
        with np.load(directory / "large.npz") as file:
            return file["joint"]

    def zarr_group() -> Any:
        import zarr

        group: Any = zarr.open_group(directory / "large.zarr", mode="r")
        return group["joint"][:]

    def parquet() -> Any:
        table = pq.read_table(directory / "large.parquet", columns=["joint"])
        return table["joint"].combine_chunks().flatten().to_numpy().reshape(-1, 7)

    reads: dict[str, Read] = {
        "h5py": hdf5,
        "npz": npz,
        "zarr": zarr_group,
        "Parquet": parquet,
        "np.memmap": lambda: np.array(np.load(directory / "joint.npy", mmap_mode="r")),
    }
    absent = {name for name in ("h5py", "zarr") if not is_installed(name)}
    return {name: read for name, read in reads.items() if name not in absent}


def _measure_channel(directory: Path, size: str, options: RunOptions) -> list[Measurement]:
    def open_file() -> Any:
        with open_wshard(directory / "large.wshard") as file:
            return file["signal/joint"].read()

    published = open_episodes(directory / "store")
    peers = _peer_reads(directory)
    reads: dict[str, Read] = {
        "open_wshard": open_file,
        "published": lambda: published[0].read(["joint"])["joint"],
        "from a name": lambda: open_episodes(directory / "store")[0].read(["joint"])["joint"],
        **peers,
    }
    expected = np.load(directory / "joint.npy")
    for name, read in reads.items():
        assert np.array_equal(read(), expected), name
    times = _time(reads, options, _FEWER_REPEATS)
    case = f"28 kB of {size}"
    measurements = [
        _measure(f"{case}: `open_wshard`", times, "open_wshard", peer, "episode-channel" if peer == "h5py" else "")
        for peer in peers
    ]
    if "h5py" in peers:
        measurements.append(_measure(f"{case}: from an open set of episodes", times, "published", "h5py"))
        measurements.append(_measure(f"{case}: from the name of the dataset", times, "from a name", "h5py"))
    return measurements


def _make_many(count: int) -> Path:
    def make(directory: Path) -> None:
        (directory / "files").mkdir()
        (directory / "h5").mkdir()
        for number in range(count):
            rng = np.random.default_rng(number)
            length = 20 + number % 50
            arrays = {"joint": rng.normal(size=(length, 7)).astype(np.float32)}
            name = f"ep_{number:05d}"
            save_wshard(to_episode(name, arrays, ()), directory / "files" / f"{name}.wshard")
            if is_installed("h5py"):
                import h5py

                write_h5(directory / "h5" / f"{name}.h5", arrays, "none")
                with h5py.File(directory / "h5" / f"{name}.h5", "a") as file:
                    file.attrs.update({"id": name, "length": length, "env_id": "Bench-v1", "success": number % 2 == 0})
        publish_files(directory / "files", directory / "store")

    return make_once(f"episodes-many-{count}", make)


def _measure_index(directory: Path, options: RunOptions) -> list[Measurement]:
    paths = sorted((directory / "h5").iterdir())

    def read_table() -> dict[str, int]:
        rows = open_episodes(directory / "store").table().select(["id", "env_id", "length", "metadata"])
        table = rows.to_arrow(allow_large=True)
        return dict(zip(table["id"].to_pylist(), table["length"].to_pylist(), strict=True))

    def open_each() -> dict[str, int]:
        episodes = open_episodes(directory / "store")
        return {episode.id: episode.length for episode in episodes if episode.info.env_id and episode.blocks}

    def hdf5() -> dict[str, int]:
        import h5py

        lengths = {}
        for path in paths:
            with h5py.File(path, "r") as file:
                attributes = dict(file.attrs)
                lengths[attributes["id"]] = int(attributes["length"])
        return lengths

    reads: dict[str, Read] = {"table": read_table, "each": open_each}
    if is_installed("h5py"):
        reads["h5py"] = hdf5
    expected = read_table()
    for name, read in reads.items():
        assert read() == expected, name
    times = _time(reads, options, dict.fromkeys(reads, 1))
    case = f"index of {len(expected):,} episodes"
    if "h5py" not in reads:
        return [Measurement(case=f"{case}: the table", unit="µs", ours=times.value("table", "µs"))]
    return [
        _measure(f"{case}: the table", times, "table", "h5py", "episode-index"),
        _measure(f"{case}: every episode opened, with its metadata and blocks", times, "each", "h5py"),
    ]


def _time(reads: Mapping[str, Read], options: RunOptions, repeats: Mapping[str, int]) -> Timings:
    counts = {name: 1 if options.is_smoke else repeats.get(name, _REPEATS) for name in reads}
    arms: dict[str, Arm] = {name: partial(_repeat, read, counts[name]) for name, read in reads.items()}
    return interleave(arms, options.rounds).per_item(counts)


def _repeat(read: Read, count: int) -> Callable[[], int]:
    def run() -> int:
        for _ in range(count):
            read()
        return 0

    return run


def _measure(case: str, times: Timings, arm: str, peer: str, promise: str = "") -> Measurement:
    return times.compare(case, arm, peer, unit="µs", promise=promise)
