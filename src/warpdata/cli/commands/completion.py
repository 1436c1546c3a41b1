"""`warp completion`: commands, options and dataset names, completed in the shell."""

from __future__ import annotations

from pathlib import Path

import click

from warpdata.cli.options import command
from warpdata.cli.output import note, print_line
from warpdata.cli.shells import SHELLS, completion_script, install_completion, login_shell

__all__ = ["completion"]


@command("completion", uses_store=False)
@click.argument("action", type=click.Choice(["install", "show"]))
@click.option("--shell", type=click.Choice(SHELLS), help="Which shell; your login shell by default.")
def completion(action: str, shell: str | None) -> None:
    """Complete commands, options and dataset names in your shell.

    `install` writes the script and makes the shell load it; doing it again changes nothing. `show`
    prints the script. Dataset names, labels and branches come from the store, silently and with
    little patience.
    """
    shell = shell or login_shell()
    if action == "show":
        click.echo(completion_script(shell), nl=False)
        return
    done = install_completion(shell, Path.home())
    for path in done.changed:
        print_line(f"wrote {path}")
    if done.changed:
        note(f"open a new {shell} to use it")
    else:
        print_line(f"already in place: {done.script}")
