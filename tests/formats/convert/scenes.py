"""Random episodes, and the invariants of every conversion."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.kinds.artifacts.media import encode_test_image
from warpdata.conversion import ConversionReport
from warpdata.formats.convert.episode_fields import list_fields
from warpdata.wshard import (
    Block,
    Channel,
    ChannelSpec,
    ChunkPlace,
    DType,
    Episode,
    Origin,
    Timebase,
    WShardFile,
    frames_block,
    index_images,
    open_wshard,
    pack_residual,
    save_wshard,
)

Array = np.ndarray[Any, np.dtype[Any]]

SERIES = {"reward": "rewards", "done": "terminations", "truncated": "truncations"}
ATTRIBUTES: list[dict[str, Any]] = [{}, {"modality": "rgb"}, {"names": ["x", "y", "z"]}, {"names": {"motors": ["a"]}}]
IMAGE = encode_test_image(np.arange(48, dtype=np.uint8).reshape(4, 4, 3), "PNG")

NAMES = [
    "state",
    "cam0/rgb",
    "é",
    "reward",
    "action",
    "is_last",
    "signal/x",
    "omen/y",
    "wshard",
    "obs",
    "a.b",
    "next_obs/q",
]


def some_array(draw: st.DrawFn, rows: int) -> Channel:
    """Generate arbitrary bits: NaN payloads, negative zeros, bf16."""
    dtype = draw(st.sampled_from(list(DType)))
    shape = draw(st.sampled_from([(), (1,), (3,), (2, 3), (4, 4, 3), (2, 0)]))
    chance = np.random.default_rng(draw(st.integers(0, 2**32)))
    count = rows * int(np.prod(shape)) * dtype.size_bytes
    raw = chance.integers(0, 2 if dtype is DType.BOOL else 256, count, dtype=np.uint8)
    return Channel("", raw.view(dtype.numpy).reshape(rows, *shape), dtype)


@st.composite
def episodes(draw: st.DrawFn, max_steps: int = 12) -> Episode:
    length = draw(st.integers(0, max_steps))
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=4))
    observations = {}
    for name in names:
        made = some_array(draw, length)
        attributes: dict[str, Any] = draw(st.sampled_from(ATTRIBUTES))
        observations[name] = Channel(name, made.data, made.dtype, attributes)
    if draw(st.booleans()):
        imu = np.arange(4 * length, dtype=np.float32)
        observations["imu"] = Channel("imu", imu, attributes={"sampling_rate_hz": 400})
    actions = {}
    for name in draw(st.lists(st.sampled_from(["ctrl", "action", "grip/hand"]), unique=True, max_size=2)):
        made = some_array(draw, length)
        actions[name] = Channel(name, made.data, made.dtype, draw(st.sampled_from(ATTRIBUTES)))
    timed = draw(st.booleans())
    maybe = st.booleans()
    if draw(maybe):
        fast = np.arange(3 * length, dtype=np.float64)
        actions["fast"] = Channel("fast", fast, attributes={"sampling_rate_hz": 90})
    chance = np.random.default_rng(draw(st.integers(0, 2**32)))
    extra = {"vendor/blob": Block(b"\0\1\2", 0x8001, 7)} if draw(maybe) else {}
    if length and draw(maybe):
        times = [round(number * 1e9 / 30) for number in range(length)]
        observations["camera"], extra[frames_block("signal/camera")] = index_images([IMAGE] * length, times, "camera")
    episode = Episode(
        draw(st.sampled_from(["ep", "ep/7", "日"])),
        length,
        draw(st.sampled_from(["", "Lift-v1"])),
        Timebase("timestamps_ns") if timed else Timebase("ticks", draw(st.sampled_from([None, 30.0, 29.97]))),
        observations=observations,
        actions=actions,
        rewards=chance.standard_normal(length).astype(np.float32) if draw(maybe) else None,
        terminations=chance.random(length) < 0.2 if draw(maybe) else None,
        truncations=chance.random(length) < 0.2 if draw(maybe) else None,
        timestamps_ns=np.cumsum(chance.integers(1, 10**9, length)) if timed else None,
        omens={"state/m": Channel("state/m", some_array(draw, length).data)} if draw(maybe) else {},
        residuals={"q/sign2nddiff": Channel("q", pack_residual(np.zeros((length + 1, 2))), is_declared=False)}
        if draw(maybe)
        else {},
        metadata={"operator": "Ada", "n": 1.5} if draw(maybe) else {},
        attributes={"source": "bench"} if draw(maybe) else {},
        chunk=ChunkPlace(1, 3, 40) if length and draw(maybe) else None,
        extra=extra,
        uncertainties={"state/m/std": Channel("std", some_array(draw, length).data)} if draw(maybe) else {},
    )
    return with_declared_series(draw, episode) if draw(maybe) else episode


def with_declared_series(draw: st.DrawFn, episode: Episode) -> Episode:
    """Give rewards or endings another type, as a file may declare it."""
    block, member = draw(st.sampled_from(sorted(SERIES.items())))
    made = some_array(draw, episode.length)
    spec = ChannelSpec(draw(st.sampled_from([block, "x"])), made.stored_dtype, made.step_shape, block)
    return replace(episode, origin=Origin(series={block: spec}), **{member: made.data})  # type: ignore[arg-type]


def saved(episode: Episode, directory: Path, *, seal: bool = False, name: str = "source") -> Path:
    path = directory / f"{name}.wshard"
    save_wshard(episode, path, seal=seal)
    return path


def list_outcomes(report: ConversionReport) -> dict[str, str]:
    """Return the outcome of each field. Each field has exactly one."""
    outcomes: dict[str, str] = {}
    for name in ("kept", "changed", "lost"):
        for outcome in getattr(report, name):
            assert outcome.field not in outcomes, f"{outcome.field} is both {outcomes[outcome.field]} and {name}"
            outcomes[outcome.field] = name
            assert name == "kept" or outcome.how, f"{outcome.field} is {name}, without a reason"
    return outcomes


def check_export(report: ConversionReport, source: Path) -> dict[str, str]:
    """Check that the report lists exactly the fields of the file."""
    outcomes = list_outcomes(report)
    with open_wshard(source) as file:
        assert set(outcomes) == set(list_fields(file))
    return outcomes


def check_return(outcomes: dict[str, str], source: Path, back: Path) -> None:
    """Check that kept fields are equal bit for bit, and that lost fields are absent."""
    with open_wshard(source) as before, open_wshard(back) as after:
        for field, outcome in outcomes.items():
            if field.startswith("meta/episode."):
                member = field.removeprefix("meta/episode.")
                if outcome == "kept":
                    assert read_member(after, member) == read_member(before, member), field
            elif field.endswith(".attributes") and field not in before:
                block = field.removesuffix(".attributes")
                if outcome == "kept":
                    assert attributes(after, block) == attributes(before, block), field
            elif outcome == "kept":
                assert bytes(after[field].raw()) == bytes(before[field].raw()), field
                one, two = before[field].block_type, after[field].block_type
                assert (one.dtype, one.shape, one.rows) == (two.dtype, two.shape, two.rows), field
            elif outcome == "lost":
                assert field not in after, field


def read_member(file: WShardFile, member: str) -> object:
    info = file.info
    assert info is not None
    if member in info.attributes:
        return info.attributes[member]
    if member == "timebase":
        return info.timebase.type, info.timebase.hz
    return getattr(info, {"episode_id": "id"}.get(member, member))


def attributes(file: WShardFile, block: str) -> object:
    info = file.info
    assert info is not None
    spec = info.channels.get(block) or info.lanes[block]
    return spec.id, dict(spec.attributes)
