"""Batches of samples: checked one by one, with their media on disk, and converted to Arrow together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from warpdata.limits import MIB
from warpdata.samples.fields import MediaField
from warpdata.samples.media_files import MediaFiles
from warpdata.samples.schema import Schema, check_sample
from warpdata.storage.cache import StagingDirectory

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["SampleBatch"]

_MEDIA_BYTES = 1024 * MIB
"""A batch with more media ends."""
_END = object()


class SampleBatch:
    """Samples for one commit. A context manager: the end removes the media that wait on disk."""

    def __init__(self, schema: Schema, cache_dir: Path) -> None:
        self._schema = schema
        self._staging = StagingDirectory(cache_dir)
        self._media = MediaFiles(self._staging.path)
        self._columns: dict[str, list[Any]] = {name: [] for name in schema.fields}
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._staging.remove()

    def __len__(self) -> int:
        return self._count

    @property
    def files(self) -> Mapping[str, Mapping[str, Path]]:
        """The media by column and member path."""
        return self._media.files

    def fill(self, samples: Iterator[Any], max_rows: int, first_number: int) -> None:
        """Take samples until the batch is full. Errors name the number of the sample."""
        while self._count < max_rows and self._media.size_bytes < _MEDIA_BYTES:
            sample: Any = next(samples, _END)
            if sample is _END:
                return
            self.add(sample, f"sample {first_number + self._count}: ")

    def add(self, sample: Mapping[str, Any], where: str = "") -> None:
        checked = check_sample(self._schema, sample, where)
        for name, value in checked.items():
            is_file = value is not None and isinstance(self._schema.fields[name], MediaField)
            self._columns[name].append(self._media.add(name, value) if is_file else value)
        self._count += 1

    def rows(self) -> pa.Table:
        import pyarrow as pa

        schema = self._schema.arrow()
        return pa.table([pa.array(self._columns[field.name], field.type) for field in schema], schema=schema)
