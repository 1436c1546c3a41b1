"""If this fails, `warp export` writes something else than it prints, or hides what is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.scenes import ask, run
from tests.cli.test_app import loaded
from tests.exporters.scenes import files_of, publish_pets
from warpdata.cli.label_report import LABEL_FORMAT_NAMES
from warpdata.exporters import EXPORT_FORMATS


@pytest.fixture(autouse=True)
def pets() -> None:
    publish_pets()


def test_formats_of_the_command_are_those_of_the_library() -> None:
    (option,) = [each for each in loaded("export").params if each.name == "format_"]
    assert set(option.type.choices) == {*EXPORT_FORMATS, *LABEL_FORMAT_NAMES}  # type: ignore[attr-defined]


def test_the_document_has_its_keys_and_the_directory_its_files(tmp_path: Path) -> None:
    done = ask("export", "acme/pets", str(tmp_path / "out"), "--format", "imagefolder", "--filter", "n > 2")
    assert list(done) == list(loaded("export").json_keys)
    assert (done["rows"], done["files"], done["is_lossless"]) == (2, 2, False)
    assert sorted(files_of(tmp_path / "out")) == ["val/cat/2.png", "val/dog/3.png", "val/metadata.parquet"]


def test_losses_are_printed_and_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    done = run("export", "acme/pets", str(tmp_path / "out"), "--format", "webdataset", "--dry-run")
    assert "would export" in done.stdout
    assert "changed: split: in the names of the tars" in done.stderr
    assert "added: __key__: row numbers" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_wrong_words_are_usage_errors(tmp_path: Path) -> None:
    (tmp_path / "full").write_text("mine")
    for args, status in (
        (("--format", "csv"), 2),
        (("--label", "label", "--no-label"), 2),
        (("--split", "nope", "--format", "webdataset"), 3),
    ):
        assert run("export", "acme/pets", str(tmp_path / "out"), *args).exit_code == status
    assert run("export", "acme/pets", str(tmp_path / "full")).exit_code != 0
    assert (tmp_path / "full").read_text() == "mine"


def test_labels_and_splits_can_be_ignored(tmp_path: Path) -> None:
    ask("export", "acme/pets", str(tmp_path / "out"), "--format", "imagefolder", "--no-label", "--no-split")
    assert sorted(files_of(tmp_path / "out")) == [
        "00000001-1.png", "1.png", "2.png", "3.png", "metadata.parquet",
    ]  # fmt: skip
