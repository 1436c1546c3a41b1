"""docs/reference/cli.md, written from the command tree: `python -m warpdata.cli.reference` prints it.

A test compares it with the committed file.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import click

from warpdata.cli.app import SECTIONS, warp
from warpdata.cli.exit_codes import EXIT_CODES
from warpdata.cli.options import WarpCommand, WarpGroup

__all__ = ["render_reference"]

_OPENING = """\
# The `warp` command

<!-- Written by `python -m warpdata.cli.reference`; change the commands, not this file. -->

Data goes to stdout; progress, notes and errors go to stderr. Progress appears only on a terminal,
for what takes longer than half a second. Every command that touches a store takes `--store`, every
one that reads a version `--mode`, and every listing takes `--json`, which prints one JSON document with
the keys named below: keys may be added, but none is renamed or dropped. Sizes are written as `200GB`,
`128MiB` or plain bytes.

A dataset is named `WORKSPACE/NAME`. `@REF` after it means a version (or at least its first 8 digits),
a label or a branch; without it the newest version on the branch `main` is meant.

For a walk through raw media, from a folder of pictures to training, see [the guide](../guides/media.md).
"""

_SHARED = ("as_json", "store", "mode", "quiet", "debug")
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
            found = warp.get_command(root, name)
            assert found is not None, name
            yield from _entry(found, click.Context(found, info_name=name, parent=root))


def _root() -> click.Context:
    """A context whose width does not depend on who runs this where."""
    return click.Context(warp, info_name="warp", terminal_width=_WIDTH, **warp.context_settings)


def _shared_options() -> Iterator[str]:
    yield "## Shared options\n"
    root = _root()
    command = warp.get_command(root, "info")
    assert command is not None
    yield from _table("", _options(command, click.Context(command, info_name="info", parent=root), shared=True))


def _exit_codes() -> Iterator[str]:
    yield "## Exit codes\n"
    yield "| code | meaning |"
    yield "|---|---|"
    for code, meaning in EXIT_CODES.items():
        yield f"| {code} | {meaning} |"
    yield ""


def _entry(command: click.Command, ctx: click.Context) -> Iterator[str]:
    if isinstance(command, WarpCommand):
        yield from _command(command, ctx, "##", told=_Told((), {}))
        return
    assert isinstance(command, WarpGroup), command
    yield f"## warp {command.name}\n"
    yield from _prose(inspect.cleandoc(command.help or ""))
    below = [(each, click.Context(each, info_name=name, parent=ctx)) for name, each in command.commands.items()]
    commands = [(each, its_ctx) for each, its_ctx in below if isinstance(each, WarpCommand)]
    assert len(commands) == len(below), command
    told = _in_common(commands)
    yield from _table("All of them take", told.options)
    yield from _json_keys(told.json_keys)
    for each, its_ctx in commands:
        yield from _command(each, its_ctx, "###", told)


@dataclass(frozen=True, slots=True)
class _Told:
    """What the commands of a group have in common, which is told once."""

    options: tuple[tuple[str, str], ...]
    json_keys: Mapping[str, str]


def _in_common(commands: Sequence[tuple[WarpCommand, click.Context]]) -> _Told:
    first, *others = [_options(command, ctx, shared=False) for command, ctx in commands]
    options = tuple(row for row in first if all(row in rows for rows in others))
    keys = commands[0][0].json_keys
    return _Told(options, keys if all(command.json_keys == keys for command, _ in commands) else {})


def _command(command: WarpCommand, ctx: click.Context, mark: str, told: _Told) -> Iterator[str]:
    yield f"{mark} {ctx.command_path}\n"
    yield f"```\n{command.get_usage(ctx).removeprefix('Usage: ')}\n```\n"
    yield from _prose(inspect.cleandoc(command.help or ""))
    yield from _table("", [row for row in _options(command, ctx, shared=False) if row not in told.options])
    if command.json_keys != told.json_keys:
        yield from _json_keys(command.json_keys)


def _json_keys(keys: Mapping[str, str]) -> Iterator[str]:
    if keys:
        yield "With `--json`:\n"
        for key, meaning in keys.items():
            yield f"- `{key}`: {meaning}"
        yield ""


def _prose(text: str) -> Iterator[str]:
    """Paragraphs as they are; what click keeps unwrapped becomes a code block."""
    for paragraph in text.split("\n\n"):
        if paragraph.startswith("\b"):
            yield f"```sh\n{inspect.cleandoc(paragraph.lstrip(chr(8)))}\n```\n"
        else:
            yield f"{paragraph}\n"


def _options(command: click.Command, ctx: click.Context, *, shared: bool) -> list[tuple[str, str]]:
    """How each is spelled, and what it means."""
    return [
        record
        for parameter in command.get_params(ctx)
        if isinstance(parameter, click.Option) and "--help" not in parameter.opts
        if (parameter.name in _SHARED) is shared
        if (record := parameter.get_help_record(ctx)) is not None
    ]


def _table(title: str, rows: Sequence[tuple[str, str]]) -> Iterator[str]:
    if rows:
        if title:
            yield f"{title}:\n"
        yield "| option | meaning |"
        yield "|---|---|"
        for spelling, meaning in rows:
            yield f"| `{spelling.replace('|', chr(92) + '|')}` | {' '.join(meaning.split())} |"
        yield ""


if __name__ == "__main__":
    click.echo(render_reference(), nl=False)
