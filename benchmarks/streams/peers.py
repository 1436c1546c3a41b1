"""The peers of training streams, from PyPI, in two environments of their own that are made on demand.

mosaicml-streaming wants an older NumPy than the others, and torchvision, of which it only uses two names that do
not matter here; a stub stands in, because a real one would bring another torch. A smoke run installs nothing.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.harness.data import DATA, made
from benchmarks.harness.process import Child
from benchmarks.harness.timing import Effort

__all__ = ["KEEPS_NOTHING", "OURS", "PEERS", "StreamPeer", "find_stream_peers", "our_child", "peer_versions"]

OURS = "warpdata"
PEERS = {
    "litdata": "0.2.76",
    "mosaicml-streaming": "0.13.0",
    "webdataset": "1.0.2",
    "datasets": "5.2.0",
    "lancedb": "0.40.0",
}
KEEPS_NOTHING = ("datasets", "lancedb")
"""As they are used here: streams straight from the store."""

_TORCH = "torch==2.13.0"
_COMMON = ("pillow==13.0.0", "boto3==1.43.117", "botocore==1.43.117")
_MODERN = (
    "webdataset==1.0.2", "datasets==5.2.0", "lancedb==0.40.0", "pylance==14.0.2", "s3fs==2026.9.0", "numpy==2.4.6",
    "obstore==0.12.1", "lightning-utilities==0.15.3", "tifffile==2026.3.3", "requests", *_COMMON,
)  # fmt: skip
_OLDER = (
    "numpy==2.1.3", "transformers==4.57.6", "Brotli==1.2.1", "paramiko==3.5.1", "python-snappy==0.7.3", "tqdm",
    "xxhash==3.8.2", "zstd==1.5.7.2", "catalogue==2.0.10", "matplotlib", *_COMMON,
)  # fmt: skip
_STUBS = {
    "torchvision/__init__.py": "",
    "torchvision/datasets.py": "class VisionDataset: ...\n",
    "torchvision/transforms/__init__.py": "",
    "torchvision/transforms/functional.py": "def to_tensor(picture): raise NotImplementedError\n",
}


@dataclass(frozen=True, slots=True)
class StreamPeer:
    """A peer by its name on PyPI, and an interpreter that has it."""

    name: str
    python: Path

    @property
    def title(self) -> str:
        return f"{self.name} {PEERS[self.name]}"

    def start(self, environ: Mapping[str, str]) -> Child:
        return Child([str(self.python), "-m", "benchmarks.streams.peer_worker", self.name], environ)


def our_child(environ: Mapping[str, str]) -> Child:
    """A process that streams with us."""
    return Child([sys.executable, "-m", "benchmarks.streams.worker"], environ)


def find_stream_peers(effort: Effort) -> list[StreamPeer]:
    """Those that are installed, or can be."""
    modern = _environment("peers-streams-1", ("litdata==0.2.76",), _MODERN, effort)
    older = _environment("peers-streams-2", ("mosaicml-streaming==0.13.0",), _OLDER, effort)
    homes = {name: older if name == "mosaicml-streaming" else modern for name in PEERS}
    return [StreamPeer(name, python) for name, python in homes.items() if python is not None]


def peer_versions(peers: Sequence[StreamPeer]) -> str:
    """For a report's notes: what took part, and what did not."""
    absent = sorted(set(PEERS) - {peer.name for peer in peers})
    took_part = "Peers: " + ", ".join(peer.title for peer in peers) + "."
    return took_part + (f" Not installed, so not measured: {', '.join(absent)}." if absent else "")


def _environment(name: str, alone: Sequence[str], others: Sequence[str], effort: Effort) -> Path | None:
    """An interpreter; packages that are installed `alone` would bring a torch of their own."""
    python = DATA / name / "bin" / "python"
    if not python.exists() and not effort.quick:
        try:
            made(name, partial(_install, alone, others))
        except subprocess.CalledProcessError as error:
            print(f"({error})", file=sys.stderr)
    return python if python.exists() else None


def _install(alone: Sequence[str], others: Sequence[str], folder: Path) -> None:
    run = partial(subprocess.run, check=True, stdout=subprocess.DEVNULL)
    run([sys.executable, "-m", "venv", str(folder)])
    python = str(folder / "bin" / "python")
    pip = [python, "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
    run([*pip, _TORCH])
    run([*pip, _TORCH, *others])
    run([*pip, "--no-deps", *alone])
    site = next((folder / "lib").glob("python*/site-packages"))
    for path, text in _STUBS.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(text, encoding="utf-8")
