"""Options and arguments that commands share, and the decorator that makes a command of a function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

from warpdata.cli.invocation import Invocation
from warpdata.cli.names import ADDRESS, DATASET_ID, STORE_URL

__all__ = [
    "WarpCommand",
    "address_argument",
    "columns_option",
    "command",
    "dataset_argument",
    "filter_option",
    "table_option",
]

_F = TypeVar("_F", bound=Callable[..., Any])


class WarpCommand(click.Command):
    """A command that knows the keys of its `--json` document, so that help and reference can show them."""

    json_keys: Mapping[str, str] = {}

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        if self.json_keys:
            with formatter.section("JSON keys"):
                formatter.write_dl(list(self.json_keys.items()))


def command(
    name: str, *, json_keys: Mapping[str, str] | None = None, uses_store: bool = True
) -> Callable[[Callable[..., Any]], WarpCommand]:
    """Make a command with the shared options; with `json_keys` it also takes `--json`."""

    def decorate(function: Callable[..., Any]) -> WarpCommand:
        made = click.command(name, cls=WarpCommand)(function)
        made.json_keys = json_keys or {}
        if json_keys:
            made.params.append(_flag("as_json", "--json", "Print one JSON document."))
        if uses_store:
            made.params.append(_store_option())
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


def columns_option() -> Callable[[_F], _F]:
    return click.option(
        "--columns", multiple=True, metavar="A,B", callback=_split_columns, help="Only these columns, in this order."
    )


def filter_option() -> Callable[[_F], _F]:
    return click.option(
        "--filter", "expression", metavar="SQL", help='Only rows for which this is true, such as "fare > 20".'
    )


def _split_columns(_ctx: click.Context, _parameter: click.Parameter, values: Sequence[str]) -> tuple[str, ...]:
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
    """Put the value into the `Invocation`, where every command finds it."""

    def keep(ctx: click.Context, _parameter: click.Parameter, value: Any) -> Any:
        if value:
            setattr(ctx.ensure_object(Invocation), field, value)
        return value

    return keep
