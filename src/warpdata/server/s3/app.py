"""The gateway as an ASGI application: every version of every dataset as an S3 bucket.

It has no sign-in and no cookies: each request is signed with a key. So every web page may use it, and browsers get
bytes that run nowhere. docs/specs/gateway.md is the normative text.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator

import anyio.to_thread
from starlette.types import Receive, Scope, Send

from warpdata.limits import MAX_S3_BODY_BYTES
from warpdata.server.s3.answers import error_document
from warpdata.server.s3.errors import S3Error, s3_error_of
from warpdata.server.s3.files import BucketFiles
from warpdata.server.s3.grants import KeyRing
from warpdata.server.s3.reads import WHOLE, Bytes, S3Answer
from warpdata.server.s3.requests import RequestHandler, Signed
from warpdata.server.s3.sigv4 import S3Request
from warpdata.server.s3.writes import OnWrite, UploadHandler, ignore_write

__all__ = ["OnAnswer", "S3Gateway", "ignore_answer"]

_HEADERS = (
    (b"access-control-allow-origin", b"*"),
    (
        b"access-control-expose-headers",
        b"ETag, Content-Length, Content-Range, Accept-Ranges, Last-Modified, x-amz-request-id, x-amz-checksum-sha256",
    ),
    (b"content-security-policy", b"sandbox; default-src 'none'"),
    (b"cross-origin-resource-policy", b"cross-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"server", b"warpdata"),
    (b"x-content-type-options", b"nosniff"),
)
_PREFLIGHT = {
    "access-control-allow-methods": "GET, HEAD, PUT, POST, DELETE",
    "access-control-max-age": "3600",
    "vary": "Access-Control-Request-Headers",
    "content-length": "0",
}
_HEADER_LIST = re.compile(r"[A-Za-z0-9_, -]{1,1024}")
_WITHOUT_BODY = (204, 304)
_READS = ("GET", "HEAD")
_CHANGES = ("PUT", "POST", "DELETE")
_POSTS = {"uploads", "uploadId"}

OnAnswer = Callable[[str, int, float], None]
"""Hears of each answer: method, status, and seconds until it began."""


def ignore_answer(_method: str, _status: int, _seconds: float) -> None:
    """Do nothing."""


class S3Gateway:
    """Answers requests below `root`, such as `/s3`. Everything that blocks runs in threads."""

    def __init__(
        self,
        files: BucketFiles,
        keys: KeyRing,
        *,
        root: str = "",
        on_write: OnWrite = ignore_write,
        on_answer: OnAnswer = ignore_answer,
    ) -> None:
        self._files = files
        self._requests = RequestHandler(files, keys)
        self._uploads = UploadHandler(files, on_write)
        self._root = root
        self._on_answer = on_answer

    def forget(self, dataset_id: str) -> None:
        """Look up HEAD of a dataset at the next request, because it was changed."""
        self._files.versions.forget(dataset_id)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        assert scope["type"] == "http", "the gateway has no other protocol"
        session = self._files.session
        started, request_id = session.timer(), session.new_id()
        request = _parse(scope)
        body = _Body(request, receive)
        try:
            answer = await self._answer(request, scope, body)
        except Exception as error:  # noqa: BLE001 - each has its answer
            answer = _refuse(s3_error_of(error), request, request_id)
        self._on_answer(request.method, answer.status, session.timer() - started)
        if body.is_unread:  # a client that waits for "100 Continue" does not send it any more
            answer = S3Answer(answer.status, {**answer.headers, "connection": "close"}, answer.body)
        answer = S3Answer(answer.status, {**answer.headers, "x-amz-request-id": request_id}, answer.body)
        await _send(answer, request.method, send)

    async def _answer(self, request: S3Request, scope: Scope, body: _Body) -> S3Answer:
        if request.method == "OPTIONS":
            return _preflight(request)
        ip = scope["client"][0] if scope.get("client") else ""
        if request.method not in _CHANGES or (request.method == "POST" and not _POSTS & set(request.query)):
            ready = self._requests.answer_at_once(request, self._root, ip) if request.method in _READS else None
            return await anyio.to_thread.run_sync(self._read, request, ip) if ready is None else ready
        signed = await anyio.to_thread.run_sync(self._requests.authenticate, request, self._root, ip)
        wanted = self._uploads.check(signed)
        return await anyio.to_thread.run_sync(self._uploads.receive, signed, wanted, await body.read())

    def _read(self, request: S3Request, ip: str) -> S3Answer:
        signed: Signed = self._requests.authenticate(request, self._root, ip)
        answer = self._requests.answer(signed)
        if isinstance(answer.body, WHOLE):
            return answer
        first = next(answer.body)  # damaged bytes are an error answer, and not half a body
        is_all = len(first) == int(answer.headers["content-length"])
        return S3Answer(answer.status, answer.headers, first if is_all else _resume(first, answer.body))


def _refuse(error: S3Error, request: S3Request, request_id: str) -> S3Answer:
    resource = request.raw_path.decode("latin-1")
    body = error_document(error, resource[:1024], request_id)
    return S3Answer(error.status, {"content-type": "application/xml", "cache-control": "no-store"}, body)


def _parse(scope: Scope) -> S3Request:
    headers: dict[str, str] = {}
    for name, value in scope["headers"]:
        text, known = value.decode("latin-1"), name.decode("latin-1").lower()
        headers[known] = f"{headers[known]},{text}" if known in headers else text
    return S3Request(scope["method"], scope["raw_path"], scope["query_string"], headers)


def _preflight(request: S3Request) -> S3Answer:
    """Return the permission that a browser asks for before it sends a request of a web page."""
    asked = request.headers.get("access-control-request-headers", "")
    headers = {**_PREFLIGHT, "access-control-allow-headers": asked if _HEADER_LIST.fullmatch(asked) else "*"}
    if "access-control-request-private-network" in request.headers:
        headers["access-control-allow-private-network"] = "true"
    return S3Answer(200, headers)


class _Body:
    """The body of a request, read on demand."""

    def __init__(self, request: S3Request, receive: Receive) -> None:
        self._announced = request.headers.get("content-length", "0")
        self._receive = receive
        self.is_unread = self._announced != "0" or "transfer-encoding" in request.headers
        """Bytes of it are on the connection, or will be."""

    async def read(self) -> bytes:
        """Return the body as it came. A body that is too long is refused as soon as that is known."""
        if not self._announced.isdecimal() or int(self._announced) > MAX_S3_BODY_BYTES:
            raise _too_large()
        received = bytearray()
        while True:
            message = await self._receive()
            if message["type"] != "http.request":
                raise S3Error("IncompleteBody", "the connection was closed before the end of the body")
            received += message.get("body", b"")
            if len(received) > MAX_S3_BODY_BYTES:
                raise _too_large()
            if not message.get("more_body"):
                self.is_unread = False
                return bytes(received)


def _too_large() -> S3Error:
    return S3Error("EntityTooLarge", f"an upload has at most {MAX_S3_BODY_BYTES:,} bytes")


def _resume(first: Bytes, rest: Iterator[Bytes]) -> Iterator[Bytes]:
    yield first
    yield from rest


async def _send(answer: S3Answer, method: str, send: Send) -> None:
    """Send an answer. Parts of a long body are fetched while the client takes the ones before."""
    headers = [(name.encode(), value.encode("latin-1")) for name, value in answer.headers.items()]
    if isinstance(answer.body, WHOLE) and "content-length" not in answer.headers and answer.status not in _WITHOUT_BODY:
        headers.append((b"content-length", str(len(answer.body)).encode()))
    await send({"type": "http.response.start", "status": answer.status, "headers": [*headers, *_HEADERS]})
    if method == "HEAD" or isinstance(answer.body, WHOLE):
        await send({"type": "http.response.body", "body": b"" if method == "HEAD" else answer.body})
        return
    following = functools.partial(next, answer.body, None)
    while (part := await anyio.to_thread.run_sync(following)) is not None:
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b""})
