"""Peers of the stream scenarios, from PyPI, in two environments that are created on demand.

mosaicml-streaming needs an older NumPy than the others, and torchvision, of which it uses two names that do not
matter here. A stub replaces torchvision, which would install another torch.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.process import Worker, create_environment
from benchmarks.harness.timing import RunOptions

__all__ = ["OURS", "PEERS", "UNCACHED", "StreamPeer", "find_stream_peers", "peer_notes", "start_worker"]

OURS = "warpdata"
PEERS = {
    "litdata": "0.2.76",
    "mosaicml-streaming": "0.13.0",
    "webdataset": "1.0.2",
    "datasets": "5.2.0",
    "lancedb": "0.40.0",
}
UNCACHED = ("datasets", "lancedb")
"""Peers that stream from the store without a local cache, as they are used here."""

_TORCH = "torch==2.13.0"
_SHARED = ("pillow==13.0.0", "boto3==1.43.117", "botocore==1.43.117")
_MODERN = (
    "webdataset==1.0.2", "datasets==5.2.0", "lancedb==0.40.0", "pylance==14.0.2", "s3fs==2026.9.0", "numpy==2.4.6",
    "obstore==0.12.1", "lightning-utilities==0.15.3", "tifffile==2026.3.3", "requests", *_SHARED,
)  # fmt: skip
_OLDER = (
    "numpy==2.1.3", "transformers==4.57.6", "Brotli==1.2.1", "paramiko==3.5.1", "python-snappy==0.7.3", "tqdm",
    "xxhash==3.8.2", "zstd==1.5.7.2", "catalogue==2.0.10", "matplotlib", *_SHARED,
)  # fmt: skip
_STUBS = {
    "torchvision/__init__.py": "",
    "torchvision/datasets.py": "class VisionDataset: ...\n",
    "torchvision/transforms/__init__.py": "",
    "torchvision/transforms/functional.py": "def to_tensor(image): raise NotImplementedError\n",
}


@dataclass(frozen=True, slots=True)
class StreamPeer:
    """Peer by its name on PyPI, and an interpreter that has it."""

    name: str
    python: Path

    @property
    def title(self) -> str:
        return f"{self.name} {PEERS[self.name]}"

    def start(self, environ: Mapping[str, str]) -> Worker:
        return Worker([str(self.python), "-m", "benchmarks.streams.peer_worker", self.name], environ)


def start_worker(environ: Mapping[str, str]) -> Worker:
    """Start a process that streams with warpdata."""
    return Worker([sys.executable, "-m", "benchmarks.streams.worker"], environ)


def find_stream_peers(options: RunOptions) -> list[StreamPeer]:
    """Return the peers that are installed or can be installed."""
    modern = _create("peers-streams-1", "litdata", _MODERN, options)
    older = _create("peers-streams-2", "mosaicml-streaming", _OLDER, options)
    interpreters = {name: older if name == "mosaicml-streaming" else modern for name in PEERS}
    return [StreamPeer(name, python) for name, python in interpreters.items() if python is not None]


def peer_notes(peers: Sequence[StreamPeer]) -> tuple[list[str], list[str]]:
    """Return a note with the versions of the peers, and a line for each peer that is not installed."""
    names = {peer.name for peer in peers}
    note = "Peers: " + ", ".join(peer.title for peer in peers) + "."
    return [note] if peers else [], [
        f"{name} is not installed; it was not measured." for name in PEERS if name not in names
    ]


def _create(name: str, without_dependencies: str, others: Sequence[str], options: RunOptions) -> Path | None:
    """Create an environment; the dependencies of `without_dependencies` would replace torch."""
    alone = ["--no-deps", f"{without_dependencies}=={PEERS[without_dependencies]}"]
    python = create_environment(name, [[_TORCH], [_TORCH, *others], alone], options)
    if python is not None:
        site = next((python.parents[1] / "lib").glob("python*/site-packages"))
        for path, text in _STUBS.items():
            (site / path).parent.mkdir(parents=True, exist_ok=True)
            (site / path).write_text(text, encoding="utf-8")
    return python
