"""If this fails, two libraries disagree on forged files and journals, or on frame indexes.

Their checksums are right wherever possible, so that the parsers behind the checksums see them.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.formats.wshard.drivers import ALLOWANCE_BYTES, GOLDEN, Driver, known_files, sha256, verdict_here
from tests.formats.wshard.mutators import mutate_file
from tests.formats.wshard.scenes import write
from tests.formats.wshard.test_mutations import mutate
from warpdata.errors import WarpError
from warpdata.formats.wshard.frame_index import parse_frames
from warpdata.wshard import frames_block, is_chunk_manifest, open_wshard


def frames_here(path: Path, block: str) -> tuple[str | None, Any]:
    """Describe a frame index like the driver does."""
    try:
        with open_wshard(path) as file:
            data = bytes(file[frames_block(block)].raw())
            index = parse_frames(data, file[block].entry.size_bytes)
            spans = [list(index.entry_span(np.array([frame]))) for frame in range(len(index))]
            found = {
                "codec": index.codec,
                "extradata": sha256(index.extradata),
                "times": [str(time) for time in index.times_ns.tolist()],
                "extents": [list(index.extent(frame)) for frame in range(len(index))],
                "spans": spans,
                "groups": index.group_numbers.tolist(),
                "encoded": sha256(data),
            }
    except WarpError as error:
        return error.kind, None
    return None, found


def test_both_read_the_same_frame_index(driver: Driver) -> None:
    path = GOLDEN / "frames.wshard"
    assert driver.ask("frames", path, block="signal/cam") == frames_here(path, "signal/cam")


def mutate_some(data: bytes, chance: random.Random) -> bytes:
    return mutate(data, chance) if data else b"x"


def judge_forged(driver: Driver, directory: Path, seeds: Iterable[int]) -> int:
    """Return the number of forged files and journals that both accept, with right checksums wherever possible."""
    files = [path.read_bytes() for path in known_files() if not is_chunk_manifest(path)]
    accepted = 0
    for seed in seeds:
        chance = random.Random(seed)
        source, donor = chance.choice(files), chance.choice(files)
        data = mutate_file(source, chance, partial(mutate_some, chance=chance), donor)
        path = write(directory / "forged.wshard", data)
        here = verdict_here(path)
        there = driver.ask("load", path)
        assert driver.allocated_bytes < ALLOWANCE_BYTES, seed
        assert there == here or "a match 0 bytes back" in driver.message, (
            seed,
            here[0],
            there[0],
            driver.message,
        )
        accepted += here[0] is None
        if b"WSFI" in data and here[0] is None and "signal/cam" in here[1]["lanes"]:
            here, there = frames_here(path, "signal/cam"), driver.ask("frames", path, block="signal/cam")
            # Python verifies a frame when it reads one, the driver reads all.
            assert there == here or "fails its checksum" in driver.message, (seed, driver.message)
    return accepted


SEVERAL_FAULTS = (11421, 13510, 23635)
"""Files with two faults, of which all must report the same."""
LARGE_RATE = 21948
"""A valid `tick_hz` of 2⁶⁴."""


def test_both_agree_on_forged_files_and_journals(driver: Driver, tmp_path: Path) -> None:
    seeds = [*range(300), *SEVERAL_FAULTS, LARGE_RATE]
    assert 0 < judge_forged(driver, tmp_path, seeds) < 250


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_both_agree_on_many_forged_files_and_journals(driver: Driver, tmp_path: Path) -> None:
    assert judge_forged(driver, tmp_path, range(10_000, 60_000)) > 0
