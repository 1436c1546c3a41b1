"""If this fails, older forms of the metadata are misread or refused."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import crc32c
import numpy as np
import pytest

from tests.formats.wshard.scenes import RawFile, write
from tests.reference import wshard_reader as reference
from warpdata.errors import MissingExtraError
from warpdata.wshard import ChunkPlace, Timebase, load_wshard, open_wshard, save_wshard

OLD = {"format": "W-SHARD", "wshard_version": "0.1", "endianness": "little", "alignment": 32}
NEWEST = {"endianness": "little", "format": "W-SHARD", "residual_edges": "pad", "version": "0.1"}
STATE = np.arange(8, dtype="<f4")


def made(tmp_path: Path, **parts: Any) -> Path:
    """Write a file of four steps with one channel; None omits a document."""
    documents: dict[str, Any] = {
        "meta/wshard": {"version": 1, "timebase": {"type": "ticks", "tick_hz": 10}},
        "meta/episode": {"episode_id": "e", "env_id": "E", "length_T": 4},
        "meta/channels": {"channels": [{"id": "s", "dtype": "f32", "shape": [2], "signal_block": "signal/s"}]},
    }
    documents.update({f"meta/{name}": value for name, value in parts.items()})
    blocks = {name: json.dumps(value).encode() for name, value in documents.items() if value is not None}
    blocks["signal/s"] = STATE.tobytes()
    blocks["done"] = bytes([0, 0, 0, 255])
    return write(tmp_path / "made.wshard", RawFile(blocks).build())


@pytest.mark.parametrize("shard", [OLD, NEWEST, {"version": 1, "residual_edges": "pad"}, None], ids=str)
def test_every_form_of_the_shard_block(tmp_path: Path, shard: Any) -> None:
    episode = load_wshard(made(tmp_path, wshard=shard))
    np.testing.assert_array_equal(episode.observations["s"].data, STATE.reshape(4, 2))


@pytest.mark.parametrize(
    ("of_episode", "of_shard", "expected"),
    [
        (None, {"type": "ticks", "tick_hz": 30}, Timebase("ticks", 30.0)),
        ({"type": "ticks", "tick_hz": 60.0}, {"type": "ticks", "tick_hz": 30}, Timebase("ticks", 60.0)),
        ({"type": "ticks", "dt_ns": 33333333}, {"tick_hz": 30}, Timebase("ticks", 30.0, 33333333)),
        ({"type": "ticks", "dt_ns": 16666667}, {"tick_hz": 30}, Timebase("ticks", None, 16666667)),
        ({"type": "ticks", "tick_hz": 50, "dt_ns": 1}, None, Timebase("ticks", 50.0, 1)),
        (None, None, Timebase()),
    ],
)
def test_timebases(tmp_path: Path, of_episode: Any, of_shard: Any, expected: Timebase) -> None:
    episode = {"episode_id": "e", "length_T": 4}
    shard: dict[str, Any] = {"version": 1}
    path = made(
        tmp_path,
        episode=episode | ({"timebase": of_episode} if of_episode else {}),
        wshard=shard | ({"timebase": of_shard} if of_shard else {}),
    )
    assert load_wshard(path).timebase == expected


def test_rate_takes_precedence_over_the_rounded_step() -> None:
    assert Timebase("ticks", 30.0, 33333333).hz == 30.0
    assert Timebase("ticks", None, 100_000_000).hz == 10.0
    assert Timebase("timestamps_ns").hz is None


def test_older_names_of_members(tmp_path: Path) -> None:
    episode = load_wshard(made(tmp_path, episode={"id": "old", "length_t": 4}))
    assert (episode.id, episode.env_id, episode.length) == ("old", "", 4)


def test_channels_as_a_map(tmp_path: Path) -> None:
    path = made(tmp_path, channels={"signal/s": {"dtype": "f32", "shape": [2]}})
    assert load_wshard(path).observations["s"].data.shape == (4, 2)


def test_undeclared_blocks_stay_bytes(tmp_path: Path) -> None:
    path, again = made(tmp_path, channels=None), tmp_path / "again.wshard"
    episode = load_wshard(path)
    assert not episode.observations["s"].is_declared
    assert episode.observations["s"].data.dtype == np.uint8
    save_wshard(episode, again)
    assert again.read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    ("members", "place"),
    [
        ({"timestep_range": [0, 4]}, None),
        ({"chunk_index": 2, "total_chunks": 5, "timestep_range": [8, 11]}, ChunkPlace(2, 5, 8)),
        ({"timestep_range": [8, 12]}, ChunkPlace(None, None, 8)),
    ],
)
def test_step_ranges_with_inclusive_and_exclusive_end(
    tmp_path: Path, members: dict[str, Any], place: ChunkPlace | None
) -> None:
    assert load_wshard(made(tmp_path, episode={"episode_id": "e", "length_T": 4, **members})).chunk == place


def test_true_bytes_are_written_back_verbatim(tmp_path: Path) -> None:
    path, again = made(tmp_path), tmp_path / "again.wshard"
    episode = load_wshard(path)
    assert episode.terminations is not None
    assert episode.terminations.tolist() == [False, False, False, True]
    save_wshard(episode, again)
    assert again.read_bytes() == path.read_bytes()
    save_wshard(replace(episode, terminations=~episode.terminations), again)
    assert reference.read_blocks(again.read_bytes())["done"].data == bytes([1, 1, 1, 0])


def test_unknown_members_survive_a_change(tmp_path: Path) -> None:
    listed = [{"id": "s", "dtype": "f32", "shape": [2], "unit": "rad"}]
    path = made(
        tmp_path,
        episode={"episode_id": "e", "length_T": 4, "novel": {"a": [1.5]}, "metadata": {"m": 1}},
        channels={"channels": listed, "novel": True},
    )
    again = tmp_path / "again.wshard"
    episode = load_wshard(path)
    changed = {"s": replace(episode.observations["s"], attributes={"unit": "deg"})}
    save_wshard(replace(episode, env_id="New", observations=changed), again)
    blocks = reference.read_blocks(again.read_bytes())
    document, channels = json.loads(blocks["meta/episode"].data), json.loads(blocks["meta/channels"].data)
    assert (document["novel"], document["metadata"], document["env_id"]) == ({"a": [1.5]}, {"m": 1}, "New")
    assert (channels["novel"], channels["channels"][0]["unit"]) == (True, "deg")


def test_container_variants_of_other_writers(tmp_path: Path) -> None:
    """Zeros between names, other alignments, other flags."""
    whole = RawFile({"meta/episode": b'{"episode_id":"e","length_T":0}', "x/y": b"abc"})
    whole.header["flags"] = 0
    whole.names = [name + b"\0" for name in whole.names]
    whole.entries[1]["name_at"] += 1
    whole.entries[1]["checksum"] = 0
    path = write(tmp_path / "a.wshard", whole.build())
    with open_wshard(path) as file:
        assert file.blocks == ("meta/episode", "x/y")
        assert bytes(file["x/y"].raw()) == b"abc"


def test_default_compression_of_the_header(tmp_path: Path) -> None:
    import lz4.block

    plain = b"abcd" * 100
    packed = lz4.block.compress(plain, store_size=False)
    whole = RawFile({"meta/episode": b'{"episode_id":"e","length_T":0}', "x/y": packed})
    whole.header["codec"] = 2
    whole.entries[1].update(flags=1, size=len(plain), checksum=crc32c.crc32c(plain))
    with open_wshard(write(tmp_path / "a.wshard", whole.build())) as file:
        assert bytes(file["x/y"].raw()) == plain


def test_encoded_streams_are_stored_unchanged(tmp_path: Path) -> None:
    """The declaration describes decoded frames, and the bytes are encoded."""
    listed = [{"id": "s", "dtype": "u8", "shape": [480, 640, 3], "signal_block": "signal/s", "encoding": "h264"}]
    path, again = made(tmp_path, channels={"channels": listed}), tmp_path / "again.wshard"
    episode = load_wshard(path)
    assert episode.observations["s"].data.tobytes() == STATE.tobytes()
    save_wshard(episode, again)
    assert again.read_bytes() == path.read_bytes()
    extra = {"t": replace(episode.observations["s"], id="t", attributes={"encoding": "jpeg"})}
    save_wshard(replace(episode, observations={**episode.observations, **extra}), again)
    channels = json.loads(reference.read_blocks(again.read_bytes())["meta/channels"].data)["channels"]
    assert channels[0] == listed[0]


@pytest.mark.parametrize(("library", "compression"), [("zstandard", "zstd"), ("lz4.block", "lz4"), ("crc32c", "none")])
def test_missing_library_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str, compression: str
) -> None:
    path = tmp_path / "a.wshard"
    save_wshard(load_wshard(made(tmp_path)), path, compression=compression, per_block={"signal/s": "none"})
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingExtraError, match=r"warpdata-lake\[wshard\]"):
        save_wshard(load_wshard(made(tmp_path)), path, per_block={"meta/channels": compression})
