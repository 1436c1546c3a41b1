"""If this fails, bytes of one artifact are taken for another, or missing bytes are filled in."""

from __future__ import annotations

import http.client
import socket
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.formats.tensors.artifacts import RecordingSource, Sample, array_of, samples, specs
from warpdata.errors import (
    AlreadyExistsError,
    BadInputError,
    CorruptError,
    ObjectNotFoundError,
    PartialCoverageError,
    StoreTimeoutError,
    StoreUnavailableError,
    UnsupportedError,
)
from warpdata.formats.tensors.peer import PeerAccess, PeerSource
from warpdata.formats.tensors.plan import iter_blocks
from warpdata.primitives.ranges import RangeSet
from warpdata.storage import ByteRange, LocalStore
from warpdata.storage.wrapper import ReaderWrapper
from warpdata.tensors import (
    Engine,
    Extent,
    ObjectRangeSource,
    ReadCost,
    SourcePolicy,
    TensorSet,
    View,
    create_tensors,
    crop,
    narrow,
    open_sources,
    open_tensors,
    serve_tensors,
    transpose,
    write_tensors,
)

LEAF = 2**19
ARRAYS: dict[str, Any] = {
    "a": np.arange(1000 * 900, dtype=np.float32).reshape(1000, 900),
    "b": np.arange(77, dtype=np.int16),
    "c": np.arange(600 * 600, dtype=np.uint32).reshape(600, 600),
}


@pytest.fixture
def whole(tmp_path: Path) -> TensorSet:
    return write_tensors(tmp_path / "whole", ARRAYS)


def stored(sample: Sample, path: Path) -> TensorSet:
    with create_tensors(path, sample.index) as writer:
        writer.write_view(writer.view(), sample.data)
        return writer.seal()


# Partial files


@given(st.data(), samples(min_tensors=1))
def test_a_partial_file_serves_exactly_what_it_covers(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, sample: Sample
) -> None:
    """The artifact is available in pieces, so that ranges are smaller than leaves."""
    home = tmp_path_factory.mktemp("parts")
    total = sample.index.total_size
    cuts = sorted(data.draw(st.lists(st.integers(0, total), max_size=4)))
    pieces = [(s, e) for s, e in zip([0, *cuts], [*cuts, total], strict=True) if s < e]
    kept = [one for one in pieces if data.draw(st.integers(0, 3))]

    art = open_sources(sample.index, [RecordingSource(sample.data)], [Extent(s, e, 0, s) for s, e in kept])
    view = art.view(data.draw(specs(sample.index)) or None)
    needed = [(s, s + n) for run in view.plan.data_runs for s, _, n in iter_blocks(run)]
    if RangeSet(needed) - RangeSet(kept):
        with pytest.raises(PartialCoverageError):
            art.save_partial(view, home / "part")
        assert list(home.iterdir()) == []
        return
    part = art.save_partial(view, home / "part")
    assert [file.name for file in home.iterdir()] == ["part"]
    assert part.index_multihash == art.index_multihash
    assert bytes(replan(part, view).region) == bytes(view.materialize().region)
    other = part.view(data.draw(specs(sample.index)) or None)
    need = RangeSet((s, s + n) for run in other.plan.data_runs for s, _, n in iter_blocks(run))
    have = RangeSet((extent.start, extent.end) for extent in part.replica.extents.parts)
    missing = [(s, e - s) for s, e in need - have]
    if missing:
        with pytest.raises(PartialCoverageError) as caught:
            other.materialize()
        assert list(caught.value.detail.missing_ranges) == missing
    else:
        full, _ = sample.opened()
        assert bytes(other.materialize().region) == bytes(replan(full, other).region)
    part.close()


def replan(art: TensorSet, view: Any) -> Any:
    return View(art.replica, view.normal).materialize()


def test_a_partial_file_serves_other_views(whole: TensorSet, tmp_path: Path) -> None:
    part = whole.save_partial(whole.view({"a": narrow(0, 0, 300)}, names=["a"]), tmp_path / "part")
    np.testing.assert_array_equal(part["a"][10:290, ::3].numpy(verify=True), ARRAYS["a"][10:290, ::3])
    np.testing.assert_array_equal(
        part.view({"a": crop(slice(0, 100), order=(1, 0))}, names=["a"]).materialize()["a"], ARRAYS["a"][:100].T
    )
    assert (tmp_path / "part").stat().st_size < (tmp_path / "whole").stat().st_size
    with pytest.raises(PartialCoverageError) as caught:
        part["c"].numpy()
    entry = whole.index["c"]
    assert caught.value.detail.missing_ranges == ((entry.offset, entry.size),)
    with pytest.raises(AlreadyExistsError):
        whole.save_partial(whole.view(), tmp_path / "part")
    with pytest.raises(UnsupportedError):
        part.save_partial(write_tensors(tmp_path / "other", {"z": np.arange(3)}).view(), tmp_path / "x")


def test_corrupt_bytes_are_not_saved(whole: TensorSet, tmp_path: Path) -> None:
    with (tmp_path / "whole").open("r+b") as file:
        file.seek(700_000)
        file.write(b"\x01\x02\x03")
    with pytest.raises(CorruptError):
        whole.save_partial(whole.view({"a": narrow(0, 100, 300)}, names=["a"]), tmp_path / "part")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["whole"]


def test_a_modified_partial_file_is_rejected(tmp_path: Path) -> None:
    art = write_tensors(tmp_path / "t", {"a": np.arange(5)})
    part = art.save_partial(art.view(), tmp_path / "part")
    size = part.index.total_size
    good = (tmp_path / "part").read_bytes()
    for at in range(size, len(good) - 8):
        (tmp_path / "bad").write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        with pytest.raises((CorruptError, UnsupportedError)):
            open_tensors(tmp_path / "bad")
    for data in (good[1:], good[:size] + bytes(8) + good[size:]):
        (tmp_path / "bad").write_bytes(data)
        with pytest.raises(CorruptError):
            open_tensors(tmp_path / "bad")


# Peers


def test_a_peer_serves_an_artifact_by_its_id(whole: TensorSet) -> None:
    with (
        serve_tensors(whole) as server,
        open_tensors(whole.artifact_id, sources=SourcePolicy(peers=[server.url])) as art,
    ):
        assert art.index_bytes == whole.index_bytes
        assert art.artifact_id == whole.artifact_id
        out = art.view({"a": narrow(1, 100, 50), "c": transpose(0, 1)}).materialize(verify=True)
        np.testing.assert_array_equal(out["a"], ARRAYS["a"][:, 100:150])
        np.testing.assert_array_equal(out["c"], ARRAYS["c"].T)
        np.testing.assert_array_equal(art["b"][3:9].numpy(), ARRAYS["b"][3:9])


@given(st.data(), samples(min_tensors=1), st.sampled_from([0, 16, 10**6]))
def test_explain_predicts_the_requests_to_a_peer(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, sample: Sample, request_bytes: int
) -> None:
    art = stored(sample, tmp_path_factory.mktemp("peer") / "t")
    requested: list[tuple[int, int]] = []

    class RecordingPeer(PeerSource):
        def read_range(self, start: int, end: int) -> memoryview:
            requested.append((start, end))
            return super().read_range(start, end)

    with serve_tensors(art) as server:
        source = RecordingPeer(server.url, art.index_multihash)
        remote = open_sources(art.index, [source], [Extent(0, art.index.total_size, 0, 0)], engine=Engine(threads=3))
        view = remote.view(data.draw(specs(sample.index)) or None, cost=ReadCost(request_bytes, 64, 64))
        explained = view.explain()
        got = bytes(view.materialize().region)
        source.close()
    assert sorted(requested) == sorted((start, end) for _, start, end in explained.reads)
    assert explained.bytes_read == sum(end - start for start, end in requested)
    assert got == bytes(replan(art, view).region)
    art.close()


def test_a_peer_with_other_values_is_not_used(whole: TensorSet, tmp_path: Path) -> None:
    """Two checkpoints of one model have the same index. Their leaf digests show which is which."""
    other = write_tensors(tmp_path / "other", {**ARRAYS, "b": ARRAYS["b"] + 1})
    assert other.index_multihash == whole.index_multihash
    with serve_tensors(other) as server:
        policy = SourcePolicy(peers=[server.url])
        with pytest.raises(ObjectNotFoundError, match="other values"):
            open_tensors(whole.artifact_id, sources=policy)
        part = whole.save_partial(whole.view({"a": narrow(0, 0, 10)}, names=["a"]), tmp_path / "part")
        part.close()
        with open_tensors(tmp_path / "part", sources=policy) as mixed:
            with pytest.raises(PartialCoverageError):
                mixed.view(names=["b"]).materialize(verify=False)
            assert [one.is_open for one in mixed.source_stats()] == [True, False]


def test_a_server_sends_only_available_bytes(whole: TensorSet, tmp_path: Path) -> None:
    part = whole.save_partial(whole.view({"a": narrow(0, 0, 10)}, names=["a"]), tmp_path / "part")
    with serve_tensors(part) as server:
        address = urlsplit(server.url)

        def get(path: str, span: str | None = None) -> int:
            connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=10)
            connection.request("GET", path, headers={"Range": span} if span else {})
            status = connection.getresponse().status
            connection.close()
            return status

        name = f"/tensors/{part.index_multihash}"
        assert get(f"{name}/index") == get(f"{name}/extents") == 200
        assert get(f"{name}/bytes", f"bytes=0-{LEAF - 1}") == 206
        assert get(f"{name}/bytes", f"bytes=0-{LEAF}") == 404
        for span in ("bytes=5-2", "bytes=-5", "bytes=0-99999999", "lines=1-2", "bytes=0-1,4-5", "bytes=9" * 99):
            assert get(f"{name}/bytes", span) == 416
        for path in ("/", "/etc/passwd", f"{name}/../index", f"{name}/", "/tensors/bciq/index"):
            assert get(path) == 404
        with pytest.raises(ObjectNotFoundError):
            PeerSource(server.url, "b" * 56).index_bytes()
        with pytest.raises(ObjectNotFoundError, match="no source has"):
            open_tensors(f"mi2:{'b' * 56}:{'b' * 56}", sources=SourcePolicy(peers=[server.url]))


def test_unreachable_peers_raise_typed_errors(whole: TensorSet) -> None:
    with serve_tensors(whole) as server:
        url = server.url
        source = PeerSource(url, whole.index_multihash)
        assert source.read_range(0, 4) == ARRAYS["a"].tobytes()[:4]
    with pytest.raises(StoreUnavailableError):
        source.read_range(0, 4)
    for bad in ("ftp://x", "nonsense", "http://", "http://user:secret@host"):
        with pytest.raises(BadInputError):
            PeerSource(bad, "b" * 56)


def test_a_silent_peer_is_a_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        source = PeerSource(f"http://127.0.0.1:{silent.getsockname()[1]}", "b" * 56, access=PeerAccess(timeout_s=0.2))
        with pytest.raises(StoreTimeoutError):
            source.read_range(0, 4)


def test_a_server_stops_with_its_block(whole: TensorSet) -> None:
    before = threading.active_count()
    with serve_tensors(whole) as server:
        open_tensors(whole.artifact_id, sources=SourcePolicy(peers=[server.url])).close()
    server.close()
    assert threading.active_count() <= before + 1


# Stores


class RecordingReader(ReaderWrapper):
    """A reader that records the requested ranges."""

    def __init__(self, root: Path) -> None:
        super().__init__(LocalStore(root))
        self.requested: list[tuple[int, int]] = []

    def read_range(self, key: str, span: ByteRange) -> memoryview:
        self.requested.append((span.start, span.end))
        return super().read_range(key, span)


def test_an_object_of_a_store_is_an_artifact(whole: TensorSet, tmp_path: Path) -> None:
    size_bytes = (tmp_path / "whole").stat().st_size
    bucket = RecordingReader(tmp_path)
    policy = SourcePolicy(stores=[ObjectRangeSource(bucket, "whole", size_bytes)])
    art = open_tensors(whole.artifact_id, sources=policy)
    bucket.requested.clear()
    view = art.view({"a": narrow(0, 125, 125)}, names=["a"])
    np.testing.assert_array_equal(view.materialize(verify=False)["a"], ARRAYS["a"][125:250])
    assert bucket.requested == [(start, end) for _, start, end in view.explain(verify=False).reads]
    assert sum(end - start for start, end in bucket.requested) == 125 * 3600
    with pytest.raises(ObjectNotFoundError):
        open_tensors(whole.artifact_id, sources=SourcePolicy(stores=[ObjectRangeSource(bucket, "gone", 10**6)]))
    out = art.view({"c": narrow(1, 0, 75)}).materialize(verify=True)
    np.testing.assert_array_equal(out["c"], ARRAYS["c"][:, :75])


# Several sources


def test_the_preferred_source_is_read_first(whole: TensorSet, tmp_path: Path) -> None:
    bucket = RecordingReader(tmp_path)
    store = ObjectRangeSource(bucket, "whole", (tmp_path / "whole").stat().st_size)
    part = whole.save_partial(whole.view({"a": narrow(0, 0, 300)}, names=["a"]), tmp_path / "part")
    part.close()
    everything: dict[str, Any] = {"replicas": [tmp_path / "part"], "stores": [store]}
    art = open_tensors(whole.artifact_id, sources=SourcePolicy(**everything))
    bucket.requested.clear()
    art["a"][:200].numpy(verify=True)
    assert bucket.requested == []
    np.testing.assert_array_equal(art["c"].numpy(verify=True), ARRAYS["c"])
    assert bucket.requested
    bucket.requested.clear()
    first = open_tensors(whole.artifact_id, sources=SourcePolicy(prefer=["store", "replica"], **everything))
    first["a"][:200].numpy()
    assert bucket.requested
    local = open_tensors(whole.artifact_id, sources=SourcePolicy(prefer=["replica"], **everything))
    with pytest.raises(PartialCoverageError):
        local["c"].numpy()
    extended = open_tensors(tmp_path / "part", sources=SourcePolicy(stores=[store]))
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(extended[name].numpy(verify=True), array)
    for bad in (["cloud"], ["peer", "peer"]):
        with pytest.raises(BadInputError):
            SourcePolicy(prefer=bad)
    for name in ("mi2:x:y", "mi2:"):
        with pytest.raises(BadInputError):
            open_tensors(name, sources=SourcePolicy())


@given(st.data(), samples(min_tensors=1))
def test_any_mixture_of_partial_files_has_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, sample: Sample
) -> None:
    home = tmp_path_factory.mktemp("mixed")
    art = stored(sample, home / "t")
    paths = []
    for number in range(data.draw(st.integers(1, 3))):
        some = data.draw(st.lists(st.sampled_from(sample.index.names()), unique=True))
        art.save_partial(art.view(names=some), home / f"part{number}").close()
        paths.append(home / f"part{number}")
    mixed = open_tensors(art.artifact_id, sources=SourcePolicy(replicas=paths))
    for name in sample.index.names():
        entry = sample.index[name]
        have = RangeSet((part.start, part.end) for part in mixed.replica.extents.parts)
        if not have.covers((entry.offset, entry.offset + entry.size)):
            continue
        array = mixed.view(names=[name]).materialize(verify=True)[name]
        assert array.tobytes() == array_of(entry, sample.data).tobytes()
    mixed.close()
    art.close()


# Deferred


@given(st.data(), samples(min_tensors=1))
def test_commit_fills_all_deferred_memory(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, sample: Sample
) -> None:
    memory, _ = sample.opened()
    art = stored(sample, tmp_path_factory.mktemp("deferred") / "t") if data.draw(st.booleans()) else memory
    expected = []
    with art.deferred() as deferred:
        for name in data.draw(st.lists(st.sampled_from(sample.index.names()), max_size=6)):
            shape = sample.index[name].shape
            array = array_of(sample.index[name], sample.data)
            dims = [dim for dim, count in enumerate(shape) if count]
            if data.draw(st.booleans()) and dims:
                dim = data.draw(st.sampled_from(dims))
                start = data.draw(st.integers(0, shape[dim] - 1))
                length = data.draw(st.integers(1, shape[dim] - start))
                got = deferred.slice(name, dim=dim, start=start, length=length)
                expected.append((got, array[(slice(None),) * dim + (slice(start, start + length),)]))
            elif len(shape) > 1 and data.draw(st.booleans()):
                expected.append((deferred.take(name, transpose(0, -1)), np.swapaxes(array, 0, -1)))
            else:
                expected.append((deferred.take(name), array))
        explained = deferred.explain()
        assert explained.bytes_kept == sum(array.nbytes for _, array in expected)
        deferred.commit(verify=data.draw(st.booleans()))
    for got, array in expected:
        assert got.shape == array.shape
        assert got.tobytes() == array.tobytes()


def test_a_commit_with_missing_bytes_writes_nothing(whole: TensorSet, tmp_path: Path) -> None:
    part = whole.save_partial(whole.view({"a": narrow(0, 0, 10)}, names=["a"]), tmp_path / "part")
    deferred = part.deferred()
    have, lack = deferred.slice("a", 0, 0, 10), deferred.take("c")
    have[...] = 7
    with pytest.raises(PartialCoverageError):
        deferred.commit()
    assert (have == 7).all()
    assert lack.shape == (600, 600)
    deferred.close()
    for late in (lambda: deferred.take("a"), deferred.commit):
        with pytest.raises(UnsupportedError):
            late()


def test_deferred_neighbours_share_a_request(whole: TensorSet) -> None:
    with whole.deferred() as deferred:
        halves = [deferred.slice("c", dim=0, start=start, length=300) for start in (0, 300)]
        assert deferred.explain().requests == 1
        deferred.commit(verify=True)
    np.testing.assert_array_equal(np.concatenate(halves), ARRAYS["c"])
