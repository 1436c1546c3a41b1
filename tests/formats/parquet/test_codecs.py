"""If these fail, files have other values or codecs than their rows ask for, or other bytes in memory than on disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from warpdata.formats.parquet import WriteOptions, write_column_file, write_parquet, write_spooled

ROWS = 20_000


def _noise(count: int = ROWS) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.random.default_rng(1).random(count)


def _columns() -> dict[str, object]:
    random = _noise()
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(_noise(ROWS * 4).astype("f4")), 4)
    return {
        "id": np.arange(ROWS),
        "x": random,
        "few": np.round(random * 3),
        "bits": np.random.default_rng(2).integers(0, 2**62, ROWS),
        "text": [f"{value:.17f}" for value in random],
        "emb": vectors,
        "lists": pa.array([list(row) for row in _noise(ROWS * 2).reshape(-1, 2)]),
        "point": pa.StructArray.from_arrays([pa.array(random), pa.array(["a"] * ROWS)], ["x", "name"]),
        "gaps": pa.array(random, mask=np.arange(ROWS) % 7 == 0),
    }


def _codecs(path: Path) -> dict[str, set[str]]:
    metadata = pq.ParquetFile(path).metadata
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    return {
        groups[0].column(leaf).path_in_schema: {group.column(leaf).compression for group in groups}
        for leaf in range(metadata.num_columns)
    }


def test_only_numbers_that_do_not_compress_have_no_codec(tmp_path: Path) -> None:
    table = pa.table(_columns())
    (path,) = write_parquet(table.to_batches(3000), table.schema, tmp_path, "t", WriteOptions(row_group_bytes=2 << 20))
    assert pq.read_table(path).equals(table)
    plain = {leaf for leaf, codecs in _codecs(path).items() if codecs == {"UNCOMPRESSED"}}
    assert plain == {"x", "emb.list.element", "lists.list.element", "gaps"}
    assert all(codecs in ({"ZSTD"}, {"UNCOMPRESSED"}) for codecs in _codecs(path).values())


def test_a_small_column_is_compressed(tmp_path: Path) -> None:
    table = pa.table({"x": _noise(8191)})  # one value fewer than 64 KiB
    (path,) = write_parquet(table.to_batches(), table.schema, tmp_path, "t")
    assert _codecs(path) == {"x": {"ZSTD"}}


def test_a_column_file_has_the_codec_of_its_first_values(tmp_path: Path) -> None:
    path = tmp_path / "column.parquet"
    groups = [pa.array(_noise()), pa.array(np.zeros(100))]
    write_column_file(iter(groups), "x", None, path)
    assert _codecs(path) == {"x": {"UNCOMPRESSED"}}
    assert pq.read_table(path)["x"].to_pylist() == [*groups[0].to_pylist(), *groups[1].to_pylist()]


@pytest.mark.parametrize("rows", [0, 1, 500, ROWS])
@pytest.mark.parametrize("memory_bytes", [0, 2000, 1 << 30])
def test_files_in_memory_have_the_bytes_of_files_on_disk(tmp_path: Path, rows: int, memory_bytes: int) -> None:
    table = pa.table(_columns()).slice(0, rows)
    options = WriteOptions(row_group_bytes=100_000, file_bytes=400_000)
    (tmp_path / "memory").mkdir()
    (tmp_path / "disk").mkdir()
    asked: list[Path] = []

    def find_directory() -> Path:
        asked.append(tmp_path / "memory")
        return asked[-1]

    spooled = list(
        write_spooled(table.to_batches(), table.schema, find_directory, "t", options, memory_bytes=memory_bytes)
    )
    written = list(write_parquet(table.to_batches(), table.schema, tmp_path / "disk", "t", options))
    assert [file.path.name for file in spooled] == [path.name for path in written]
    for file, path in zip(spooled, written, strict=True):
        data = file.path.read_bytes() if file.data is None else file.data
        assert data == path.read_bytes()
        assert file.size_bytes == len(data)
        assert (file.data is not None) == (len(data) <= memory_bytes)
    assert len(asked) == sum(file.data is None for file in spooled), "no directory is made for files in memory"
