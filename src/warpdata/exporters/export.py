"""`export`: select rows, check the target, write a directory, report the outcome of every column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

from warpdata.datasets import Dataset, dataset
from warpdata.errors import BadInputError
from warpdata.exporters.file_copies import FileCopies
from warpdata.exporters.huggingface import HuggingFaceExport
from warpdata.exporters.mediafolder import MediaFolderExport
from warpdata.exporters.options import ExportOptions, ExportSource, open_source
from warpdata.exporters.output import ExportDirectory, check_target, new_directory
from warpdata.exporters.parquet import ParquetExport
from warpdata.exporters.report import ExportReport
from warpdata.exporters.webdataset import WebDatasetExport
from warpdata.jobs import EngineChoice
from warpdata.primitives.arguments import check_arguments
from warpdata.primitives.outcomes import FieldOutcomes
from warpdata.primitives.progress import Progress, ProgressCounter, silent
from warpdata.primitives.suggest import suggest
from warpdata.query import Filter
from warpdata.settings import Settings

__all__ = ["EXPORT_FORMATS", "export", "export_dataset"]


class Exporter(Protocol):
    """One format. The constructor checks options; nothing is written before `write`."""

    file_columns: tuple[str, ...]
    """The bound columns whose files are exported."""

    def __init__(self, source: ExportSource) -> None: ...

    def outcomes(self) -> FieldOutcomes:
        """Return the outcome of every column, known before anything is written."""
        ...

    def write(self, out: ExportDirectory) -> int:
        """Write all files and return the number of rows."""
        ...


_EXPORTERS: Mapping[str, type[Exporter]] = {
    "parquet": ParquetExport,
    "imagefolder": MediaFolderExport,
    "audiofolder": MediaFolderExport,
    "webdataset": WebDatasetExport,
    "huggingface": HuggingFaceExport,
}
EXPORT_FORMATS = tuple(_EXPORTERS)
_WITH_ENGINE = ("parquet", "imagefolder", "audiofolder")


@check_arguments
def export(
    address: str,
    folder: str | Path,
    format: str = "parquet",  # noqa: A002 - the word that users look for
    *,
    table: str | None = None,
    columns: Sequence[str] | None = None,
    filter: str | Filter | None = None,  # noqa: A002 - as in Dataset.stream
    label: str | bool | None = None,
    split: str | bool | None = None,
    media: str | None = None,
    shard_bytes: int | str | None = None,
    dry_run: bool = False,
    engine: EngineChoice = None,
    store: str | None = None,
    mode: str | None = None,
    settings: Settings | None = None,
    progress: Progress = silent,
) -> ExportReport:
    """Write a table of a version, with the files that it refers to, into a new directory.

    `format` is "parquet", "imagefolder", "audiofolder", "webdataset" or "huggingface". `columns` and a `filter`
    select rows. `label` and `split` name the columns of classes and splits: None means the columns `label` and `split`
    if they exist, False none. The directory must be absent or empty, and appears when the export is complete. With
    `dry_run` nothing is written, and the report says what would be.

    With an `engine` ("processes", "ray" or "ray://HOST:PORT"), workers read and write the files of references. The
    directory must be one that all of them share. The tars and Parquet files of webdataset and huggingface hold files in
    order, so they have no engine.
    """
    opened = dataset(address, store=store, mode=mode, settings=settings)
    options = ExportOptions(table, columns, filter, label, split, media, shard_bytes, dry_run, engine)
    return export_dataset(opened, folder, format, options, progress)


def export_dataset(
    opened: Dataset,
    folder: str | Path,
    format: str,  # noqa: A002 - as in `export`
    options: ExportOptions,
    progress: Progress = silent,
) -> ExportReport:
    """Export like `export`, from an open dataset."""
    if format not in _EXPORTERS:
        raise BadInputError(
            f"format={format!r} is not known", hint=suggest(format, EXPORT_FORMATS, label="The formats are")
        )
    if options.engine is not None and format not in _WITH_ENGINE:
        raise BadInputError(
            f"format {format!r} has no engine: its files hold those of the rows in order",
            hint=f"Leave the engine out, or use {', '.join(_WITH_ENGINE)}.",
        )
    target = check_target(folder)
    source = open_source(opened, options)
    exporter = _EXPORTERS[format](source)
    outcomes = exporter.outcomes()
    rows, files, size_bytes = _measure(source, exporter.file_columns)
    if not options.dry_run:
        counter = ProgressCounter(progress, "export", size_bytes, files)
        with ExitStack() as stack:
            copies = None if options.engine is None else FileCopies(opened, options.engine, stack)
            out = stack.enter_context(new_directory(target, counter, copies))
            rows = exporter.write(out)
    return ExportReport(
        opened.id, opened.version, source.name, format, target, rows, files, size_bytes, options.dry_run, outcomes
    )


def _measure(source: ExportSource, columns: Sequence[str]) -> tuple[int, int, int]:
    """Return the number of rows, of referenced files, and of their bytes. Reads these columns and the index."""
    if not columns:
        return source.table.count(), 0, 0
    rows = files = size_bytes = 0
    for batch in source.narrow(columns).batches():
        rows += batch.rows.num_rows
        for refs in batch.refs.values():
            sizes = [ref.size for ref in refs if ref is not None]
            files += len(sizes)
            size_bytes += sum(sizes)
    return rows, files, size_bytes
