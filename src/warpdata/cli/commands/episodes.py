"""`warp episodes`: recorded episodes, of a dataset or in files of their own."""

from __future__ import annotations

from itertools import islice
from typing import Any

import click

from warpdata.cli.commands.convert_episodes import convert_episodes
from warpdata.cli.context import Invocation
from warpdata.cli.episode_checks import recover_episode, verify_episodes
from warpdata.cli.episode_show import show_episode
from warpdata.cli.episode_targets import ShownEpisode, find_files, is_address, open_file, open_set
from warpdata.cli.format import bytes_text
from warpdata.cli.options import command, episodes_option, filter_option, group
from warpdata.cli.output import note, print_json, print_table
from warpdata.errors import BadInputError

__all__ = ["episodes"]


@group("episodes")
def episodes() -> None:
    """List, show, check, recover and convert recorded episodes.

    TARGET is a dataset, WORKSPACE/NAME[@REF], or WShard files on this machine: a file, a folder or a quoted
    glob. A folder whose path looks like a dataset's name is written with ./ before it.
    """


@command(
    "ls",
    json_keys={
        "target": "what was listed",
        "episodes": (
            "a list of {id, env_id, length, timebase, tick_hz, channels, byte_size, metadata}; of a dataset also "
            "identity, is_sealed and hash, of files also path"
        ),
    },
    reads=True,
)
@click.argument("targets", nargs=-1, required=True, metavar="TARGET…")
@episodes_option()
@filter_option()
@click.option("--limit", type=click.IntRange(min=0), metavar="N", help="Stop after this many.")
@click.pass_obj
def _ls(
    invocation: Invocation, targets: tuple[str, ...], episodes: str | None, expression: str | None, limit: int | None
) -> None:
    """List episodes, one a line.

    Of a dataset only its index is read. --filter takes SQL over the columns of that index.

    \b
      warp episodes ls acme/robot --filter "env_id = 'Lift-v1' AND metadata.success"
      warp episodes ls recordings/
    """
    if is_address(targets[0]):
        if len(targets) > 1:
            raise BadInputError("one dataset at a time can be listed", hint="A folder is written ./a/b.")
        with invocation.meter(f"Opening {targets[0]}"):
            found = open_set(invocation, targets[0], episodes)
            table = (found if expression is None else found.filter(expression)).table()
            rows = table.to_arrow(limit=limit, allow_large=True).to_pylist()
    else:
        if expression is not None:
            raise BadInputError("--filter needs a dataset: files have no index")
        rows = [_file_row(open_file(path)) for path in islice(find_files(targets), limit)]
    if invocation.as_json:
        print_json({"target": " ".join(targets), "episodes": rows})
        return
    print_table(
        ("episode", "env", ">steps", ">rate", ">channels", ">size"),
        (
            (
                row["id"],
                row["env_id"],
                f"{row['length']:,}",
                _rate(row),
                len(row["channels"]),
                bytes_text(row["byte_size"]),
            )
            for row in rows
        ),
    )
    if not rows:
        note("there are none")


def _file_row(episode: ShownEpisode) -> dict[str, Any]:
    info = episode.info
    declared = [name for name in episode.file.blocks if episode.file[name].block_type.is_declared]
    return {
        "id": info.id,
        "env_id": info.env_id,
        "length": info.length,
        "timebase": info.timebase.type,
        "tick_hz": info.timebase.hz,
        "channels": [_channel(episode, name) for name in declared],
        "byte_size": episode.size_bytes,
        "metadata": dict(info.metadata),
        "path": episode.where,
    }


def _channel(episode: ShownEpisode, block: str) -> str:
    spec = episode.info.channels.get(block) or episode.info.lanes.get(block)
    return spec.id if spec else block


def _rate(row: dict[str, Any]) -> str:
    return f"{row['tick_hz']:g} Hz" if row["tick_hz"] else "timestamps" if row["timebase"] == "timestamps_ns" else ""


for _command in (_ls, show_episode, verify_episodes, recover_episode, convert_episodes):
    episodes.add_command(_command)
