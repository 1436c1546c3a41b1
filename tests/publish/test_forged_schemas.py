"""If this fails, a Parquet file decides where a reader connects, or becomes a column of references by its own word."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import warpdata as wd
from warpdata.datasets.ref_columns import RefType
from warpdata.errors import BadInputError
from warpdata.formats.parquet.extension_types import plain_rows
from warpdata.ingest import csv
from warpdata.kinds.tables import Table
from warpdata.primitives.hashing import blob_key, fingerprint_file
from warpdata.repository.manifest import Manifest, Shard, ShardList, TableEntry
from warpdata.session import connect

FILE = {"secret.txt": b"of another store"}


class Forged(pa.ExtensionType):  # type: ignore[misc]
    """A type that claims to be the reference type, with an address of its choice."""

    def __init__(self, storage: pa.DataType, claim: bytes) -> None:
        self.claim = claim
        super().__init__(storage, "warpdata.ref")

    def __arrow_ext_serialize__(self) -> bytes:
        return self.claim

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> Forged:
        return cls(storage, serialized)


@pytest.fixture
def requests_seen() -> Iterator[tuple[str, list[str]]]:
    """A server that notes every request for an object. Yield its address and the paths that were asked for."""
    seen: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.path)
            self.send_error(404)

        do_HEAD = do_PUT = do_GET  # noqa: N815

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/lake", seen
    server.shutdown()
    server.server_close()


@pytest.fixture
def private(tmp_path: Path) -> wd.Dataset:
    """A dataset of another store. Reading its references registers the type in this process."""
    store = f"{tmp_path}/private"
    builder = wd.DatasetBuilder("ws/secret", store).add_table("main", {"file": [*FILE]}).add_artifact("raw", dict(FILE))
    builder.bind("main", "file", "raw").publish()
    dataset = wd.dataset("ws/secret", store=store)
    assert dataset.table().to_arrow()["file"][0].as_py().read_bytes() == b"of another store"
    return dataset


def claims(private: wd.Dataset, url: str) -> list[bytes]:
    """Return forms of a claim: an address in JSON as earlier releases wrote it, and the type of this process."""
    address = {"artifact": "raw", "dataset_id": "ws/secret", "mode": "auto", "version": private.version}
    stores = [url, private.session.reader.url]
    old = [json.dumps({"address": {**address, "store": store}, "ref_type": "file"}).encode() for store in stores]
    return [*old, b"", b"\xff" * 40]


def forged_columns(claim: bytes) -> pa.Table:
    column = pa.ExtensionArray.from_storage(Forged(pa.string(), claim), pa.array([*FILE, None]))
    nested = pa.ListArray.from_arrays([0, 1, 2], column)
    struct = pa.StructArray.from_arrays([column], ["inner"])
    return pa.table({"id": [1, 2], "file": column, "nested": nested, "struct": struct})


PLAIN = pa.table(
    {
        "id": [1, 2],
        "file": [*FILE, None],
        "nested": [[*FILE], [None]],
        "struct": [{"inner": "secret.txt"}, {"inner": None}],
    }
)


def read_everything(table: Table) -> None:
    """Read a table in every way. No column may be of a type of this library, and no value a reference."""
    raw = [table.to_arrow(), table.head(1), table.take([0, 1]), *table.row_groups()]
    raw += [pa.Table.from_batches([batch]) for batch in table.batches(1)]
    raw += [table.filter("file is not null").to_arrow(), table.select(["file"]).to_arrow(limit=2)]
    for rows in raw:
        assert rows.schema.field("file").type == pa.string()
        assert not rows.schema.field("file").metadata
        assert "warpdata" not in str(rows.schema)
        assert all(value in ("secret.txt", None) for value in rows["file"].to_pylist())
    assert table.schema().field("file").type == pa.string()
    assert table.to_arrow().equals(PLAIN)
    assert table.pandas()["file"].to_list()[0] == "secret.txt"
    assert next(table.batch_dicts())["file"] == ["secret.txt", None]
    assert table.duckdb().fetchall()[0][1] == "secret.txt"
    assert table.filter("file = 'secret.txt'").count() == 1


@pytest.mark.parametrize("number", range(4))
def test_a_file_cannot_claim_references(
    number: int, private: wd.Dataset, requests_seen: tuple[str, list[str]], tmp_path: Path
) -> None:
    url, seen = requests_seen
    claim = claims(private, url)[number]
    pq.write_table(forged_columns(claim), tmp_path / "forged.parquet")
    (tmp_path / "plain").mkdir()
    pq.write_table(PLAIN, tmp_path / "plain" / "plain.parquet")
    store = f"{tmp_path}/store"
    wd.DatasetBuilder("ws/a", store).add_table("main", tmp_path / "forged.parquet").publish()
    wd.DatasetBuilder("ws/b", store).add_table("main", tmp_path / "forged.parquet", rewrite=True).publish()
    csv("ws/c", tmp_path / "forged.parquet", store=store).publish()
    flat = forged_columns(claim).select(["id", "file"])
    wd.DatasetBuilder("ws/d", store).add_table("main", flat.to_reader(1)).publish()
    mixed = [tmp_path / "plain" / "plain.parquet", tmp_path / "forged.parquet"]
    wd.DatasetBuilder("ws/e", store).add_table("main", mixed).publish()
    assert wd.dataset("ws/d", store=store).table().to_arrow().equals(PLAIN.select(["id", "file"]))
    for name in "abc":
        dataset = wd.dataset(f"ws/{name}", store=store)
        assert dataset.manifest.bindings == ()
        read_everything(dataset.table())
        list(dataset.stream(shuffle=False))
    assert wd.dataset("ws/e", store=store).table().count() == 4
    for path in Path(store).rglob("*"):
        if path.is_file() and path.read_bytes().endswith(b"PAR1"):
            schema = pq.read_schema(path)
            assert "warpdata" not in str(schema), "claims are not stored"
    assert seen == []


@pytest.mark.parametrize("number", range(4))
def test_a_forged_blob_of_a_store_is_read_as_plain_values(
    number: int, private: wd.Dataset, requests_seen: tuple[str, list[str]], tmp_path: Path
) -> None:
    """Write the manifest by hand, as an attacker with access to the store would."""
    url, seen = requests_seen
    path = tmp_path / "forged.parquet"
    pq.write_table(forged_columns(claims(private, url)[number]), path)
    store = f"{tmp_path}/store"
    wd.DatasetBuilder("ws/a", store).add_table("main", PLAIN).publish()
    session = connect(store)
    fingerprint = fingerprint_file(path)
    session.writer.create_file(blob_key(fingerprint.blob.hash), path, fingerprint)
    publish_by_hand(session, Shard(fingerprint.blob.hash, fingerprint.blob.byte_size, 2))
    dataset = wd.dataset("ws/forged", store=store)
    (shard,) = dataset.manifest.tables["main"].shards.shards
    opened = dataset.table().shards.open(shard)
    assert "warpdata" not in str(opened.schema)
    for rows in (opened.decode(0, PLAIN.column_names), opened.decode_prefix(0, PLAIN.column_names, 1)):
        assert "warpdata" not in str(rows.schema), "the columns are plain before the table casts them"
    read_everything(dataset.table())
    list(dataset.stream(shuffle=False))
    again = wd.DatasetBuilder("ws/again", store).add_table("main", dataset.table().to_arrow()).publish()
    assert wd.dataset(f"ws/again@{again.version}", store=store).artifacts == ()
    assert seen == []


def publish_by_hand(session: wd.Session, shard: Shard) -> None:
    from warpdata.repository.catalog import Transaction, commit

    manifest = Manifest("ws/forged", tables={"main": TableEntry(ShardList((shard,)))})
    txn = Transaction("ws/forged", "main", session.new_id(), "replace", "mallory", "", session.timestamp())
    commit(session.writer, txn, lambda _: manifest, session.pause)


def test_a_type_from_a_file_has_no_address(private: wd.Dataset, tmp_path: Path) -> None:
    """Files that other code reads give a type without an address, which opens nothing."""
    claim = claims(private, "http://127.0.0.1:9")[1]
    pq.write_table(forged_columns(claim), tmp_path / "forged.parquet")
    column = pq.read_table(tmp_path / "forged.parquet")["file"]
    assert isinstance(column.type, RefType)
    assert column.type.address is None
    assert column.to_pylist() == ["secret.txt", None]
    with pytest.raises(BadInputError, match="comes from a file or another process"):
        column[0].read_bytes()
    assert plain_rows(pa.table({"file": column})).schema.field("file").type == pa.string()


def test_rows_that_came_by_a_file_become_references_again(private: wd.Dataset, tmp_path: Path) -> None:
    """The dataset says what a column is, whatever the file claims."""
    pq.write_table(private.table().to_arrow(), tmp_path / "rows.parquet")
    pq.write_table(forged_columns(b"of another process").select(["file"]).slice(0, 1), tmp_path / "forged.parquet")
    for name in ("rows", "forged"):
        rows = private.as_refs(pq.read_table(tmp_path / f"{name}.parquet"))
        assert rows["file"][0].as_py().read_bytes() == b"of another store"


def test_a_token_of_this_process_is_unguessable_and_contains_no_location(private: wd.Dataset) -> None:
    kind = private.table().schema().field("file").type
    token = kind.__arrow_ext_serialize__()
    assert len(token) == 32
    assert int(token, 16) >= 0
    sent = pa.RecordBatchReader.from_stream(private.table().to_arrow()).read_all()
    assert sent["file"][0].as_py().read_bytes() == b"of another store", "within this process, the type is known"
