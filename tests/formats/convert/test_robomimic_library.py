"""If this fails, robomimic's loader reads our files differently.

Runs only with `robomimic` installed.
"""

from __future__ import annotations

import importlib
from pathlib import Path

import h5py
import numpy as np
import pytest

from tests.formats.convert.scenes import saved
from warpdata.conversion import export_hdf5
from warpdata.wshard import Channel, Episode

pytest.importorskip("robomimic")
pytestmark = pytest.mark.filterwarnings("ignore")


def test_library_reads_our_file(tmp_path: Path) -> None:
    made, sources = [], []
    for number in range(3):
        chance = np.random.default_rng(number)
        episode = Episode(
            f"e{number}",
            9,
            "Lift",
            observations={
                "joint": Channel("joint", chance.standard_normal((9, 7)).astype(np.float32)),
                "image": Channel("image", chance.integers(0, 256, (9, 8, 8, 3), dtype=np.uint8)),
            },
            actions={"ctrl": Channel("ctrl", chance.standard_normal((9, 7)).astype(np.float32))},
            rewards=chance.standard_normal(9).astype(np.float32),
            terminations=np.arange(9) == 8,
        )
        made.append(episode)
        sources.append(saved(episode, tmp_path, name=episode.id))
    path = tmp_path / "lift.hdf5"
    export_hdf5(sources, path)
    with h5py.File(path, "a") as file:
        file["mask/train"] = np.array([b"demo_0", b"demo_2"])
    observations = importlib.import_module("robomimic.utils.obs_utils")
    observations.initialize_obs_utils_with_obs_specs({"obs": {"low_dim": ["joint"], "rgb": ["image"]}})
    sequences = importlib.import_module("robomimic.utils.dataset").SequenceDataset
    dataset = sequences(
        hdf5_path=str(path),
        obs_keys=["joint", "image"],
        dataset_keys=("actions", "rewards", "dones"),
        load_next_obs=False,
        seq_length=1,
        frame_stack=1,
        hdf5_cache_mode=None,
        filter_by_attribute="train",
    )
    assert len(dataset) == 18
    for at in range(18):
        item, episode, step = dataset[at], made[(0, 2)[at // 9]], at % 9
        assert episode.rewards is not None
        np.testing.assert_array_equal(item["actions"][0], episode.actions["ctrl"].data[step])
        np.testing.assert_array_equal(item["obs"]["joint"][0], episode.observations["joint"].data[step])
        np.testing.assert_array_equal(item["obs"]["image"][0], episode.observations["image"].data[step])
        assert item["rewards"][0] == episode.rewards[step]
        assert bool(item["dones"][0]) == (step == 8)
