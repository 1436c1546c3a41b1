"""The episodes of a version, or those of them that a filter keeps."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from warpdata.errors import BadInputError, EpisodeNotFoundError, UnsupportedError
from warpdata.formats.wshard import Array
from warpdata.kinds.episodes.entry import EpisodesEntry
from warpdata.kinds.episodes.episode import StoredEpisode
from warpdata.kinds.episodes.index_reader import Library
from warpdata.kinds.episodes.window_request import WindowsRequest, batches_ahead, make_plan
from warpdata.kinds.episodes.window_source import WindowsPlan
from warpdata.kinds.episodes.window_spec import Keys, Pad
from warpdata.kinds.tables import Table
from warpdata.primitives.cached_property import cached_property
from warpdata.streaming import (
    Collate,
    OpenStream,
    Remainder,
    Shuffle,
    Stream,
    StreamContext,
    StreamOptions,
    TorchLoader,
    Transform,
    resolve_rank,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Episodes"]


class Episodes:
    """Episodes by position, by id, in a loop, as a table, or as windows for training. Lazy, remote, immutable."""

    def __init__(self, library: Library, table: Table | None = None) -> None:
        self._library = library
        self._table = table

    def __repr__(self) -> str:
        kept = f", where={self._table.filter_text!r}" if self._table is not None else ""
        return f"Episodes({self.name!r}, count={self._library.entry.episode_count}{kept})"

    @property
    def name(self) -> str:
        return self._library.name

    @property
    def entry(self) -> EpisodesEntry:
        return self._library.entry

    def table(self) -> Table:
        """One row for each episode: `id`, `env_id`, `length`, `timebase`, `tick_hz`, `channels`, `identity`,
        `is_sealed`, `hash`, `byte_size`, and `metadata` with the scalars that were recorded with it.
        """
        return self._table if self._table is not None else self._library.table()

    def filter(self, expression: str) -> Episodes:
        """Those for which an SQL expression over the columns of `table()` is true; several filters must all be."""
        return Episodes(self._library, self.table().filter(expression))

    @cached_property
    def numbers(self) -> NDArray[np.int64]:
        """Their numbers among all episodes of the set, ascending."""
        if self._table is None:
            return np.arange(self._library.entry.episode_count, dtype=np.int64)
        return self._table.row_numbers()

    def __len__(self) -> int:
        return len(self.numbers) if self._table is not None else self._library.entry.episode_count

    def __getitem__(self, key: int | str) -> StoredEpisode:
        if isinstance(key, str):
            return self._by_id(key)
        if isinstance(key, bool) or not isinstance(key, int | np.integer):
            raise BadInputError(f"{key!r} is neither the position nor the id of an episode", hint="Use where(…).")
        if not -len(self) <= key < len(self):
            raise EpisodeNotFoundError(f"{self.name!r} has {len(self)} episodes, and none at {key}")
        return self._library.open(int(self.numbers[key]))

    def __iter__(self) -> Iterator[StoredEpisode]:
        for number in self.numbers:
            yield self._library.open(int(number))

    def __contains__(self, key: object) -> bool:
        number = self._library.numbers_by_id.get(key) if isinstance(key, str) else None
        return number is not None and self._holds(number)

    def windows(
        self,
        *,
        keys: Keys | None = None,
        history: int | None = None,
        horizon: int | None = None,
        stride: int = 1,
        pad: Pad | None = "edge",
        mask: bool = False,
        batch_size: int = 256,
        shuffle: bool | Shuffle = False,
        seed: int = 0,
        shard: tuple[int, int] | str | None = None,
        remainder: Remainder = "partial",
        prefetch: int | str = "auto",
        transform: Transform | None = None,
        collate: Collate = "numpy",
        out: Mapping[str, Array] | Sequence[Mapping[str, Array]] | None = None,
    ) -> Stream:
        """Batches of windows for training: of every `stride`-th step of every episode, each once in an epoch.

        `keys` says which steps of which channels, as `(start, stop)` around the current one. What lies beyond
        the ends of an episode repeats its first or last step ("edge"), is zero ("zero"), or makes that there is
        no window (None); `mask` adds which steps are real. `out` are arrays of the caller's to write batches
        into, one set for each batch that is under way. Order, ranks and resume are as of `Dataset.stream`.
        """
        rank, world_size = resolve_rank(shard)
        request = WindowsRequest(keys, (history, horizon), stride, pad, mask, shuffle, seed)
        slots = (out,) if isinstance(out, Mapping) else tuple(out or ())
        plan = self._plan(request, slots)
        options = StreamOptions(
            batch_size=batch_size,
            rank=rank,
            world_size=world_size,
            remainder=remainder,
            prefetch=len(slots) - 1 if slots else batches_ahead(prefetch, plan.sample_bytes * batch_size),
            transform=transform,
            collate=collate,
        )
        if collate == "arrow":
            raise BadInputError("windows are arrays, not rows", hint="Use collate='numpy', 'torch', 'jax' or 'dict'.")
        plan.batches.check(batch_size)
        return self._stream(plan, options)

    def to_torch(
        self,
        *,
        keys: Keys | None = None,
        history: int | None = None,
        horizon: int | None = None,
        stride: int = 1,
        pad: Pad | None = "edge",
        mask: bool = False,
        batch_size: int = 256,
        shuffle: bool | Shuffle = False,
        seed: int = 0,
        shard: tuple[int, int] | str | None = "auto",
        remainder: Remainder = "partial",
        prefetch: int | str = "auto",
        transform: Transform | None = None,
        num_workers: int = 0,
        pin_memory: bool = False,
    ) -> TorchLoader:
        """Windows as a loader for PyTorch, with batches of tensors made in worker processes."""
        stream = self.windows(
            keys=keys,
            history=history,
            horizon=horizon,
            stride=stride,
            pad=pad,
            mask=mask,
            batch_size=batch_size,
            shuffle=shuffle,
            seed=seed,
            shard=shard,
            remainder=remainder,
            prefetch=prefetch,
            transform=transform,
            collate="torch",
        )
        request = WindowsRequest(keys, (history, horizon), stride, pad, mask, shuffle, seed)
        reopen = self._reopening(request, stream.options.for_workers())
        may_fork = self._library.origin.may_fork
        return TorchLoader(stream, reopen, num_workers, pin_memory=pin_memory, may_fork=may_fork)

    def open_windows(self, request: WindowsRequest, options: StreamOptions) -> Stream:
        """As `windows`, from values that were checked."""
        return self._stream(self._plan(request, ()), options)

    def _reopening(self, request: WindowsRequest, options: StreamOptions) -> OpenStream:
        reopen = self._library.origin.reopen
        if reopen is None:
            raise UnsupportedError("these episodes can not be opened by another process", hint="Use windows(…).")
        return functools.partial(_open_windows, reopen, self.filter_text, request, options)

    def _plan(self, request: WindowsRequest, out: Sequence[Mapping[str, Array]]) -> WindowsPlan:
        return make_plan(self._library, self.numbers, self.filter_text, request, out)

    def _stream(self, plan: WindowsPlan, options: StreamOptions) -> Stream:
        return Stream(plan, options, StreamContext(self._library.origin.clock))

    @property
    def filter_text(self) -> str:
        """All filters as one SQL expression; empty without any."""
        return self._table.filter_text if self._table is not None else ""

    def _by_id(self, key: str) -> StoredEpisode:
        known = self._library.numbers_by_id
        if key not in known or not self._holds(known[key]):
            near = difflib.get_close_matches(key, known, n=3)
            raise EpisodeNotFoundError(
                f"{self.name!r} has no episode {key!r}", hint=f"Did you mean {' or '.join(near)}?" if near else None
            )
        return self._library.open(known[key])

    def _holds(self, number: int) -> bool:
        at = int(np.searchsorted(self.numbers, number))
        return at < len(self.numbers) and int(self.numbers[at]) == number


def _open_windows(
    reopen: Callable[[], Episodes], filter_text: str, request: WindowsRequest, options: StreamOptions
) -> Stream:
    """The stream that another process described."""
    episodes = reopen()
    return (episodes.filter(filter_text) if filter_text else episodes).open_windows(request, options)
