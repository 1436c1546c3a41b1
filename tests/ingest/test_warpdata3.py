"""If this fails, datasets of warpdata 3.0 do not open, lose files, or bring files from outside of their root."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import warpdata as wd
from tests.ingest.scenes import bound, plant, png, rows, write_tar
from warpdata.errors import InvalidSourceError, NotFoundError, UnsupportedError
from warpdata.ingest import IngestReport, warpdata3

VERSION = "7989ab55be4a"
ROWS = [{"id": 0, "image": "a/0.png"}, {"id": 1, "image": "a/1.png"}]


class Root:
    """A root of warpdata 3.0, with one dataset in one of its layouts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.table = path.parent / "main.parquet"
        pq.write_table(pa.table({"id": [0, 1], "image": ["a/0.png", "a/1.png"]}), self.table)
        members = [(f"a/{i}.png", png(i)) for i in range(2)]
        self.tar = write_tar(path.parent / "images.tar", members)
        self.folder = plant(path.parent / "images", dict(members))

    def keyed(self) -> dict[str, Any]:
        data = self.path / "data" / "vision" / "pets" / VERSION
        for name, source in (("tables/main/0.parquet", self.table), ("artifacts/images/0.tar", self.tar)):
            plant(data, {name: source.read_bytes()})
        shards = {"key": "tables/main/0.parquet", "row_count": 2}, {"key": "artifacts/images/0.tar"}
        return {**self._manifest(*shards), "locations": ["s3://bucket/warp/data/vision/pets/{version}/"]}

    def objects(self) -> dict[str, Any]:
        shards = []
        for source in (self.table, self.tar):
            digest = hashlib.sha256(source.read_bytes()).hexdigest()
            key = f"objects/{digest[:2]}/{digest[2:4]}/{digest}"
            plant(self.path, {key: source.read_bytes()})
            shards.append({"uri": f"s3://bucket/warp/{key}", "byte_size": source.stat().st_size})
        return self._manifest(*shards)

    def registered(self) -> dict[str, Any]:
        manifest = self._manifest({"uri": self.table.as_uri()}, {"uri": self.folder.as_uri()})
        manifest["artifacts"]["images"]["kind"] = "directory"
        manifest["bindings"][0]["ref_type"] = "file_path"
        return manifest

    def publish(self, manifest: dict[str, Any]) -> Path:
        plant(
            self.path / "manifests" / "vision" / "pets",
            {"latest.json": json.dumps({"version": VERSION}), f"{VERSION}.json": json.dumps(manifest)},
        )
        return self.path

    @staticmethod
    def _manifest(table: Any, images: Any) -> dict[str, Any]:
        binding = {"table": "main", "column": "image", "artifact": "images"}
        return {
            "dataset": "vision/pets",
            "tables": {"main": {"format": "parquet", "shards": [table]}},
            "artifacts": {"images": {"kind": "tar_shards", "shards": [images]}},
            "bindings": [{**binding, "ref_type": "tar_member_path", "media_type": "image"}],
        }


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path / "root")


@pytest.mark.parametrize("layout", ["keyed", "objects", "registered"])
def test_all_layouts_are_read(root: Root, layout: str) -> None:
    found: list[IngestReport] = []
    path = root.publish(getattr(root, layout)())
    is_outside = layout == "registered"
    warpdata3("vision/pets", path, follow_links=is_outside, report=found.append).publish()
    assert rows("vision/pets") == ROWS
    assert bound("vision/pets") == {"image": ("images", "image")}
    assert wd.dataset("vision/pets").artifact().read("a/1.png") == png(1)
    assert (found[0].rows, found[0].members, found[0].fields.is_lossless) == (2, 2, True)


def test_the_manifest_counts_if_the_version_beside_it_is_wrong(root: Root) -> None:
    """Release 3.0.27 writes such a `latest.json` when it publishes files that were not registered before."""
    path = root.publish(root.keyed())
    uri = f"s3://bucket/warp/manifests/vision/pets/{VERSION}.json"
    latest = json.dumps({"version": "cab9014941ea270b", "manifest": uri})
    (path / "manifests" / "vision" / "pets" / "latest.json").write_text(latest)
    warpdata3("vision/pets", path).publish()
    assert rows("vision/pets") == ROWS


def test_files_outside_of_the_root_need_a_word(root: Root) -> None:
    with pytest.raises(InvalidSourceError, match=r"shard 0 of table 'main' is .*main\.parquet, outside of"):
        warpdata3("vision/pets", root.publish(root.registered()))
    escaping = root.keyed()
    escaping["tables"]["main"]["shards"][0]["key"] = "../../../../../main.parquet"
    with pytest.raises(InvalidSourceError, match="outside of"):
        warpdata3("vision/pets", root.publish(escaping))


def test_contents_are_compared_with_hashes_sizes_and_counts(root: Root) -> None:
    manifest = root.objects()
    (blob,) = [path for path in root.path.rglob("*") if path.is_file() and path.read_bytes()[:4] == b"PAR1"]
    blob.write_bytes(root.table.read_bytes()[:-1] + b"x")
    with pytest.raises(InvalidSourceError, match="differs from its hash"):
        warpdata3("vision/pets", root.publish(manifest))
    for field, value in (("byte_size", 7), ("row_count", 7)):
        keyed = root.keyed()
        keyed["tables"]["main"]["shards"][0][field] = value
        with pytest.raises(InvalidSourceError, match="7"):
            warpdata3("vision/pets", root.publish(keyed))


def test_addons_become_tables_and_losses_are_reported(root: Root) -> None:
    manifest = {**root.keyed(), "meta": {"created_at": "2025"}}
    vectors = {"format": "parquet", "shards": [{"key": "tables/main/0.parquet"}]}
    manifest["addons"] = {"embeddings:clip": {"kind": "embeddings", "vectors": vectors}, "empty": {"kind": "labels"}}
    found: list[IngestReport] = []
    warpdata3("acme/new", root.publish(manifest), name="vision/pets", report=found.append).publish()
    assert wd.dataset("acme/new").tables == ("embeddings_clip", "main")
    assert [outcome.field for outcome in found[0].fields.changed] == ["addon embeddings:clip"]
    assert [outcome.field for outcome in found[0].fields.lost] == ["addon empty", "meta"]


def test_what_is_not_there_is_named(root: Root, tmp_path: Path) -> None:
    manifest = root.keyed()
    root.publish(manifest)
    with pytest.raises(NotFoundError, match="has no dataset 'acme/other'"):
        warpdata3("acme/other", root.path)
    with pytest.raises(InvalidSourceError, match="has no version 'v1'"):
        warpdata3("vision/pets", root.path, version="v1")
    with pytest.raises(InvalidSourceError, match="is not WORKSPACE/NAME"):
        warpdata3("acme/new", root.path, name="../x")
    next(root.path.rglob("0.tar")).unlink()
    with pytest.raises(InvalidSourceError, match="shard 0 of artifact 'images' is not there"):
        warpdata3("vision/pets", root.path)
    manifest["artifacts"]["images"]["compression"] = "gzip"
    with pytest.raises(UnsupportedError, match="compression 'gzip'"):
        warpdata3("vision/pets", root.publish(manifest))
    del manifest["tables"]["main"]["shards"]
    with pytest.raises(InvalidSourceError, match=f"{VERSION}.json is damaged"):
        warpdata3("vision/pets", root.publish(manifest))
