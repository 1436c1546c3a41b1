"""Parquet files that become shards in place: read and hashed once, and named by their URL. Nothing is copied.

A remote file is downloaded to be checked, one at a time, and then removed. Implements "External shards" of
docs/specs/manifest.md.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from warpdata.errors import InvalidSourceError
from warpdata.formats.parquet import ParquetSource, ShardOpener, check_same_schema, describe_all
from warpdata.kinds import StageContext, hash_file
from warpdata.kinds.tables.table import Table
from warpdata.primitives.paths import find_files
from warpdata.primitives.progress import ProgressCounter
from warpdata.primitives.redaction import redact
from warpdata.repository.manifest import External, Page, Shard, ShardList, TableEntry
from warpdata.settings import Settings
from warpdata.storage import Reader, check_external_url, open_store

__all__ = ["describe_external"]

_WILDCARDS = "*?["


@dataclass(frozen=True, slots=True)
class _Place:
    """A file as a reader of the version finds it. `path` is set for a local file."""

    url: str
    store: Reader
    name: str
    path: Path | None


def describe_external(name: str, source: Any, settings: Settings, context: StageContext) -> Table:
    """Return a table of files in place, by path, URL or glob, or a list of these. Reads every byte once."""
    sources = source if isinstance(source, list | tuple) else [source]
    places = [place for one in sources for place in _find(name, one, settings)]
    if not places:
        raise InvalidSourceError(f"table {name!r} was given an empty list")
    counter = ProgressCounter(context.progress, "hash", 0, len(places))
    shards: list[Shard] = []
    first: ParquetSource | None = None
    for place in places:
        found, shard = _describe(place, context, counter)
        first = first or found
        check_same_schema(first.schema, redact(places[0].url), found.schema, redact(place.url))
        shards.append(shard)
        counter.finish_file()
    listed = None if first is None else TableEntry.listing(first.schema.names)
    entry = TableEntry(ShardList(tuple(shards)), schema=listed)
    allowed = replace(settings, external_prefixes=tuple(place.url for place in places))  # its user names these files
    return Table(name, entry, ShardOpener(places[0].store), _no_pages, allowed)


def _find(name: str, source: Any, settings: Settings) -> Iterator[_Place]:
    if not isinstance(source, str | Path):
        raise InvalidSourceError(
            f"table {name!r} was given {type(source).__name__} to publish in place",
            hint="Give a path, a URL or a glob of Parquet files, or leave out copy=False.",
        )
    if isinstance(source, Path) or "://" not in source:
        found = [_local_place(path, settings) for path in find_files(source, (".parquet",))]
    elif source.startswith("file://"):
        found = [_local_place(Path(source.removeprefix("file://")), settings)]
    else:
        found = list(_remote_places(source, settings))
    if not found:
        raise InvalidSourceError(f"no file matches {redact(str(source))!r}", hint="Check the path or URL.")
    yield from found


def _local_place(path: Path, settings: Settings) -> _Place:
    path = path.absolute()
    return _Place(check_external_url(path.as_uri()), open_store(path.parent.as_uri(), settings), path.name, path)


def _remote_places(url: str, settings: Settings) -> Iterator[_Place]:
    """Yield the files of a URL. Its last part may be a glob, or empty for all Parquet files directly below."""
    place, _, name = url.rpartition("/")
    store = open_store(place, settings)
    names = [name]
    if not name or any(letter in name for letter in _WILDCARDS):
        listed = (info.key for info in store.list_objects("") if "/" not in info.key)
        names = sorted(key for key in listed if fnmatch.fnmatchcase(key, name or "*.parquet"))
    for each in names:
        yield _Place(check_external_url(f"{place}/{each}"), store, each, None)


def _describe(place: _Place, context: StageContext, counter: ProgressCounter) -> tuple[ParquetSource, Shard]:
    before = place.store.stat(place.name)
    path = place.path or context.directory / "external.parquet"
    if place.path is None:
        with path.open("wb") as file:
            for part in place.store.stream(place.name):
                file.write(part)
    fingerprint = hash_file(path, counter)
    (found,) = describe_all([path])
    if place.path is None:
        path.unlink()
    if found.claims_extensions:
        raise InvalidSourceError(
            f"{redact(place.url)} has references of a dataset, which cannot be published in place",
            hint="Leave out copy=False.",
        )
    if place.store.stat(place.name) != before or fingerprint.blob.byte_size != before.size_bytes:
        raise InvalidSourceError(f"{redact(place.url)} changed while it was read", hint="Publish when it is complete.")
    blob = fingerprint.blob
    external = External(place.url, None if place.path is not None else before.etag)
    return found, Shard(blob.hash, blob.byte_size, found.row_count, found.footer, external=external)


def _no_pages(page: Page) -> bytes:
    raise AssertionError(f"page {page.hash} of a list without pages")
