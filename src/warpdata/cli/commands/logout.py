"""`warp logout`: forget the token of a service."""

from __future__ import annotations

import click

import warpdata
from warpdata.cli.context import CliContext
from warpdata.cli.options import command
from warpdata.cli.output import print_json, print_line
from warpdata.storage import forget_token

__all__ = ["logout"]


@command("logout", json_keys={"url": "address of the service", "removed": "whether there was a token"})
@click.argument("url")
@click.pass_obj
def logout(cli: CliContext, url: str) -> None:
    """Forget the token of a service on this machine.

    The token stays valid until it is revoked.
    """
    path = warpdata.load_settings().tokens_file
    assert path is not None
    removed = forget_token(path, url)
    if cli.as_json:
        print_json({"url": url, "removed": removed})
    else:
        print_line(f"forgot the token for {url}" if removed else f"there was no token for {url}")
