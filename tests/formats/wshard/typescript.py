"""The built TypeScript library, and the description of episodes that its driver returns."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests.formats.wshard.scenes import ROOT
from warpdata.formats.wshard.canonical_json import encode_json
from warpdata.wshard import Episode

__all__ = ["GOLDEN", "NODE", "PACKAGE", "build", "described", "run", "sha256"]

PACKAGE = ROOT / "packages" / "wshard-js"
GOLDEN = ROOT / "tests" / "golden" / "wshard"
NODE = shutil.which("node") or ""
INSTALL_S, BUILD_S = 60, 60
INSTALL = ("install", "--no-package-lock", "--no-audit", "--no-fund", "--fetch-retries=0", "--fetch-timeout=15000")
OLDEST_NODE = 20


def has_packages() -> bool:
    """Return whether exactly the required packages are installed."""
    wanted = json.loads((PACKAGE / "package.json").read_text())
    for name, version in {**wanted["dependencies"], **wanted["devDependencies"]}.items():
        found = PACKAGE / "node_modules" / name / "package.json"
        if not found.is_file() or json.loads(found.read_text())["version"] != version:
            return False
    return True


def build(target: Path) -> str | None:
    """Build the library into an empty directory. Return the reason if that is not possible."""
    npm = shutil.which("npm")
    if not NODE:
        return "node is not installed"
    version = run([NODE, "--version"], BUILD_S, target)[1].strip()
    if int(version.removeprefix("v").partition(".")[0]) < OLDEST_NODE:
        return f"node {version} is older than {OLDEST_NODE}"
    for name in ("package.json", "tsconfig.json", "README.md"):
        shutil.copy(PACKAGE / name, target / name)
    for name in ("src", "test"):
        shutil.copytree(PACKAGE / name, target / name)
    if has_packages():
        (target / "node_modules").symlink_to(PACKAGE / "node_modules")
    elif npm is None:
        return "npm is not installed"
    else:
        try:
            code, output = run([npm, *INSTALL], INSTALL_S, target)
        except subprocess.TimeoutExpired:
            return "npm does not answer"
        if code:
            reason = next((line for line in output.splitlines() if line.startswith("npm error")), "no reason given")
            return f"npm cannot install the packages: {reason}"
    code, output = run([NODE, str(target / "node_modules" / "typescript" / "bin" / "tsc")], BUILD_S, target)
    assert code == 0, output
    return None


def run(command: list[str], timeout_s: int, directory: Path, **environment: str) -> tuple[int, str]:
    """Return the exit code, and all output."""
    done = subprocess.run(
        command,
        check=False,
        cwd=directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
        env={**os.environ, **environment},
    )
    return done.returncode, done.stdout


def described(episode: Episode) -> dict[str, Any]:
    """Describe an episode like the driver does."""
    series = (episode.rewards, episode.terminations, episode.truncations, episode.timestamps_ns)
    base = episode.timebase
    step = None if base.dt_ns is None else str(base.dt_ns)
    place = episode.chunk
    lanes = {
        name: [
            str(channel.stored_dtype),
            list(channel.data.shape),
            sha256(channel.data.tobytes()),
            channel.id,
            words(channel.attributes),
            channel.is_declared,
        ]
        for name, channel in episode.lanes().items()
    }
    return {
        "head": [episode.id, episode.length, episode.env_id, base.type, base.tick_hz, step],
        "chunk": None if place is None else [place.index, place.total, place.first_step],
        "words": [words(episode.metadata), words(episode.attributes), words(episode.provenance)],
        "series": [None if array is None else sha256(array.tobytes()) for array in series],
        "lanes": lanes,
        "extra": {name: [sha256(block.data), block.content_type, block.tags] for name, block in episode.extra.items()},
    }


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def words(value: Any) -> str:
    return encode_json(value).decode()
