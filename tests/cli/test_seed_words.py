"""If this fails, a command line of the first specification, which scripts already contain, no longer works.

Every line of its command reference runs here as it is written there, with real names for `ws/name`.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pyarrow as pa
import pytest

import warpdata as wd
from tests.cli.scenes import ask, parquet, run
from tests.ingest.scenes import plant, png
from warpdata.cli.parameters import SizeType

LINES = """
warp info ws/name
warp head ws/name -n 5
warp schema ws/name
warp stream ws/name --batch-size 50000 --columns a,b --shard auto
warp inspect ws/name
warp cat ws/name --artifact raw_images --ref images/0001.png
warp cache stats
warp cache gc --limit 500GB
warp cache gc --limit 500
warp warm ws/name --tables main --shards 0:50
warp warm ws/name
warp list-remote ws/
warp init ws/name
warp doctor
"""


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    parquet(tmp_path / "data", table=pa.table({"a": [1, 2], "b": [3, 4]}))
    plant(tmp_path, {"images/0001.png": png(1), "images/0002.png": png(2)})
    line = "publish ws/name --table main=./data/*.parquet --artifact raw_images=./ --set-latest"
    result = run(*line.split())
    assert result.exit_code == 0, result.stderr


@pytest.mark.parametrize("line", LINES.strip().splitlines())
def test_line_runs(line: str, published: None) -> None:
    result = run(*shlex.split(line)[1:])
    assert result.exit_code == 0, result.stderr


def test_set_latest_moves_main_only(published: None) -> None:
    newer = wd.dataset("ws/name").version
    done = ask("publish", "ws/name", "--table", "main=data", "--artifact", "raw_images=images", "--set-latest")
    assert done["branch"] == "main"
    assert wd.dataset("ws/name").version == done["version"] != newer
    for words in (["--set-latest", "--branch", "trial"], ["--branch", "trial", "--set-latest"]):
        refused = run("publish", "ws/name", "--table", "main=data", *words)
        assert refused.exit_code == 2
        assert "--set-latest" in refused.stderr
    assert run("publish", "ws/name", "--table", "main=data", "--help").exit_code == 0


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("500", 500 * 10**9), ("0.5", 5 * 10**8), ("500GB", 500 * 10**9), ("64MiB", 64 * 2**20), ("10B", 10), ("0", 0)],
)
def test_cache_limit_without_unit_is_in_gigabytes(text: str, size_bytes: int) -> None:
    assert SizeType("GB").convert(text, None, None) == size_bytes


def test_other_sizes_without_unit_are_bytes() -> None:
    assert SizeType().convert("500", None, None) == 500
    assert json.loads(run("cache", "gc", "--limit", "500", "--json").stdout)["evicted_entries"] == 0
