"""If these fail, a publish acknowledges data that no reader can read back, or a repair leaves damage behind."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import warpdata as wd
from tests.faults.scenes import link, memory
from warpdata.datasets import open_dataset
from warpdata.errors import BadInputError, CorruptError
from warpdata.limits import SINGLE_PUT_BYTES
from warpdata.primitives.hashing import Blob, blob_key, sha256_hex
from warpdata.publish import Published
from warpdata.repository.catalog import parse_address
from warpdata.session import Session, connect
from warpdata.settings import load_settings
from warpdata.storage import Writer, verify_blob
from warpdata.testing import S3Endpoint

SMALL = {f"{n}.bin": Random(n).randbytes(3000 + n) for n in range(3)}
LARGE = {"large.bin": Random(9).randbytes(SINGLE_PUT_BYTES + 70_000)}

Damage = Callable[[bytes], bytes | None]
DAMAGES: dict[str, Damage] = {
    "truncated": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
    "longer": lambda data: data + b"tail",
    "flipped": lambda data: data[:100] + bytes([data[100] ^ 1]) + data[101:],
    "missing": lambda data: None,
}


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.s3)])
def session(request: pytest.FixtureRequest, tmp_path: Path) -> Session:
    if request.param == "local":
        return connect((tmp_path / "store").as_uri(), load_settings())
    server: S3Endpoint = request.getfixturevalue("s3_server")
    return connect(request.getfixturevalue("s3_url"), server.settings(), mode="remote")


def publish(session: Session, files: dict[str, bytes], *, repair: bool = False) -> Published:
    return wd.DatasetBuilder("a/b", session).add_artifact("raw", dict(files), "files").publish(repair=repair)


def damage(writer: Writer, data: bytes, change: Damage) -> None:
    key, changed = blob_key(sha256_hex(data)), change(data)
    if changed is None:
        writer.delete(key)
    else:
        writer.replace(key, changed)


def problems(writer: Writer, files: dict[str, bytes]) -> list[object]:
    found = [verify_blob(writer, Blob(sha256_hex(data), len(data))) for data in files.values()]
    return [problem for problem in found if problem is not None]


@pytest.mark.parametrize(
    ("files", "kind"), [*((SMALL, kind) for kind in DAMAGES), (LARGE, "truncated"), (LARGE, "flipped")]
)
def test_repair_mends_every_kind_of_damage(session: Session, files: dict[str, bytes], kind: str) -> None:
    publish(session, files)
    for data in files.values():
        damage(session.writer, data, DAMAGES[kind])
    assert len(problems(session.writer, files)) == len(files)
    publish(session, files, repair=True)
    assert problems(session.writer, files) == []


@pytest.mark.parametrize("kind", ["truncated", "empty", "longer", "missing"])
def test_a_publish_never_acknowledges_a_blob_of_another_size(session: Session, kind: str) -> None:
    """All blobs of the sample are damaged, so the uploads meet objects that they do not know of."""
    for files in (SMALL, LARGE) if kind == "longer" else (SMALL,):
        publish(session, files)
        for data in files.values():
            damage(session.writer, data, DAMAGES[kind])
        publish(session, files)
        assert problems(session.writer, files) == []


def test_a_blob_that_an_upload_meets_is_read_back(session: Session) -> None:
    """The blob has the right size and wrong bytes. The publish did not know of it, because its sample was empty."""
    files = {f"{n:02}.bin": Random(n).randbytes(2000 + n) for n in range(40)}
    publish(session, files)
    flipped = {blob_key(sha256_hex(files[name])) for name in ("09.bin", "11.bin")}
    for info in list(session.writer.list_objects("blobs")):
        data = session.writer.read(info.key).data
        damage(session.writer, data, DAMAGES["flipped" if info.key in flipped else "missing"])
    publish(session, files)
    assert problems(session.writer, files) == []


def _replaced_by(content: bytes | None, _: bytes) -> bytes | None:
    return content


@given(
    damaged=st.dictionaries(st.sampled_from(sorted(SMALL)), st.none() | st.binary(max_size=40) | st.just(b"same size")),
    repair=st.booleans(),
)
def test_after_any_damage_a_publish_leaves_the_right_sizes_and_a_repair_the_right_bytes(
    damaged: dict[str, bytes | None], repair: bool
) -> None:
    session = link(memory("any damage"))
    publish(session, SMALL)
    for name, content in damaged.items():
        wrong = bytes(len(SMALL[name])) if content == b"same size" else content
        damage(session.writer, SMALL[name], partial(_replaced_by, wrong))
    publish(session, SMALL, repair=repair)
    sizes = [session.writer.stat(blob_key(sha256_hex(data))).size_bytes for data in SMALL.values()]
    assert sizes == [len(data) for data in SMALL.values()]
    if repair:
        assert problems(session.writer, SMALL) == []
    else:
        publish(session, SMALL, repair=True)


@pytest.mark.s3
@pytest.mark.parametrize("kind", DAMAGES)
def test_verify_restores_blobs_from_the_cache(s3_server: S3Endpoint, s3_url: str, kind: str) -> None:
    """The shard list has pages, which the metadata cache holds. One blob was never cached, and cannot be restored."""
    session = connect(s3_url, s3_server.settings(), mode="auto")
    files = {f"{n:02}.bin": Random(n).randbytes(2000 + n) for n in range(20)}
    publish(session, files)
    dataset = open_dataset(session, parse_address("a/b"))
    dataset.warm()
    assert wd.verify(dataset, repair=True).repaired == ()
    blobs = sorted(set(dataset.blobs()))
    for blob in blobs:
        damage(session.writer, session.writer.read(blob_key(blob.hash)).data, DAMAGES[kind])
    assert session.cache is not None
    session.cache.remove(sha256_hex(files["07.bin"]))
    assert len(wd.verify(dataset).problems) >= len(blobs)
    result = wd.verify(dataset, repair=True)
    assert set(result.repaired) == {blob.hash for blob in blobs} - {sha256_hex(files["07.bin"])}
    assert sha256_hex(files["07.bin"]) in result.problems[0]
    assert len(problems(session.writer, files)) == 1
    publish(session, files, repair=True)
    assert wd.verify(dataset).problems == ()


def test_verify_reports_a_blob_that_ends_early_and_goes_on(session: Session) -> None:
    publish(session, SMALL)
    dataset = open_dataset(session, parse_address("a/b"))
    truncated, flipped, _ = SMALL.values()
    damage(session.writer, truncated, DAMAGES["truncated"])
    damage(session.writer, flipped, DAMAGES["flipped"])
    found = wd.verify(dataset)
    assert {sha256_hex(data) for data in (truncated, flipped)} <= {
        word for problem in found.problems for word in problem.split()
    }
    with pytest.raises(CorruptError):
        dataset.artifact("raw").read("0.bin")


def mirrored(tmp_path: Path) -> wd.Dataset:
    """Publish rows in many shards and files, copy both to `mirror`, and return the dataset of the first store."""
    store = f"{tmp_path}/store"
    for number in range(20):  # enough shards for a page
        pq.write_table(pa.table({"n": [number]}), tmp_path / f"{number:02}.parquet")
    builder = wd.DatasetBuilder("a/b", store).add_table("main", sorted(tmp_path.glob("*.parquet")))
    builder.add_artifact("raw", dict(SMALL), "files").publish()
    wd.copy("a/b", f"{tmp_path}/mirror", store=store, history=True)
    return wd.dataset("a/b", store=store)


@pytest.mark.parametrize("kind", DAMAGES)
def test_another_store_repairs_what_verify_finds(tmp_path: Path, kind: str) -> None:
    dataset = mirrored(tmp_path)
    assert dataset.manifest.tables["main"].shards.pages
    blobs = list(dataset.blobs())
    for blob in blobs:
        path = tmp_path / "store" / blob_key(blob.hash)
        changed = DAMAGES[kind](path.read_bytes())
        path.unlink()
        if changed is not None:
            path.write_bytes(changed)
    assert wd.verify(dataset, repair=True).problems, "nothing on this machine has the bytes"
    lost = sorted(SMALL)[0]
    (tmp_path / "mirror" / blob_key(sha256_hex(SMALL[lost]))).unlink()
    repaired = wd.verify(dataset, repair=True, source=f"{tmp_path}/mirror")
    assert len(repaired.repaired) == len(set(blobs)) - 1
    assert any(sha256_hex(SMALL[lost]) in problem for problem in repaired.problems)
    wd.DatasetBuilder("a/b", f"{tmp_path}/mirror").add_artifact("raw", dict(SMALL), "files").publish(keep=True)
    assert not wd.verify(dataset, repair=True, source=f"{tmp_path}/mirror").problems
    assert wd.dataset("a/b", store=f"{tmp_path}/store").table().to_arrow()["n"].to_pylist() == list(range(20))


def test_a_wrong_mirror_changes_nothing(tmp_path: Path) -> None:
    dataset = mirrored(tmp_path)
    blob = sorted(set(dataset.blobs()))[0]
    for store, content in (("store", b"one"), ("mirror", b"two")):
        path = tmp_path / store / blob_key(blob.hash)
        path.unlink()
        path.write_bytes(content)
    found = wd.verify(dataset, repair=True, source=f"{tmp_path}/mirror")
    assert (found.repaired, len(found.problems) > 0) == ((), True)
    assert (tmp_path / "store" / blob_key(blob.hash)).read_bytes() == b"one"
    with pytest.raises(BadInputError, match="used only to repair"):
        wd.verify(dataset, source=f"{tmp_path}/mirror")


@pytest.mark.parametrize("kind", DAMAGES)
@pytest.mark.parametrize("record", ["manifests", "commits"])
def test_a_copy_from_another_store_restores_records(tmp_path: Path, kind: str, record: str) -> None:
    dataset = mirrored(tmp_path)
    for path in (tmp_path / "store" / "datasets" / "a" / "b" / record).iterdir():
        changed = DAMAGES[kind](path.read_bytes())
        path.unlink()
        if changed is not None:
            path.write_bytes(changed)
    wd.copy("a/b", f"{tmp_path}/store", store=f"{tmp_path}/mirror", history=True)
    assert wd.dataset("a/b", store=f"{tmp_path}/store").version == dataset.version
    assert len(wd.dataset("a/b", store=f"{tmp_path}/store").history()) == 1
