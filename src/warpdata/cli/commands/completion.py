"""`warp completion`: shell completion for commands, options and dataset names."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from warpdata.cli.app import warp
from warpdata.cli.options import command
from warpdata.cli.output import note, print_line
from warpdata.cli.terminal import write_text
from warpdata.errors import BadInputError, UnsupportedError

__all__ = ["SHELLS", "Installation", "completion", "completion_script", "install_completion", "login_shell"]


SHELLS = ("bash", "zsh", "fish")
_MARK = "# added by `warp completion install`"

_PREAMBLES = {
    # By default bash splits workspace/name@ref at the @ and completes the wrong word.
    "bash": "COMP_WORDBREAKS=${COMP_WORDBREAKS//@/}\n",
    "zsh": "(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }\n",
    "fish": "",
}


@command("completion", uses_store=False)
@click.argument("action", type=click.Choice(["install", "show"]))
@click.option("--shell", type=click.Choice(SHELLS), help="Shell to set up. Default: your login shell.")
def completion(action: str, shell: str | None) -> None:
    """Set up shell completion.

    Completes commands, options, and names in the store: of datasets, labels and branches, and of the tables,
    columns and artifacts of the dataset on the command line. `install` writes
    the completion script and makes the shell load it; repeating it is safe. `show` prints the script.
    """
    shell = shell or login_shell()
    if action == "show":
        write_text(completion_script(shell))
        return
    done = install_completion(shell, Path.home())
    for path in done.changed:
        print_line(f"wrote {path}")
    if done.changed:
        note(f"start a new {shell} to use it")
    else:
        print_line(f"already installed: {done.script}")


@dataclass(frozen=True, slots=True)
class Installation:
    """Result of an installation. `changed` lists the written files, and is empty if all were current."""

    shell: str
    script: Path
    changed: tuple[Path, ...]


def login_shell() -> str:
    """Return the user's login shell, or bash if it is unknown."""
    try:
        import os
        import pwd

        name = Path(pwd.getpwuid(os.getuid()).pw_shell).name
    except (ImportError, KeyError):
        return "bash"
    return name if name in SHELLS else "bash"


def completion_script(shell: str) -> str:
    kind = get_completion_class(shell)
    if kind is None:
        raise UnsupportedError(f"completion is not supported for {shell}")
    template = kind.source_template % kind(warp, {}, "warp", "_WARP_COMPLETE").source_vars()
    first, newline, rest = template.partition("\n")
    if first.startswith("#compdef"):
        return f"{first}{newline}{_PREAMBLES[shell]}{rest}"
    return f"{_PREAMBLES[shell]}{template}"


def install_completion(shell: str, home: Path) -> Installation:
    """Write the script, and for bash and zsh a line in the startup file that loads it. Idempotent."""
    script, startup = _paths(shell, home)
    changed = []
    try:
        if _write_if_different(script, completion_script(shell)):
            changed.append(script)
        if startup is not None and _add_line(startup, f"source {shlex.quote(str(script))}  {_MARK}"):
            changed.append(startup)
    except OSError as error:
        raise BadInputError(f"{error.filename} cannot be written: {error.strerror}") from error
    return Installation(shell, script, tuple(changed))


def _paths(shell: str, home: Path) -> tuple[Path, Path | None]:
    import platformdirs

    if shell == "fish":
        return home / ".config" / "fish" / "completions" / "warp.fish", None
    script = Path(platformdirs.user_data_dir("warpdata"), "completion", f"warp.{shell}")
    return script, home / (".bashrc" if shell == "bash" else ".zshrc")


def _write_if_different(path: Path, text: str) -> bool:
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return True


def _add_line(path: Path, line: str) -> bool:
    """Add or replace the line with `_MARK`. Other lines stay unchanged."""
    old = path.read_text(encoding="utf-8") if path.exists() else ""
    kept = [existing for existing in old.splitlines() if _MARK not in existing]
    new = "\n".join([*kept, line, ""])
    if new == old:
        return False
    path.write_text(new, encoding="utf-8")
    return True
