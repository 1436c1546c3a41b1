"""If this fails, a Lance dataset loses rows or blobs on its way in, or brings back deleted rows."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import warpdata as wd
from tests.ingest.scenes import bound, png, rows
from warpdata.errors import InvalidSourceError
from warpdata.ingest import IngestReport
from warpdata.ingest import lance as ingest_lance

lance = pytest.importorskip("lance")

SCHEMA = pa.schema(
    [
        pa.field("i", pa.int64()),
        pa.field("photo", pa.large_binary(), metadata={"lance-encoding:blob": "true"}),
        pa.field("vector", pa.list_(pa.float32(), 4)),
        pa.field("raw", pa.binary()),
    ]
)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    vectors = pa.array([[float(i)] * 4 for i in range(4)], pa.list_(pa.float32(), 4))
    photos = pa.array([png(0), png(1), None, png(3)], pa.large_binary())
    table = pa.table([pa.array(range(4)), photos, vectors, pa.array([b"a", b"b", None, b"d"])], schema=SCHEMA)
    lance.write_dataset(table, tmp_path / "x.lance").delete("i = 1")
    return tmp_path / "x.lance"


def test_live_rows_and_blobs_are_imported(source: Path) -> None:
    found: list[IngestReport] = []
    ingest_lance("acme/photos", source, report=found.append).publish()
    assert rows("acme/photos") == [
        {"i": 0, "photo": "00000000.png", "vector": [0.0] * 4, "raw": b"a"},
        {"i": 2, "photo": None, "vector": [2.0] * 4, "raw": None},
        {"i": 3, "photo": "00000002.png", "vector": [3.0] * 4, "raw": b"d"},
    ]
    assert bound("acme/photos") == {"photo": ("raw_photo", "image")}
    assert wd.dataset("acme/photos").artifact().read("00000002.png") == png(3)
    assert found[0].fields.is_lossless


def test_versions_and_columns_of_bytes_are_chosen(source: Path) -> None:
    ingest_lance("acme/photos", source, version="1", media={"raw": "file"}).publish()
    assert [row["i"] for row in rows("acme/photos")] == [0, 1, 2, 3]
    assert wd.dataset("acme/photos").artifact("raw_raw").read("00000001") == b"b"


def test_other_directories_are_refused(tmp_path: Path, source: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(InvalidSourceError, match=str(path)):
            ingest_lance("acme/photos", path)
    for file in (source / "data").iterdir():
        file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(InvalidSourceError, match=r"x\.lance"):
        ingest_lance("acme/photos", source)
