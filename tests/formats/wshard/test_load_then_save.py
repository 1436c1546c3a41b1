"""If this fails, a file that loads cannot be saved, or a file that was written cannot be read."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.formats.wshard.scenes import RawFile, same_episode, write
from warpdata.errors import BadInputError, CorruptError
from warpdata.wshard import (
    Block,
    Channel,
    DType,
    Episode,
    identity,
    join_episodes,
    load_wshard,
    open_wshard,
    save_wshard,
)

NAMES = [
    "reward",
    "done",
    "truncated",
    "time/timestamps_ns",
    "time/ticks",
    "signal/a",
    "signal/b/c",
    "signal/",
    "action/a",
    "omen/a/model",
    "omen/latent_action/genie",
    "uncert/a/model/std",
    "residual/a/sign2nddiff",
    "frames/signal/a",
    "vendor/x",
    "meta/other",
]
USUAL = {"reward": 4, "done": 1, "truncated": 1, "time/timestamps_ns": 8, "time/ticks": 4}
SHAPES: list[list[int]] = [[], [1], [2], [2, 3], [0]]
ATTRIBUTES: list[dict[str, Any]] = [{}, {}, {"modality": "x"}, {"sampling_rate_hz": 400}, {"encoding": "h264"}]


@st.composite
def raw_files(draw: st.DrawFn) -> bytes:
    """Generate files with any declaration of any block, of matching size."""
    length = draw(st.integers(0, 5))
    blocks: dict[str, bytes] = {}
    listed: dict[str, list[dict[str, Any]]] = {"channels": [], "lanes": []}
    for name in draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=6)):
        size = USUAL.get(name, draw(st.integers(0, 3))) * length
        if draw(st.booleans()):
            dtype, shape = draw(st.sampled_from(list(DType))), draw(st.sampled_from(SHAPES))
            attributes = draw(st.sampled_from(ATTRIBUTES))
            item = {**attributes, "id": draw(st.sampled_from(["x", name])), "dtype": str(dtype), "shape": shape}
            listed[draw(st.sampled_from(["channels", "lanes"]))].append({**item, "signal_block": name})
            rows = draw(st.integers(0, 9)) if "sampling_rate_hz" in attributes and 0 not in shape else length
            size = rows * int(np.prod(shape)) * dtype.size_bytes
            size = draw(st.integers(0, 40)) if "encoding" in attributes else size
        blocks[name] = draw(st.binary(min_size=size, max_size=size))
    documents: dict[str, Any] = {
        "meta/wshard": {"version": "0.1"},
        "meta/episode": {"episode_id": "ep", "length_T": length, "timebase": {"type": "ticks"}, "vendor": [1]},
        "meta/channels": listed,
    }
    return RawFile({**{name: json.dumps(item).encode() for name, item in documents.items()}, **blocks}).build()


@settings(max_examples=250, deadline=None)
@given(data=raw_files(), edit=st.booleans())
def test_every_file_that_loads_can_be_saved(data: bytes, edit: bool) -> None:
    with TemporaryDirectory() as name:
        source, target = write(Path(name, "a.wshard"), data), Path(name, "b.wshard")
        loaded = load_wshard(source)
        wanted = replace(loaded, env_id="Another-v1", extra={**loaded.extra, "more": Block(b"1")}) if edit else loaded
        save_wshard(wanted, target)
        again = load_wshard(target)
        same_episode(wanted, again)
        assert {name: channel.id for name, channel in wanted.lanes().items()} == {
            name: channel.id for name, channel in again.lanes().items()
        }
        assert edit or identity(source) == identity(target)
        with open_wshard(source) as one, open_wshard(target) as two:
            for block in one.blocks:
                if not block.startswith("meta/"):
                    assert bytes(one[block].raw()) == bytes(two[block].raw()), block
        some = load_wshard(source, channels=[])
        save_wshard(some, target)
        same_episode(some, load_wshard(target))


def rewarded(path: Path, dtype: str, shape: list[int]) -> Path:
    declared = [{"id": "reward", "dtype": dtype, "shape": shape, "signal_block": "reward"}]
    size = 3 * int(np.prod(shape)) * DType(dtype).size_bytes
    blocks = {
        "meta/episode": json.dumps({"episode_id": "ep", "length_T": 3}).encode(),
        "meta/channels": json.dumps({"channels": declared}).encode(),
        "reward": bytes(range(size)),
    }
    return write(path, RawFile(blocks).build())


@pytest.mark.parametrize(("dtype", "shape"), [("f64", []), ("i16", []), ("bf16", []), ("f32", [2])], ids=str)
def test_declared_reward_keeps_its_type(dtype: str, shape: list[int], tmp_path: Path) -> None:
    source = rewarded(tmp_path / "a.wshard", dtype, shape)
    loaded = load_wshard(source)
    save_wshard(loaded, tmp_path / "b.wshard")
    assert identity(tmp_path / "b.wshard") == identity(source)
    joined = join_episodes([loaded, loaded])
    save_wshard(joined, tmp_path / "c.wshard")
    again = load_wshard(tmp_path / "c.wshard")
    assert again.rewards is not None
    assert loaded.rewards is not None
    assert again.rewards.tobytes() == 2 * loaded.rewards.tobytes()


def test_usual_reward_replaces_a_declared_one(tmp_path: Path) -> None:
    """The old declaration would make the new file unreadable."""
    loaded = load_wshard(rewarded(tmp_path / "a.wshard", "f64", []))
    save_wshard(replace(loaded, rewards=np.arange(3, dtype=np.float32)), tmp_path / "b.wshard")
    again = load_wshard(tmp_path / "b.wshard")
    assert again.rewards is not None
    assert again.rewards.dtype == np.float32
    assert again.rewards.tolist() == [0, 1, 2]
    with pytest.raises(BadInputError, match="float64"):
        save_wshard(Episode("ep", 3, rewards=np.zeros(3)), tmp_path / "c.wshard")


@pytest.mark.parametrize("name", ["reward", "done", "time/timestamps_ns", "time/ticks"])
def test_series_of_a_wrong_size_in_extra_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="take"):
        save_wshard(Episode("ep", 4, extra={name: Block(b"abc")}), tmp_path / "a.wshard")
    assert list(tmp_path.iterdir()) == []


EXTRA_NAMES = st.sampled_from([*NAMES, "meta/episode", "meta/channels", "meta/wshard", "meta/identity"])
EXTRA = st.dictionaries(EXTRA_NAMES, st.binary(max_size=9).map(Block), max_size=3)


@settings(max_examples=150, deadline=None)
@given(length=st.integers(0, 3), extra=EXTRA, has_channel=st.booleans())
def test_whatever_is_written_can_be_read(length: int, extra: dict[str, Block], has_channel: bool) -> None:
    channels = {"a": Channel("a", np.zeros((length, 2), np.float32))} if has_channel else {}
    with TemporaryDirectory() as name:
        path = Path(name, "a.wshard")
        try:
            save_wshard(Episode("ep", length, observations=channels, extra=extra), path)
        except BadInputError:
            assert not path.exists()
            return
        try:
            loaded = load_wshard(path)
        except CorruptError as error:
            pytest.fail(str(error))
        with open_wshard(path) as file:
            for block, written in extra.items():
                assert bytes(file[block].raw()) == written.data
                file[block].read()
        assert loaded.length == length
