"""The `warp` command. The only package that prints and exits.

Data goes to stdout, everything else to stderr. `python -m warpdata.cli.reference` generates
docs/reference/cli.md from the commands.
"""

from warpdata.cli.app import warp
from warpdata.cli.exit_codes import exit_on_interrupt

__all__ = [
    "exit_on_interrupt",
    "main",
    "warp",
]


def main() -> None:
    """Run the command line of this process, then exit."""
    exit_on_interrupt()
    warp.main(prog_name="warp")
