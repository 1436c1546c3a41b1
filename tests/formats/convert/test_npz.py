"""If this fails, an episode that passes through an NPZ differs from the report."""

from __future__ import annotations

import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.formats.convert.scenes import Array, check_export, check_return, episodes, list_outcomes, saved
from tests.kinds.artifacts.media import encode_test_image
from warpdata.conversion import export_npz, import_npz
from warpdata.errors import AlreadyExistsError, InvalidSourceError, ObjectNotFoundError, WarpError
from warpdata.wshard import Channel, Episode, frames_block, index_images, load_wshard

FLAGS = ("is_first", "is_last", "is_terminal", "reward", "discount")


@settings(max_examples=50, deadline=None)
@given(episode=episodes(), seal=st.booleans())
def test_any_episode_round_trips(episode: Episode, seal: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        source = saved(episode, directory, seal=seal)
        report = export_npz(source, directory / "ep.npz")
        outcomes = check_export(report, source)
        with np.load(directory / "ep.npz", allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in archive.files}
        assert set(FLAGS) <= set(arrays)
        assert {len(array) for array in arrays.values()} == {episode.length}
        assert {outcome.field for outcome in report.added} <= set(arrays)
        second = list_outcomes(import_npz(directory / "ep.npz", directory / "back.wshard"))
        assert set(second) == set(arrays)
        # Every NPZ has these arrays, so an import finds the ones that were added.
        is_added = {"reward", "done", "truncated"}
        lost = {field for field, outcome in outcomes.items() if outcome == "lost"}
        check_return(
            {field: outcome for field, outcome in outcomes.items() if field not in lost & is_added},
            source,
            directory / "back.wshard",
        )


@pytest.mark.parametrize("length", [0, 1, 3])
@pytest.mark.parametrize("dtype", [np.bool_, np.float32])
def test_observations_that_look_like_flags_round_trip(tmp_path: Path, length: int, dtype: Any) -> None:
    """Their values are exactly those of the flags with their names."""
    steps = np.arange(length)
    looks = {"is_first": steps == 0, "is_last": steps == length - 1, "discount": np.ones(length)}
    episode = Episode("ep", length, observations={name: Channel(name, a.astype(dtype)) for name, a in looks.items()})
    source = saved(episode, tmp_path, seal=False)
    outcomes = check_export(export_npz(source, tmp_path / "ep.npz"), source)
    assert {outcomes[f"signal/{name}"] for name in looks} == {"kept"}
    import_npz(tmp_path / "ep.npz", tmp_path / "back.wshard")
    check_return(outcomes, source, tmp_path / "back.wshard")


@st.composite
def replays(draw: st.DrawFn) -> dict[str, Array]:
    """Generate arrays like those of replay buffers, including unusual ones."""
    length = draw(st.integers(1, 9))
    chance = np.random.default_rng(draw(st.integers(0, 2**32)))
    flags: dict[str, Array] = {}
    for name in draw(st.sets(st.sampled_from(FLAGS))):
        kinds: list[Any] = [np.bool_, np.float32, np.float64, np.uint8]
        flags[name] = (chance.random(length) < 0.3).astype(draw(st.sampled_from(kinds)))
    if "is_last" in flags and draw(st.booleans()):
        flags["is_last"] = np.arange(length) == length - 1
        flags["is_terminal"] = flags["is_last"]
    if draw(st.booleans()):
        flags["discount"] = np.ones(length, np.float32) * np.float32(0.997)
    return {
        "image": chance.integers(0, 256, (length, 4, 4, 3), dtype=np.uint8),
        "action": chance.standard_normal((length, 2)).astype(np.float32),
        "signal/reward": chance.standard_normal(length),
        **flags,
    }


@settings(max_examples=50, deadline=None)
@given(arrays=replays())
def test_any_arrays_round_trip(arrays: dict[str, Array]) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        np.savez(directory / "replay.npz", **arrays)  # type: ignore[arg-type]
        outcomes = list_outcomes(
            import_npz(directory / "replay.npz", directory / "ep.wshard", env_id="Walk", tick_hz=20)
        )
        assert set(outcomes) == set(arrays)
        episode = load_wshard(directory / "ep.wshard")
        assert (episode.id, episode.env_id, episode.timebase.hz) == ("replay", "Walk", 20)
        export_npz(directory / "ep.wshard", directory / "again.npz")
        with np.load(directory / "again.npz") as archive:
            for field, outcome in outcomes.items():
                if outcome == "kept":
                    assert archive[field].dtype == arrays[field].dtype, field
                    assert archive[field].tobytes() == arrays[field].tobytes(), field


def test_unsupported_arrays_are_reported(tmp_path: Path) -> None:
    np.savez(
        tmp_path / "x.npz", reward=np.zeros(3, ">f8"), note=np.array("hi"), words=np.array(["a"]), short=np.ones(2)
    )
    report = import_npz(tmp_path / "x.npz", tmp_path / "x.wshard")
    assert {outcome.field for outcome in report.lost} == {"note", "words", "short"}
    assert not report.is_lossless
    assert "words: an episode has no element type for <U1" in report.text()
    assert report.document()["lost"][0]["episodes"] == 1


def test_rounded_rewards_are_reported(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", reward=np.array([0.1]))
    (outcome,) = import_npz(tmp_path / "x.npz", tmp_path / "x.wshard").changed
    assert outcome.how == "float64 became float32; values are rounded"


def test_unreadable_sources(tmp_path: Path) -> None:
    (tmp_path / "x.npz").write_bytes(b"PK nothing")
    np.savez(tmp_path / "code.npz", reward=np.array([{"a": 1}], dtype=object))
    np.savez(tmp_path / "none.npz")
    for name in ("x", "code", "none"):
        with pytest.raises(InvalidSourceError, match=f"{name}.npz"):
            import_npz(tmp_path / f"{name}.npz", tmp_path / "x.wshard")
    with pytest.raises(ObjectNotFoundError):
        import_npz(tmp_path / "gone.npz", tmp_path / "x.wshard")
    assert not [path for path in tmp_path.iterdir() if path.suffix not in (".npz",)]


def test_forged_header_allocates_no_memory(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive, archive.open("reward.npy", "w") as member:
        header = {"descr": "<f4", "fortran_order": False, "shape": (2**44,)}
        np.lib.format.write_array_header_1_0(member, header)
        member.write(bytes(8))
    with pytest.raises(InvalidSourceError, match="do not fill the shape"):
        import_npz(tmp_path / "x.npz", tmp_path / "x.wshard")


@settings(max_examples=40, deadline=None)
@given(at=st.integers(0, 10**6), flip=st.integers(1, 255))
def test_damage_is_a_typed_error_or_harmless(at: int, flip: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        np.savez_compressed(
            directory / "x.npz", reward=np.arange(30, dtype=np.float32), image=np.zeros((30, 2), np.uint8)
        )
        data = bytearray((directory / "x.npz").read_bytes())
        data[at % len(data)] ^= flip
        (directory / "y.npz").write_bytes(data)
        try:
            import_npz(directory / "y.npz", directory / "y.wshard")
        except WarpError:
            assert not (directory / "y.wshard").exists()


def test_encoded_cameras_are_decoded_and_reported(tmp_path: Path) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (3, 4, 5, 3), dtype=np.uint8)
    camera, index = index_images([encode_test_image(row, "PNG") for row in pixels], [0, 1, 2], "image")
    short, other = index_images([encode_test_image(pixels[0], "PNG")], [0], "short")
    extra = {frames_block("signal/image"): index, frames_block("signal/short"): other}
    episode = Episode("ep", 3, observations={"image": camera, "short": short}, extra=extra)
    source = saved(episode, tmp_path)
    outcomes = check_export(export_npz(source, tmp_path / "a.npz"), source)
    assert (outcomes["signal/image"], outcomes["signal/short"], outcomes["frames/signal/image"]) == (
        "changed",
        "lost",
        "lost",
    )
    with np.load(tmp_path / "a.npz") as archive:
        np.testing.assert_array_equal(archive["image"], pixels)
    outcomes = check_export(export_npz(source, tmp_path / "b.npz", decode=False), source)
    assert outcomes["signal/image"] == "lost"


def test_existing_target_is_not_replaced(tmp_path: Path) -> None:
    source = saved(Episode("ep", 2), tmp_path)
    export_npz(source, tmp_path / "a.npz")
    before = (tmp_path / "a.npz").read_bytes()
    with pytest.raises(AlreadyExistsError):
        export_npz(source, tmp_path / "a.npz")
    assert (tmp_path / "a.npz").read_bytes() == before
