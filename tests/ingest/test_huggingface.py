"""If this fails, a Hugging Face dataset loses rows, classes or files on its way in, or reads files it must not."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import warpdata as wd
from tests.ingest.scenes import bound, png, rows, wav
from warpdata.errors import InvalidSourceError, SchemaMismatchError, WarpError
from warpdata.ingest import IngestReport, huggingface

datasets = pytest.importorskip("datasets")

NAMES = ["cat", "dog", "never"]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    datasets.disable_progress_bars()
    yield
    datasets.enable_progress_bars()


def build(labels: list[int | None]) -> Any:
    """Return a dataset with a column of most kinds. Its file names repeat."""
    files = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    count = len(labels)
    table = pa.table(
        {
            "image": pa.array([{"bytes": png(i), "path": "same.png" if i else None} for i in range(count)], files),
            "label": pa.array(labels, pa.int64()),
            "text": [f"text {i}" for i in range(count)],
            "grid": [[[float(i), 0.5], [1.0, 2.0]] for i in range(count)],
            "tags": [[0, 1][: i % 3] for i in range(count)],
            "audio": pa.array([{"bytes": wav((i,)), "path": None} if i else None for i in range(count)], files),
            "when": pa.array([datetime(2026, 1, 1)] * count, pa.timestamp("us")),
        }
    )
    features = datasets.Features(
        {
            "image": datasets.Image(),
            "label": datasets.ClassLabel(names=NAMES),
            "text": datasets.Value("string"),
            "grid": datasets.Array2D((2, 2), "float32"),
            "tags": datasets.Sequence(datasets.ClassLabel(names=["a", "b"])),
            "audio": datasets.Audio(sampling_rate=8000),
            "when": datasets.Value("timestamp[us]"),
        }
    )
    return datasets.Dataset(table).cast(features)


@pytest.fixture
def splits() -> Any:
    return datasets.DatasetDict(train=build([0, 1, None]), test=build([-1, 0]))


def expected(name: str, labels: list[int | None]) -> list[dict[str, Any]]:
    listed = []
    for i, label in enumerate(labels):
        file = "00000000.png" if i == 0 else "same.png" if i == 1 else f"{i:08d}-same.png"
        listed.append(
            {
                "image": f"{name}/{file}",
                "label": None if label in (None, -1) else NAMES[label or 0],
                "label_id": label,
                "text": f"text {i}",
                "grid": [[float(i), 0.5], [1.0, 2.0]],
                "tags": [0, 1][: i % 3],
                "audio": f"{name}/{i:08d}.wav" if i else None,
                "when": datetime(2026, 1, 1),
                "split": name,
            }
        )
    return listed


def test_objects_and_directories_give_the_same_dataset(tmp_path: Path, splits: Any) -> None:
    splits.save_to_disk(tmp_path / "saved")
    for name, part in splits.items():
        part.to_parquet(tmp_path / "hub" / f"{name}-00000-of-00001.parquet")
    wanted = expected("train", [0, 1, None]) + expected("test", [-1, 0])
    versions = []
    for source in (splits, tmp_path / "saved", str(tmp_path / "hub")):
        found: list[IngestReport] = []
        versions.append(huggingface("acme/pets", source, report=found.append).publish().version)
        assert rows("acme/pets") == wanted
        assert bound("acme/pets") == {"image": ("raw_image", "image"), "audio": ("raw_audio", "audio")}
        assert (found[0].rows, found[0].members) == (5, 8)
        assert found[0].fields.is_lossless
    assert versions[0] == versions[1]  # the Parquet files name the items of lists otherwise
    table = wd.dataset("acme/pets").table()
    assert [ref.read_bytes() for ref in table.to_arrow()["image"].to_pylist()] == [png(i) for i in (0, 1, 2, 0, 1)]


def test_one_split_has_no_split_column_and_tables_are_on_request(splits: Any) -> None:
    huggingface("acme/one", splits["train"]).publish()
    assert "split" not in rows("acme/one")[0]
    huggingface("acme/two", splits, splits="tables").publish()
    opened = wd.dataset("acme/two")
    assert opened.tables == ("test", "train")
    assert opened.table("test").count() == 2


def test_splits_with_other_columns_need_tables() -> None:
    both = datasets.DatasetDict(train=build([0]), test=build([0]).remove_columns(["text"]))
    with pytest.raises(SchemaMismatchError, match="split test has other columns than split train"):
        huggingface("acme/pets", both)
    huggingface("acme/pets", both, splits="tables").publish()


def test_selected_rows_are_read_in_their_order(splits: Any) -> None:
    huggingface("acme/some", splits["train"].select([2, 0])).publish()
    assert [row["text"] for row in rows("acme/some")] == ["text 2", "text 0"]


@pytest.mark.soak  # the library imports torch
def test_iterable_datasets_are_read(splits: Any) -> None:
    huggingface("acme/stream", splits["train"].to_iterable_dataset()).publish()
    assert [row["text"] for row in rows("acme/stream")] == ["text 0", "text 1", "text 2"]


def test_a_label_without_a_name_is_refused() -> None:
    table = pa.table({"label": [0, 7]}, metadata=_metadata({"label": {"_type": "ClassLabel", "names": NAMES}}))
    with pytest.raises(InvalidSourceError, match=r"column 'label', row 1: label 7 has no name; there are 3"):
        huggingface("acme/pets", _written(table))


def _metadata(features: dict[str, Any]) -> dict[str, str]:
    return {"huggingface": json.dumps({"info": {"features": features}})}


def _written(table: pa.Table) -> Path:
    path = Path.cwd() / "table.parquet"
    pq.write_table(table, path)
    return path


@pytest.fixture(autouse=True)
def in_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    "hostile", ["/etc/hostname", "../secret.png", "hf://datasets/x/1.png", "https://example.com/1.png"]
)
def test_paths_are_read_only_inside_of_the_media_root(tmp_path: Path, hostile: str) -> None:
    (tmp_path / "secret.png").write_bytes(b"secret")
    (tmp_path / "media").mkdir()
    (tmp_path / "media" / "1.png").write_bytes(png(1))
    files = pa.struct([("bytes", pa.binary()), ("path", pa.string())])

    def table(path: str) -> pa.Table:
        cells = pa.array([{"bytes": None, "path": path}], files)
        return pa.table({"image": cells}, metadata=_metadata({"image": {"_type": "Image"}}))

    with pytest.raises(InvalidSourceError, match="row 0, column 'image'"):
        huggingface("acme/pets", _written(table("1.png")))
    with pytest.raises(InvalidSourceError, match="row 0, column 'image'"):
        huggingface("acme/pets", _written(table(hostile)), media_root=tmp_path / "media")
    huggingface("acme/pets", _written(table("1.png")), media_root=tmp_path / "media").publish()
    assert wd.dataset("acme/pets").artifact().read("1.png") == png(1)


def test_member_names_never_come_from_directories_of_the_source() -> None:
    files = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    names = ["../../etc/passwd.png", "a\\..\\b.png", "..", "", ".hidden.png", "A.png", "a.png", "x" * 300 + ".png"]
    cells = pa.array([{"bytes": png(i), "path": name} for i, name in enumerate(names)], files)
    table = pa.table({"image": cells}, metadata=_metadata({"image": {"_type": "Image"}}))
    huggingface("acme/pets", _written(table)).publish()
    assert [row["image"] for row in rows("acme/pets")] == [
        "passwd.png", "b.png", "00000002.png", "00000003.png", "00000004.png", "A.png", "00000006-a.png",
        "00000007.png",
    ]  # fmt: skip


def test_damaged_directories_are_refused_with_the_file(tmp_path: Path, splits: Any) -> None:
    """A stream that is cut between two batches reads without an error of Arrow."""
    good = tmp_path / "good"
    splits["train"].save_to_disk(good)
    (name,) = [path.name for path in good.glob("*.arrow")]
    whole = (good / name).read_bytes()

    def damaged(change: Any) -> Path:
        shutil.rmtree(tmp_path / "bad", ignore_errors=True)
        shutil.copytree(good, tmp_path / "bad")
        change(tmp_path / "bad")
        return tmp_path / "bad"

    changes: dict[str, Any] = {
        f"{name} is truncated": lambda bad: (bad / name).write_bytes(whole[:-8]),
        f"{name} is truncated: the": lambda bad: (bad / name).write_bytes(b""),
        f"{name} cannot be read": lambda bad: (bad / name).unlink(),
        "names '../x', which is not": lambda bad: _edit_state(bad, [{"filename": "../x"}]),
        "has no list _data_files": lambda bad: _edit_state(bad, None),
        "state.json is damaged": lambda bad: (bad / "state.json").write_text("{"),
    }
    for match, change in changes.items():
        with pytest.raises(InvalidSourceError, match=match):
            huggingface("acme/pets", damaged(change))
    for cut in range(8, len(whole), 331):
        with pytest.raises(WarpError):
            huggingface("acme/pets", damaged(lambda bad, cut=cut: (bad / name).write_bytes(whole[:cut])))


def _edit_state(folder: Path, files: Any) -> None:
    state = json.loads((folder / "state.json").read_text())
    (folder / "state.json").write_text(json.dumps({**state, "_data_files": files}))


def test_other_objects_are_refused() -> None:
    for source in ([1, 2], {"train": pa.table({"n": [1]})}, 7):
        with pytest.raises(InvalidSourceError, match="is no Hugging Face dataset"):
            huggingface("acme/pets", source)
    with pytest.raises(InvalidSourceError, match="does not exist"):
        huggingface("acme/pets", "missing")
