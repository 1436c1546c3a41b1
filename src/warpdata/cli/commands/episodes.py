"""`warp episodes`: what can be done with episode files."""

from __future__ import annotations

from warpdata.cli.commands.convert_episodes import convert_episodes
from warpdata.cli.options import group

__all__ = ["episodes"]


@group("episodes")
def episodes() -> None:
    """Convert episode files from and to other formats.

    An episode is one recording of a robot or an agent, in one WShard file.
    """


episodes.add_command(convert_episodes)
