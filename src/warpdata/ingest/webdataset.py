"""WebDataset tars, taken as they are → an artifact and a table with a row for each sample."""

from __future__ import annotations

from warpdata.errors import InvalidSourceError
from warpdata.ingest.pack import Packing
from warpdata.ingest.report import IngestReport, OnReport, log_report
from warpdata.ingest.rows import FileSource, find_files
from warpdata.ingest.samples import learn_columns, sample_batches
from warpdata.publish import DatasetBuilder
from warpdata.session import Session

__all__ = ["webdataset"]


def webdataset(
    dataset_id: str,
    source: FileSource,
    *,
    store: str | Session | None = None,
    table: str = "main",
    artifact: str = "raw",
    report: OnReport = log_report,
) -> DatasetBuilder:
    """Tars from a folder, a glob or a list, one row for each sample; rows keep the order of the tars.

    `__key__` is what the names of a sample's files have in common. Each ending is a column: pictures,
    sounds, films and other files are bound to the artifact; `.cls`, `.id`, `.txt`, `.json` and their
    like hold the text itself, as integers where all of them are. Samples may lack a file; its cell is null.
    """
    import pyarrow as pa

    builder = DatasetBuilder(dataset_id, store)
    paths = find_files(source, (".tar",))
    columns = learn_columns(paths)
    if not columns.sample_count:
        raise InvalidSourceError(f"{source!s} holds no sample", hint="Samples are files such as 0001.jpg and 0001.cls.")
    rows = pa.RecordBatchReader.from_batches(columns.schema(), sample_batches(paths, columns))
    builder.add_table(table, rows)
    Packing("webdataset_shards").add(builder, artifact, paths)
    for ending, ref_type in sorted(columns.references.items()):
        builder.bind(table, ending, artifact, ref_type)
    ignored = {"": columns.nameless_count} if columns.nameless_count else {}
    report(IngestReport(str(source), columns.sample_count, columns.member_count, ignored))
    return builder
