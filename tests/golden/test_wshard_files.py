"""If this fails, episodes saved by an older release read differently, or the same episode gets other bytes.

The files under `wshard/` were written by this code once and must never change. `python -m
tests.golden.test_wshard_files` adds a new one, and refuses to touch old ones.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import zstandard

from tests.reference import wshard_reader as reference
from warpdata.formats.wshard.chunk_manifest import META_MANIFEST, encode_manifest
from warpdata.formats.wshard.container import JSON_CONTENT, ROLE_MANIFEST
from warpdata.formats.wshard.container_writer import ContainerOptions, plan_bytes, write_container
from warpdata.primitives.hashing import fingerprint_file
from warpdata.wshard import (
    Block,
    Channel,
    ChunkEntry,
    ChunkManifest,
    ChunkPlace,
    DType,
    Episode,
    FrameReader,
    Timebase,
    WShardStreamWriter,
    frames_block,
    identity,
    index_images,
    load_chunk_manifest,
    load_wshard,
    open_wshard,
    pack_residual,
    recover,
    save_wshard,
)

DIRECTORY = Path(__file__).parent / "wshard"
IDENTITIES = DIRECTORY / "identities.json"
STEPS = 24


def episode() -> Episode:
    state = np.arange(STEPS * 3, dtype=np.float32).reshape(STEPS, 3) ** 2 % 50
    return Episode(
        "golden",
        STEPS,
        "Golden-v1",
        Timebase("ticks", 30.0),
        observations={
            "state": Channel("state", state),
            "cam0/rgb": Channel("cam0/rgb", np.full((STEPS, 4, 4, 3), 7, np.uint8), attributes={"modality": "rgb"}),
            "half": Channel("half", np.arange(STEPS, dtype=np.uint16), DType.BF16),
        },
        actions={"ctrl": Channel("ctrl", np.ones((STEPS, 2), np.float64))},
        rewards=np.arange(STEPS, dtype=np.float32),
        terminations=np.arange(STEPS) == STEPS - 1,
        truncations=np.zeros(STEPS, np.bool_),
        omens={"state/a/b": Channel("state/a/b", np.zeros((STEPS, 5), np.int16))},
        uncertainties={"state/a/std": Channel("state/a/std", state / 2)},
        residuals={"state/sign2nddiff": Channel("state", pack_residual(state), is_declared=False)},
        metadata={"who": "Ada", "ü": [1.5, None, True]},
        extra={"vendor/x": Block(b"kept as it is", 0x8001, 3)},
    )


def saved(**options: Any) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        save_wshard(episode(), path, **options)

    return make


def manifest(path: Path) -> None:
    """Write a manifest of a chunk that does not state the number of chunks, which other writers leave out."""
    chunk = path.parent / "golden_chunk_0000.wshard"
    save_wshard(replace(episode(), chunk=ChunkPlace(0, None, 0)), chunk)
    entry = ChunkEntry(0, chunk.name, fingerprint_file(chunk).blob.hash, 0, STEPS - 1, STEPS, 1)
    data = encode_manifest(ChunkManifest("golden", episode().env_id, 1, STEPS, (entry,)))
    write_container(path, [plan_bytes(META_MANIFEST, data, JSON_CONTENT)], ContainerOptions(role=ROLE_MANIFEST))


def streamed(path: Path) -> None:
    """Write a journal like after a crash. Its name does not end in .partial, which the repository ignores."""
    channels: list[dict[str, Any]] = [
        {"id": "q", "dtype": "f32", "shape": [2], "compression": "zstd"},
        {"id": "n", "dtype": "i8", "shape": []},
    ]
    writer = WShardStreamWriter(path, "streamed", channels, flush_steps=5, fsync="never")
    writer.begin_episode(env_id="Golden-v1", tick_hz=10, metadata={"a": 1})
    for step in range(12):
        writer.write_timestep({"q": np.full(2, step, np.float32), "n": np.int8(step)}, reward=1.0)
    writer.close()
    writer.partial_path.rename(path)


IMAGES = [b"\xff\xd8\xff" + bytes([number] * (5 + number)) for number in range(4)]


def framed(path: Path) -> None:
    """Return images with a frame index. They need not be decodable."""
    channel, index = index_images(IMAGES, [0, 7, 10**9, 2**62], "cam")
    save_wshard(Episode("framed", 4, observations={"cam": channel}, extra={frames_block("signal/cam"): index}), path)


FILES: dict[str, Callable[[Path], None]] = {
    "plain.wshard": saved(),
    "unaligned.wshard": saved(alignment=0),
    "sealed.wshard": saved(alignment=32, seal=True),
    "zstd.wshard": saved(compression="zstd", per_block={"signal/cam0/rgb": ("zstd", 19)}),
    "lz4.wshard": saved(compression="lz4", alignment=16),
    "time_chunks.wshard": saved(compression="zstd", time_chunk_steps=5),
    "frames.wshard": framed,
    "manifest.wshard": manifest,
    "streamed.journal": streamed,
}


def made(name: str) -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder, name)
        FILES[name](path)
        return path.read_bytes()


@pytest.mark.parametrize("name", FILES)
def test_written_bytes_are_unchanged(name: str) -> None:
    old = (DIRECTORY / name).read_bytes()
    recorded = json.loads(IDENTITIES.read_text(encoding="utf-8"))
    if name in ("zstd.wshard", "time_chunks.wshard") and list(zstandard.ZSTD_VERSION) != recorded["zstd_version"]:
        pytest.skip("another release of zstd compresses to other bytes")
    assert made(name) == old


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".wshard")])
def test_identities_are_unchanged(name: str) -> None:
    recorded = json.loads(IDENTITIES.read_text(encoding="utf-8"))[name]
    assert identity(DIRECTORY / name) == recorded
    assert reference.identity(reference.read_blocks((DIRECTORY / name).read_bytes())) == recorded


@pytest.mark.parametrize("name", [name for name in FILES if not name.startswith(("manifest", "streamed", "frames"))])
def test_values_are_unchanged(name: str) -> None:
    loaded, expected = load_wshard(DIRECTORY / name), episode()
    blocks = reference.read_blocks((DIRECTORY / name).read_bytes())
    for block, channel in expected.lanes().items():
        assert loaded.lanes()[block].data.tobytes() == channel.data.tobytes() == blocks[block].data
    assert (loaded.metadata, loaded.extra) == (expected.metadata, expected.extra)


def test_frame_index_is_read() -> None:
    with open_wshard(DIRECTORY / "frames.wshard") as file:
        reader = FrameReader(file, "signal/cam")
        assert [reader.encoded(number) for number in range(4)] == IMAGES
        assert reader.index.times_ns.tolist() == [0, 7, 10**9, 2**62]
    blocks = reference.read_blocks((DIRECTORY / "frames.wshard").read_bytes())
    codec, _, entries = reference.read_frames(blocks["frames/signal/cam"].data)
    data = blocks["signal/cam"].data
    assert [data[entry["offset"] : entry["offset"] + entry["size"]] for entry in entries] == IMAGES
    assert codec == "jpeg"


def test_manifest_and_journal_are_read(tmp_path: Path) -> None:
    assert load_chunk_manifest(DIRECTORY / "manifest.wshard").total_timesteps == STEPS
    report = recover(DIRECTORY / "streamed.journal", tmp_path / "out.wshard")
    assert (report.step_count, report.is_complete) == (10, False)
    np.testing.assert_array_equal(load_wshard(tmp_path / "out.wshard").observations["n"].data, np.arange(10))


def main() -> None:
    DIRECTORY.mkdir(exist_ok=True)
    recorded = json.loads(IDENTITIES.read_text(encoding="utf-8")) if IDENTITIES.exists() else {}
    recorded.setdefault("zstd_version", list(zstandard.ZSTD_VERSION))
    for name in FILES:
        path = DIRECTORY / name
        if not path.exists():
            path.write_bytes(made(name))
            if name.endswith(".wshard"):
                recorded[name] = identity(path)
    IDENTITIES.write_text(json.dumps(recorded, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
