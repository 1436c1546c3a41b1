"""Samples for libraries that have an order of their own: iterable datasets of Hugging Face, and sources of Grain."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, SupportsIndex, Unpack

from warpdata.datasets import Dataset
from warpdata.errors import BadInputError
from warpdata.kinds.artifacts import FileRef
from warpdata.kinds.tables import Table
from warpdata.limits import MIB
from warpdata.loaders.training_loops import unbatch
from warpdata.primitives.extras import require
from warpdata.session import VersionAddress
from warpdata.streaming import RowKeywords

__all__ = ["grain_source", "hf_iterable"]

_CACHED_BYTES = 64 * MIB


def hf_iterable(dataset: Dataset, table: str | None = None, *, shards: int = 8, **keywords: Unpack[RowKeywords]) -> Any:
    """Return the samples as an `IterableDataset` of Hugging Face, in `shards` parts that its workers divide.

    `split_dataset_by_node` divides the parts among the processes of a training job. Arguments are those of
    `Dataset.stream`, without `shard`.
    """
    library = require("datasets", purpose="hf_iterable", extra="huggingface")
    if "shard" in keywords:
        raise BadInputError("shard= is chosen by the dataset that is returned", hint="Use split_dataset_by_node.")
    part = _Part(VersionAddress.of(dataset.session, dataset.version_ref), table, keywords)
    parts = [(number, shards) for number in range(shards)]
    return library.IterableDataset.from_generator(part, gen_kwargs={"parts": parts})


@dataclass(frozen=True)
class _Part:
    """Yields the samples of some parts, in any process."""

    address: VersionAddress
    table: str | None
    keywords: RowKeywords

    def __call__(self, parts: Sequence[tuple[int, int]]) -> Iterator[dict[str, Any]]:
        session, ref = self.address.open()
        dataset = Dataset(session, ref, session.catalog.manifest(ref))
        for part in parts:
            keywords: RowKeywords = {**self.keywords, "shard": (part[0], part[1])}
            for batch in dataset.stream(self.table, **keywords).epoch(0):
                yield from unbatch(batch)


def grain_source(
    dataset: Dataset, table: str | Table | None = None, *, columns: Sequence[str] | None = None, decode: bool = True
) -> GrainSource:
    """Return the rows as a `RandomAccessDataSource` of Grain: `grain.MapDataset.source(wd.loaders.grain_source(ds))`.

    A row is a dict. Files of references are decoded, or with `decode=False` returned as bytes. Grain shuffles and
    divides by itself. For data that is larger than a cache, `Dataset.stream` reads in an order that suits storage.
    """
    opened = table if isinstance(table, Table) else dataset.table(table)
    if columns is not None:
        opened = opened.select(columns)
    return GrainSource(VersionAddress.of(dataset.session, dataset.version_ref), opened, decode=decode)


class GrainSource:
    """Rows by number. Worker processes of Grain open the version again."""

    def __init__(self, address: VersionAddress, table: Table, *, decode: bool) -> None:
        self._address = address
        self._name, self._columns = table.name, table.columns
        self._rows = table.row_numbers() if table.filters or table.rows is not None else None
        self._count = table.count() if self._rows is None else len(self._rows)
        self._decode = decode
        self._take = table.taker(_CACHED_BYTES)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, record_key: SupportsIndex) -> dict[str, Any]:
        number = record_key.__index__()
        if not 0 <= number < self._count:
            raise IndexError(f"row {number} is not within {self._count}")
        row = self._take([number if self._rows is None else int(self._rows[number])]).to_pylist()[0]
        return {name: self._content(value) for name, value in row.items()}

    def __repr__(self) -> str:
        return (
            f"GrainSource({self._address.dataset_id!r}, version={self._address.version[:12]!r}, table={self._name!r})"
        )

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_take"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        table = _open_version(self._address).table(self._name)
        self._take = (table if self._columns is None else table.select(self._columns)).taker(_CACHED_BYTES)

    def _content(self, value: Any) -> Any:
        if not isinstance(value, FileRef):
            return value
        return value.as_numpy() if self._decode else value.read_bytes()


@functools.lru_cache(maxsize=4)
def _open_version(address: VersionAddress) -> Dataset:
    session, ref = address.open()
    return Dataset(session, ref, session.catalog.manifest(ref))
