"""Shared options and arguments, and the decorators that define a command or a group."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

import click

from warpdata.cli.context import CliContext
from warpdata.cli.parameters import ADDRESS, DATASET_ID, STORE_URL, EntryType
from warpdata.cli.terminal import write_text
from warpdata.primitives.suggest import suggest

__all__ = [
    "WarpCommand",
    "WarpGroup",
    "address_argument",
    "apply_options",
    "artifact_option",
    "columns_option",
    "command",
    "dataset_argument",
    "episodes_option",
    "fail_unknown_command",
    "filter_option",
    "group",
    "names_option",
    "split_names",
    "table_option",
]

_MODES = ("auto", "remote", "hybrid", "local")

_F = TypeVar("_F", bound=Callable[..., Any])


class WarpCommand(click.Command):
    """A command with documented keys of its `--json` document, shown in the help and the reference."""

    json_keys: Mapping[str, str] = {}

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        if self.json_keys:
            with formatter.section("JSON keys"):
                formatter.write_dl(list(self.json_keys.items()))


class WarpGroup(click.Group):
    """Commands under a common first word, such as `warp cache stats`. The first word alone prints the help."""

    default_command: str | None = None
    """The command that is meant if another word follows, for a command that became a group."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            if self.default_command is None:
                fail_unknown_command(ctx, args[0], self.commands)
            args = [self.default_command, *args]
        return super().resolve_command(ctx, args)


def fail_unknown_command(
    ctx: click.Context, name: str, known: Iterable[str], meanings: Mapping[str, str] | None = None
) -> NoReturn:
    """Fail with a usage error. The next step is by meaning, or else a command with a similar name."""
    hint = (meanings or {}).get(name.lower()) or suggest(name, known, count=1)
    ctx.fail(" ".join(filter(None, (f"unknown command {name!r}.", hint))))


def group(name: str) -> Callable[[Callable[..., Any]], WarpGroup]:
    """Define a group. The function's docstring is the help; its body never runs."""

    def decorate(function: Callable[..., Any]) -> WarpGroup:
        @click.pass_context
        def show_help(ctx: click.Context) -> None:
            if ctx.invoked_subcommand is None:
                write_text(ctx.get_help())

        return WarpGroup(name, callback=show_help, help=function.__doc__, invoke_without_command=True)

    return decorate


def command(
    name: str, *, json_keys: Mapping[str, str] | None = None, uses_store: bool = True, reads: bool = False
) -> Callable[[Callable[..., Any]], WarpCommand]:
    """Define a command with the shared options.

    `json_keys` adds `--json`, `uses_store` adds `--store`, and `reads` adds `--mode`.
    """

    def decorate(function: Callable[..., Any]) -> WarpCommand:
        made = click.command(name, cls=WarpCommand)(function)
        made.json_keys = json_keys or {}
        if json_keys:
            made.params.append(_flag("as_json", "--json", "Print one JSON document."))
        if uses_store:
            made.params.append(_store_option())
        if reads:
            made.params.append(_mode_option())
        made.params.append(_flag("quiet", "--quiet", "Hide progress.", "-q"))
        made.params.append(_flag("debug", "--debug", "Print a traceback on failure."))
        return made

    return decorate


def apply_options(function: _F, options: Sequence[Callable[[_F], _F]]) -> _F:
    """Apply decorators as if they were written above the function in this order."""
    for option in reversed(options):
        function = option(function)
    return function


def address_argument(name: str = "address", **settings: Any) -> Callable[[_F], _F]:
    """Add the argument `WORKSPACE/NAME[@REF]`, completed from the store."""
    return click.argument(name, type=ADDRESS, **{"metavar": "ID[@REF]", **settings})


def dataset_argument() -> Callable[[_F], _F]:
    """Add the argument `WORKSPACE/NAME`, completed from the store."""
    return click.argument("dataset_id", type=DATASET_ID, metavar="ID")


def table_option(text: str = 'Table to read. Default: the only table, or "main".') -> Callable[[_F], _F]:
    return click.option("--table", type=EntryType("tables"), metavar="NAME", help=text)


def artifact_option() -> Callable[[_F], _F]:
    return click.option(
        "--artifact", type=EntryType("artifacts"), metavar="NAME", help="Artifact to read. Default: the only one."
    )


def episodes_option() -> Callable[[_F], _F]:
    return click.option("--episodes", metavar="NAME", help="Set of episodes to read. Default: the only one.")


def columns_option() -> Callable[[_F], _F]:
    return names_option("--columns", "Read only these columns, in this order.")


def filter_option() -> Callable[[_F], _F]:
    return click.option(
        "--filter", "expression", metavar="SQL", help='Keep only the rows that match, such as "fare > 20".'
    )


def names_option(option: str, text: str) -> Callable[[_F], _F]:
    """Add an option that takes `A,B` and may be repeated. Its name is a section of the manifest, or `--columns`."""
    names = EntryType(option.removeprefix("--"), is_list=True)
    return click.option(option, type=names, multiple=True, metavar="A,B", callback=split_names, help=text)


def split_names(_ctx: click.Context, _parameter: click.Parameter, values: Sequence[str]) -> tuple[str, ...]:
    """Split the values of an option that takes `A,B` and may be repeated."""
    return tuple(name for value in values for name in value.split(",") if name)


def _store_option() -> click.Option:
    return click.Option(
        ["--store"],
        metavar="URL",
        type=STORE_URL,
        expose_value=False,
        is_eager=True,
        callback=_set_field("store"),
        help="Path, s3://…, gs://…, az://… or https://… URL. Default: WARP_STORE, or the local default store.",
    )


def _mode_option() -> click.Option:
    return click.Option(
        ["--mode"],
        type=click.Choice(_MODES),
        expose_value=False,
        is_eager=True,
        callback=_set_field("mode"),
        help="Use of the cache for remote stores: auto caches data that is read often, remote writes nothing to disk, "
        "hybrid prefetches, local makes no network requests. Default: WARP_MODE, or auto.",
    )


def _flag(field: str, option: str, text: str, *short: str) -> click.Option:
    return click.Option(
        [*short, option, field],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_set_field(field),
        help=text,
    )


def _set_field(field: str) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Return an option callback that sets a field of the `CliContext`."""

    def set_field(ctx: click.Context, _parameter: click.Parameter, value: Any) -> Any:
        if value:
            setattr(ctx.ensure_object(CliContext), field, value)
        return value

    return set_field
