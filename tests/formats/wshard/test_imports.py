"""If this fails, the episode format needs libraries beyond NumPy, its codecs and its hashes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CODE = """
import sys
import numpy as np
from warpdata.wshard import Channel, Episode, WShardStreamWriter, identity
from warpdata.wshard import load_wshard, open_wshard, recover, save_wshard

episode = Episode("ep", 200, observations={"x": Channel("x", np.zeros((200, 3), np.float32))})
for codec in ("none", "zstd", "lz4"):
    save_wshard(episode, f"{codec}.wshard", compression=codec, seal=True)
    assert load_wshard(f"{codec}.wshard").length == 200
    assert len(identity(f"{codec}.wshard")) == 64
with open_wshard("zstd.wshard") as file:
    assert file["signal/x"].window(3, 5).shape == (2, 3)
with WShardStreamWriter("recorded.wshard", "ep", [{"id": "x", "dtype": "f32", "shape": [3]}]) as writer:
    writer.begin_episode()
    writer.write_timestep({"x": np.zeros(3, np.float32)})
assert recover("recorded.wshard.partial").step_count == 1
loaded = {name.partition(".")[0] for name in sys.modules}
print(*sorted(loaded - set(sys.stdlib_module_names)))
"""
ALLOWED = {
    "warpdata",
    "numpy",
    "crc32c",
    "xxhash",
    "zstandard",
    "lz4",
    "ml_dtypes",
    "cffi",
    "_cffi_backend",
    "_version",
    "cython_runtime",  # not a library: Cython registers it in older builds
}


def test_reading_and_writing_need_only_numpy_codecs_and_hashes(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=120
    )
    loaded = {name for name in done.stdout.split() if not name.startswith("_")}
    assert loaded <= ALLOWED, loaded - ALLOWED
