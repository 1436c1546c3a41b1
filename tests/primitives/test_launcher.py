"""If this fails, `shard="auto"` gives two processes of a training job the same part of the samples."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from warpdata.primitives.launcher import library_rank
from warpdata.settings import detect_rank

TRAINING = """
    import sys
    import warpdata as wd

    stream = wd.dataset("a/b").stream(shard="auto", batch_size=4, shuffle=True)
    rows = [int(n) for batch in stream.epoch(0) for n in batch["n"]]
    rank, world_size = stream.options.rank, stream.options.world_size
    with open(f"{sys.argv[1]}/{rank}-of-{world_size}", "w") as file:
        file.write(" ".join(map(str, rows)))
"""


def torch(rank: int, world_size: int, *, is_initialized: bool = True) -> dict[str, Any]:
    made = SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: is_initialized,
        get_rank=lambda: rank,
        get_world_size=lambda: world_size,
    )
    return {"torch.distributed": made}


def ray(rank: int | None, world_size: int) -> dict[str, Any]:
    def get_context() -> Any:
        if rank is None:
            raise RuntimeError("`get_context` cannot be used outside of a Ray Train training function.")
        return SimpleNamespace(get_world_rank=lambda: rank, get_world_size=lambda: world_size)

    return {"ray.train": SimpleNamespace(get_context=get_context)}


def jax(rank: int, world_size: int, *, is_initialized: bool = True) -> dict[str, Any]:
    distributed = SimpleNamespace(is_initialized=lambda: is_initialized)
    made = SimpleNamespace(distributed=distributed, process_index=lambda: rank, process_count=lambda: world_size)
    return {"jax": made}


def test_the_library_that_formed_the_group_knows_the_rank() -> None:
    assert library_rank({}) is None
    assert library_rank(torch(3, 8)) == (3, 8)
    assert library_rank(torch(3, 8, is_initialized=False)) is None
    assert library_rank(ray(2, 6)) == (2, 6)
    assert library_rank(ray(None, 6)) is None
    assert library_rank(jax(1, 4)) == (1, 4)
    assert library_rank(jax(1, 4, is_initialized=False)) is None
    assert library_rank({**torch(0, 1, is_initialized=False), **ray(2, 6)}) == (2, 6)
    assert library_rank({**torch(5, 6), **ray(2, 3)}) == (5, 6)


def test_lightning_names_no_rank_on_one_machine() -> None:
    assert detect_rank({"NODE_RANK": "0", "LOCAL_RANK": "1", "WORLD_SIZE": "2"}) == (1, 2)
    assert detect_rank({"NODE_RANK": "0", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "RANK": "0"}) == (0, 2)


def test_torchrun_divides_the_samples(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    import warpdata as wd

    wd.DatasetBuilder("a/b").add_table("main", {"n": list(range(37))}).publish()
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(TRAINING))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", str(script)]
    done = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    parts = {path.name: path.read_text().split() for path in tmp_path.glob("*-of-*")}
    assert parts.keys() == {"0-of-2", "1-of-2"}
    assert sorted(int(n) for part in parts.values() for n in part) == list(range(37))
