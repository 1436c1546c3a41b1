"""If this fails, a name or value of a row replaces another file of an export, or ends it with an untyped error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import warpdata as wd
from tests.exporters.scenes import files_of
from tests.ingest.scenes import png, rows
from warpdata.errors import BadInputError, StorageError
from warpdata.exporters import options
from warpdata.primitives.paths import take_free_path


def publish(columns: dict[str, Any], members: dict[str, bytes] | None = None) -> None:
    members = members or {path: png(shade) for shade, path in enumerate(dict.fromkeys(columns["image"]))}
    builder = wd.DatasetBuilder("acme/odd").add_table("main", pa.table(columns)).add_artifact("raw", members)
    builder.bind("main", "image", "raw", "image").publish(replace=True)


def test_a_free_name_is_one_that_no_row_has() -> None:
    taken: set[str] = set()
    names = ["x.png", "00000003-x.png", "00000003-2-x.png", "X.png", "é.png", "e\u0301.png"]
    found = [take_free_path("d", name, row, taken) for row, name in enumerate(names)]
    assert found[:3] == [f"d/{name}" for name in names[:3]]
    assert found[3:] == ["d/00000003-3-X.png", "d/é.png", "d/00000005-e\u0301.png"]


def test_a_file_does_not_take_the_name_of_the_metadata(tmp_path: Path) -> None:
    publish({"image": ["a/metadata.parquet", "b.png"], "n": [1, 2]})
    wd.export("acme/odd", tmp_path / "out", "imagefolder")
    found = files_of(tmp_path / "out")
    assert sorted(found) == ["00000000-metadata.parquet", "b.png", "metadata.parquet"]
    assert found["00000000-metadata.parquet"] == png(0)
    described = pq.read_table(tmp_path / "out" / "metadata.parquet").to_pylist()
    assert [row["file_name"] for row in described] == ["00000000-metadata.parquet", "b.png"]


@pytest.mark.parametrize(("column", "values"), [("label", ["Cat", "cat"]), ("split", ["é", "e\u0301"])])
def test_directories_that_some_file_systems_take_for_one_are_refused(
    tmp_path: Path, column: str, values: list[str]
) -> None:
    """Two classes would become one, without a word."""
    publish({"image": ["a.png", "b.png"], column: values})
    with pytest.raises(BadInputError, match=f"column '{column}' of row 1 is .* differs from .* by case") as raised:
        wd.export("acme/odd", tmp_path / "out", "imagefolder")
    assert f"--no-{column}" in str(raised.value.hint)
    keywords: dict[str, Any] = {column: False}
    wd.export("acme/odd", tmp_path / "out", "imagefolder", **keywords)
    assert pq.read_table(tmp_path / "out" / "metadata.parquet")[column].to_pylist() == values


def test_a_member_within_another_and_a_long_name_are_named(tmp_path: Path) -> None:
    publish({"image": ["a", "a/b"]})
    with pytest.raises(BadInputError, match="'raw/a/b' needs a directory where another file is"):
        wd.export("acme/odd", tmp_path / "out")
    publish({"image": ["x" * 300]})
    with pytest.raises(StorageError, match=r"'raw/x{300}' cannot be written"):
        wd.export("acme/odd", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_byte_range_does_not_share_a_file_with_a_member_of_its_name(tmp_path: Path) -> None:
    name = "shard-000000-512-8.bin"
    ranges = pa.array([{"shard": 0, "offset": 512, "length": 8}])
    table = pa.table({"image": [name], "range": ranges})
    builder = wd.DatasetBuilder("acme/odd").add_table("main", table)
    builder.add_artifact("raw", {"a.png": png(1), name: b"another"})
    builder.bind("main", "image", "raw", "file").bind("main", "range", "raw", "file").publish(replace=True)
    with pytest.raises(BadInputError, match="two different files of column 'range'"):
        wd.export("acme/odd", tmp_path / "out")


@pytest.mark.parametrize("name", ["webdataset", "imagefolder"])
def test_a_column_of_many_values_is_no_column_of_splits(tmp_path: Path, name: str) -> None:
    """Each split has an open file, and a process has a limit of them."""
    publish({"image": ["a.png"] * 300, "split": [f"s{row}" for row in range(300)], "n": range(300)})
    with pytest.raises(BadInputError, match="column 'split' has more than 256 values") as raised:
        wd.export("acme/odd", tmp_path / "out", name)
    assert "--no-split" in str(raised.value.hint)


def test_a_column_that_is_no_suffix_is_refused(tmp_path: Path) -> None:
    """A slash would move the file to another sample."""
    table = pa.table({"a/b.png": ["a.png"], "c": ["a.png"]})
    builder = wd.DatasetBuilder("acme/odd").add_table("main", table).add_artifact("raw", {"a.png": png(1)})
    builder.bind("main", "a/b.png", "raw", "image").bind("main", "c", "raw", "image").publish()
    with pytest.raises(BadInputError, match=r"column 'a/b\.png' cannot be a suffix"):
        wd.export("acme/odd", tmp_path / "out", "webdataset")
    wd.export("acme/odd", tmp_path / "out", "webdataset", columns=["a/b.png"])
    wd.ingest.webdataset("acme/again", tmp_path / "out").publish()
    assert rows("acme/again") == [{"__key__": "00000000", "png": "00000000.png"}]


def test_text_views_are_divided_by_split(tmp_path: Path) -> None:
    """Arrow cannot take rows of views."""
    note = pa.array(["a", "b", "c"], pa.string_view())
    publish({"image": ["1.png", "2.png", "3.png"], "split": ["x", "y", "x"], "note": note})
    wd.export("acme/odd", tmp_path / "out", "imagefolder")
    assert pq.read_table(tmp_path / "out" / "x" / "metadata.parquet")["note"].to_pylist() == ["a", "c"]


class TestHuggingFace:
    @pytest.fixture(autouse=True)
    def library(self) -> Any:
        return pytest.importorskip("datasets")

    def test_types_that_the_library_lacks_are_refused(self, tmp_path: Path) -> None:
        publish({"image": ["1.png"], "m": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))})
        with pytest.raises(BadInputError, match="datasets has no feature for a column") as raised:
            wd.export("acme/odd", tmp_path / "out", "huggingface")
        assert "--columns" in str(raised.value.hint)

    def test_large_files_are_held_one_at_a_time(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Files that other formats copy in pieces are cells here."""
        monkeypatch.setattr(options, "_LARGE_BYTES", 10)
        monkeypatch.setattr(options, "_HELD_BYTES", 100)
        publish({"image": [f"{row}.png" for row in range(6)]})
        source = options.open_source(wd.dataset("acme/odd"), options.ExportOptions())
        assert max(batch.rows.num_rows for batch in source.batches()) == 6
        assert max(batch.rows.num_rows for batch in source.batches(holds_large=True)) == 1
        wd.export("acme/odd", tmp_path / "out", "huggingface")
        (file,) = (tmp_path / "out" / "data").iterdir()
        assert [cell["bytes"] for cell in pq.read_table(file)["image"].to_pylist()] == [png(row) for row in range(6)]
        monkeypatch.setattr("warpdata.exporters.huggingface._MAX_CELL_BYTES", 5)
        with pytest.raises(BadInputError, match="row 0: the file of column 'image' has"):
            wd.export("acme/odd", tmp_path / "two", "huggingface")
