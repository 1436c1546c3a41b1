"""If this fails, worker processes reorder, repeat or lose batches, or outlive the loop."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import warpdata as wd
from warpdata.errors import BadInputError, UnsupportedError
from warpdata.testing import S3Endpoint

torch = pytest.importorskip("torch", reason="the extra torch is not installed")

ROWS = 101


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("torch").as_uri()
    rows = pa.table({"id": range(ROWS), "x": [float(n) for n in range(ROWS)]})
    wd.DatasetBuilder("a/t", root).add_table("main", rows).publish()
    return root


def ids(batches: Any) -> list[list[int]]:
    return [batch["id"].tolist() for batch in batches]


def loader(store: str, workers: int, batch: int = 8, shard: tuple[int, int] = (0, 1)) -> Any:
    dataset = wd.dataset("a/t", store=store)
    return dataset.to_torch(batch_size=batch, shuffle=True, seed=7, shard=shard, num_workers=workers)


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_workers_do_not_change_the_order(store: str, workers: int) -> None:
    plain = wd.dataset("a/t", store=store).stream(batch_size=8, shuffle=True, seed=7)
    loaded = loader(store, workers)
    assert len(loaded) == 13
    first = list(loaded.epoch(0))
    assert isinstance(first[0]["x"], torch.Tensor)
    assert ids(first) == ids(plain.epoch(0))
    assert not multiprocessing.active_children()


def test_a_loader_resumes_with_other_workers_and_ranks(store: str) -> None:
    whole = ids(loader(store, 0).epoch(3))
    running = loader(store, 2)
    iterator = running.epoch(3)
    before = [next(iterator)["id"].tolist() for _ in range(5)]
    token = json.loads(json.dumps(running.state_dict()))
    del iterator
    parts = []
    for rank in range(2):
        resumed = loader(store, rank * 2, batch=4, shard=(rank, 2))
        resumed.load_state_dict(token)
        parts.append(ids(resumed))
    after = [left + right for left, right in zip(*parts, strict=True)]
    assert before + after == whole


def test_a_killed_run_resumes_from_its_last_token(store: str, tmp_path: Path) -> None:
    """The new run repeats the batches after the last token, because no token recorded them."""
    script = textwrap.dedent(
        f"""
        import json, os, signal, sys
        import warpdata as wd
        stream = wd.dataset("a/t", store={store!r}).stream(batch_size=8, shuffle=True, seed=7, collate="dict")
        for step, batch in enumerate(stream.epoch(0)):
            print(json.dumps([batch["id"], stream.state_dict()]), flush=True)
            if step == 6:
                os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, env=os.environ)
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    lines = [json.loads(line) for line in ran.stdout.splitlines()]
    seen, token = [batch for batch, _ in lines[:5]], lines[4][1]
    resumed = loader(store, 2)
    resumed.load_state_dict(token)
    assert seen + ids(resumed) == ids(loader(store, 0).epoch(0))


def test_workers_may_be_spawned(store: str, tmp_path: Path) -> None:
    script = tmp_path / "spawned.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import multiprocessing
            import warpdata as wd

            if __name__ == "__main__":
                multiprocessing.set_start_method("spawn")
                loader = wd.dataset("a/t", store={store!r}).to_torch(
                    batch_size=8, shuffle=True, seed=7, shard=None, num_workers=2
                )
                print([batch["id"].tolist() for batch in loader.epoch(0)])
            """
        )
    )
    ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True, env=os.environ)
    assert json.loads(ran.stdout) == ids(loader(store, 0).epoch(0))


@pytest.mark.filterwarnings("ignore:.set_vital. is deprecated")  # torchdata uses a deprecated function of torch
@pytest.mark.parametrize("workers", [0, 2])
def test_a_stateful_loader_of_torchdata_resumes(store: str, workers: int) -> None:
    torchdata = pytest.importorskip("torchdata.stateful_dataloader", reason="torchdata is not installed")
    whole = ids(loader(store, 0).epoch(1))

    def stateful() -> Any:
        dataset = loader(store, 0).dataset
        dataset.set_epoch(1)
        return torchdata.StatefulDataLoader(dataset, batch_size=None, num_workers=workers)

    running = stateful()
    iterator = iter(running)
    before = [next(iterator)["id"].tolist() for _ in range(5)]
    state = running.state_dict()
    del iterator
    again = stateful()
    again.load_state_dict(state)
    assert before + ids(again) == whole


def test_a_loader_continues_with_a_newer_version(tmp_path: Path) -> None:
    root = tmp_path.as_uri()
    builder = wd.DatasetBuilder("a/g", root)
    builder.append_table("main", pa.table({"id": range(40)})).publish()
    loaded = wd.dataset("a/g", store=root).to_torch(batch_size=4, shuffle=True, seed=7, num_workers=2)
    iterator = loaded.epoch(0)
    before = [next(iterator)["id"].tolist() for _ in range(5)]
    del iterator
    wd.DatasetBuilder("a/g", root).append_table("main", pa.table({"id": range(40, 60)})).publish()
    newer = loaded.rebase("main")
    assert sorted(value for batch in [*before, *ids(newer)] for value in batch) == list(range(60))
    assert sorted(value for batch in ids(newer) for value in batch) == list(range(60)), "the next epoch is complete"
    assert newer.telemetry.stats.samples == 100


@pytest.fixture
def far(s3_url: str, s3_server: S3Endpoint, tmp_path: Path) -> wd.Dataset:
    settings = s3_server.settings(cache_dir=tmp_path)
    rows = pa.table({"id": range(ROWS), "file": [f"{n}" for n in range(ROWS)]})
    builder = wd.DatasetBuilder("a/t", s3_url, settings=settings).add_table("main", rows)
    builder.add_artifact("raw", {f"{n}": bytes([n]) for n in range(ROWS)}).bind("main", "file", "raw").publish()
    return wd.dataset("a/t", store=s3_url, settings=settings)


def test_workers_over_an_object_store_are_not_forked(far: wd.Dataset) -> None:
    assert multiprocessing.get_start_method() == "fork"
    batches = list(far.to_torch(batch_size=8, shuffle=True, num_workers=2).epoch(0))
    assert sorted(value for batch in batches for value in batch["id"].tolist()) == list(range(ROWS))
    assert all(file == bytes([n]) for b in batches for n, file in zip(b["id"].tolist(), b["file"], strict=True))


def test_a_forked_process_cannot_use_an_object_store(far: wd.Dataset) -> None:
    dataset = far.to_torch(batch_size=8).dataset
    forked = torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=1, multiprocessing_context="fork")
    with pytest.raises(UnsupportedError, match="forkserver"):
        next(iter(forked))


def test_a_stream_that_cannot_be_pickled_is_refused(far: wd.Dataset) -> None:
    lock = threading.Lock()

    def locked(sample: dict[str, Any]) -> dict[str, Any]:
        with lock:
            return sample

    loaded = far.to_torch(batch_size=8, transform=locked, num_workers=1)
    with pytest.raises(BadInputError, match="cannot be sent to worker processes"):
        next(iter(loaded))
