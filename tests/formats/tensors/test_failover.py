"""If this fails, one bad source spoils a read that another source could serve, or its wrong bytes are believed."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count, repeat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

import warpdata as wd
from tests.formats.tensors.artifacts import Sample, samples, specs
from tests.formats.tensors.faulty_sources import (
    FILE_FAULTS,
    PEER_FAULTS,
    STORE_FAULTS,
    FaultyFile,
    FaultyPeer,
    FaultyReader,
)
from warpdata.errors import BadInputError, CorruptError, PartialCoverageError, StoreUnavailableError, WarpError
from warpdata.formats.tensors import hashing
from warpdata.formats.tensors.extents import ExtentMap
from warpdata.formats.tensors.source_health import SourceHealth
from warpdata.primitives.ranges import RangeSet
from warpdata.tensors import (
    ObjectRangeSource,
    SourcePolicy,
    TensorSet,
    create_tensors,
    crop,
    narrow,
    open_tensors,
    serve_tensors,
    transpose,
    write_tensors,
)

LEAF = 2**19
ARRAYS: dict[str, Any] = {
    "a": np.arange(500 * 700, dtype=np.float32).reshape(500, 700),
    "b": np.arange(77, dtype=np.int16),
    "c": np.arange(300 * 300, dtype=np.uint32).reshape(300, 300),
}


class Scene:
    """One artifact in a peer, a local file and a store, each of which can fail."""

    def __init__(self, home: Path) -> None:
        self.art = write_tensors(home / "good", ARRAYS)
        good = (home / "good").read_bytes()
        self.artifact_id = self.art.artifact_id
        self.total = self.art.index.total_size
        self.peer = FaultyPeer(self.art)
        self.file = FaultyFile(home / "replica", good, self.total)
        self.reader = FaultyReader(home)
        self.store = ObjectRangeSource(self.reader, "good", len(good))

    def opened(self, prefer: tuple[str, ...] = ("replica", "peer", "store"), **options: Any) -> TensorSet:
        policy = SourcePolicy(
            prefer=prefer, replicas=[self.file.path], peers=[self.peer.url], stores=[self.store], **options
        )
        return open_tensors(self.artifact_id, sources=policy)

    def close(self) -> None:
        self.peer.close()
        self.art.close()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    made.close()


def check_all(art: TensorSet, **options: Any) -> None:
    out = art.view({"c": transpose(0, 1)}).materialize(**options)
    np.testing.assert_array_equal(out["a"], ARRAYS["a"])
    np.testing.assert_array_equal(out["b"], ARRAYS["b"])
    np.testing.assert_array_equal(out["c"], ARRAYS["c"].T)


def stop_clocks(art: TensorSet) -> None:
    """Let no back-off end during a test, however slow the machine is."""
    assert art.replica.failover is not None
    for place in art.replica.failover.places:
        place.health._clock = repeat(place.health._clock()).__next__


# One fault at a time


@pytest.mark.parametrize("fault", [*PEER_FAULTS[1:], "stall"])
def test_the_next_source_serves_when_a_peer_fails(scene: Scene, fault: str) -> None:
    with scene.opened(prefer=("peer", "replica"), peer_timeout_s=1.5 if fault == "stall" else 30) as art:
        stop_clocks(art)
        scene.peer.fault = fault
        check_all(art)
        peer, replica = art.source_stats()
        assert (peer.kind, peer.name, replica.kind) == ("peer", scene.peer.url, "replica")
        assert peer.failures > 0
        assert peer.backoff_s > 0
        assert peer.last_error
        assert (peer.corrupt > 0) == (fault == "lie")
        assert replica.failures == 0
        assert replica.bytes_read >= sum(array.nbytes for array in ARRAYS.values())
        # In back-off, the peer is not asked again.
        asked = scene.peer.requests
        check_all(art)
        assert scene.peer.requests == asked


@pytest.mark.parametrize("fault", FILE_FAULTS[1:])
@pytest.mark.parametrize("at", [0, 3 * LEAF // 2])
def test_the_next_source_serves_when_a_local_file_fails(scene: Scene, fault: str, at: int) -> None:
    with scene.opened(prefer=("replica", "peer")) as art:
        scene.file.set(fault, at)
        check_all(art)
        replica, peer = art.source_stats()
        assert (replica.failures > 0) == (fault != "delete"), "an open file stays readable when it is deleted"
        assert (peer.bytes_read > 0) == (fault != "delete")


@pytest.mark.parametrize("fault", ["truncate", "delete"])
def test_a_file_that_was_damaged_before_is_skipped(scene: Scene, fault: str) -> None:
    scene.file.set(fault, 1000)
    with scene.opened(prefer=("replica", "peer")) as art:
        check_all(art)
        peer, replica = art.source_stats()
        assert not replica.is_open
        assert replica.last_error
        assert peer.is_open


def test_every_source_is_verified_by_default(scene: Scene) -> None:
    """A complete file with one flipped bit is the only source: its bytes are not believed."""
    with scene.opened(prefer=("replica",)) as art:
        scene.file.set("flip", 100)
        with pytest.raises(CorruptError, match="'a'"):
            art["a"].numpy()
        with art.deferred() as deferred:
            deferred.take("a")
            with pytest.raises(CorruptError):
                deferred.commit()
        # The caller may opt out.
        assert art["a"].numpy(verify=False).shape == (500, 700)
        np.testing.assert_array_equal(art["c"].numpy(), ARRAYS["c"])


def test_unverified_reads_fail_over_too(scene: Scene) -> None:
    view: dict[str, Any] = {"a": crop(slice(10, 400, 3), slice(5, 600, 2), order=(1, 0)), "c": narrow(1, 20, 30)}
    orders: list[tuple[str, ...]] = [("peer", "replica"), ("replica", "peer")]
    for prefer in orders:
        for fault in ("close", "error", "cut"):
            scene.file.set("none", 0)
            with scene.opened(prefer=prefer) as art:
                scene.peer.fault = fault if prefer[0] == "peer" else "none"
                scene.file.set("truncate" if prefer[0] == "replica" else "none", 700_000)
                out = art.view(view).materialize(verify=False)
                np.testing.assert_array_equal(out["a"], ARRAYS["a"][10:400:3, 5:600:2].T)
                np.testing.assert_array_equal(out["c"], ARRAYS["c"][:, 20:50])
                assert art.source_stats()[0].failures > 0
        scene.peer.fault = "none"


def test_two_bad_files_with_different_bad_leaves_make_one_good_artifact(scene: Scene, tmp_path: Path) -> None:
    other = FaultyFile(tmp_path / "other", (tmp_path / "good").read_bytes(), scene.total)
    policy = SourcePolicy(replicas=[scene.file.path, other.path])
    with open_tensors(scene.artifact_id, sources=policy) as art:
        scene.file.set("flip", 100)
        other.set("flip", LEAF + 100)
        check_all(art)
        assert all(one.corrupt for one in art.source_stats())
        assert art.verify() == []
        other.set("flip", 200)
        assert [(bad.start, bad.end) for bad in art.verify()] == [(0, LEAF)]


def test_one_error_lists_what_every_source_did(scene: Scene) -> None:
    with scene.opened() as art:
        scene.peer.fault, scene.reader.fault = "error", "error"
        scene.file.set("flip", 100)
        with pytest.raises(StoreUnavailableError) as caught:
            art["a"].numpy()
        for part in (scene.peer.url, "500", str(scene.file.path), "do not match", "the store failed"):
            assert part in caught.value.message
        assert "source_stats" in str(caught.value.hint)
        scene.peer.fault = scene.reader.fault = "lie"
        with pytest.raises(CorruptError) as corrupt:
            art["a"].numpy()
        assert len(corrupt.value.problems) == 3
        # All sources are in back-off, and still serve if they are valid again.
        scene.peer.fault = "none"
        check_all(art)


def test_an_error_also_lists_sources_that_were_not_opened(scene: Scene, tmp_path: Path) -> None:
    policy = SourcePolicy(replicas=[tmp_path / "gone", scene.file.path])
    with open_tensors(scene.artifact_id, sources=policy) as art:
        scene.file.set("truncate", 10)
        with pytest.raises(StoreUnavailableError) as caught:
            art["a"].numpy()
        for part in (str(tmp_path / "gone"), "does not exist", str(scene.file.path), "ends at byte"):
            assert part in caught.value.message


def test_missing_bytes_are_explained_by_sources_that_were_not_opened(scene: Scene, tmp_path: Path) -> None:
    """The index of published tensors is there, and every source is gone."""
    store = (tmp_path / "store").as_uri()
    wd.DatasetBuilder("acme/m", store).add_tensors("w", ARRAYS).publish()
    policy = SourcePolicy(prefer=["replica"], replicas=[tmp_path / "gone"])
    art = wd.dataset("acme/m", store=store).tensors("w", sources=policy)
    for read in (art["a"].numpy, lambda: art.save_partial(art.view(names=["a"]), tmp_path / "part")):
        with pytest.raises(PartialCoverageError, match=r"replica .*gone: not opened: .*does not exist"):
            read()


def test_published_tensors_fall_back_to_their_store(scene: Scene, tmp_path: Path) -> None:
    """Leaves that only several sources together have are put together, and verified."""
    parts = []
    for number, name in enumerate(ARRAYS):
        path = tmp_path / f"{number}.safetensors"
        scene.art.save_safetensors(path, scene.art.view(names=[name]))
        parts.append(path)
    with open_tensors(scene.artifact_id, sources=SourcePolicy(peers=[scene.peer.url])) as art:
        scene.peer.fault = "close"
        with pytest.raises(StoreUnavailableError):
            check_all(art)
    (tmp_path / "directory").mkdir()
    for path in parts:
        path.rename(tmp_path / "directory" / path.name)
    scene.peer.fault = "none"
    policy = SourcePolicy(replicas=[tmp_path / "directory"], peers=[scene.peer.url])
    with open_tensors(scene.artifact_id, sources=policy) as art:
        scene.peer.fault = "close"
        check_all(art)
        assert art.source_stats()[0].bytes_read > 0


def test_an_artifact_over_sources_can_be_written_served_and_saved(scene: Scene, tmp_path: Path) -> None:
    """Every way out of an artifact fails over, not only `materialize`."""
    with scene.opened(prefer=("peer", "replica")) as art:
        scene.peer.fault = "lie"
        art.save_safetensors(tmp_path / "out.safetensors", verify=False)
        part = art.save_partial(art.view(names=["a"]), tmp_path / "part")
        np.testing.assert_array_equal(part["a"].numpy(), ARRAYS["a"])
        changed = art.write_view(art.view({"c": narrow(0, 0, 1)}, names=["c"]), {"c": np.zeros((1, 300), np.uint32)})
        np.testing.assert_array_equal(changed["a"].numpy(), ARRAYS["a"])
        np.testing.assert_array_equal(changed["c"].numpy()[1:], ARRAYS["c"][1:])
        assert changed.artifact_id != art.artifact_id
        with (
            serve_tensors(art) as server,
            open_tensors(scene.artifact_id, sources=SourcePolicy(peers=[server.url])) as far,
        ):
            check_all(far, verify=False)


GARBAGE = [
    *(b"", b"null", b"{}", b"[]", b"[[0]]", b"[[0,1e999]]", b"[[-5,9]]", b"[[9,5]]", b"[[0,99999999999999999999]]"),
    *(b'[["0","7"]]', b"[[0,1.5]]", b"[[NaN,1]]", b"[" * 50_000, b"9" * 5000, b"\xff\xfe", bytes(32), bytes(33)),
    *(b"[[0,8],[4,12]]", b'[{"0":1}]', b"[[true,false]]"),
]


@pytest.mark.parametrize("what", ["index", "leaves", "extents"])
def test_a_peer_that_describes_itself_wrongly_does_no_harm(scene: Scene, what: str) -> None:
    truth = scene.peer.files[what]
    for answer in [*GARBAGE, truth[:-1], truth + b"x", truth * 2]:
        scene.peer.files[what] = answer
        with scene.opened(prefer=("peer", "replica")) as art:
            check_all(art)
            np.testing.assert_array_equal(art["b"].numpy(), ARRAYS["b"])
            assert any(one.kind == "replica" and one.is_open for one in art.source_stats())


def test_silent_peers_are_opened_together(scene: Scene) -> None:
    """Six peers accept and never answer. Opening takes about one time-out, not six, and order is kept."""
    with ExitStack() as stack:
        silent = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(6)]
        urls = [f"http://127.0.0.1:{one.getsockname()[1]}" for one in silent]
        policy = SourcePolicy(peers=[*urls, scene.peer.url], peer_timeout_s=2)
        began = time.monotonic()
        with open_tensors(scene.artifact_id, sources=policy) as art:
            assert time.monotonic() - began < 10
            check_all(art)
            assert [one.name for one in art.source_stats()] == [scene.peer.url, *urls]
            assert all("silent" in str(one.last_error) for one in art.source_stats()[1:])


# Back-off


def test_a_backoff_grows_ends_and_admits_one_read_at_a_time() -> None:
    now = [0.0]
    health = SourceHealth("peer", "x", clock=lambda: now[0])
    for expected in (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0):
        assert health.admit()
        health.fail(CorruptError("bad"))
        health.fail(CorruptError("a late answer does not extend the back-off"))
        assert health.stats().backoff_s == expected
        assert not health.admit()
        now[0] += expected
        assert health.is_available()
    assert health.admit()
    assert not health.admit(), "a second read waits for the result of the first"
    health.succeed(10)
    assert health.admit()
    assert health.admit()
    assert health.stats().backoff_s == 0
    assert (health.stats().failures, health.stats().corrupt, health.stats().bytes_read) == (16, 16, 10)


@pytest.mark.parametrize(
    "bad", [{"peers": "http://x"}, {"replicas": "file"}, {"peer_timeout_s": 0, "peers": ["http://x"]}]
)
def test_a_policy_checks_its_values(bad: dict[str, Any]) -> None:
    with pytest.raises(BadInputError):
        open_tensors(f"mi2:{'b' * 56}:{'b' * 56}", sources=SourcePolicy(**bad))


# All faults at all times


class Faults(RuleBasedStateMachine):
    """Sources fail and recover between reads. While one is good, every read returns the truth."""

    homes: Iterator[Path]

    @initialize(prefer=st.permutations(["replica", "peer", "store"]))
    def begin(self, prefer: list[str]) -> None:
        self.scene = Scene(next(self.homes))
        self.art = self.scene.opened(prefer=tuple(prefer))
        self.faults = {"replica": "none", "peer": "none", "store": "none"}

    @rule(
        peer=st.just("lie") | st.sampled_from(PEER_FAULTS),
        replica=st.just("flip") | st.sampled_from(FILE_FAULTS[:3]),
        store=st.just("none") | st.just("lie") | st.sampled_from(STORE_FAULTS),
        at=st.integers(0, 2**21),
    )
    def change_faults(self, peer: str, replica: str, store: str, at: int) -> None:
        self.scene.peer.fault = peer
        self.scene.file.set(replica, at)
        self.scene.reader.fault = store
        self.faults = {"peer": peer, "replica": replica, "store": store}

    @rule(good=st.sampled_from(["replica", "peer", "store"]))
    def repair_one(self, good: str) -> None:
        self.faults[good] = "none"
        self.scene.peer.fault, self.scene.reader.fault = self.faults["peer"], self.faults["store"]
        if good == "replica":
            self.scene.file.set("none", 0)

    @rule()
    def end_backoff(self) -> None:
        """Let time pass, so that reads go to the first source again."""
        failover = self.art.replica.failover
        assert failover is not None
        for place in failover.places:
            place.health._retry_at = 0.0

    @rule(
        start=st.integers(0, 499),
        length=st.integers(1, 500),
        step=st.integers(1, 4),
        column=st.integers(0, 699),
        swap=st.booleans(),
    )
    def read(self, start: int, length: int, step: int, column: int, swap: bool) -> None:
        rows, columns = slice(start, min(500, start + length), step), slice(column, min(700, column + length))
        view = self.art.view({"a": crop(rows, columns, order=(1, 0) if swap else None), "c": transpose(0, 1)})
        if "none" not in self.faults.values():
            try:
                out = view.materialize()
            except WarpError:
                return
        else:
            out = view.materialize()
        expected = ARRAYS["a"][rows, columns]
        np.testing.assert_array_equal(out["a"], expected.T if swap else expected)
        np.testing.assert_array_equal(out["b"], ARRAYS["b"])
        np.testing.assert_array_equal(out["c"], ARRAYS["c"].T)

    @precondition(lambda self: self.faults["peer"] != "lie" and self.faults["store"] != "lie")
    @rule(start=st.integers(0, 299), column=st.integers(0, 299))
    def read_unverified(self, start: int, column: int) -> None:
        """Without verification, errors still lead to the next source. Wrong bytes are the caller's choice."""
        if self.faults["replica"] == "flip" or "none" not in self.faults.values():
            return
        view = self.art.view({"c": crop(slice(start, 300), slice(0, column + 1))}, names=["c"])
        out = view.materialize(verify=False)
        np.testing.assert_array_equal(out["c"], ARRAYS["c"][start:, : column + 1])

    def teardown(self) -> None:
        if hasattr(self, "art"):
            self.art.close()
            self.scene.close()


def test_random_faults_never_change_a_value(tmp_path_factory: pytest.TempPathFactory) -> None:
    run_faults(tmp_path_factory.mktemp("faults"), settings(max_examples=20, stateful_step_count=15, deadline=None))


@pytest.mark.soak
def test_many_random_faults_never_change_a_value(tmp_path_factory: pytest.TempPathFactory) -> None:
    run_faults(tmp_path_factory.mktemp("faults"), settings(max_examples=400, stateful_step_count=40, deadline=None))


def run_faults(root: Path, amount: settings) -> None:

    def homes() -> Iterator[Path]:
        for number in count():
            home = root / str(number)
            home.mkdir()
            yield home

    Faults.homes = homes()
    machine: Any = Faults.TestCase
    machine.settings = amount
    machine("runTest").runTest()


# Many small leaves, in parts, each damaged somewhere


@given(st.data(), samples(min_tensors=1))
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_valid_leaves_of_damaged_partial_files_are_found(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, sample: Sample
) -> None:
    """Leaves have 64 bytes here. If every leaf is valid in one of the files, every view has the right bytes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hashing, "_LEAF_MIN_BYTES", 64)
        home = tmp_path_factory.mktemp("damaged")
        with create_tensors(home / "t", sample.index) as writer:
            writer.write_view(writer.view(), sample.data)
            whole = writer.seal()
        paths = []
        for number in range(data.draw(st.integers(1, 3))):
            names = data.draw(st.none() | st.lists(st.sampled_from(sample.index.names()), unique=True, min_size=1))
            paths.append(home / f"part{number}")
            whole.save_partial(whole.view(names=names), paths[-1]).close()
        with open_tensors(whole.artifact_id, sources=SourcePolicy(replicas=paths)) as art:
            assert art.replica.failover is not None
            bad = [
                _damage(path, place.extents, data.draw(st.lists(st.integers(0, 5000), max_size=3)))
                for path, place in zip(paths, art.replica.failover.places, strict=True)
            ]
            is_whole = all(
                any(
                    place.available.covers(span) and not damaged.overlaps(span)
                    for place, damaged in zip(art.replica.failover.places, bad, strict=True)
                )
                for span in _leaves(sample.index.total_size)
            )
            spec = data.draw(specs(sample.index)) or None
            try:
                out = bytes(art.view(spec).materialize().region)
            except WarpError:
                assert not is_whole
            else:
                assert out == bytes(whole.view(spec).materialize().region)
        whole.close()


def _damage(path: Path, extents: ExtentMap, positions: list[int]) -> RangeSet:
    """Flip bits in the data of a partial file, and return the canonical bytes that are wrong now."""
    wrong = RangeSet()
    with path.open("r+b") as file:
        for position in positions:
            for part in extents.parts:
                if part.start <= position < part.end:
                    file.seek(part.offset + position - part.start)
                    found = file.read(1)[0]
                    file.seek(-1, 1)
                    file.write(bytes([found ^ 255]))
                    wrong = (wrong | RangeSet([(position, position + 1)])) - (
                        wrong & RangeSet([(position, position + 1)])
                    )
    return wrong


def _leaves(total: int) -> list[tuple[int, int]]:
    return [(start, min(total, start + 64)) for start in range(0, total, 64)]
