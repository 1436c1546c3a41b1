"""`Episodes`: the episodes of a set, or those that a filter selects."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Unpack

import numpy as np

from warpdata.errors import BadInputError, EpisodeNotFoundError, UnsupportedError
from warpdata.formats.wshard import Array
from warpdata.kinds.episodes.entry import EpisodesEntry
from warpdata.kinds.episodes.episode import StoredEpisode
from warpdata.kinds.episodes.index import EpisodeIndex
from warpdata.kinds.episodes.rewards import filter_by_reward
from warpdata.kinds.episodes.similarity import Embedder, EpisodeVectors, SimilarEpisode
from warpdata.kinds.episodes.window_source import make_source, max_prefetch
from warpdata.kinds.episodes.window_spec import WindowKeywords, WindowRequest
from warpdata.kinds.tables import Table
from warpdata.primitives.arguments import check_arguments
from warpdata.primitives.cached_property import cached_property
from warpdata.primitives.reprs import html_table, short_repr
from warpdata.primitives.suggest import suggest
from warpdata.query import Filter, clauses_of
from warpdata.streaming import Collate, OpenStream, Stream, StreamContext, StreamOptions, TorchLoader

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Episodes"]


@check_arguments
class Episodes:
    """Episodes by position, by id, in a loop, as a table, or as windows for training. Lazy, remote, immutable."""

    def __init__(self, index: EpisodeIndex, table: Table | None = None) -> None:
        self._index = index
        self._table = table

    def __repr__(self) -> str:
        count, text = self._index.entry.episode_count, self.filter_text or None
        return short_repr("Episodes", self.name, count=count, filter=text)

    def _repr_html_(self) -> str:
        """Show the first episodes. With a filter, these might need a long scan, so only the filter is shown."""
        title, columns = f"{self.name}: {self._index.entry.episode_count:,} episodes", ("id", "env_id", "length")
        if self._table is not None:
            return html_table(title, [], [], notes=[f"filter: {self.filter_text}"])
        rows = self.table().select(columns).head().to_pylist()
        return html_table(title, columns, [[row[name] for name in columns] for row in rows])

    @property
    def name(self) -> str:
        return self._index.name

    @property
    def entry(self) -> EpisodesEntry:
        return self._index.entry

    @property
    def index(self) -> EpisodeIndex:
        """The index of the whole set."""
        return self._index

    def table(self) -> Table:
        """Return a table with one row for each episode.

        Columns: `id`, `env_id`, `length`, `timebase`, `tick_hz`, `channels`, `identity`, `is_sealed`, `hash`,
        `byte_size`, and `metadata` with the recorded scalars.
        """
        return self._table if self._table is not None else self._index.table

    def filter(self, expression: str | Filter) -> Episodes:
        """Select episodes by SQL text or a `Filter` over the columns of `table()`. Several filters must all be true."""
        if not clauses_of(expression).are_per_row:
            raise UnsupportedError(
                "episodes are filtered by their own values, not by near or sample",
                hint="Take the ids of table().filter(…), and filter episodes with col('id').isin(ids).",
            )
        return Episodes(self._index, self.table().filter(expression))

    @cached_property
    def numbers(self) -> NDArray[np.int64]:
        """Numbers of the selected episodes in the set, ascending."""
        if self._table is None:
            return np.arange(self._index.entry.episode_count, dtype=np.int64)
        return self._table.row_numbers()

    @property
    def filter_text(self) -> str:
        """All filters as one SQL expression; empty without any."""
        return self._table.filter_text if self._table is not None else ""

    def __len__(self) -> int:
        return len(self.numbers) if self._table is not None else self._index.entry.episode_count

    def __getitem__(self, key: int | str) -> StoredEpisode:
        if isinstance(key, str):
            return self._by_id(key)
        if isinstance(key, bool) or not isinstance(key, int | np.integer):
            raise BadInputError(f"{key!r} is neither a position nor an id of an episode", hint="Use filter(…).")
        if not -len(self) <= key < len(self):
            raise EpisodeNotFoundError(f"{self.name!r} has {len(self)} episodes, and none at position {key}")
        return self._index.open(int(self.numbers[key]))

    def __iter__(self) -> Iterator[StoredEpisode]:
        for number in self.numbers:
            yield self._index.open(int(number))

    def __contains__(self, key: object) -> bool:
        number = self._index.numbers_by_id.get(key) if isinstance(key, str) else None
        return number is not None and self._selects(number)

    def similar(
        self,
        query: str | StoredEpisode | Mapping[str, Any],
        k: int = 5,
        *,
        filter: str | None = None,  # noqa: A002 - the word of tables
        channels: Sequence[str] | None = None,
        embedder: Embedder | None = None,
    ) -> list[SimilarEpisode]:
        """Find the `k` episodes that are most similar to an episode, its id, or a window, the most similar first.

        A window maps channels to arrays of steps. Episodes are compared by statistics of their channels of numbers, or
        by the vectors of an `embedder`, standardized over the set. `filter` selects episodes by the columns of
        `table()` and `reward`, the sum of their rewards. The first call reads `channels` of the whole set, and later
        ones with the same channels and embedder only compare.
        """
        key = (None if channels is None else tuple(channels), embedder)
        vectors = self._index.vectors.get_or_create(key, lambda: EpisodeVectors(self._index, channels, embedder))
        if isinstance(query, str):
            query = self._by_id(query)
        if isinstance(query, StoredEpisode):
            query = query.read(vectors.channels)
        found = self
        if filter is not None:
            found = Episodes(self._index, filter_by_reward(self._index, self.table(), filter))
        if k < 0:
            raise BadInputError(f"k={k} is negative", hint="Pass the number of episodes to find, such as k=5.")
        return vectors.search(vectors.embed(query), found.numbers, k)

    def windows(
        self,
        *,
        collate: Collate = "numpy",
        out: Mapping[str, Array] | Sequence[Mapping[str, Array]] | None = None,
        **keywords: Unpack[WindowKeywords],
    ) -> Stream:
        """Stream batches of windows: one window for every `stride`-th step of every episode, each once in an epoch.

        `keys` maps channels to their steps, as `(start, stop)` around the current step. Beyond the ends of an episode
        `pad="edge"` repeats the first or last step, "zero" fills with zeros, and None drops incomplete windows.
        `mask` adds an array that is true for recorded steps. `out` are arrays to write batches into, one set for each
        batch in flight. Order, ranks and resume are those of `Dataset.stream`.

        Encoded cameras are decoded to height × width × 3, RGB, uint8, and scaled to `resize` (height, width). With
        `on_error="substitute"`, the next window of a batch replaces one with a frame that cannot be decoded.
        """
        if collate == "arrow":
            raise BadInputError("windows are arrays, not rows", hint="Use collate='numpy', 'torch', 'jax' or 'dict'.")
        keywords.setdefault("prefetch", self._index.context.settings.prefetch)
        request, options = WindowRequest.parse(keywords, collate=collate)
        buffers = (out,) if isinstance(out, Mapping) else tuple(out or ())
        return self._open(request, options, buffers, is_auto=keywords.get("prefetch", "auto") == "auto")

    def to_torch(
        self, *, num_workers: int | Literal["auto"] = 0, pin_memory: bool = False, **keywords: Unpack[WindowKeywords]
    ) -> TorchLoader:
        """Stream windows as tensors from worker processes of a PyTorch loader. `shard` is "auto" by default."""
        keywords.setdefault("shard", "auto")
        stream = self.windows(collate="torch", **keywords)
        request, _ = WindowRequest.parse(keywords, collate="torch")
        reopen = self._reopening(request, stream.options.for_workers())
        may_fork = self._index.context.may_fork
        return TorchLoader(stream, reopen, num_workers, pin_memory=pin_memory, may_fork=may_fork)

    def open_windows(self, request: WindowRequest, options: StreamOptions) -> Stream:
        """Open the windows of a checked request, for worker processes."""
        return self._open(request, options, (), is_auto=False)

    def _open(
        self, request: WindowRequest, options: StreamOptions, out: Sequence[Mapping[str, Array]], *, is_auto: bool
    ) -> Stream:
        source = make_source(self._index, self.numbers, self.filter_text, request, options, out)
        if out:
            options = replace(options, prefetch=len(out) - 1)
        elif is_auto:
            bound = max_prefetch(source.sample_bytes * options.batch_size)
            options = replace(options, prefetch=min(options.prefetch, bound))
        return Stream(source, options, StreamContext(self._index.context.clock))

    def _reopening(self, request: WindowRequest, options: StreamOptions) -> OpenStream:
        reopen = self._index.context.reopen
        if reopen is None:
            raise UnsupportedError("these episodes cannot be opened by another process", hint="Use windows(…).")
        filters = () if self._table is None else tuple(each.source for each in self._table.filters)
        return functools.partial(_reopen_windows, reopen, filters, request, options)

    def _by_id(self, key: str) -> StoredEpisode:
        numbers = self._index.numbers_by_id
        if key not in numbers or not self._selects(numbers[key]):
            raise EpisodeNotFoundError(f"{self.name!r} has no episode {key!r}", hint=suggest(key, numbers))
        return self._index.open(numbers[key])

    def _selects(self, number: int) -> bool:
        at = int(np.searchsorted(self.numbers, number))
        return at < len(self.numbers) and int(self.numbers[at]) == number


def _reopen_windows(
    reopen: Callable[[], Episodes], filters: Sequence[str | Filter], request: WindowRequest, options: StreamOptions
) -> Stream:
    """Open in this process a stream that another process described."""
    episodes = reopen()
    for each in filters:
        episodes = episodes.filter(each)
    return episodes.open_windows(request, options)
