"""If this fails, the gateway answers requests without a valid signature, or refuses valid ones.

botocore signs, as an implementation of its own, and the gateway verifies.
"""

from __future__ import annotations

import string
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from botocore.auth import S3SigV4Auth, S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st
from urllib3 import HTTPResponse, PoolManager

from tests.server.s3.conftest import SECRET, Gateway
from warpdata.server.s3.errors import S3Error
from warpdata.server.s3.sigv4 import Credential, S3Request, parse_credential, verify

KEY = "WDTEST00000000000000"
TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
NAMES = st.text(string.ascii_letters + string.digits + "-._~ü+ %", min_size=1, max_size=10)
HEADER = st.text(string.ascii_letters + string.digits + " -._/+=", min_size=1, max_size=20)
REGIONS = st.sampled_from(["us-east-1", "eu-central-1", "auto"])
METHODS = st.sampled_from(["GET", "HEAD", "PUT", "POST", "DELETE"])


def sign(request: AWSRequest, region: str = "us-east-1", expires_s: int | None = None, key: str = KEY) -> S3Request:
    """Sign with botocore, and return what a server sees of the request."""
    credentials = Credentials(key, SECRET)
    if expires_s is None:
        S3SigV4Auth(credentials, "s3", region).add_auth(request)
    else:
        request.data = b""  # botocore would move a body into the query
        S3SigV4QueryAuth(credentials, "s3", region, expires_s).add_auth(request)
    return seen(request)


def seen(request: AWSRequest) -> S3Request:
    prepared = request.prepare()
    parts = urlsplit(prepared.url)
    headers = {name.lower(): str(value) for name, value in prepared.headers.items()}
    headers = {name: value.encode().decode("latin-1") for name, value in headers.items()}
    return S3Request(prepared.method, parts.path.encode(), parts.query.encode(), {"host": parts.netloc, **headers})


def check(request: S3Request, now: datetime | None = None, secret: str = SECRET) -> Credential:
    credential = parse_credential(request)
    assert credential is not None
    verify(request, credential, secret, now or datetime.now(UTC))
    return credential


@st.composite
def requests(draw: st.DrawFn) -> AWSRequest:
    key = draw(TEXT)
    query = draw(
        st.dictionaries(NAMES.filter(lambda name: not name.startswith("X-Amz")), st.text(max_size=10), max_size=4)
    )
    headers = draw(st.dictionaries(st.sampled_from(["x-amz-meta-a", "x-amz-acl", "range", "content-type"]), HEADER))
    text = "&".join(f"{quote(name, '')}={quote(value, '')}" for name, value in query.items() if _is_utf8(value))
    url = f"https://host:8443/s3/acme/{quote(key)}{f'?{text}' if text else ''}"
    return AWSRequest(draw(METHODS), url, headers, b"body")


def _is_utf8(text: str) -> bool:
    return all(not 0xD800 <= ord(char) < 0xE000 for char in text)


@given(requests(), REGIONS, st.one_of(st.none(), st.integers(1, 604800)))
def test_every_request_that_botocore_signs_is_accepted(request: AWSRequest, region: str, expires_s: int | None) -> None:
    credential = check(sign(request, region, expires_s))
    assert (credential.access_key, credential.region, credential.expires_s) == (KEY, region, expires_s)


CHANGES = st.sampled_from(
    ["method", "path", "query", "drop", "host", "header", "new", "signature", "secret", "payload"]
)


@given(requests(), CHANGES, st.booleans())
def test_no_part_of_a_signed_request_can_be_changed(request: AWSRequest, change: str, is_presigned: bool) -> None:
    request.headers["x-amz-meta-own"] = "mine"
    signed = sign(request, expires_s=900 if is_presigned else None)
    headers, secret = dict(signed.headers), SECRET
    if change == "method":
        signed = replace(signed, method="PATCH")
    elif change == "path":
        signed = replace(signed, raw_path=signed.raw_path + b"x")
    elif change == "query":
        signed = replace(signed, raw_query=(signed.raw_query + b"&prefix=other").lstrip(b"&"))
    elif change == "drop":
        del headers["x-amz-meta-own"]
    elif change == "host":
        headers["host"] = "other:8443"
    elif change == "header":
        headers["x-amz-meta-own"] = "theirs"
    elif change == "new":
        headers["x-amz-copy-source"] = "/acme/other"
    elif change == "secret":
        secret = SECRET[:-1] + "t"
    elif change == "payload":
        headers["x-amz-content-sha256"] = "0" * 64
    else:
        signed, headers = _with_other_signature(signed, headers)
    with pytest.raises(S3Error) as error:
        check(replace(signed, headers=headers), secret=secret)
    assert error.value.code in ("SignatureDoesNotMatch", "AccessDenied")


def _with_other_signature(signed: S3Request, headers: dict[str, str]) -> tuple[S3Request, dict[str, str]]:
    def flip(digit: str) -> str:
        return "0" if digit != "0" else "1"

    if "authorization" in headers:
        text = headers["authorization"]
        return signed, {**headers, "authorization": text[:-1] + flip(text[-1])}
    text = signed.raw_query.decode()
    at = text.index("X-Amz-Signature=") + len("X-Amz-Signature=")
    return replace(signed, raw_query=(text[:at] + flip(text[at]) + text[at + 1 :]).encode()), headers


MINUTE = timedelta(minutes=1)


def test_a_signature_is_good_for_a_quarter_of_an_hour_around_its_time() -> None:
    signed = sign(AWSRequest("GET", "http://host/acme/x"))
    time = check(signed).time
    for good in (-14 * MINUTE, timedelta(0), 14 * MINUTE):
        check(signed, time + good)
    for bad in (-16 * MINUTE, 16 * MINUTE, timedelta(days=400)):
        with pytest.raises(S3Error) as error:
            check(signed, time + bad)
        assert error.value.code == "RequestTimeTooSkewed"


def test_a_presigned_url_ends_at_its_second() -> None:
    signed = sign(AWSRequest("GET", "http://host/acme/x"), expires_s=60)
    time = check(signed).time
    check(signed, time + timedelta(seconds=59))
    with pytest.raises(S3Error, match="expired") as error:
        check(signed, time + timedelta(seconds=60))
    assert error.value.code == "AccessDenied"
    with pytest.raises(S3Error) as error:
        check(signed, time - 16 * MINUTE)
    assert error.value.code == "RequestTimeTooSkewed"


def malformed() -> Iterator[tuple[str, dict[str, str]]]:
    """Yield parts of an Authorization header and other headers that are not as they must be."""
    identity, names, signature = f"{KEY}/20261119/us-east-1/s3/aws4_request", "host;x-amz-date", "0" * 64
    good = {"x-amz-date": "20261119T000000Z", "x-amz-content-sha256": "UNSIGNED-PAYLOAD", "host": "h"}

    def header(identity: str = identity, names: str = names, signature: str = signature) -> str:
        return f"AWS4-HMAC-SHA256 Credential={identity}, SignedHeaders={names}, Signature={signature}"

    yield "", good
    yield "AWS WDTEST:abc", good
    yield "AWS4-HMAC-SHA256", good
    yield "AWS4-ECDSA-P256-SHA256 Credential=x, SignedHeaders=host, Signature=x", good
    yield header(identity="x"), good
    yield header(identity=f"{KEY}/20261119/us-east-1/ec2/aws4_request"), good
    yield header(identity=f"{KEY}/20261118/us-east-1/s3/aws4_request"), good
    yield header(identity=f"{KEY}/20261119/../s3/aws4_request"), good
    yield header(identity=f"{KEY}\n/20261119/us-east-1/s3/aws4_request"), good
    yield header(names="x-amz-date;host"), good
    yield header(names="Host;X-Amz-Date"), good
    yield header(names="host;host"), good
    yield header(names="host\r\nx"), good
    yield header(names=""), good
    yield header(names="x-amz-date"), good
    yield header(signature="x" * 64), good
    yield header(signature="0" * 63), good
    yield header(), {**good, "x-amz-date": "yesterday"}
    yield header(), {**good, "x-amz-date": "20261345T000000Z"}
    yield header(), {**good, "x-amz-content-sha256": "none"}
    yield header(), {**good, "x-amz-content-sha256": ""}
    yield header(), {**good, "x-amz-security-token": "x"}


@pytest.mark.parametrize(("authorization", "headers"), list(malformed()))
def test_a_malformed_authorization_is_refused(authorization: str, headers: dict[str, str]) -> None:
    with pytest.raises(S3Error):
        check(S3Request("GET", b"/acme/x", b"", {**headers, "authorization": authorization}))


@given(st.binary(max_size=100), st.binary(max_size=200), st.dictionaries(st.sampled_from(["authorization"]), st.text()))
def test_random_requests_are_refused_and_break_nothing(path: bytes, query: bytes, headers: dict[str, str]) -> None:
    request = S3Request("GET", path, b"X-Amz-Signature=x&" + query, headers)
    with pytest.raises(S3Error):
        check(request)


class Wire:
    """Sends requests as they are."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.http = PoolManager(retries=False)

    def send(self, request: S3Request, **changes: Any) -> tuple[int, bytes]:
        request = replace(request, **changes)
        query = f"?{request.raw_query.decode()}" if request.raw_query else ""
        url = f"http://127.0.0.1:{self.gateway.port}{request.raw_path.decode()}{query}"
        headers = {name: value for name, value in request.headers.items() if name != "content-length"}
        got: HTTPResponse = self.http.request(request.method, url, headers=headers)  # type: ignore[assignment]
        return got.status, got.data


@pytest.fixture
def wire(gateway: Gateway) -> Iterator[Wire]:
    made = Wire(gateway)
    yield made
    made.http.clear()


def test_forged_requests_get_nothing(gateway: Gateway, wire: Wire) -> None:
    key = gateway.keys.make("acme/pets@v1")
    url = f"{gateway.endpoint}/acme/pets/v1/meta.json"
    signed = sign(AWSRequest("GET", url), key=key)
    assert wire.send(signed)[0] == 200
    other = signed.raw_path.replace(b"meta", b"annotations")
    assert b"SignatureDoesNotMatch" in wire.send(signed, raw_path=other)[1]
    assert b"SignatureDoesNotMatch" in wire.send(signed, raw_query=b"response-content-type=text%2Fhtml")[1]
    unknown = sign(AWSRequest("GET", url), key="WDUNKNOWN00000000000")
    assert b"InvalidAccessKeyId" in wire.send(unknown)[1]
    assert b"AccessDenied" in wire.send(replace(signed, headers={"host": signed.headers["host"]}))[1]
    both = sign(AWSRequest("GET", url), expires_s=60, key=key)
    assert b"InvalidArgument" in wire.send(both, headers={**both.headers, **signed.headers})[1]


def test_a_key_reads_its_version_and_nothing_else(gateway: Gateway, wire: Wire) -> None:
    key = gateway.keys.make("acme/pets@v1")

    def status(path: str) -> int:
        return wire.send(sign(AWSRequest("GET", f"{gateway.endpoint}/{path}"), key=key))[0]

    for path in ("acme/pets/v1/meta.json", "acme/datasets/pets/snapshots/v1.json", "acme/pets/v1/images/cats/cat1.jpg"):
        assert status(path) == 200
    for path in (
        "acme/pets/HEAD/meta.json",
        "acme/pets/main/images/cats/cat1.jpg",
        "acme/datasets/pets/images/cats/cat1.jpg",
        "acme/datasets/pets/meta.json",
        "acme/packed/v1/files/large.bin",
        "rival/secret/HEAD/files/a",
        "acme/pets/v1%2f..%2fHEAD/meta.json",
        "acme/pets/v1/../HEAD/meta.json",
    ):
        assert status(path) in ((403, 404) if ".." in path else (404,)), path  # botocore signs other escapes
    listed = gateway.client(access_key=key).list_objects_v2(Bucket="acme")
    assert listed["KeyCount"] > 5
    assert all(one["Key"].startswith(("pets/v1/", "datasets/pets/snapshots/v1.")) for one in listed["Contents"])


def test_a_continuation_token_is_of_its_bucket_and_key(gateway: Gateway) -> None:
    first, second = gateway.client(), gateway.client()
    token = first.list_objects_v2(Bucket="acme", MaxKeys=1)["NextContinuationToken"]
    assert first.list_objects_v2(Bucket="acme", MaxKeys=1, ContinuationToken=token)["KeyCount"] == 1
    for bad in (token[:-4], f"{token}AAAA", "x", "AAAA" + token[4:]):
        with pytest.raises(first.exceptions.ClientError, match="InvalidArgument"):
            first.list_objects_v2(Bucket="acme", ContinuationToken=bad)
    # keys of this test share a secret, and so do their tokens
    assert second.list_objects_v2(Bucket="acme", MaxKeys=1, ContinuationToken=token)["KeyCount"] == 1
