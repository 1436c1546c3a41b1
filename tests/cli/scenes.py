"""Shared by the command-line tests: functions that run `warp`, and small datasets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from click.testing import CliRunner, Result

import warpdata as wd
from warpdata.cli import warp

PROGRAM = (sys.executable, "-m", "warpdata.cli")


def run(*args: str) -> Result:
    """Run `warp` in this process. An exception other than SystemExit is raised."""
    result = CliRunner().invoke(warp, list(args))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def ask(*args: str) -> Any:
    """Run a command that must succeed and return its JSON document."""
    result = run(*args, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def run_program(*args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `warp` in a new process."""
    return subprocess.run(
        [*PROGRAM, *args], capture_output=True, text=True, timeout=60, env={**os.environ, **environment}, check=False
    )


def trips(start: int = 0, count: int = 10) -> pa.Table:
    ids = range(start, start + count)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "fare": pa.array([n * 1.5 for n in ids], pa.float64()),
            "note": pa.array([None if n % 3 else f"note {n}" for n in ids], pa.string()),
        }
    )


def publish(name: str = "acme/trips", table: pa.Table | None = None, label: str | None = None) -> str:
    builder = wd.DatasetBuilder(name).add_table("main", trips() if table is None else table)
    return builder.publish("first load", label=label, author="ada").version


def parquet(directory: Path, name: str = "part-0.parquet", table: pa.Table | None = None) -> Path:
    path = directory / name
    pq.write_table(trips() if table is None else table, path)
    return path
