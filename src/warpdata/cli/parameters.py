"""Values on the command line that are more than text: pairs, ranks, sizes, slices, artifacts and bindings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from warpdata.errors import BadInputError
from warpdata.primitives.sizes import parse_size

if TYPE_CHECKING:
    ParameterType = click.ParamType[Any]
else:
    ParameterType = click.ParamType  # not generic at run time in every click we support

__all__ = [
    "ArtifactType",
    "BindingType",
    "MediaType",
    "PairType",
    "ParameterType",
    "ShardType",
    "SizeType",
    "SliceType",
]


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


class SizeType(ParameterType):
    """`200GB`, `128MiB` or plain bytes, as a number."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return parse_size(value)
        except BadInputError as error:
            self.fail(f"{error.message}. {error.hint or ''}".strip(), param, ctx)


class SliceType(ParameterType):
    """`0:50`, `50:`, `:50` or a single number, as a slice."""

    name = "slice"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, slice):
            return value
        first, colon, last = str(value).partition(":")
        if not all(part.isdecimal() or (colon and not part) for part in (first, last if colon else first)):
            self.fail(f"{value!r} is not of the form 0:50, 50:, :50 or 7", param, ctx)
        start = int(first) if first else None
        if colon:
            return slice(start, int(last) if last else None)
        return slice(start, int(first) + 1)


class ArtifactType(ParameterType):
    """`NAME=PATH` or `NAME:KIND=PATH`, as a tuple of name, kind and path."""

    name = "artifact"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, tuple):
            return value
        front, equals, path = str(value).partition("=")
        name, colon, kind = front.partition(":")
        if not (name and equals and path and bool(kind) == bool(colon)):
            self.fail(f"{value!r} is not of the form NAME[:KIND]=PATH", param, ctx)
        return name, kind or "tar_shards", path


class BindingType(ParameterType):
    """`TABLE.COLUMN=ARTIFACT` or `TABLE.COLUMN=ARTIFACT:TYPE`, as a tuple of both sides and the type.

    Tables and columns may have dots in their names, so whoever knows the tables takes them apart.
    """

    name = "binding"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, tuple):
            return value
        place, equals, target = str(value).rpartition("=")
        artifact, colon, ref_type = target.partition(":")
        table, dot, column = place.partition(".")
        if not (table and dot and column and equals and artifact and bool(ref_type) == bool(colon)):
            self.fail(f"{value!r} is not of the form TABLE.COLUMN=ARTIFACT[:TYPE]", param, ctx)
        return place, artifact, ref_type or "file"


class MediaType(ParameterType):
    """`COLUMN=FOLDER` or `COLUMN=FOLDER:TYPE`, as a tuple of column, folder and type or None."""

    name = "media"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, tuple):
            return value
        column, equals, target = str(value).partition("=")
        folder, colon, ref_type = target.rpartition(":")
        if not colon or "/" in ref_type:
            folder, ref_type = target, ""
        if not (column and equals and folder):
            self.fail(f"{value!r} is not of the form COLUMN=FOLDER[:TYPE]", param, ctx)
        return column, folder, ref_type or None
