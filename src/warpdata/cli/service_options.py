"""Options and set-up that the commands of the service share."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from warpdata.cli.context import CliContext
from warpdata.cli.parameters import STORE_URL
from warpdata.primitives.extras import require
from warpdata.settings import database_url

if TYPE_CHECKING:
    from warpdata.server import Service, ServiceOptions

__all__ = ["database_option", "network_options", "open_cli_service", "require_server", "set_up_cli_logs"]

_F = TypeVar("_F", bound=Callable[..., Any])


def database_option() -> Callable[[_F], _F]:
    return click.option(
        "--database",
        metavar="URL",
        help="postgresql://… or sqlite:///PATH. Default: WARP_DATABASE, or a file beside the local default store.",
    )


def network_options() -> Callable[[_F], _F]:
    """Add the options that serving and working processes share."""

    def decorate(function: _F) -> _F:
        for option in (
            click.option(
                "--log-format",
                type=click.Choice(("text", "json")),
                default="text",
                show_default=True,
                help="Format of the log on stderr.",
            ),
            click.option(
                "--mirror",
                multiple=True,
                type=STORE_URL,
                metavar="STORE",
                help="A store with copies, from which a scrub restores lost bytes. Repeat for each.",
            ),
            click.option(
                "--allow-network",
                multiple=True,
                metavar="CIDR",
                help="A private network that webhooks, imports and sign-in may reach. Repeat for each.",
            ),
        ):
            function = option(function)
        return function

    return decorate


def set_up_cli_logs(kind: str) -> None:
    """Write the log of a service to stderr."""
    from warpdata.server import set_up_logs

    set_up_logs(kind)


@contextmanager
def open_cli_service(cli: CliContext, database: str | None, options: ServiceOptions | None = None) -> Iterator[Service]:
    """Open the service of `--store` and `--database`."""
    require_server("The service")
    from warpdata.server import open_service

    with open_service(cli.connect(), database or database_url(), options) as service:
        yield service


def require_server(purpose: str) -> None:
    """Raise `MissingExtraError` unless the extra is installed."""
    for module in ("fastapi", "sqlalchemy", "alembic", "uvicorn", "prometheus_client", "jwt"):
        require(module, purpose=purpose, extra="server")
    logging.getLogger("alembic").setLevel(logging.WARNING)
