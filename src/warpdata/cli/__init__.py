"""The `warp` command: people may ask. The only package that prints and exits.

Data goes to stdout, everything else to stderr. docs/reference/cli.md is generated from the command
tree by `python -m warpdata.cli.reference`.
"""

from warpdata.cli.app import warp
from warpdata.cli.exit_codes import exit_on_interrupt

__all__ = [
    "exit_on_interrupt",
    "main",
    "warp",
]


def main() -> None:
    """Run the command line of this process, and exit."""
    exit_on_interrupt()
    warp.main(prog_name="warp")
