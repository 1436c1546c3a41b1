"""If this fails, a CSV becomes a table with other values or types, or its paths refer to other files."""

from __future__ import annotations

import csv as csv_writer
import datetime
import io
import json
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import warpdata as wd
from tests.ingest.scenes import bound, plant, png, rows
from warpdata.errors import ColumnNotFoundError, InvalidSourceError, SchemaMismatchError, WarpError
from warpdata.ingest import IngestReport, Media, csv
from warpdata.ingest.source_files import read_rows
from warpdata.primitives.hashing import sha256_hex

TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"], include_characters="\n\t"), max_size=20)


@given(st.lists(st.tuples(TEXT, st.integers(-(2**62), 2**62)), min_size=1, max_size=8), st.sampled_from(["csv", "tsv"]))
def test_text_and_numbers_come_through_whole(values: list[tuple[str, int]], kind: str) -> None:
    """Write cells with quotes, separators and line breaks. A leading x keeps text from looking like a number."""
    out = io.StringIO(newline="")
    writer = csv_writer.writer(out, delimiter="," if kind == "csv" else "\t", lineterminator="\n")
    writer.writerows([("text", "number"), *(("x" + text, number) for text, number in values)])
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, f"a.{kind}")
        path.write_text(out.getvalue(), encoding="utf-8", newline="")
        read = read_rows(path)
    assert read.schema.field("number").type == pa.int64()
    assert read.to_pylist() == [{"text": "x" + text, "number": number} for text, number in values]


def test_types_are_inferred_from_the_whole_file(tmp_path: Path) -> None:
    many = "".join(f"{n},{n}\n" for n in range(300_000))
    (tmp_path / "a.csv").write_text(f"late,int\n{many}words,7\n")
    late = read_rows(tmp_path / "a.csv")
    assert [str(field.type) for field in late.schema] == ["string", "int64"]
    (tmp_path / "b.csv").write_text("day,real,truth,nothing,zip\n2024-02-29,1.5,true,,NA\n,,false,,1\n")
    read = read_rows(tmp_path / "b.csv")
    assert [str(field.type) for field in read.schema] == ["date32[day]", "double", "bool", "string", "int64"]
    assert read.to_pylist()[0] == {
        "day": datetime.date(2024, 2, 29),
        "real": 1.5,
        "truth": True,
        "nothing": None,
        "zip": None,
    }


def test_line_breaks_inside_values_are_no_rows_in_a_long_file_either(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,n\n" + '"two\nlines",1\n' * 150_000)
    read = read_rows(tmp_path / "a.csv")
    assert read.num_rows == 150_000
    assert read["text"].unique().to_pylist() == ["two\nlines"]


@pytest.mark.parametrize("ending", ["jsonl", "ndjson"])
def test_json_lines_may_be_nested(tmp_path: Path, ending: str) -> None:
    lines = [{"a": [1, 2], "b": {"c": "x"}}, {"a": [], "b": {"c": None}}]
    plant(tmp_path, {f"t.{ending}": "".join(json.dumps(line) + "\n" for line in lines)})
    csv("acme/t", tmp_path / f"t.{ending}").publish()
    assert rows("acme/t") == lines


def test_parquet_is_taken_byte_for_byte(tmp_path: Path) -> None:
    for n in range(2):
        pq.write_table(pa.table({"n": [n], "photo": ["a.png"]}), tmp_path / f"{n}.parquet")
    plant(tmp_path, {"photos/a.png": png()})
    surveys: list[IngestReport] = []
    source = f"{tmp_path}/*.parquet"
    csv("acme/t", source, media={"photo": tmp_path / "photos"}, report=surveys.append).publish()
    hashes = {blob.hash for blob in wd.dataset("acme/t").blobs()}
    assert {sha256_hex((tmp_path / f"{n}.parquet").read_bytes()) for n in range(2)} <= hashes
    assert (surveys[0].rows, surveys[0].members) == (2, 1)
    assert bound("acme/t") == {"photo": ("raw_photo", "image")}


@pytest.mark.parametrize("front", ["", "pictures/"])
def test_columns_are_bound_to_a_folder(tmp_path: Path, front: str) -> None:
    plant(tmp_path, {"pictures/1.png": png(1), "pictures/2.png": png(2), "pictures/notes.txt": "n", "f/x": "x"})
    table = f"id,photo,mask,other file\n1,{front}1.png,{front}2.png,x\n2,,,\n"
    plant(tmp_path, {"t.csv": table})
    media: dict[str, Media | str | Path] = {"photo": tmp_path / "pictures", "other file": tmp_path / "f"}
    media["mask"] = Media(tmp_path / "pictures", "file")
    version = csv("acme/t", tmp_path / "t.csv", media=media).publish().version
    assert bound("acme/t") == {
        "photo": ("raw_photo", "image"),
        "mask": ("raw_photo", "file"),
        "other file": ("raw_other_file", "file"),
    }
    assert [row["photo"] for row in rows("acme/t")] == [f"{front}1.png", None]
    first = next(iter(wd.dataset("acme/t").table().batches(1)))
    assert first["photo"][0].as_numpy().tolist() == [[1, 1], [1, 1]]
    assert first["mask"][0].read_bytes() == png(2)
    assert csv("acme/t", tmp_path / "t.csv", media=media).publish().version == version


def test_several_files_are_one_table(tmp_path: Path) -> None:
    plant(tmp_path, {"d/a.csv": "x,y\n1,a\n", "d/b.tsv": "x\tz\n2.5\ttrue\n", "d/notes.md": "x"})
    csv("acme/t", tmp_path / "d").publish()
    assert rows("acme/t") == [{"x": 1.0, "y": "a", "z": None}, {"x": 2.5, "y": None, "z": True}]
    with pytest.raises(InvalidSourceError, match="no common columns"):
        csv("acme/t", [*plant(tmp_path, {"c.jsonl": '{"x": {"a": 1}}\n'}).glob("c.jsonl"), tmp_path / "d" / "a.csv"])


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.csv", b"", "a.csv"),
        ("a.csv", b"x,y\n1\n", "a.csv"),
        ("a.csv", b"x\ncaf\xe9\n", "column 'x' is not valid UTF-8"),
        ("a.jsonl", b'{"x": \n', "a.jsonl"),
        ("a.parquet", b"PAR1", "a.parquet"),
        ("a.xlsx", b"PK", "a.xlsx is not a known table format"),
    ],
)
def test_files_that_cannot_be_read_are_named(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    plant(tmp_path, {name: content})
    with pytest.raises(InvalidSourceError, match=words):
        csv("acme/t", tmp_path / name)
    with pytest.raises(InvalidSourceError, match="missing"):
        csv("acme/t", tmp_path / name.replace("a.", "missing."))


def test_media_that_is_not_there_is_named(tmp_path: Path) -> None:
    plant(tmp_path, {"t.csv": "photo,n\n1.png,1\n9.png,2\n", "photos/1.png": png()})
    with pytest.raises(ColumnNotFoundError, match="foto"):
        csv("acme/t", tmp_path / "t.csv", media={"foto": tmp_path / "photos"})
    with pytest.raises(InvalidSourceError, match="nowhere is not a directory"):
        csv("acme/t", tmp_path / "t.csv", media={"photo": tmp_path / "nowhere"})
    with pytest.raises(InvalidSourceError, match=r"row 1 .*9\.png"):
        csv("acme/t", tmp_path / "t.csv", media={"photo": tmp_path / "photos"}).publish()
    with pytest.raises(SchemaMismatchError, match="column 'n' is int64"):
        csv("acme/t", tmp_path / "t.csv", media={"n": tmp_path / "photos"}).publish()
    with pytest.raises(WarpError, match="ref_type='picture'"):
        csv("acme/t", tmp_path / "t.csv", media={"photo": Media(tmp_path / "photos", "picture")})
    assert wd.list_datasets() == []
