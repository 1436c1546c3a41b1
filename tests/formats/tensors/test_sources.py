"""If this fails, bytes of one artifact pass for those of another, or a gap is filled with something nobody stored."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.formats.tensors.artifacts import Sample, array_of, samples, specs
from warpdata.errors import (
    AlreadyExistsError,
    BadInputError,
    ObjectNotFoundError,
    PartialCoverageError,
    StoreTimeoutError,
    StoreUnavailableError,
    TensorsCorruptedError,
    UnsupportedFormatError,
    ViewPreconditionError,
)
from warpdata.formats.tensors.extents import merge_ranges, subtract_ranges
from warpdata.formats.tensors.peer import PeerSource
from warpdata.formats.tensors.plan import iter_blocks
from warpdata.storage import LocalStore
from warpdata.tensors import (
    Engine,
    Extent,
    ReadCost,
    SourcePolicy,
    StoreSource,
    Tensors,
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
def whole(tmp_path: Path) -> Tensors:
    return write_tensors(tmp_path / "whole", ARRAYS)


def stored(sample: Sample, path: Path) -> Tensors:
    with create_tensors(path, sample.index) as draft:
        draft.write_view(draft.view(), sample.data)
        return draft.seal()


# Parts of an artifact


@given(st.data(), samples(min_tensors=1))
def test_a_part_serves_what_it_covers_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, sample: Sample
) -> None:
    """Of an artifact that is here in pieces, so that parts are smaller than leaves."""
    home = tmp_path_factory.mktemp("parts")
    total = sample.index.total_size
    cuts = sorted(data.draw(st.lists(st.integers(0, total), max_size=4)))
    pieces = [(s, e) for s, e in zip([0, *cuts], [*cuts, total], strict=True) if s < e]
    kept = [one for one in pieces if data.draw(st.integers(0, 3))]

    class Memory:
        def read_range(self, start: int, end: int) -> bytes:
            return sample.data[start:end]

    art = open_sources(sample.index, [Memory()], [Extent(s, e, 0, s) for s, e in kept])
    view = art.view(data.draw(specs(sample.index)) or None)
    wanted = [(s, s + n) for run in view.plan.data_runs for s, _, n in iter_blocks(run)]
    if subtract_ranges(merge_ranges(wanted), merge_ranges(kept)):
        with pytest.raises(PartialCoverageError):
            art.keep(view, home / "part")
        assert list(home.iterdir()) == []
        return
    part = art.keep(view, home / "part")
    assert [file.name for file in home.iterdir()] == ["part"]
    assert part.index_multihash == art.index_multihash
    assert bytes(replan(part, view).region) == bytes(view.materialize().region)
    other = part.view(data.draw(specs(sample.index)) or None)
    need = merge_ranges((s, s + n) for run in other.plan.data_runs for s, _, n in iter_blocks(run))
    have = merge_ranges((extent.start, extent.end) for extent in part.replica.extents.parts)
    missing = [(s, e - s) for s, e in subtract_ranges(need, have)]
    if missing:
        with pytest.raises(PartialCoverageError) as caught:
            other.materialize()
        assert list(caught.value.detail.missing_ranges) == missing
    else:
        full, _ = sample.opened()
        assert bytes(other.materialize().region) == bytes(replan(full, other).region)
    part.close()


def replan(art: Tensors, view: Any) -> Any:
    return View(art.replica, view.normal).materialize()


def test_a_view_fetched_once_serves_others(whole: Tensors, tmp_path: Path) -> None:
    part = whole.keep(whole.view({"a": narrow(0, 0, 300)}, names=["a"]), tmp_path / "part")
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
        whole.keep(whole.view(), tmp_path / "part")
    with pytest.raises(ViewPreconditionError):
        part.keep(write_tensors(tmp_path / "other", {"z": np.arange(3)}).view(), tmp_path / "x")


def test_damage_is_not_kept(whole: Tensors, tmp_path: Path) -> None:
    with (tmp_path / "whole").open("r+b") as file:
        file.seek(700_000)
        file.write(b"\x01\x02\x03")
    with pytest.raises(TensorsCorruptedError):
        whole.keep(whole.view({"a": narrow(0, 100, 300)}, names=["a"]), tmp_path / "part")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["whole"]


def test_a_part_that_was_touched_is_refused(tmp_path: Path) -> None:
    art = write_tensors(tmp_path / "t", {"a": np.arange(5)})
    part = art.keep(art.view(), tmp_path / "part")
    size = part.index.total_size
    good = (tmp_path / "part").read_bytes()
    for at in range(size, len(good) - 8):
        (tmp_path / "bad").write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        with pytest.raises((TensorsCorruptedError, UnsupportedFormatError)):
            open_tensors(tmp_path / "bad")
    for data in (good[1:], good[:size] + bytes(8) + good[size:]):
        (tmp_path / "bad").write_bytes(data)
        with pytest.raises(TensorsCorruptedError):
            open_tensors(tmp_path / "bad")


# Peers


def test_a_peer_gives_an_artifact_by_its_name(whole: Tensors) -> None:
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
def test_explain_predicts_what_a_peer_is_asked(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, sample: Sample, request_bytes: int
) -> None:
    art = stored(sample, tmp_path_factory.mktemp("peer") / "t")
    asked: list[tuple[int, int]] = []

    class Counting(PeerSource):
        def read_range(self, start: int, end: int) -> bytes:
            asked.append((start, end))
            return super().read_range(start, end)

    with serve_tensors(art) as server:
        source = Counting(server.url, art.index_multihash)
        far = open_sources(art.index, [source], [Extent(0, art.index.total_size, 0, 0)], engine=Engine(threads=3))
        view = far.view(data.draw(specs(sample.index)) or None, cost=ReadCost(request_bytes, 64, 64))
        told = view.explain()
        got = bytes(view.materialize().region)
        source.close()
    assert sorted(asked) == sorted((start, end) for _, start, end in told.reads)
    assert told.bytes_read == sum(end - start for start, end in asked)
    assert got == bytes(replan(art, view).region)
    art.close()


def test_a_peer_that_lies_is_found_out(whole: Tensors, tmp_path: Path) -> None:
    other = write_tensors(tmp_path / "other", {**ARRAYS, "b": ARRAYS["b"] + 1})
    assert other.index_multihash == whole.index_multihash
    with serve_tensors(other) as server:
        policy = SourcePolicy(peers=[server.url])
        # Its leaf hashes are not those of the name, so there is nothing to check with, and nothing is claimed.
        art = open_tensors(whole.artifact_id, sources=policy)
        assert art.replica.leaves is None
        art.close()
        # With the hashes known from elsewhere, what it sends does not pass.
        part = whole.keep(whole.view({"a": narrow(0, 0, 10)}, names=["a"]), tmp_path / "part")
        part.close()
        mixed = open_tensors(tmp_path / "part", sources=policy)
        with pytest.raises(TensorsCorruptedError, match="'b'"):
            mixed.view(names=["b"]).materialize(verify=True)


def test_a_server_answers_only_what_it_has(whole: Tensors, tmp_path: Path) -> None:
    part = whole.keep(whole.view({"a": narrow(0, 0, 10)}, names=["a"]), tmp_path / "part")
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


def test_peers_that_can_not_be_reached_are_typed_errors(whole: Tensors) -> None:
    with serve_tensors(whole) as server:
        url = server.url
        source = PeerSource(url, whole.index_multihash)
        assert source.read_range(0, 4) == ARRAYS["a"].tobytes()[:4]
    with pytest.raises(StoreUnavailableError):
        source.read_range(0, 4)
    for bad in ("ftp://x", "nonsense", "http://", "http://user:secret@host"):
        with pytest.raises(BadInputError):
            PeerSource(bad, "b" * 56)


def test_a_peer_that_says_nothing_is_a_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        source = PeerSource(f"http://127.0.0.1:{silent.getsockname()[1]}", "b" * 56, timeout_s=0.2)
        with pytest.raises(StoreTimeoutError):
            source.read_range(0, 4)


def test_a_server_ends_with_its_block(whole: Tensors) -> None:
    before = threading.active_count()
    with serve_tensors(whole) as server:
        open_tensors(whole.artifact_id, sources=SourcePolicy(peers=[server.url])).close()
    server.close()
    assert threading.active_count() <= before + 1


# Stores


@dataclass
class Bucket:
    """What `warpdata.storage` calls a reader, as far as tensors know it."""

    objects: dict[str, bytes]
    asked: list[tuple[int, int]] = field(default_factory=list)

    def read_ranges(self, key: str, spans: Sequence[Any]) -> list[bytes]:
        if key not in self.objects:
            raise ObjectNotFoundError(f"there is no {key}")
        self.asked += [(span.start, span.end) for span in spans]
        return [self.objects[key][span.start : span.end] for span in spans]


def test_an_object_of_a_store_is_an_artifact(whole: Tensors, tmp_path: Path) -> None:
    data = (tmp_path / "whole").read_bytes()
    bucket = Bucket({"weights": data})
    policy = SourcePolicy(stores=[StoreSource(bucket, "weights", len(data))])
    art = open_tensors(whole.artifact_id, sources=policy)
    bucket.asked.clear()
    view = art.view({"a": narrow(0, 125, 125)}, names=["a"])
    np.testing.assert_array_equal(view.materialize(verify=False)["a"], ARRAYS["a"][125:250])
    assert bucket.asked == [(start, end) for _, start, end in view.explain(verify=False).reads]
    assert sum(end - start for start, end in bucket.asked) == 125 * 3600
    with pytest.raises(ObjectNotFoundError):
        open_tensors(whole.artifact_id, sources=SourcePolicy(stores=[StoreSource(bucket, "gone", 10**6)]))


def test_the_reader_of_a_real_store_will_do(whole: Tensors, tmp_path: Path) -> None:
    source = StoreSource(LocalStore(tmp_path), "whole", (tmp_path / "whole").stat().st_size)
    art = open_tensors(whole.artifact_id, sources=SourcePolicy(stores=[source]))
    out = art.view({"c": narrow(1, 0, 75)}).materialize(verify=True)
    np.testing.assert_array_equal(out["c"], ARRAYS["c"][:, :75])


# Several sources


def test_the_preferred_source_is_asked_first(whole: Tensors, tmp_path: Path) -> None:
    data = (tmp_path / "whole").read_bytes()
    bucket = Bucket({"weights": data})
    store = StoreSource(bucket, "weights", len(data))
    part = whole.keep(whole.view({"a": narrow(0, 0, 300)}, names=["a"]), tmp_path / "part")
    part.close()
    everything: dict[str, Any] = {"replicas": [tmp_path / "part"], "stores": [store]}
    art = open_tensors(whole.artifact_id, sources=SourcePolicy(**everything))
    bucket.asked.clear()
    art["a"][:200].numpy(verify=True)
    assert bucket.asked == []
    np.testing.assert_array_equal(art["c"].numpy(verify=True), ARRAYS["c"])
    assert bucket.asked
    bucket.asked.clear()
    first = open_tensors(whole.artifact_id, sources=SourcePolicy(prefer=["store", "replica"], **everything))
    first["a"][:200].numpy()
    assert bucket.asked
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
def test_any_mixture_of_parts_gives_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, sample: Sample
) -> None:
    home = tmp_path_factory.mktemp("mixed")
    art = stored(sample, home / "t")
    places = []
    for number in range(data.draw(st.integers(1, 3))):
        some = data.draw(st.lists(st.sampled_from(sample.index.names()), unique=True))
        art.keep(art.view(names=some), home / f"part{number}").close()
        places.append(home / f"part{number}")
    mixed = open_tensors(art.artifact_id, sources=SourcePolicy(replicas=places))
    for name in sample.index.names():
        entry = sample.index[name]
        have = merge_ranges((part.start, part.end) for part in mixed.replica.extents.parts)
        if subtract_ranges([(entry.offset, entry.offset + entry.size)] if entry.size else [], have):
            continue
        array = mixed.view(names=[name]).materialize(verify=True)[name]
        assert array.tobytes() == array_of(entry, sample.data).tobytes()
    mixed.close()
    art.close()


# Deferred


@given(st.data(), samples(min_tensors=1))
def test_promises_are_kept_at_once(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, sample: Sample
) -> None:
    memory, _ = sample.opened()
    art = stored(sample, tmp_path_factory.mktemp("deferred") / "t") if data.draw(st.booleans()) else memory
    wanted = []
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
                wanted.append((got, array[(slice(None),) * dim + (slice(start, start + length),)]))
            elif len(shape) > 1 and data.draw(st.booleans()):
                wanted.append((deferred.take(name, transpose(0, -1)), np.swapaxes(array, 0, -1)))
            else:
                wanted.append((deferred.take(name), array))
        told = deferred.explain()
        assert told.bytes_kept == sum(array.nbytes for _, array in wanted)
        deferred.commit(verify=data.draw(st.booleans()))
    for got, array in wanted:
        assert got.shape == array.shape
        assert got.tobytes() == array.tobytes()


def test_a_promise_that_can_not_be_kept_writes_nothing(whole: Tensors, tmp_path: Path) -> None:
    part = whole.keep(whole.view({"a": narrow(0, 0, 10)}, names=["a"]), tmp_path / "part")
    deferred = part.deferred()
    have, lack = deferred.slice("a", 0, 0, 10), deferred.take("c")
    have[...] = 7
    with pytest.raises(PartialCoverageError):
        deferred.commit()
    assert (have == 7).all()
    assert lack.shape == (600, 600)
    deferred.close()
    for late in (lambda: deferred.take("a"), deferred.commit):
        with pytest.raises(ViewPreconditionError):
            late()


def test_neighbours_are_promised_apart_and_read_together(whole: Tensors) -> None:
    with whole.deferred() as deferred:
        halves = [deferred.slice("c", dim=0, start=start, length=300) for start in (0, 300)]
        assert deferred.explain().requests == 1
        deferred.commit(verify=True)
    np.testing.assert_array_equal(np.concatenate(halves), ARRAYS["c"])
