"""If this fails, an episode in several files cannot be converted, or becomes several episodes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.formats.wshard.scenes import same_episode
from warpdata.conversion import convert
from warpdata.errors import CorruptError
from warpdata.wshard import Channel, ChunkedEpisodeWriter, Episode, Timebase, load_wshard, save_wshard


def record(directory: Path) -> Path:
    with ChunkedEpisodeWriter(directory, "long") as writer:
        for first in (0, 10, 20):
            rows = np.arange(first * 2, first * 2 + 20, dtype=np.float32).reshape(10, 2)
            writer.write_chunk(
                Episode(
                    "long",
                    10,
                    "Long-v1",
                    Timebase("ticks", 30.0),
                    observations={"state": Channel("state", rows)},
                    actions={"ctrl": Channel("ctrl", -rows)},
                    rewards=rows[:, 0],
                    metadata={"task": "lift"},
                )
            )
    return writer.manifest_path


@pytest.mark.parametrize("kind", ["npz", "hdf5", "lerobot", "mcap"])
def test_manifest_is_one_episode_in_every_format(kind: str, tmp_path: Path) -> None:
    manifest = record(tmp_path / "in")
    whole = load_wshard(manifest)
    single = tmp_path / "single" / "long.wshard"
    single.parent.mkdir()
    save_wshard(whole, single)
    expected = convert(single, tmp_path / "expected", target_format=kind)
    for number, source in enumerate((manifest, manifest.parent)):
        report = convert(source, tmp_path / f"out{number}", target_format=kind)
        assert (report.episodes, report.steps) == (1, 30)
        assert report.document().keys() == expected.document().keys()
        assert (report.kept, report.changed, report.lost) == (expected.kept, expected.changed, expected.lost)
        assert [path.name.replace(f"out{number}", "expected") for path in report.written] == [
            path.name for path in expected.written
        ]
        if kind in ("hdf5", "lerobot"):
            back = convert(report.written[0], tmp_path / f"back{number}", source_format=kind)
            found = load_wshard(back.written[0])
            same_episode(whole, found if kind == "hdf5" else _without_lerobot(found))


def _without_lerobot(episode: Episode) -> Episode:
    attributes = {key: value for key, value in episode.attributes.items() if key != "lerobot"}
    return Episode(
        episode.id,
        episode.length,
        episode.env_id,
        episode.timebase,
        episode.observations,
        episode.actions,
        episode.rewards,
        metadata=episode.metadata,
        attributes=attributes,
    )


def test_damaged_chunk_is_not_converted(tmp_path: Path) -> None:
    manifest = record(tmp_path / "in")
    chunk = manifest.with_name("long_chunk_0001.wshard")
    chunk.write_bytes(chunk.read_bytes()[:-1] + b"\0")
    with pytest.raises(CorruptError, match="not the file that was listed"):
        convert(manifest, tmp_path / "out.npz")
    assert not (tmp_path / "out.npz").exists()
