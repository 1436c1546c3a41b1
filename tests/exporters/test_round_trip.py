"""If this fails, another library reads other values from an export than the dataset has, or an import changes them.

Every format is read back by an independent library, and by the importer of the same format.
"""

from __future__ import annotations

import importlib.util
import json
import tarfile
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import warpdata as wd
from tests.exporters.scenes import COLUMNS, files_of, publish_pets
from tests.ingest.scenes import bound, png, rows, write_tar
from warpdata.errors import BadInputError, MissingExtraError

ROWS = pa.table(COLUMNS).to_pylist()


def test_parquet_is_read_by_arrow_and_published_again(tmp_path: Path) -> None:
    members = publish_pets()
    report = wd.export("acme/pets", tmp_path / "out")
    assert report.is_lossless
    assert pq.read_table(tmp_path / "out" / "main-00000.parquet").to_pylist() == ROWS
    assert files_of(tmp_path / "out" / "raw_images") == members
    tables, folder = f"{tmp_path}/out/*.parquet", tmp_path / "out" / "raw_images"
    wd.ingest.csv("acme/again", tables, media={"image": wd.ingest.Media(folder, "image")}).publish()
    assert rows("acme/again") == ROWS
    assert bound("acme/again")["image"][1] == "image"


def test_imagefolder_is_a_directory_for_each_split_and_class(tmp_path: Path) -> None:
    members = publish_pets()
    report = wd.export("acme/pets", tmp_path / "out", "imagefolder")
    assert [outcome.field for outcome in report.fields.changed] == ["paths of image", "row order"]
    assert not report.fields.lost
    found = {name: content for name, content in files_of(tmp_path / "out").items() if name.endswith(".png")}
    assert found == members
    wd.ingest.imagefolder("acme/again", tmp_path / "out").publish()
    assert {row["image"]: row for row in rows("acme/again")} == {row["image"]: row for row in ROWS}


def test_imagefolder_without_other_columns_has_only_images(tmp_path: Path) -> None:
    """The layout of torchvision: no file beside the class directories."""
    members = publish_pets()
    wd.export("acme/pets", tmp_path / "out", "imagefolder", columns=["image", "label"])
    assert files_of(tmp_path / "out") == {
        "cat/1.png": members["train/cat/1.png"],
        "cat/2.png": members["val/cat/2.png"],
        "dog/1.png": members["train/dog/1.png"],
        "dog/3.png": members["val/dog/3.png"],
    }


def test_files_of_one_name_get_names_of_their_own_and_nulls_are_refused(tmp_path: Path) -> None:
    publish_pets(columns={"image": ["a/X.png", "b/x.png", "a/X.png"]})
    wd.export("acme/pets", tmp_path / "out", "imagefolder")
    assert sorted(files_of(tmp_path / "out")) == ["00000001-x.png", "00000002-X.png", "X.png"]
    publish_pets(columns={"image": ["1.png", None]})
    with pytest.raises(BadInputError, match="row 1 has no file in column 'image'"):
        wd.export("acme/pets", tmp_path / "null", "imagefolder")


@pytest.mark.soak  # the library imports torch
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # it leaves files open
def test_webdataset_is_read_by_its_library(tmp_path: Path) -> None:
    library = pytest.importorskip("webdataset")
    members = publish_pets()
    wd.export("acme/pets", tmp_path / "out", "webdataset", columns=["image", "n", "split", "note"])
    assert sorted(files_of(tmp_path / "out")) == ["train-000000.tar", "val-000000.tar"]
    samples = []
    for name in ("train", "val"):
        url = f"file:{tmp_path}/out/{name}-000000.tar"
        samples += list(library.WebDataset(url, shardshuffle=False))
    assert [sample["__key__"] for sample in samples] == [f"{row:08d}" for row in range(4)]
    assert [sample["png"] for sample in samples] == [members[path] for path in COLUMNS["image"]]
    values = [json.loads(sample["json"]) for sample in samples]
    assert values == [{"n": row["n"], "note": row["note"]} for row in ROWS]


def test_webdataset_comes_back_as_it_came(tmp_path: Path) -> None:
    """Keys, classes, texts and several files of a sample, in several tars."""
    members = []
    for i in range(6):
        members += [(f"d/{i}.png", png(i)), (f"d/{i}.seg.png", png(9)), (f"d/{i}.cls", b"%d" % i)]
        members += [(f"d/{i}.txt", f"text {i}".encode()), (f"d/{i}.json", b'{"a": 1}')]
    write_tar(tmp_path / "in" / "0.tar", members)
    wd.ingest.webdataset("acme/web", tmp_path / "in").publish()
    wd.export("acme/web", tmp_path / "out", "webdataset", shard_bytes=8000)
    found = []
    for path in sorted((tmp_path / "out").iterdir()):
        with tarfile.open(path) as tar:
            found += [(info.name, tar.extractfile(info).read()) for info in tar]  # type: ignore[union-attr]
    assert len(list((tmp_path / "out").iterdir())) > 1
    assert sorted(found) == sorted(members)
    wd.ingest.webdataset("acme/again", tmp_path / "out").publish()
    assert rows("acme/again") == rows("acme/web")


def test_suffixes_of_a_sample_differ(tmp_path: Path) -> None:
    """A file that ends in .txt beside a column txt gets its column's name in front."""
    table = pa.table({"doc": ["a.txt"], "txt": ["words"]})
    builder = wd.DatasetBuilder("acme/docs").add_table("main", table).add_artifact("raw", {"a.txt": b"file"})
    builder.bind("main", "doc", "raw").publish()
    wd.export("acme/docs", tmp_path / "out", "webdataset")
    with tarfile.open(tmp_path / "out" / "000000.tar") as tar:
        assert tar.getnames() == ["00000000.doc.txt", "00000000.txt"]


def test_webdataset_refuses_numbers_that_json_lacks_and_repeated_keys(tmp_path: Path) -> None:
    publish_pets(columns={"image": ["1.png"], "x": [float("nan")]})
    with pytest.raises(BadInputError, match="row 0 has a number that JSON does not have"):
        wd.export("acme/pets", tmp_path / "out", "webdataset")
    publish_pets(columns={"image": ["1.png", "2.png"], "__key__": ["a", "a"]})
    with pytest.raises(BadInputError, match="two rows have the key 'a'"):
        wd.export("acme/pets", tmp_path / "out", "webdataset")


VALUES = st.fixed_dictionaries(
    {
        "n": st.none() | st.integers(-(2**63), 2**63 - 1),
        "x": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "s": st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
        "v": st.none() | st.lists(st.integers(0, 9), max_size=3),
    }
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=15)
@given(given=st.lists(VALUES, min_size=1, max_size=6))
def test_values_that_a_report_calls_kept_are_equal(tmp_path_factory: Any, given: list[dict[str, Any]]) -> None:
    folder = tmp_path_factory.mktemp("round-trip")
    schema = pa.schema([("n", pa.int64()), ("x", pa.float64()), ("s", pa.string()), ("v", pa.list_(pa.int64()))])
    wd.DatasetBuilder("acme/any").add_table("main", pa.Table.from_pylist(given, schema)).publish(replace=True)
    assert wd.export("acme/any", folder / "tars", "webdataset").is_lossless
    with tarfile.open(folder / "tars" / "000000.tar") as tar:
        assert [json.load(tar.extractfile(info)) for info in tar] == given  # type: ignore[arg-type]
    assert wd.export("acme/any", folder / "tables").is_lossless
    assert pq.read_table(folder / "tables" / "main-00000.parquet").to_pylist() == given


class TestHuggingFace:
    """The library reads each export; these tests are skipped where it is not installed."""

    @pytest.fixture(autouse=True)
    def library(self) -> Any:
        library = pytest.importorskip("datasets")
        library.disable_progress_bars()
        return library

    @staticmethod
    def load(library: Any, folder: Path, cache: Path) -> Any:
        return library.load_dataset(str(folder), cache_dir=str(cache))

    def test_the_library_reads_equal_values(self, tmp_path: Path, library: Any) -> None:
        members = publish_pets()
        report = wd.export("acme/pets", tmp_path / "out", "huggingface")
        assert [outcome.field for outcome in report.fields.changed] == ["paths of image"]
        assert not report.fields.lost
        loaded = self.load(library, tmp_path / "out", tmp_path / "cache")
        assert list(loaded) == ["train", "val"] or set(loaded) == {"train", "validation"}
        found = [row for part in loaded.values() for row in part.cast_column("image", library.Image(decode=False))]
        assert [row["image"]["bytes"] for row in found] == [members[path] for path in COLUMNS["image"]]
        assert loaded["train"].features["label"] == library.ClassLabel(names=["cat", "dog"])
        names = ("n", "score", "note", "vector", "when")
        for row, wanted in zip(found, ROWS, strict=True):
            assert ["cat", "dog"][row["label"]] == wanted["label"]
            assert {name: row[name] for name in names} == {name: wanted[name] for name in names}
        assert loaded["train"][0]["image"].size == (2, 2)

    def test_the_library_reads_an_imagefolder(self, tmp_path: Path, library: Any) -> None:
        publish_pets()
        wd.export("acme/pets", tmp_path / "out", "imagefolder", columns=["image", "label", "split"])
        loaded = library.load_dataset("imagefolder", data_dir=str(tmp_path / "out"), cache_dir=str(tmp_path / "cache"))
        assert loaded["train"].features["label"].names == ["cat", "dog"]
        assert loaded["train"]["label"][:] == [0, 1]

    def test_features_survive_an_import_and_an_export(self, tmp_path: Path, library: Any) -> None:
        files = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
        cells = pa.array([{"bytes": png(i), "path": f"{i}.png"} for i in range(3)], files)
        features = library.Features(
            {
                "image": library.Image(),
                "label": library.ClassLabel(names=["never", "b", "a"]),
                "grid": library.Array2D((1, 2), "float32"),
                "tags": library.Sequence(library.ClassLabel(names=["x", "y"])),
                "when": library.Value("timestamp[us]"),
            }
        )
        table = {"image": cells, "label": [1, None, 2], "grid": [[[1.0, 2.0]]] * 3, "tags": [[0], [], [1, 0]]}
        source = library.Dataset(pa.table({**table, "when": [datetime(2026, 1, 1)] * 3})).cast(features)
        wd.ingest.huggingface("acme/pets", source).publish()
        report = wd.export("acme/pets", tmp_path / "out", "huggingface")
        assert [outcome.field for outcome in report.fields.changed] == ["paths of image"]
        assert not report.fields.lost
        assert [outcome.field for outcome in report.fields.added] == ["split"]
        loaded = self.load(library, tmp_path / "out", tmp_path / "cache")["train"]
        assert loaded.features == features
        undecoded = [part.cast_column("image", library.Image(decode=False))[:] for part in (loaded, source)]
        assert undecoded[0] == undecoded[1]
        wd.ingest.huggingface("acme/again", tmp_path / "out").publish()
        assert [{**row, "split": "train"} for row in rows("acme/pets")] == [
            {**row, "image": row["image"].removeprefix("train/")} for row in rows("acme/again")
        ]

    def test_names_and_integers_of_a_label_must_agree(self, tmp_path: Path, library: Any) -> None:
        features = library.Features({"label": library.ClassLabel(names=["a", "b"])})
        wd.ingest.huggingface("acme/pets", library.Dataset.from_dict({"label": [0, 1]}, features)).publish()
        edited = wd.dataset("acme/pets").table().to_arrow().set_column(0, _label_field(), [["a", "a"]])
        wd.DatasetBuilder("acme/pets").add_table("main", edited).publish()
        with pytest.raises(BadInputError, match="row 1: label is 'a', but label_id is 1, which means 'b'"):
            wd.export("acme/pets", tmp_path / "out", "huggingface")
        wd.export("acme/pets", tmp_path / "out", "huggingface", columns=["label"])

    def test_split_names_follow_the_rules_of_the_library(self, tmp_path: Path) -> None:
        publish_pets(columns={"image": ["1.png"], "split": ["a-b"]})
        with pytest.raises(BadInputError, match="row 0 has split 'a-b'"):
            wd.export("acme/pets", tmp_path / "out", "huggingface")
        wd.export("acme/pets", tmp_path / "out", "huggingface", split=False)
        assert sorted(files_of(tmp_path / "out")) == ["data/train-00000-of-00001.parquet"]

    def test_files_are_numbered_by_their_count(self, tmp_path: Path) -> None:
        publish_pets()
        wd.export("acme/pets", tmp_path / "out", "huggingface", shard_bytes=1)
        assert all("-of-00001" in name for name in files_of(tmp_path / "out"))


def _label_field() -> pa.Field:
    return wd.dataset("acme/pets").table().schema().field("label")


@pytest.mark.skipif(importlib.util.find_spec("datasets") is not None, reason="datasets is installed")
def test_the_missing_library_is_named(tmp_path: Path) -> None:
    publish_pets()
    with pytest.raises(MissingExtraError, match="an export for Hugging Face needs datasets"):
        wd.export("acme/pets", tmp_path / "out", "huggingface")
