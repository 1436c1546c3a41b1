"""`warp cat`: write files of an artifact to stdout."""

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
    help="Path of a file in the artifact. Repeatable.",
)
@click.option("--force", is_flag=True, help="Write to a terminal, too.")
@click.pass_obj
def cat(cli: CliContext, address: str, artifact: str | None, refs: tuple[str, ...], force: bool) -> None:
    """Write files of an artifact to stdout.

    Several files are concatenated. Large files are read in chunks, and each chunk is verified before it
    is written. If any path is missing, nothing is written.

    \b
      warp cat acme/pets --artifact raw_images --ref images/0001.jpg > x.jpg
    """
    if sys.stdout.isatty() and not force:
        raise click.UsageError("refusing to write raw bytes to a terminal; redirect the output, or add --force")
    with cli.progress(f"Opening {address}"):
        opened = cli.open(address).artifact(artifact)
        total = sum(opened.size_of(path) for path in refs)
    with cli.progress(f"Reading {address}", writes_data=True) as progress:
        count = progress.count_bytes(total)
        for path in refs:
            with opened.open(path) as file:
                while chunk := file.read(MEMBER_CHUNK_BYTES):
                    sys.stdout.buffer.write(chunk)
                    sys.stdout.buffer.flush()
                    count(len(chunk))
