"""If this fails, a policy trains on frames of another time, another camera or another episode, or on none at all."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import warpdata as wd
from tests.kinds.artifacts.media import Scene
from tests.kinds.episodes.filmed import H264, SCENES, Filmed, jpegs
from tests.kinds.episodes.scenes import memory_store, open_session
from warpdata.datasets import open_dataset
from warpdata.errors import BadInputError, InvalidSourceError, LimitExceededError, MediaDecodeError, UnsupportedError
from warpdata.formats.wshard import FrameReader
from warpdata.formats.wshard.codecs import crc32c
from warpdata.formats.wshard.frame_index import FrameIndex, parse_frames
from warpdata.kinds.episodes import Episodes, encoded_frames, index_writer, source
from warpdata.kinds.episodes.encoded_frames import FRAME_CACHE
from warpdata.repository.catalog import parse_address
from warpdata.testing import S3Endpoint
from warpdata.wshard import Block, Channel, ChunkPlace, Episode, Timebase, frames_block, index_images

Array = np.ndarray[Any, Any]


def publish(paths: Any, store: str) -> Episodes:
    wd.DatasetBuilder("a/robot", store).add_episodes("demos", paths).publish()
    return wd.dataset("a/robot", store=store).episodes()


@pytest.fixture(scope="module")
def filmed(tmp_path_factory: pytest.TempPathFactory) -> list[Filmed]:
    """One episode for each kind of video, each with a second camera of JPEG images."""
    directory = tmp_path_factory.mktemp("filmed")
    return [
        Filmed(f"e{n}", 40, directory).add_video("top", scene).add_images("wrist", jpegs(40, n))
        for n, scene in enumerate(SCENES)
    ]


@pytest.fixture(scope="module", params=["local", "remote"])
def episodes(request: pytest.FixtureRequest, filmed: list[Filmed], tmp_path_factory: pytest.TempPathFactory) -> Any:
    paths = [each.save() for each in filmed]
    if request.param == "local":
        return publish(paths, (tmp_path_factory.mktemp("cameras") / "store").as_uri())
    store = memory_store("cameras")  # has no local paths, so that every frame is read by range
    wd.DatasetBuilder("a/robot", open_session(store)).add_episodes("demos", paths).publish()
    return open_dataset(open_session(store), parse_address("a/robot")).episodes()


def naive(frames: Array, span: tuple[int, int], step: int, pad: str | None) -> Array:
    steps = np.arange(step + span[0], step + span[1])
    out = frames[np.clip(steps, 0, len(frames) - 1)].copy()
    if pad == "zero":
        out[(steps < 0) | (steps >= len(frames))] = 0
    return out


def check(batch: Any, filmed: list[Filmed], keys: dict[str, tuple[int, int]], pad: str | None) -> None:
    for at, (number, step) in enumerate(zip(batch["episode"].tolist(), batch["step"].tolist(), strict=True)):
        for name, span in keys.items():
            if name in filmed[number].expected:
                wanted = naive(filmed[number].expected[name], span, step, pad)
                np.testing.assert_array_equal(batch[name][at], wanted, err_msg=f"{name} of {number} at {step}")


spans = st.integers(-9, 6).flatmap(lambda start: st.tuples(st.just(start), st.integers(start + 1, start + 12)))


@settings(max_examples=12, deadline=None)
@given(
    top=spans,
    wrist=spans,
    stride=st.sampled_from([1, 3, 7, 17]),
    pad=st.sampled_from(["edge", "zero", None]),
    shuffle=st.sampled_from([False, True, wd.Shuffle(4, 3)]),
    seed=st.integers(0, 5),
    bounds=st.tuples(st.sampled_from([1, 5, 10**4]), st.sampled_from([0, 9, 10**4]), st.sampled_from([1000, 2**22])),
)
def test_windows_equal_sequential_decoding(
    episodes: Episodes,
    filmed: list[Filmed],
    top: tuple[int, int],
    wrist: tuple[int, int],
    stride: int,
    pad: Any,
    shuffle: Any,
    seed: int,
    bounds: tuple[int, int, int],
) -> None:
    """`bounds` has the frames of a segment and of the cache, and the bytes that are fetched together."""
    FRAME_CACHE.clear()
    segment, cached, ahead = bounds
    with (
        patch.object(encoded_frames, "_SEGMENT_BYTES", segment * 48 * 64 * 3),
        patch.object(FRAME_CACHE, "max_bytes", cached * 48 * 64 * 3),
        patch.object(source, "_AHEAD_BYTES", ahead),
    ):
        check_epoch(episodes, filmed, top, wrist, stride=stride, pad=pad, shuffle=shuffle, seed=seed)


def check_epoch(
    episodes: Episodes, filmed: list[Filmed], top: tuple[int, int], wrist: tuple[int, int], **options: Any
) -> None:
    keys = {"top": top, "ctrl": (0, 2), "wrist": wrist}
    stream = episodes.windows(keys=keys, batch_size=13, **options)
    seen = []
    for batch in stream.epoch(0):
        check(batch, filmed, keys, options["pad"])
        seen += list(zip(batch["episode"].tolist(), batch["step"].tolist(), strict=True))
    assert len(seen) == len(set(seen)) == stream.identity.sample_count


def test_all_keys_include_cameras(episodes: Episodes, filmed: list[Filmed]) -> None:
    batch = next(iter(episodes.windows(batch_size=4)))
    assert batch["top"].shape == (4, 1, 48, 64, 3)
    assert batch["wrist"].shape == (4, 1, 24, 32, 3)
    assert set(batch) == {"state", "ctrl", "top", "wrist", "episode", "step"}
    check(batch, filmed, {"top": (0, 1), "wrist": (0, 1)}, "edge")


def test_an_episode_reads_frames(episodes: Episodes, filmed: list[Filmed]) -> None:
    for number, each in enumerate(filmed):
        read = episodes[number].read(["wrist", "ctrl", "top"])
        assert list(read) == ["wrist", "ctrl", "top"]
        np.testing.assert_array_equal(read["top"], each.expected["top"])
        np.testing.assert_array_equal(read["wrist"], each.expected["wrist"])
        camera = episodes[number]["top"]
        assert (len(camera), camera.size) == (40, (48, 64))  # type: ignore[union-attr,arg-type]
        out = np.zeros((9, 48, 64, 3), np.uint8)
        assert camera.window(17, 26, out=out) is out
        np.testing.assert_array_equal(out, each.expected["top"][17:26])
        with pytest.raises(BadInputError, match="frames 30…41 are not within the 40"):
            camera.window(30, 41)


def test_resize_scales_every_camera_or_some(episodes: Episodes, filmed: list[Filmed]) -> None:
    batch = next(iter(episodes.windows(keys=["top", "wrist"], resize=(24, 20), batch_size=8)))
    assert batch["top"].shape == batch["wrist"].shape == (8, 1, 24, 20, 3)
    for name in ("top", "wrist"):
        for at in range(8):
            whole = Image.fromarray(filmed[0].expected[name][at])
            near = np.asarray(whole.resize((20, 24), Image.Resampling.BILINEAR)).mean(axis=2)
            # Two libraries scale colour a little differently; another frame differs by 20 and more.
            assert np.abs(near - batch[name][at, 0].mean(axis=2)).mean() < 6, name
    one = next(iter(episodes.windows(keys=["top", "wrist"], resize={"top": (10, 12)}, batch_size=2)))
    assert (one["top"].shape[2:], one["wrist"].shape[2:]) == ((10, 12, 3), (24, 32, 3))
    assert episodes[0].read(["top"], resize=(10, 12))["top"].shape == (40, 10, 12, 3)
    for bad, message in (
        ((0, 4), "is not a size"),
        ("224", "is not a size"),
        ({"state": (3, 3)}, "is not a camera"),
        ((10**5, 10**5), "pixels"),
    ):
        with pytest.raises(BadInputError, match=message):
            episodes.windows(keys=["top", "state"], resize=bad)  # type: ignore[arg-type]
    with pytest.raises(BadInputError, match="no camera"):
        episodes.windows(keys=["state"], resize=(4, 4))


def test_each_group_is_decoded_once_in_an_epoch(
    episodes: Episodes, filmed: list[Filmed], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Overlapping windows in random order need the same group many times, in several threads."""
    FRAME_CACHE.clear()
    decoded: list[int] = []
    select: Callable[..., Any] = FrameReader.select

    def counting(self: FrameReader, frames: Any, **options: Any) -> Any:
        decoded.extend(frames)
        return select(self, frames, **options)

    monkeypatch.setattr(FrameReader, "select", counting)
    for batch in episodes.windows(keys={"top": (-6, 6)}, shuffle=True, batch_size=16).epoch(0):
        check(batch, filmed, {"top": (-6, 6)}, "edge")
    assert len(decoded) == 40 * len(filmed)


def test_the_cache_of_frames_is_bounded(episodes: Episodes, monkeypatch: pytest.MonkeyPatch) -> None:
    FRAME_CACHE.clear()
    monkeypatch.setattr(FRAME_CACHE, "max_bytes", 400_000)
    wanted = list(episodes.windows(keys={"top": (-1, 2)}, shuffle=True, seed=3).epoch(0))
    assert 0 < FRAME_CACHE.size_bytes <= 400_000
    monkeypatch.setattr(FRAME_CACHE, "max_bytes", 0)
    FRAME_CACHE.clear()
    for mine, other in zip(episodes.windows(keys={"top": (-1, 2)}, shuffle=True, seed=3).epoch(0), wanted, strict=True):
        assert np.array_equal(mine["top"], other["top"])


@pytest.mark.parametrize(("compression", "chunk"), [("zstd", 0), ("zstd", 4096)])
def test_a_camera_that_is_compressed_again(compression: str, chunk: int, tmp_path: Path) -> None:
    made = Filmed("e", 40, tmp_path, compression=compression, time_chunk_steps=chunk).add_images("cam", jpegs(40, 3))
    padded = [data + bytes(3000) for data in jpegs(40, 4)]
    made.add_images("wide", padded)
    episodes = publish([made.save()], (tmp_path / "s").as_uri())
    for batch in episodes.windows(keys={"cam": (-1, 1), "wide": (0, 2)}).epoch(0):
        check(batch, [made], {"cam": (-1, 1), "wide": (0, 2)}, "edge")


def test_frames_at_another_rate_are_aligned_by_time(tmp_path: Path) -> None:
    """20 steps at 10 Hz, with frames at 30 Hz: declared in one camera, by the times of the video in the other."""
    made = Filmed("e", 20, tmp_path, timebase=Timebase("ticks", 10.0))
    made.add_video("declared", H264, sampling_rate_hz=30.0).add_video("timed", SCENES[2])
    made.add_images("slow", jpegs(5), [10**9 + n * 400_000_000 for n in range(5)])
    episodes = publish([made.save()], (tmp_path / "s").as_uri())
    (batch,) = episodes.windows(keys=["declared", "timed", "slow", "ctrl"], batch_size=20).epoch(0)
    for step in range(20):
        frame = min(3 * step, 39)
        np.testing.assert_array_equal(batch["declared"][step, 0], made.expected["declared"][frame])
        np.testing.assert_array_equal(batch["timed"][step, 0], made.expected["timed"][frame])
        np.testing.assert_array_equal(batch["slow"][step, 0], made.expected["slow"][step // 4])


def test_a_camera_without_times_of_steps_is_refused(tmp_path: Path) -> None:
    made = Filmed("e", 20, tmp_path, timebase=Timebase("ticks")).add_video("cam", H264)
    episodes = publish([made.save()], (tmp_path / "s").as_uri())
    with pytest.raises(BadInputError, match="neither rate nor timestamps"):
        next(iter(episodes.windows(keys=["cam"])))
    assert episodes[0].read(["cam"])["cam"].shape == (40, 48, 64, 3)


def test_cameras_of_chunked_episodes(tmp_path: Path) -> None:
    """Each chunk has a video of its own; windows cross from one to the next."""
    scenes = [H264, SCENES[2], Scene("libx264", "mp4", {"g": "12", "bf": "3"}, length=25)]
    lengths, begin, chunks = [40, 40, 25], 0, []
    for number, (scene, length) in enumerate(zip(scenes, lengths, strict=True)):
        chunk = Filmed("long", length, tmp_path, chunk=ChunkPlace(number, 3, begin))
        chunks.append(chunk.add_video("cam", scene))
        begin += length
    episodes = publish([chunk.save() for chunk in chunks], (tmp_path / "s").as_uri())
    whole = Filmed("long", 105, tmp_path)
    whole.expected["cam"] = np.concatenate([chunk.expected["cam"] for chunk in chunks])
    keys = {"cam": (-3, 5), "ctrl": (0, 1)}
    for batch in episodes.windows(keys=keys, shuffle=True, stride=2, batch_size=9).epoch(0):
        check(batch, [whole], keys, "edge")
    np.testing.assert_array_equal(episodes["long"].read(["cam"])["cam"], whole.expected["cam"])
    np.testing.assert_array_equal(episodes["long"]["cam"].window(35, 85), whole.expected["cam"][35:85])


def test_encoded_and_plain_episodes_mix(tmp_path: Path) -> None:
    """An import stores a video as an array where it cannot be cut, so one camera may have both forms."""
    made = Filmed("a", 40, tmp_path).add_video("cam", H264)
    plain = Filmed("b", 40, tmp_path)
    plain.expected["cam"] = made.expected["cam"][::-1].copy()
    plain.observations["cam"] = Channel("cam", plain.expected["cam"])
    episodes = publish([made.save(), plain.save()], (tmp_path / "s").as_uri())
    for batch in episodes.windows(keys={"cam": (-2, 3)}, shuffle=True, batch_size=16).epoch(0):
        check(batch, [made, plain], {"cam": (-2, 3)}, "edge")
    assert next(iter(episodes.windows(keys=["cam"], resize=(8, 9))))["cam"].shape[2:] == (8, 9, 3)


def damage(images: list[bytes], at: int) -> list[bytes]:
    return [data[: len(data) // 2] if number == at else data for number, data in enumerate(images)]


def test_a_damaged_image_names_episode_channel_and_step(tmp_path: Path) -> None:
    spoilt = damage(jpegs(20, 1), 7)
    good = Filmed("good", 20, tmp_path).add_images("cam", jpegs(20))
    bad = Filmed("bad", 20, tmp_path)
    bad.observations["cam"], bad.extra[frames_block("signal/cam")] = index_images(spoilt, range(20), "cam")
    episodes = publish([good.save(), bad.save()], (tmp_path / "s").as_uri())
    with pytest.raises(MediaDecodeError, match="channel 'cam' of episode 'bad', step 7: frame 7") as caught:
        list(episodes.windows(keys={"cam": (0, 1), "ctrl": (0, 1)}).epoch(0))
    assert "on_error" in (caught.value.hint or "")
    stream = episodes.windows(keys={"cam": (0, 1), "ctrl": (0, 1)}, on_error="substitute", batch_size=40)
    (batch,) = stream.epoch(0)
    assert stream.telemetry.stats.substituted == 1
    seen = list(zip(batch["episode"].tolist(), batch["step"].tolist(), batch["ctrl"][:, 0, 0].tolist(), strict=True))
    assert (1, 7, 7.0) not in seen
    assert seen[27] == (1, 8, 8.0)
    np.testing.assert_array_equal(batch["cam"][27], batch["cam"][28])
    with pytest.raises(MediaDecodeError, match="channel 'cam' of episode 'bad', frame 7"):
        episodes["bad"].read(["cam"])
    assert episodes["bad"]["cam"].window(0, 7).shape == (7, 24, 32, 3)
    only = episodes.filter("id = 'bad'").windows(keys=["cam"], history=0, horizon=1, on_error="substitute")
    assert sum(len(each["step"]) for each in only) == 20


def test_a_damaged_packet_is_an_error_from_there_to_the_next_key_frame(tmp_path: Path) -> None:
    """FFmpeg would show something else without a word, in this frame and all that depend on it."""
    scene = Scene("libx264", "mp4", {"g": "10", "bf": "0"})
    made = Filmed("e", 40, tmp_path).add_video("cam", scene)
    name = frames_block("signal/cam")
    index = parse_frames(made.extra[name].data, len(scene.data))
    start, end = index.extent(14)
    data = bytearray(scene.data)
    data[start + 12 : end] = b"\xff" * (end - start - 12)
    entries = index.entries.copy()
    entries["checksum"][index.entry_of(14)] = crc32c(bytes(data[start:end]))
    made.extra[name] = Block(FrameIndex(index.codec, index.extradata, entries).encode())
    damaged = np.frombuffer(bytes(data), np.uint8)
    made.rows["signal/cam"] = replace(made.rows["signal/cam"], read=lambda a, b: damaged[a:b])
    episodes = publish([made.save()], (tmp_path / "s").as_uri())
    camera = episodes[0]["cam"]
    for frame in range(40):
        if 14 <= frame < 20:
            with pytest.raises(MediaDecodeError, match=f"channel 'cam' of episode 'e', frame {frame}"):
                camera.window(frame, frame + 1)
        else:
            np.testing.assert_array_equal(camera.window(frame, frame + 1)[0], made.expected["cam"][frame])
    stream = episodes.windows(keys=["cam"], on_error="substitute", batch_size=40)
    (batch,) = stream.epoch(0)
    assert (stream.telemetry.stats.substituted, batch["step"][13:21].tolist()) == (6, [13, *[20] * 7])


def test_limits_hold_before_memory_is_taken(episodes: Episodes, tmp_path: Path) -> None:
    with pytest.raises(LimitExceededError, match="a batch of 100000 windows"):
        episodes.windows(keys={"top": (0, 16)}, batch_size=100_000)
    assert episodes.windows(keys={"top": (0, 16)}, resize=(4, 4), batch_size=100_000)
    huge = Filmed("e", 1, tmp_path)
    wide = bytearray(jpegs(1)[0])
    at = wide.index(b"\xff\xc0")
    wide[at + 5 : at + 9] = (60_000).to_bytes(2, "big") + (60_000).to_bytes(2, "big")
    huge = Filmed("e", 1, tmp_path).put_images("cam", [bytes(wide)])
    found = publish([huge.save()], (tmp_path / "s").as_uri())
    for resize in (None, (8, 8)):
        with pytest.raises(LimitExceededError):
            list(found.windows(keys=["cam"], resize=resize, batch_size=1))
        with pytest.raises(LimitExceededError):
            found[0].read(["cam"], resize=resize)


def test_frames_of_several_sizes_need_resize(tmp_path: Path) -> None:
    images = [*jpegs(5), *jpegs(5, size=(48, 64))]
    made = Filmed("e", 10, tmp_path)
    made.observations["cam"], made.extra[frames_block("signal/cam")] = index_images(images, range(10), "cam")
    episodes = publish([made.save()], (tmp_path / "s").as_uri())
    with pytest.raises(MediaDecodeError, match="step 5: frame 5 has 64 × 48 pixels; the channel has 32 × 24") as caught:
        list(episodes.windows(keys=["cam"]))
    assert "resize" in (caught.value.hint or "")
    assert next(iter(episodes.windows(keys=["cam"], resize=(24, 32))))["cam"].shape == (10, 1, 24, 32, 3)


def test_cameras_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    made = Filmed("e", 40, tmp_path).add_video("cam", H264)
    made.extra.clear()
    episodes = publish([made.save()], (tmp_path / "s").as_uri())
    for keys in (None, ["cam"]):
        with pytest.raises(BadInputError, match=r"'cam' .* encoded as h264 and has no frame index"):
            episodes.windows(keys=keys)
    with pytest.raises(UnsupportedError, match="no frame index"):
        episodes[0].read(["cam"])
    assert set(next(iter(episodes.windows(keys=["state"])))) == {"state", "episode", "step"}


def test_a_corrupt_frame_index_is_not_published(tmp_path: Path) -> None:
    made = Filmed("e", 40, tmp_path).add_video("cam", H264)
    name = frames_block("signal/cam")
    made.extra[name] = Block(made.extra[name].data[:-1])
    with pytest.raises(InvalidSourceError, match="not a valid episode: the frame index"):
        publish([made.save()], (tmp_path / "s").as_uri())


def test_a_video_of_another_size_than_declared_is_an_error(tmp_path: Path) -> None:
    made = Filmed("e", 40, tmp_path).add_video("cam", H264, frame_shape=[24, 32, 3])
    episodes = publish([made.save()], (tmp_path / "s").as_uri())
    with pytest.raises(MediaDecodeError, match="step 0: frame 0 has 64 × 48 pixels; the channel has 32 × 24"):
        list(episodes.windows(keys=["cam"]))
    assert next(iter(episodes.windows(keys=["cam"], resize=(24, 32))))["cam"].shape[1:] == (1, 24, 32, 3)


def test_an_index_without_cameras_is_not_read_as_if_there_were_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sets of earlier releases have no cameras in their index."""

    def old(*given: Any) -> Any:
        return (spec for spec in channels(*given) if spec.encoding is None)

    channels = index_writer._channels
    monkeypatch.setattr(index_writer, "_channels", old)
    made = Filmed("e", 40, tmp_path).add_video("cam", H264)
    episodes = publish([made.save()], (tmp_path / "s").as_uri())
    with pytest.raises(BadInputError, match="does not list the cameras signal/cam"):
        episodes.windows(keys={"cam": (0, 1)})
    with pytest.raises(BadInputError, match="does not list the cameras signal/cam") as caught:
        episodes.windows()
    assert "Publish the episodes again" in (caught.value.hint or "")
    assert set(next(iter(episodes.windows(keys=["state"])))) == {"state", "episode", "step"}
    np.testing.assert_array_equal(episodes[0].read(["cam"])["cam"], made.expected["cam"])


def test_a_missing_library_is_named_before_the_epoch(episodes: Episodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(UnsupportedError, match="the camera 'top' needs PyAV") as caught:
        episodes.windows()
    assert "[video]" in (caught.value.hint or "")
    assert "keys=" in (caught.value.hint or "")
    assert "state" in next(iter(episodes.windows(keys=["state", "wrist"])))


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), scene=st.sampled_from(SCENES))
def test_damaged_bytes_never_give_an_untyped_error(
    tmp_path_factory: pytest.TempPathFactory, seed: int, scene: Scene
) -> None:
    """Checksums are those of the damaged bytes, as a faulty recorder would write them."""
    rng = np.random.default_rng(seed)
    directory = tmp_path_factory.mktemp("damaged")
    made = Filmed("e", 40, directory).add_video("cam", scene)
    name = frames_block("signal/cam")
    index = parse_frames(made.extra[name].data, len(scene.data))
    data, entries = np.frombuffer(scene.data, np.uint8).copy(), index.entries.copy()
    for entry in rng.integers(0, len(entries), 2):
        start, size = int(entries["offset"][entry]), int(entries["size"][entry])
        data[start + int(rng.integers(size))] ^= 1 << int(rng.integers(8))
        entries["size"][entry] = size if rng.integers(2) else max(1, size // 2)
    for entry in entries:
        entry["checksum"] = crc32c(data[entry["offset"] : entry["offset"] + entry["size"]].tobytes())
    made.extra[name] = Block(FrameIndex(index.codec, index.extradata, entries).encode())
    made.rows["signal/cam"] = replace(made.rows["signal/cam"], read=lambda a, b: data[a:b])
    episodes = publish([made.save()], (directory / "s").as_uri())
    stream = episodes.windows(keys={"cam": (0, 1)}, on_error="substitute", batch_size=40)
    with suppress(MediaDecodeError):
        (batch,) = stream.epoch(0)
        assert batch["cam"].shape == (40, 1, 48, 64, 3)


def test_a_corrupt_cached_copy_is_replaced(s3_url: str, s3_server: S3Endpoint, tmp_path: Path) -> None:
    settings = s3_server.settings(cache_dir=tmp_path / "cache")
    made = Filmed("e", 40, tmp_path).add_video("cam", H264)
    wd.DatasetBuilder("a/r", s3_url, settings=settings).add_episodes("demos", [made.save()]).publish()
    wd.dataset("a/r", store=s3_url, settings=settings).warm()
    copies = [path for path in (tmp_path / "cache").rglob("*") if path.is_file() and H264.data in path.read_bytes()]
    for path in copies:
        data = bytearray(path.read_bytes())
        data[data.index(H264.data) + len(H264.data) // 2] ^= 1
        path.chmod(0o600)
        path.write_bytes(data)
    assert copies
    FRAME_CACHE.clear()
    episode = wd.dataset("a/r", store=s3_url, settings=settings).episodes()[0]
    np.testing.assert_array_equal(episode.read(["cam"])["cam"], made.expected["cam"])


def test_cameras_with_short_gops_do_not_limit_the_shuffle(tmp_path: Path) -> None:
    """Otherwise a batch of a LeRobot dataset would be a few runs of neighbouring frames."""
    short = publish([Filmed("a", 40, tmp_path).add_video("cam", SCENES[2]).save()], (tmp_path / "s").as_uri())
    long = publish([Filmed("b", 40, tmp_path).add_video("cam", SCENES[1]).save()], (tmp_path / "l").as_uri())
    keys = {"cam": (0, 1), "ctrl": (0, 30)}
    plain = short.windows(keys={"ctrl": (0, 30)}, shuffle=True).source.shuffle
    assert short.windows(keys=keys, shuffle=True).source.shuffle == plain
    shuffle = long.windows(keys=keys, shuffle=True).source.shuffle
    assert shuffle is not None
    # 2 MiB of frames are 227, and a GOP has 15; the largest power of two below is 128.
    assert shuffle.block_rows == 128
    huge = long.windows(keys=keys, resize=(1000, 2000), shuffle=True).source.shuffle
    assert huge is not None
    assert (huge.block_rows, huge.window_blocks) == (8, 4)
    assert huge.block_rows * 1000 * 2000 * 3 <= 64 * 2**20


def test_episodes_in_memory_publish_images(tmp_path: Path) -> None:
    files = jpegs(6)
    channel, block = index_images(files, range(6), "cam")
    made = Episode("e", 6, observations={"cam": channel}, extra={frames_block("signal/cam"): block})
    episodes = publish([made], (tmp_path / "s").as_uri())
    assert episodes.table().to_arrow()["channels"].to_pylist() == [["cam"]]
    assert episodes[0]["cam"].encoded(2) == files[2]  # type: ignore[union-attr]
    out = {"cam": np.zeros((6, 1, 24, 32, 3), np.uint8)}
    (batch,) = episodes.windows(keys=["cam"], batch_size=6, out=out, mask=True).epoch(0)
    assert np.shares_memory(batch["cam"], out["cam"])
    assert batch["cam.mask"].all()
