"""`warp episodes`: recorded episodes, of a dataset or in files of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import click

from warpdata.cli.context import CliContext
from warpdata.cli.episode_show import show_episode
from warpdata.cli.episode_targets import (
    OpenEpisode,
    find_episode_files,
    is_address,
    iter_episodes,
    open_episodes,
    open_file,
)
from warpdata.cli.exit_codes import CORRUPT, print_error
from warpdata.cli.format import bytes_text, count_text, escape, short
from warpdata.cli.options import command, episodes_option, filter_option, group
from warpdata.cli.output import note, print_facts, print_json, print_line, print_table
from warpdata.errors import BadInputError, CorruptError, LimitExceededError, UnsupportedError
from warpdata.formats.wshard import recover

__all__ = ["convert_episodes", "episodes", "recover_episode", "verify_episodes"]


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
    cli: CliContext, targets: tuple[str, ...], episodes: str | None, expression: str | None, limit: int | None
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
        with cli.progress(f"Opening {targets[0]}"):
            found = open_episodes(cli, targets[0], episodes)
            table = (found if expression is None else found.filter(expression)).table()
            rows = table.to_arrow(limit=limit, allow_large=True).to_pylist()
    else:
        if expression is not None:
            raise BadInputError("--filter needs a dataset: files have no index")
        rows = [_file_row(open_file(path)) for path in islice(find_episode_files(targets), limit)]
    if cli.as_json:
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


def _file_row(episode: OpenEpisode) -> dict[str, Any]:
    info = episode.info
    return {
        "id": info.id,
        "env_id": info.env_id,
        "length": info.length,
        "timebase": info.timebase.type,
        "tick_hz": info.timebase.hz,
        "channels": [_channel(episode, name) for name in episode.file.blocks if episode.file[name].meaning.is_declared],
        "byte_size": episode.size_bytes,
        "metadata": dict(info.metadata),
        "path": episode.where,
    }


def _channel(episode: OpenEpisode, block: str) -> str:
    spec = episode.info.channels.get(block) or episode.info.lanes.get(block)
    return spec.id if spec else block


def _rate(row: dict[str, Any]) -> str:
    return f"{row['tick_hz']:g} Hz" if row["tick_hz"] else "timestamps" if row["timebase"] == "timestamps_ns" else ""


@command(
    "verify",
    json_keys={
        "ok": "whether every episode is whole",
        "episodes": (
            "a list of {name, identity, problem}; name is an id or a path, problem is null where all is well, and "
            "identity where it is not"
        ),
    },
)
@click.argument("targets", nargs=-1, required=True, metavar="TARGET…")
@episodes_option()
@click.pass_obj
@click.pass_context
def verify_episodes(ctx: click.Context, cli: CliContext, targets: tuple[str, ...], episodes: str | None) -> None:
    """Read episodes whole, and compare them with their checksums.

    Every block is decoded, seals are checked, and those of a dataset are compared with its index. Exits with
    8 if any is damaged.
    """
    cli.mode = "remote"  # what is nearer is not what was asked about
    with cli.progress("Checking"):
        found = [_finding(name, opening) for name, opening in iter_episodes(cli, targets, episodes)]
    damaged = [finding for finding in found if finding["problem"] is not None]
    if cli.as_json:
        print_json({"ok": not damaged, "episodes": found})
    else:
        for finding in found:
            print_line(f"{finding['name']}: {finding['problem'] or 'whole, ' + short(finding['identity'])}")
    if damaged:
        print_error(f"{count_text(len(damaged), 'episode')} of {len(found)} cannot be believed")
        ctx.exit(CORRUPT)


def _finding(name: str, opening: Callable[[], OpenEpisode]) -> dict[str, Any]:
    try:
        return {"name": name, "identity": opening().identify(), "problem": None}
    except (CorruptError, UnsupportedError, LimitExceededError) as error:
        return {"name": name, "identity": None, "problem": error.message}


@command(
    "recover",
    json_keys={
        "path": "the file that was made",
        "episode_id": "its id",
        "step_count": "steps that were brought back",
        "is_complete": "whether the recording had ended, and nothing is missing",
        "lost_bytes": "bytes at the end of the journal that could not be believed",
        "unflushed_steps_at_most": "steps that may have been in memory only",
        "problem": "why reading stopped, or null",
    },
    uses_store=False,
)
@click.argument("journal", type=click.Path(path_type=Path), metavar="FILE.wshard.partial")
@click.option("--output", type=click.Path(path_type=Path), metavar="FILE", help="Where to write; beside it by default.")
@click.option("--remove", is_flag=True, help="Remove the journal when the episode is written.")
@click.pass_obj
def recover_episode(cli: CliContext, journal: Path, output: Path | None, remove: bool) -> None:
    """Make an episode of a recording that did not end.

    Every step that was written to the journal comes back, and what was lost is said.
    """
    with cli.progress(f"Recovering {journal}"):
        done = recover(journal, output, remove_partial=remove)
    if cli.as_json:
        print_json({**asdict(done), "path": str(done.path)})
        return
    lost = f"{bytes_text(done.lost_bytes)} were not readable" if done.lost_bytes else None
    unflushed = f"up to {count_text(done.unflushed_steps_at_most, 'step')} that were in memory only"
    print_facts(
        {
            "recovered": f"{done.episode_id}, {count_text(done.step_count, 'step')}",
            "file": done.path,
            "complete": "yes" if done.is_complete else "no, the recording had not ended",
            "lost": None if done.is_complete else unflushed,
            "unreadable": lost,
            "because": done.problem,
        }
    )


_FORMATS = ("wshard", "npz", "hdf5", "lerobot", "mcap")


@command(
    "convert",
    json_keys={
        "from": "the format of the source",
        "to": "the format of the target",
        "episodes": "how many were converted",
        "steps": "how many steps they have together",
        "written": "the files or folders that were made",
        "is_lossless": "whether nothing was changed or lost",
        "kept": "a list of {field, how, episodes}: what the target holds bit for bit",
        "changed": "the same for what it holds in another form",
        "lost": "the same for what it does not hold",
        "added": "the same for what it needs and the source does not have",
    },
    uses_store=False,
)
@click.argument("source", type=click.Path())
@click.argument("target", type=click.Path(), metavar="DEST")
@click.option(
    "--from", "source_format", type=click.Choice(_FORMATS), help="What SOURCE is, where its name does not tell."
)
@click.option(
    "--to", "target_format", type=click.Choice(_FORMATS), help="What DEST is to be, where its name does not tell."
)
@click.pass_obj
def convert_episodes(
    cli: CliContext, source: str, target: str, source_format: str | None, target_format: str | None
) -> None:
    """Convert episodes from WShard to another format, or back.

    Other formats are npz (Dreamer), hdf5 (robomimic), lerobot (v3), and mcap, which is written only. SOURCE
    is a file, or a folder of files. Tells of every field whether it was kept, changed or lost.

    \b
      warp episodes convert lift.hdf5 episodes/
      warp episodes convert episodes/ dataset/ --to lerobot
    """
    from warpdata.formats.convert import convert

    with cli.progress("Converting"):
        report = convert(source, target, source_format=source_format, target_format=target_format)
    if cli.as_json:
        print_json(report.document())
        return
    for line in report.text().splitlines():
        print_line(escape(line), style="" if line.startswith(" ") else "bold")
    if not report.is_lossless:
        note(f"{count_text(len(report.changed), 'field')} changed, {len(report.lost)} lost")


for _command in (_ls, show_episode, verify_episodes, recover_episode, convert_episodes):
    episodes.add_command(_command)
