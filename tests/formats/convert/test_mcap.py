"""If this fails, MCAP tools show values that were not recorded.

The reader of the `mcap` package reads the files, and arrays are rebuilt from the JSON alone.
"""

from __future__ import annotations

import base64
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcap.reader import make_reader

from tests.formats.convert.scenes import Array, check_export, episodes, saved
from tests.kinds.artifacts.media import Scene, encode_test_image
from warpdata.conversion import export_mcap
from warpdata.errors import BadInputError
from warpdata.wshard import (
    Channel,
    DType,
    Episode,
    Timebase,
    compose_wshard,
    frames_block,
    index_images,
    index_video,
    open_wshard,
)

ODD = {"NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf}


class Read:
    """The content of a file, by topic."""

    def __init__(self, path: Path) -> None:
        self.messages: dict[str, list[Any]] = {}
        self.times: dict[str, list[int]] = {}
        self.channels: dict[str, Any] = {}
        self.order: list[int] = []
        with path.open("rb") as file:
            reader = make_reader(file, validate_crcs=True)
            for schema, channel, message in reader.iter_messages(log_time_order=False):
                assert schema is not None
                assert channel.message_encoding == "json"
                self.channels[channel.topic] = (schema.name, channel.metadata)
                self.messages.setdefault(channel.topic, []).append(json.loads(message.data))
                self.times.setdefault(channel.topic, []).append(message.log_time)
                self.order.append(message.log_time)
            self.attached = {item.name: item.data for item in reader.iter_attachments()}
            self.metadata = {item.name: item.metadata for item in reader.iter_metadata()}

    def array(self, topic: str) -> Array:
        name, properties = self.channels[topic]
        dtype = DType(properties["dtype"])
        shape = json.loads(properties["shape"])
        if name == "foxglove.CompressedImage":
            files = [base64.b64decode(item["data"]) for item in self.messages[topic]]
            return np.frombuffer(b"".join(files), np.uint8)
        if name == "foxglove.RawImage":
            rows = [np.frombuffer(base64.b64decode(item["data"]), np.uint8) for item in self.messages[topic]]
        else:
            values = [_numbers(item["data"]) for item in self.messages[topic]]
            if dtype is DType.BF16:
                rows = [(np.array(row, np.float32).view(np.uint32) >> 16).astype(np.uint16) for row in values]
            else:
                rows = [np.array(row, dtype.numpy) for row in values]
        return np.stack(rows).reshape(len(rows), *shape)


def _numbers(value: Any) -> Any:
    if isinstance(value, list):
        return [_numbers(item) for item in value]
    return ODD[value] if isinstance(value, str) else value


@settings(max_examples=40, deadline=None)
@given(episode=episodes(), seal=st.booleans())
def test_mcap_reader_agrees_with_the_report(episode: Episode, seal: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        source = saved(episode, directory, seal=seal)
        report = export_mcap(source, directory / "ep.mcap")
        outcomes = check_export(report, source)
        found = Read(directory / "ep.mcap")
        assert found.order == sorted(found.order)
        document = json.loads(found.metadata["wshard"]["episode"])
        assert (document["episode_id"], document["metadata"]) == (episode.id, episode.metadata)
        with open_wshard(source) as file:
            for field, outcome in outcomes.items():
                topic = f"/{field}"
                if field not in file:
                    continue
                stored = bytes(file[field].raw())
                if topic in found.attached:
                    assert found.attached[topic] == stored
                elif outcome == "lost":
                    assert topic not in found.messages
                elif topic in found.messages:
                    same = found.array(topic).tobytes() == stored
                    assert same == (outcome == "kept") or outcome == "changed", field
                    assert document["blocks"][field]["path"] == topic
                else:
                    assert not stored or not file[field].block_type.rows, field


def test_times_and_images(tmp_path: Path) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (3, 4, 5, 3), dtype=np.uint8)
    files = [encode_test_image(row, "JPEG") for row in pixels]
    jpeg, index = index_images(files, [0, 100_000_000, 200_000_000], "cam")
    (tmp_path / "video.mp4").write_bytes(Scene("libx264", "mp4").data)
    video, video_index = index_video(tmp_path / "video.mp4", "video")
    episode = Episode(
        "ep",
        3,
        "Lift",
        Timebase("ticks", 10.0),
        observations={
            "cam": jpeg,
            "raw": Channel("raw", pixels),
            "imu": Channel("imu", np.arange(12, dtype=np.float32), attributes={"sampling_rate_hz": 40}),
            "odd": Channel("odd", np.array([np.inf, -0.0, np.nan], np.float32)),
        },
        extra={frames_block("signal/cam"): index, frames_block("signal/video"): video_index},
    )
    compose_wshard(episode, tmp_path / "ep.wshard", {"signal/video": video})
    report = export_mcap(tmp_path / "ep.wshard", tmp_path / "ep.mcap")
    found = Read(tmp_path / "ep.mcap")
    assert found.times["/signal/raw"] == [0, 100_000_000, 200_000_000]
    assert found.times["/signal/imu"] == [25_000_000 * number for number in range(12)]
    assert found.channels["/signal/cam"][0] == "foxglove.CompressedImage"
    assert [base64.b64decode(item["data"]) for item in found.messages["/signal/cam"]] == files
    assert found.messages["/signal/cam"][1]["format"] == "jpeg"
    image = found.messages["/signal/raw"][2]
    assert (image["width"], image["height"], image["encoding"], image["step"]) == (5, 4, "rgb8", 15)
    assert image["timestamp"] == {"sec": 0, "nsec": 200_000_000}
    assert base64.b64decode(image["data"]) == pixels[2].tobytes()
    assert found.attached["/signal/video"] == (tmp_path / "video.mp4").read_bytes()
    assert [outcome.field for outcome in report.changed] == ["signal/odd"]
    assert [item["data"] for item in found.messages["/signal/odd"]] == ["Infinity", -0.0, "NaN"]


def test_timestamps_are_kept(tmp_path: Path) -> None:
    stamps = np.array([5, 17, 10**18])
    episode = Episode(
        "ep", 3, timebase=Timebase("timestamps_ns"), rewards=np.zeros(3, np.float32), timestamps_ns=stamps
    )
    export_mcap(saved(episode, tmp_path), tmp_path / "ep.mcap")
    assert Read(tmp_path / "ep.mcap").times["/reward"] == stamps.tolist()
    early = Episode("ep", 1, timebase=Timebase("timestamps_ns"), timestamps_ns=np.array([-1]))
    with pytest.raises(BadInputError, match="before 1970"):
        export_mcap(saved(early, tmp_path, name="early"), tmp_path / "early.mcap")
    plain = saved(Episode("ep", 2, rewards=np.zeros(2, np.float32)), tmp_path, name="plain")
    report = export_mcap(plain, tmp_path / "plain.mcap", tick_hz=4)
    assert Read(tmp_path / "plain.mcap").times["/reward"] == [0, 250_000_000]
    assert not report.added
    assert export_mcap(plain, tmp_path / "again.mcap").added[0].field == "times"
