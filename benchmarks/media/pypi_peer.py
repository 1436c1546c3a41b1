"""The peer that shares our name, `warpdata` 3.0.27 from PyPI: in an environment of its own, made on demand.

A smoke run installs nothing; where the environment is not there and can not be made, the peer is left out.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.harness.data import DATA, made, scratch
from benchmarks.harness.process import Child
from benchmarks.harness.timing import Effort
from benchmarks.media.dataset import COLUMN, Media

__all__ = ["ABSENT", "PEER", "Peer", "find_peer"]

_VERSION = "3.0.27"
PEER = f"warpdata {_VERSION} (PyPI)"
ABSENT = f"{PEER} is not installed; it was not measured."
_CONSTRAINTS = Path(__file__).parents[2] / "constraints.txt"


@dataclass(frozen=True, slots=True)
class Peer:
    """An interpreter that has the peer."""

    python: Path

    def start(self, environ: Mapping[str, str]) -> Child:
        return Child([str(self.python), "-m", "benchmarks.media.pypi_worker"], environ)

    def publish(self, media: Media, base: str, environ: Mapping[str, str], shard_bytes: int) -> str:
        """Have it publish the folder with a table of references, below `base`. The version it gave."""
        staging = scratch("peer-staging")
        table = staging / "table.parquet"
        _write_table(media, table)
        with self.start(environ) as child:
            answer = child.ask(
                "publish",
                folder=str(media.folder),
                table=str(table),
                base=base,
                staging=str(staging),
                shard_bytes=shard_bytes,
            )
        scratch("peer-staging")
        return str(answer["version"])


def find_peer(effort: Effort) -> Peer | None:
    """None where it is not installed and must not or can not be."""
    name = f"peer-warpdata-{_VERSION}"
    python = DATA / name / "bin" / "python"
    if not python.exists() and not effort.quick:
        try:
            made(name, _install)
        except subprocess.CalledProcessError as error:
            print(f"({error})", file=sys.stderr)
    return Peer(python) if python.exists() else None


def _install(folder: Path) -> None:
    run = partial(subprocess.run, check=True, stdout=subprocess.DEVNULL)
    run([sys.executable, "-m", "venv", str(folder)])
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
    run([*pip, "--constraint", str(_CONSTRAINTS), f"warpdata=={_VERSION}", "boto3"])


def _write_table(media: Media, path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"id": list(range(len(media))), COLUMN: list(media.paths)}), path)
