"""Types of command-line values: dataset names, pairs, ranks, sizes, slices, artifacts and bindings.

Dataset names are completed from the store, and names of tables and columns from the manifest. Completion makes few
requests with short timeouts, reads no data, and offers nothing on failure. The library validates the names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

import warpdata
from warpdata.cli.context import CliContext
from warpdata.errors import BadInputError
from warpdata.primitives.sizes import parse_size

if TYPE_CHECKING:
    from warpdata.repository.manifest import Manifest
    from warpdata.session import Session

    ParameterType = click.ParamType[Any]
else:
    ParameterType = click.ParamType  # not generic at run time in every supported version of click

__all__ = [
    "ADDRESS",
    "DATASET_ID",
    "STORE_URL",
    "AddressType",
    "ArtifactType",
    "BindingType",
    "EntryType",
    "MediaType",
    "PairType",
    "ParameterType",
    "RefType",
    "ShardType",
    "SizeType",
    "SliceType",
]

_COMPLETION_TIMEOUT_S = 1.0
_MAX_WORKSPACES = 20
_MAX_COMPLETIONS = 200
_MAX_ANCESTORS = 10


class AddressType(ParameterType):
    """`WORKSPACE/NAME`, with an optional `@REF` if `takes_ref`."""

    name = "dataset"

    def __init__(self, *, takes_ref: bool) -> None:
        self._takes_ref = takes_ref

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        try:
            found = list(self._complete(_connect_for_completion(ctx.ensure_object(CliContext).store), incomplete))
        except Exception:  # noqa: BLE001 - completion must never print an error
            return []
        return [CompletionItem(text) for text in found[:_MAX_COMPLETIONS]]

    def _complete(self, session: Session, incomplete: str) -> Iterator[str]:
        catalog = session.catalog
        dataset_id, at, ref = incomplete.partition("@")
        if at:
            if self._takes_ref:
                yield from (f"{dataset_id}@{name}" for name in _complete_ref(session, dataset_id, ref))
            return
        workspace, slash, _ = incomplete.partition("/")
        workspaces = [workspace] if slash else session.reader.list_folders("datasets")
        for found in [name for name in workspaces if name.startswith(workspace)][:_MAX_WORKSPACES]:
            yield from (name for name in catalog.datasets(found) if name.startswith(incomplete))


class RefType(ParameterType):
    """A version, label or branch of the dataset on the command line, perhaps with steps back or a time."""

    name = "ref"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        try:
            session = _connect_for_completion(ctx.ensure_object(CliContext).store)
            found = list(_complete_ref(session, ctx.params["dataset_id"], incomplete))
        except Exception:  # noqa: BLE001 - completion must never print an error
            return []
        return [CompletionItem(text) for text in found[:_MAX_COMPLETIONS]]


def _complete_ref(session: Session, dataset_id: str, incomplete: str) -> Iterator[str]:
    """Yield branches and labels; after `~` the numbers of earlier commits, and after `@` their times."""
    from warpdata.repository.catalog import Address

    catalog = session.catalog
    name, tilde, _ = incomplete.partition("~")
    name, at, _ = name.partition("@")
    if not tilde and not at:
        names = [*catalog.branches(dataset_id), *(label.name for label in catalog.labels(dataset_id))]
        yield from (found for found in sorted(names) if found.startswith(incomplete))
        return
    resolved = catalog.resolve(Address(dataset_id, name))
    for back, entry in enumerate(catalog.history(resolved, _MAX_ANCESTORS)):
        found = f"{name}~{back}" if tilde else f"{name}@{entry.commit.time}"
        if found.startswith(incomplete) and (back or at):
            yield found


def _connect_for_completion(store: str | None) -> Session:
    from warpdata.session import connect  # `wd.connect` also loads Arrow, which a shell would wait for

    settings = replace(
        warpdata.load_settings(),
        timeout_s=_COMPLETION_TIMEOUT_S,
        connect_timeout_s=_COMPLETION_TIMEOUT_S,
        retry_timeout_s=_COMPLETION_TIMEOUT_S,
        max_retries=0,
    )
    return connect(store, settings)


class EntryType(ParameterType):
    """The name of a table, column, artifact or set in the dataset of the command line.

    `section` is a section of the manifest, or "columns". With `is_list`, names are separated by commas.
    """

    name = "text"

    def __init__(self, section: str, *, is_list: bool = False) -> None:
        self._section = section
        self._is_list = is_list

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        try:
            return [CompletionItem(text) for text in self._complete(ctx, incomplete)][:_MAX_COMPLETIONS]
        except Exception:  # noqa: BLE001 - completion must never print an error
            return []

    def _complete(self, ctx: click.Context, incomplete: str) -> Iterator[str]:
        from warpdata.repository.catalog import parse_address

        session = _connect_for_completion(ctx.ensure_object(CliContext).store)
        # Click leaves positional words in `args` when the last option has no value yet.
        given = ctx.params.get("address") or ctx.params.get("dataset_id")
        address = given or next(word for word in ctx.args if "/" in word)
        _, manifest = session.catalog.open(parse_address(address))
        before, comma, word = incomplete.rpartition(",") if self._is_list else ("", "", incomplete)
        used = set(before.split(","))
        for name in self._names(manifest, ctx.params.get("table")):
            # A shell would split other names, and a list has no way to quote a comma.
            if name.startswith(word) and name not in used and name.isprintable() and not set(name) & set(" ,'\"\\$`"):
                yield f"{before}{comma}{name}"

    def _names(self, manifest: Manifest, table: str | None) -> Sequence[str]:
        if self._section != "columns":
            return sorted(manifest.sections()[self._section])
        entries = manifest.tables
        chosen = table or ("main" if len(entries) != 1 else next(iter(entries)))
        return entries[chosen].column_names or ()


class StoreType(ParameterType):
    """A URL or a path, completed as a directory."""

    name = "store"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(incomplete, type="dir")]


ADDRESS = AddressType(takes_ref=True)
DATASET_ID = AddressType(takes_ref=False)
STORE_URL = StoreType()


class PairType(ParameterType):
    """`KEY=VALUE`, converted to a tuple. With `allows_empty`, the value may be empty text."""

    name = "pair"

    def __init__(self, form: str, *, allows_empty: bool = False) -> None:
        self._form = form
        self._allows_empty = allows_empty

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, tuple):
            return value
        key, equals, rest = str(value).partition("=")
        if not (key and equals and (rest or self._allows_empty)):
            self.fail(f"{value!r} is not of the form {self._form}", param, ctx)
        return key, rest


class ShardType(ParameterType):
    """`auto`, or `RANK/WORLD` such as 0/4, converted to a tuple."""

    name = "shard"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "auto" or isinstance(value, tuple):
            return value
        rank, slash, world = str(value).partition("/")
        if not (slash and rank.isdecimal() and world.isdecimal() and int(rank) < int(world)):
            self.fail(f"{value!r} is neither auto nor RANK/WORLD such as 0/4, with RANK below WORLD", param, ctx)
        return int(rank), int(world)


class SizeType(ParameterType):
    """`200GB` or `128MiB`, converted to a number of bytes. A plain number has the given unit."""

    name = "size"

    def __init__(self, unit: str = "") -> None:
        self._unit = unit

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        is_plain = isinstance(value, str) and value.replace(".", "", 1).strip().isdecimal()
        try:
            return parse_size(f"{value.strip()}{self._unit}" if is_plain else value)
        except BadInputError as error:
            self.fail(f"{error.message}. {error.hint or ''}".strip(), param, ctx)


class SliceType(ParameterType):
    """`0:50`, `50:`, `:50` or a single number, converted to a slice."""

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
    """`NAME[:KIND]=PATH`, converted to `(name, kind, path)`."""

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
    """`TABLE.COLUMN=ARTIFACT[:TYPE]`, converted to `(table_and_column, artifact, ref_type)`.

    Table and column stay together: both may contain dots, and only the command knows the tables.
    """

    name = "binding"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, tuple):
            return value
        table_and_column, equals, target = str(value).rpartition("=")
        artifact, colon, ref_type = target.partition(":")
        table, dot, column = table_and_column.partition(".")
        if not (table and dot and column and equals and artifact and bool(ref_type) == bool(colon)):
            self.fail(f"{value!r} is not of the form TABLE.COLUMN=ARTIFACT[:TYPE]", param, ctx)
        return table_and_column, artifact, ref_type or "file"


class MediaType(ParameterType):
    """`COLUMN=DIRECTORY[:TYPE]`, converted to `(column, directory, ref_type)`. The type may be None."""

    name = "media"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, tuple):
            return value
        column, equals, target = str(value).partition("=")
        directory, colon, ref_type = target.rpartition(":")
        if not colon or "/" in ref_type:
            directory, ref_type = target, ""
        if not (column and equals and directory):
            self.fail(f"{value!r} is not of the form COLUMN=DIRECTORY[:TYPE]", param, ctx)
        return column, directory, ref_type or None
