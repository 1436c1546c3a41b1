"""Options and arguments that commands share, and the decorator that makes a command of a function."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

import click

from warpdata.cli.context import CliContext
from warpdata.cli.parameters import ADDRESS, DATASET_ID, STORE_URL

__all__ = [
    "WarpCommand",
    "WarpGroup",
    "address_argument",
    "artifact_option",
    "columns_option",
    "command",
    "dataset_argument",
    "episodes_option",
    "filter_option",
    "group",
    "split_names",
    "table_option",
    "unknown_command",
]

_MODES = ("auto", "remote", "hybrid", "local")

_F = TypeVar("_F", bound=Callable[..., Any])


class WarpCommand(click.Command):
    """A command that knows the keys of its `--json` document, so that help and reference can show them."""

    json_keys: Mapping[str, str] = {}

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        if self.json_keys:
            with formatter.section("JSON keys"):
                formatter.write_dl(list(self.json_keys.items()))


class WarpGroup(click.Group):
    """Commands that share a first word, such as `warp cache stats`. Without a second word it shows its help."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            unknown_command(ctx, args[0], self.commands)
        return super().resolve_command(ctx, args)


def unknown_command(ctx: click.Context, name: str, known: Iterable[str]) -> NoReturn:
    """Fail, and name what may have been meant."""
    import difflib

    near = difflib.get_close_matches(name, list(known), n=1)
    guess = f" Did you mean {near[0]!r}?" if near else ""
    ctx.fail(f"there is no command {name!r}.{guess}")


def group(name: str) -> Callable[[Callable[..., Any]], WarpGroup]:
    """Make a group; the function's docstring is its help, and its body is never run."""

    def decorate(function: Callable[..., Any]) -> WarpGroup:
        @click.pass_context
        def show_help(ctx: click.Context) -> None:
            if ctx.invoked_subcommand is None:
                click.echo(ctx.get_help())

        return WarpGroup(name, callback=show_help, help=function.__doc__, invoke_without_command=True)

    return decorate


def command(
    name: str, *, json_keys: Mapping[str, str] | None = None, uses_store: bool = True, reads: bool = False
) -> Callable[[Callable[..., Any]], WarpCommand]:
    """Make a command with the shared options; with `json_keys` it also takes `--json`, if it `reads` also `--mode`."""

    def decorate(function: Callable[..., Any]) -> WarpCommand:
        made = click.command(name, cls=WarpCommand)(function)
        made.json_keys = json_keys or {}
        if json_keys:
            made.params.append(_flag("as_json", "--json", "Print one JSON document."))
        if uses_store:
            made.params.append(_store_option())
        if reads:
            made.params.append(_mode_option())
        made.params.append(_flag("quiet", "--quiet", "Show no progress.", "-q"))
        made.params.append(_flag("debug", "--debug", "Show where a failure came from."))
        return made

    return decorate


def address_argument(name: str = "address", **settings: Any) -> Callable[[_F], _F]:
    """`WORKSPACE/NAME[@REF]`, completed from the store."""
    return click.argument(name, type=ADDRESS, **{"metavar": "ID[@REF]", **settings})


def dataset_argument() -> Callable[[_F], _F]:
    """`WORKSPACE/NAME`, completed from the store."""
    return click.argument("dataset_id", type=DATASET_ID, metavar="ID")


def table_option(text: str = 'Which table; the only one or "main" by default.') -> Callable[[_F], _F]:
    return click.option("--table", metavar="NAME", help=text)


def artifact_option() -> Callable[[_F], _F]:
    return click.option("--artifact", metavar="NAME", help="Which artifact; the only one by default.")


def episodes_option() -> Callable[[_F], _F]:
    return click.option("--episodes", metavar="NAME", help="Which set of episodes; the only one by default.")


def columns_option() -> Callable[[_F], _F]:
    return click.option(
        "--columns", multiple=True, metavar="A,B", callback=split_names, help="Only these columns, in this order."
    )


def filter_option() -> Callable[[_F], _F]:
    return click.option(
        "--filter", "expression", metavar="SQL", help='Only rows for which this is true, such as "fare > 20".'
    )


def split_names(_ctx: click.Context, _parameter: click.Parameter, values: Sequence[str]) -> tuple[str, ...]:
    """For options that take `A,B` and may be repeated."""
    return tuple(name for value in values for name in value.split(",") if name)


def _store_option() -> click.Option:
    return click.Option(
        ["--store"],
        metavar="URL",
        type=STORE_URL,
        expose_value=False,
        is_eager=True,
        callback=_remember("store"),
        help="A path, s3://…, gs://…, az://… or https://…; WARP_STORE or the embedded default otherwise.",
    )


def _mode_option() -> click.Option:
    return click.Option(
        ["--mode"],
        type=click.Choice(_MODES),
        expose_value=False,
        is_eager=True,
        callback=_remember("mode"),
        help="Where the bytes of a remote store come from, for commands that read: auto keeps what is read often, "
        "remote writes nothing to disk, hybrid reads far ahead, local asks no network; WARP_MODE or auto otherwise.",
    )


def _flag(field: str, option: str, text: str, *short: str) -> click.Option:
    return click.Option(
        [*short, option, field],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_remember(field),
        help=text,
    )


def _remember(field: str) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Put the value into the `CliContext`, where every command finds it."""

    def keep(ctx: click.Context, _parameter: click.Parameter, value: Any) -> Any:
        if value:
            setattr(ctx.ensure_object(CliContext), field, value)
        return value

    return keep
