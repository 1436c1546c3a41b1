"""If this fails, a training run that changes its number of workers sees a sample twice, or misses one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import warpdata as wd

ROWS = 240
GLOBAL_BATCH = 24


@pytest.mark.timeout(1200)
def test_each_sample_comes_once_while_workers_come_and_go(
    local_ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four workers, then three, then six: two runs end early, and the next one goes on at the state of the last."""
    import json

    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    store = (tmp_path / "store").as_uri()
    monkeypatch.setenv("WARP_STORE", store)
    wd.DatasetBuilder("a/b").add_table("main", {"n": list(range(ROWS))}).publish()

    def train(config: dict[str, Any]) -> None:
        import json
        from pathlib import Path

        import ray.train

        import warpdata as wd
        from warpdata.primitives.launcher import library_rank

        context = ray.train.get_context()
        rank, world_size = context.get_world_rank(), context.get_world_size()
        folder = Path(config["folder"])
        dataset = wd.dataset("a/b", store=config["store"])
        size = config["global_batch"] // world_size
        stream = dataset.stream(shard="auto", batch_size=size, shuffle=True, seed=11)
        assert (stream.options.rank, stream.options.world_size) == (rank, world_size)
        assert library_rank({"ray.train": ray.train}) == (rank, world_size)
        if config["state"] is not None:
            stream.load_state_dict(config["state"])
        seen: list[int] = []
        for steps, batch in enumerate(stream, 1):
            seen += [int(n) for n in batch["n"]]
            if steps == config["steps"]:
                break
        (folder / f"{config['run']}-{rank}.json").write_text(json.dumps([seen, stream.state_dict()]))
        ray.train.report({})

    state: Any = None
    taken: list[int] = []
    for run, (workers, steps) in enumerate([(4, 3), (3, 4), (6, None)]):
        config = {
            "folder": str(tmp_path),
            "store": store,
            "global_batch": GLOBAL_BATCH,
            "state": state,
            "steps": steps,
            "run": run,
        }
        scaling = ScalingConfig(num_workers=workers, resources_per_worker={"CPU": 0.1})
        storage = RunConfig(storage_path=str(tmp_path / "ray"), name=f"run-{run}")
        TorchTrainer(train, train_loop_config=config, scaling_config=scaling, run_config=storage).fit()
        parts = [json.loads((tmp_path / f"{run}-{rank}.json").read_text()) for rank in range(workers)]
        states = [part[1] for part in parts]
        assert all(each == states[0] for each in states), "the state is the same on every rank"
        state = states[0]
        taken += [n for part in parts for n in part[0]]
    assert Counter(taken) == Counter(range(ROWS))
    whole = wd.dataset("a/b").stream(batch_size=GLOBAL_BATCH, shuffle=True, seed=11)
    order = [int(n) for batch in whole.epoch(0) for n in batch["n"]]
    at = 0
    for size in (3 * GLOBAL_BATCH, 4 * GLOBAL_BATCH, 3 * GLOBAL_BATCH):
        assert sorted(taken[at : at + size]) == sorted(order[at : at + size])
        at += size
