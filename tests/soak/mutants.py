"""Run one decoder over mutants of valid files, in a process that has little memory.

`python -m tests.soak.mutants TARGET FIRST COUNT DIRECTORY` decodes mutants FIRST to FIRST + COUNT. A decoder may
return a value or raise a `WarpError`. Any other exception ends the run with status 1. A crash ends the process, so
the number of each mutant is written to DIRECTORY before it is decoded, and the mutant itself is saved there.
"""

from __future__ import annotations

import io
import os
import random
import resource
import shutil
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from tests.formats.convert.test_hdf5 import make_robomimic
from tests.formats.convert.test_lerobot import foreign
from tests.kinds.artifacts.media import Scene, encode_test_image, melody, mp3_without_length, sound
from tests.soak.foreign_sources import ForeignSource, foreign_sources, import_mutant
from warpdata.conversion import export_npz, import_hdf5, import_lerobot, import_npz
from warpdata.errors import WarpError
from warpdata.formats.media import VideoReader, audio_info, decode_audio, image_size, image_to_array
from warpdata.wshard import Channel, Episode, save_wshard

ALLOWANCE_BYTES = 3 * 2**30
SECONDS_FOR_ONE = 60

Decode = Callable[[bytes, Path], object]


def mutate(data: bytes, chance: random.Random) -> bytes:
    """Return the bytes with one to eight changes: bits, integers, cuts, repeats, zeroed ranges."""
    out = bytearray(data)
    for _ in range(chance.choice([1, 1, 2, 4, 8])):
        if not out:
            break
        near_start = chance.random() < 0.5
        at = chance.randrange(min(len(out), 512) if near_start else len(out))
        kind = chance.randrange(7)
        if kind == 0:
            out[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            out[at] = chance.choice([0, 1, 0x7F, 0x80, 0xFF])
        elif kind == 2:
            width = chance.choice([2, 4, 8])
            value = chance.choice([0, 1, 2**15, 2**16 - 1, 2 ** (8 * width) - 1, 2 ** (8 * width - 1), len(out)])
            order = chance.choice(["little", "big"])
            out[at : at + width] = (value % 2 ** (8 * width)).to_bytes(width, order)
        elif kind == 3:
            del out[at : at + chance.choice([1, 8, 64, 500])]
        elif kind == 4:
            out[at:at] = out[at : at + chance.choice([1, 8, 64, 500])]
        elif kind == 5:
            del out[at:]
        else:
            out[at : at + 64] = bytes(len(out[at : at + 64]))
    return bytes(out)


def image_files(_: Path) -> list[bytes]:
    pixels = np.random.default_rng(1).integers(0, 255, (40, 56, 3), dtype=np.uint8)
    kinds = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "JPEG2000", "AVIF", "PPM", "QOI")
    return [encode_test_image(pixels, kind) for kind in kinds] + [encode_test_image(pixels, "TIFF", "P")]


def decode_one_image(data: bytes, _: Path) -> object:
    return image_size(data, "p"), image_to_array(data, "p")


def audio_files(_: Path) -> list[bytes]:
    samples = melody(6000, 2)
    return [
        *(sound(samples, kind) for kind in ("WAV", "FLAC", "OGG", "MP3", "AIFF")),
        sound(samples, "OGG", 48_000, "OPUS"),
        mp3_without_length(melody(20_000)),
    ]


def decode_one_audio(data: bytes, _: Path) -> object:
    audio_info(io.BytesIO(data), "p")
    decode_audio(io.BytesIO(data), "p", start_s=0.1, duration_s=0.2)
    return decode_audio(io.BytesIO(data), "p")


def video_files(_: Path) -> list[bytes]:
    scenes = [
        Scene("libx264", "mp4", {"g": "10", "bf": "2"}),
        Scene("libvpx-vp9", "webm", length=12),
        Scene("mpeg4", "matroska", length=20),
        Scene("ffv1", "matroska", length=6),
        Scene("mpeg4", "avi", length=10),
    ]
    return [scene.data for scene in scenes]


def decode_one_video(data: bytes, _: Path) -> object:
    with VideoReader(io.BytesIO(data), "p") as video:
        count = len(video)
        return video.frame(count // 2), [frame.shape for frame in video.frames(0, min(count, 60))]


def hdf5_files(directory: Path) -> list[bytes]:
    make_robomimic(directory / "a.hdf5")
    return [(directory / "a.hdf5").read_bytes()]


def decode_one_hdf5(data: bytes, directory: Path) -> object:
    (directory / "mutant.hdf5").write_bytes(data)
    return import_hdf5(directory / "mutant.hdf5", _empty(directory / "out"))


def npz_files(directory: Path) -> list[bytes]:
    frames = np.random.default_rng(2).integers(0, 255, (6, 8, 8, 3), dtype=np.uint8)
    channels = {"x": Channel("x", np.arange(12, dtype=np.float32).reshape(6, 2)), "top": Channel("top", frames)}
    save_wshard(Episode("a", 6, observations=channels), directory / "a.wshard")
    export_npz(directory / "a.wshard", directory / "a.npz")
    return [(directory / "a.npz").read_bytes()]


def decode_one_npz(data: bytes, directory: Path) -> object:
    (directory / "mutant.npz").write_bytes(data)
    return import_npz(directory / "mutant.npz", _empty(directory / "out") / "a.wshard")


LEROBOT_PARTS = (
    "meta/info.json",
    "meta/episodes/chunk-000/file-000.parquet",
    "data/chunk-000/file-000.parquet",
    "videos/observation.images.top/chunk-000/file-000.mp4",
)


def lerobot_files(directory: Path) -> list[bytes]:
    """Return the files of one dataset, each with its number in front."""
    root = _empty(directory / "lerobot")
    foreign(root, [10, 12], Scene("libx264", "mp4", {"g": "5", "bf": "0"}, length=22))
    return [bytes([number]) + (root / part).read_bytes() for number, part in enumerate(LEROBOT_PARTS)]


def decode_one_lerobot(data: bytes, directory: Path) -> object:
    root = directory / "lerobot"
    part = root / LEROBOT_PARTS[data[0] % len(LEROBOT_PARTS)] if data else root / LEROBOT_PARTS[0]
    valid = part.read_bytes()
    part.write_bytes(data[1:])
    try:
        return import_lerobot(root, _empty(directory / "out"))
    finally:
        part.write_bytes(valid)


IMPORTS: list[tuple[ForeignSource, Path]] = []
"""The files of all sources of other libraries."""


def import_files(directory: Path) -> list[bytes]:
    """Return each file of each source, with its number in front."""
    os.environ["WARP_STORE"], os.environ["WARP_CACHE_DIR"] = str(directory / "store"), str(directory / "cache")
    IMPORTS[:] = [(source, file) for source in foreign_sources(_empty(directory / "sources")) for file in source.files]
    return [bytes([number]) + file.read_bytes() for number, (_, file) in enumerate(IMPORTS)]


def import_one(data: bytes, directory: Path) -> object:
    source, file = IMPORTS[data[0] % len(IMPORTS) if data else 0]
    try:
        return import_mutant(source, file, data[1:])
    finally:
        shutil.rmtree(directory / "cache", ignore_errors=True)


TARGETS: dict[str, tuple[Callable[[Path], list[bytes]], Decode]] = {
    "image": (image_files, decode_one_image),
    "audio": (audio_files, decode_one_audio),
    "video": (video_files, decode_one_video),
    "hdf5": (hdf5_files, decode_one_hdf5),
    "npz": (npz_files, decode_one_npz),
    "lerobot": (lerobot_files, decode_one_lerobot),
    "imports": (import_files, import_one),
}


def main(target: str, first: int, count: int, directory: Path) -> int:
    make_files, decode = TARGETS[target]
    files = make_files(directory)
    for data in files:
        decode(data, directory)
    refused = 0
    with _bounded_memory():
        for number in range(first, first + count):
            chance = random.Random(number)
            data = mutate(chance.choice(files), chance)
            (directory / "number").write_text(str(number))
            (directory / "mutant").write_bytes(data)
            resource.setrlimit(resource.RLIMIT_CPU, (_cpu_seconds() + SECONDS_FOR_ONE, resource.RLIM_INFINITY))
            try:
                decode(data, directory)
            except WarpError:
                refused += 1
            except BaseException:
                traceback.print_exc()
                print(f"{target}: mutant {number} raises an untyped error", file=sys.stderr)
                return 1
    print(f"{target}: {count} mutants, {refused} refused")
    return 0


def _cpu_seconds() -> int:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return int(used.ru_utime + used.ru_stime)


@contextmanager
def _bounded_memory() -> Iterator[None]:
    """Limit memory to slightly more than the process already uses."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + ALLOWANCE_BYTES, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def _empty(directory: Path) -> Path:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    return directory


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])))
