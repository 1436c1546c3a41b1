"""Formats of the stream peers, each written by the peer's own writer with its defaults.

Peers without a default shard size get shards of 64 MB. The module runs under the peers' interpreters.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.streams.images import ImageFiles
from benchmarks.streams.spec import FEATURES, SourceSpec, make_features

__all__ = ["WRITERS", "SampleSource"]

_SHARD_BYTES = 64 * 2**20
_PARQUET_GROUP_ROWS = 100


class SampleSource:
    """Samples of a `SourceSpec`, one by one or as Arrow tables."""

    def __init__(self, spec: SourceSpec) -> None:
        self.kind, self.count, self.shard_rows, self.first = spec.kind, spec.count, spec.shard_rows, spec.first
        self.shard_bytes = spec.shard_bytes or _SHARD_BYTES
        self.images = ImageFiles(Path(spec.directory), spec.count)

    def sample(self, number: int) -> dict[str, Any]:
        if self.kind == "rows":
            return {"id": number, "x": make_features(number, 1)[0]}
        content = (self.images.directory / f"{number:08d}.jpg").read_bytes()
        return {
            "id": number,
            "label": self.images.label(number),
            "score": self.images.score(number),
            "image": content,
        }

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return map(self.sample, range(self.first, self.first + self.count))

    def tables(self, rows: int) -> Iterator[Any]:
        """Yield Arrow tables of `rows` rows."""
        pa = import_module("pyarrow")
        end = self.first + self.count
        for first in range(self.first, end, rows):
            count = min(rows, end - first)
            if self.kind == "rows":
                values = make_features(first, count)
                columns = {f"x{n}": values[:, n] for n in range(FEATURES)}
                yield pa.table({"id": pa.array(range(first, first + count)), **columns})
            else:
                yield pa.Table.from_pylist([self.sample(number) for number in range(first, first + count)])


def _litdata(source: SampleSource, out: Path) -> None:
    """Write chunks with `optimize` and one worker."""
    os.environ["DATA_OPTIMIZER_CACHE_FOLDER"] = str(out.parent / "litdata-optimizing")
    limit = {"chunk_size": source.shard_rows} if source.shard_rows else {"chunk_bytes": "64MB"}
    import_module("litdata").optimize(
        fn=functools.partial(_sample_of, source),
        inputs=list(range(source.first, source.first + source.count)),
        output_dir=str(out),
        num_workers=1,
        **limit,
    )


def _sample_of(source: SampleSource, number: int) -> dict[str, Any]:
    return source.sample(number)


def _mosaic(source: SampleSource, out: Path) -> None:
    columns = {"id": "int", "label": "int", "score": "float64", "image": "bytes"}
    if source.kind == "rows":
        columns = {"id": "int", "x": f"ndarray:float32:{FEATURES}"}
    sample_bytes = 8 + 4 * FEATURES + 4
    limit = source.shard_rows * sample_bytes if source.shard_rows else source.shard_bytes
    with import_module("streaming").MDSWriter(out=str(out), columns=columns, size_limit=limit) as writer:
        for sample in source:
            writer.write(sample)


def _webdataset(source: SampleSource, out: Path) -> None:
    """Write at least eight shards: the default of 3 GB would leave workers without a shard."""
    eighth = 0 if source.shard_rows else source.images.size_bytes // 8
    limit = {"maxcount": source.shard_rows} if source.shard_rows else {"maxsize": min(_SHARD_BYTES, eighth)}
    pattern = str(out / "%06d.tar")
    with import_module("webdataset").ShardWriter(pattern, verbose=0, **limit) as writer:
        for sample in source:
            key = f"{sample['id']:08d}"
            if source.kind == "rows":
                writer.write({"__key__": key, "npy": sample["x"]})
            else:
                metadata = {"label": sample["label"], "score": sample["score"]}
                writer.write({"__key__": key, "jpg": sample["image"], "json": metadata})


def _parquet(source: SampleSource, out: Path) -> None:
    pq = import_module("pyarrow.parquet")
    rows = source.shard_rows or max(1, source.count // 8)
    for number, table in enumerate(source.tables(rows)):
        pq.write_table(table, out / f"{number:05d}.parquet", row_group_size=source.shard_rows or _PARQUET_GROUP_ROWS)


def _lance(source: SampleSource, out: Path) -> None:
    rows = source.shard_rows or 1024
    tables = source.tables(rows)
    first = next(tables)
    import_module("lance").write_dataset(
        import_module("pyarrow").RecordBatchReader.from_batches(first.schema, _batches(first, tables)),
        str(out / "samples.lance"),
        **({"max_rows_per_file": rows, "max_rows_per_group": rows} if source.shard_rows else {}),
    )


def _batches(first: Any, others: Iterator[Any]) -> Iterator[Any]:
    yield from first.to_batches()
    for table in others:
        yield from table.to_batches()


WRITERS: dict[str, Callable[[SampleSource, Path], None]] = {
    "litdata": _litdata,
    "mosaicml-streaming": _mosaic,
    "webdataset": _webdataset,
    "datasets": _parquet,
    "lancedb": _lance,
}
