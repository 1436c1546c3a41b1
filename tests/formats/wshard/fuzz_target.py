"""A coverage-guided fuzzer of everything that reads episode files. Needs `atheris` (the extra `fuzz`).

    python -m tests.formats.wshard.fuzz_target DIR    -runs=100000 -seed=1     continue from the inputs in DIR
    python -m tests.formats.wshard.fuzz_target FILE                            try one file again

Inputs that reach new code are saved in DIR. An input that fails ends the run and is written to `crash-…` in
the current directory. Options are those of libFuzzer.
"""

from __future__ import annotations

import random
import resource
import sys
from pathlib import Path

import atheris

from tests.formats.wshard.mutators import mutate_file

with atheris.instrument_imports(include=["warpdata.wshard"]):
    from tests.formats.wshard import invariants

MOST_BYTES = 32_768
TIMEOUT_S, ALLOWANCE_BYTES = 10, 2 * 2**30


def main() -> None:
    with invariants.scratch_directory() as name:
        directory = Path(name)
        # Run them here too, to warm up the decoders, and as donors of blocks.
        donors = invariants.seeds(directory)
        _bound_memory()

        def mutate(data: bytes, most: int, seed: int) -> bytes:
            chance = random.Random(seed)
            changed = mutate_file(data, chance, lambda piece: _mutate_bytes(piece, most), chance.choice(donors))
            return changed[:most]

        defaults = [f"-max_len={MOST_BYTES}", f"-timeout={TIMEOUT_S}", "-rss_limit_mb=3072", "-len_control=0"]
        atheris.Setup(
            [sys.argv[0], *defaults, *sys.argv[1:]],
            lambda data: invariants.judge(data, directory) and None,
            custom_mutator=mutate,
        )
        atheris.Fuzz()


def _mutate_bytes(piece: bytes, most: int) -> bytes:
    return bytes(atheris.Mutate(piece or b"\0", max(1, min(most, len(piece) + 64))))


def _bound_memory() -> None:
    """Bound the address space, so that a huge allocation fails at once."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        used = int(statm.read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + ALLOWANCE_BYTES, resource.RLIM_INFINITY))


if __name__ == "__main__":
    main()
