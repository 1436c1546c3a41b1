"""If this fails, code that works on a local store does not work on S3."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import warpdata as wd
from warpdata.limits import SINGLE_PUT_BYTES
from warpdata.primitives.hashing import blob_key
from warpdata.repository.manifest import iter_shards
from warpdata.testing import S3Endpoint

pytestmark = pytest.mark.s3


@pytest.fixture
def on_s3(s3_server: S3Endpoint, s3_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in s3_server.environ().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("WARP_STORE", s3_url)
    return s3_url


def test_publish_read_and_append(on_s3: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for number in range(4):
        table = pa.table({"id": np.arange(number * 5000, (number + 1) * 5000), "fare": rng.gamma(2, 8, 5000)})
        pq.write_table(table, tmp_path / f"{number}.parquet", row_group_size=1000)
    first = wd.DatasetBuilder("acme/trips").add_table("main", str(tmp_path / "*.parquet")).publish("load", label="v1")
    table = wd.dataset("acme/trips").table()
    assert table.count() == 20_000
    assert table.head(3)["id"].to_pylist() == [0, 1, 2]
    kept = table.select(["id", "fare"]).filter("fare > 40")
    expected = table.duckdb().filter("fare > 40").order("id").to_arrow_table()
    assert kept.to_arrow().equals(expected)
    seen = [n for rank in range(7) for b in table.batches(999, ["id"], (rank, 7)) for n in b["id"].to_pylist()]
    assert seen == list(range(20_000))
    wd.DatasetBuilder("acme/trips").append_table("main", {"id": [20_000], "fare": [1.0]}).publish("more")
    assert wd.dataset("acme/trips").table().count() == 20_001
    assert wd.dataset("acme/trips@v1").version == first.version
    (change,) = wd.diff("acme/trips@v1", "acme/trips").changes
    assert (change.rows_added, change.rows_removed) == (1, 0)
    assert wd.list_datasets("acme") == wd.list_datasets("acme/") == wd.list_datasets() == ["acme/trips"]
    assert [entry.message for entry in wd.dataset("acme/trips").history()] == ["more", "load"]
    assert wd.verify("acme/trips").problems == ()


def test_large_blobs_use_multipart_and_have_urls(on_s3: str, tmp_path: Path) -> None:
    noise = np.random.default_rng(0).random(3 * SINGLE_PUT_BYTES // 8)
    pq.write_table(pa.table({"x": noise}), tmp_path / "big.parquet", compression=None)
    wd.DatasetBuilder("acme/big").add_table("main", tmp_path / "big.parquet").publish()
    dataset = wd.dataset("acme/big")
    session = wd.connect()
    (shard,) = iter_shards(dataset.manifest.tables["main"].shards, session.catalog.load_page)
    assert shard.byte_size > 2 * SINGLE_PUT_BYTES
    assert wd.verify(dataset).problems == ()
    import urllib.request

    url = session.reader.signed_url(blob_key(shard.hash), 60)
    with urllib.request.urlopen(urllib.request.Request(url, headers={"Range": "bytes=0-3"})) as reply:  # noqa: S310
        assert reply.read() == b"PAR1"


def test_a_cached_version_opens_without_the_hint(on_s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    version = wd.DatasetBuilder("acme/pinned").add_table("main", pa.table({"n": [1]})).publish().version
    wd.dataset(f"acme/pinned@{version}")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    assert wd.dataset(f"acme/pinned@{version}").version == version
