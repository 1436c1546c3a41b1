"""If this fails, saving and loading changes an episode: values, types or metadata are lost."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tests.formats.wshard.scenes import full_episode, same_episode
from tests.reference import wshard_reader as reference
from warpdata.errors import BadInputError, CorruptError, LimitExceededError
from warpdata.formats.wshard import codecs
from warpdata.formats.wshard.canonical_json import encode_json
from warpdata.formats.wshard.container_writer import is_decodable
from warpdata.wshard import (
    Block,
    Channel,
    DType,
    Episode,
    Timebase,
    identity,
    load_wshard,
    open_wshard,
    pack_residual,
    save_wshard,
    unpack_residual,
)

PROVENANCE: dict[str, Any] = {
    **dict.fromkeys(
        ("end_state", "epoch", "first_seq", "last_seq", "prev_identity", "run_id", "source", "start_state")
    ),
    "v": 1,
}
SETTINGS: list[dict[str, Any]] = [
    {},
    {"compression": "zstd", "alignment": 32},
    {"compression": "lz4", "alignment": 16},
    {"compression": ("lz4", 9), "alignment": 0},
    {"compression": "zstd", "time_chunk_steps": 7},
    {"per_block": {"signal/cam0/rgb": ("zstd", 19), "signal/state": "lz4"}, "seal": True},
]


@pytest.mark.parametrize("options", SETTINGS, ids=str)
def test_full_episode_round_trips(options: dict[str, Any], tmp_path: Path) -> None:
    path, again = tmp_path / "a.wshard", tmp_path / "b.wshard"
    save_wshard(full_episode(), path, **options)
    loaded = load_wshard(path)
    same_episode(full_episode(), loaded)
    save_wshard(loaded, again, **options)
    assert again.read_bytes() == path.read_bytes()
    blocks = reference.read_blocks(path.read_bytes())
    assert reference.identity(blocks) == identity(path)
    for name, channel in loaded.lanes().items():
        assert blocks[name].data == channel.data.tobytes()


def test_identity_is_independent_of_settings(tmp_path: Path) -> None:
    found = set()
    for number, options in enumerate(SETTINGS):
        save_wshard(full_episode(), tmp_path / f"{number}.wshard", **options)
        found.add(identity(tmp_path / f"{number}.wshard"))
    assert len(found) == 1


def test_default_files_satisfy_the_strictest_reader(tmp_path: Path) -> None:
    for number, options in enumerate(SETTINGS[:4]):
        path = tmp_path / f"{number}.wshard"
        save_wshard(full_episode(), path, **options)
        assert reference.strict_problems(path.read_bytes()) == []
    save_wshard(Episode("none", 0, observations={"a": Channel("a", np.zeros((0, 3), np.float32))}), path)
    assert reference.strict_problems(path.read_bytes()) == []
    assert load_wshard(path).observations["a"].data.shape == (0, 3)


def test_seal_and_provenance(tmp_path: Path) -> None:
    path = tmp_path / "a.wshard"
    provenance = {**PROVENANCE, "epoch": 3}
    sealed = save_wshard(replace(full_episode(), provenance=provenance), path, seal=True)
    blocks = reference.read_blocks(path.read_bytes())
    assert list(blocks)[-2:] == ["meta/provenance", "meta/identity"]
    assert json.loads(blocks["meta/provenance"].data) == provenance
    assert sealed == identity(path) == reference.identity(blocks)
    again = load_wshard(path)
    assert save_wshard(again, tmp_path / "b.wshard", compression="zstd") == sealed, "a sealed episode stays sealed"
    changed = replace(again, metadata={"other": 1})
    assert save_wshard(changed, tmp_path / "c.wshard") != sealed
    with pytest.raises(BadInputError, match="epoch"):
        save_wshard(replace(full_episode(), provenance={"v": 1}), path, seal=True)


def test_broken_seal_is_detected(tmp_path: Path) -> None:
    path = tmp_path / "a.wshard"
    save_wshard(Episode("a", 1, rewards=np.ones(1, np.float32)), path, seal=True)
    blocks = reference.read_blocks(path.read_bytes())
    data = bytearray(path.read_bytes())
    number = list(blocks).index("reward")
    other = np.full(1, 2, np.float32).tobytes()
    data[blocks["reward"].offset : blocks["reward"].offset + 4] = other
    checksum = codecs.crc32c(other).to_bytes(4, "little")
    data[64 + 48 * number + 40 : 64 + 48 * number + 44] = checksum
    path.write_bytes(data)
    with pytest.raises(CorruptError, match="sealed"):
        identity(path)


def test_damaged_seal_is_detected_on_load(tmp_path: Path) -> None:
    path = tmp_path / "a.wshard"
    save_wshard(full_episode(), path, seal=True)
    at = reference.read_blocks(path.read_bytes())["meta/identity"].offset
    data = bytearray(path.read_bytes())
    data[at + 20] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptError, match=r"meta/identity.*checksum"):
        load_wshard(path)


def test_extreme_rate_round_trips(tmp_path: Path) -> None:
    path = tmp_path / "a.wshard"
    for base in (Timebase("ticks", 1e-9), Timebase("ticks", 1e300), Timebase("ticks", 1e-301, 7)):
        save_wshard(Episode("a", 0, timebase=base), path)
        assert load_wshard(path).timebase.hz == base.hz


def test_unknown_blocks_survive(tmp_path: Path) -> None:
    """With their order, content types and tags."""
    path, again = tmp_path / "a.wshard", tmp_path / "b.wshard"
    episode = replace(
        full_episode(),
        extra={f"x/{number}": Block(b"?" * number, number, number // 2) for number in (1, 3, 17, 0x8000, 0xFFFF)},
    )
    save_wshard(episode, path, compression="zstd")
    save_wshard(replace(load_wshard(path), env_id="Another-v1"), again)
    before, after = reference.read_blocks(path.read_bytes()), reference.read_blocks(again.read_bytes())
    assert list(before) == list(after)
    with open_wshard(path) as file:
        assert list(file) == list(before) == list(file.blocks)
    for name, block in before.items():
        assert (block.content_type, block.tags) == (after[name].content_type, after[name].tags)
        assert name == "meta/episode" or name == "meta/wshard" or block.data == after[name].data
    assert json.loads(after["meta/episode"].data)["env_id"] == "Another-v1"


def test_selected_channels(tmp_path: Path) -> None:
    path = tmp_path / "a.wshard"
    save_wshard(full_episode(), path)
    some = load_wshard(path, channels=["state", "action/ctrl"])
    assert set(some.lanes()) == {"signal/state", "action/ctrl"}
    assert some.rewards is not None
    with pytest.raises(LookupError, match="nothing"):
        load_wshard(path, channels=["nothing"])


def test_bfloat16_without_its_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, again = tmp_path / "a.wshard", tmp_path / "b.wshard"
    save_wshard(full_episode(), path)
    monkeypatch.setitem(__import__("sys").modules, "ml_dtypes", None)
    loaded = load_wshard(path)
    assert loaded.observations["bf16_ch"].data.dtype == np.uint16
    assert loaded.observations["bf16_ch"].stored_dtype is DType.BF16
    save_wshard(loaded, again)
    assert again.read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    ("spoiled", "message"),
    [
        ({"rewards": np.zeros(3, np.float32)}, "rewards"),
        ({"rewards": np.zeros(40)}, "float64"),
        ({"observations": {"a": Channel("a", np.zeros((4, 2), np.float32))}}, "4 steps"),
        ({"observations": {"a": Channel("a", np.zeros((40, 2), np.complex64))}}, "complex64"),
        ({"observations": {"a": Channel("a", np.array(1, np.float32))}}, "scalar"),
        ({"metadata": {"a": float("nan")}}, "JSON"),
        ({"metadata": {"a": {1, 2}}}, "JSON"),
        ({"metadata": {"a": 10**400}}, "float64"),
        ({"provenance": {**PROVENANCE, "epoch": 2**1024}}, "float64"),
        ({"observations": {"a": Channel("a", np.zeros((40, *[1] * 17), np.float32))}}, "shape"),
        ({"observations": {"a": Channel("", np.zeros(40, np.float32))}}, "proper id"),
        ({"timebase": Timebase("ticks", 1e-301)}, "1e-301"),
        ({"timebase": Timebase("ticks", 1e-10)}, "timebase"),
        ({"timebase": Timebase("ticks", 10**400)}, "rate"),
        ({"timestamps_ns": None}, "timestamps"),
        ({"extra": {"reward": Block(b"")}}, "reward"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_invalid_episode_is_refused_and_leaves_no_file(spoiled: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=message):
        save_wshard(replace(full_episode(), **spoiled), tmp_path / "a.wshard")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "options", [{"compression": "gzip"}, {"compression": ("zstd", 99)}, {"alignment": 8}, {"per_block": {"no": "zstd"}}]
)
def test_invalid_options_are_refused(options: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(BadInputError):
        save_wshard(full_episode(), tmp_path / "a.wshard", **options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("shape", "steps"), [((1_000_001, 1), 1), ((2, 2**29 + 1), 2), ((2, 2**30 + 1), 1), ((2, 2**30), 0)], ids=str
)
def test_undecodable_blocks_are_not_written(shape: tuple[int, int], steps: int, tmp_path: Path) -> None:
    """Too many or too large time chunks. The arrays take no memory, and are not read."""
    episode = Episode("big", shape[0], observations={"a": Channel("a", np.zeros(shape, np.uint8))})
    with pytest.raises(LimitExceededError, match="signal/a"):
        save_wshard(episode, tmp_path / "a.wshard", compression="zstd", time_chunk_steps=steps)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("size_bytes", "chunk_bytes", "verdict"),
    [
        (2**30, 0, True),
        (2**30 + 1, 0, False),
        (2**40, 2**30, True),
        (2**40, 2**30 + 1, False),
        (2**30, 2**40, True),
        (10**6 * 7, 7, True),
        (10**6 * 7 + 1, 7, False),
    ],
)
def test_is_decodable(size_bytes: int, chunk_bytes: int, verdict: bool) -> None:
    assert is_decodable(size_bytes, chunk_bytes) is verdict


@given(st.integers(-(2**1024) + 2**971, 2**1024 - 2**971) | st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_have_the_specified_form(value: float) -> None:
    """Compare with an independent formatter, from the digits alone."""
    if isinstance(value, int):
        expected = f"{'-' * (value < 0)}{abs(value)}"
    else:
        sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
        assert isinstance(exponent, int)
        word, first = "".join(map(str, digits)), len(digits) + exponent - 1
        if not value:
            shown = "0.0"
        elif -4 <= first < 16:
            padded = "0" * -first + word if first < 0 else word.ljust(first + 1, "0")
            point = max(first, 0) + 1
            shown = f"{padded[:point]}.{padded[point:] or '0'}"
        else:
            rest = f".{word[1:]}" if word[1:] else ""
            shown = f"{word[0]}{rest}e{'-' if first < 0 else '+'}{abs(first):02d}"
        expected = f"{'-' * sign}{shown}"
    assert encode_json({"a": value}) == f'{{"a":{expected}}}'.encode()


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NAMES = TEXT.filter(bool)
RAW = st.tuples(NAMES, st.binary(max_size=300), st.integers(0, 0xFFFF))
ALIGNMENTS = st.sampled_from([0, 16, 32, 64])
SIGNALS = arrays.arrays(
    np.float32, arrays.array_shapes(min_dims=1, max_dims=2, max_side=30), elements=st.floats(-9, 9, width=32)
)
ELEMENTS = [np.float32, np.float64, np.float16, np.int64, np.int32, np.int16, np.int8, np.uint64, np.uint8, np.bool_]


@st.composite
def episodes(draw: st.DrawFn) -> Episode:
    length = draw(st.integers(0, 40))

    def channels() -> dict[str, Channel]:
        names = draw(st.lists(NAMES, max_size=3, unique=True))
        return {
            name: Channel(
                name,
                draw(
                    arrays.arrays(
                        draw(st.sampled_from(ELEMENTS)), (length, *draw(st.lists(st.integers(1, 4), max_size=2)))
                    )
                ),
            )
            for name in names
        }

    return Episode(
        draw(NAMES),
        length,
        draw(TEXT),
        Timebase("ticks", draw(st.none() | st.floats(0.001, 1e6))),
        observations=channels(),
        actions=channels(),
        metadata=draw(st.dictionaries(NAMES, st.integers() | TEXT, max_size=3)),
        extra={
            f"x/{name}": Block(data, number)
            for name, data, number in draw(st.lists(RAW, max_size=3, unique_by=lambda item: item[0]))
        },
    )


@settings(max_examples=120)
@given(episodes(), st.sampled_from(["none", "zstd", "lz4"]), ALIGNMENTS, st.sampled_from([0, 1, 5]))
def test_any_episode_round_trips(episode: Episode, compression: str, alignment: int, steps: int) -> None:
    with TemporaryDirectory() as directory:
        path = Path(directory, "a.wshard")
        save_wshard(episode, path, compression=compression, alignment=alignment, time_chunk_steps=steps)
        loaded = load_wshard(path)
        same_episode(episode, loaded)
        data = path.read_bytes()
        blocks = reference.read_blocks(data)
        assert steps or reference.strict_problems(data) == []
        with open_wshard(path) as file:
            for name in file.blocks:
                assert bytes(file[name].raw()) == blocks[name].data


@pytest.mark.parametrize("shape", [(0,), (0, 3), (0, 0), (3, 0)], ids=str)
def test_residuals_of_no_steps_are_empty(shape: tuple[int, ...]) -> None:
    assert pack_residual(np.zeros(shape, np.float32)).tolist() == []
    assert unpack_residual(np.zeros(0, np.uint8), shape[0]).shape == (0, shape[0])
    for length in (0, -8):
        with pytest.raises(CorruptError):
            unpack_residual(np.zeros(1, np.uint8), length)


@given(SIGNALS)
def test_residuals_are_signs_of_the_second_difference(signal: np.ndarray[Any, Any]) -> None:
    packed = pack_residual(signal)
    rows = signal.reshape(len(signal), -1).astype(np.float64).T
    bits = unpack_residual(packed, len(signal))
    assert bits.shape == rows.shape
    for row, bit in zip(rows, bits, strict=True):
        for i in range(len(row)):
            inner = 0 < i < len(row) - 1
            assert bit[i] == (inner and 2 * row[i] - row[i - 1] - row[i + 1] > 0 if inner else False)
