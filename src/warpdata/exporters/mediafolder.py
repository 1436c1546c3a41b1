"""Export to a directory of files: `[SPLIT/][LABEL/]NAME`, as torchvision's ImageFolder and `warp ingest` read it.

Other columns go into a `metadata.parquet` for each split, whose column `file_name` names the file of a row.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from warpdata.errors import BadInputError
from warpdata.exporters.options import Content, ExportBatch, ExportSource, path_field
from warpdata.exporters.output import ExportDirectory, check_name, check_split_count
from warpdata.formats.media import media_suffix, suffix_of
from warpdata.kinds.artifacts import FileRef
from warpdata.primitives.arrow_buffers import take_rows
from warpdata.primitives.outcomes import FieldOutcomes, OutcomeLog
from warpdata.primitives.paths import fold_path, take_free_path

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["MediaFolderExport", "file_name", "file_suffix"]

_FILE_NAME = "file_name"
_METADATA = "metadata.parquet"
_ROW_ORDER = "row order"


class MediaFolderExport:
    """One file for each row, in directories of its split and its class."""

    def __init__(self, source: ExportSource) -> None:
        self._source = source
        self._media = self._media_column()
        self.file_columns: tuple[str, ...] = (self._media,)
        directories = {self._media, source.label, source.split}
        others = [name for name in source.schema.names if name not in directories and name not in source.ref_types]
        self._columns = [*others, *([source.label] if source.label and others else [])]
        if _FILE_NAME in self._columns:
            raise BadInputError(
                f"column {_FILE_NAME!r} has the name of the column of files", hint="Leave it out with columns."
            )
        self._taken: set[str] = set()
        self._directories: dict[str, str] = {}
        self._row_count = 0

    def outcomes(self) -> FieldOutcomes:
        source = self._source
        log = OutcomeLog([*source.schema.names, path_field(self._media), _ROW_ORDER])
        for name in source.schema.names:
            if name == self._media:
                log.kept(name, "one file for each row")
                log.changed(path_field(name), "split, label and file name")
            elif name == source.split:
                log.kept(name, "as directories")
            elif name == source.label:
                log.kept(name, "as directories and in metadata.parquet" if self._columns else "as directories")
            elif name in source.ref_types:
                log.lost(name, f"only the files of column {self._media} are exported")
            else:
                log.kept(name, "in metadata.parquet")
        log.changed(_ROW_ORDER, "files have no order")
        return log.outcomes()

    def write(self, out: ExportDirectory) -> int:
        with ExitStack() as stack:
            writers: dict[str, Any] = {}
            for batch in self._source.batches():
                names = self._write_files(batch, out)
                if self._columns:
                    self._write_metadata(batch.rows, names, out, writers, stack)
                self._row_count += batch.rows.num_rows
        return self._row_count

    def _media_column(self) -> str:
        source, wanted = self._source, self._source.options.media
        if wanted is not None:
            if wanted not in source.ref_types:
                known = ", ".join(source.ref_types) or "none"
                raise BadInputError(f"column {wanted!r} has no files", hint=f"Columns with files: {known}.")
            return wanted
        found = [name for name, ref_type in source.ref_types.items() if ref_type in ("image", "audio", "video")]
        found = found or list(source.ref_types)
        if len(found) != 1:
            raise BadInputError(
                f"a directory of files needs one column of files, and table {source.name!r} has {len(found)}",
                hint=f"Pass media=… (--media): {', '.join(found)}." if found else "Export to parquet instead.",
            )
        return found[0]

    def _write_files(self, batch: ExportBatch, out: ExportDirectory) -> list[tuple[str, str]]:
        """Write the files of a batch. Return the split directory of each row and the path of its file below it."""
        source = self._source
        labels = batch.rows.column(source.label).to_pylist() if source.label else None
        splits = batch.rows.column(source.split).to_pylist() if source.split else None
        names = []
        contents = batch.contents(self._media)
        for number, (ref, content) in enumerate(zip(batch.refs[self._media], contents, strict=True)):
            row = batch.first_row + number
            if ref is None or content is None:
                raise BadInputError(
                    f"row {row} has no file in column {self._media!r}",
                    hint=f'Filter these rows out: filter="{self._media} IS NOT NULL" (--filter).',
                )
            split = self._directory(splits, number, row, source.split)
            label = self._directory(labels, number, row, source.label)
            directory = "/".join(filter(None, (split, label)))
            self._taken.add(fold_path(f"{split}/{_METADATA}" if split else _METADATA))
            path = take_free_path(directory, file_name(ref, content, row), row, self._taken)
            out.write(path, content)
            names.append((split, path.removeprefix(f"{split}/") if split else path))
        return names

    def _directory(self, values: list[Any] | None, number: int, row: int, column: str | None) -> str:
        if values is None:
            return ""
        value = values[number]
        text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
        name = check_name(text, lambda: f"column {column!r} of row {row}")
        other = self._directories.setdefault(f"{column}/{fold_path(name)}", name)
        if other != name or fold_path(name) == _METADATA:
            fact = f"differs from {other!r} by case or Unicode form only" if other != name else "is a reserved name"
            role = "label" if column == self._source.label else "split"
            raise BadInputError(
                f"column {column!r} of row {row} is {name!r}, which {fact}",
                hint=f"Some file systems cannot hold both. Pass {role}=False (--no-{role}), or change the rows.",
            )
        return name

    def _write_metadata(
        self,
        rows: pa.RecordBatch,
        names: list[tuple[str, str]],
        out: ExportDirectory,
        writers: dict[str, Any],
        stack: ExitStack,
    ) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        files = pa.array([path for _, path in names], pa.string())
        selected = rows.select(self._columns)
        fields = [pa.field(_FILE_NAME, pa.string()), *selected.schema]
        table = pa.Table.from_arrays([files, *selected.columns], schema=pa.schema(fields))
        by_split: dict[str, list[int]] = {}
        for position, (split, _) in enumerate(names):
            by_split.setdefault(split, []).append(position)
        for split, positions in by_split.items():
            if split not in writers:
                check_split_count(len(writers), self._source.split)
                path = out.new_file(f"{split}/{_METADATA}" if split else _METADATA)
                writers[split] = stack.enter_context(pq.ParquetWriter(path, table.schema))
            writers[split].write_table(take_rows(table, pa.array(positions, pa.int64())))


def file_name(ref: FileRef, content: Content, row: int) -> str:
    """Return the last part of a member path, or for a byte range a name with the suffix of its content."""
    if isinstance(ref.locator, str):
        name = ref.locator.rpartition("/")[2]
        return check_name(name.lstrip(".") or f"{row:08d}", lambda: f"the file of row {row}")
    head = content[:16] if isinstance(content, bytes) else b""
    suffix = media_suffix(head)
    return f"{row:08d}.{suffix}" if suffix else f"{row:08d}"


def file_suffix(ref: FileRef, content: Content) -> str:
    """Return the suffix of a file without the dot, by its name or its first bytes, or else "bin"."""
    named = suffix_of(ref.locator) if isinstance(ref.locator, str) else ""
    return named or media_suffix(content[:16] if isinstance(content, bytes) else b"") or "bin"
