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


def test_only_columns_that_compress_have_a_codec(tmp_path: Path) -> None:
    table = pa.table(_columns())
    (path,) = write_parquet(table.to_batches(3000), table.schema, tmp_path, "t", WriteOptions(row_group_bytes=2 << 20))
    assert pq.read_table(path).equals(table)
    codecs = _codecs(path)
    assert codecs.pop("text") == {"ZSTD"}
    assert set(map(frozenset, codecs.values())) == {frozenset({"UNCOMPRESSED"})}


def test_integers_are_stored_as_differences_where_that_is_about_as_small(tmp_path: Path) -> None:
    repeated = np.tile(np.random.default_rng(3).integers(0, 2**40, 100), ROWS // 100)  # zstd finds the repetitions
    table = pa.table({"id": np.arange(ROWS), "repeated": repeated})
    (path,) = write_parquet(table.to_batches(), table.schema, tmp_path, "t")
    group = pq.ParquetFile(path).metadata.row_group(0)
    encodings = {group.column(leaf).path_in_schema: group.column(leaf).encodings for leaf in range(2)}
    assert "DELTA_BINARY_PACKED" in encodings["id"]
    assert "DELTA_BINARY_PACKED" not in encodings["repeated"]
    assert pq.read_table(path).equals(table)


def test_a_small_file_is_compressed_without_a_trial(tmp_path: Path) -> None:
    table = pa.table({"x": _noise(4095)})
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
