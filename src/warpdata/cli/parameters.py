"""Values on the command line that are more than text: pairs, ranks, sizes, slices, artifacts and bindings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

import warpdata
from warpdata.cli.context import CliContext
from warpdata.errors import BadInputError
from warpdata.primitives.sizes import parse_size

if TYPE_CHECKING:
    from warpdata.session import Session

__all__ = [
    "ADDRESS",
    "DATASET_ID",
    "STORE_URL",
    "ArtifactType",
    "BindingType",
    "MediaType",
    "NameType",
    "PairType",
    "ParameterType",
    "ShardType",
    "SizeType",
    "SliceType",
]

if TYPE_CHECKING:
    ParameterType = click.ParamType[Any]
else:
    ParameterType = click.ParamType  # not generic at run time in every click we support


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


_PATIENCE_S = 1.0
_MOST_WORKSPACES = 20
_MOST_SUGGESTIONS = 200


class NameType(ParameterType):
    """`WORKSPACE/NAME`, and `@REF` after it where a command takes one."""

    name = "dataset"

    def __init__(self, *, takes_ref: bool) -> None:
        self._takes_ref = takes_ref

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        try:
            found = list(self._suggest(_connect_impatiently(ctx.ensure_object(CliContext).store), incomplete))
        except Exception:  # noqa: BLE001 - a suggestion is never worth a message
            return []
        return [CompletionItem(text) for text in found[:_MOST_SUGGESTIONS]]

    def _suggest(self, session: Session, incomplete: str) -> Iterator[str]:
        catalog = session.catalog
        dataset_id, at, ref = incomplete.partition("@")
        if at:
            if self._takes_ref:
                names = [*catalog.branches(dataset_id), *(label.name for label in catalog.labels(dataset_id))]
                yield from (f"{dataset_id}@{name}" for name in sorted(names) if name.startswith(ref))
            return
        workspace, slash, _ = incomplete.partition("/")
        workspaces = [workspace] if slash else session.reader.list_folders("datasets")
        for found in [name for name in workspaces if name.startswith(workspace)][:_MOST_WORKSPACES]:
            yield from (name for name in catalog.datasets(found) if name.startswith(incomplete))


class StoreType(ParameterType):
    """A URL or a path; folders are completed."""

    name = "store"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(incomplete, type="dir")]


def _connect_impatiently(store: str | None) -> Session:
    settings = replace(
        warpdata.load_settings(),
        timeout_s=_PATIENCE_S,
        connect_timeout_s=_PATIENCE_S,
        retry_timeout_s=_PATIENCE_S,
        max_retries=0,
    )
    return warpdata.connect(store, settings)


ADDRESS = NameType(takes_ref=True)
DATASET_ID = NameType(takes_ref=False)
STORE_URL = StoreType()
