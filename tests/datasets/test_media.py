"""If this fails, the references of a table return other files than the published ones, or do not survive Arrow."""

from __future__ import annotations

import io
import multiprocessing
import pickle
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

import warpdata as wd
from warpdata.errors import (
    BadInputError,
    ColumnNotFoundError,
    InvalidSourceError,
    NotFoundError,
    ObjectNotFoundError,
    SchemaMismatchError,
    UnsupportedError,
)
from warpdata.testing import S3Endpoint

COUNT = 40


def image_bytes(number: int) -> bytes:
    """Return a small PNG that encodes its number."""
    out = io.BytesIO()
    Image.fromarray(np.full((4, 3, 3), number, dtype=np.uint8)).save(out, format="PNG")
    return out.getvalue()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    images = tmp_path / "images"
    (images / "deep").mkdir(parents=True)
    for number in range(COUNT):
        (images / name(number)).write_bytes(image_bytes(number))
    return images


def name(number: int) -> str:
    return f"{'deep/' if number % 3 else ''}{number:04d}.png"


def pets(paths: Sequence[str | None]) -> pa.Table:
    return pa.table({"id": range(len(paths)), "image": pa.array(paths, pa.string())})


def publish(directory: Path, paths: Sequence[str | None], store: str | None = None, **how: Any) -> wd.Dataset:
    builder = wd.DatasetBuilder("acme/pets", store).add_table("main", pets(paths))
    builder.add_artifact("raw_images", directory, **how)
    builder.bind("main", "image", "raw_images", ref_type="image").publish()
    return wd.dataset("acme/pets", store=store)


@pytest.mark.parametrize("how", [{}, {"compression": "zstd"}, {"kind": "files"}, {"shard_bytes": 500}])
def test_every_reference_returns_its_image(directory: Path, how: dict[str, Any]) -> None:
    dataset = publish(directory, [name(n) for n in range(COUNT)], **how)
    for batch in dataset.table().batches(7):
        for number, ref in zip(batch["id"].to_pylist(), batch["image"], strict=True):
            assert ref.as_pil().getpixel((0, 0)) == (number,) * 3
            assert ref.as_numpy().shape == (4, 3, 3)
            assert ref.size == len(image_bytes(number))
    for columns in dataset.table().batch_dicts(7):
        for number, ref in zip(columns["id"], columns["image"], strict=True):
            assert isinstance(ref, wd.ImageRef)
            assert ref.read_bytes() == image_bytes(number)
    whole = dataset.table().to_arrow()["image"]
    assert wd.read_many(whole) == [image_bytes(n) for n in range(COUNT)]


def test_paths_may_begin_with_the_name_of_the_directory(directory: Path) -> None:
    dataset = publish(directory, [f"images/{name(n)}" for n in range(COUNT)])
    assert dataset.artifact("raw_images").read("images/0003.png") == image_bytes(3)
    assert [m.path for m in dataset.artifact().members()] == sorted(f"images/{name(n)}" for n in range(COUNT))
    plain = publish(directory, [name(n) for n in range(COUNT)])
    assert "0003.png" in plain.artifact()


def test_members_may_have_a_prefix(directory: Path) -> None:
    dataset = publish(directory, [f"v2/{name(n)}" for n in range(COUNT)], prefix="v2/")
    assert dataset.artifact().read("v2/0000.png") == image_bytes(0)


def test_references_survive_arrow_operations(directory: Path) -> None:
    dataset = publish(directory, [*(name(n) for n in range(COUNT)), None])
    rows = dataset.table().to_arrow()
    order = [*range(COUNT)]
    Random(3).shuffle(order)
    kept = rows.take(order).filter(pa.array([n % 2 == 0 for n in order])).slice(3)
    joined = pa.concat_tables([kept, rows.slice(5, 4), rows.slice(COUNT)])
    expected = [*[n for n in order if n % 2 == 0][3:], 5, 6, 7, 8, None]
    assert wd.read_many(joined["image"]) == [None if n is None else image_bytes(n) for n in expected]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, joined.schema) as writer:
        writer.write_table(joined)
    received = pa.ipc.open_stream(sink.getvalue()).read_all()
    assert received.schema == rows.schema
    assert wd.read_many(received["image"]) == wd.read_many(joined["image"])
    copied = pickle.loads(pickle.dumps(joined))  # noqa: S301
    assert wd.read_many(copied["image"]) == wd.read_many(joined["image"])
    with pytest.raises(BadInputError, match="null has no 'as_pil'"):
        joined["image"][len(joined) - 1].as_pil()


def test_as_refs_restores_references_after_sql(directory: Path) -> None:
    dataset = publish(directory, [name(n) for n in range(COUNT)])
    rows = dataset.table().to_arrow()  # noqa: F841
    found = duckdb.sql("SELECT id, image FROM rows WHERE id % 10 = 7 ORDER BY id DESC").to_arrow_table()
    assert found["image"].to_pylist() == [name(n) for n in (37, 27, 17, 7)]
    assert wd.read_many(dataset.as_refs(found)["image"]) == [image_bytes(n) for n in (37, 27, 17, 7)]
    assert dataset.table().filter("image LIKE 'deep/%' AND id < 3").to_arrow()["image"][0].path == name(1)
    assert dataset.table().duckdb().aggregate("count(*)").fetchall() == [(COUNT,)]
    assert dataset.table().pandas()["image"].tolist() == [name(n) for n in range(COUNT)]
    assert dataset.table().polars()["image"].to_list() == [name(n) for n in range(COUNT)]
    assert dataset.table().raw().to_arrow()["image"].type == pa.string()


def _read_in_worker(ref: wd.ImageRef) -> tuple[bytes, str]:
    return ref.read_bytes(), repr(ref)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_references_can_be_pickled_to_workers(directory: Path, method: str) -> None:
    dataset = publish(directory, [name(n) for n in range(COUNT)])
    column = dataset.table().to_arrow()["image"]
    refs = [column[3], column[4].as_py()]
    with multiprocessing.get_context(method).Pool(1) as pool:
        answers = pool.map(_read_in_worker, refs)
    assert answers == [(image_bytes(n), f"ImageRef({name(n)!r}, artifact='raw_images')") for n in (3, 4)]


@pytest.mark.s3
def test_references_open_over_s3_in_a_new_process(
    directory: Path, s3_server: S3Endpoint, s3_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in s3_server.environ().items():
        monkeypatch.setenv(variable, value)
    dataset = publish(directory, [name(n) for n in range(COUNT)], store=s3_url)
    refs = dataset.table().head(2)["image"].to_pylist()
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert [data for data, _ in pool.map(_read_in_worker, refs)] == [image_bytes(0), image_bytes(1)]
    assert "secret" not in str(pickle.dumps(refs)).lower()
    assert s3_server.secret_access_key.encode() not in pickle.dumps(refs)
    files = publish(directory, [name(n) for n in range(COUNT)], store=s3_url, kind="files")
    assert "X-Amz-Signature" in files.artifact().signed_url(name(5), 60)


def test_references_by_byte_location(directory: Path) -> None:
    packed = publish(directory, [name(n) for n in range(COUNT)], shard_bytes=3000)
    members = {member.path: member for member in packed.artifact().members()}
    wanted = [members[name(n)] for n in (7, 30, 12)]
    places = [{"shard": m.shard, "offset": m.offset, "length": m.size_bytes, "xxh3": m.xxh3} for m in wanted]
    kind = pa.struct([("shard", pa.int32()), ("offset", pa.int64()), ("length", pa.int64()), ("xxh3", pa.uint64())])
    table = pa.table({"image": pa.array([*places, None], kind)})
    builder = wd.DatasetBuilder("acme/direct").add_table("main", table)
    builder.add_artifact("raw", directory, shard_bytes=3000).bind("main", "image", "raw", "image").publish()
    column = wd.dataset("acme/direct").table().to_arrow()["image"]
    assert wd.read_many(column) == [image_bytes(7), image_bytes(30), image_bytes(12), None]
    assert column[1].as_pil().getpixel((0, 0)) == (30, 30, 30)
    beyond = pa.table({"image": pa.array([{**places[0], "length": 10**9}], kind)})
    broken = wd.DatasetBuilder("acme/direct").add_table("main", beyond)
    with pytest.raises(InvalidSourceError, match=r"row 0 .*shard 0 are not in artifact 'raw'"):
        broken.add_artifact("raw", directory, shard_bytes=3000).bind("main", "image", "raw").publish()


def test_local_path_has_the_content(directory: Path) -> None:
    for how in ({}, {"kind": "files"}):
        ref = publish(directory, [name(3)], **how).table().to_arrow()["image"][0]
        path = ref.local_path()
        assert path.read_bytes() == image_bytes(3)
        assert ref.local_path() == path
    publish(directory, [name(3)])
    remote = wd.dataset("acme/pets", mode="remote").table().to_arrow()["image"][0]
    with pytest.raises(UnsupportedError, match="writes nothing to disk"):
        remote.local_path()


def test_existing_tar_files_are_published_unchanged(directory: Path, tmp_path: Path) -> None:
    import tarfile

    for part in range(2):
        with tarfile.open(tmp_path / f"{part}.tar", "w") as archive:
            for number in range(part, COUNT, 2):
                archive.add(directory / name(number), f"./{number:06d}.png")
    paths = [f"{n:06d}.png" for n in range(COUNT)]
    builder = wd.DatasetBuilder("acme/wds").add_table("main", pets(paths))
    builder.add_artifact("raw", str(tmp_path / "*.tar"), kind="webdataset_shards").bind("main", "image", "raw", "image")
    plan = builder.plan()
    builder.publish()
    dataset = wd.dataset("acme/wds")
    assert {file.path for file in plan.files if file.path.suffix == ".tar"} == {tmp_path / "0.tar", tmp_path / "1.tar"}
    assert wd.read_many(dataset.table().to_arrow()["image"]) == [image_bytes(n) for n in range(COUNT)]


def test_publishing_the_same_files_again_changes_nothing(directory: Path) -> None:
    paths = [name(n) for n in range(COUNT)]
    first = publish(directory, paths)
    for path in directory.rglob("*.png"):
        path.write_bytes(path.read_bytes())
        path.chmod(0o600)
    builder = wd.DatasetBuilder("acme/pets").add_table("main", pets(paths)).add_artifact("raw_images", directory)
    again = builder.bind("main", "image", "raw_images", "image").publish()
    assert (again.version, again.changed, again.uploaded_files) == (first.version, False, 0)
    assert wd.verify("acme/pets").problems == ()
    info = first.info()
    assert [(a.name, a.kind, a.members, a.shards) for a in info.artifacts] == [("raw_images", "tar_shards", COUNT, 1)]
    assert [(b.table, b.column, b.artifact, b.ref_type) for b in info.bindings] == [
        ("main", "image", "raw_images", "image")
    ]


def test_an_append_keeps_the_images(directory: Path) -> None:
    publish(directory, [name(0)])
    wd.DatasetBuilder("acme/pets").append_table("main", pets([name(9)])).publish()
    column = wd.dataset("acme/pets").table().to_arrow()["image"]
    assert wd.read_many(column) == [image_bytes(0), image_bytes(9)]


def test_dangling_references_are_not_published(directory: Path) -> None:
    with pytest.raises(InvalidSourceError, match=r"row 1 .*'nope.png' is not in artifact 'raw_images'") as missing:
        publish(directory, [name(0), "nope.png"])
    assert "0000.png" in (missing.value.hint or "")
    publish(directory, [name(0)])
    with pytest.raises(InvalidSourceError, match=r"row 0 .*'nope.png' is not in artifact 'raw_images'"):
        wd.DatasetBuilder("acme/pets").append_table("main", pets(["nope.png"])).publish()
    assert wd.dataset("acme/pets").table().count() == 1


def test_wrong_names_and_kinds_are_refused(directory: Path) -> None:
    def builder() -> wd.DatasetBuilder:
        return wd.DatasetBuilder("acme/pets").add_table("main", pets([name(0)])).add_artifact("raw", directory)

    with pytest.raises(BadInputError, match="table 'mian', which is not part of this publish"):
        builder().bind("mian", "image", "raw").publish()
    with pytest.raises(BadInputError, match="artifact 'raww'"):
        builder().bind("main", "image", "raww").publish()
    with pytest.raises(ColumnNotFoundError, match="no column 'imag'"):
        builder().bind("main", "imag", "raw").publish()
    with pytest.raises(SchemaMismatchError, match="'id' is int64"):
        builder().bind("main", "id", "raw").publish()
    with pytest.raises(BadInputError, match="ref_type='picture'"):
        builder().bind("main", "image", "raw", ref_type="picture")
    with pytest.raises(BadInputError, match="already bound"):
        builder().bind("main", "image", "raw").bind("main", "image", "raw")
    with pytest.raises(BadInputError, match="added twice"):
        builder().add_artifact("raw", directory)
    with pytest.raises(BadInputError, match="kind='zip'"):
        builder().add_artifact("more", directory, kind="zip")
    with pytest.raises(BadInputError, match="cannot be compressed"):
        builder().add_artifact("more", directory, kind="files", compression="zstd")
    with pytest.raises(BadInputError, match="valid name for artifact"):
        builder().add_artifact("../x", directory)
    with pytest.raises(BadInputError, match="replace=True does not mix with append_table"):
        wd.DatasetBuilder("acme/pets").append_table("main", pets([name(0)])).publish(replace=True)
    dataset = publish(directory, [name(0)])
    with pytest.raises(NotFoundError, match="no artifact 'raw_image'") as near:
        dataset.artifact("raw_image")
    assert near.value.hint == "Did you mean raw_images?"
    with pytest.raises(ObjectNotFoundError, match=r"no member 'deep/0003\.pgn'"):
        dataset.artifact().open("deep/0003.pgn")
