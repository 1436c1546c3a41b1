"""docs/reference/cli.md, written from the command tree: `python -m warpdata.cli.reference` prints it.

A test compares it with the committed file.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from warpdata.cli.failures import EXIT_CODES
from warpdata.cli.options import WarpCommand
from warpdata.cli.tree import SECTIONS, warp

__all__ = ["render_reference"]

_OPENING = """\
# The `warp` command

<!-- Written by `python -m warpdata.cli.reference`; change the commands, not this file. -->

Data goes to stdout; progress, notes and errors go to stderr. Progress appears only on a terminal,
for what takes longer than half a second. Every command that touches a store takes `--store`, and
every listing takes `--json`, which prints one JSON document with the keys named below: keys may be
added, but none is renamed or dropped.

A dataset is named `WORKSPACE/NAME`. `@REF` after it means a version (or at least its first 8 digits),
a label or a branch; without it the newest version on the branch `main` is meant.
"""

_SHARED = ("as_json", "store", "quiet", "debug")
_WIDTH = 100


def render_reference() -> str:
    return "\n".join(_lines()).rstrip() + "\n"


def _lines() -> Iterator[str]:
    yield _OPENING
    for title, section in SECTIONS.items():
        yield f"**{title}:** " + " · ".join(f"[`{name}`](#warp-{name})" for name in section)
        yield ""
    yield from _shared_options()
    yield from _exit_codes()
    root = _root()
    for section in SECTIONS.values():
        for name in section:
            command = warp.get_command(root, name)
            assert isinstance(command, WarpCommand), name
            yield from _command(command, click.Context(command, info_name=name, parent=root))


def _root() -> click.Context:
    """A context whose width does not depend on who runs this where."""
    return click.Context(warp, info_name="warp", terminal_width=_WIDTH, **warp.context_settings)


def _shared_options() -> Iterator[str]:
    yield "## Shared options\n"
    root = _root()
    command = warp.get_command(root, "info")
    assert command is not None
    yield from _options(command, click.Context(command, info_name="info", parent=root), shared=True)


def _exit_codes() -> Iterator[str]:
    yield "## Exit codes\n"
    yield "| code | meaning |"
    yield "|---|---|"
    for code, meaning in EXIT_CODES.items():
        yield f"| {code} | {meaning} |"
    yield ""


def _command(command: WarpCommand, ctx: click.Context) -> Iterator[str]:
    yield f"## warp {command.name}\n"
    yield f"```\n{command.get_usage(ctx).removeprefix('Usage: ')}\n```\n"
    yield from _prose(inspect.cleandoc(command.help or ""))
    yield from _options(command, ctx, shared=False)
    if command.json_keys:
        yield "With `--json`:\n"
        for key, meaning in command.json_keys.items():
            yield f"- `{key}`: {meaning}"
        yield ""


def _prose(text: str) -> Iterator[str]:
    """Paragraphs as they are; what click keeps unwrapped becomes a code block."""
    for paragraph in text.split("\n\n"):
        if paragraph.startswith("\b"):
            yield f"```sh\n{inspect.cleandoc(paragraph.lstrip(chr(8)))}\n```\n"
        else:
            yield f"{paragraph}\n"


def _options(command: click.Command, ctx: click.Context, *, shared: bool) -> Iterator[str]:
    rows = [
        record
        for parameter in command.get_params(ctx)
        if isinstance(parameter, click.Option) and "--help" not in parameter.opts
        if (parameter.name in _SHARED) is shared
        if (record := parameter.get_help_record(ctx)) is not None
    ]
    if rows:
        yield "| option | meaning |"
        yield "|---|---|"
        for spelling, meaning in rows:
            yield f"| `{spelling.replace('|', chr(92) + '|')}` | {' '.join(meaning.split())} |"
        yield ""


if __name__ == "__main__":
    click.echo(render_reference(), nl=False)
