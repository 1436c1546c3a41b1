"""Generated data: made once from fixed seeds, kept under `.data`, and reused by later runs.

The name of a directory contains everything that decides its content. A directory appears complete or not at all,
so that an interrupted run can simply start again.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from warpdata.primitives.parallel import usable_cores

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "DATA",
    "make_doubles_file",
    "make_media_files",
    "make_once",
    "make_small_files",
    "make_trips",
    "make_trips_by_cores",
    "remove_data",
    "scratch",
]

DATA = Path(__file__).parents[1] / ".data"
_CITIES = ("amsterdam", "berlin", "cairo", "delhi", "nyc")
_GROUP_ROWS = 200_000


def make_trips(file_count: int, rows_per_file: int) -> list[Path]:
    """Return wide, zstd-compressed Parquet files with page checksums.

    Columns are ids, sorted times, floats, a city of five, and distinct notes. 1,600,000 rows take about 95 MB in
    8 row groups.
    """

    def make(directory: Path) -> None:
        import pyarrow.parquet as pq

        def write(number: int) -> None:
            pq.write_table(
                _trips_table(number, rows_per_file),
                directory / f"trips-{number:02}.parquet",
                compression="zstd",
                row_group_size=min(_GROUP_ROWS, rows_per_file),
                write_page_checksum=True,
            )

        with ThreadPoolExecutor(usable_cores()) as pool:
            list(pool.map(write, range(file_count)))

    return _files(make_once(f"trips-{file_count}x{rows_per_file}", make))


def make_trips_by_cores(*, is_smoke: bool) -> list[Path]:
    """Return trips of 95 MB a file: four files, and with more than three cores five files for four cores."""
    return make_trips(2, 50_000) if is_smoke else make_trips(max(4, usable_cores() * 5 // 4), 1_600_000)


def make_small_files(file_count: int, size_bytes: int) -> list[Path]:
    """Return distinct Parquet files of about one size, with four row groups each."""

    def make(directory: Path) -> None:
        import numpy as np
        import pyarrow as pa
        import pyarrow.parquet as pq

        rng = np.random.default_rng(1)
        row_count = size_bytes // 16
        for number in range(file_count):
            first = number * row_count
            pq.write_table(
                pa.table({"id": np.arange(first, first + row_count), "value": rng.random(row_count)}),
                directory / f"part-{number:05d}.parquet",
                compression="none",
                use_dictionary=False,
                row_group_size=row_count // 4,
                write_page_checksum=True,
            )

    return _files(make_once(f"small-{file_count}x{size_bytes}", make))


def make_doubles_file(size_bytes: int) -> Path:
    """Return one Parquet file of incompressible doubles, written in parts so that memory stays flat."""

    def make(directory: Path) -> None:
        import numpy as np
        import pyarrow as pa
        import pyarrow.parquet as pq

        rng = np.random.default_rng(2)
        schema = pa.schema([("value", pa.float64())])
        options = {"compression": "none", "use_dictionary": False, "write_page_checksum": True}
        with pq.ParquetWriter(directory / "doubles.parquet", schema, **options) as writer:
            rows_left = size_bytes // 8
            while rows_left:
                rows = min(rows_left, 4_000_000)
                writer.write_table(pa.table({"value": rng.random(rows)}))
                rows_left -= rows

    return _files(make_once(f"doubles-{size_bytes}", make))[0]


def make_media_files(file_count: int, sizes: tuple[int, int] = (5_000, 15_000)) -> Path:
    """Return a directory of distinct incompressible files of such sizes, a thousand per subdirectory."""

    def make(directory: Path) -> None:
        rng = random.Random(3)
        for number in range(file_count):
            path = directory / f"{number // 1000:04d}" / f"{number:06d}.bin"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(rng.randbytes(rng.randrange(*sizes)))

    return make_once(f"media-{file_count}x{sizes[0]}-{sizes[1]}", make)


def make_once(name: str, make: Callable[[Path], None]) -> Path:
    """Return the directory of that name; `make` fills it on the first use."""
    directory = DATA / name
    if not directory.is_dir():
        partial = DATA / f"{name}.partial-{os.getpid()}"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        make(partial)
        partial.rename(directory)
    return directory


def scratch(name: str) -> Path:
    """Return an empty directory; remove the content that an earlier call or run left there."""
    directory = DATA / f"scratch-{name}"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    return directory


def remove_data() -> None:
    shutil.rmtree(DATA, ignore_errors=True)


def _trips_table(number: int, row_count: int) -> pa.Table:
    import numpy as np
    import pyarrow as pa

    rng = np.random.default_rng(number)
    words = pa.DictionaryArray.from_arrays(rng.integers(0, len(_CITIES), row_count).astype("i4"), list(_CITIES))
    return pa.table(
        {
            "id": np.arange(number * row_count, (number + 1) * row_count),
            "ts": np.sort(rng.integers(0, 10**9, row_count)) + number * 10**9,
            "fare": rng.gamma(2, 8, row_count),
            "dist": rng.random(row_count).astype("f4") * 30,
            "lat": rng.normal(40, 0.1, row_count),
            "lon": rng.normal(-73, 0.1, row_count),
            "x1": rng.random(row_count),
            "x2": rng.random(row_count),
            "city": words.cast("string"),
            "note": pa.array([f"trip-{k}" for k in rng.integers(0, 10**7, row_count)]),
        }
    )


def _files(directory: Path) -> list[Path]:
    return sorted(directory.iterdir())
