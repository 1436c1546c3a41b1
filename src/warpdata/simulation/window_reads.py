"""The requests for one window of the shuffle: which parts of which objects some ranks read. Reads only the manifest.

Rows are those of the real order. A shard that is small is one request. Of a larger one, a footer and row groups are
read, once while they stay cached. Row groups are taken as equally long, and members of artifacts as equally large and
in the order of rows. The index of an artifact is read from its root on.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from warpdata.formats.parquet import SMALL_SHARD_BYTES
from warpdata.kinds.artifacts import INDEX_WHOLE_BYTES
from warpdata.limits import COALESCE_GAP_BYTES, MEMBER_GAP_BYTES, MEMBER_REQUEST_BYTES, MIB
from warpdata.primitives.hashing import Blob
from warpdata.repository.manifest import LoadPage, TableEntry, iter_located
from warpdata.streaming import BatchSchedule, Order

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Requests", "WindowReader", "WindowReads"]

_PART_BYTES = 8 * MIB
"""The most that a request for a range of a Parquet file asks for."""
_INDEX_ROOT_BYTES = 4096
_LEAF_ROWS = 128


@dataclass
class Requests:
    """Requests of one step of a reader, which are sent together: their number, their bytes and their keys."""

    count: int = 0
    size_bytes: float = 0.0
    by_prefix: dict[str, int] = field(default_factory=dict)

    def add(self, count: int, size_bytes: float, prefix: str) -> None:
        self.count += count
        self.size_bytes += size_bytes
        self.by_prefix[prefix] = self.by_prefix.get(prefix, 0) + count

    @property
    def mean_bytes(self) -> float:
        return self.size_bytes / self.count if self.count else 0.0


@dataclass(frozen=True)
class WindowReads:
    """The steps of a window, in order: schema, footers, rows, root and leaves of the index of media, and the media.

    The schema is in the footer of the first shard, which a stream without a shuffle reads before all others.
    """

    steps: tuple[Requests, ...]
    samples: int

    @property
    def count(self) -> int:
        return sum(step.count for step in self.steps)

    @property
    def size_bytes(self) -> float:
        return sum(step.size_bytes for step in self.steps)


@dataclass(frozen=True, slots=True)
class MediaLayout:
    """The members of an artifact: their mean size and number, the hashes of the shards, and the index."""

    mean_bytes: float
    count: int
    shards: tuple[str, ...]
    index: Blob


class TableLayout:
    """The shards of a table, for planning. Reads the pages of the manifest."""

    def __init__(self, entry: TableEntry, load_page: LoadPage, group_rows: int, decoded_bytes: float) -> None:
        located = list(iter_located(entry.shards, load_page))
        self.first_rows = np.array([each.first_row for each in located], np.int64)
        self.sizes = [float(each.shard.data_bytes) for each in located]
        self.rows = [max(each.shard.row_count or 0, 1) for each in located]
        self.hashes = [each.shard.hash for each in located]
        self.footers = [0 if each.shard.footer is None else each.shard.footer.byte_size for each in located]
        self.group_rows = max(1, group_rows)
        self.growth = decoded_bytes / max(sum(self.sizes), 1.0)
        """The size of decoded rows, by that of stored ones."""


class WindowReader:
    """Plans the reads of windows in their order, by ranks that share a cache of `cache_bytes`; None for no bound."""

    def __init__(
        self,
        table: TableLayout,
        media: Sequence[MediaLayout],
        order: Order,
        schedule: BatchSchedule,
        cache_bytes: float | None,
    ) -> None:
        self._table, self._media, self._order, self._schedule = table, media, order, schedule
        self._cache_bytes = cache_bytes
        self._cached: OrderedDict[tuple[int, int], float] = OrderedDict()
        self._used_bytes = 0.0
        self._is_open = False
        self._known: set[int | str] = set()
        """Shards whose footer was read, and artifacts whose index was."""

    def read(self, window: int, ranks: range) -> WindowReads:
        """Return the requests of some ranks for a window."""
        rows = self._owned(window, ranks)
        schema, footers, groups = Requests(), Requests(), Requests()
        table = self._table
        if not self._is_open and self._order.shuffle is None and table.sizes and table.sizes[0] > SMALL_SHARD_BYTES:
            schema.add(1, table.footers[0], table.hashes[0][:2])
        self._is_open = True
        shards = np.searchsorted(table.first_rows, rows, side="right") - 1
        numbers = (rows - table.first_rows[shards]) // table.group_rows
        for shard in np.unique(shards).tolist():
            is_small = table.sizes[shard] <= SMALL_SHARD_BYTES
            if not is_small and shard not in self._known:
                self._known.add(shard)
                footers.add(1, table.footers[shard], table.hashes[shard][:2])
            touched = [-1] if is_small else np.unique(numbers[shards == shard]).tolist()
            share = 1.0 if is_small else min(table.group_rows / table.rows[shard], 1.0)
            size = table.sizes[shard] * share
            new = sum(self._fetch((shard, group), size * table.growth) for group in touched)
            if new:
                groups.add(new * max(1, -(-int(size) // _PART_BYTES)), new * size, table.hashes[shard][:2])
        roots, pages, members = Requests(), Requests(), Requests()
        for each in self._media:
            self._add_index(each, rows, roots, pages)
            _add_members(members, rows, each)
        return WindowReads((schema, footers, groups, roots, pages, members), len(rows))

    def _owned(self, window: int, ranks: range) -> NDArray[np.int64]:
        """Return the rows of a window that the ranks take, ascending."""
        start, stop = self._order.window_span(window)
        positions = [self._schedule.owned_positions(rank, 0, 1, start, stop) for rank in ranks]
        samples = self._order.samples(start, stop)
        owned: NDArray[np.int64] = np.sort(samples[np.concatenate(positions) - start])
        return owned

    def _fetch(self, part: tuple[int, int], size_bytes: float) -> bool:
        """Return whether a part has to be fetched, and keep it."""
        if part in self._cached:
            self._cached.move_to_end(part)
            return False
        self._cached[part] = size_bytes
        self._used_bytes += size_bytes
        while self._cache_bytes is not None and self._used_bytes > self._cache_bytes:
            self._used_bytes -= self._cached.popitem(last=False)[1]
        return True

    def _add_index(self, media: MediaLayout, rows: NDArray[np.int64], roots: Requests, pages: Requests) -> None:
        """Add the reads of an index: its root, then the leaves of the members. Small indexes are read at once."""
        prefix, size = media.index.hash[:2], media.index.byte_size
        is_whole = size <= INDEX_WHOLE_BYTES
        if media.index.hash not in self._known:
            self._known.add(media.index.hash)
            roots.add(1, size if is_whole else min(size, _INDEX_ROOT_BYTES), prefix)
        if is_whole:
            return
        leaf_bytes = size * _LEAF_ROWS / max(media.count, 1)
        leaves = np.unique(rows // _LEAF_ROWS)
        new = np.array([leaf for leaf in leaves.tolist() if self._fetch((-1, leaf), leaf_bytes)], np.int64)
        if len(new):
            is_far = (np.diff(new) - 1) * leaf_bytes > COALESCE_GAP_BYTES
            pages.add(1 + int(is_far.sum()), len(new) * leaf_bytes, prefix)


def _add_members(requests: Requests, rows: NDArray[np.int64], media: MediaLayout) -> None:
    """Add the requests for the members of some rows. Neighbours share a request, up to its largest size."""
    if not len(rows) or not media.shards:
        return
    per_shard = max(1, -(-media.count // len(media.shards)))
    shards = np.minimum(rows // per_shard, len(media.shards) - 1)
    is_far = (np.diff(rows) - 1) * media.mean_bytes > MEMBER_GAP_BYTES
    starts = np.flatnonzero(np.concatenate([[True], is_far | (np.diff(shards) > 0)]))
    ends = np.concatenate([starts[1:], [len(rows)]])
    spans = (rows[ends - 1] - rows[starts] + 1) * media.mean_bytes
    parts = np.maximum(1, np.ceil(spans / MEMBER_REQUEST_BYTES)).astype(np.int64)
    for shard in np.unique(shards[starts]).tolist():
        mine = shards[starts] == shard
        requests.add(int(parts[mine].sum()), float(spans[mine].sum()), media.shards[shard][:2])
