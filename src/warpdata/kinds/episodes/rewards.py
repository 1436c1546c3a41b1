"""Total rewards of episodes, which their index does not have, as a column for a filter."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from warpdata.errors import NotFoundError
from warpdata.kinds.tables import Table
from warpdata.primitives.parallel import IO_POOL
from warpdata.query import Evaluator, parse_filter
from warpdata.repository.rows import RowSelection

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from warpdata.kinds.episodes.index import EpisodeIndex

__all__ = ["REWARD", "filter_by_reward", "read_reward", "total_rewards"]

REWARD = "reward"
"""The series of rewards in an episode, and the column of their sums."""


def filter_by_reward(index: EpisodeIndex, table: Table, expression: str) -> Table:
    """Filter episodes by columns of their table and `reward`. The first call that names it reads all rewards."""
    import pyarrow as pa

    schema = table.raw().schema()
    if REWARD in schema.names:
        return table.filter(expression)
    wider = schema.append(pa.field(REWARD, pa.float64()))
    bound = parse_filter(expression, wider)
    if REWARD not in bound.columns:
        return table.filter(expression)
    others = [name for name in bound.columns if name != REWARD]
    rows = index.table.select(others or schema.names[:1]).to_arrow(allow_large=True)
    rows = rows.append_column(REWARD, [pa.array(total_rewards(index), from_pandas=True)]).select(list(bound.columns))
    kept = RowSelection.of_numbers(np.flatnonzero(Evaluator(bound).mask(rows)))
    return replace(table, filters=(), rows=kept & table.select_rows())


def total_rewards(index: EpisodeIndex) -> NDArray[np.float64]:
    """Return the sum of the rewards of each episode; NaN for those without. The first call reads all rewards."""

    def read() -> NDArray[np.float64]:
        numbers = range(index.entry.episode_count)
        return np.array(list(IO_POOL.map_ordered(lambda number: read_reward(index, number), numbers)), np.float64)

    return index.rewards.get_or_create(REWARD, read, lambda found: int(found.nbytes))


def read_reward(index: EpisodeIndex, number: int) -> float:
    """Return the sum of the rewards of one episode; NaN without rewards."""
    try:
        return float(np.asarray(index.open(number).read([REWARD])[REWARD], np.float64).sum())
    except NotFoundError:
        return np.nan
