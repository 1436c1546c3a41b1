"""If this fails, processes that another launcher starts see samples twice, or miss some, with `shard="auto"`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import warpdata as wd

ROWS, PROCESSES = 96, 2
_RANKS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
pytestmark = pytest.mark.timeout(900)

WRITE = """
def write(stream, rank):
    seen = [int(n) for batch in stream.epoch(0) for n in batch["n"]]
    (Path(sys.argv[1]) / f"{rank}.json").write_text(json.dumps([stream.options.rank, stream.options.world_size, seen]))
"""
HEAD = f"""
import json, sys
from pathlib import Path
import warpdata as wd
{WRITE}
"""
ACCELERATE = f"""{HEAD}
from accelerate import Accelerator, debug_launcher


def train():
    accelerator = Accelerator(cpu=True)
    write(wd.dataset("a/b").stream(shard="auto", batch_size=4, shuffle=True, seed=3), accelerator.process_index)
    accelerator.end_training()


if __name__ == "__main__":
    debug_launcher(train, num_processes={PROCESSES})
"""
LIGHTNING = f"""{HEAD}
import torch
from lightning import LightningModule, Trainer


class Model(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def on_train_start(self):
        write(wd.dataset("a/b").stream(shard="auto", batch_size=4, shuffle=True, seed=3), self.global_rank)

    def training_step(self, batch, index):
        return self.layer(batch[0]).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


if __name__ == "__main__":
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(4, 1)))
    quiet = {{"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}}
    Trainer(max_steps=1, accelerator="cpu", devices={PROCESSES}, strategy="ddp", **quiet).fit(Model(), data)
"""
SLURM = f"""{HEAD}
import os

write(wd.dataset("a/b").stream(shard="auto", batch_size=4, shuffle=True, seed=3), os.environ["SLURM_PROCID"])
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The place of a script, whose processes find the store."""
    monkeypatch.setenv("WARP_STORE", (tmp_path / "store").as_uri())
    for name in _RANKS:
        monkeypatch.delenv(name, raising=False)
    wd.DatasetBuilder("a/b").add_table("main", {"n": list(range(ROWS))}).publish()
    return tmp_path / "train.py"


def check(folder: Path) -> None:
    found = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(PROCESSES)]
    assert [(rank, size) for rank, size, _ in found] == [(rank, PROCESSES) for rank in range(PROCESSES)]
    assert sorted(n for _, _, seen in found for n in seen) == list(range(ROWS))
    assert all(len(seen) == ROWS // PROCESSES for _, _, seen in found)


def test_accelerate_starts_processes(script: Path, tmp_path: Path) -> None:
    script.write_text(ACCELERATE)
    subprocess.run([sys.executable, str(script), str(tmp_path)], check=True, cwd=tmp_path)
    check(tmp_path)


def test_lightning_starts_processes(script: Path, tmp_path: Path) -> None:
    script.write_text(LIGHTNING)
    subprocess.run([sys.executable, str(script), str(tmp_path)], check=True, cwd=tmp_path)
    check(tmp_path)


def test_slurm_starts_processes(script: Path, tmp_path: Path) -> None:
    """The variables are those that `srun` sets for each task of a job."""
    script.write_text(SLURM)
    running = []
    for rank in range(PROCESSES):
        slurm = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": str(PROCESSES), "SLURM_PROCID": str(rank), "SLURM_LOCALID": "0"}
        command = [sys.executable, str(script), str(tmp_path)]
        running.append(subprocess.Popen(command, env={**os.environ, **slurm, "SLURM_NODEID": str(rank)}))
    assert [process.wait() for process in running] == [0] * PROCESSES
    check(tmp_path)
