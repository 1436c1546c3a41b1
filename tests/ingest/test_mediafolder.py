"""If this fails, a directory of media files becomes a dataset with wrong labels, lost files or wrong metadata."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import warpdata as wd
from tests.ingest.scenes import bound, plant, png, rows, wav
from warpdata.errors import InvalidSourceError, WarpError
from warpdata.formats.media import REF_TYPE_BY_SUFFIX
from warpdata.ingest import IngestReport, Packing, audiofolder, imagefolder
from warpdata.ingest.media_dir import _SPLITS as SPLITS
from warpdata.ingest.media_dir import _directory_columns as directory_columns

NAMES = st.sampled_from(["train", "test", "VAL", "cat", "dog", "é", "a b", "x"])
ENDINGS = st.sampled_from([".png", ".PNG", ".jpg", ".txt", "", ".wav"])
PATHS = st.builds(
    lambda folders, name, ending: "/".join([*folders, name + ending]),
    st.lists(NAMES, max_size=3),
    st.sampled_from(["1", "2", "3.small", "ü"]),
    ENDINGS,
)


def prepared(folder: Path, **options: Any) -> tuple[wd.DatasetBuilder, IngestReport]:
    surveys: list[IngestReport] = []
    builder = imagefolder("acme/pets", folder, report=surveys.append, **options)
    return builder, surveys[0]


def naive_rows(paths: list[str]) -> list[dict[str, Any]]:
    """The rules once more, one file at a time."""
    kept = sorted((path for path in paths if path.lower().endswith((".png", ".jpg"))), key=str.encode)
    has_split = all(path.count("/") and path.split("/")[0].lower() in SPLITS for path in kept)

    def label_of(path: str) -> str | None:
        inside = path.split("/")[1 if has_split else 0 :]
        return inside[0] if len(inside) > 1 else None

    classes = {label_of(path) for path in kept} - {None}
    out = []
    for path in kept:
        row: dict[str, Any] = {"image": path}
        if len(classes) > 1:
            row["label"] = label_of(path)
        if has_split:
            row["split"] = path.split("/")[0]
        out.append(row)
    return out


@settings(max_examples=15)
@given(st.lists(PATHS, min_size=1, max_size=12, unique_by=str.lower))
def test_rows_labels_and_splits_are_those_of_the_folders(paths: list[str]) -> None:
    import tempfile

    paths = [path for path in paths if not any(other.startswith(f"{path}/") for other in paths)]
    expected = naive_rows(paths)
    with tempfile.TemporaryDirectory() as name:
        folder = plant(Path(name), {path: png(number) for number, path in enumerate(paths)})
        if not expected:
            with pytest.raises(InvalidSourceError, match="contains no image file"):
                prepared(folder)
            return
        builder, survey = prepared(folder)
        builder.publish()
        opened = wd.dataset("acme/pets")
        assert rows("acme/pets") == expected
        contents = opened.artifact().read_many([row["image"] for row in expected])
        assert contents == [(folder / row["image"]).read_bytes() for row in expected]
        assert (survey.rows, survey.members) == (len(expected), len(opened.artifact()))
        assert sum(survey.ignored.values()) == len(paths) - len(expected)


@given(st.lists(PATHS, min_size=1, max_size=12))
def test_columns_have_a_value_for_each_path(paths: list[str]) -> None:
    for name, values in directory_columns(paths).items():
        assert name in ("label", "split")
        assert len(values) == len(paths)


def test_a_folder_of_classes_and_splits(tmp_path: Path) -> None:
    files = {f"{split}/{pet}/{n}.png": png(n) for split in ("train", "val") for pet in ("cat", "dog") for n in (1, 2)}
    builder, survey = prepared(plant(tmp_path, {**files, "notes.txt": "x", ".DS_Store": "x", "val/a.TXT": "x"}))
    assert wd.list_datasets() == [], "nothing is written before publish"
    version = builder.publish().version
    assert dict(survey.ignored) == {"txt": 2, "": 1}
    assert bound("acme/pets") == {"image": ("raw_images", "image")}
    assert rows("acme/pets")[0] == {"image": "train/cat/1.png", "label": "cat", "split": "train"}
    first = wd.dataset("acme/pets").table().head(1)["image"][0]
    assert first.as_numpy().tolist() == [[1, 1], [1, 1]]
    for path in tmp_path.rglob("*"):
        os.utime(path, (1, 1))
    again = prepared(tmp_path)[0].publish()
    assert (again.version, again.changed) == (version, False)


@pytest.mark.parametrize("packing", [Packing("files"), Packing(compression="zstd"), Packing(shard_bytes=100)])
def test_packing_changes_how_files_are_stored_and_not_what_they_are(tmp_path: Path, packing: Packing) -> None:
    files = {f"{n}.png": png(n) for n in range(4)}
    prepared(plant(tmp_path, {**files}), packing=packing)[0].publish()
    opened = wd.dataset("acme/pets")
    (found,) = opened.info().artifacts
    assert (found.kind, found.compression) == (packing.kind, packing.compression)
    assert found.shards == (1 if packing.compression else 4)
    assert opened.artifact().read_many(sorted(files)) == [files[name] for name in sorted(files)]


def test_sounds(tmp_path: Path) -> None:
    audiofolder(
        "acme/birds", plant(tmp_path, {"wren/1.wav": wav(), "robin/2.WAV": wav(), "cover.png": png()})
    ).publish()
    assert bound("acme/birds") == {"audio": ("raw_audio", "audio")}
    assert rows("acme/birds") == [
        {"audio": "robin/2.WAV", "label": "robin"},
        {"audio": "wren/1.wav", "label": "wren"},
    ]
    first = wd.dataset("acme/birds").table().head(1)["audio"][0]
    assert (first.sample_rate, first.as_array().shape) == (8000, (3, 1))


# Metadata


def metadata(folder: Path, kind: str, columns: dict[str, list[Any]]) -> None:
    table = pa.table(columns)
    path = folder / f"metadata.{kind}"
    if kind == "parquet":
        pq.write_table(table, path)
    elif kind == "csv":
        from pyarrow import csv

        csv.write_csv(table, path)
    else:
        import json

        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_metadata_adds_its_columns_to_the_right_rows(tmp_path: Path, kind: str) -> None:
    plant(tmp_path, {f"{n}.png": png(n) for n in range(4)})
    metadata(tmp_path, kind, {"file_name": ["2.png", "./0.png", "3.png"], "age": [2, 0, 3], "name": ["b", "a", "c"]})
    builder, survey = prepared(tmp_path)
    builder.publish()
    assert rows("acme/pets") == [
        {"image": "0.png", "age": 0, "name": "a"},
        {"image": "1.png", "age": None, "name": None},
        {"image": "2.png", "age": 2, "name": "b"},
        {"image": "3.png", "age": 3, "name": "c"},
    ]
    assert (survey.undescribed, dict(survey.ignored)) == (1, {})


def test_every_folder_may_have_its_own_metadata_which_wins_over_folders(tmp_path: Path) -> None:
    plant(tmp_path, {f"{split}/{pet}/1.png": png(1) for split in ("train", "test") for pet in ("cat", "dog")})
    metadata(tmp_path / "train", "csv", {"file_name": ["cat/1.png", "dog/1.png"], "Label": ["tom", "rex"]})
    metadata(tmp_path / "test", "jsonl", {"file_name": ["dog/1.png"], "age": [7]})
    prepared(tmp_path)[0].publish()
    assert rows("acme/pets") == [
        {"image": "test/cat/1.png", "split": "test", "Label": None, "age": None},
        {"image": "test/dog/1.png", "split": "test", "Label": None, "age": 7},
        {"image": "train/cat/1.png", "split": "train", "Label": "tom", "age": None},
        {"image": "train/dog/1.png", "split": "train", "Label": "rex", "age": None},
    ]


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"file_name": ["9.png"]}, "row 0 of .*metadata.csv names '9.png'"),
        ({"file_name": ["1.png", "1.png"]}, "row 1 .* describes '1.png'"),
        ({"file_name": ["../1.png"]}, "names '../1.png'"),
        ({"file_name": [1]}, "no text column 'file_name'"),
        ({"name": ["1.png"]}, "no text column 'file_name'"),
        ({"file_name": ["1.png"], "image": ["x"]}, "has a column 'image'"),
    ],
)
def test_metadata_that_does_not_fit_is_refused(tmp_path: Path, columns: dict[str, list[Any]], words: str) -> None:
    plant(tmp_path, {"1.png": png()})
    metadata(tmp_path, "csv", columns)
    with pytest.raises(InvalidSourceError, match=words):
        prepared(tmp_path)


@pytest.mark.parametrize("content", [b"file_name\n\xff\xfe\n", b'file_name,a\n"1.png\n', b"", b"file_name,a\n1,2,3\n"])
def test_metadata_that_cannot_be_read_is_named(tmp_path: Path, content: bytes) -> None:
    plant(tmp_path, {"1.png": png(), "metadata.csv": content})
    with pytest.raises(InvalidSourceError, match=r"metadata\.csv"):
        prepared(tmp_path)


# What is not a directory of media


def test_what_is_no_folder_is_named(tmp_path: Path) -> None:
    plant(tmp_path, {"file.png": png(), "empty/x": "", "texts/a.txt": "x"})
    (tmp_path / "nothing").mkdir()
    for name, words in {
        "missing": "is not a directory",
        "file.png": "is not a directory",
        "nothing": "contains no file",
        "texts": "contains no image file, only 1 of other types",
    }.items():
        with pytest.raises(InvalidSourceError, match=words) as caught:
            prepared(tmp_path / name)
        assert str(tmp_path / name) in caught.value.message


def test_a_file_that_changes_before_it_is_published_is_refused(tmp_path: Path) -> None:
    builder, _ = prepared(plant(tmp_path, {"1.png": png()}))
    (tmp_path / "1.png").unlink()
    with pytest.raises(WarpError, match=r"1\.png"):
        builder.publish()
    assert wd.list_datasets() == []


def test_without_a_report_the_log_says_what_was_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "warpdata.ingest"):
        imagefolder("acme/pets", plant(tmp_path, {"1.png": png(), "a.txt": ""}))
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING"]
    assert "'txt': 1" in caplog.text


def test_endings_are_in_lower_case_and_of_known_types() -> None:
    assert set(REF_TYPE_BY_SUFFIX.values()) == {"image", "audio", "video"}
    assert all(ending == ending.lower().strip(".") for ending in REF_TYPE_BY_SUFFIX)
