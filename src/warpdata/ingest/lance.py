"""Lance datasets, read by their library: one version, its live rows, in order.

Blob columns become files of an artifact. Other columns keep their values and Arrow types; extension types are replaced
by their storage.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warpdata.errors import InvalidSourceError
from warpdata.formats.media import REF_TYPE_BY_SUFFIX, media_suffix
from warpdata.ingest.foreign_table import (
    ColumnRule,
    ForeignSource,
    ImportTarget,
    MediaColumn,
    PlainColumn,
    SourcePart,
    add_foreign,
    media_rules,
)
from warpdata.ingest.media_spool import media_cells
from warpdata.ingest.options import OnReport, Packing, log_report
from warpdata.ingest.source_files import source_errors
from warpdata.primitives.arguments import check_arguments
from warpdata.primitives.extras import require
from warpdata.primitives.paths import check_path
from warpdata.publish import DatasetBuilder
from warpdata.session import Session

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["lance"]

_BATCH_ROWS = 1024
_BLOB_BATCH_ROWS = 64
_SAMPLE_ROWS = 16
_BLOB_EXTENSIONS = ("lance.blob", "lance.blob.v2")
_BLOB_KEY = b"lance-encoding:blob"


@check_arguments
def lance(
    dataset_id: str,
    source: str | Path,
    *,
    store: str | Session | None = None,
    version: int | str | None = None,
    table: str = "main",
    media: Mapping[str, str] | None = None,
    packing: Packing | None = None,
    report: OnReport = log_report,
) -> DatasetBuilder:
    """Build a dataset from a local Lance dataset, at a version or tag or at the newest version.

    Blob columns become media; their type follows from the first contents. `media` maps columns of bytes to "image",
    "audio", "video" or "file". Versions, indexes and deleted rows are not imported.
    """
    library = require("lance", purpose="reading a Lance dataset", extra="lance")
    folder = check_path(source).expanduser()
    if not folder.is_dir():
        raise InvalidSourceError(f"{folder} is not a directory", hint="Check the path.")
    with source_errors(folder):
        opened = library.dataset(str(folder), version=_version(version))
        stored = opened.schema
        blobs = [field.name for field in stored if _is_blob(field)]
        rows = opened.scanner(batch_size=_BLOB_BATCH_ROWS if blobs else _BATCH_ROWS, blob_handling="all_binary")
        schema = rows.projected_schema
    batches = functools.partial(_batches, rows, folder)
    rules: dict[str, ColumnRule] = {column: MediaColumn(_blob_type(opened, column, folder)) for column in blobs}
    for field in schema:
        if field.name not in blobs and hasattr(field.type, "storage_type"):
            plain = field.with_type(field.type.storage_type)
            how = f"stored values of {getattr(field.type, 'extension_name', field.type)}"
            rules[field.name] = PlainColumn((plain,), None, how, is_changed=True)
    rules |= media_rules(media, schema, str(folder))
    part = SourcePart(None, schema, batches, str(folder))
    target = ImportTarget(table, packing=packing or Packing())
    builder = DatasetBuilder(dataset_id, store)
    add_foreign(builder, ForeignSource(str(folder), [part], rules), target, report)
    return builder


def _version(given: int | str | None) -> int | str | None:
    """Return a number for digits, as a command line gives them; other text is a tag."""
    return int(given) if isinstance(given, str) and given.isdecimal() else given


def _is_blob(field: pa.Field) -> bool:
    is_extension = getattr(field.type, "extension_name", None) in _BLOB_EXTENSIONS
    return is_extension or (field.metadata or {}).get(_BLOB_KEY) == b"true"


def _batches(rows: Any, folder: Path) -> Iterator[pa.RecordBatch]:
    with source_errors(folder):
        yield from rows.to_batches()


def _blob_type(opened: Any, column: str, folder: Path) -> str:
    """Return the reference type of the first contents of a column; "file" if they differ or are not known."""
    with source_errors(f"{folder}, column {column!r}"):
        first = opened.scanner(columns=[column], limit=_SAMPLE_ROWS, blob_handling="all_binary").to_table()
    found = set()
    for chunk in first.column(0).chunks:
        for cell in media_cells(chunk):
            if cell is not None:
                found.add(REF_TYPE_BY_SUFFIX.get(media_suffix(cell[0]), "file"))
    return found.pop() if len(found) == 1 else "file"
