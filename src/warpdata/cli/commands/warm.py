"""`warp warm`: download a version, or part of it, to the cache."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from warpdata.cli.context import CliContext
from warpdata.cli.format import bytes_text, count_text, short
from warpdata.cli.options import address_argument, command, names_option
from warpdata.cli.output import note, print_json, print_line
from warpdata.cli.parameters import SizeType, SliceType

__all__ = ["warm"]

_KEYS = {
    "dataset_id": "workspace/name",
    "version": "64 hex digits",
    "blobs": "number of stored files",
    "fetched_bytes": "size of the downloaded data",
    "present_bytes": "size of the data that was already on this machine",
    "skipped_bytes": "size of the data that was skipped because of --max-bytes or the limit of the cache",
}


@command("warm", json_keys=_KEYS)
@address_argument()
@names_option("--tables", "Download only these tables.")
@names_option("--artifacts", "Download only these artifacts.")
@names_option("--episodes", "Download only these sets of episodes.")
@names_option("--tensors", "Download only these sets of tensors.")
@names_option("--indexes", "Download only these indexes.")
@click.option(
    "--shards", type=SliceType(), metavar="FROM:TO", help="Download only the shards with these numbers, of each part."
)
@click.option(
    "--max-bytes", type=SizeType(), metavar="SIZE", help="Maximum total size, such as 200GB. Further files are skipped."
)
@click.pass_obj
def warm(cli: CliContext, /, address: str, **given: Any) -> None:
    """Download a version to the cache of this machine.

    Downloads everything, or only the named tables, artifacts, episodes, tensors and indexes. Files that
    are already in the cache are skipped, so an interrupted run can be resumed. Afterwards --mode local reads without a
    network. WARP_CACHE_SIZE_GB limits the size of the cache.

    \b
      warp warm acme/pets --artifacts raw_images --shards 0:50
      warp warm acme/pets --max-bytes 200GB
    """
    cli.mode = "auto"  # this command downloads even if WARP_MODE is local
    with cli.progress(f"Opening {address}") as progress:
        opened = cli.open(address)
        done = opened.warm(
            given["tables"] or None,
            given["artifacts"] or None,
            episodes=given["episodes"] or None,
            tensors=given["tensors"] or None,
            indexes=given["indexes"] or None,
            shards=given["shards"],
            max_bytes=given["max_bytes"],
            progress=progress,
        )
    if cli.as_json:
        print_json({"dataset_id": opened.id, "version": opened.version, **asdict(done)})
        return
    parts = [f"{bytes_text(done.fetched_bytes)} downloaded", f"{bytes_text(done.present_bytes)} already local"]
    print_line(f"{opened.id} {short(opened.version)}: {count_text(done.blobs, 'file')}, {', '.join(parts)}")
    if done.skipped_bytes:
        note(f"skipped {bytes_text(done.skipped_bytes)} because of --max-bytes or WARP_CACHE_SIZE_GB")
