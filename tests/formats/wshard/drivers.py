"""Libraries of other languages, each as a process that answers requests, and comparisons with the Python library."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from tests.formats.wshard.mutators import mutate_json
from tests.formats.wshard.scenes import ROOT, VECTORS, RawFile, full_episode, write
from tests.formats.wshard.test_mutations import mutate
from tests.reference import wshard_reader as reference
from warpdata.errors import WarpError
from warpdata.formats.wshard.canonical_json import encode_json
from warpdata.wshard import Episode, load_wshard, open_wshard, save_wshard

__all__ = [
    "GOLDEN",
    "Driver",
    "compare_blocks",
    "described",
    "judge_damaged",
    "judge_lies",
    "known_files",
    "run",
    "sha256",
    "verdict_here",
]

Translate: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]
"""Options of `save_wshard`, in the words of another language."""
GOLDEN = ROOT / "tests" / "golden" / "wshard"
ALLOWANCE_BYTES = 64 * 2**20
"""The most memory for one of the small files here, however large the sizes in it are."""


class Driver:
    """The library of another language, as a process that answers requests."""

    message = ""
    """The message of its last refusal."""

    allocated_bytes = 0
    """The memory that its last answer allocated, if it says."""

    def __init__(self, command: list[str], translate: Translate = dict) -> None:
        self.translate = translate
        self.command = command
        """Records an episode, if it is called with the arguments of `recorder_process`."""
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )

    def ask(self, what: str, path: Path, **rest: Any) -> tuple[str | None, Any]:
        """Return the kind of the refusal, or None and the answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps({"ask": what, "path": str(path), **rest}), file=self._process.stdin, flush=True)
        said = json.loads(self._process.stdout.readline())
        assert "crash" not in said, said
        self.message, self.allocated_bytes = str(said.get("message", "")), int(said.get("allocated", 0))
        return said.get("kind"), said.get("answer")

    def answer(self, what: str, path: Path, **rest: Any) -> Any:
        kind, answer = self.ask(what, path, **rest)
        assert kind is None, f"{path} was refused: {kind}"
        return answer

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:  # a busy machine
            self._process.kill()
            self._process.wait()


def run(command: list[str], timeout_s: int, directory: Path, **environment: str) -> tuple[int, str]:
    """Return the exit code, and all output. After the timeout, the processes that the command started end too."""
    with subprocess.Popen(
        command,
        cwd=directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **environment},
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=timeout_s)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return process.returncode, output


def described(episode: Episode) -> dict[str, Any]:
    """Describe an episode like the driver does."""
    series = (episode.rewards, episode.terminations, episode.truncations, episode.timestamps_ns)
    base = episode.timebase
    step = None if base.dt_ns is None else str(base.dt_ns)
    # The bits, because JSON has no single form for large fractions.
    rate = None if base.tick_hz is None else struct.pack(">d", base.tick_hz).hex()
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
        "head": [episode.id, episode.length, episode.env_id, base.type, rate, step],
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


def verdict_here(path: Path) -> tuple[str | None, Any]:
    try:
        return None, described(load_wshard(path))
    except WarpError as error:
        return error.kind, None


def compare_blocks(driver: Driver, path: Path) -> None:
    """Compare every block, and a window of each."""
    with open_wshard(path) as file:
        found = driver.answer("blocks", path)
        assert [name for name, _ in found] == list(file.blocks)
        for name, (dtype, shape, digest) in found:
            array = file[name].read()
            assert (dtype, shape) == (str(file[name].block_type.dtype), list(array.shape))
            assert digest == sha256(array.tobytes()), name
            rows = len(array) // 3, len(array) // 2
            window = driver.answer("window", path, block=name, rows=rows)
            assert window[1:] == [list(array[slice(*rows)].shape), sha256(array[slice(*rows)].tobytes())], name


def known_files() -> list[Path]:
    return [*sorted(VECTORS.glob("*.wshard")), *sorted(GOLDEN.glob("*.wshard")), *sorted(GOLDEN.glob("*.journal"))]


def judge_damaged(driver: Driver, path: Path, each: list[dict[str, Any]], seeds: range) -> int:
    """Return the number of mutated files that both accept. They must agree on the error kind and the values.

    `each` are options to save the files with.
    """
    files = []
    for options in each:
        save_wshard(full_episode(12), path, **options)
        files.append(path.read_bytes())
    accepted = 0
    for seed in seeds:
        chance = random.Random(seed)
        write(path, mutate(chance.choice(files), chance))
        here, there = verdict_here(path), driver.ask("load", path)
        assert driver.allocated_bytes < ALLOWANCE_BYTES, seed
        # The lz4 library of Python accepts a match of offset 0 and returns uninitialized memory, right by chance.
        assert there == here or "a match 0 bytes back" in driver.message, seed
        accepted += here[0] is None
    return accepted


def rewrite(path: Path, target: Path) -> str | None:
    """Return the kind of the refusal to save it again, if any."""
    try:
        save_wshard(load_wshard(path), target)
    except WarpError as error:
        return error.kind
    return None


def judge_lies(driver: Driver, path: Path, seeds: range) -> int:
    """Do the same for forged metadata under right checksums."""
    save_wshard(full_episode(4), path)
    ours, theirs = path.with_suffix(".ours"), path.with_suffix(".theirs")
    plain = {name: block.data for name, block in reference.read_blocks(path.read_bytes()).items()}
    accepted = 0
    for seed in seeds:
        chance = random.Random(seed)
        name = chance.choice(["meta/wshard", "meta/episode", "meta/channels"])
        spoiled = json.dumps(mutate_json(json.loads(plain[name]), chance)).encode()
        write(path, RawFile({**plain, name: spoiled}).build())
        here = verdict_here(path)
        assert driver.ask("load", path) == here, (seed, spoiled)
        if here[0] is None:
            accepted += 1
            assert driver.ask("rewrite", path, to=str(theirs), fresh=False, options={})[0] == rewrite(path, ours), seed
            assert theirs.read_bytes() == ours.read_bytes(), (seed, spoiled)
    return accepted
