"""The data that is measured: made once from fixed seeds, kept under `.data`, reused by later runs.

A folder is named after everything that decides its content and appears whole or not at all, so a run
that was stopped half-way can simply be started again.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["DATA", "clean", "doubles_file", "made", "many_small_files", "media_files", "scratch", "trips"]

DATA = Path(__file__).parents[1] / ".data"
_CITIES = ("amsterdam", "berlin", "cairo", "delhi", "nyc")
_GROUP_ROWS = 200_000


def trips(file_count: int, rows_per_file: int) -> list[Path]:
    """Wide, zstd-compressed files with page checksums: ids, sorted times, floats, a few words, many notes.

    1,600,000 rows make about 95 MB in 8 row groups.
    """

    def make(folder: Path) -> None:
        import pyarrow.parquet as pq

        for number in range(file_count):
            table = _trips_table(number, rows_per_file)
            path = folder / f"trips-{number}.parquet"
            pq.write_table(
                table,
                path,
                compression="zstd",
                row_group_size=min(_GROUP_ROWS, rows_per_file),
                write_page_checksum=True,
            )

    return _files(made(f"trips-{file_count}x{rows_per_file}", make))


def many_small_files(file_count: int, size_bytes: int) -> list[Path]:
    """Distinct files of about one size with four row groups each."""

    def make(folder: Path) -> None:
        import numpy as np
        import pyarrow as pa
        import pyarrow.parquet as pq

        rng = np.random.default_rng(1)
        row_count = size_bytes // 16
        for number in range(file_count):
            first = number * row_count
            table = pa.table({"id": np.arange(first, first + row_count), "value": rng.random(row_count)})
            path = folder / f"part-{number:05d}.parquet"
            pq.write_table(
                table, path, compression="none", use_dictionary=False, row_group_size=row_count // 4,
                write_page_checksum=True,
            )  # fmt: skip

    return _files(made(f"small-{file_count}x{size_bytes}", make))


def doubles_file(size_bytes: int) -> Path:
    """One file of about this size, of numbers that do not compress; written in parts, so memory stays flat."""

    def make(folder: Path) -> None:
        import numpy as np
        import pyarrow as pa
        import pyarrow.parquet as pq

        rng = np.random.default_rng(2)
        schema = pa.schema([("value", pa.float64())])
        options = {"compression": "none", "use_dictionary": False, "write_page_checksum": True}
        with pq.ParquetWriter(folder / "doubles.parquet", schema, **options) as writer:
            rows_left = size_bytes // 8
            while rows_left:
                rows = min(rows_left, 4_000_000)
                writer.write_table(pa.table({"value": rng.random(rows)}))
                rows_left -= rows

    return _files(made(f"doubles-{size_bytes}", make))[0]


def media_files(file_count: int) -> Path:
    """A folder of distinct files of 5 to 15 kB that do not compress, a thousand to a subfolder."""

    def make(folder: Path) -> None:
        rng = random.Random(3)
        for number in range(file_count):
            path = folder / f"{number // 1000:04d}" / f"{number:06d}.bin"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(rng.randbytes(rng.randrange(5_000, 15_000)))

    return made(f"media-{file_count}", make)


def made(name: str, make: Callable[[Path], None]) -> Path:
    """The folder of that name, which `make` fills if it is not there yet."""
    folder = DATA / name
    if not folder.is_dir():
        partial = DATA / f"{name}.partial-{os.getpid()}"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        make(partial)
        partial.rename(folder)
    return folder


def scratch(name: str) -> Path:
    """An empty folder of this run's own; what an earlier run left there is gone."""
    folder = DATA / f"scratch-{name}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def clean() -> None:
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


def _files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())
