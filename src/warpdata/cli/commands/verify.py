"""`warp verify`: re-read and re-hash everything a version refers to."""

from __future__ import annotations

import click

from warpdata.cli.context import CliContext
from warpdata.cli.exit_codes import CORRUPT, print_error, print_hint
from warpdata.cli.format import bytes_text, count_text, short
from warpdata.cli.options import address_argument, command
from warpdata.cli.output import print_json, print_line
from warpdata.datasets import open_dataset
from warpdata.publish import verify as verify_dataset
from warpdata.repository.catalog import parse_address

__all__ = ["verify"]

_KEYS = {
    "dataset_id": "workspace/name",
    "version": "64 hex digits",
    "ok": "whether everything is as promised",
    "blobs": "how many stored files were read",
    "size_bytes": "how many bytes they have",
    "problems": "a list of what is missing or damaged, in words",
}


@command("verify", json_keys=_KEYS)
@address_argument()
@click.pass_obj
@click.pass_context
def verify(ctx: click.Context, cli: CliContext, address: str) -> None:
    """Re-read and re-hash all that a version refers to.

    Exits with 8 and lists the damage if anything is missing or is not what was published. A damaged
    file is mended by publishing its source again with `warp publish --repair`.
    """
    with cli.progress(f"Opening {address}") as progress:
        opened = open_dataset(cli.connect(), parse_address(address))
        result = verify_dataset(opened, progress=progress)
    whole = f"{opened.id} {short(opened.version)}"
    if cli.as_json:
        print_json(
            {
                "dataset_id": opened.id,
                "version": opened.version,
                "ok": not result.problems,
                "blobs": result.blobs,
                "size_bytes": result.size_bytes,
                "problems": list(result.problems),
            }
        )
    elif not result.problems:
        files = count_text(result.blobs, "file")
        print_line(f"{whole} is whole: {files}, {bytes_text(result.size_bytes)} read and hashed")
    for problem in result.problems if not cli.as_json else ():
        click.echo(problem)
    if result.problems:
        _complain(ctx, whole, len(result.problems))


def _complain(ctx: click.Context, whole: str, count: int) -> None:
    print_error(f"{whole} has {count_text(count, 'problem')}")
    print_hint("Publish the same files again with `warp publish --repair`, or read an older version.")
    ctx.exit(CORRUPT)
