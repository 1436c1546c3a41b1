"""What holds for every request before a route sees it: its host, its size, its headers, and its place in the metrics.

The host is checked because a browser lets any web site reach a loopback address under a name of that site.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from warpdata.errors import ErrorKind
from warpdata.limits import MAX_BODY_BYTES, MAX_FILE_BYTES, MAX_PARTIAL_BYTES, MAX_SEARCH_BODY_BYTES
from warpdata.server.problems import problem
from warpdata.server.service import ServiceOptions

__all__ = ["Guard", "RequestMetrics", "allowed_hosts"]

_LOG = logging.getLogger("warpdata.server.requests")
_UNLOGGED = ("/healthz", "/readyz", "/metrics")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
_TOOLS = "/api/v1/labelling/"
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"content-security-policy", b"default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"),
)


class RequestMetrics:
    """Counts and durations of requests, by route."""

    def __init__(self, registry: CollectorRegistry) -> None:
        labels = ("method", "route", "status")
        self.registry = registry
        self.requests = Counter("warp_requests", "Requests that were answered.", labels, registry=registry)
        self.seconds = Histogram("warp_request_seconds", "Time until an answer began.", labels[:2], registry=registry)

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count an answer. `route` is a pattern, so that labels are bounded."""
        known = method if method in _METHODS else "other"
        self.requests.labels(known, route, str(status)).inc()
        self.seconds.labels(known, route).observe(seconds)


def allowed_hosts(options: ServiceOptions) -> Sequence[str]:
    """Return the names under which the service may be addressed: loopback, or that of the public URL."""
    public = urlsplit(options.public_url).hostname if options.public_url else None
    return (*_LOOPBACK, *([public] if public else ()))


class Guard:
    """The outermost layer of the application."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        hosts: Sequence[str],
        metrics: RequestMetrics,
        timer: Callable[[], float],
        new_id: Callable[[], str],
    ) -> None:
        self._app = app
        self._hosts = frozenset(hosts)
        self._metrics = metrics
        self._timer = timer
        self._new_id = new_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers, started, counted = Headers(scope=scope), self._timer(), False
        given = headers.get("x-request-id", "")  # of a proxy, so that its log and ours can be compared
        request_id = given if _REQUEST_ID.fullmatch(given) else self._new_id()
        limit = _body_limit(scope["path"])
        received = 0

        async def send_guarded(message: Message) -> None:
            nonlocal counted
            if message["type"] == "http.response.start":
                sent = [*message["headers"]]
                present = {name for name, _ in sent}
                sent += [item for item in _HEADERS if item[0] not in present]
                if not counted:
                    counted = True
                    sent.append((b"x-request-id", request_id.encode()))
                    self._count(scope, message["status"], self._timer() - started, request_id)
                message = {**message, "headers": sent}
            await send(message)

        async def receive_bounded() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > limit:
                raise HTTPException(413, _too_large(limit))  # where the body is read, inside the application
            return message

        if _hostname(headers.get("host", "")) not in self._hosts:
            refused = problem(
                400,
                ErrorKind.BAD_INPUT,
                "the service has another name than the Host header says",
                "Open it under its own address; an operator sets --public-url.",
            )
            await refused(scope, receive, send_guarded)
            return
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > limit:
            await problem(413, ErrorKind.LIMIT_EXCEEDED, _too_large(limit))(scope, receive, send_guarded)
            return
        await self._app(scope, receive_bounded, send_guarded)

    def _count(self, scope: Scope, status: int, seconds: float, request_id: str) -> None:
        route = getattr(scope.get("route"), "path", "other")
        self._metrics.count(scope["method"], route, status, seconds)
        if route in _UNLOGGED and status < 400:
            return
        values, client = scope.get("path_params") or {}, scope.get("client")
        about = {
            "request_id": request_id,
            "method": scope["method"][:16],
            "route": route,
            "status": status,
            "duration_ms": round(1000 * seconds, 1),
            "workspace": values.get("workspace"),
            "dataset": values.get("name"),
            "ip": client[0] if client else None,
        }
        known = {name: value for name, value in about.items() if value is not None}
        _LOG.info("%s %s %d %.1f ms", about["method"], route, status, 1000 * seconds, extra=known)


def _body_limit(path: str) -> int:
    """Return the most that a body may have. A file in parts is bounded by the length that was announced for it."""
    if "/partial/" in path:
        return MAX_PARTIAL_BYTES
    if path.endswith("/search"):
        return MAX_SEARCH_BODY_BYTES
    is_large = "/uploads/" in path or path.endswith(("/annotations", "/inbox")) or path.startswith(_TOOLS)
    return MAX_FILE_BYTES if is_large else MAX_BODY_BYTES


def _hostname(host: str) -> str:
    """Return the name of a Host header without its port, in lower case."""
    name, _, port = host.rpartition(":")
    return (name if name and port.isdecimal() else host).lower()


def _too_large(limit: int) -> str:
    return f"the body is larger than the limit of {limit:,} bytes"
