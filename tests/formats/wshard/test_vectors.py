"""If this fails, files of other laboratories are misread, or get another identity."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.formats.wshard.scenes import VECTORS, needs_vectors, vector
from tests.reference import wshard_reader as reference
from warpdata.formats.wshard.codecs import crc32c, xxh64
from warpdata.wshard import DType, identity, load_wshard, open_wshard, save_wshard, unpack_residual

pytestmark = needs_vectors

IDENTITIES = {
    "simple_episode": "ebf8d660",
    "dtype_zoo": "1666d48d",
    "per_block_compressed": "45af700e",
    "omen_uncert": "49e98e2b",
    "multimodal": "0d42911f",
    "latent_action": "a6366247",
}


@pytest.mark.parametrize("name", IDENTITIES)
def test_identities_match(name: str, tmp_path: Path) -> None:
    found = identity(vector(name))
    assert found.startswith(IDENTITIES[name])
    assert found == reference.identity(reference.read_blocks(vector(name).read_bytes()))
    episode = load_wshard(vector(name))
    assert save_wshard(episode, tmp_path / "sealed.wshard", compression="zstd", alignment=16, seal=True) == found
    assert identity(tmp_path / "sealed.wshard") == found


@pytest.mark.parametrize("name", IDENTITIES)
def test_both_readers_return_the_same_values(name: str) -> None:
    blocks = reference.read_blocks(vector(name).read_bytes())
    with open_wshard(vector(name)) as file:
        assert file.blocks == tuple(blocks)
        for block in file.blocks:
            assert file[block].read().tobytes() == blocks[block].data
        assert file.info is not None
        for block in file.info.channels:
            np.testing.assert_array_equal(
                file[block].read().view(reference.array_of(blocks, block).dtype), reference.array_of(blocks, block)
            )


@pytest.mark.parametrize("name", [name for name in IDENTITIES if name != "per_block_compressed"])
def test_rewrite_is_identical(name: str, tmp_path: Path) -> None:
    save_wshard(load_wshard(vector(name)), tmp_path / "again.wshard")
    assert (tmp_path / "again.wshard").read_bytes() == vector(name).read_bytes()


def test_a_simple_episode() -> None:
    episode = load_wshard(vector("simple_episode"))
    assert (episode.id, episode.env_id, episode.length) == ("golden_simple", "TestEnv-v1", 10)
    assert episode.timebase.hz == 30.0
    state, ctrl = episode.observations["state"].data, episode.actions["ctrl"].data
    assert (state.shape, ctrl.shape) == ((10, 4), (10, 2))
    np.testing.assert_array_equal(state[0], [0, 1, 2, 3])
    np.testing.assert_allclose(ctrl[0], [0.1, 0.2], rtol=1e-6)
    assert episode.rewards is not None
    assert episode.terminations is not None
    assert episode.truncations is None
    np.testing.assert_array_equal(episode.rewards, [1.0, 0.5] * 5)
    np.testing.assert_array_equal(episode.terminations, [False] * 9 + [True])


def test_element_types_and_lanes() -> None:
    zoo = load_wshard(vector("dtype_zoo")).observations
    assert zoo["bf16_ch"].stored_dtype is DType.BF16
    np.testing.assert_array_equal(zoo["bf16_ch"].data.astype(np.float32)[:, 0], [1, 2, 3, 4])
    np.testing.assert_array_equal(zoo["i32_ch"].data[:, 0], [-1, 0, 1, 2**31 - 1])
    latent = load_wshard(vector("latent_action"))
    assert latent.omens["latent_action/genie3"].data.shape == (8, 16)
    np.testing.assert_array_equal(latent.omens["latent_action_codebook/genie3"].data, np.arange(8))
    rgb = load_wshard(vector("multimodal")).observations["obs/rgb"]
    assert rgb.data.shape == (5, 8, 8, 3)
    assert rgb.attributes["modality"] == "rgb"
    omen = load_wshard(vector("omen_uncert"))
    assert omen.omens["joint_pos/dreamer"].data.shape == (10, 3)
    np.testing.assert_allclose(omen.uncertainties["joint_pos/dreamer/variance"].data, 0.05)
    bits = unpack_residual(omen.residuals["joint_pos/sign2nddiff"].data, 10)
    signal = omen.observations["joint_pos"].data[:, 0].astype(np.float64)
    np.testing.assert_array_equal(bits[0, 1:-1], 2 * signal[1:-1] - signal[:-2] - signal[2:] > 0)


def test_known_hashes() -> None:
    known = json.loads((VECTORS / "golden_hashes.json").read_text())
    assert crc32c(b"hello") == int(known["crc32c_hello"], 16)
    assert crc32c(b"123456789") == 0xE3069283
    assert xxh64(b"signal/obs") == int(known["xxhash64_signal_obs"], 16)
    assert xxh64(b"meta/manifest") == int(known["xxhash64_meta_manifest"], 16)
    assert (xxh64(b"signal/imu"), xxh64(b"a")) == (4930816044968525988, 15154266338359012955)
    assert known["dtype_sizes"] == {str(dtype): dtype.size_bytes for dtype in DType}
