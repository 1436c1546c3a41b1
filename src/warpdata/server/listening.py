"""An HTTP server in this process, which tells its port and ends at a signal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from warpdata.limits import MAX_HTTP_HEAD_BYTES

__all__ = ["listen"]

_GRACE_S = 5


class BoundedProtocol(HttpToolsProtocol):
    """HTTP with a bound on the head of a request, which the parser would otherwise keep in memory at any size."""

    _head_bytes = 0
    _is_in_head = True

    def data_received(self, data: bytes) -> None:
        """Parse what has arrived, and close a connection whose request line and headers do not end."""
        self._head_bytes += len(data)
        super().data_received(data)
        if self._is_in_head and self._head_bytes > MAX_HTTP_HEAD_BYTES:
            self.transport.close()

    def on_headers_complete(self) -> None:
        """Begin the body. Headers that came whole in one part are bounded too."""
        self._is_in_head = False
        if sum(len(name) + len(value) for name, value in self.headers) > MAX_HTTP_HEAD_BYTES:
            self.transport.close()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Await the next request of the connection."""
        self._head_bytes, self._is_in_head = 0, True
        super().on_message_complete()


def listen(
    app: ASGIApp,
    address: tuple[str, int],
    on_port: Callable[[int], None],
    on_end: Callable[[], None],
    *,
    has_lifespan: bool = True,
    sockets: Sequence[Any] = (),
) -> None:
    """Answer requests until SIGINT or SIGTERM. `on_port` hears of the port when the first request can come.

    `sockets` listen already, such as those that several processes share.
    """
    config = uvicorn.Config(
        app,
        host=address[0],
        port=address[1],
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        lifespan="on" if has_lifespan else "off",
        timeout_graceful_shutdown=_GRACE_S,
        http=BoundedProtocol,
    )
    with suppress(KeyboardInterrupt):  # raised again after the last answer was sent
        _AnnouncedServer(config, on_port, on_end).run(list(sockets) or None)


class _AnnouncedServer(uvicorn.Server):
    """A server that tells its port when it listens, and when it ends."""

    def __init__(self, config: uvicorn.Config, on_port: Callable[[int], None], on_end: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_port = on_port
        self._on_end = on_end

    async def shutdown(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        self._on_end()  # before open connections are waited for, so that streams of events end
        await super().shutdown(sockets)  # type: ignore[arg-type]

    async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        await super().startup(sockets)  # type: ignore[arg-type]
        if self.started:
            listening: Any = self.servers[0].sockets[0]
            self._on_port(listening.getsockname()[1])
