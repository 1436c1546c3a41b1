"""One way to load, whether an episode is finished or still being recorded."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from warpdata.errors import BadInputError
from warpdata.formats.wshard.block_type import DONE, REWARD, TIMESTAMPS, TRUNCATED
from warpdata.formats.wshard.byte_source import ByteSource, PathLike
from warpdata.formats.wshard.dtypes import decode_array
from warpdata.formats.wshard.episodes import load_episode
from warpdata.formats.wshard.journal import JOURNAL_MAGIC, Journal, read_journal
from warpdata.formats.wshard.metadata import parse_info
from warpdata.formats.wshard.model import Channel, Episode
from warpdata.formats.wshard.recovery import journal_metadata, opened

__all__ = ["load_wshard"]


def load_wshard(path: PathLike | ByteSource, channels: Sequence[str] | None = None) -> Episode:
    """The whole episode in memory, every checksum verified; `channels` picks some, by id or block name.

    A journal (`….partial`) gives the steps that were flushed so far, also while it is being written.
    """
    if isinstance(path, str | os.PathLike) and _is_journal(Path(path)):
        with opened(Path(path)) as handle:
            return _load_journal(handle, channels)
    return load_episode(path, channels)


def _is_journal(path: Path) -> bool:
    # What cannot be opened is for the reader of finished files to explain.
    with suppress(OSError), path.open("rb") as file:
        return file.read(len(JOURNAL_MAGIC)) == JOURNAL_MAGIC
    return False


def _load_journal(handle: int, channels: Sequence[str] | None) -> Episode:
    journal = read_journal(handle)
    info = parse_info(journal_metadata(journal))
    taken = dict(_read_parts(journal, handle, channels))
    if channels is not None:
        known = {word for name, channel in taken.items() for word in (name, channel.id)}
        if unknown := set(channels) - known:
            raise BadInputError(f"there are no channels {', '.join(sorted(unknown))} in the journal")
    series = {name: taken[name].data if name in taken else None for name in (REWARD, DONE, TRUNCATED, TIMESTAMPS)}
    return Episode(
        info.id,
        info.length,
        info.env_id,
        info.timebase,
        observations=_group(taken, "signal/"),
        actions=_group(taken, "action/"),
        rewards=series[REWARD],
        terminations=series[DONE],
        truncations=series[TRUNCATED],
        timestamps_ns=series[TIMESTAMPS],
        metadata=info.metadata,
        attributes=info.attributes,
    )


def _read_parts(journal: Journal, handle: int, channels: Sequence[str] | None) -> Iterator[tuple[str, Channel]]:
    for number, part in enumerate(journal.parts):
        is_channel = "/" in part.block and part.block != TIMESTAMPS
        if channels is not None and is_channel and not {part.id, part.block} & set(channels):
            continue
        data = b"".join(journal.pieces(handle, number))
        rows = decode_array(data, part.dtype, (journal.step_count, *part.shape)).copy()
        yield part.block, Channel(part.id, rows, part.dtype, part.attributes)


def _group(taken: Mapping[str, Channel], prefix: str) -> dict[str, Channel]:
    return {name.removeprefix(prefix): channel for name, channel in taken.items() if name.startswith(prefix)}
