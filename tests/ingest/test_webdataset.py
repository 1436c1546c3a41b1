"""If this fails, samples of a WebDataset are split, mixed up, or get wrong types."""

from __future__ import annotations

import gzip
import importlib
import json
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import warpdata as wd
from tests.ingest.scenes import bound, png, rows, write_tar
from warpdata.errors import InvalidSourceError, WarpError
from warpdata.ingest import IngestReport, webdataset

module = importlib.import_module("warpdata.ingest.webdataset")

MEDIA = {"png": "image", "seg.png": "image", "wav": "audio", "mp4": "video", "npy": "file", "weird": "file"}
VALUES = {
    "cls": st.integers(-(2**63), 2**63 - 1).map(str),
    "id": st.sampled_from(["0", "12\n", " 7 ", "-3"]),
    "txt": st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    "index": st.sampled_from(["7", "007", "x", "", "9223372036854775808", "-0", "1_0", "٣"]),
    "json": st.recursive(st.none() | st.integers() | st.text(max_size=5), st.lists, max_leaves=4).map(json.dumps),
}
SAMPLE = st.fixed_dictionaries({}, optional={**{ending: st.binary(max_size=20) for ending in MEDIA}, **VALUES}).filter(
    bool
)


def naive_columns(parts: list[tuple[str, dict[str, str | bytes]]]) -> list[dict[str, Any]]:
    """All of it at once, from what was put in."""
    endings = sorted({ending for _, sample in parts for ending in sample})
    texts = {
        ending: [sample[ending] for _, sample in parts if isinstance(sample.get(ending), str)] for ending in VALUES
    }

    def is_integer(text: Any) -> bool:
        bare = text.strip()
        return (
            bare.removeprefix("-").isdigit()
            and bare.isascii()
            and str(int(bare)) == bare
            and -(2**63) <= int(bare) < 2**63
        )

    integers = {ending for ending, values in texts.items() if ending != "json" and all(map(is_integer, values))}

    def cell(key: str, sample: dict[str, str | bytes], ending: str) -> Any:
        value = sample.get(ending)
        if value is None:
            return None
        if isinstance(value, bytes):
            return f"{key}.{ending}"
        return int(value) if ending in integers else value

    return [{"__key__": key, **{ending: cell(key, sample, ending) for ending in endings}} for key, sample in parts]


@settings(max_examples=15)
@given(st.lists(st.lists(SAMPLE, min_size=1, max_size=4), min_size=1, max_size=3), st.integers(1, 5))
def test_rows_are_the_samples(shards: list[list[dict[str, str | bytes]]], batch_rows: int) -> None:
    parts = [
        (f"part.{number}/{row:03d}", sample) for number, shard in enumerate(shards) for row, sample in enumerate(shard)
    ]
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_BATCH_ROWS", batch_rows)
        for number in range(len(shards)):
            members = [
                (f"./{key}.{ending}", value if isinstance(value, bytes) else value.encode())
                for key, sample in parts
                if key.startswith(f"part.{number}/")
                for ending, value in sample.items()
            ]
            write_tar(Path(name) / f"{number}.tar", members)
        webdataset("acme/web", name).publish(replace=True)
        opened = wd.dataset("acme/web")
        assert rows("acme/web") == naive_columns(parts)
        seen = {ending for _, sample in parts for ending in sample}
        assert bound("acme/web") == {ending: ("raw", kind) for ending, kind in MEDIA.items() if ending in seen}
        for key, sample in parts:
            for ending in MEDIA.keys() & sample.keys():
                assert opened.artifact().read(f"{key}.{ending}") == sample[ending]


def test_tars_are_taken_as_they_are_and_twice_is_once(tmp_path: Path) -> None:
    for number in range(2):
        members = [(f"{number}{n}.{end}", png(n) if end == "PNG" else b"5") for n in range(3) for end in ("PNG", "cls")]
        write_tar(tmp_path / "web" / f"{number}.tar", [*members, (f"README-{number}", b"words")])
    surveys: list[IngestReport] = []
    first = webdataset("acme/web", tmp_path / "web", report=surveys.append).publish()
    assert (surveys[0].rows, surveys[0].members, dict(surveys[0].ignored)) == (6, 14, {"": 2})
    opened = wd.dataset("acme/web")
    stored = {blob.byte_size for blob in opened.blobs()}
    assert (tmp_path / "web" / "0.tar").stat().st_size in stored
    assert next(iter(opened.table().batch_dicts(1)))["png"][0].as_pil().size == (2, 2)
    again = webdataset("acme/web", f"{tmp_path}/web/*.tar").publish()
    assert (again.version, again.changed) == (first.version, False)


def test_a_text_that_is_large_or_no_text_makes_references_of_its_column(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MAX_TEXT_BYTES", 10)
    members = [
        ("1.txt", b"short"),
        ("2.txt", b"much too long"),
        ("1.json", b"{}"),
        ("2.json", b"\xff"),
        ("1.cls", b"1"),
    ]
    webdataset("acme/web", write_tar(tmp_path / "a.tar", members)).publish()
    assert bound("acme/web") == {"txt": ("raw", "file"), "json": ("raw", "file")}
    assert rows("acme/web") == [
        {"__key__": "1", "cls": 1, "json": "1.json", "txt": "1.txt"},
        {"__key__": "2", "cls": None, "json": "2.json", "txt": "2.txt"},
    ]


def test_hidden_files_folders_and_files_without_ending_are_no_samples(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as tar:
        folder = tarfile.TarInfo("folder.d")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        for name in ("folder.d/1.cls", "folder.d/._1.cls", "folder.d/LICENSE"):
            info = tarfile.TarInfo(name)
            info.size = 0
            tar.addfile(info)
    webdataset("acme/web", path).publish()
    assert rows("acme/web") == [{"__key__": "folder.d/1", "cls": ""}]


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ([("1.png", b""), ("1.PNG", b"")], "sample '1' has two files with the suffix 'png'"),
        ([("../1.png", b"")], r"\.\./1\.png"),
        ([("README", b"")], "contains no sample"),
        ([("1.__key__", b"")], "__key__"),
    ],
)
def test_samples_that_make_no_rows_are_refused(tmp_path: Path, members: list[tuple[str, bytes]], words: str) -> None:
    with pytest.raises(WarpError, match=words):
        webdataset("acme/web", write_tar(tmp_path / "a.tar", members)).publish()
    assert wd.list_datasets() == []


def test_the_same_key_in_two_tars_is_refused_and_named(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_tar(tmp_path / f"{name}.tar", [("1.png", b"")])
    with pytest.raises(WarpError, match=r"1\.png"):
        webdataset("acme/web", tmp_path).publish()


def test_what_is_no_tar_is_named(tmp_path: Path) -> None:
    sound = write_tar(tmp_path / "sound.tar", [("1.cls", b"1"), ("2.cls", b"2")]).read_bytes()
    (tmp_path / "packed.tar").write_bytes(gzip.compress(sound))
    (tmp_path / "torn.tar").write_bytes(sound[:1600])
    (tmp_path / "text.tar").write_bytes(b"not a tar at all" * 100)
    for name in ("packed", "torn", "text", "missing"):
        with pytest.raises(InvalidSourceError, match=f"{name}.tar"):
            webdataset("acme/web", tmp_path / f"{name}.tar").publish()
    (tmp_path / "none").mkdir()
    with pytest.raises(InvalidSourceError, match=r"none contains no file that ends in \.tar"):
        webdataset("acme/web", tmp_path / "none")
    with pytest.raises(InvalidSourceError, match="no file matches"):
        webdataset("acme/web", f"{tmp_path}/none/*.tar")
    assert wd.list_datasets() == []


def test_a_tar_that_changes_between_the_walks_is_refused(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", [("1.cls", b"1")])
    builder = webdataset("acme/web", path)
    write_tar(path, [("1.cls", b"x")])
    with pytest.raises(InvalidSourceError, match="changed while it was ingested"):
        builder.publish()


def test_gzipped_tars_are_read_like_plain_ones(tmp_path: Path) -> None:
    plain = write_tar(tmp_path / "plain" / "0.tar", [("1.png", png(1)), ("1.cls", b"1"), ("1.seg.png", png(2))])
    for name in ("0.tar.gz", "1.tgz"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).write_bytes(gzip.compress(plain.read_bytes()))
        webdataset("acme/packed", tmp_path / name).publish()
        webdataset("acme/plain", plain.parent).publish()
        assert rows("acme/packed") == rows("acme/plain")
        assert wd.dataset("acme/packed").artifact().read("1.seg.png") == png(2)
    (tmp_path / "0.tar.gz" / "0.tar.gz").write_bytes(gzip.compress(plain.read_bytes())[:-9])
    with pytest.raises(InvalidSourceError, match=r"0\.tar\.gz cannot be decompressed"):
        webdataset("acme/packed", tmp_path / "0.tar.gz")
