"""Options and set-up that the commands of the service share."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from warpdata.cli.context import CliContext
from warpdata.primitives.extras import require
from warpdata.settings import database_url

if TYPE_CHECKING:
    from warpdata.server import Service, ServiceOptions

__all__ = ["database_option", "open_cli_service"]

_F = TypeVar("_F", bound=Callable[..., Any])


def database_option() -> Callable[[_F], _F]:
    return click.option(
        "--database",
        metavar="URL",
        help="postgresql://… or sqlite:///PATH. Default: WARP_DATABASE, or a file beside the local default store.",
    )


@contextmanager
def open_cli_service(cli: CliContext, database: str | None, options: ServiceOptions | None = None) -> Iterator[Service]:
    """Open the service of `--store` and `--database`."""
    require_server("The service")
    from warpdata.server import open_service

    with open_service(cli.connect(), database or database_url(), options) as service:
        yield service


def require_server(purpose: str) -> None:
    """Raise `MissingExtraError` unless the extra is installed."""
    for module in ("fastapi", "sqlalchemy", "alembic", "uvicorn", "prometheus_client"):
        require(module, purpose=purpose, extra="server")
    logging.getLogger("alembic").setLevel(logging.WARNING)
