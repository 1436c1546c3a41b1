"""An index of trajectories: records with a vector, and a search of them. Implemented by a dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from warpdata.datasets import dataset
from warpdata.errors import DatasetNotFoundError
from warpdata.publish import DatasetBuilder
from warpdata.query import Filter
from warpdata.settings import Settings

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["DatasetIndex", "Found", "Record", "TrajectoryIndex", "Wanted"]

VECTOR, KEY = "embedding", "key"


@dataclass(frozen=True, slots=True)
class Record:
    """A vector of an episode or of a window of its steps, and what is known of it."""

    key: str
    vector: NDArray[np.float32]
    metadata: Mapping[str, str | int | float | None]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Bounds on the metadata, both ends included. The lengths are numbers of steps."""

    env_id: str | None = None
    min_length: int | None = None
    reward_range: tuple[float, float] | None = None

    def bounds(self) -> list[tuple[str, str, str | int | float]]:
        """Return each condition as a name, an operator and a value."""
        out: list[tuple[str, str, str | int | float]] = []
        if self.env_id is not None:
            out.append(("env_id", "eq", self.env_id))
        if self.min_length is not None:
            out.append(("length_T", "gte", self.min_length))
        if self.reward_range is not None:
            out += [("total_reward", "gte", self.reward_range[0]), ("total_reward", "lte", self.reward_range[1])]
        return out


@dataclass(frozen=True, slots=True)
class Found:
    """A record that was found. A higher score is better: the cosine."""

    metadata: Mapping[str, Any]
    score: float


class TrajectoryIndex(Protocol):
    def add(self, table: str, records: Sequence[Record]) -> None:
        """Add records of one kind. A record with a known key replaces that one."""
        ...

    def search(self, table: str, vector: NDArray[np.float32], k: int, wanted: Wanted) -> list[Found]:
        """Return the `k` best records, the best first."""
        ...


@dataclass(frozen=True)
class DatasetIndex:
    """Records as rows of a dataset. Each call of `add` is a commit, so ingest many episodes at once."""

    name: str
    store: str | None = None
    settings: Settings | None = field(default=None, repr=False)

    def add(self, table: str, records: Sequence[Record]) -> None:
        rows = _to_rows({record.key: record for record in records}.values())
        try:
            opened = dataset(self.name, store=self.store, settings=self.settings)
        except DatasetNotFoundError:
            DatasetBuilder(self.name, self.store, settings=self.settings).add_table(table, rows).publish()
            return
        with opened.edit(f"ingest {len(records)} trajectories") as edit:
            if table in opened.tables:
                edit.upsert(table, rows, on=KEY)
            else:
                edit.append(table, rows)

    def search(self, table: str, vector: NDArray[np.float32], k: int, wanted: Wanted) -> list[Found]:
        opened = dataset(self.name, store=self.store, settings=self.settings)
        hits = opened.search(table, near=(VECTOR, vector), k=k, filter=_to_filter(wanted))
        rows = hits.to_arrow().to_pylist()
        return [
            Found({name: row[name] for name in row if not name.startswith("_") and name != KEY}, row["_score"])
            for row in rows
        ]


def _to_filter(wanted: Wanted) -> Filter | None:
    comparisons = {"eq": "Eq", "gte": "Gte", "lte": "Lte"}
    parts = [Filter.Where(name, comparisons[op], value) for name, op, value in wanted.bounds()]
    return Filter.And(parts) if parts else None


def _to_rows(records: Any) -> pa.Table:
    import pyarrow as pa

    listed: list[Record] = list(records)
    size = len(listed[0].vector)
    values = pa.array(np.concatenate([record.vector for record in listed]), pa.float32())
    types = {"length_T": pa.int64(), "total_reward": pa.float64(), "window_start": pa.int64(), "window_end": pa.int64()}
    names = dict.fromkeys(name for record in listed for name in record.metadata)
    columns = {
        name: pa.array([record.metadata.get(name) for record in listed], types.get(name, pa.string())) for name in names
    }
    vectors = pa.FixedSizeListArray.from_arrays(values, size)
    return pa.table({KEY: [record.key for record in listed], **columns, VECTOR: vectors})
