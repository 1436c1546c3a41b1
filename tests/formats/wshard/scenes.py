"""Episodes and damaged files that the WShard tests share."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import crc32c
import ml_dtypes
import numpy as np
import pytest
import xxhash

from warpdata.wshard import Block, Channel, DType, Episode, Timebase, pack_residual

__all__ = ["ROOT", "RawFile", "full_episode", "needs_vectors", "same_episode", "vector", "write"]

ROOT = Path(__file__).parents[3]
VECTORS = ROOT.parent / "shared" / "vectors" / "wshard"
needs_vectors = pytest.mark.skipif(not VECTORS.is_dir(), reason="the reference files are not here")

_NUMPY = {
    "f32": np.float32,
    "f64": np.float64,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "i64": np.int64,
    "i32": np.int32,
    "i16": np.int16,
    "i8": np.int8,
    "u64": np.uint64,
    "u32": np.uint32,
    "u16": np.uint16,
    "u8": np.uint8,
    "bool": np.bool_,
}


def vector(name: str) -> Path:
    return VECTORS / f"{name}.wshard"


def ramp(dtype: str, *shape: int) -> np.ndarray[Any, Any]:
    count = int(np.prod(shape))
    return (np.arange(count) % 97).astype(_NUMPY[dtype]).reshape(shape)


def full_episode(length: int = 40) -> Episode:
    """Return an episode with a value in every field, and every element type."""
    state = Channel("state", np.sin(np.arange(length * 3, dtype=np.float32)).reshape(length, 3))
    observations = {f"{dtype}_ch": Channel(f"{dtype}_ch", ramp(str(dtype), length, 2)) for dtype in DType}
    return Episode(
        "full",
        length,
        "Everything-v1",
        Timebase("timestamps_ns"),
        observations={
            **observations,
            "state": state,
            "cam0/rgb": Channel("cam0/rgb", ramp("u8", length, 4, 4, 3), attributes={"modality": "rgb"}),
            "imu": Channel("imu", ramp("f32", length * 4, 6), attributes={"sampling_rate_hz": 400}),
        },
        actions={"ctrl": Channel("ctrl", ramp("f32", length, 2))},
        rewards=np.linspace(0, 1, length, dtype=np.float32),
        terminations=np.arange(length) == length - 1,
        truncations=np.zeros(length, np.bool_),
        timestamps_ns=np.arange(length, dtype=np.int64) * 33_333_333,
        omens={
            "state/dreamer": Channel("state/dreamer", ramp("f32", length, 3)),
            "state/team/model": Channel("state/team/model", ramp("f64", length, 5)),
            "latent_action/genie": Channel("latent_action/genie", ramp("f32", length, 8)),
            "latent_action_codebook/genie": Channel("latent_action_codebook/genie", ramp("i32", length)),
        },
        uncertainties={"state/dreamer/std": Channel("state/dreamer/std", ramp("f32", length, 3))},
        residuals={"state/sign2nddiff": Channel("state", pack_residual(state.data), is_declared=False)},
        metadata={"operator": "Ada", "notes": ["é", 1.5, None], "ok": True},
        attributes={"source": "bench", "action_spaces": {"ctrl": [-1, 1]}},
        extra={"vendor/blob": Block(bytes(range(256)), 0x8001, 7), "aux/empty": Block(b"", 3)},
    )


def same_episode(left: Episode, right: Episode) -> None:
    """Assert that two episodes are equal, bit for bit."""
    assert (left.id, left.length, left.env_id, left.chunk) == (right.id, right.length, right.env_id, right.chunk)
    assert left.timebase.type == right.timebase.type
    assert left.timebase.hz == right.timebase.hz
    assert dict(left.metadata) == dict(right.metadata)
    assert dict(left.attributes) == dict(right.attributes)
    assert dict(left.extra) == dict(right.extra)
    assert left.provenance == right.provenance
    mine, other = left.lanes(), right.lanes()
    assert set(mine) == set(other)
    for name, channel in mine.items():
        assert channel.stored_dtype == other[name].stored_dtype, name
        assert channel.data.shape == other[name].data.shape, name
        assert channel.data.tobytes() == other[name].data.tobytes(), name
        assert dict(channel.attributes) == dict(other[name].attributes), name
    for member in ("rewards", "terminations", "truncations", "timestamps_ns"):
        one, two = getattr(left, member), getattr(right, member)
        assert (one is None) == (two is None), member
        assert one is None or (one.dtype == two.dtype and one.tobytes() == two.tobytes()), member


class RawFile:
    """A file assembled field by field, so that a test can falsify any of them."""

    def __init__(self, blocks: dict[str, bytes]) -> None:
        self.header: dict[str, int | bytes] = {
            "magic": b"SHRD",
            "version": 2,
            "role": 5,
            "flags": 0x00A2,
            "alignment": 64,
            "codec": 0,
            "entry_size": 48,
        }
        self.names = [name.encode() for name in blocks]
        self.payloads = list(blocks.values())
        self.entries: list[dict[str, int]] = []
        names_at = 64 + 48 * len(blocks)
        at = self.data_at = -(-(names_at + sum(map(len, self.names))) // 64) * 64
        name_at = 0
        for name, data in zip(self.names, self.payloads, strict=True):
            at = -(-at // 64) * 64
            self.entries.append(
                {
                    "hash": xxhash.xxh64(name).intdigest(),
                    "name_at": name_at,
                    "name_bytes": len(name),
                    "flags": 0,
                    "offset": at,
                    "stored": len(data),
                    "size": len(data),
                    "checksum": crc32c.crc32c(data),
                    "last": 2 if name.startswith(b"meta/") else 0,
                }
            )
            name_at += len(name)
            at += len(data)
        self.header.update(count=len(blocks), names=names_at, data=self.data_at, schema=0, total=at)
        self.size = at

    def build(self, spoil: Callable[[RawFile], object] | None = None) -> bytes:
        if spoil is not None:
            spoil(self)
        out = bytearray(self.size)
        head = struct.pack("<4sBBHBBHIQQQQ", *self.header.values())
        out[: len(head)] = head
        for number, entry in enumerate(self.entries):
            out[64 + 48 * number : 112 + 48 * number] = struct.pack("<QIHHQQQII", *entry.values())
        names = b"".join(self.names)
        start = 64 + 48 * len(self.entries)
        out[start : start + len(names)] = names
        at = self.data_at
        for data in self.payloads:
            at = -(-at // 64) * 64
            out[at : at + len(data)] = data
            at += len(data)
        return bytes(out)


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path
