"""The peers of episodes: each writes them in its format, and reads windows of them as its documentation says.

Files are opened once and stay open, as far as the format allows; all of this is in one process. A reader is a
function of an episode and its first step, which gives the arrays of three channels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from benchmarks.episodes.recordings import CHANNELS, CHUNK_STEPS, LEVEL, SIDE, Recordings, npy_path

__all__ = ["READERS", "SMALL_CACHE", "ReadWindow", "memmap_reader", "write_h5"]

ReadWindow: TypeAlias = Callable[[int, int], tuple[Any, ...]]
_WINDOW = 16


def memmap_reader(recordings: Recordings) -> ReadWindow:
    """The ceiling: bytes in place, nothing checked."""
    folder = recordings.memmaps()
    files = [
        [np.load(npy_path(folder, number, name), mmap_mode="r") for name in CHANNELS]
        for number in range(recordings.episodes)
    ]
    return lambda episode, start: tuple(file[start : start + _WINDOW] for file in files[episode])


def write_h5(path: Path, arrays: Mapping[str, Any], compression: str) -> None:
    """Contiguous where nothing is compressed, else chunks of 16 steps.

    Floats that walk at random do not become smaller. Ours leaves them as they are, and so does this.
    """
    import h5py
    import hdf5plugin

    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            options: dict[str, Any] = {}
            if compression == "zstd" and array.dtype == np.uint8:
                options = {"chunks": (CHUNK_STEPS, *array.shape[1:]), "compression": hdf5plugin.Zstd(clevel=LEVEL)}
            file.create_dataset(name, data=array, **options)


def _h5py(recordings: Recordings, compression: str, **options: int) -> ReadWindow:
    import h5py
    import hdf5plugin  # noqa: F401 - registers the filter

    def write(recordings: Recordings, folder: Path) -> None:
        for number, arrays in recordings.all():
            write_h5(folder / f"{number:04d}.h5", arrays, compression)

    folder = recordings.folder("h5-zstd-camera" if compression == "zstd" else "h5-none", write)
    files = [h5py.File(path, "r", **options) for path in sorted(folder.iterdir())]
    sets = [[file[name] for name in CHANNELS] for file in files]
    return lambda episode, start: tuple(one[start : start + _WINDOW] for one in sets[episode])


def _h5py_small(recordings: Recordings, compression: str) -> ReadWindow:
    """With the chunk cache that HDF5 had before 2.0: 1 MiB for each channel."""
    return _h5py(recordings, compression, rdcc_nbytes=2**20)


def _zarr(recordings: Recordings, compression: str) -> ReadWindow:
    import zarr

    def write(recordings: Recordings, folder: Path) -> None:
        from zarr.codecs import ZstdCodec

        codecs = [ZstdCodec(level=LEVEL)] if compression == "zstd" else None
        for number, arrays in recordings.all():
            group = zarr.open_group(folder / f"{number:04d}.zarr", mode="w")
            for name, array in arrays.items():
                group.create_array(name, data=array, chunks=(CHUNK_STEPS, *array.shape[1:]), compressors=codecs)

    folder = recordings.folder(f"zarr-{compression}", write)
    groups = [zarr.open_group(path, mode="r") for path in sorted(folder.iterdir())]
    sets: list[list[Any]] = [[group[name] for name in CHANNELS] for group in groups]
    return lambda episode, start: tuple(one[start : start + _WINDOW] for one in sets[episode])


def _npz(recordings: Recordings, compression: str) -> ReadWindow:
    """An array can only be read whole."""
    save = np.savez_compressed if compression == "zstd" else np.savez

    def write(recordings: Recordings, folder: Path) -> None:
        for number, arrays in recordings.all():
            save(folder / f"{number:04d}.npz", **arrays)

    folder = recordings.folder("npz-deflate" if compression == "zstd" else "npz-none", write)
    files = [np.load(path) for path in sorted(folder.iterdir())]
    return lambda episode, start: tuple(files[episode][name][start : start + _WINDOW] for name in CHANNELS)


def _parquet(recordings: Recordings, compression: str) -> ReadWindow:
    """A row is a step; row groups of 16 steps."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def write(recordings: Recordings, folder: Path) -> None:
        options: dict[str, Any] = {"compression": compression, "use_dictionary": False}
        if compression == "zstd":
            options["compression_level"] = LEVEL
        for number, arrays in recordings.all():
            pq.write_table(_table(arrays, pa.binary(SIDE * SIDE)), folder / f"{number:04d}.parquet",
                           row_group_size=CHUNK_STEPS, **options)  # fmt: skip

    folder = recordings.folder(f"parquet-{compression}", write)
    files = [pq.ParquetFile(path) for path in sorted(folder.iterdir())]

    def read(episode: int, start: int) -> tuple[Any, ...]:
        first, last = start // CHUNK_STEPS, (start + _WINDOW - 1) // CHUNK_STEPS
        table = files[episode].read_row_groups(range(first, last + 1), columns=list(CHANNELS))
        return _arrays(table.slice(start - first * CHUNK_STEPS, _WINDOW))

    return read


def _lance(recordings: Recordings, compression: str) -> ReadWindow:
    """One dataset of all steps of all episodes, read by row."""
    import lance
    import pyarrow as pa

    del compression  # it chooses its own

    def write(recordings: Recordings, folder: Path) -> None:
        tables = (_table(arrays, pa.list_(pa.uint8(), SIDE * SIDE)) for _, arrays in recordings.all())
        first = next(tables)
        lance.write_dataset(first, folder / "steps.lance")
        for table in tables:
            lance.write_dataset(table, folder / "steps.lance", mode="append")

    dataset = lance.dataset(recordings.folder("lance", write) / "steps.lance")
    steps = recordings.steps

    def read(episode: int, start: int) -> tuple[Any, ...]:
        first = episode * steps + start
        return _arrays(dataset.take(range(first, first + _WINDOW), columns=list(CHANNELS)))

    return read


def _table(arrays: Mapping[str, Any], camera: Any) -> Any:
    import pyarrow as pa

    film = arrays["rgb"]
    if pa.types.is_fixed_size_binary(camera):
        column = pa.FixedSizeBinaryArray.from_buffers(camera, len(film), [None, pa.py_buffer(film)])
    else:
        column = pa.FixedSizeListArray.from_arrays(film.reshape(-1), SIDE * SIDE)
    floats = {name: pa.FixedSizeListArray.from_arrays(arrays[name].reshape(-1), 7) for name in CHANNELS[1:]}
    return pa.table({"rgb": column, **floats})


def _arrays(table: Any) -> tuple[Any, ...]:
    """Rows as arrays, without turning values into objects."""
    import pyarrow as pa

    table = table.combine_chunks()
    film = table["rgb"].chunk(0)
    if pa.types.is_fixed_size_binary(film.type):
        begin = film.offset * SIDE * SIDE
        pixels = np.frombuffer(film.buffers()[1], np.uint8)[begin : begin + len(film) * SIDE * SIDE]
    else:
        pixels = film.flatten().to_numpy()
    floats = [table[name].chunk(0).flatten().to_numpy().reshape(-1, 7) for name in CHANNELS[1:]]
    return pixels.reshape(-1, SIDE, SIDE), *floats


SMALL_CACHE = "h5py with 1 MiB caches"
READERS: Mapping[str, Callable[[Recordings, str], ReadWindow]] = {
    "h5py": _h5py,
    SMALL_CACHE: _h5py_small,
    "zarr": _zarr,
    "npz": _npz,
    "Parquet": _parquet,
    "Lance": _lance,
}
