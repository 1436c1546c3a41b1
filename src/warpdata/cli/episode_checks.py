"""`warp episodes verify` and `warp episodes recover`: is it whole, and if not, what can be saved?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from warpdata.cli.context import Invocation
from warpdata.cli.episode_targets import ShownEpisode, every
from warpdata.cli.exit_codes import CORRUPT, complain
from warpdata.cli.format import bytes_text, count_text, short
from warpdata.cli.options import command, episodes_option
from warpdata.cli.output import print_facts, print_json, print_line
from warpdata.errors import CorruptError, LimitExceededError, UnsupportedError
from warpdata.formats.wshard import recover

__all__ = ["recover_episode", "verify_episodes"]


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
def verify_episodes(ctx: click.Context, invocation: Invocation, targets: tuple[str, ...], episodes: str | None) -> None:
    """Read episodes whole, and compare them with their checksums.

    Every block is decoded, seals are checked, and those of a dataset are compared with its index. Exits with
    8 if any is damaged.
    """
    invocation.mode = "remote"  # what is nearer is not what was asked about
    with invocation.meter("Checking"):
        found = [_finding(name, opening) for name, opening in every(invocation, targets, episodes)]
    damaged = [finding for finding in found if finding["problem"] is not None]
    if invocation.as_json:
        print_json({"ok": not damaged, "episodes": found})
    else:
        for finding in found:
            print_line(f"{finding['name']}: {finding['problem'] or 'whole, ' + short(finding['identity'])}")
    if damaged:
        complain(f"{count_text(len(damaged), 'episode')} of {len(found)} cannot be believed")
        ctx.exit(CORRUPT)


def _finding(name: str, opening: Callable[[], ShownEpisode]) -> dict[str, Any]:
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
def recover_episode(invocation: Invocation, journal: Path, output: Path | None, remove: bool) -> None:
    """Make an episode of a recording that did not end.

    Every step that was written to the journal comes back, and what was lost is said.
    """
    with invocation.meter(f"Recovering {journal}"):
        done = recover(journal, output, remove_partial=remove)
    if invocation.as_json:
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
