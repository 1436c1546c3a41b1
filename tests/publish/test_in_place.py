"""If this fails, files that were published in place are copied, read without permission, or read after they changed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import warpdata as wd
from warpdata.datasets import open_dataset
from warpdata.errors import BadInputError, CorruptError, DeniedError, InvalidSourceError, SchemaMismatchError
from warpdata.repository.catalog import parse_address
from warpdata.session import Session, connect
from warpdata.settings import load_settings
from warpdata.storage import check_external_url, open_store
from warpdata.testing import S3Endpoint


def write(directory: Path, name: str, *numbers: int) -> Path:
    directory.mkdir(exist_ok=True)
    path = directory / name
    pq.write_table(pa.table({"n": numbers, "label": [f"row {n}" for n in numbers]}), path, row_group_size=2)
    return path


def allowing(*prefixes: str) -> Session:
    return connect(settings=replace(load_settings(), external_prefixes=prefixes))


def opened(session: Session, address: str = "a/b") -> Any:
    return open_dataset(session, parse_address(address))


def numbers(session: Session, address: str = "a/b") -> list[int]:
    found: list[int] = opened(session, address).table().to_arrow()["n"].to_pylist()
    return found


@pytest.fixture
def files(tmp_path: Path) -> Path:
    directory = tmp_path / "outside files"
    write(directory, "1.parquet", 0, 1, 2)
    write(directory, "2.parquet", 3, 4)
    return directory


def test_local_files_stay_where_they_are(files: Path) -> None:
    session = allowing(files.as_uri())
    done = wd.DatasetBuilder("a/b", session).add_table("main", f"{files}/*.parquet", copy=False).publish()
    assert done.uploaded_files == 0
    assert numbers(session) == [0, 1, 2, 3, 4]
    table = opened(session).table()
    assert [shard.external.uri for shard in table.entry.shards.shards] == [
        (files / name).as_uri() for name in ("1.parquet", "2.parquet")
    ]
    assert table.filter("n > 2").count() == 2
    assert table.take([4, 0])["n"].to_pylist() == [4, 0]
    assert sorted(row for batch in opened(session).stream(batch_size=2) for row in batch["n"].tolist()) == [*range(5)]
    assert wd.sql("SELECT sum(n) AS n FROM 'a/b'", settings=session.settings)["n"].to_pylist() == [10]
    checked = wd.verify(opened(session))
    assert (checked.blobs, checked.problems) == (2, ())


def test_edits_merges_and_compactions_leave_external_files_alone(files: Path) -> None:
    session = allowing(files.as_uri())
    wd.DatasetBuilder("a/b", session).add_table("main", files, copy=False).publish()
    before = {path: path.read_bytes() for path in files.iterdir()}
    with opened(session).edit() as edit:
        edit.delete("main", "n = 1")
        edit.update("main", "n = 3", {"label": "new"})
        edit.add_column("main", "twice", wd.expr("n * 2"))
        edit.append("main", {"n": [9], "label": ["more"], "twice": [18]})
    write(files, "3.parquet", 7)
    wd.DatasetBuilder("a/c", session).append_table("main", files / "3.parquet", copy=False).publish()
    opened(session).compact(max_deleted=0)
    rows = opened(session).table().to_arrow().to_pylist()
    assert [(row["n"], row["label"], row["twice"]) for row in rows] == [
        *[(0, "row 0", 0), (2, "row 2", 4), (4, "row 4", 8), (3, "new", 6), (9, "more", 18)]
    ]
    assert opened(session).table().sample_ids().tolist() == [0, 2, 4, 3, 5]
    assert {path: path.read_bytes() for path in before} == before
    wd.gc(session, keep="last 1", dry_run=False)
    assert {path: path.read_bytes() for path in before} == before


def test_a_reader_allows_the_place_or_refuses(files: Path) -> None:
    wd.DatasetBuilder("a/b").add_table("main", files, copy=False).publish()
    for prefixes in ((), (f"{files.as_uri()}-more",), (files.as_uri()[:-1],), ("s3://bucket",)):
        with pytest.raises(DeniedError, match="do not allow it"):
            numbers(allowing(*prefixes))
    for prefix in (files.parent.as_uri(), f"{files.as_uri()}/"):
        assert numbers(allowing(prefix)) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("change", ["size", "gone", "bytes"])
def test_a_file_that_changed_is_corrupt(files: Path, change: str) -> None:
    session = allowing(files.as_uri())
    wd.DatasetBuilder("a/b", session).add_table("main", files, copy=False).publish()
    victim = files / "2.parquet"
    if change == "gone":
        victim.unlink()
    elif change == "size":
        write(files, "2.parquet", 3, 4, 5)
    else:
        data = bytearray(victim.read_bytes())
        data[-20] ^= 1
        victim.write_bytes(data)
    with pytest.raises(CorruptError):
        numbers(session)
    (problem,) = wd.verify(opened(session)).problems
    assert problem


@pytest.mark.parametrize(
    ("source", "error", "found"),
    [
        (pa.table({"n": [1]}), InvalidSourceError, "Table"),
        ("missing/*.parquet", InvalidSourceError, "missing"),
        ([], InvalidSourceError, "main"),
        ("http://user:secret@host/x.parquet", BadInputError, "password"),
        ("ftp://host/x.parquet", BadInputError, "scheme"),
    ],
    ids=["rows", "no match", "nothing", "secret", "scheme"],
)
def test_bad_sources_are_refused(source: Any, error: type[Exception], found: str) -> None:
    with pytest.raises(error, match=found) as caught:
        wd.DatasetBuilder("a/b").add_table("main", source, copy=False).publish()
    assert "secret@" not in str(caught.value)


def test_files_of_other_columns_are_refused(files: Path) -> None:
    pq.write_table(pa.table({"other": [1]}), files / "3.parquet")
    with pytest.raises(SchemaMismatchError, match=r"3\.parquet"):
        wd.DatasetBuilder("a/b").add_table("main", files, copy=False).publish()


@pytest.mark.parametrize(
    "url",
    [
        "file:///allowed/../secret/x.parquet",
        "file:///allowed/%2e%2e/secret/x.parquet",
        "s3://bucket//x.parquet",
        "s3://bucket/x.parquet?versionId=1",
        "https://user@host/x.parquet",
        "relative/x.parquet",
        "s3://bucket",
    ],
)
def test_urls_that_may_leave_their_place_are_refused(url: str) -> None:
    with pytest.raises(BadInputError):
        check_external_url(url)


def test_files_of_a_bucket_stay_there(files: Path, s3_server: S3Endpoint, s3_url: str) -> None:
    settings = replace(s3_server.settings(), external_prefixes=(f"{s3_url}/raw",))
    session = connect(s3_url + "/lake", settings)
    bucket = open_store(f"{s3_url}/raw", settings)
    for path in files.iterdir():
        bucket.create(path.name, path.read_bytes())
    bucket.create("deeper/9.parquet", b"not listed")
    done = wd.DatasetBuilder("a/b", session).add_table("main", f"{s3_url}/raw/*.parquet", copy=False).publish()
    assert done.uploaded_files == 0
    assert numbers(session) == [0, 1, 2, 3, 4]
    assert opened(session).table().entry.shards.shards[0].external.etag
    assert wd.verify(opened(session)).problems == ()
    data = bytearray((files / "1.parquet").read_bytes())
    data[4] ^= 1  # the same size, and the same footer
    bucket.replace("1.parquet", bytes(data))
    with pytest.raises(CorruptError, match="was replaced"):
        numbers(connect(s3_url + "/lake", settings))
    assert len(wd.verify(opened(session)).problems) == 1
