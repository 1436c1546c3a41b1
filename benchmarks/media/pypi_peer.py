"""Peer `warpdata` 3.0.27 from PyPI, an unrelated package of the same name, in an environment of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.data import scratch
from benchmarks.harness.process import CHECKOUT, Worker, create_environment
from benchmarks.harness.timing import RunOptions
from benchmarks.media.dataset import COLUMN, MediaFiles

__all__ = ["PEER_ABSENT", "PEER_NAME", "PEER_NOTE", "PeerCopy", "PypiPeer", "find_pypi_peer"]

_VERSION = "3.0.27"
PEER_NAME = f"warpdata {_VERSION} (PyPI)"
PEER_NOTE = f"{PEER_NAME} is an unrelated package of the same name; it packs and publishes the same files itself."
PEER_ABSENT = f"{PEER_NAME} is not installed; it was not measured."


@dataclass(frozen=True, slots=True)
class PypiPeer:
    """Interpreter that has the peer installed."""

    python: Path

    def start(self, environ: Mapping[str, str]) -> Worker:
        return Worker([str(self.python), "-m", "benchmarks.media.pypi_worker"], environ)

    def publish(self, media: MediaFiles, base: str, environ: Mapping[str, str], shard_bytes: int) -> str:
        """Publish the directory with a table of references below `base` and return the version."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        staging = scratch("peer-staging")
        table = staging / "table.parquet"
        pq.write_table(pa.table({"id": list(range(len(media))), COLUMN: list(media.paths)}), table)
        with self.start(environ) as worker:
            answer = worker.call(
                "publish",
                directory=str(media.directory),
                table=str(table),
                base=base,
                staging=str(staging),
                shard_bytes=shard_bytes,
            )
        scratch("peer-staging")
        return str(answer["version"])


@dataclass(frozen=True, slots=True)
class PeerCopy:
    """A version that the peer published, the directory it may cache in, and its mode."""

    peer: PypiPeer
    environ: Mapping[str, str]
    base: str
    version: str
    workspace: Path
    mode: str

    @contextmanager
    def open(self, media: MediaFiles, order: Sequence[int], *, is_cold: bool = False) -> Iterator[Worker]:
        """Start a process that has opened the version. Unless it is cold, its index is loaded."""
        with self.peer.start(self.environ) as worker:
            worker.call(
                "open",
                base=self.base,
                version=self.version,
                workspace=str(self.workspace),
                mode=self.mode,
                paths=list(media.paths),
                is_cold=is_cold,
            )
            worker.call("set_order", positions=list(order))
            yield worker


def find_pypi_peer(options: RunOptions) -> PypiPeer | None:
    """Return None if the peer is not installed and cannot be."""
    install = ["--constraint", str(CHECKOUT / "constraints.txt"), f"warpdata=={_VERSION}", "boto3"]
    python = create_environment(f"peer-warpdata-{_VERSION}", [install], options)
    return None if python is None else PypiPeer(python)
