"""What opening costs: one small channel of a large episode, and what is known of a thousand of them.

Every run opens its file anew, reads, and closes it; ours is opened by path, and published. Values are compared
before anything is timed. Files are in the page cache, libraries are imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import warpdata as wd
from benchmarks.episodes.peers import write_h5
from benchmarks.episodes.recordings import open_episodes, publish_files, to_episode
from benchmarks.harness.data import made
from benchmarks.harness.process import per_reference
from benchmarks.harness.timing import Arm, Effort, Finding, Report, Timings, interleave, megabytes
from warpdata.wshard import open_wshard, save_wshard

__all__ = ["run"]

_STEPS = 1000
_REPEATS = 100
Read = Callable[[], Any]
_NOTES = (
    "Ours compares all of a channel with its checksum; h5py, zarr, `.npy`, Parquet nothing; an `.npz` has a CRC-32.",
    "The index: id, length, environment and metadata of each episode. From HDF5: every file opened for its attributes.",
    "For the index, ours begins with the name of the dataset each time.",
)


def run(effort: Effort) -> Report:
    side = 32 if effort.quick else 128
    count = 20 if effort.quick else 1000
    channel = _channel(_large(side), side, effort)
    index = _index(_many(count), effort)
    return Report(
        "Opening episodes",
        f"One channel of {_STEPS:,}×7 f32 (28 kB) out of an episode of {megabytes(_STEPS * side * side * 3)}; the "
        f"index of {count:,} episodes. Nothing is compressed.",
        [*channel, *index],
        notes=_NOTES,
    )


def _large(side: int) -> Path:
    def make(folder: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq
        import zarr

        rng = np.random.default_rng(5)
        film = rng.integers(0, 256, (_STEPS, side, side, 3), np.uint8)
        arrays = {"rgb": film, "joint": rng.normal(size=(_STEPS, 7)).astype(np.float32)}
        save_wshard(to_episode("large", arrays, ()), folder / "large.wshard")
        write_h5(folder / "large.h5", arrays, "none")
        np.savez(folder / "large.npz", allow_pickle=False, **arrays)
        np.save(folder / "joint.npy", arrays["joint"])
        group = zarr.open_group(folder / "large.zarr", mode="w")
        for name, array in arrays.items():
            group.create_array(name, data=array, chunks=array.shape, compressors=None)
        columns = {
            "rgb": pa.FixedSizeBinaryArray.from_buffers(pa.binary(side * side * 3), _STEPS, [None, pa.py_buffer(film)]),
            "joint": pa.FixedSizeListArray.from_arrays(arrays["joint"].reshape(-1), 7),
        }
        pq.write_table(pa.table(columns), folder / "large.parquet", compression="none", use_dictionary=False)
        publish_files(folder / "large.wshard", folder / "store")

    return made(f"episode-large-{side}", make)


def _channel(folder: Path, side: int, effort: Effort) -> list[Finding]:
    import h5py
    import pyarrow.parquet as pq
    import zarr

    def ours() -> Any:
        with open_wshard(folder / "large.wshard") as file:
            return file["signal/joint"].read()

    def hdf5() -> Any:
        with h5py.File(folder / "large.h5", "r") as file:
            return file["joint"][:]

    def npz() -> Any:
        with np.load(folder / "large.npz") as file:
            return file["joint"]

    def parquet() -> Any:
        table = pq.read_table(folder / "large.parquet", columns=["joint"])
        return table["joint"].combine_chunks().flatten().to_numpy().reshape(-1, 7)

    def chunked() -> Any:
        group: Any = zarr.open_group(folder / "large.zarr", mode="r")
        return group["joint"][:]

    def opened(published: wd.Episodes) -> Any:
        return published[0].read(["joint"])["joint"]

    published = open_episodes(folder / "store")
    reads: dict[str, Read] = {
        "ours": ours,
        "published": partial(opened, published),
        "from nothing": lambda: opened(open_episodes(folder / "store")),
        "h5py": hdf5,
        "npz": npz,
        "zarr": chunked,
        "Parquet": parquet,
        "np.memmap": lambda: np.array(np.load(folder / "joint.npy", mmap_mode="r")),
    }
    wanted = np.load(folder / "joint.npy")
    for name, read in reads.items():
        assert np.array_equal(read(), wanted), name
    times = _timed(reads, effort, {"zarr": 20, "Parquet": 20, "from nothing": 20})
    size = megabytes(_STEPS * side * side * 3)
    rows = [_finding(f"28 kB of {size}: `open_wshard`", times, "ours", "h5py", 2.0)]
    rows += [_finding(f"28 kB of {size}: `open_wshard`", times, "ours", peer) for peer in list(reads)[4:]]
    rows += [_finding(f"28 kB of {size}: of an open set of episodes", times, "published", "h5py")]
    return [*rows, _finding(f"28 kB of {size}: from the name of the dataset", times, "from nothing", "h5py")]


def _many(count: int) -> Path:
    def make(folder: Path) -> None:
        (folder / "files").mkdir()
        (folder / "h5").mkdir()
        import h5py

        for number in range(count):
            rng = np.random.default_rng(number)
            length = 20 + number % 50
            arrays = {"joint": rng.normal(size=(length, 7)).astype(np.float32)}
            name = f"ep_{number:05d}"
            save_wshard(to_episode(name, arrays, ()), folder / "files" / f"{name}.wshard")
            write_h5(folder / "h5" / f"{name}.h5", arrays, "none")
            with h5py.File(folder / "h5" / f"{name}.h5", "a") as file:
                file.attrs.update({"id": name, "length": length, "env_id": "Bench-v1", "success": number % 2 == 0})
        publish_files(folder / "files", folder / "store")

    return made(f"episodes-many-{count}", make)


def _index(folder: Path, effort: Effort) -> list[Finding]:
    import h5py

    paths = sorted((folder / "h5").iterdir())

    def ours() -> dict[str, int]:
        rows = open_episodes(folder / "store").table().select(["id", "env_id", "length", "metadata"])
        table = rows.to_arrow(allow_large=True)
        return dict(zip(table["id"].to_pylist(), table["length"].to_pylist(), strict=True))

    def each() -> dict[str, int]:
        episodes = open_episodes(folder / "store")
        return {episode.id: episode.length for episode in episodes if episode.info.env_id and episode.blocks}

    def hdf5() -> dict[str, int]:
        out = {}
        for path in paths:
            with h5py.File(path, "r") as file:
                kept = dict(file.attrs)
                out[kept["id"]] = int(kept["length"])
        return out

    reads: dict[str, Read] = {"ours": ours, "each": each, "h5py": hdf5}
    wanted = hdf5()
    assert len(wanted) == len(paths)
    for name, read in reads.items():
        assert read() == wanted, name
    times = _timed(reads, effort, dict.fromkeys(reads, 1))
    what = f"index of {len(paths):,} episodes"
    return [
        _finding(f"{what}: the table", times, "ours", "h5py", 5.0),
        _finding(f"{what}: every episode opened, with its metadata and blocks", times, "each", "h5py"),
    ]


def _timed(reads: Mapping[str, Read], effort: Effort, fewer: Mapping[str, int]) -> Timings:
    counts = {name: 1 if effort.quick else fewer.get(name, _REPEATS) for name in reads}
    arms: dict[str, Arm] = {name: partial(_repeating, read, counts[name]) for name, read in reads.items()}
    return per_reference(interleave(arms, effort.rounds), counts)


def _repeating(read: Read, count: int) -> Callable[[], int]:
    def run() -> int:
        for _ in range(count):
            read()
        return 0

    return run


def _finding(case: str, times: Timings, ours: str, peer: str, target: float | None = None) -> Finding:
    ratio = times.speed_ratio(ours, peer)
    return Finding(
        f"{case}, against {peer}",
        _spelled(times.median_s(ours)),
        _spelled(times.median_s(peer)),
        f"{ratio:.2f} ({times.spread(ours, peer)})",
        "" if target is None else f"≥ {target}",
        None if target is None else ratio >= target,
    )


def _spelled(value_s: float) -> str:
    return f"{value_s * 1e3:,.1f} ms" if value_s >= 1e-2 else f"{value_s * 1e6:,.0f} µs"
