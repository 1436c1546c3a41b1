"""`warp completion`: commands, options and dataset names, completed in the shell."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from warpdata.cli.app import warp
from warpdata.cli.options import command
from warpdata.cli.output import note, print_line
from warpdata.errors import BadInputError, UnsupportedError

__all__ = ["SHELLS", "Installation", "completion", "completion_script", "install_completion", "login_shell"]


SHELLS = ("bash", "zsh", "fish")


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


_MARK = "# added by `warp completion install`"

_BEFORE = {
    # bash would split workspace/name@ref at the @, and complete the wrong word.
    "bash": "COMP_WORDBREAKS=${COMP_WORDBREAKS//@/}\n",
    "zsh": "(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }\n",
    "fish": "",
}


@dataclass(frozen=True, slots=True)
class Installation:
    """`changed` lists the files that were written; none means that all was in place."""

    shell: str
    script: Path
    changed: tuple[Path, ...]


def login_shell() -> str:
    """The user's shell as the system knows it, or bash."""
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
        raise UnsupportedError(f"there is no completion for {shell}")
    template = kind.source_template % kind(warp, {}, "warp", "_WARP_COMPLETE").source_vars()
    first, newline, rest = template.partition("\n")
    if first.startswith("#compdef"):
        return f"{first}{newline}{_BEFORE[shell]}{rest}"
    return f"{_BEFORE[shell]}{template}"


def install_completion(shell: str, home: Path) -> Installation:
    """Write the script, and one line that loads it where the shell does not look by itself. Safe to repeat."""
    script, startup = _places(shell, home)
    changed = []
    try:
        if _write_if_different(script, completion_script(shell)):
            changed.append(script)
        if startup is not None and _add_line(startup, f"source {shlex.quote(str(script))}  {_MARK}"):
            changed.append(startup)
    except OSError as error:
        raise BadInputError(f"{error.filename} cannot be written: {error.strerror}") from error
    return Installation(shell, script, tuple(changed))


def _places(shell: str, home: Path) -> tuple[Path, Path | None]:
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
    """Add or renew our one line; everything else in the file stays as it is."""
    old = path.read_text(encoding="utf-8") if path.exists() else ""
    kept = [existing for existing in old.splitlines() if _MARK not in existing]
    new = "\n".join([*kept, line, ""])
    if new == old:
        return False
    path.write_text(new, encoding="utf-8")
    return True
