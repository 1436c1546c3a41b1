"""If these fail, an S3 bucket is not a store: versions may be lost or won twice where teams share data."""

from __future__ import annotations

import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import boto3
import pytest

from warpdata.errors import BadInputError, InvalidSourceError
from warpdata.limits import SINGLE_PUT_BYTES
from warpdata.primitives.hashing import fingerprint_file
from warpdata.storage import Writer, open_store
from warpdata.testing import S3Endpoint, StoreSuite

pytestmark = pytest.mark.s3


@pytest.fixture
def store(s3_server: S3Endpoint, s3_url: str) -> Writer:
    return open_store(s3_url, s3_server.settings())


class TestS3Store(StoreSuite):
    @pytest.fixture
    def store(self, s3_server: S3Endpoint, s3_url: str) -> Writer:
        return open_store(s3_url, s3_server.settings())


def test_listings_longer_than_a_page_are_complete(store: Writer) -> None:
    keys = [f"many/{number:05}" for number in range(1100)]
    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(lambda key: store.create(key, b""), keys))
    assert [info.key for info in store.list_objects("many")] == keys


def test_a_root_sees_nothing_of_its_neighbours(s3_server: S3Endpoint, s3_url: str) -> None:
    inner, outer = (open_store(s3_url + suffix, s3_server.settings()) for suffix in ("/in", ""))
    beside = open_store(s3_url + "/in-between", s3_server.settings())
    inner.create("k", b"inner")
    beside.create("k", b"beside")
    assert [info.key for info in inner.list_objects("")] == ["k"]
    assert inner.read("k").data == b"inner"
    assert [info.key for info in outer.list_objects("")] == ["in-between/k", "in/k"]
    assert outer.list_folders("") == ["in", "in-between"]


def test_a_given_up_upload_is_ended_on_the_server(store: Writer, s3_server: S3Endpoint, tmp_path: Path) -> None:
    """The provider bills parts of an unfinished upload until it is aborted."""
    source = tmp_path / "source.bin"
    source.write_bytes(b"x" * (SINGLE_PUT_BYTES * 2))
    fingerprint = fingerprint_file(source)
    source.write_bytes(b"x" * (SINGLE_PUT_BYTES * 2 - 1) + b"y")
    with pytest.raises(InvalidSourceError):
        store.create_file("blobs/x", source, fingerprint)
    prefix = store.url.removeprefix(f"s3://{s3_server.bucket}/")
    assert _open_uploads(s3_server, prefix) == []
    _client(s3_server).create_multipart_upload(Bucket=s3_server.bucket, Key=f"{prefix}/left open")
    assert _open_uploads(s3_server, prefix) == [f"{prefix}/left open"], "the server shows what is open"


def test_a_signed_url_reads_one_object_without_credentials(store: Writer) -> None:
    store.create("a/with space", b"public for a minute")
    url = store.signed_url("a/with space", 60)
    with urllib.request.urlopen(url, timeout=10) as reply:  # noqa: S310  (our own server's)
        assert reply.read() == b"public for a minute"
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(url.replace("with%20space", "without"), timeout=10)  # noqa: S310
    with caught.value as refusal:
        assert refusal.code == 403


@pytest.mark.parametrize("expires_s", [0, -1, 604_801, 10**12, 1.5, "60", True, None])
def test_a_url_that_the_server_would_refuse_is_not_signed(store: Writer, tmp_path: Path, expires_s: Any) -> None:
    from warpdata.storage import LocalStore

    for each in (store, LocalStore(tmp_path)):
        with pytest.raises(BadInputError, match="604800"):
            each.signed_url("k", expires_s)


def test_a_url_may_be_signed_for_a_week(store: Writer) -> None:
    store.create("k", b"public for a week")
    with urllib.request.urlopen(store.signed_url("k", 604_800), timeout=10) as reply:  # noqa: S310
        assert reply.read() == b"public for a week"


PNG = b"\x89PNG\r\n\x1a\n" + bytes(100)
PARQUET = b"PAR1" + bytes(SINGLE_PUT_BYTES + 1) + b"PAR1"
TYPES = {
    "a.json": (b"{}", "application/json"),
    "blobs/image": (PNG, "image/png"),
    "blobs/page": (b'{"entries":[],"format":1,"level":0}', "application/json"),
    "blobs/html": (b"<html><script>", "application/octet-stream"),
    "blobs/empty": (b"", "application/octet-stream"),
    "blobs/tar": (bytes(257) + b"ustar\x0000" + bytes(250), "application/x-tar"),
    "blobs/table": (PARQUET, "application/vnd.apache.parquet"),
}


@pytest.mark.parametrize("key", TYPES)
def test_objects_have_a_fitting_content_type(store: Writer, s3_server: S3Endpoint, tmp_path: Path, key: str) -> None:
    data, expected = TYPES[key]
    prefix = store.url.removeprefix(f"s3://{s3_server.bucket}/")
    source = tmp_path / "source"
    source.write_bytes(data)
    if len(data) <= SINGLE_PUT_BYTES:
        store.create(f"created/{key}", data)
        store.replace(f"replaced/{key}", data)
    store.create_file(f"file/{key}", source, fingerprint_file(source))
    store.replace_file(f"mended/{key}", source, fingerprint_file(source))
    for info in store.list_objects(""):
        found = _client(s3_server).head_object(Bucket=s3_server.bucket, Key=f"{prefix}/{info.key}")
        assert found["ContentType"] == expected, info.key


def test_secrets_stay_out_of_sight(store: Writer, s3_server: S3Endpoint) -> None:
    settings = s3_server.settings()
    for shown in (store.url, repr(store), repr(settings), str(settings)):
        assert s3_server.secret_access_key not in shown


def _open_uploads(endpoint: S3Endpoint, prefix: str) -> list[str]:
    reply = _client(endpoint).list_multipart_uploads(Bucket=endpoint.bucket)
    return [upload["Key"] for upload in reply.get("Uploads", []) if upload["Key"].startswith(prefix)]


def _client(endpoint: S3Endpoint) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=endpoint.endpoint_url,
        aws_access_key_id=endpoint.access_key_id,
        aws_secret_access_key=endpoint.secret_access_key,
        region_name="us-east-1",
    )
