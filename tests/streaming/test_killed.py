"""If this fails, a run that is killed and resumed from its last checkpoint loses samples or repeats them.

A program takes batches and writes each with the state after it, as one line of a log. It is killed with all of its
workers after a random number of lines, and started again. The lines must be those of a run without kills.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import warpdata as wd

ROWS, MORE, BATCH, EPOCHS = 400, 150, 8, 2

PROGRAM = """
import json, os, sys, time, warnings
warnings.filterwarnings("ignore")
import warpdata as wd

store, kind, log = sys.argv[1:]
KEYWORDS = dict(batch_size=BATCH, shuffle=wd.Shuffle(7, 3), seed=5)

def opened(name, **more):
    return wd.dataset(name, store=store).stream(**KEYWORDS, **more)

def mixture():
    return wd.mix({opened("a/t", collate="dict"): 0.7, opened("a/more", collate="dict"): 0.3}, seed=9)

def loader():
    return wd.dataset("a/t", store=store).to_torch(**KEYWORDS, num_workers=2)

def stateful():
    from torchdata.stateful_dataloader import StatefulDataLoader
    dataset = wd.dataset("a/t", store=store).to_torch(**KEYWORDS).dataset
    return StatefulDataLoader(dataset, batch_size=None, num_workers=2)

source = {"mixture": mixture, "loader": loader, "stateful": stateful}[kind]()
lines = [json.loads(line) for line in open(log).read().split("\\n")[:-1]] if os.path.exists(log) else []
with open(log, "a+b") as file:
    file.seek(0)
    file.truncate(file.read().rfind(b"\\n") + 1)  # a line that was cut off is no checkpoint
    epoch = lines[-1]["epoch"] if lines else 0
    if lines:
        source.load_state_dict(lines[-1]["state"])
    while epoch < EPOCHS:
        for batch in source:
            ids = batch["id"] if isinstance(batch["id"], list) else batch["id"].tolist()
            line = {"epoch": epoch, "ids": ids, "state": source.state_dict()}
            file.write(json.dumps(line).encode() + b"\\n")
            file.flush()
            time.sleep(PAUSE_S)
        epoch += 1
        if kind == "stateful":
            source.dataset.set_epoch(epoch)
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("killed").as_uri()
    wd.DatasetBuilder("a/t", root).add_table("main", pa.table({"id": range(ROWS)})).publish()
    wd.DatasetBuilder("a/more", root).add_table("main", pa.table({"id": range(ROWS, ROWS + MORE)})).publish()
    return root


def expected(store: str, kind: str) -> list[list[int]]:
    def opened(name: str) -> wd.Stream:
        dataset = wd.dataset(name, store=store)
        return dataset.stream(batch_size=BATCH, shuffle=wd.Shuffle(7, 3), seed=5, collate="dict")

    stream = wd.mix({opened("a/t"): 0.7, opened("a/more"): 0.3}, seed=9) if kind == "mixture" else opened("a/t")
    return [batch["id"] for epoch in range(EPOCHS) for batch in stream.epoch(epoch)]


def run(command: list[str], log: Path, kill_after: int | None) -> bool:
    """Run the program, and kill it when the log has grown by some lines. Return whether it ended by itself."""
    before, deadline = lines_of(log), time.monotonic() + 100
    with subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE, text=True, env=os.environ) as child:
        while child.poll() is None and time.monotonic() < deadline:
            if kill_after is not None and lines_of(log) - before >= kill_after:
                break
            time.sleep(0.003)
        is_killed = child.poll() is None
        if is_killed:
            os.killpg(child.pid, signal.SIGKILL)
        error = child.stderr.read() if child.stderr else ""
    assert is_killed or child.returncode == 0, error
    assert time.monotonic() < deadline, error
    return not is_killed


def lines_of(log: Path) -> int:
    return log.read_bytes().count(b"\n") if log.exists() else 0


def check(store: str, kind: str, directory: Path, kills: int, seed: int) -> None:
    rng, log, whole = random.Random(seed), directory / "log", expected(store, kind)
    program = PROGRAM.replace("BATCH", str(BATCH)).replace("EPOCHS", str(EPOCHS)).replace("PAUSE_S", "0.002")
    command = [sys.executable, "-c", program, store, kind, str(log)]
    for kill in range(kills):
        share = max(2, 2 * (len(whole) - lines_of(log)) // (kills - kill + 1))
        if run(command, log, rng.randrange(1, share)):
            break
    assert lines_of(log) > 0
    while not run(command, log, None):
        pass
    lines: list[dict[str, Any]] = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["ids"] for line in lines] == whole


def test_a_killed_mixture_resumes_exactly(store: str, tmp_path: Path) -> None:
    check(store, "mixture", tmp_path, kills=2, seed=1)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("kind", ["mixture", "loader", "stateful"])
def test_runs_that_are_killed_often_resume_exactly(store: str, tmp_path: Path, kind: str, seed: int) -> None:
    if kind != "mixture":
        pytest.importorskip("torch", reason="the extra warpdata[torch] is not installed")
    if kind == "stateful":
        pytest.importorskip("torchdata.stateful_dataloader", reason="torchdata is not installed")
    check(store, kind, tmp_path, kills=6, seed=seed)
