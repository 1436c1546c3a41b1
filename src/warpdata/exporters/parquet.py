"""Export to Parquet: `TABLE-00000.parquet`, and a directory for the files of each artifact.

Reference columns hold the member paths, so that `ARTIFACT/PATH` is the file of a cell. References by byte range get a
path of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from warpdata.errors import BadInputError
from warpdata.exporters.options import ExportBatch, ExportSource
from warpdata.exporters.output import ExportDirectory
from warpdata.formats.parquet import WriteOptions, write_parquet
from warpdata.kinds.artifacts import FileRef, Locator
from warpdata.primitives.outcomes import FieldOutcomes, OutcomeLog

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ParquetExport", "member_name"]


class ParquetExport:
    """Rows as Parquet files with all columns, and referenced files beside them."""

    def __init__(self, source: ExportSource) -> None:
        self._source = source
        self.file_columns = tuple(source.ref_types)
        options = source.options
        if isinstance(options.label, str) or isinstance(options.split, str) or options.media:
            raise BadInputError(
                "label, split and media do not apply to format 'parquet': all columns are kept", hint="Leave them out."
            )
        self._schema = _with_paths(source.schema, source)
        self._row_count = 0

    def outcomes(self) -> FieldOutcomes:
        log = OutcomeLog(self._source.schema.names)
        bound = self._source.dataset.bound_artifacts(self._source.name)
        for column in self._source.schema:
            if column.name not in self._source.ref_types:
                log.kept(column.name)
            elif column.type == self._schema.field(column.name).type:
                log.kept(column.name, f"files in {bound[column.name][0].name}/")
            else:
                log.changed(column.name, f"byte ranges become files in {bound[column.name][0].name}/")
        return log.outcomes()

    def write(self, out: ExportDirectory) -> int:
        options = self._source.options
        chosen = None if options.shard_bytes is None else WriteOptions(file_bytes=options.shard_size(1))
        for _ in write_parquet(self._batches(out), self._schema, out.path, self._source.name, chosen):
            pass
        return self._row_count

    def _batches(self, out: ExportDirectory) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        written: dict[str, Locator] = {}
        for batch in self._source.batches():
            self._row_count += batch.rows.num_rows
            columns = dict(zip(batch.rows.schema.names, batch.rows.columns, strict=True))
            for name in batch.refs:
                columns[name] = pa.array(_write_files(batch, name, out, written), pa.string())
            yield pa.RecordBatch.from_arrays(list(columns.values()), schema=self._schema)


def _write_files(
    batch: ExportBatch, column: str, out: ExportDirectory, written: dict[str, Locator]
) -> list[str | None]:
    """Write the files of a column, each member once, and return their paths below the artifact's directory."""
    paths: list[str | None] = []
    for ref, content in zip(batch.refs[column], batch.contents(column), strict=True):
        if ref is None or content is None:
            paths.append(None)
            continue
        path = member_name(ref)
        name = f"{ref.artifact.name}/{path}"
        if name not in written:
            out.write(name, content)
        if written.setdefault(name, ref.locator) != ref.locator:
            raise BadInputError(f"two different files of column {column!r} would be {name!r}", hint="Leave one out.")
        paths.append(path)
    return paths


def member_name(ref: FileRef) -> str:
    """Return the member path of a reference, or a name for a byte range."""
    at = ref.locator
    return at if isinstance(at, str) else f"shard-{at.shard:06d}-{at.offset}-{at.length}.bin"


def _with_paths(schema: pa.Schema, source: ExportSource) -> pa.Schema:
    import pyarrow as pa

    for name in source.ref_types:
        position = schema.get_field_index(name)
        if not pa.types.is_string(schema.field(position).type):
            schema = schema.set(position, schema.field(position).with_type(pa.string()))
    return schema
