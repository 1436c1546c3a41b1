"""If this fails, `warp ingest` publishes wrong rows, or hides the files that it skipped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import warpdata as wd
from tests.cli.scenes import ask, run
from tests.cli.test_app import loaded
from tests.ingest.scenes import bound, plant, png, rows, wav, write_tar
from tests.ingest.test_warpdata3 import Root


@pytest.fixture
def sources(tmp_path: Path) -> dict[str, list[str]]:
    """Return the arguments for a small source of each format."""
    plant(tmp_path / "pets", {"cat/1.png": png(1), "dog/2.png": png(2), "notes.txt": "x"})
    plant(tmp_path / "birds", {"1.wav": wav(), "cover.png": png()})
    write_tar(tmp_path / "web" / "0.tar", [("1.png", png(1)), ("1.cls", b"7"), ("README", b"")])
    plant(tmp_path, {"t.csv": "photo,n\ncat/1.png,1\n,2\n"})
    return {
        "imagefolder": [str(tmp_path / "pets")],
        "audiofolder": [str(tmp_path / "birds")],
        "webdataset": [f"{tmp_path}/web/*.tar"],
        "csv": [str(tmp_path / "t.csv"), "--media", f"photo={tmp_path / 'pets'}"],
    }


EXPECTED: dict[str, tuple[dict[str, tuple[str, str]], list[dict[str, Any]], dict[str, int]]] = {
    "imagefolder": (
        {"image": ("raw_images", "image")},
        [{"image": "cat/1.png", "label": "cat"}, {"image": "dog/2.png", "label": "dog"}],
        {"txt": 1},
    ),
    "audiofolder": ({"audio": ("raw_audio", "audio")}, [{"audio": "1.wav"}], {"png": 1}),
    "webdataset": ({"png": ("raw", "image")}, [{"__key__": "1", "cls": 7, "png": "1.png"}], {"": 1}),
    "csv": ({"photo": ("raw_photo", "image")}, [{"photo": "cat/1.png", "n": 1}, {"photo": None, "n": 2}], {}),
}


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_ingest_publishes_bound_dataset(name: str, sources: dict[str, list[str]]) -> None:
    args = ("ingest", name, "acme/new", *sources[name])
    bindings, expected, ignored = EXPECTED[name]
    plan = ask(*args, "--dry-run")
    assert wd.list_datasets() == []
    assert plan["tables"] == {"main": len(expected)}
    done = ask(*args, "--label", "v1", "-m", "first", "--author", "ada", "--metadata", "why=test")
    keys = list(loaded(f"ingest {name}").json_keys)
    assert [*done, "tables", "artifacts", "episodes", "tensors", "files"] == keys
    assert set(plan) <= set(keys)
    assert (done["rows"], done["ignored"], done["undescribed"]) == (len(expected), ignored, 0)
    assert done["version"] == plan["version"] == wd.dataset("acme/new@v1").version
    assert (bound("acme/new"), rows("acme/new")) == (bindings, expected)
    opened = wd.dataset("acme/new")
    assert opened.manifest.metadata == {"why": "test"}
    assert [(entry.message, entry.author) for entry in opened.history()] == [("first", "ada")]
    assert ask(*args, "--label", "v1")["changed"] is False
    again = run(*args)
    assert again.exit_code == 0
    assert "unchanged" in again.stdout
    assert ("skipped" in again.stderr) is bool(ignored)


def test_skipped_files_are_reported(tmp_path: Path) -> None:
    plant(tmp_path, {"1.png": png(), "2.png": png(), "a.txt": "", "b.txt": "", "README": ""})
    (tmp_path / "metadata.csv").write_text("file_name,n\n1.png,1\n")
    result = run("ingest", "imagefolder", "acme/pets", str(tmp_path))
    assert result.stderr.splitlines() == [
        f"2 rows and 2 files from {tmp_path}",
        "skipped 3 files of other types: 2 .txt, 1 without extension",
        "the metadata file has no row for 1 file",
    ]


def test_packing_and_table_name_options(sources: dict[str, list[str]]) -> None:
    packed = ("--compression", "zstd", "--shard-size", "1kB", "--table", "images")
    ask("ingest", "imagefolder", "acme/pets", *sources["imagefolder"], *packed)
    opened = wd.dataset("acme/pets")
    assert opened.tables == ("images",)
    assert opened.info().artifacts[0].compression == "zstd"
    ask("ingest", "csv", "acme/t", *sources["csv"], "--kind", "files")
    assert wd.dataset("acme/t").info().artifacts[0].kind == "files"
    refused = run("ingest", "csv", "acme/t", *sources["csv"], "--kind", "files", "--compression", "zstd")
    assert refused.exit_code == 5
    typed = [*sources["csv"][:2], f"{sources['csv'][2]}:file"]
    ask("ingest", "csv", "acme/t", *typed)
    assert bound("acme/t") == {"photo": ("raw_photo", "file")}


def test_branch_and_expect_options(sources: dict[str, list[str]]) -> None:
    version = ask("ingest", "imagefolder", "acme/pets", *sources["imagefolder"])["version"]
    missing = run("ingest", "audiofolder", "acme/pets", *sources["audiofolder"], "--branch", "new")
    assert missing.exit_code == 3
    moved = run("ingest", "audiofolder", "acme/pets", *sources["audiofolder"], "--expect", "0" * 64)
    assert moved.exit_code == 4
    assert wd.dataset("acme/pets").version == version


GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.mark.parametrize(
    ("name", "options", "changed"),
    [("mds", ["--media", "raw=file"], {"d", "i", "j", "lst", "pil"}), ("litdata", [], {"pil", "nest.b", "nest.c"})],
)
def test_datasets_of_other_libraries_are_published_with_a_report(
    name: str, options: list[str], changed: set[str]
) -> None:
    """The document lists every field, and the output those that have another form."""
    args = ("ingest", name, "acme/new", str(GOLDEN / name / "plain"), *options)
    done = ask(*args)
    assert (done["rows"], done["changed"]) == (3, True)
    assert changed <= {item["field"] for item in done["fields"]["changed"]}
    assert "changed: pil: 3 files in artifact raw_pil, pixels as PNG" in run(*args).stderr
    refused = run("ingest", name, "acme/new", str(GOLDEN / name / "pickled"))
    assert refused.exit_code != 0
    assert "which is pickled" in refused.stderr


def test_a_dataset_of_warpdata_3_needs_its_name_and_a_word_for_files_outside(tmp_path: Path) -> None:
    manifest = Root(tmp_path / "root")
    root = str(manifest.publish(manifest.registered()))
    assert "--follow-links" in run("ingest", "warpdata3", "acme/pets", root, "--name", "vision/pets").stderr
    done = ask("ingest", "warpdata3", "acme/pets", root, "--name", "vision/pets", "--follow-links")
    assert (done["rows"], done["members"]) == (2, 2)


def test_a_directory_of_hugging_face_is_published(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"label": datasets.ClassLabel(names=["a", "b"])})
    datasets.Dataset.from_dict({"label": [1, 0]}, features).to_parquet(tmp_path / "train-00000-of-00001.parquet")
    ask("ingest", "huggingface", "acme/new", str(tmp_path), "--splits", "tables")
    assert wd.dataset("acme/new").table("train").to_arrow().to_pylist() == [
        {"label": "b", "label_id": 1},
        {"label": "a", "label_id": 0},
    ]
