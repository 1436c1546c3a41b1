"""`warp members`: list the files in an artifact."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import click

from warpdata.cli.context import CliContext
from warpdata.cli.format import bytes_text, to_json
from warpdata.cli.options import address_argument, artifact_option, command
from warpdata.cli.output import note
from warpdata.cli.terminal import write_data_line

if TYPE_CHECKING:
    from warpdata.kinds.artifacts import Member

__all__ = ["members"]

_KEYS = {
    "dataset_id": "workspace/name",
    "version": "64 hex digits",
    "artifact": "name of the artifact",
    "members": "list of {path, size_bytes, shard}, sorted by path; shard is a number, from 0",
}
_SIZE_WIDTH = 8
_SHARD_WIDTH = 6


@command("members", json_keys=_KEYS, reads=True)
@address_argument()
@artifact_option()
@click.option("--prefix", default="", metavar="TEXT", help="List only paths that begin with this.")
@click.option("--limit", type=click.IntRange(min=0), metavar="N", help="Maximum number of files.")
@click.pass_obj
def members(cli: CliContext, address: str, artifact: str | None, prefix: str, limit: int | None) -> None:
    """List the files in an artifact.

    Each line has the size, the number of the shard, and the path of a file. Lines are written as they are
    read, so a list of any length needs little memory.

    \b
      warp members acme/pets --prefix train/cat/ --limit 10
    """
    with cli.progress(f"Opening {address}"):
        opened = cli.open(address)
        wanted = opened.artifact(artifact)
        found = islice(wanted.members(prefix), limit)
        first = next(found, None)
    listed = () if first is None else chain((first,), found)
    if cli.as_json:
        _write_json({"dataset_id": opened.id, "version": opened.version, "artifact": wanted.name}, listed)
        return
    for member in listed:
        size = bytes_text(member.size_bytes)
        write_data_line(f"{size:>{_SIZE_WIDTH}}  {member.shard:>{_SHARD_WIDTH}}  {member.path}")
    if first is None and limit != 0:
        note(f"no path in {wanted.name} begins with {prefix!r}" if prefix else f"{wanted.name} has no files")


def _write_json(head: dict[str, Any], listed: Iterable[Member]) -> None:
    """Write one document member by member: an artifact may have many millions."""
    out = sys.stdout.buffer
    out.write(to_json(head)[:-1] + b',"members":[')
    for position, member in enumerate(listed):
        line = to_json({"path": member.path, "size_bytes": member.size_bytes, "shard": member.shard})
        out.write((b",\n" if position else b"\n") + line)
    out.write(b"\n]}\n")
    out.flush()
