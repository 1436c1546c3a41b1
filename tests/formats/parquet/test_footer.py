"""If this fails, a damaged Parquet file takes the process down, or statistics skip rows that a filter should keep."""

from __future__ import annotations

import io
import random
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import warpdata as wd
from tests.formats.parquet.footer_mutants import mutate, sample_file
from warpdata.errors import CorruptError, InvalidSourceError
from warpdata.formats.parquet.footer import parse_footer
from warpdata.formats.parquet.layout import open_layout

ROOT = Path(__file__).parents[3]


def run_mutants(seed: int, count: int) -> None:
    command = [sys.executable, "-m", "tests.formats.parquet.footer_mutants", str(seed), str(count)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    last = done.stdout.splitlines()[-1] if done.stdout else "nothing"
    died_of = signal.Signals(-done.returncode).name if done.returncode < 0 else done.returncode
    assert done.returncode == 0, f"seed and number {last} ended the process with {died_of}: {done.stderr[-3000:]}"
    assert int(last.removeprefix("done ")) > count // 20, "mutants should damage little enough that many are readable"


def test_no_damaged_footer_ends_the_process() -> None:
    """Arrow's own access to column chunks aborts for about one in 200 of these files."""
    run_mutants(seed=7, count=600)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_no_damaged_footer_ends_the_process_in_a_long_run() -> None:
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda seed: run_mutants(seed, 5_000), range(100, 108)))


def test_a_file_with_a_damaged_footer_is_not_published(tmp_path: Path) -> None:
    """Arrow parses these footers without complaint. For some it aborts when it is asked for a column chunk."""
    data, rng, refused = sample_file(), random.Random(3), 0
    for number in range(150):
        path = tmp_path / f"{number}.parquet"
        path.write_bytes(mutate(data, rng))
        try:
            pq.read_metadata(path)
        except (pa.ArrowException, OSError, UnicodeDecodeError, OverflowError):
            continue
        try:
            wd.DatasetBuilder("a/b").add_table("main", path).plan()
        except InvalidSourceError as error:
            refused += "damaged Parquet footer" in str(error)
    assert refused > 1


@pytest.mark.parametrize("size", range(0, 40, 3))
def test_a_footer_that_is_cut_off_is_corrupt(size: int) -> None:
    data = sample_file()
    encoded = data[len(data) - 8 - int.from_bytes(data[-8:-4], "little") : -8]
    with pytest.raises(CorruptError):
        parse_footer(encoded[: len(encoded) * size // 40], len(data))


@pytest.mark.parametrize(
    "encoded",
    [
        b"\x19\xf2\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x00",  # a list of 2^62 booleans
        b"\x19\xf3\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x00",  # of bytes
        b"\x19\xf7\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x00",  # of doubles
        b"\x18\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x00",  # a text of 2^62 bytes
        b"\x1c" * 500,  # structs in structs
        b"\x19\x19" * 500,
        b"\x16" + b"\xff" * 50 + b"\x00",
        b"\x1b\x00",  # a map
        b"",
        b"\x00",
    ],
)
def test_hostile_thrift_ends_quickly(encoded: bytes) -> None:
    with pytest.raises(CorruptError):
        parse_footer(encoded, 1000)


values: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int8(): st.integers(-128, 127),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.uint8(): st.integers(0, 255),
    pa.uint32(): st.integers(0, 2**32 - 1),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.float64(): st.floats(allow_nan=False),
    pa.string(): st.text("aböé☃\U0001f600", max_size=8),
    pa.large_string(): st.text("aböé☃\U0001f600", max_size=8),
    pa.bool_(): st.booleans(),
    pa.date32(): st.dates(),
    pa.timestamp("s"): st.datetimes().map(lambda moment: moment.replace(microsecond=0)),
    pa.timestamp("ms"): st.datetimes().map(
        lambda moment: moment.replace(microsecond=moment.microsecond // 1000 * 1000)
    ),
    pa.timestamp("us"): st.datetimes(),
}


def layout_of(data: bytes) -> Any:
    return open_layout(data, len(data), "the file", is_verified=False)


def check_against_arrow(data: bytes) -> int:
    """Compare spans and statistics of flat columns with Arrow's. Return the number of statistics."""
    layout, metadata, found = layout_of(data), pq.read_metadata(io.BytesIO(data)), 0
    names = layout.schema.names
    assert [group.row_count for group in layout.row_groups] == [
        metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)
    ]
    for group in range(metadata.num_row_groups):
        bounds = layout.bounds(group, names)
        for position in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(position)
            own = layout.footer.chunks[group][position]
            assert own.span.size_bytes == chunk.total_compressed_size
            assert own.span.start + own.dictionary_bytes == chunk.data_page_offset
            first = chunk.dictionary_page_offset if chunk.has_dictionary_page else 0
            assert own.dictionary_bytes == (max(chunk.data_page_offset - first, 0) if first else 0)
            assert (own.decoded_bytes, own.value_count) == (chunk.total_uncompressed_size, chunk.num_values)
            if chunk.path_in_schema not in names or chunk.statistics is None:
                continue
            known, theirs = bounds[chunk.path_in_schema], chunk.statistics
            assert known.null_count == (theirs.null_count if theirs.has_null_count else None)
            if theirs.has_min_max and known.minimum is not None:
                assert (known.minimum, known.maximum) == (theirs.min, theirs.max)
                found += 1
    return found


@settings(max_examples=60)
@given(st.data(), st.sampled_from(list(values)), st.booleans())
def test_statistics_are_those_that_arrow_reads(data: st.DataObject, arrow_type: pa.DataType, with_nulls: bool) -> None:
    cells = data.draw(st.lists(values[arrow_type] | st.none() if with_nulls else values[arrow_type], max_size=12))
    rows = pa.table({"c": pa.array(cells, arrow_type), "l": pa.array([[1]] * len(cells), pa.list_(pa.int8()))})
    sink = io.BytesIO()
    pq.write_table(rows, sink, row_group_size=5)
    groups = [[cell for cell in cells[start : start + 5] if cell is not None] for start in range(0, len(cells), 5)]
    assert check_against_arrow(sink.getvalue()) >= sum(1 for group in groups if group)


def test_statistics_of_other_writers(tmp_path: Path) -> None:
    rows = {
        "n": list(range(100)),
        "s": [f"w{n}" for n in range(100)],
        "d": [date(2020, 1, 1) + timedelta(n) for n in range(100)],
        "t": [datetime(2020, 1, 1) + timedelta(hours=n) for n in range(100)],
        "x": [n / 7 for n in range(100)],
    }
    frame = pl.DataFrame(rows)
    frame.write_parquet(tmp_path / "polars.parquet")
    duckdb.from_arrow(pa.table(rows)).write_parquet(str(tmp_path / "duckdb.parquet"))
    for name in ("polars", "duckdb"):
        assert check_against_arrow((tmp_path / f"{name}.parquet").read_bytes()) >= 3, name


def test_columns_have_the_leaves_that_arrow_counts() -> None:
    layout, metadata = layout_of(sample_file()), pq.read_metadata(io.BytesIO(sample_file()))
    paths = [metadata.schema.column(position).path.split(".")[0] for position in range(metadata.num_columns)]
    assert [name for name in layout.schema.names for _ in layout.leaves([name])] == paths


def test_legacy_statistics_count_only_in_signed_order() -> None:
    """Old writers compare text as signed bytes. Their bounds of text would prune rows that match."""
    rows = pa.table({"s": ["a", "é"], "n": [1, 2]})
    sink = io.BytesIO()
    pq.write_table(rows, sink)
    data = sink.getvalue()
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    orders = b"\x1c\x00\x00" * 2 + b"\x00"
    assert data[start:-8].endswith(orders)
    footer = data[start:-8].removesuffix(b"\x19\x2c" + orders) + b"\x00"
    old = data[:start] + footer + len(footer).to_bytes(4, "little") + b"PAR1"
    bounds = layout_of(old).bounds(0, ["s", "n"])
    assert (bounds["s"].minimum, bounds["s"].null_count) == (None, 0)
    assert layout_of(data).bounds(0, ["s"])["s"].minimum == "a"
