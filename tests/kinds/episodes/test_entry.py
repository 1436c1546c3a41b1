"""If this fails, readers trust an invalid manifest entry of episodes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from warpdata.errors import ManifestCorruptedError, UnsupportedError
from warpdata.kinds.episodes import EpisodesEntry
from warpdata.primitives.hashing import Blob
from warpdata.repository.manifest import Footer, Payload, Shard, ShardList

ENTRY = EpisodesEntry(
    shards=ShardList((Shard("a" * 64, 10), Shard("b" * 64, 20))),
    index=Blob("c" * 64, 1000),
    index_footer=Footer(100, "0123456789abcdef"),
    episode_count=2,
    step_count=30,
    check_bytes=65536,
)


def test_entry_round_trips_through_the_manifest() -> None:
    assert EpisodesEntry.of("demos", ENTRY.payload()) == ENTRY
    chunked = replace(ENTRY, episode_count=1, file_count=2)
    assert EpisodesEntry.of("demos", chunked.payload()) == chunked


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"kind": "zarr"}, UnsupportedError),
        ({"index": None}, ManifestCorruptedError),
        ({"more": 1}, UnsupportedError),
        ({"episodes": 3}, ManifestCorruptedError),
        ({"episodes": True}, ManifestCorruptedError),
        ({"files": 2}, ManifestCorruptedError),
        ({"files": 0}, ManifestCorruptedError),
        ({"files": "2", "episodes": 1}, ManifestCorruptedError),
        ({"files": 3, "episodes": 1}, ManifestCorruptedError),
        ({"steps": -1}, ManifestCorruptedError),
        ({"steps": "30"}, ManifestCorruptedError),
        ({"check_bytes": 0}, ManifestCorruptedError),
        ({"check_bytes": 2**40}, ManifestCorruptedError),
        ({"index_footer": None}, ManifestCorruptedError),
        ({"index_footer": {"byte_size": 1001, "xxh3": "0123456789abcdef"}}, ManifestCorruptedError),
        ({"index_footer": {"byte_size": 100, "xxh3": "0123"}}, ManifestCorruptedError),
        ({"index_footer": {"byte_size": 100, "xxh3": "0123456789abcdef", "x": 1}}, UnsupportedError),
    ],
    ids=str,
)
def test_invalid_entries_are_rejected(change: dict[str, Any], error: type[Exception]) -> None:
    fields = {name: value for name, value in change.items() if name in ("kind", "index")}
    attributes = {**ENTRY.payload().attributes, **{k: v for k, v in change.items() if k not in fields}}
    payload: Payload = replace(ENTRY.payload(), attributes=attributes, **fields)
    with pytest.raises(error, match="demos"):
        EpisodesEntry.of("demos", payload)
