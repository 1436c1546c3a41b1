"""If this fails, a label is lost or stored twice, other bytes are stored than were sent, or a version changes."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from boto3.s3.transfer import TransferConfig as PutConfig
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st
from urllib3 import PoolManager

import warpdata as wd
from tests.server.s3.conftest import JPEG, SECRET, Gateway, listening
from tests.server.s3.test_signatures import sign
from warpdata.collections import InboxFiles
from warpdata.limits import MAX_INBOX_BODY_BYTES, MAX_S3_BODY_BYTES
from warpdata.server.s3.chunked import BodyRules, decode_body
from warpdata.server.s3.errors import S3Error
from warpdata.server.s3.parts import remove_old_parts
from warpdata.server.s3.sigv4 import Credential

LABEL = json.dumps({"id": 17, "task": {"data": {"image": "s3://acme/pets/v1/images/cats/cat1.jpg"}}}).encode()


def error_of(call: Any, **options: Any) -> tuple[str, int]:
    with pytest.raises(ClientError) as error:
        call(Bucket="acme", **options)
    answer = error.value.response
    return answer["Error"]["Code"], answer["ResponseMetadata"]["HTTPStatusCode"]


def test_a_label_is_kept_as_it_came_and_bound_to_its_version(own_gateway: Gateway) -> None:
    client = own_gateway.client(right="inbox")
    made = client.put_object(
        Bucket="acme", Key="pets/v1/inbox/project-3/17", Body=LABEL, ContentType="application/json"
    )
    assert made["ETag"].strip('"') == hashlib.sha256(LABEL).hexdigest()
    got = client.get_object(Bucket="acme", Key="pets/v1/inbox/project-3/17")
    assert (got["Body"].read(), got["ContentType"]) == (LABEL, "application/json")
    listed = client.list_objects_v2(Bucket="acme", Prefix="pets/v1/inbox/")["Contents"]
    assert [(one["Key"], one["Size"]) for one in listed] == [("pets/v1/inbox/project-3/17", len(LABEL))]
    assert "Contents" not in client.list_objects_v2(Bucket="acme", Prefix="pets/HEAD/inbox/")
    inbox = InboxFiles(own_gateway.session, "acme/pets")
    entry = inbox.find("v1", "project-3/17")
    assert entry is not None
    assert (entry.version, entry.author, entry.content()) == (
        wd.dataset("acme/pets@v1", store=own_gateway.session.writer.url).version,
        "ana",
        LABEL,
    )


def test_a_label_that_is_saved_again_is_another_entry_and_the_newest_is_read(own_gateway: Gateway) -> None:
    client = own_gateway.client(right="inbox")
    bodies = [json.dumps({"id": 17, "round": number}).encode() for number in range(4)]
    for body in bodies:
        client.put_object(Bucket="acme", Key="pets/v1/inbox/17", Body=body)
        assert client.get_object(Bucket="acme", Key="pets/v1/inbox/17")["Body"].read() == body
    inbox = InboxFiles(own_gateway.session, "acme/pets")
    (file,) = inbox.files()
    assert sorted(entry.content() for entry in inbox.entries(file.records)) == sorted(bodies)


def test_a_repeated_request_is_stored_once_and_cannot_bring_back_an_older_label(own_gateway: Gateway) -> None:
    key, http = own_gateway.keys.make("acme", "inbox"), PoolManager(retries=False)
    url = f"{own_gateway.endpoint}/acme/pets/v1/inbox/17"

    def put(body: bytes) -> tuple[dict[str, str], bytes]:
        signed = sign(AWSRequest("PUT", url, data=body), key=key)
        headers = {name: value for name, value in signed.headers.items() if name != "content-length"}
        assert http.request("PUT", url, body=body, headers=headers).status == 200
        return headers, body

    first = put(b"first")
    put(b"second")
    assert http.request("PUT", url, body=first[1], headers=first[0]).status == 200
    inbox = InboxFiles(own_gateway.session, "acme/pets")
    entry = inbox.find("v1", "17")
    assert entry is not None
    assert entry.content() == b"second"
    assert len(inbox.files()[0].records) == 2
    assert http.request("PUT", url, body=b"other", headers=first[0]).status == 400  # the hash of the body is signed
    http.clear()


def test_versions_do_not_change_whatever_the_key_may(own_gateway: Gateway) -> None:
    client = own_gateway.client(right="head")
    before = {
        name: wd.dataset(f"acme/pets@{name}", store=own_gateway.session.writer.url).version for name in ("v1", "main")
    }
    for key in (
        "pets/v1/images/cats/cat1.jpg",
        "pets/main/images/x.jpg",
        "pets/v1/meta.json",
        "pets/HEAD/annotations.json",
        "pets/HEAD/images",
        "pets/HEAD/tables/images.parquet",
        "datasets/pets/annotations.json",
        "datasets/pets/snapshots/v9.json",
        "packed/HEAD/files/x",
    ):
        assert error_of(client.put_object, Key=key, Body=b"x") == ("AccessDenied", 403), key
    assert error_of(client.put_object, Key="packed/HEAD/inbox/x", Body=b"x") == ("AccessDenied", 403)
    assert error_of(client.put_object, Key="pets/v9/inbox/x", Body=b"x") == ("NoSuchKey", 404)
    assert error_of(client.put_object, Key="pets/v1/inbox/../x", Body=b"x") == ("InvalidArgument", 400)
    assert error_of(client.create_multipart_upload, Key="pets/v1/images/x") == ("AccessDenied", 403)
    for name, version in before.items():
        assert wd.dataset(f"acme/pets@{name}", store=own_gateway.session.writer.url).version == version
    assert InboxFiles(own_gateway.session, "acme/pets").files() == []


def test_a_key_writes_only_what_its_right_allows(own_gateway: Gateway) -> None:
    reader, labeler = own_gateway.client(right="ro"), own_gateway.client("acme/pets@v1", right="inbox")
    assert error_of(reader.put_object, Key="pets/v1/inbox/1", Body=b"x") == ("AccessDenied", 403)
    assert error_of(labeler.put_object, Key="pets/HEAD/images/x.jpg", Body=b"x") == ("NoSuchKey", 404)
    assert error_of(labeler.put_object, Key="pets/HEAD/inbox/1", Body=b"x") == ("NoSuchKey", 404)
    wide = own_gateway.client(right="inbox")
    assert error_of(wide.put_object, Key="pets/HEAD/images/x.jpg", Body=b"x") == ("AccessDenied", 403)
    labeler.put_object(Bucket="acme", Key="pets/v1/inbox/1", Body=b"x")


def test_an_image_enters_head_and_no_version(own_gateway: Gateway) -> None:
    client = own_gateway.client(right="head")
    client.put_object(Bucket="acme", Key="pets/HEAD/images/new/a.jpg", Body=JPEG + b"a")
    client.put_object(Bucket="acme", Key="datasets/pets/images/new/b.jpg", Body=JPEG + b"b")
    client.put_object(Bucket="acme", Key="pets/HEAD/images/new/a.jpg", Body=JPEG + b"replaced")
    listed = client.list_objects_v2(Bucket="acme", Prefix="pets/HEAD/images/new/")["Contents"]
    assert [one["Key"] for one in listed] == ["pets/HEAD/images/new/a.jpg", "pets/HEAD/images/new/b.jpg"]
    assert client.get_object(Bucket="acme", Key="pets/HEAD/images/new/a.jpg")["Body"].read() == JPEG + b"replaced"
    exists = error_of(client.put_object, Key="pets/HEAD/images/new/a.jpg", Body=b"x", IfNoneMatch="*")
    assert exists == ("PreconditionFailed", 412)
    assert "Contents" not in client.list_objects_v2(Bucket="acme", Prefix="pets/v1/images/new/")


def test_a_body_beyond_the_limit_is_refused(own_gateway: Gateway) -> None:
    client = own_gateway.client(right="inbox")
    body = bytes(MAX_INBOX_BODY_BYTES + 1)
    assert error_of(client.put_object, Key="pets/v1/inbox/1", Body=body) == ("EntityTooLarge", 400)
    http, url = PoolManager(retries=False), f"{own_gateway.endpoint}/acme/pets/v1/inbox/1"
    signed = sign(AWSRequest("PUT", url, data=b""), key=client._request_signer._credentials.access_key)
    headers = {**signed.headers, "content-length": str(MAX_S3_BODY_BYTES + 1)}
    got = http.request("PUT", url, headers=headers, preload_content=False)
    assert got.status == 400
    http.clear()


@pytest.fixture
def https(own_gateway: Gateway, tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The address of the gateway by https, as behind a proxy, and the certificate to trust."""
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    names = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*made, "-keyout", str(key), "-out", str(certificate), *names], check=True, capture_output=True)
    with listening(own_gateway.gateway, ssl_keyfile=key, ssl_certfile=certificate) as address:
        yield f"{address}/s3", certificate


@pytest.mark.parametrize("algorithm", ["CRC32", "SHA1", "SHA256"])
def test_boto3_sends_chunks_with_a_trailer_over_https(
    own_gateway: Gateway, https: tuple[str, Path], algorithm: str
) -> None:
    """Without a content length, as boto3 does it by default."""
    client = boto3.client(
        "s3",
        endpoint_url=https[0],
        verify=str(https[1]),
        aws_access_key_id=own_gateway.keys.make("acme", "inbox"),
        aws_secret_access_key=SECRET,
        region_name="us-east-1",
        config=Config(retries={"total_max_attempts": 1}),
    )
    sent: list[dict[str, Any]] = []
    client.meta.events.register("before-send.s3.PutObject", lambda request, **_: sent.append(dict(request.headers)))
    body = bytes(range(256)) * 1000
    try:
        client.put_object(Bucket="acme", Key="pets/v1/inbox/17", Body=body, ChecksumAlgorithm=algorithm)
        assert sent[0]["X-Amz-Content-SHA256"] == b"STREAMING-UNSIGNED-PAYLOAD-TRAILER"
        assert client.get_object(Bucket="acme", Key="pets/v1/inbox/17")["Body"].read() == body
    finally:
        client.close()


EXAMPLE_SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
EXAMPLE = Credential(
    "AKIAIOSFODNN7EXAMPLE",
    "20130524",
    "us-east-1",
    ("host",),
    "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9",
    datetime(2013, 5, 24, tzinfo=UTC),
    "STREAMING-AWS4-HMAC-SHA256-PAYLOAD",
)
CHUNKS = (
    (65536, "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648"),
    (1024, "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497"),
    (0, "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9"),
)
"""The example in the documentation of S3: 66,560 letters in signed chunks."""


def example_body() -> bytes:
    return b"".join(
        f"{size:x};chunk-signature={signature}\r\n".encode() + b"a" * size + b"\r\n" for size, signature in CHUNKS
    )


def rules(**headers: str) -> BodyRules:
    return BodyRules({"x-amz-decoded-content-length": "66560", **headers}, EXAMPLE, EXAMPLE_SECRET)


def test_signed_chunks_are_those_of_the_documentation() -> None:
    assert decode_body(example_body(), rules()) == b"a" * 66560


@given(st.integers(0, len(example_body()) - 3), st.integers(1, 255))
def test_no_byte_of_signed_chunks_can_be_changed(at: int, change: int) -> None:
    body = bytearray(example_body())
    body[at] ^= change
    try:
        content = decode_body(bytes(body), rules())
    except S3Error:
        return
    assert content == b"a" * 66560, "only the case of a size may differ"
    assert bytes(body).lower() == example_body().lower()


@given(st.integers(0, len(example_body()) - 3))
def test_a_body_that_was_cut_is_refused(end: int) -> None:
    with pytest.raises(S3Error):
        decode_body(example_body()[:end], rules())


@given(st.binary(max_size=300), st.sampled_from(["STREAMING-UNSIGNED-PAYLOAD-TRAILER", EXAMPLE.payload]))
def test_random_chunks_are_refused(body: bytes, payload: str) -> None:
    with pytest.raises(S3Error):
        decode_body(body, BodyRules({}, replace(EXAMPLE, payload=payload), EXAMPLE_SECRET))


@pytest.mark.parametrize(
    "headers",
    [
        {"x-amz-checksum-crc32": "AAAAAA=="},
        {"x-amz-checksum-crc32c": "AAAAAA=="},
        {"x-amz-checksum-crc64nvme": "AAAAAAAAAAA="},
        {"x-amz-checksum-sha256": "x"},
        {"content-md5": "1B2M2Y8AsgTpgAmY7PhCfg=="},
        {"x-amz-decoded-content-length": "5"},
        {"x-amz-trailer": "x-amz-checksum-crc32"},
    ],
)
def test_a_body_that_does_not_match_its_headers_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(S3Error):
        decode_body(example_body(), rules(**headers))


def test_checksums_are_those_of_their_definitions() -> None:
    """Check values of the CRC catalogue, of `123456789`."""
    plain = replace(EXAMPLE, payload=hashlib.sha256(b"123456789").hexdigest())
    for name, value in (("crc32", "cbf43926"), ("crc32c", "e3069283"), ("crc64nvme", "ae8b14860a799888")):
        headers = {f"x-amz-checksum-{name}": base64.b64encode(bytes.fromhex(value)).decode()}
        assert decode_body(b"123456789", BodyRules(headers, plain, EXAMPLE_SECRET)) == b"123456789"


def test_a_large_file_arrives_in_parts(own_gateway: Gateway, tmp_path: Path) -> None:
    client, http = own_gateway.client(right="head"), PutConfig(multipart_threshold=1, multipart_chunksize=5 << 20)
    content = bytes(range(256)) * 50_000  # three parts
    (tmp_path / "large.bin").write_bytes(content)
    client.upload_file(str(tmp_path / "large.bin"), "acme", "pets/HEAD/images/large.bin", Config=http)
    pets = wd.collection("acme/pets", store=own_gateway.session.writer.url)
    assert pets.read("large.bin") == content
    got = client.get_object(Bucket="acme", Key="pets/HEAD/images/large.bin")
    assert got["Body"].read() == content
    assert got["ETag"].strip('"') == hashlib.sha256(content).hexdigest()
    assert not [*own_gateway.session.writer.list_objects("service/s3-uploads")]


def test_parts_that_are_not_those_of_the_upload_are_refused(own_gateway: Gateway) -> None:
    client, name = own_gateway.client(right="head"), {"Key": "pets/HEAD/images/parts.bin"}
    begun = client.create_multipart_upload(Bucket="acme", **name)["UploadId"]
    sent = {**name, "UploadId": begun}
    etags = [client.upload_part(Bucket="acme", **sent, PartNumber=at, Body=b"%d" % at)["ETag"] for at in (1, 2)]
    listed = [{"PartNumber": at, "ETag": etag} for at, etag in enumerate(etags, 1)]

    def complete(parts: list[dict[str, Any]]) -> Any:
        return error_of(client.complete_multipart_upload, **sent, MultipartUpload={"Parts": parts})

    assert complete(listed[::-1]) == ("InvalidPartOrder", 400)
    assert complete([{**listed[0], "ETag": listed[1]["ETag"]}]) == ("InvalidPart", 400)
    assert complete([{**listed[0], "ETag": '"x"'}]) == ("InvalidPart", 400)
    assert error_of(client.upload_part, **sent, PartNumber=10_001, Body=b"") == ("InvalidArgument", 400)
    other = {**sent, "Key": "pets/HEAD/images/other.bin"}
    assert error_of(client.upload_part, **other, PartNumber=1, Body=b"") == ("NoSuchUpload", 404)
    foreign = own_gateway.client(right="inbox")
    assert error_of(foreign.upload_part, **sent, PartNumber=1, Body=b"") == ("AccessDenied", 403)
    before = datetime.now(UTC) - timedelta(seconds=60)
    assert remove_old_parts(own_gateway.session, before) == 0
    client.abort_multipart_upload(Bucket="acme", **sent)
    assert complete(listed) == ("NoSuchUpload", 404)
    client.upload_part(Bucket="acme", **sent, PartNumber=1, Body=b"late")
    assert remove_old_parts(own_gateway.session, before + timedelta(seconds=120)) == 1
    pets = wd.collection("acme/pets", store=own_gateway.session.writer.url)
    assert "parts.bin" not in pets.head.artifact("images")


def test_images_leave_head_and_no_version(own_gateway: Gateway) -> None:
    client = own_gateway.client(right="head")
    pets = wd.collection("acme/pets", store=own_gateway.session.writer.url)
    client.put_object(Bucket="acme", Key="pets/HEAD/images/gone.png", Body=b"gone")
    pets.create_version("with")
    for _ in range(2):
        client.delete_object(Bucket="acme", Key="pets/HEAD/images/gone.png")
    assert "gone.png" not in pets.head.artifact("images")
    assert error_of(client.get_object, Key="pets/HEAD/images/gone.png") == ("NoSuchKey", 404)
    assert client.get_object(Bucket="acme", Key="pets/with/images/gone.png")["Body"].read() == b"gone"
    assert error_of(client.delete_object, Key="pets/with/images/gone.png") == ("AccessDenied", 403)
    client.put_object(Bucket="acme", Key="pets/with/inbox/1", Body=b"{}")
    assert error_of(client.delete_object, Key="pets/with/inbox/1") == ("AccessDenied", 403)
    reader = own_gateway.client(right="ro")
    assert error_of(reader.delete_object, Key="pets/HEAD/images/cats/cat1.jpg") == ("AccessDenied", 403)
