"""`warp episodes`: list, show, verify, recover and convert recorded episodes."""

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
    """List, show, verify, recover and convert recorded episodes.

    TARGET is a dataset, WORKSPACE/NAME[@REF], or WShard files on this machine: a file, a directory or a
    quoted glob. Write ./ before a directory whose path looks like the name of a dataset.
    """


@command(
    "ls",
    json_keys={
        "target": "the targets, separated by spaces",
        "episodes": (
            "list of {id, env_id, length, timebase, tick_hz, channels, byte_size, metadata}; for a dataset also "
            "identity, is_sealed and hash, for files also path"
        ),
    },
    reads=True,
)
@click.argument("targets", nargs=-1, required=True, metavar="TARGET…")
@episodes_option()
@filter_option()
@click.option("--limit", type=click.IntRange(min=0), metavar="N", help="Maximum number of episodes.")
@click.pass_obj
def _ls(
    cli: CliContext, targets: tuple[str, ...], episodes: str | None, expression: str | None, limit: int | None
) -> None:
    """List episodes, one per line.

    For a dataset, reads only the episode index. --filter is SQL over the columns of that index.

    \b
      warp episodes ls acme/robot --filter "env_id = 'Lift-v1' AND metadata.success"
      warp episodes ls recordings/
    """
    if is_address(targets[0]):
        if len(targets) > 1:
            raise BadInputError(
                f"{len(targets)} targets given; ls takes one dataset", hint="Write a directory as ./a/b."
            )
        with cli.progress(f"Opening {targets[0]}"):
            found = open_episodes(cli, targets[0], episodes)
            table = (found if expression is None else found.filter(expression)).table()
            rows = table.to_arrow(limit=limit, allow_large=True).to_pylist()
    else:
        if expression is not None:
            raise BadInputError("--filter needs a dataset; files have no episode index")
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
        note("no episodes")


def _file_row(episode: OpenEpisode) -> dict[str, Any]:
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
        "path": episode.source,
    }


def _channel(episode: OpenEpisode, block: str) -> str:
    spec = episode.info.channels.get(block) or episode.info.lanes.get(block)
    return spec.id if spec else block


def _rate(row: dict[str, Any]) -> str:
    return f"{row['tick_hz']:g} Hz" if row["tick_hz"] else "timestamps" if row["timebase"] == "timestamps_ns" else ""


@command(
    "verify",
    json_keys={
        "ok": "true if every episode is valid",
        "episodes": (
            "list of {name, identity, problem}; name is an id or a path; problem is null for a valid episode, and "
            "identity is null for a corrupt one"
        ),
    },
)
@click.argument("targets", nargs=-1, required=True, metavar="TARGET…")
@episodes_option()
@click.pass_obj
@click.pass_context
def verify_episodes(ctx: click.Context, cli: CliContext, targets: tuple[str, ...], episodes: str | None) -> None:
    """Read every block of episodes and check the checksums.

    Decodes every block and checks seals. Episodes of a dataset are also compared with its index. Exits with
    code 8 if an episode is corrupt.
    """
    cli.mode = cli.direct_mode
    with cli.progress("Verifying"):
        found = [_verify_one(name, open_one) for name, open_one in iter_episodes(cli, targets, episodes)]
    corrupt = [finding for finding in found if finding["problem"] is not None]
    if cli.as_json:
        print_json({"ok": not corrupt, "episodes": found})
    else:
        for finding in found:
            print_line(f"{finding['name']}: {finding['problem'] or 'valid, ' + short(finding['identity'])}")
    if corrupt:
        print_error(f"{len(corrupt)} of {count_text(len(found), 'episode')} corrupt")
        ctx.exit(CORRUPT)


def _verify_one(name: str, open_one: Callable[[], OpenEpisode]) -> dict[str, Any]:
    try:
        return {"name": name, "identity": open_one().verify(), "problem": None}
    except (CorruptError, UnsupportedError, LimitExceededError) as error:
        return {"name": name, "identity": None, "problem": error.message}


@command(
    "recover",
    json_keys={
        "path": "the recovered file",
        "episode_id": "id of the episode",
        "step_count": "number of recovered steps",
        "is_complete": "true if the recording had ended, so that no step is missing",
        "lost_bytes": "unreadable bytes at the end of the journal",
        "unflushed_steps_at_most": "maximum number of steps that were not yet flushed to the journal",
        "problem": "reason why reading stopped, or null",
    },
    uses_store=False,
)
@click.argument("journal", type=click.Path(path_type=Path), metavar="FILE.wshard.partial")
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="File to write. Default: the journal's path without .partial.",
)
@click.option("--remove", is_flag=True, help="Remove the journal after the episode is written.")
@click.pass_obj
def recover_episode(cli: CliContext, journal: Path, output: Path | None, remove: bool) -> None:
    """Recover an episode from an interrupted recording.

    Recovers every step in the journal and reports what is lost.
    """
    with cli.progress(f"Recovering {journal}"):
        done = recover(journal, output, remove_partial=remove)
    if cli.as_json:
        print_json({**asdict(done), "path": str(done.path)})
        return
    lost = bytes_text(done.lost_bytes) if done.lost_bytes else None
    unflushed = f"up to {count_text(done.unflushed_steps_at_most, 'step')} not yet flushed"
    print_facts(
        {
            "recovered": f"{done.episode_id}, {count_text(done.step_count, 'step')}",
            "file": done.path,
            "complete": "yes" if done.is_complete else "no, the recording was interrupted",
            "lost": None if done.is_complete else unflushed,
            "unreadable": lost,
            "reason": done.problem,
        }
    )


_FORMATS = ("wshard", "npz", "hdf5", "lerobot", "mcap")


@command(
    "convert",
    json_keys={
        "from": "format of the source",
        "to": "format of the target",
        "episodes": "number of converted episodes",
        "steps": "total number of steps",
        "written": "the written files or directories",
        "is_lossless": "true if no field was changed or lost",
        "kept": "list of {field, how, episodes}: fields that the target has bit for bit",
        "changed": "the same for fields that the target has in another form",
        "lost": "the same for fields that the target lacks",
        "added": "the same for fields that the target needs and the source lacks",
    },
    uses_store=False,
)
@click.argument("source", type=click.Path())
@click.argument("target", type=click.Path(), metavar="DEST")
@click.option("--from", "source_format", type=click.Choice(_FORMATS), help="Format of SOURCE. Default: by its name.")
@click.option("--to", "target_format", type=click.Choice(_FORMATS), help="Format of DEST. Default: by its name.")
@click.pass_obj
def convert_episodes(
    cli: CliContext, source: str, target: str, source_format: str | None, target_format: str | None
) -> None:
    """Convert episodes from WShard to another format, or back.

    The other formats are npz (Dreamer), hdf5 (robomimic), lerobot (v3), and mcap (write only). SOURCE is a
    file or a directory of files. The report lists the fields that were kept, changed and lost.

    \b
      warp episodes convert lift.hdf5 episodes/
      warp episodes convert episodes/ dataset/ --to lerobot
    """
    from warpdata.formats.convert import convert

    if is_address(source) and not Path(source).exists():
        raise BadInputError(
            f"{source} is no file or directory; convert does not read datasets",
            hint="In Python, save_wshard(episode.load(), path) writes an episode of a dataset to a file.",
        )
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
