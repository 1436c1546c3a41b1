"""`warp login`: keep the token of a service, so that commands and programs need only its address."""

from __future__ import annotations

import sys
from typing import IO

import click

import warpdata
from warpdata.cli.context import CliContext
from warpdata.cli.options import command
from warpdata.cli.output import print_json, print_line
from warpdata.errors import BadInputError
from warpdata.storage import ServiceStore, save_token

__all__ = ["login"]

_KEYS = {"url": "address of the service", "user": "user that the token belongs to"}


@command("login", json_keys=_KEYS)
@click.argument("url")
@click.option("--token-file", type=click.File("r"), metavar="PATH", help="Read the token there. Default: ask for it.")
@click.pass_obj
def login(cli: CliContext, url: str, token_file: IO[str] | None) -> None:
    """Keep the token of a service on this machine.

    The token is checked, then kept in a file that only you can read. `--store URL` and `wd.connect(URL)` then open the
    service. A token comes from its web page or from `warp server token`.

    \b
      warp login https://data.example.com
    """
    given = token_file.readline() if token_file else _ask()
    token = given.strip()
    if not token:
        raise BadInputError("no token was given", hint="`warp server token USER` makes one.")
    settings = warpdata.load_settings()
    assert settings.tokens_file is not None
    session = warpdata.connect(url, settings, token=token, mode="remote")
    assert isinstance(session.writer, ServiceStore)
    save_token(settings.tokens_file, url, token)
    user = session.settings.author
    if cli.as_json:
        print_json({"url": url, "user": user})
    else:
        print_line(f"signed in to {url} as {user}")


def _ask() -> str:
    if not sys.stdin.isatty():
        raise click.UsageError("no terminal to ask for the token; pass --token-file")
    answer: str = click.prompt("token", hide_input=True, err=True)
    return answer
