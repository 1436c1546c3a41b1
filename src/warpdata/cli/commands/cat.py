"""`warp cat`: files of an artifact on stdout, byte for byte."""

from __future__ import annotations

import sys

import click

from warpdata.cli.context import CliContext
from warpdata.cli.options import address_argument, artifact_option, command
from warpdata.limits import MEMBER_CHUNK_BYTES

__all__ = ["cat"]


@command("cat", reads=True)
@address_argument()
@artifact_option()
@click.option(
    "--ref",
    "refs",
    multiple=True,
    required=True,
    metavar="PATH",
    help="A file's path in the artifact. Repeat for more.",
)
@click.option("--force", is_flag=True, help="Write even to a terminal.")
@click.pass_obj
def cat(cli: CliContext, address: str, artifact: str | None, refs: tuple[str, ...], force: bool) -> None:
    """Write files of an artifact to stdout.

    Several come one after another. Each part of a file is verified before it is written, and a large
    file is read in parts. All paths are looked up first: if one is not there, nothing is written.

    \b
      warp cat acme/pets --artifact raw_images --ref images/0001.jpg > x.jpg
    """
    if sys.stdout.isatty() and not force:
        raise click.UsageError("raw bytes are not for a terminal; send them to a file or a program, or add --force")
    with cli.progress(f"Opening {address}"):
        opened = cli.open(address).artifact(artifact)
        total = sum(opened.size_of(path) for path in refs)
    with cli.progress(f"Reading {address}", writes_data=True) as progress:
        count = progress.count_bytes(total)
        for path in refs:
            with opened.open(path) as file:
                while piece := file.read(MEMBER_CHUNK_BYTES):
                    sys.stdout.buffer.write(piece)
                    sys.stdout.buffer.flush()
                    count(len(piece))
