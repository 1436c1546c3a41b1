"""`warp warm`: a version, or part of it, in the cache of this machine."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from warpdata.cli.context import CliContext
from warpdata.cli.format import bytes_text, count_text, short
from warpdata.cli.options import address_argument, command, split_names
from warpdata.cli.output import note, print_json, print_line
from warpdata.cli.parameters import SizeType, SliceType

__all__ = ["warm"]

_KEYS = {
    "dataset_id": "workspace/name",
    "version": "64 hex digits",
    "blobs": "how many stored files were asked for",
    "fetched_bytes": "what was fetched",
    "present_bytes": "what was on this machine already",
    "skipped_bytes": "what was left where it is, for --max-bytes or want of room",
}


@command("warm", json_keys=_KEYS)
@address_argument()
@click.option("--tables", multiple=True, metavar="A,B", callback=split_names, help="Only these tables.")
@click.option("--artifacts", multiple=True, metavar="A,B", callback=split_names, help="Only these artifacts.")
@click.option("--episodes", multiple=True, metavar="A,B", callback=split_names, help="Only these sets of episodes.")
@click.option("--tensors", multiple=True, metavar="A,B", callback=split_names, help="Only these tensors.")
@click.option("--shards", type=SliceType(), metavar="FROM:TO", help="Of each, only the shards with these numbers.")
@click.option("--max-bytes", type=SizeType(), metavar="SIZE", help="Stop before more than this, such as 200GB.")
@click.pass_obj
def warm(cli: CliContext, /, address: str, **given: Any) -> None:
    """Bring a version to this machine, before it is needed.

    Everything, or the tables, artifacts, episodes and tensors named. What is there already is not fetched again, so an
    interrupted run goes on where it was. After it, --mode local reads without a network. The cache keeps
    to its limit, WARP_CACHE_SIZE_GB.

    \b
      warp warm acme/pets --artifacts raw_images --shards 0:50
      warp warm acme/pets --max-bytes 200GB
    """
    cli.mode = "auto"  # whoever runs this means to fetch, whatever WARP_MODE says
    with cli.progress(f"Opening {address}") as progress:
        opened = cli.open(address)
        done = opened.warm(
            given["tables"] or None,
            given["artifacts"] or None,
            episodes=given["episodes"] or None,
            tensors=given["tensors"] or None,
            shards=given["shards"],
            max_bytes=given["max_bytes"],
            progress=progress,
        )
    if cli.as_json:
        print_json({"dataset_id": opened.id, "version": opened.version, **asdict(done)})
        return
    parts = [f"{bytes_text(done.fetched_bytes)} fetched", f"{bytes_text(done.present_bytes)} were here"]
    print_line(f"{opened.id} {short(opened.version)}: {count_text(done.blobs, 'file')}, {', '.join(parts)}")
    if done.skipped_bytes:
        note(f"{bytes_text(done.skipped_bytes)} left out: there is a limit (--max-bytes, WARP_CACHE_SIZE_GB)")
