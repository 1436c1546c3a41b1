"""The gateway alone: read-only, over a store, with one key and without a database."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from warpdata.errors import BadInputError
from warpdata.server.listening import listen
from warpdata.server.s3.app import S3Gateway
from warpdata.server.s3.files import BucketFiles
from warpdata.server.s3.grants import SingleKey
from warpdata.session import Session

__all__ = ["GatewayOptions", "serve_gateway"]


@dataclass(frozen=True, slots=True)
class GatewayOptions:
    """The address of the gateway. `public_url` is the address that tools use, behind a proxy."""

    host: str = "127.0.0.1"
    port: int = 0
    public_url: str | None = None

    def check(self) -> None:
        """Refuse an address that tools could not use."""
        if self.public_url is not None and not urlsplit(self.public_url).hostname:
            raise BadInputError(f"{self.public_url!r} is not an address", hint="Write https://HOST.")

    @property
    def root(self) -> str:
        """The path of the gateway, which is that of its public address."""
        return urlsplit(self.public_url or "").path.rstrip("/")


def serve_gateway(session: Session, key: SingleKey, options: GatewayOptions, on_ready: Callable[[str], None]) -> None:
    """Answer requests until SIGINT or SIGTERM. `on_ready` hears of the endpoint when the first request can come."""
    options.check()
    app = S3Gateway(BucketFiles.over(session), key, root=options.root)

    def announce(port: int) -> None:
        host = f"[{options.host}]" if ":" in options.host else options.host
        on_ready((options.public_url or f"http://{host}:{port}").rstrip("/"))

    listen(app, (options.host, options.port), announce, lambda: None, has_lifespan=False)
