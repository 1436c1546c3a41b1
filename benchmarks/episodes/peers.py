"""Peers of the episode scenarios: each writes episodes in its format and reads windows as its documentation says.

Files are opened once and stay open if the format allows it, all in one process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from benchmarks.episodes.recordings import CHANNELS, CHUNK_STEPS, LEVEL, SIDE, Recordings, npy_path
from benchmarks.harness.machine import is_installed, skip_lines

__all__ = ["READERS", "SMALL_CACHE", "ReadWindow", "available_readers", "memmap_reader", "write_h5"]

ReadWindow: TypeAlias = Callable[[int, int], tuple[Any, ...]]
"""Returns the arrays of three channels, given an episode and its first step."""
_WINDOW = 16


def memmap_reader(recordings: Recordings) -> ReadWindow:
    """Return the ceiling: bytes in place, nothing verified."""
    directory = recordings.memmaps()
    files = [
        [np.load(npy_path(directory, number, name), mmap_mode="r") for name in CHANNELS]
        for number in range(recordings.episodes)
    ]
    return lambda episode, start: tuple(file[start : start + _WINDOW] for file in files[episode])


def write_h5(path: Path, arrays: Mapping[str, Any], compression: str) -> None:
    """Write contiguous datasets, or zstd chunks of 16 steps for the camera.

    The float channels are random walks and do not shrink; warpdata stores them uncompressed, and so does this.
    """
    import h5py

    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            options: dict[str, Any] = {}
            if compression == "zstd" and array.dtype == np.uint8:
                import hdf5plugin

                options = {"chunks": (CHUNK_STEPS, *array.shape[1:]), "compression": hdf5plugin.Zstd(clevel=LEVEL)}
            file.create_dataset(name, data=array, **options)


def _h5py(recordings: Recordings, compression: str, **options: int) -> ReadWindow:
    import h5py

    if compression == "zstd":
        import hdf5plugin  # noqa: F401 - registers the filter

    def write(recordings: Recordings, directory: Path) -> None:
        for number, arrays in recordings.all():
            write_h5(directory / f"{number:04d}.h5", arrays, compression)

    directory = recordings.directory("h5-zstd-camera" if compression == "zstd" else "h5-none", write)
    files = [h5py.File(path, "r", **options) for path in sorted(directory.iterdir())]
    channels = [[file[name] for name in CHANNELS] for file in files]
    return lambda episode, start: tuple(channel[start : start + _WINDOW] for channel in channels[episode])


def _h5py_small_cache(recordings: Recordings, compression: str) -> ReadWindow:
    """Use the default chunk cache of HDF5 before 2.0: 1 MiB per channel."""
    return _h5py(recordings, compression, rdcc_nbytes=2**20)


def _zarr(recordings: Recordings, compression: str) -> ReadWindow:
    import zarr

    def write(recordings: Recordings, directory: Path) -> None:
        from zarr.codecs import ZstdCodec

        codecs = [ZstdCodec(level=LEVEL)] if compression == "zstd" else None
        for number, arrays in recordings.all():
            group = zarr.open_group(directory / f"{number:04d}.zarr", mode="w")
            for name, array in arrays.items():
                group.create_array(name, data=array, chunks=(CHUNK_STEPS, *array.shape[1:]), compressors=codecs)

    directory = recordings.directory(f"zarr-{compression}", write)
    groups = [zarr.open_group(path, mode="r") for path in sorted(directory.iterdir())]
    channels: list[list[Any]] = [[group[name] for name in CHANNELS] for group in groups]
    return lambda episode, start: tuple(channel[start : start + _WINDOW] for channel in channels[episode])


def _npz(recordings: Recordings, compression: str) -> ReadWindow:
    """Read whole arrays, the only way that the format allows."""
    save = np.savez_compressed if compression == "zstd" else np.savez

    def write(recordings: Recordings, directory: Path) -> None:
        for number, arrays in recordings.all():
            save(directory / f"{number:04d}.npz", **arrays)

    directory = recordings.directory("npz-deflate" if compression == "zstd" else "npz-none", write)
    files = [np.load(path) for path in sorted(directory.iterdir())]
    return lambda episode, start: tuple(files[episode][name][start : start + _WINDOW] for name in CHANNELS)


def _parquet(recordings: Recordings, compression: str) -> ReadWindow:
    """Store a step per row, in row groups of 16 steps."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def write(recordings: Recordings, directory: Path) -> None:
        options: dict[str, Any] = {"compression": compression, "use_dictionary": False}
        if compression == "zstd":
            options["compression_level"] = LEVEL
        for number, arrays in recordings.all():
            table = _to_table(arrays, pa.binary(SIDE * SIDE))
            pq.write_table(table, directory / f"{number:04d}.parquet", row_group_size=CHUNK_STEPS, **options)

    directory = recordings.directory(f"parquet-{compression}", write)
    files = [pq.ParquetFile(path) for path in sorted(directory.iterdir())]

    def read(episode: int, start: int) -> tuple[Any, ...]:
        first, last = start // CHUNK_STEPS, (start + _WINDOW - 1) // CHUNK_STEPS
        table = files[episode].read_row_groups(range(first, last + 1), columns=list(CHANNELS))
        return _to_arrays(table.slice(start - first * CHUNK_STEPS, _WINDOW))

    return read


def _lance(recordings: Recordings, compression: str) -> ReadWindow:
    """Store all steps of all episodes in one dataset and read by row; Lance chooses its own compression."""
    import lance
    import pyarrow as pa

    del compression

    def write(recordings: Recordings, directory: Path) -> None:
        tables = (_to_table(arrays, pa.list_(pa.uint8(), SIDE * SIDE)) for _, arrays in recordings.all())
        first = next(tables)
        lance.write_dataset(first, directory / "steps.lance")
        for table in tables:
            lance.write_dataset(table, directory / "steps.lance", mode="append")

    dataset = lance.dataset(recordings.directory("lance", write) / "steps.lance")
    steps = recordings.steps

    def read(episode: int, start: int) -> tuple[Any, ...]:
        first = episode * steps + start
        return _to_arrays(dataset.take(range(first, first + _WINDOW), columns=list(CHANNELS)))

    return read


def _to_table(arrays: Mapping[str, Any], camera: Any) -> Any:
    import pyarrow as pa

    video = arrays["rgb"]
    if pa.types.is_fixed_size_binary(camera):
        column = pa.FixedSizeBinaryArray.from_buffers(camera, len(video), [None, pa.py_buffer(video)])
    else:
        column = pa.FixedSizeListArray.from_arrays(video.reshape(-1), SIDE * SIDE)
    floats = {name: pa.FixedSizeListArray.from_arrays(arrays[name].reshape(-1), 7) for name in CHANNELS[1:]}
    return pa.table({"rgb": column, **floats})


def _to_arrays(table: Any) -> tuple[Any, ...]:
    """Convert rows to arrays without Python objects for the values."""
    import pyarrow as pa

    table = table.combine_chunks()
    video = table["rgb"].chunk(0)
    if pa.types.is_fixed_size_binary(video.type):
        begin = video.offset * SIDE * SIDE
        pixels = np.frombuffer(video.buffers()[1], np.uint8)[begin : begin + len(video) * SIDE * SIDE]
    else:
        pixels = video.flatten().to_numpy()
    floats = [table[name].chunk(0).flatten().to_numpy().reshape(-1, 7) for name in CHANNELS[1:]]
    return pixels.reshape(-1, SIDE, SIDE), *floats


SMALL_CACHE = "h5py with 1 MiB caches"
READERS: Mapping[str, Callable[[Recordings, str], ReadWindow]] = {
    "h5py": _h5py,
    SMALL_CACHE: _h5py_small_cache,
    "zarr": _zarr,
    "npz": _npz,
    "Parquet": _parquet,
    "Lance": _lance,
}
_PACKAGES: Mapping[str, tuple[str, ...]] = {
    "h5py": ("h5py", "hdf5plugin"),
    SMALL_CACHE: ("h5py", "hdf5plugin"),
    "zarr": ("zarr",),
    "Lance": ("pylance",),
}
"""Packages of each reader; uncompressed HDF5 needs no `hdf5plugin`."""


def available_readers(compression: str, names: Iterable[str] = READERS) -> tuple[list[str], list[str]]:
    """Return the readers whose packages are installed, and a line for each missing package."""
    unneeded = {"hdf5plugin"} if compression == "none" else set()
    needed = {name: [each for each in _PACKAGES.get(name, ()) if each not in unneeded] for name in names}
    available = [name for name, packages in needed.items() if all(map(is_installed, packages))]
    return available, skip_lines(dict.fromkeys(package for packages in needed.values() for package in packages))
