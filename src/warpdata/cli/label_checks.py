"""Checks of a connection from this machine: requests by urllib, and a socket that waits for the echo of a webhook.

`warpdata.server.labelling` has the checks themselves, which the page of the service shows too.
"""

from __future__ import annotations

import ipaddress
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import astuple
from datetime import UTC, datetime
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from warpdata.cli.doctor_checks import Finding
from warpdata.server.labelling import ECHO_S, LabelConnection, ToolAnswer, check_address, check_gateway, check_studio

__all__ = ["LabelConnection", "check_connection"]

_TIMEOUT_S = 10
_MAX_ANSWER = 4_000_000


def check_connection(link: LabelConnection) -> Iterator[Finding]:
    """Check each part in turn. Parts that cannot work without a failed one are skipped."""
    for found in check_gateway(link, _ask, datetime.now(UTC)):
        yield Finding(*astuple(found))
    if not link.studio_url:
        yield Finding(*astuple(check_address(link)))
        return
    title = f"warp labels check {uuid.uuid4().hex[:8]}"
    for found in check_studio(link, _ask, lambda: _Listener(link.callback_host), title):
        yield Finding(*astuple(found))


class _Listener:
    """Waits for one request to a random path."""

    def __init__(self, host: str) -> None:
        path, arrived = f"/{uuid.uuid4().hex}", threading.Event()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                is_ours = self.path == path
                self.send_response(200 if is_ours else 404)
                self.send_header("Content-Length", "0")
                self.end_headers()
                if is_ours:
                    arrived.set()

            def log_message(self, *_args: object) -> None:
                """Print nothing."""

        bound = host if _is_own_address(host) else "0.0.0.0"  # noqa: S104 - a name of this machine for another one
        self._server = ThreadingHTTPServer((bound, 0), Handler)
        self._arrived = arrived
        self._url = f"http://{host}:{self._server.server_address[1]}{path}"

    @property
    def url(self) -> str:
        return self._url

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def wait(self) -> bool:
        return self._arrived.wait(ECHO_S)


def _is_own_address(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _ask(method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> ToolAnswer:
    if urlsplit(url).scheme not in ("http", "https"):
        return ToolAnswer(0, {}, "it is not an address with http or https")
    request = Request(url, body, dict(headers), method=method)  # noqa: S310 - http and https alone
    ask: Callable[..., Any] = urlopen
    try:
        with ask(request, timeout=_TIMEOUT_S) as answer:
            text = answer.read(_MAX_ANSWER).decode("utf-8", "replace")
            return ToolAnswer(answer.status, _lower(answer.headers), text)
    except HTTPError as error:
        with error:
            return ToolAnswer(error.code, _lower(error.headers), error.read(_MAX_ANSWER).decode("utf-8", "replace"))
    except (URLError, OSError, HTTPException, ValueError) as error:
        return ToolAnswer(0, {}, str(getattr(error, "reason", error)))


def _lower(headers: Any) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}
