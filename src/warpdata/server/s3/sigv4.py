"""AWS Signature Version 4, as S3 has it: in the Authorization header, or in the query of a presigned URL.

A signature covers the method, the path, the query, and the headers that it names. Every `x-amz-` header of a request
must be among them. Pure: time and secrets are arguments. Implements "Signatures" of docs/specs/gateway.md.
"""

from __future__ import annotations

import functools
import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from urllib.parse import quote, quote_from_bytes, unquote_to_bytes, urlencode, urlsplit, urlunsplit

from warpdata.limits import MAX_S3_QUERY_BYTES, MAX_S3_QUERY_PAIRS, MAX_SIGNED_URL_S
from warpdata.primitives.cached_property import cached_property
from warpdata.server.s3.errors import S3Error

__all__ = ["UNSIGNED", "Credential", "S3Request", "parse_credential", "presign", "signing_key", "verify"]

UNSIGNED = "UNSIGNED-PAYLOAD"
_ALGORITHM = "AWS4-HMAC-SHA256"
_MAX_SKEW = timedelta(minutes=15)
_TIME = re.compile(r"[0-9]{8}T[0-9]{6}Z")
_ACCESS_KEY = re.compile(r"[A-Za-z0-9]{16,128}")
_REGION = re.compile(r"[a-z0-9-]{1,64}")
_SIGNATURE = re.compile(r"[0-9a-f]{64}")
_HEADER_NAME = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]{1,128}")
_PAYLOAD = re.compile(r"[0-9a-f]{64}|UNSIGNED-PAYLOAD|STREAMING-[A-Z0-9-]{1,80}")
_SPACES = re.compile(r" +")
_PRESIGNED = (b"X-Amz-Signature", b"X-Amz-Algorithm")
_SIGNED_PARAMETERS = (
    "X-Amz-Algorithm",
    "X-Amz-Credential",
    "X-Amz-Date",
    "X-Amz-Expires",
    "X-Amz-SignedHeaders",
    "X-Amz-Signature",
)


@dataclass(frozen=True)
class S3Request:
    """An HTTP request as it arrived. Names of headers are in lower case; values of repeated ones are joined."""

    method: str
    raw_path: bytes
    raw_query: bytes
    headers: Mapping[str, str]

    @cached_property
    def pairs(self) -> Sequence[tuple[bytes, bytes]]:
        """The query, decoded. A plus is a plus, as in every signature."""
        if len(self.raw_query) > MAX_S3_QUERY_BYTES:
            raise S3Error("InvalidURI", f"the query is longer than {MAX_S3_QUERY_BYTES:,} bytes")
        parts = [part.partition(b"=") for part in self.raw_query.split(b"&") if part]
        if len(parts) > MAX_S3_QUERY_PAIRS:
            raise S3Error("InvalidURI", f"the query has more than {MAX_S3_QUERY_PAIRS} parameters")
        return [(unquote_to_bytes(name), unquote_to_bytes(value)) for name, _, value in parts]

    @cached_property
    def query(self) -> Mapping[str, str]:
        """The query as text. A parameter that is there twice is refused, because programs would disagree about it."""
        found: dict[str, str] = {}
        for name, value in self.pairs:
            try:
                text = name.decode()
                found_value = value.decode()
            except UnicodeDecodeError:
                raise S3Error("InvalidURI", "the query is not UTF-8") from None
            if text in found:
                raise S3Error("InvalidArgument", f"the parameter {text[:80]!r} is there twice")
            found[text] = found_value
        return found


@dataclass(frozen=True, slots=True)
class Credential:
    """The claims of a request about its signature. `expires_s` is there for presigned URLs alone."""

    access_key: str
    scope_date: str
    region: str
    signed_headers: tuple[str, ...]
    signature: str
    time: datetime
    payload: str
    """The SHA-256 of the body, or a word that says how the body is signed."""
    expires_s: int | None = None

    @property
    def stamp(self) -> str:
        return self.time.strftime("%Y%m%dT%H%M%SZ")

    @property
    def scope(self) -> str:
        return f"{self.scope_date}/{self.region}/s3/aws4_request"


def parse_credential(request: S3Request) -> Credential | None:
    """Return what a request says about its signature; None for an anonymous request."""
    header = request.headers.get("authorization")
    is_presigned = b"X-Amz-" in request.raw_query and any(name in _PRESIGNED for name, _ in request.pairs)
    if header is not None and is_presigned:
        raise S3Error("InvalidArgument", "the request is signed both in a header and in its query; send one of them")
    if header is not None:
        return _from_header(request, header)
    if not is_presigned and b"AWSAccessKeyId=" in request.raw_query:
        raise S3Error("InvalidRequest", "the URL has an old kind of signature; configure signature version s3v4")
    return _from_query(request) if is_presigned else None


def verify(request: S3Request, credential: Credential, secret: str, now: datetime) -> None:
    """Return if the signature was made with this secret, for this request, and is in time. Raise `S3Error` if not."""
    _check_time(credential, now)
    _check_headers(request, credential)
    if not hmac.compare_digest(_sign(request, credential, secret), credential.signature):
        raise S3Error(
            "SignatureDoesNotMatch",
            "the signature does not match the request; check the secret key, and that no proxy changes path or Host",
        )


def presign(url: str, key: tuple[str, str], now: datetime, expires_s: int = 300) -> str:
    """Return a URL that reads what `url` names, signed with an access key and its secret."""
    parts, (access_key, secret) = urlsplit(url), key
    time = now.astimezone(UTC).replace(microsecond=0)
    credential = Credential(access_key, time.strftime("%Y%m%d"), "us-east-1", ("host",), "", time, UNSIGNED, expires_s)
    given = {
        "X-Amz-Algorithm": _ALGORITHM,
        "X-Amz-Credential": f"{access_key}/{credential.scope}",
        "X-Amz-Date": credential.stamp,
        "X-Amz-Expires": str(expires_s),
        "X-Amz-SignedHeaders": "host",
    }
    query = "&".join([part for part in (parts.query, urlencode(given, quote_via=quote)) if part])
    signature = _sign(S3Request("GET", parts.path.encode(), query.encode(), {"host": parts.netloc}), credential, secret)
    return urlunsplit((parts.scheme, parts.netloc, parts.path, f"{query}&X-Amz-Signature={signature}", ""))


def _sign(request: S3Request, credential: Credential, secret: str) -> str:
    canonical = _canonical_request(request, credential)
    signed = "\n".join((_ALGORITHM, credential.stamp, credential.scope, sha256(canonical).hexdigest()))
    key = signing_key(secret, credential.scope_date, credential.region)
    return hmac.new(key, signed.encode(), sha256).hexdigest()


@functools.lru_cache(maxsize=1024)
def signing_key(secret: str, scope_date: str, region: str) -> bytes:
    """Return the key of a day, a region and this service, derived from a secret."""
    key = f"AWS4{secret}".encode()
    for part in (scope_date, region, "s3", "aws4_request"):
        key = hmac.new(key, part.encode(), sha256).digest()
    return key


def _from_header(request: S3Request, header: str) -> Credential:
    algorithm, _, rest = header.partition(" ")
    if algorithm != _ALGORITHM:
        raise S3Error("InvalidRequest", f"the request is not signed with {_ALGORITHM}; configure signature version 4")
    members = dict(part.strip().partition("=")[::2] for part in rest.split(","))
    if set(members) != {"Credential", "SignedHeaders", "Signature"}:
        raise S3Error("AuthorizationHeaderMalformed", "the header needs Credential, SignedHeaders and Signature")
    if "x-amz-security-token" in request.headers:
        raise S3Error("InvalidToken", "keys of this gateway have no session token")
    payload = request.headers.get("x-amz-content-sha256", "")
    if not _PAYLOAD.fullmatch(payload):
        raise S3Error("InvalidRequest", "the header x-amz-content-sha256 is missing or malformed")
    stamp = request.headers.get("x-amz-date", "")
    return _credential(
        (members["Credential"], members["SignedHeaders"], members["Signature"]),
        (stamp, payload, None),
        "AuthorizationHeaderMalformed",
    )


def _from_query(request: S3Request) -> Credential:
    query, code = request.query, "AuthorizationQueryParametersError"
    missing = [name for name in _SIGNED_PARAMETERS if name not in query]
    if missing:
        raise S3Error(code, f"the query has no {missing[0]}")
    if query["X-Amz-Algorithm"] != _ALGORITHM:
        raise S3Error(code, f"X-Amz-Algorithm is not {_ALGORITHM}")
    if "X-Amz-Security-Token" in query:
        raise S3Error("InvalidToken", "keys of this gateway have no session token")
    expires = query["X-Amz-Expires"]
    is_number = expires.isascii() and expires.isdecimal() and len(expires) < 10
    if not is_number or not 1 <= int(expires) <= MAX_SIGNED_URL_S:
        raise S3Error(code, f"X-Amz-Expires is not a number of seconds within 1 … {MAX_SIGNED_URL_S}")
    payload = query.get("X-Amz-Content-Sha256") or request.headers.get("x-amz-content-sha256", UNSIGNED)
    if not _PAYLOAD.fullmatch(payload):
        raise S3Error(code, "x-amz-content-sha256 is malformed")
    return _credential(
        (query["X-Amz-Credential"], query["X-Amz-SignedHeaders"], query["X-Amz-Signature"]),
        (query["X-Amz-Date"], payload, int(expires)),
        code,
    )


def _credential(named: tuple[str, str, str], about: tuple[str, str, int | None], code: str) -> Credential:
    """Check the parts of a credential, which are foreign input."""
    (identity, headers, signature), (stamp, payload, expires) = named, about
    parts = identity.split("/")
    if len(parts) != 5 or parts[3:] != ["s3", "aws4_request"] or not _REGION.fullmatch(parts[2]):
        raise S3Error(code, "the credential is not ACCESS_KEY/DATE/REGION/s3/aws4_request")
    if not _ACCESS_KEY.fullmatch(parts[0]):
        raise S3Error("InvalidAccessKeyId", "there is no such access key")
    if not _TIME.fullmatch(stamp):
        raise S3Error("AccessDenied", "the request has no valid X-Amz-Date")
    try:
        time = datetime.fromisoformat(stamp)
    except ValueError:
        raise S3Error("AccessDenied", "X-Amz-Date is not a time") from None
    if parts[1] != stamp[:8]:
        raise S3Error(code, "the credential is of another day than X-Amz-Date")
    names = tuple(headers.split(";"))
    if list(names) != sorted(set(names)) or not all(_HEADER_NAME.fullmatch(name) for name in names):
        raise S3Error(code, "SignedHeaders is not a sorted list of names in lower case")
    if not _SIGNATURE.fullmatch(signature):
        raise S3Error("SignatureDoesNotMatch", "the signature is not 64 hex digits")
    return Credential(parts[0], parts[1], parts[2], names, signature, time, payload, expires)


def _check_time(credential: Credential, now: datetime) -> None:
    if credential.time - now > _MAX_SKEW:
        raise S3Error("RequestTimeTooSkewed", "the request was signed in the future; set the clock of the client")
    if credential.expires_s is None:
        if now - credential.time > _MAX_SKEW:
            raise S3Error("RequestTimeTooSkewed", "the request was signed too long ago; set the clock of the client")
    elif now >= credential.time + timedelta(seconds=credential.expires_s):
        raise S3Error("AccessDenied", "Request has expired")


def _check_headers(request: S3Request, credential: Credential) -> None:
    """Refuse a request with headers that change its meaning and are not signed."""
    needed = {"host"} | {name for name in request.headers if name.startswith("x-amz-")}
    unsigned = sorted(needed - set(credential.signed_headers))
    if unsigned:
        raise S3Error("AccessDenied", f"the header {unsigned[0]} is not signed")
    missing = [name for name in credential.signed_headers if name not in request.headers]
    if missing:
        raise S3Error("SignatureDoesNotMatch", f"the signed header {missing[0]} did not arrive")


def _canonical_request(request: S3Request, credential: Credential) -> bytes:
    path = _encode(unquote_to_bytes(request.raw_path), safe="/-._~")
    pairs = sorted(
        (_encode(name), _encode(value))
        for name, value in request.pairs
        if credential.expires_s is None or name != b"X-Amz-Signature"
    )
    query = "&".join(f"{name}={value}" for name, value in pairs)
    headers = "".join(
        f"{name}:{_SPACES.sub(' ', request.headers[name].strip())}\n" for name in credential.signed_headers
    )
    names = ";".join(credential.signed_headers)
    return "\n".join((request.method, path, query, headers, names, credential.payload)).encode()


def _encode(data: bytes, safe: str = "-._~") -> str:
    return quote_from_bytes(data, safe)
