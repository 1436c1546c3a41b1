"""Values on the command line that are more than text: `KEY=VALUE` pairs and `RANK/WORLD`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    ParameterType = click.ParamType[Any]
else:
    ParameterType = click.ParamType  # not generic at run time in every click we support

__all__ = ["PairType", "ParameterType", "ShardType"]


class PairType(ParameterType):
    """`KEY=VALUE`, as a tuple."""

    name = "pair"

    def __init__(self, form: str) -> None:
        self._form = form

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, tuple):
            return value
        key, equals, rest = str(value).partition("=")
        if not (key and equals and rest):
            self.fail(f"{value!r} is not of the form {self._form}", param, ctx)
        return key, rest


class ShardType(ParameterType):
    """`auto`, or RANK/WORLD such as 0/4, as a tuple."""

    name = "shard"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "auto" or isinstance(value, tuple):
            return value
        rank, slash, world = str(value).partition("/")
        if not (slash and rank.isdecimal() and world.isdecimal() and int(rank) < int(world)):
            self.fail(f"{value!r} is neither auto nor RANK/WORLD such as 0/4, with RANK below WORLD", param, ctx)
        return int(rank), int(world)
