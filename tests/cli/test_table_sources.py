"""If this fails, a person who publishes a CSV file or a directory of images hears about Parquet, and no next step."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pyarrow as pa
import pytest

import warpdata as wd
from tests.cli.scenes import parquet, run
from tests.ingest.scenes import plant, png


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def publish_table(source: str, dataset_id: str = "acme/new") -> str:
    """Try to publish a source as a table, and return what is printed."""
    result = run("publish", dataset_id, "--table", f"main={source}")
    assert result.exit_code == 5, result.stdout
    assert source.rstrip("/") in result.stderr
    return result.stderr


def follow_hint(text: str) -> None:
    """Run the command that a hint names."""
    command = re.search(r"`warp ([^`]+)`", text)
    assert command is not None, text
    done = run(*shlex.split(command[1]))
    assert done.exit_code == 0, done.stderr


def test_hint_for_csv_publishes_it(directory: Path) -> None:
    (directory / "my trips.csv").write_text("a,b\n1,2\n")
    follow_hint(publish_table("my trips.csv"))
    assert wd.dataset("acme/new").table("main").count() == 1
    follow_hint(publish_table("*.csv", "acme/globbed"))


def test_hint_for_directories_publishes_them(directory: Path) -> None:
    plant(directory, {"pets/cat/1.png": png(1), "pets/dog/1.png": png(2), "rows/a.csv": b"a\n1\n", "raw/x.bin": b"x"})
    for number, source in enumerate(("pets/", "rows", "raw")):
        follow_hint(publish_table(source, f"acme/new-{number}"))


@pytest.mark.parametrize("is_dict", [False, True])
def test_saved_hugging_face_dataset_is_recognised(directory: Path, is_dict: bool) -> None:
    folder = directory / "saved" / ("train" if is_dict else "")
    folder.mkdir(parents=True)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}))
    table = pa.table({"a": [1]})
    with pa.ipc.new_stream(folder / "data-00000-of-00001.arrow", table.schema) as writer:
        writer.write_table(table)
    if is_dict:
        (directory / "saved" / "dataset_dict.json").write_text('{"splits": ["train"]}')
    text = publish_table("saved")
    assert "Hugging Face" in text
    assert f"load_from_disk('saved'){'[SPLIT]' if is_dict else ''}.to_parquet(" in text


def test_other_formats_and_parquet(directory: Path) -> None:
    (directory / "x.feather").write_bytes(b"x")
    assert "to_parquet" in publish_table("x.feather")
    assert "does not exist" in publish_table("nothing.parquet")
    (directory / "data").mkdir()
    parquet(directory / "data")
    (directory / "data" / "notes.csv").write_text("a\n1\n")
    assert run("publish", "acme/new", "--table", "main=data").exit_code == 0


def test_convert_of_dataset_is_refused_clearly() -> None:
    result = run("episodes", "convert", "acme/robot", "out")
    assert result.exit_code == 5
    assert "does not read datasets" in result.stderr
    assert "save_wshard" in result.stderr
