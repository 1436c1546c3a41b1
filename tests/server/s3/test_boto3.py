"""If this fails, tools that use boto3 see other objects, bytes or errors than S3 would give them."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from botocore.exceptions import ClientError
from urllib3 import PoolManager

import warpdata as wd
from tests.server.s3.conftest import JPEG, Gateway, large_content


@pytest.fixture(scope="module")
def client(gateway: Gateway) -> Any:
    return gateway.client()


def list_all(client: Any, **options: Any) -> tuple[list[str], list[str]]:
    """Return keys and common prefixes of all pages, which both versions of the listing agree on."""
    found = []
    for operation in ("list_objects", "list_objects_v2"):
        pages = list(client.get_paginator(operation).paginate(Bucket="acme", **options))
        keys = [one["Key"] for page in pages for one in page.get("Contents", [])]
        prefixes = [one["Prefix"] for page in pages for one in page.get("CommonPrefixes", [])]
        assert keys == sorted(keys)
        assert prefixes == sorted(prefixes)
        found.append((keys, prefixes))
    assert found[0] == found[1]
    return found[0]


def code(error: pytest.ExceptionInfo[ClientError]) -> tuple[str, int]:
    answer = error.value.response
    return answer["Error"]["Code"], answer["ResponseMetadata"]["HTTPStatusCode"]


def test_buckets_are_the_workspaces_that_the_key_may_see(gateway: Gateway, client: Any) -> None:
    assert [one["Name"] for one in client.list_buckets()["Buckets"]] == ["acme"]
    assert client.head_bucket(Bucket="acme")["ResponseMetadata"]["HTTPStatusCode"] == 200
    assert client.get_bucket_location(Bucket="acme")["LocationConstraint"] is None
    for bucket in ("rival", "none"):
        with pytest.raises(ClientError) as error:
            client.head_bucket(Bucket=bucket)
        assert code(error) == ("404", 404)
        with pytest.raises(ClientError) as error:
            client.list_objects_v2(Bucket=bucket)
        assert code(error) == ("NoSuchBucket", 404)


def test_directories_are_datasets_refs_and_artifacts(client: Any) -> None:
    assert list_all(client, Delimiter="/") == ([], ["datasets/", "packed/", "pets/"])
    assert list_all(client, Prefix="pets/", Delimiter="/") == ([], ["pets/HEAD/", "pets/main/", "pets/v1/"])
    keys, prefixes = list_all(client, Prefix="pets/v1/", Delimiter="/")
    assert prefixes == [f"pets/v1/{name}/" for name in ("images", "tables", "tasks", "yolo")]
    assert {"pets/v1/annotations.json", "pets/v1/manifest.jsonl", "pets/v1/meta.json"} <= set(keys)
    assert list_all(client, Prefix="pets/v1/im", Delimiter="/") == ([], ["pets/v1/images/"])
    assert list_all(client, Prefix="pets/v1/images/", Delimiter="/")[1] == ["pets/v1/images/cats/"]
    assert list_all(client, Prefix="pets/v1/images/cats/cat", Delimiter="t") == (
        [f"pets/v1/images/cats/cat{number}.jpg" for number in range(5)],
        [],
    )
    assert list_all(client, Prefix="pets/v1/images/", Delimiter="cat")[1] == ["pets/v1/images/cat"]
    assert list_all(client, Prefix="nothing/") == ([], [])


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_pages_of_every_size_have_all_keys_once(client: Any, size: int) -> None:
    config = {"PageSize": size}
    whole, _ = list_all(client)
    assert list_all(client, PaginationConfig=config)[0] == whole
    assert len(whole) == len(set(whole)) > 60
    for prefix, delimiter in (("", "/"), ("packed/v1/", "/"), ("packed/v1/files/", "/"), ("packed/v1/files/", "t")):
        options = {"Prefix": prefix, "Delimiter": delimiter}
        assert list_all(client, PaginationConfig=config, **options) == list_all(client, **options)


def test_a_listing_begins_behind_any_marker(client: Any) -> None:
    whole, _ = list_all(client)
    for marker in [*whole[::7], "a", "pets", "pets/", "pets/v1/imagesX", "zzz", "pets/v1/images/cats/\U0010ffff"]:
        expected = [key for key in whole if key > marker]
        second = client.list_objects_v2(Bucket="acme", StartAfter=marker)
        first = client.list_objects(Bucket="acme", Marker=marker)
        assert [one["Key"] for one in second.get("Contents", [])] == expected
        assert [one["Key"] for one in first.get("Contents", [])] == expected


def test_listed_sizes_and_etags_are_those_of_the_objects(client: Any) -> None:
    for page in client.get_paginator("list_objects_v2").paginate(Bucket="acme"):
        for one in page["Contents"]:
            head = client.head_object(Bucket="acme", Key=one["Key"])
            got = client.get_object(Bucket="acme", Key=one["Key"], ChecksumMode="ENABLED")
            body = got["Body"].read()
            assert (head["ContentLength"], head["ETag"]) == (one["Size"], one["ETag"]) == (len(body), got["ETag"])
            if len(one["ETag"]) == 66:
                assert one["ETag"].strip('"') == hashlib.sha256(body).hexdigest()


def test_files_have_the_bytes_of_their_version(client: Any) -> None:
    def read(key: str) -> bytes:
        body: bytes = client.get_object(Bucket="acme", Key=key)["Body"].read()
        return body

    assert read("pets/v1/images/cats/cat0.jpg") == JPEG + b"\0"
    assert read("pets/HEAD/images/dogs/dog 1 ü+&.jpg") == JPEG + b"dog"
    assert read("datasets/pets/images/dogs/dog 1 ü+&.jpg") == JPEG + b"dog"
    assert read("datasets/acme/pets/images/cats/cat1.jpg") == JPEG + b"\1"
    assert read("packed/v1/files/part-03/3.bin") == b"\3" * 1000
    assert read("packed/v1/files/large.bin") == large_content()
    assert read("pets/v1/images/empty.jpg") == b""
    for key in (
        "pets/HEAD/images/cats/cat0.jpg",  # removed from HEAD
        "pets/v2/images/cats/cat1.jpg",
        "pets/v1/images/cats",
        "pets/v1/images/cats/",
        "pets/v1/images/cats/../cats/cat1.jpg",
        "pets/v1/images//cats/cat1.jpg",
        "pets/v1/",
        "pets/v1",
        "nothing",
        "datasets/packed/annotations.json",
        "pets/v1/labels.json",
        "pets/~/x",
        "pets/v1/tables/none.parquet",
    ):
        with pytest.raises(ClientError) as error:
            read(key)
        assert code(error) == ("NoSuchKey", 404), key


SIZE = len(large_content())
RANGES = [
    ("bytes=0-0", range(1)),
    ("bytes=0-", range(SIZE)),
    ("bytes=5-9", range(5, 10)),
    ("bytes=-1", range(SIZE - 1, SIZE)),
    (f"bytes=-{SIZE + 5}", range(SIZE)),
    (f"bytes={SIZE - 3}-{SIZE + 100}", range(SIZE - 3, SIZE)),
    ("bytes=4194300-4194310", range(4194300, 4194311)),
    ("bytes=4194304-8388607", range(4194304, 8388608)),
]


@pytest.mark.parametrize(("header", "expected"), RANGES)
def test_a_range_is_that_part_of_the_file(client: Any, header: str, expected: range) -> None:
    got = client.get_object(Bucket="acme", Key="packed/v1/files/large.bin", Range=header)
    assert got["ResponseMetadata"]["HTTPStatusCode"] == 206
    assert got["ContentRange"] == f"bytes {expected.start}-{expected.stop - 1}/{SIZE}"
    assert got["Body"].read() == large_content()[expected.start : expected.stop]


@pytest.mark.parametrize("header", ["bytes=5-4", "bytes=a-b", "bytes=0-1,4-5", "items=0-1", "bytes=-", "bytes=--1"])
def test_a_range_that_means_nothing_is_ignored(client: Any, header: str) -> None:
    got = client.get_object(Bucket="acme", Key="packed/v1/files/large.bin", Range=header)
    assert (got["ResponseMetadata"]["HTTPStatusCode"], got["ContentLength"]) == (200, SIZE)
    got["Body"].close()


@pytest.mark.parametrize("header", [f"bytes={SIZE}-", "bytes=-0", f"bytes={10**18}-"])
def test_a_range_behind_the_end_is_refused(client: Any, header: str) -> None:
    with pytest.raises(ClientError) as error:
        client.get_object(Bucket="acme", Key="packed/v1/files/large.bin", Range=header)
    assert code(error) == ("InvalidRange", 416)


def test_conditions_are_checked(client: Any) -> None:
    key = {"Bucket": "acme", "Key": "pets/v1/images/cats/cat1.jpg"}
    head = client.head_object(**key)
    etag, modified = head["ETag"], head["LastModified"]
    assert client.get_object(**key, IfMatch=etag)["ETag"] == etag
    assert client.get_object(**key, IfUnmodifiedSince=modified)["ETag"] == etag
    for refused in ({"IfMatch": '"other"'}, {"IfUnmodifiedSince": modified.replace(year=2000)}):
        with pytest.raises(ClientError) as error:
            client.get_object(**key, **refused)
        assert code(error) == ("PreconditionFailed", 412)
    for same in ({"IfNoneMatch": etag}, {"IfNoneMatch": "*"}, {"IfModifiedSince": modified}):
        with pytest.raises(ClientError) as error:
            client.get_object(**key, **same)
        assert code(error)[1] == 304
    assert client.get_object(**key, IfNoneMatch='"other"')["ETag"] == etag
    assert client.get_object(**key, IfModifiedSince=modified.replace(year=2000))["ETag"] == etag


def test_a_presigned_url_reads_with_the_headers_that_it_chooses(gateway: Gateway, client: Any) -> None:
    chosen = {"ResponseContentType": "image/jpeg", "ResponseContentDisposition": "inline; filename=x.jpg"}
    http = PoolManager(retries=False)
    for key in ("pets/v1/images/cats/cat1.jpg", "pets/HEAD/images/dogs/dog 1 ü+&.jpg", "packed/v1/files/large.bin"):
        url = client.generate_presigned_url("get_object", {"Bucket": "acme", "Key": key, **chosen}, 900)
        expected = client.get_object(Bucket="acme", Key=key)["Body"].read()
        got = http.request("GET", url, headers={"Origin": "https://labels.example"})
        assert (got.status, got.data) == (200, expected)
        assert got.headers["Content-Type"] == "image/jpeg"
        assert got.headers["Content-Disposition"] == "inline; filename=x.jpg"
        assert got.headers["Access-Control-Allow-Origin"] == "*"
        assert "ETag" in got.headers["Access-Control-Expose-Headers"]
        assert (
            http.request("GET", url.replace("cat1", "cat2").replace("dog", "cat").replace("large", "l")).status == 403
        )
    bad = client.generate_presigned_url(
        "get_object", {"Bucket": "acme", "Key": "pets/v1/meta.json", "ResponseContentType": "a\r\nSet-Cookie: b"}
    )
    assert http.request("GET", bad).status == 400
    http.clear()


def test_what_a_browser_could_run_is_a_download_in_a_sandbox(own_gateway: Gateway) -> None:
    html = {"page.html": b"<script>alert(1)</script>", "a.svg": b"<svg/>", "b.png": b"png"}
    wd.DatasetBuilder("acme/web", own_gateway.session.writer.url).add_artifact("files", html, kind="files").publish()
    client, http = own_gateway.client(), PoolManager(retries=False)
    for name in html:
        url = client.generate_presigned_url("get_object", {"Bucket": "acme", "Key": f"web/HEAD/files/{name}"})
        got = http.request("GET", url)
        assert got.status == 200
        assert got.headers["Content-Security-Policy"] == "sandbox; default-src 'none'"
        assert got.headers["X-Content-Type-Options"] == "nosniff"
        assert got.headers.get("Content-Disposition") == (None if name == "b.png" else "attachment")
    http.clear()


def test_settings_of_a_bucket_are_those_of_a_plain_one(client: Any) -> None:
    for operation, expected in (
        ("get_bucket_policy", "NoSuchBucketPolicy"),
        ("get_bucket_cors", "NoSuchCORSConfiguration"),
        ("get_bucket_lifecycle_configuration", "NoSuchLifecycleConfiguration"),
        ("get_bucket_tagging", "NoSuchTagSet"),
        ("get_bucket_encryption", "ServerSideEncryptionConfigurationNotFoundError"),
    ):
        with pytest.raises(ClientError) as error:
            getattr(client, operation)(Bucket="acme")
        assert code(error) == (expected, 404)
    assert "Status" not in client.get_bucket_versioning(Bucket="acme")
    with pytest.raises(ClientError) as error:
        client.delete_object(Bucket="acme", Key="pets/v1/images/cats/cat1.jpg")
    assert code(error) == ("AccessDenied", 403)


def test_every_answer_lets_any_web_page_read_it(gateway: Gateway) -> None:
    http = PoolManager(retries=False)
    for method in ("GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS"):
        for path in ("", "/acme", "/acme/pets/v1/meta.json", "/none/x", "/acme?list-type=2"):
            asked = {"Origin": "https://a.example", "Access-Control-Request-Headers": "range, x-amz-date"}
            got = http.request(method, f"{gateway.endpoint}{path}", headers=asked)
            assert got.headers["Access-Control-Allow-Origin"] == "*", (method, path)
            assert "Access-Control-Allow-Credentials" not in got.headers
            assert got.status == (200 if method == "OPTIONS" else 403)
            if method == "OPTIONS":
                assert got.headers["Access-Control-Allow-Headers"] == "range, x-amz-date"
                assert "PUT" in got.headers["Access-Control-Allow-Methods"]
            elif method != "HEAD":
                assert b"<Code>AccessDenied</Code>" in got.data
    http.clear()
