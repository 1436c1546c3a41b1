"""If this fails, the loop of another library sees samples twice, misses some, or resumes at another place."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import warpdata as wd

ROWS = 96


@pytest.fixture
def points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> wd.Dataset:
    monkeypatch.setenv("WARP_STORE", (tmp_path / "store").as_uri())
    rng = np.random.default_rng(5)
    rows = {"n": np.arange(ROWS), "x": rng.random(ROWS, np.float32), "y": rng.random(ROWS, np.float32)}
    wd.DatasetBuilder("a/b").add_table("main", rows).publish()
    return wd.dataset("a/b")


def numbers(batches: Any) -> list[int]:
    return [int(n) for batch in batches for n in batch["n"]]


def test_lightning_resumes_in_the_middle_of_an_epoch(points: wd.Dataset, tmp_path: Path) -> None:
    import torch
    from lightning import LightningModule, Trainer

    class Model(LightningModule):  # type: ignore[misc]
        def __init__(self, stop_after: int | None = None) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)
            self.seen: list[list[int]] = []
            self._stop_after = stop_after

        def training_step(self, batch: Any, index: int) -> Any:
            self.seen.append(batch["n"].tolist())
            if self._stop_after is not None and len(self.seen) == self._stop_after:
                self.trainer.save_checkpoint(tmp_path / "stopped.ckpt")
                self.trainer.should_stop = True
            return (self.layer(batch["x"][:, None]) ** 2).mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.1)

    def train(model: Any, **fit: Any) -> list[list[int]]:
        data = wd.loaders.lightning_data(lambda: points.to_torch(8, shuffle=True, seed=3))
        options = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
        trainer = Trainer(max_epochs=2, accelerator="cpu", enable_model_summary=False, **options)
        trainer.fit(model, datamodule=data, **fit)
        return model.seen  # type: ignore[no-any-return]

    whole = train(Model())
    for epoch in (whole[:12], whole[12:]):
        assert sorted(n for batch in epoch for n in batch) == list(range(ROWS))
    stopped = train(Model(stop_after=5))
    resumed = train(Model(), ckpt_path=str(tmp_path / "stopped.ckpt"), weights_only=False)
    assert stopped[:5] == whole[:5]
    assert stopped[:5] + resumed == whole


def test_hugging_face_divides_the_parts(points: wd.Dataset) -> None:
    from datasets.distributed import split_dataset_by_node
    from torch.utils.data import DataLoader

    rows = wd.loaders.hf_iterable(points, shards=6, batch_size=5)
    assert Counter(row["n"] for row in rows) == Counter(range(ROWS))
    parts = [split_dataset_by_node(rows, rank, 3) for rank in range(3)]
    assert Counter(int(row["n"]) for part in parts for row in part) == Counter(range(ROWS))
    loader = DataLoader(rows.with_format("torch"), batch_size=7, num_workers=2)
    assert sorted(numbers(loader)) == list(range(ROWS))
    it = iter(rows)
    first = [next(it)["n"] for _ in range(20)]
    state = rows.state_dict()
    again = wd.loaders.hf_iterable(points, shards=6, batch_size=5)
    again.load_state_dict(state)
    assert first + [row["n"] for row in again] == [
        row["n"] for row in wd.loaders.hf_iterable(points, shards=6, batch_size=5)
    ]


def test_a_trainer_sees_every_sample_of_an_epoch(points: wd.Dataset, tmp_path: Path) -> None:
    import torch
    from transformers import Trainer, TrainingArguments

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)
            self.seen: list[int] = []

        def forward(self, n: Any, x: Any, y: Any) -> Any:
            self.seen += n.tolist()
            return {"loss": ((self.layer(x[:, None])[:, 0] - y) ** 2).mean()}

    model = Model()
    samples = wd.loaders.torch_samples(points, batch_size=16, shuffle=True)
    arguments = TrainingArguments(
        str(tmp_path),
        per_device_train_batch_size=8,
        max_steps=ROWS // 8,
        report_to=[],
        use_cpu=True,
        save_strategy="no",
    )
    Trainer(model=model, args=arguments, train_dataset=samples).train()
    assert sorted(model.seen) == list(range(ROWS))


def test_accelerate_gives_each_process_its_rank(points: wd.Dataset) -> None:
    from accelerate import Accelerator

    loader = points.to_torch(8, shuffle=True)
    prepared = Accelerator(cpu=True).prepare_model  # the loader needs no preparation: it is divided already
    assert callable(prepared)
    assert sorted(numbers(loader.epoch(0))) == list(range(ROWS))


def test_torchdata_nodes_keep_the_state_of_the_stream(points: wd.Dataset) -> None:
    from torchdata.nodes import Loader, Prefetcher

    def make() -> Any:
        node = wd.loaders.torchdata_node(lambda: points.stream(batch_size=8, shuffle=True, seed=1))
        return Loader(Prefetcher(node, prefetch_factor=3))

    expected = [
        batch["n"].tolist()
        for epoch in range(2)
        for batch in points.stream(batch_size=8, shuffle=True, seed=1).epoch(epoch)
    ]
    loader = make()
    first = [batch["n"].tolist() for batch in loader]
    second = iter(loader)
    begun = [next(second)["n"].tolist() for _ in range(5)]
    assert first + begun == expected[:17]
    resumed = make()
    resumed.load_state_dict(loader.state_dict())
    assert [batch["n"].tolist() for batch in resumed] == expected[17:]


def test_grain_reads_rows_by_number(points: wd.Dataset, tmp_path: Path) -> None:
    import grain.python as grain

    source = wd.loaders.grain_source(points, columns=["n", "x"])
    assert isinstance(source, grain.RandomAccessDataSource)
    mapped = grain.MapDataset.source(source).shuffle(seed=4).map(lambda row: row["n"])
    assert sorted(mapped) == list(range(ROWS))
    loader = grain.DataLoader(
        data_source=source,
        sampler=grain.SequentialSampler(ROWS, shard_options=grain.ShardOptions(1, 3)),
        operations=[grain.Batch(4)],
        worker_count=0,
    )
    assert len(numbers(loader)) == ROWS // 3
    filtered = wd.loaders.grain_source(points, points.table().filter("n % 7 = 2"))
    assert [filtered[at]["n"] for at in range(len(filtered))] == list(range(2, ROWS, 7))
    with pytest.raises(IndexError):
        source[ROWS]


def test_grain_workers_open_the_version_again(points: wd.Dataset) -> None:
    import pickle

    source = pickle.loads(pickle.dumps(wd.loaders.grain_source(points)))  # noqa: S301
    assert source[5] == wd.loaders.grain_source(points)[5]
