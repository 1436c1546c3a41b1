"""Episodes of one version: lists in any order, and one episode with its place in such a list.

The order of a question is computed once for a version. Rewards are read for the episodes of a page. A filter or an
order by reward reads those of the whole set, which is bounded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from warpdata.datasets import Dataset
from warpdata.errors import BadInputError, ErrorKind, LimitExceededError
from warpdata.kinds.episodes import REWARD, Episodes, StoredEpisode, filter_by_reward, read_reward, total_rewards
from warpdata.primitives.hashing import sha256_hex
from warpdata.primitives.parallel import IO_POOL
from warpdata.server.cells import json_rows
from warpdata.server.samples import SamplePosition
from warpdata.server.service import Service

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "EpisodePage",
    "EpisodeQuery",
    "find_place",
    "list_episodes",
    "opened_episode",
    "pinned_version",
    "view_episodes",
]

_NUMBER, _SUCCESS, _METADATA, _TAGS = "number", "success", "metadata", "tags"
_SORTED = ("id", "env_id", "length", "tick_hz", "byte_size")
_COLUMNS = (*_SORTED, "channels")
_LEAST_EDGE = 8
_MAX_TAGS = 64
_MAX_TAG_LENGTH = 256
_MAX_REWARD_EPISODES = 20_000
"""Episodes of which all rewards are read: a request for each."""


@dataclass(frozen=True, slots=True)
class EpisodeQuery:
    """The episodes that a client asks for. `sort` is a column, `metadata.NAME`, "reward", "success" or "number"."""

    name: str | None = None
    filter: str | None = None
    sort: str = _NUMBER
    is_descending: bool = False
    limit: int = 100
    cursor: str | None = None
    offset: int = 0


@dataclass(frozen=True, slots=True)
class EpisodePage:
    """A page: descriptions of episodes, and the cursor of the next page."""

    name: str
    episodes: list[dict[str, Any]]
    fields: list[str]
    total: int
    next_cursor: str | None


def list_episodes(service: Service, dataset: Dataset, query: EpisodeQuery) -> EpisodePage:
    """Return a page of the episodes that a filter keeps, in the order of the query."""
    episodes = dataset.episodes(query.name)
    question = _question(episodes, query)
    position = SamplePosition(dataset.version, question, query.offset)
    if query.cursor is not None:
        position = SamplePosition.decode(query.cursor)
        if (position.version, position.question) != (dataset.version, question):
            raise BadInputError(
                "the cursor belongs to another version, set, filter or order",
                hint="Send the same question with a cursor, or none to begin again.",
                kind=ErrorKind.TOKEN_MISMATCH,
            )
    order = _order(service, dataset, episodes, query)
    chosen = order[position.done : position.done + query.limit].tolist()
    done = position.done + len(chosen)
    following = replace(position, done=done).encode() if chosen and done < len(order) else None
    return EpisodePage(
        episodes.name, view_episodes(episodes, chosen), _metadata_fields(episodes), len(order), following
    )


def pinned_version(query: EpisodeQuery) -> str | None:
    """Return the version of the cursor; None for a first page."""
    return None if query.cursor is None else SamplePosition.decode(query.cursor).version


def find_place(
    service: Service, dataset: Dataset, query: EpisodeQuery, number: int
) -> tuple[int | None, int, str | None, str | None]:
    """Return the position of an episode in a list, the length of the list, and the ids before and after it."""
    import numpy as np

    episodes = dataset.episodes(query.name)
    order = _order(service, dataset, episodes, query)
    found = np.flatnonzero(order == number)
    if not len(found):
        return None, len(order), None, None
    at = int(found[0])
    before = episodes.index.open(int(order[at - 1])).id if at else None
    after = episodes.index.open(int(order[at + 1])).id if at + 1 < len(order) else None
    return at, len(order), before, after


def opened_episode(dataset: Dataset, name: str | None, episode_id: str) -> tuple[Episodes, StoredEpisode]:
    """Open an episode by its id."""
    episodes = dataset.episodes(name)
    return episodes, episodes[episode_id]


def view_episodes(episodes: Episodes, numbers: Sequence[int]) -> list[dict[str, Any]]:
    """Describe episodes for a list: their rows, and from their files rewards and tags."""
    if not numbers:
        return []
    index = episodes.index
    has_metadata = _METADATA in index.table.schema().names
    table = index.table.select([*_COLUMNS, *([_METADATA] if has_metadata else [])])
    rewards = IO_POOL.map_all(lambda number: read_reward(index, number), list(numbers))
    return [
        _view(number, row, index.open(number), reward)
        for number, (row, _), reward in zip(numbers, json_rows(table.take(list(numbers))), rewards, strict=True)
    ]


def _view(number: int, row: dict[str, Any], episode: StoredEpisode, reward: float) -> dict[str, Any]:
    metadata = row.get(_METADATA) or {}
    success, rate = metadata.get(_SUCCESS), row["tick_hz"]
    return {
        "number": number,
        "id": row["id"],
        "env_id": row["env_id"],
        "length": row["length"],
        "duration_s": row["length"] / rate if rate else None,
        "reward": reward if math.isfinite(reward) else None,
        "success": success if isinstance(success, bool) else None,
        "tags": _tags(episode.metadata.get(_TAGS)),
        "metadata": {name: value for name, value in metadata.items() if value is not None},
        "channels": row["channels"],
        "cameras": [
            spec.id
            for spec in episode.info.channels.values()
            if _is_camera(str(spec.dtype), spec.shape, is_encoded="encoding" in spec.attributes)
        ],
        "size_bytes": row["byte_size"],
        "files": len(episode.chunks),
    }


def _is_camera(dtype: str, shape: tuple[int, ...], *, is_encoded: bool) -> bool:
    """Return whether a channel is encoded images or video, or arrays of pixels."""
    is_image = dtype == "u8" and (len(shape) == 2 or (len(shape) == 3 and shape[2] in (1, 3, 4)))
    return is_encoded or (is_image and min(shape[:2]) >= _LEAST_EDGE)


def _tags(value: object) -> list[str]:
    """Return the tags of an episode: the texts in the list `tags` of its metadata."""
    listed = value if isinstance(value, list | tuple) else [value]
    return [tag[:_MAX_TAG_LENGTH] for tag in listed if isinstance(tag, str)][:_MAX_TAGS]


def _metadata_fields(episodes: Episodes) -> list[str]:
    schema = episodes.index.table.schema()
    return [field.name for field in schema.field(_METADATA).type] if _METADATA in schema.names else []


def _question(episodes: Episodes, query: EpisodeQuery) -> str:
    asked = "\0".join((episodes.name, query.filter or "", query.sort, str(query.is_descending)))
    return sha256_hex(asked.encode())[:16]


def _order(service: Service, dataset: Dataset, episodes: Episodes, query: EpisodeQuery) -> NDArray[np.int64]:
    """Return the numbers of the episodes in a list, computed once for a version."""
    key = (dataset.id, dataset.version, _question(episodes, query))
    return service.episode_orders.get_or_create(key, lambda: _sorted(episodes, query), lambda found: int(found.nbytes))


def _sorted(episodes: Episodes, query: EpisodeQuery) -> NDArray[np.int64]:
    import numpy as np
    import pyarrow.compute as pc

    index = episodes.index
    if query.filter:
        if REWARD in query.filter:
            _check_reward(episodes)
        kept = filter_by_reward(index, index.table, query.filter).row_numbers()
    else:
        kept = np.arange(index.entry.episode_count, dtype=np.int64)
    if query.sort == _NUMBER:
        return kept[::-1] if query.is_descending else kept
    values = _sort_values(episodes, query.sort).take(kept)
    direction = "descending" if query.is_descending else "ascending"
    places = pc.array_sort_indices(values, order=direction, null_placement="at_end")
    ordered: NDArray[np.int64] = kept[places.to_numpy()]
    return ordered


def _sort_values(episodes: Episodes, sort: str) -> Any:
    """Return the values of the column that sorts, one for each episode."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if sort == REWARD:
        _check_reward(episodes)
        return pa.array(total_rewards(episodes.index), from_pandas=True)
    fields = _metadata_fields(episodes)
    name = f"{_METADATA}.{_SUCCESS}" if sort == _SUCCESS else sort
    column, _, field = name.partition(".")
    is_known = field in fields if column == _METADATA else name in _SORTED
    if not is_known:
        known = [
            _NUMBER,
            REWARD,
            *(one for one in _COLUMNS if one != "channels"),
            *(f"{_METADATA}.{f}" for f in fields),
        ]
        raise BadInputError(f"episodes have no column {sort!r} to sort by", hint=f"Columns: {', '.join(known[:20])}.")
    read = episodes.index.table.select([column]).to_arrow(allow_large=True)[column].combine_chunks()
    values = pc.struct_field(read, field) if field else read
    return pc.cast(values, pa.int8()) if pa.types.is_boolean(values.type) else values


def _check_reward(episodes: Episodes) -> None:
    count = episodes.index.entry.episode_count
    if count > _MAX_REWARD_EPISODES:
        raise LimitExceededError(
            f"{episodes.name!r} has {count:,} episodes; rewards are read of at most {_MAX_REWARD_EPISODES:,}",
            hint="Filter and sort by columns of the index, or record the sum of rewards as metadata.",
        )
