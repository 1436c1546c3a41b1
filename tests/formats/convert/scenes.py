"""Random episodes, and what must hold of every conversion whatever the formats."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from warpdata.conversion import ConversionReport
from warpdata.formats.convert.episode_fields import list_fields
from warpdata.wshard import (
    Block,
    Channel,
    ChunkPlace,
    DType,
    Episode,
    Timebase,
    WShardFile,
    open_wshard,
    pack_residual,
    save_wshard,
)

Array = np.ndarray[Any, np.dtype[Any]]

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
    """Any bits at all: NaNs with payloads, negative zeros, halves of surrogates."""
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
        attributes: dict[str, Any] = draw(st.sampled_from([{}, {"modality": "rgb"}]))
        observations[name] = Channel(name, made.data, made.dtype, attributes)
    if draw(st.booleans()):
        imu = np.arange(4 * length, dtype=np.float32)
        observations["imu"] = Channel("imu", imu, attributes={"sampling_rate_hz": 400})
    actions = {}
    for name in draw(st.lists(st.sampled_from(["ctrl", "action", "grip/hand"]), unique=True, max_size=2)):
        made = some_array(draw, length)
        actions[name] = Channel(name, made.data, made.dtype)
    timed = draw(st.booleans())
    maybe = st.booleans()
    chance = np.random.default_rng(draw(st.integers(0, 2**32)))
    return Episode(
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
        extra={"vendor/blob": Block(b"\0\1\2", 0x8001, 7)} if draw(maybe) else {},
    )


def saved(episode: Episode, folder: Path, *, seal: bool = False, name: str = "source") -> Path:
    path = folder / f"{name}.wshard"
    save_wshard(episode, path, seal=seal)
    return path


def told(report: ConversionReport) -> dict[str, str]:
    """The fate of each field. Each has exactly one."""
    fates: dict[str, str] = {}
    for name in ("kept", "changed", "lost"):
        for fate in getattr(report, name):
            assert fate.field not in fates, f"{fate.field} is both {fates[fate.field]} and {name}"
            fates[fate.field] = name
            assert name == "kept" or fate.how, f"{fate.field} is {name}, and nobody says why"
    return fates


def check_export(report: ConversionReport, source: Path) -> dict[str, str]:
    """Nothing is left out of a report, and nothing is in it that is not in the file."""
    fates = told(report)
    with open_wshard(source) as file:
        assert set(fates) == set(list_fields(file))
    return fates


def check_return(fates: dict[str, str], source: Path, back: Path) -> None:
    """What was kept came back bit for bit; what was lost did not."""
    with open_wshard(source) as before, open_wshard(back) as after:
        for field, fate in fates.items():
            if field.startswith("meta/episode."):
                member = field.removeprefix("meta/episode.")
                if fate == "kept":
                    assert told_by(after, member) == told_by(before, member), field
            elif field.endswith(".attributes") and field not in before:
                block = field.removesuffix(".attributes")
                if fate == "kept":
                    assert attributes(after, block) == attributes(before, block), field
            elif fate == "kept":
                assert bytes(after[field].raw()) == bytes(before[field].raw()), field
                one, two = before[field].block_type, after[field].block_type
                assert (one.dtype, one.shape, one.rows) == (two.dtype, two.shape, two.rows), field
            elif fate == "lost":
                assert field not in after, field


def told_by(file: WShardFile, member: str) -> object:
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
