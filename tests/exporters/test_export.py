"""If this fails, an export leaves half a directory, overwrites files, writes outside of its target, or hides a loss."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import warpdata as wd
from tests.exporters.scenes import COLUMNS, files_of, publish_pets
from tests.ingest.scenes import png
from warpdata.errors import AlreadyExistsError, BadInputError, ColumnNotFoundError, CorruptError, WarpError
from warpdata.exporters import EXPORT_FORMATS
from warpdata.primitives.progress import ProgressEvent
from warpdata.testing import S3Endpoint

FORMATS = [name for name in EXPORT_FORMATS if name not in ("audiofolder", "huggingface")]


@pytest.mark.parametrize("name", FORMATS)
def test_a_dry_run_reports_what_the_export_does_and_writes_nothing(tmp_path: Path, name: str) -> None:
    members = publish_pets()
    planned = wd.export("acme/pets", tmp_path / "out", name, dry_run=True)
    assert list(tmp_path.iterdir()) == []
    done = wd.export("acme/pets", tmp_path / "out", name)
    assert (planned.rows, planned.files, planned.size_bytes) == (4, 4, sum(map(len, members.values())))
    assert planned.fields == done.fields
    assert {key: value for key, value in done.document().items() if key != "is_dry_run"} == {
        key: value for key, value in planned.document().items() if key != "is_dry_run"
    }


@pytest.mark.parametrize("name", FORMATS)
def test_every_column_has_an_outcome(tmp_path: Path, name: str) -> None:
    publish_pets()
    fields = wd.export("acme/pets", tmp_path / "out", name, dry_run=True).fields
    listed = [outcome.field for outcomes in (fields.kept, fields.changed, fields.lost) for outcome in outcomes]
    assert sorted(set(listed) - {"row order", "paths of image"}) == sorted(COLUMNS)


@pytest.mark.parametrize("name", FORMATS)
def test_the_same_rows_give_the_same_bytes(tmp_path: Path, name: str) -> None:
    publish_pets()
    for target in ("one", "two"):
        wd.export("acme/pets", tmp_path / target, name)
    assert files_of(tmp_path / "one") == files_of(tmp_path / "two")


def test_only_an_absent_or_empty_directory_is_a_target(tmp_path: Path) -> None:
    publish_pets()
    (tmp_path / "empty").mkdir()
    wd.export("acme/pets", tmp_path / "empty")
    assert files_of(tmp_path / "empty")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("mine")
    for target in ("file", "full", "empty"):
        before = files_of(tmp_path)
        with pytest.raises(AlreadyExistsError, match=target):
            wd.export("acme/pets", tmp_path / target)
        assert files_of(tmp_path) == before
    with pytest.raises(AlreadyExistsError, match="full"):
        wd.export("acme/pets", tmp_path / "full", dry_run=True)


@pytest.mark.parametrize("name", FORMATS)
def test_an_export_that_fails_leaves_nothing(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The third file cannot be read: its bytes in the store are corrupt."""
    publish_pets()
    from warpdata.kinds.artifacts import Artifact

    read = Artifact.read_at

    def fail(self: Artifact, locators: Any) -> list[bytes]:
        if COLUMNS["image"][2] in locators:
            raise CorruptError("bytes differ")
        return read(self, locators)

    monkeypatch.setattr(Artifact, "read_at", fail)
    with pytest.raises(CorruptError, match="bytes differ"):
        wd.export("acme/pets", tmp_path / "out", name)
    assert list(tmp_path.iterdir()) == []


def test_corrupt_bytes_of_the_store_are_not_exported(tmp_path: Path) -> None:
    publish_pets()
    store = Path(os.environ["WARP_STORE"].removeprefix("file://"))
    for blob in (store / "blobs").rglob("*"):
        content = blob.read_bytes() if blob.is_file() else b""
        if content[257:262] == b"ustar":
            blob.chmod(0o600)
            blob.write_bytes(content.replace(b"IHDR", b"IHDX"))
    with pytest.raises(CorruptError):
        wd.export("acme/pets", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_killed_export_leaves_no_directory_that_looks_complete(tmp_path: Path) -> None:
    """The process kills itself while it writes the second file, and the next export succeeds."""
    publish_pets()
    code = """
        import os, signal, sys
        import warpdata as wd
        def stop(event):
            if event.done_files == 2:
                os.kill(os.getpid(), signal.SIGKILL)
        wd.export("acme/pets", sys.argv[1], "imagefolder", progress=stop)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code), str(tmp_path / "out")], check=False)
    assert done.returncode == -signal.SIGKILL
    left = list(tmp_path.iterdir())
    assert all(path.name.startswith(".out.") and path.name.endswith(".tmp") for path in left)
    assert left
    wd.export("acme/pets", tmp_path / "out", "imagefolder")
    assert len(files_of(tmp_path / "out")) == 6


@pytest.mark.parametrize("hostile", ["../../evil", "/etc/evil", "..", "a/b", "a\\b", "", ".hidden", "x\0y", "y" * 300])
def test_hostile_names_never_leave_the_target(tmp_path: Path, hostile: str) -> None:
    """Labels and splits are values of rows, so anything can be in them. Stores refuse such member names."""
    for column, name in (("label", "imagefolder"), ("split", "imagefolder"), ("split", "webdataset")):
        publish_pets(columns={"image": ["1.png"], column: [hostile]})
        with pytest.raises(BadInputError, match=f"column '{column}' of row 0"):
            wd.export("acme/pets", tmp_path / "in" / "out", name)
    publish_pets(columns={"image": ["1.png"], "__key__": [hostile + ".x"]})
    with pytest.raises(WarpError):
        wd.export("acme/pets", tmp_path / "in" / "out", "webdataset")
    assert files_of(tmp_path) == {}


def test_rows_and_columns_are_selected(tmp_path: Path) -> None:
    publish_pets()
    report = wd.export("acme/pets", tmp_path / "out", columns=["n", "image"], filter="label = 'dog'")
    assert (report.rows, report.files) == (2, 2)
    assert pq.read_table(tmp_path / "out" / "main-00000.parquet").to_pylist() == [
        {"n": None, "image": "train/dog/1.png"},
        {"n": 4, "image": "val/dog/3.png"},
    ]
    assert sorted(files_of(tmp_path / "out" / "raw_images")) == ["train/dog/1.png", "val/dog/3.png"]


def test_progress_reaches_its_total(tmp_path: Path) -> None:
    members = publish_pets()
    events: list[ProgressEvent] = []
    wd.export("acme/pets", tmp_path / "out", progress=events.append)
    last = events[-1]
    assert (last.stage, last.done_files, last.done_bytes) == ("export", 4, sum(map(len, members.values())))
    assert (last.total_files, last.total_bytes) == (last.done_files, last.done_bytes)


def test_options_that_do_not_apply_are_refused(tmp_path: Path) -> None:
    publish_pets()
    wrong: list[tuple[dict[str, Any], type[WarpError], str]] = [
        ({"format": "csv"}, BadInputError, "format='csv' is not known"),
        ({"label": "lable"}, ColumnNotFoundError, "no column 'lable'"),
        ({"format": "parquet", "label": "label"}, BadInputError, "do not apply to format 'parquet'"),
        ({"format": "webdataset", "media": "image"}, BadInputError, "does not apply"),
        ({"format": "imagefolder", "media": "n"}, BadInputError, "column 'n' has no files"),
        ({"format": "imagefolder", "columns": ["n"]}, BadInputError, "needs one column of files"),
        ({"shard_bytes": "many"}, BadInputError, "many"),
        ({"table": "other"}, WarpError, "other"),
        ({"filter": "n >"}, BadInputError, "n >"),
    ]
    for options, kind, match in wrong:
        with pytest.raises(kind, match=match):
            wd.export("acme/pets", tmp_path / "out", **options)
    assert list(tmp_path.iterdir()) == []


def test_a_table_without_rows_is_exported(tmp_path: Path) -> None:
    wd.DatasetBuilder("acme/none").add_table("main", pa.table({"n": pa.array([], pa.int64())})).publish()
    for name in ("parquet", "webdataset"):
        assert wd.export("acme/none", tmp_path / name, name).rows == 0
        assert files_of(tmp_path / name)


def test_types_of_other_libraries_stay(tmp_path: Path) -> None:
    table = pa.table({"u": pa.array([b"0" * 16, None], pa.uuid()), "d": pa.array(["a", "b"]).dictionary_encode()})
    wd.DatasetBuilder("acme/types").add_table("main", table).publish()
    wd.export("acme/types", tmp_path / "out")
    stored = wd.dataset("acme/types").table().to_arrow()
    assert pq.read_table(tmp_path / "out" / "main-00000.parquet").equals(stored)


def test_large_files_are_copied_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warpdata.exporters.options._LARGE_BYTES", 10)
    monkeypatch.setattr("warpdata.exporters.output._PIECE_BYTES", 7)
    members = publish_pets()
    wd.export("acme/pets", tmp_path / "parquet")
    assert files_of(tmp_path / "parquet" / "raw_images") == members
    wd.export("acme/pets", tmp_path / "tars", "webdataset")
    assert png(0) in (tmp_path / "tars" / "train-000000.tar").read_bytes()


@pytest.mark.s3
def test_a_dataset_on_s3_is_exported_and_comes_back(
    tmp_path: Path, s3_server: S3Endpoint, s3_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**s3_server.environ(), "WARP_STORE": s3_url}.items():
        monkeypatch.setenv(name, value)
    members = publish_pets()
    wd.export("acme/pets", tmp_path / "out", "webdataset", columns=["image", "n"])
    wd.ingest.webdataset("acme/again", tmp_path / "out").publish()
    artifact = wd.dataset("acme/again").artifact()
    assert [artifact.read(f"{row:08d}.png") for row in range(4)] == [members[path] for path in COLUMNS["image"]]
