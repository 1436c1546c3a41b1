"""Requests to a service: JSON and bytes over kept connections, typed errors, and retries that repeat nothing twice.

Reads of objects go through the object-store library instead, which is faster; this client lists, writes and calls
routes. The token goes into a header and nowhere else.
"""

from __future__ import annotations

import http.client
import json
import ssl
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.parse import quote, urlencode, urlsplit

from warpdata.errors import (
    AccessDeniedError,
    AlreadyExistsError,
    AuthenticationError,
    BadInputError,
    ConflictError,
    CorruptError,
    ErrorKind,
    LimitExceededError,
    NotFoundError,
    RateLimitedError,
    StorageError,
    StoreTimeoutError,
    StoreUnavailableError,
    UnsupportedError,
    WarpError,
    WriteUnknownError,
)
from warpdata.limits import MAX_SMALL_OBJECT_BYTES
from warpdata.primitives.backoff import Backoff
from warpdata.primitives.fork import register_after_fork

__all__ = ["API_PATH", "ClientOptions", "ServiceClient", "ServiceReply", "check_token", "problem_error"]

API_PATH = "/api/v1"
_IDLE_S = 3.0
"""A connection that was idle for longer may be closed by the server, so it is not used again."""
_MAX_IDLE = 32
_TRANSIENT = (429, 502, 503, 504)
_MAX_TOKEN_LENGTH = 512
_BY_STATUS: dict[int, type[WarpError]] = {
    400: BadInputError,
    401: AuthenticationError,
    403: AccessDeniedError,
    404: NotFoundError,
    409: ConflictError,
    412: ConflictError,
    413: LimitExceededError,
    422: BadInputError,
    501: UnsupportedError,
    502: StoreUnavailableError,
    503: StoreUnavailableError,
    504: StoreTimeoutError,
}

Body: TypeAlias = bytes | Callable[[], Iterable[bytes]]
"""Bytes, or a function that yields them again for each attempt."""


@dataclass(frozen=True, slots=True)
class ServiceReply:
    """An answer with a status below 400."""

    status: int
    headers: Mapping[str, str] = field(repr=False)
    data: bytes = field(repr=False)

    def json(self) -> Any:
        """Return the document of the answer."""
        try:
            return json.loads(self.data)
        except ValueError as error:
            raise CorruptError("the answer of the service is not JSON", hint="Check the address.") from error


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """Time-outs and retries of a client, and the path that its routes begin with."""

    timeout_s: float = 30.0
    connect_timeout_s: float = 5.0
    max_retries: int = 5
    retry_timeout_s: float = 60.0
    api_path: str = API_PATH


class ServiceClient:
    """Sends requests to one service. Safe to share between threads and after a fork. `repr` hides the token."""

    def __init__(self, url: str, token: str | None, options: ClientOptions | None = None) -> None:
        """`url` is the address with its scheme `http` or `https`, without the path of the API."""
        self._parts = urlsplit(url)
        self._url = url.rstrip("/")
        self._token = check_token(token)
        self._options = options or ClientOptions()
        self._idle: list[tuple[http.client.HTTPConnection, float]] = []
        weakref.finalize(self, _close_all, self._idle)
        register_after_fork(self._forget_connections)

    def __repr__(self) -> str:
        return f"ServiceClient({self._url!r})"

    @property
    def url(self) -> str:
        return self._url

    def headers(self) -> dict[str, str]:
        """Return the headers that every request carries, with the token."""
        own = {"X-Warp-Request": "1"}  # a service without sign-in refuses changes that other web sites could send
        return own if self._token is None else {**own, "Authorization": f"Bearer {self._token}"}

    def get(self, path: str, query: Mapping[str, Any] | None = None) -> Any:
        """Return the document at a path of the API."""
        return self.send("GET", path, query=query, is_repeatable=True).json()

    def post(
        self, path: str, body: Any = None, *, query: Mapping[str, Any] | None = None, key: str | None = None
    ) -> Any:
        """Send a document, and return the answer. With an idempotency key, a lost answer is asked for again."""
        headers = {"Content-Type": "application/json"} | ({"Idempotency-Key": key} if key else {})
        data = json.dumps({} if body is None else body).encode()
        reply = self.send("POST", path, query=query, body=data, headers=headers, is_repeatable=key is not None)
        return reply.json() if reply.data else None

    def send_json(self, method: str, path: str, body: Any = None, *, timeout_s: float | None = None) -> Any:
        """Send a document to a route that may be repeated without harm, and return the answer."""
        data = json.dumps({} if body is None else body).encode()
        headers = {"Content-Type": "application/json"}
        return self.send(method, path, body=data, headers=headers, is_repeatable=True, timeout_s=timeout_s).json()

    def send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Body = b"",
        size_bytes: int | None = None,
        headers: Mapping[str, str] | None = None,
        is_repeatable: bool = False,
        timeout_s: float | None = None,
    ) -> ServiceReply:
        """Send a request, and return the answer or raise the error that it describes.

        A repeatable request is sent again after a failure that may pass. Without an answer to another one, which was
        sent completely, `WriteUnknownError` is raised.
        """
        known = {name: _text(value) for name, value in (query or {}).items() if value is not None}
        target = f"{self._parts.path.rstrip('/')}{self._options.api_path}{quote(path, safe='/~@:+')}"
        request = _Request(
            method,
            f"{target}?{urlencode(known)}" if known else target,
            {**self.headers(), **(headers or {})},
            body,
            size_bytes,
            timeout_s or self._options.timeout_s,
        )
        backoff = Backoff(self._options.max_retries, self._options.retry_timeout_s)
        while True:
            try:
                return self._attempt(request)
            except _TransientError as error:
                if not (is_repeatable or error.is_unsent):
                    raise error.reason from error
                failure = error.reason
            if not backoff.wait():
                raise failure

    def _attempt(self, request: _Request) -> ServiceReply:
        with self._connection() as connection:
            is_sent = False
            try:
                if connection.sock is None:
                    connection.connect()
                _set_timeout(connection, request.timeout_s)
                is_sent = True
                content, is_stream = request.content()
                connection.request(request.method, request.target, content, request.headers, encode_chunked=is_stream)
                reply = connection.getresponse()
                data = reply.read(MAX_SMALL_OBJECT_BYTES + 1)
            except WarpError:
                raise
            except (OSError, http.client.HTTPException) as error:
                raise _TransientError(self._lost(error, is_sent=is_sent), is_unsent=not is_sent) from error
            if len(data) > MAX_SMALL_OBJECT_BYTES:
                raise CorruptError(f"{self._url} answered more than {MAX_SMALL_OBJECT_BYTES} bytes")
            headers = {name.lower(): value for name, value in reply.getheaders()}
        if reply.status >= 400:
            found = _error(reply.status, headers, data, self._url)
            if reply.status in _TRANSIENT:
                raise _TransientError(found, is_unsent=False)
            raise found
        if reply.status >= 300:
            raise BadInputError(f"{self._url} redirects elsewhere", hint="Use the address that the service is at.")
        return ServiceReply(reply.status, headers, data)

    @contextmanager
    def _connection(self) -> Iterator[http.client.HTTPConnection]:
        """Yield a connection. It is kept for the next request, unless this one fails or the server closes it."""
        connection = self._take_idle() or self._open()
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        if connection.sock is not None and len(self._idle) < _MAX_IDLE:
            self._idle.append((connection, time.monotonic()))

    def _take_idle(self) -> http.client.HTTPConnection | None:
        while True:
            try:
                connection, since = self._idle.pop()
            except IndexError:
                return None
            if time.monotonic() - since < _IDLE_S:
                return connection
            connection.close()

    def _open(self) -> http.client.HTTPConnection:
        host, port, timeout = self._parts.hostname or "", self._parts.port, self._options.connect_timeout_s
        if self._parts.scheme == "https":
            return http.client.HTTPSConnection(host, port, timeout=timeout, context=ssl.create_default_context())
        return http.client.HTTPConnection(host, port, timeout=timeout)

    def _lost(self, error: Exception, *, is_sent: bool) -> StorageError:
        fact = f"{self._url}: {type(error).__name__}: {error}"
        if not is_sent:
            return StoreUnavailableError(fact, hint="Check the address and the network.")
        return WriteUnknownError(f"no answer came: {fact}", hint="Look whether the change was made, then repeat it.")

    def _forget_connections(self) -> None:
        self._idle.clear()  # they belong to the parent; closing the copies of the child does not end them


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    target: str
    headers: Mapping[str, str]
    body: Body
    size_bytes: int | None
    timeout_s: float

    def content(self) -> tuple[Any, bool]:
        """Return the body of one attempt, and whether it is sent in chunks. Sets the length where it is known."""
        assert isinstance(self.headers, dict)
        if isinstance(self.body, bytes):
            return self.body, False
        if self.size_bytes is None:
            self.headers["Transfer-Encoding"] = "chunked"
            return self.body(), True
        self.headers["Content-Length"] = str(self.size_bytes)
        return self.body(), False


class _TransientError(Exception):
    """A failure that may pass. `is_unsent` if the service cannot have done anything."""

    def __init__(self, reason: WarpError, *, is_unsent: bool) -> None:
        super().__init__(reason.message)
        self.reason = reason
        self.is_unsent = is_unsent


def _set_timeout(connection: http.client.HTTPConnection, seconds: float) -> None:
    """Bound the time of each read and write. Connecting has a shorter bound of its own."""
    connection.timeout = seconds
    if connection.sock is not None:
        connection.sock.settimeout(seconds)


def _close_all(idle: list[tuple[http.client.HTTPConnection, float]]) -> None:
    for connection, _ in idle:
        connection.close()


def check_token(token: str | None) -> str | None:
    """Return the token, if it can be sent in a header. The error does not show it."""
    if token is None:
        return None
    if not (0 < len(token) <= _MAX_TOKEN_LENGTH and token.isascii() and token.isprintable() and " " not in token):
        raise AuthenticationError("the token has characters that no token has", hint="Copy it again.")
    return token


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def problem_error(members: Mapping[str, Any]) -> WarpError:
    """Return the error that `status`, `code`, `detail` and `hint` describe, such as that of a job that failed."""
    return _error(int(members.get("status") or 500), {}, json.dumps(dict(members)).encode(), "the service")


def _error(status: int, headers: Mapping[str, str], data: bytes, url: str) -> WarpError:
    """Return the error that an answer describes, of the class that the library raises for it without a service."""
    problem: Any = {}
    with suppress(ValueError):
        problem = json.loads(data)
    problem = problem if isinstance(problem, dict) else {}
    detail = str(
        problem.get("detail")
        or problem.get("message")
        or f"{url} answered {status} {http.client.responses.get(status, '')}".rstrip()
    )
    hint = problem.get("hint")
    hint = hint if isinstance(hint, str) else None
    kind = _kind(problem.get("code"))
    if status == 429:
        retry = headers.get("retry-after", "1")
        return RateLimitedError(detail, retry_after_s=int(retry) if retry.isdecimal() else 1, hint=hint)
    if kind is not None and kind in _simple_classes():
        return _simple_classes()[kind](detail, hint=hint)
    error = _BY_STATUS.get(status, StorageError)
    if kind is ErrorKind.ALREADY_EXISTS:
        error = AlreadyExistsError
    return error(detail, hint=hint) if kind is None else error(detail, hint=hint, kind=kind)


def _kind(code: object) -> ErrorKind | None:
    try:
        return ErrorKind(str(code))
    except ValueError:
        return None


def _simple_classes() -> dict[ErrorKind, type[WarpError]]:
    """Return the classes by the kind that is theirs alone, of those that need only a message and a hint."""
    found: dict[ErrorKind, type[WarpError]] = {}
    pending: list[type[WarpError]] = [WarpError]
    while pending:
        one = pending.pop()
        pending += one.__subclasses__()
        if "kind" in vars(one) and "__init__" not in vars(one):
            found[one.kind] = one
    return found
