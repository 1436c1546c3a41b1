"""If this fails, a slice of a published checkpoint costs more than predicted, or corrupt bytes are not detected."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import warpdata as wd
from tests.web_server import WebServer, serving
from warpdata.errors import (
    CorruptError,
    ManifestCorruptedError,
    NotFoundError,
    PartialCoverageError,
    UnsupportedError,
)
from warpdata.kinds.tensors import TensorsEntry
from warpdata.primitives.hashing import Blob, blob_key
from warpdata.repository.catalog import VersionRef
from warpdata.repository.manifest import Payload, iter_shards
from warpdata.session import open_cache
from warpdata.settings import Settings, load_settings
from warpdata.storage import object_store
from warpdata.tensors import crop, serve_tensors
from warpdata.testing import S3Endpoint

MIB = 2**20
RNG = np.random.default_rng(0)
ARRAYS: dict[str, Any] = {
    "embed": RNG.standard_normal((4096, 640)).astype(np.float32),
    "layer.0.norm": RNG.standard_normal(640).astype(np.float32),
    "layer.0.w": RNG.standard_normal((2048, 1024)).astype(np.float32),
    "layer.1.norm": RNG.standard_normal(640).astype(np.float32),
    "layer.1.w": RNG.standard_normal((2048, 1024)).astype(np.float32),
}
LARGE = [name for name, array in ARRAYS.items() if array.ndim == 2]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("origin")
    _publish(directory)
    return directory


def _publish(directory: Path) -> None:
    settings = Settings(directory.as_uri(), directory / "cache")
    builder = wd.DatasetBuilder("acme/model", directory.as_uri(), settings=settings)
    builder.add_tensors("weights", ARRAYS).publish(label="v1")


@pytest.fixture
def own_root(tmp_path: Path) -> Path:
    """Publish to a store that the test may corrupt."""
    _publish(tmp_path / "store")
    return tmp_path / "store"


@pytest.fixture
def server(root: Path) -> Iterator[WebServer]:
    with serving(root) as server:
        yield server


@pytest.fixture
def settings(server: WebServer, tmp_path: Path) -> Settings:
    return replace(load_settings(), store_url=server.url, cache_dir=tmp_path / "cache", timeout_s=5, max_retries=1)


def shards_of(dataset: wd.Dataset) -> list[Blob]:
    payload = dataset.manifest.tensors["weights"]
    return [shard.blob for shard in iter_shards(payload.shards, dataset.session.catalog.load_page)]


def one_eighth(rank: int) -> dict[str, Any]:
    return {name: wd.narrow(0, rank * len(ARRAYS[name]) // 8, len(ARRAYS[name]) // 8) for name in LARGE}


def test_files_are_read_in_place(root: Path) -> None:
    art = wd.dataset("acme/model@v1", store=root.as_uri()).tensors("weights")
    view = art.view({"layer.0.w": wd.narrow(dim=1, start=0, length=256), "layer.1.w": wd.transpose(0, 1)})
    explained = view.explain(verify=False)
    assert {choice.method for choice in explained.choices} == {"gather", "contiguous"}
    assert explained.bytes_read == explained.bytes_kept
    out = view.materialize(verify=True)
    assert np.array_equal(out["layer.0.w"], ARRAYS["layer.0.w"][:, :256])
    assert np.array_equal(out["layer.1.w"], ARRAYS["layer.1.w"].T)
    assert np.array_equal(art["embed"][128:256, ::3].numpy(), ARRAYS["embed"][128:256, ::3])
    with art.deferred() as deferred:
        part = deferred.slice("embed", dim=0, start=8, length=16)
        deferred.commit(verify=True)
    assert np.array_equal(part, ARRAYS["embed"][8:24])


def test_bytes_of_a_store_are_verified_by_default(own_root: Path) -> None:
    dataset = wd.dataset("acme/model", store=own_root.as_uri())
    path = own_root / blob_key(shards_of(dataset)[0].hash)
    path.chmod(0o600)
    with path.open("r+b") as file:
        file.write(b"\xff")
    with pytest.raises(CorruptError, match="embed"):
        dataset.tensors()["embed"].numpy()
    assert dataset.tensors()["embed"].numpy(verify=False).shape == ARRAYS["embed"].shape


@pytest.mark.parametrize("verify", [False, True])
def test_explain_predicts_requests_and_bytes(
    settings: Settings, server: WebServer, verify: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compare with the counters of the client, and with the requests that the server saw."""
    # On a slow machine, a range is fetched in smaller parts than explained.
    monkeypatch.setattr(object_store, "_MIN_PART_BYTES", object_store._MAX_PART_BYTES)
    dataset = wd.dataset("acme/model", mode="remote", settings=settings)
    art = dataset.tensors()
    columns: dict[str, Any] = {"layer.0.w": wd.narrow(1, 512, 100), "embed": wd.transpose(0, 1)}
    for view in (
        art.view(),
        art.view(one_eighth(3), names=LARGE),
        art.view(columns),
        art.view(columns, names=["layer.1.norm", "layer.0.w"]),
        art.view({"embed": crop(slice(0, 4096, 512))}, names=["embed"]),
    ):
        explained = view.explain(verify=verify)
        before, seen = dataset.io_stats, len(server.fetched)
        view.materialize(verify=verify)
        spent = dataset.io_stats.since(before)
        assert (spent.requests, spent.bytes_fetched) == (explained.requests, explained.bytes_read)
        # A request whose connection the server has just closed is sent again.
        assert len(set(server.fetched[seen:])) == explained.requests


def test_a_slice_for_one_of_eight_costs_its_bytes(settings: Settings) -> None:
    art = wd.dataset("acme/model", mode="remote", settings=settings).tensors()
    for rank in range(8):
        explained = art.view(one_eighth(rank), names=LARGE).explain(verify=False)
        assert explained.bytes_read <= 1.1 * explained.bytes_kept
        assert explained.requests <= 2 * len(LARGE)


@pytest.mark.s3
def test_explain_predicts_the_cost_on_s3(s3_server: S3Endpoint, s3_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3_server.environ().items():
        monkeypatch.setenv(name, value)
    wd.DatasetBuilder("acme/model", s3_url).add_tensors("weights", ARRAYS).publish()
    dataset = wd.dataset("acme/model", store=s3_url, mode="remote")
    view = dataset.tensors().view(one_eighth(5), names=LARGE)
    explained, before = view.explain(verify=True), dataset.io_stats
    out = view.materialize(verify=True)
    spent = dataset.io_stats.since(before)
    assert (spent.requests, spent.bytes_fetched) == (explained.requests, explained.bytes_read)
    for name in LARGE:
        eighth = len(ARRAYS[name]) // 8
        assert np.array_equal(out[name], ARRAYS[name][5 * eighth : 6 * eighth])
    assert wd.verify("acme/model", store=s3_url).problems == ()


def test_warmed_tensors_are_read_offline(settings: Settings, server: WebServer) -> None:
    dataset = wd.dataset("acme/model", settings=settings)
    warmed = dataset.warm(tensors=["weights"])
    assert warmed.fetched_bytes == sum(blob.byte_size for blob in shards_of(dataset)) + _index(dataset).byte_size
    server.fault = "down"
    art = wd.dataset("acme/model", mode="local", settings=settings).tensors()
    out = art.view().materialize(verify=True)
    assert all(np.array_equal(out[name], array) for name, array in ARRAYS.items())


def _index(dataset: wd.Dataset) -> Blob:
    index = dataset.manifest.tensors["weights"].index
    assert index is not None
    return index


def test_missing_shards_are_reported_before_the_target_is_written(settings: Settings, server: WebServer) -> None:
    dataset = wd.dataset("acme/model", settings=settings)
    dataset.warm(tensors=["weights"], shards=slice(0, 1))
    server.fault = "down"
    art = wd.dataset("acme/model", mode="local", settings=settings).tensors()
    assert np.array_equal(art["embed"].numpy(verify=True), ARRAYS["embed"])
    target = np.full(art.index.total_size, 7, np.uint8)
    with pytest.raises(PartialCoverageError) as caught:
        art.view().materialize_into(target)
    assert (target == 7).all()
    missing = caught.value.detail.missing_ranges
    assert missing[0][0] == art.index["layer.0.norm"].offset
    assert sum(length for _, length in missing) >= sum(ARRAYS[name].nbytes for name in ARRAYS if name != "embed")


def test_a_corrupt_cached_copy_is_fetched_again(settings: Settings) -> None:
    dataset = wd.dataset("acme/model", settings=settings)
    dataset.warm()
    largest = max(shards_of(dataset), key=lambda blob: blob.byte_size)
    entry = open_cache(settings).find(largest.hash)
    assert entry is not None
    _flip(entry.path, 1000)
    again = wd.dataset("acme/model", settings=settings)
    assert np.array_equal(again.tensors()["embed"].numpy(verify=True), ARRAYS["embed"])
    assert again.io_stats.healed == 1


def test_a_flipped_bit_is_reported_by_tensor_and_range(own_root: Path) -> None:
    store = own_root.as_uri()
    dataset = wd.dataset("acme/model", store=store)
    art = dataset.tensors()
    shard = next(blob for blob in shards_of(dataset) if blob.byte_size == ARRAYS["layer.1.w"].nbytes)
    at = 5 * MIB + 17
    # The two layers have shards of one size; corrupt the second.
    second = [blob for blob in shards_of(dataset) if blob.byte_size == shard.byte_size][-1]
    _flip(own_root / blob_key(second.hash), at)
    byte = art.index["layer.1.w"].offset + at
    view = art.view({"layer.1.w": wd.narrow(1, 0, 16)}, names=["layer.1.w"])
    with pytest.raises(CorruptError, match=r"layer\.1\.w") as caught:
        view.materialize(verify=True)
    start, end = (int(part) for part in caught.value.message.split()[1].split("…"))
    assert start <= byte < end <= start + MIB
    problems = wd.verify("acme/model", store=store).problems
    assert len(problems) == 2
    assert second.hash in problems[0]
    assert "tensors 'weights'" in problems[1]
    assert "'layer.1.w'" in problems[1]
    assert f"bytes {start}…{end} are corrupt" in problems[1]
    (found,) = art.verify()
    assert (found.start, found.end, found.names) == (start, end, ("layer.1.w",))
    assert np.array_equal(art["layer.0.w"].numpy(verify=True), ARRAYS["layer.0.w"])
    wd.DatasetBuilder("acme/model", store).add_tensors("weights", ARRAYS).publish(repair=True)
    assert wd.dataset("acme/model", store=store).tensors().verify() == []


def test_only_tensors_in_the_corrupt_blob_are_reported(own_root: Path) -> None:
    """A small tensor shares its leaf with large neighbours, whose blobs are valid."""
    store = own_root.as_uri()
    dataset = wd.dataset("acme/model", store=store)
    small = min(shards_of(dataset), key=lambda blob: blob.byte_size)
    _flip(own_root / blob_key(small.hash), 3)
    problems = wd.verify("acme/model", store=store).problems
    entry = dataset.tensors().index["layer.0.norm"]
    problem = f"bytes {entry.offset}…{entry.offset + entry.size} are corrupt: 'layer.0.norm'"
    assert problems[1:] == (f"tensors 'weights': {problem}",)


def test_a_missing_shard_is_missing_bytes(own_root: Path) -> None:
    store = own_root.as_uri()
    dataset = wd.dataset("acme/model", store=store)
    (own_root / blob_key(shards_of(dataset)[0].hash)).unlink()
    art = wd.dataset("acme/model", store=store).tensors()
    target = np.full(art.index.total_size, 7, np.uint8)
    with pytest.raises(PartialCoverageError, match=r"0…10485760"):
        art.view().materialize_into(target)
    assert (target == 7).all()
    problems = wd.verify("acme/model", store=store).problems
    assert any("are missing: 'embed'" in problem for problem in problems)
    assert np.array_equal(art["layer.1.w"].numpy(verify=True), ARRAYS["layer.1.w"])


def test_a_blob_that_a_remote_store_lost_is_missing_bytes(own_root: Path, tmp_path: Path) -> None:
    """The loss shows on the first request, with the same error."""
    with serving(own_root) as server:
        settings = replace(load_settings(), store_url=server.url, cache_dir=tmp_path / "cache", max_retries=1)
        art = wd.dataset("acme/model", mode="remote", settings=settings).tensors()
        (own_root / blob_key(shards_of(wd.dataset("acme/model", store=own_root.as_uri()))[0].hash)).unlink()
        with pytest.raises(PartialCoverageError) as caught:
            art["embed"][:10].numpy(verify=False)
        assert caught.value.detail.missing_ranges == ((0, 10 * 640 * 4),)
        assert caught.value.detail.space_id == art.index_multihash
        assert next(one.names for one in art.verify() if one.is_missing) == ("embed",)


def test_a_truncated_shard_is_an_error(own_root: Path) -> None:
    dataset = wd.dataset("acme/model", store=own_root.as_uri())
    path = own_root / blob_key(shards_of(dataset)[0].hash)
    path.chmod(0o600)
    with path.open("r+b") as file:
        file.truncate(1000)
    art = wd.dataset("acme/model", store=own_root.as_uri()).tensors()
    for view in (art.view(), art.view({"embed": wd.narrow(1, 0, 8)}, names=["embed"])):
        with pytest.raises(CorruptError, match="has 1000 bytes"):
            view.materialize()
    assert art.verify()[0].names == ("embed",)
    assert "'embed'" in wd.verify("acme/model", store=own_root.as_uri()).problems[1]


def test_an_index_of_other_tensors_is_rejected(own_root: Path) -> None:
    """Every blob is valid, but they belong to different artifacts."""
    store = own_root.as_uri()
    wd.DatasetBuilder("acme/other", store).add_tensors("weights", {**ARRAYS, "more": np.zeros(100)}).publish()
    wd.DatasetBuilder("acme/alike", store).add_tensors("weights", {**ARRAYS, "embed": -ARRAYS["embed"]}).publish()
    dataset = wd.dataset("acme/model", store=store)
    for other, error, message in (
        ("acme/other", CorruptError, "the shards have"),
        ("acme/alike", ManifestCorruptedError, "the manifest has"),
    ):
        payload = replace(dataset.manifest.tensors["weights"], index=_index(wd.dataset(other, store=store)))
        manifest = replace(dataset.manifest, tensors={"weights": payload})
        mixed = wd.Dataset(dataset.session, VersionRef(dataset.id, dataset.version), manifest)
        with pytest.raises(error, match=message):
            mixed.tensors()


def test_appended_rows_do_not_change_tensors(tmp_path: Path) -> None:
    store = tmp_path.as_uri()
    builder = wd.DatasetBuilder("acme/both", store).add_table("main", {"n": [1]})
    builder.add_tensors("weights", {"w": np.arange(5)}).publish()
    wd.DatasetBuilder("acme/both", store).append_table("main", {"n": [2]}).publish()
    dataset = wd.dataset("acme/both", store=store)
    assert dataset.table().count() == 2
    assert dataset.tensors()["w"].numpy(verify=True).tolist() == [0, 1, 2, 3, 4]


def test_every_byte_of_the_index_is_verified(own_root: Path) -> None:
    dataset = wd.dataset("acme/model", store=own_root.as_uri())
    path = own_root / blob_key(_index(dataset).hash)
    for position in range(0, _index(dataset).byte_size, 97):
        _flip(path, position)
        with pytest.raises(CorruptError, match="index of tensors 'weights'"):
            dataset.tensors()
        _flip(path, position)
    assert dataset.tensors().names() == sorted(ARRAYS)


def _flip(path: Path, position: int) -> None:
    mode = path.stat().st_mode
    path.chmod(0o600)
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 4]))
    path.chmod(mode)


def test_preferred_sources_are_read_first(settings: Settings, server: WebServer, root: Path, tmp_path: Path) -> None:
    local = wd.dataset("acme/model", store=root.as_uri()).tensors()
    part = local.save_partial(local.view(names=["embed"]), tmp_path / "part")
    dataset = wd.dataset("acme/model", mode="remote", settings=settings)
    policy = wd.SourcePolicy(prefer=["replica", "store"], replicas=[tmp_path / "part"])
    art = dataset.tensors(sources=policy)
    before = dataset.io_stats
    assert np.array_equal(art["embed"][100:200].numpy(verify=True), ARRAYS["embed"][100:200])
    assert dataset.io_stats == before, "the replica has it"
    assert np.array_equal(art["layer.1.w"].numpy(verify=True), ARRAYS["layer.1.w"])
    assert dataset.io_stats.since(before).requests > 0
    only = dataset.tensors(sources=wd.SourcePolicy(prefer=["replica"], replicas=[tmp_path / "part"]))
    with pytest.raises(PartialCoverageError):
        only["layer.1.w"].numpy()
    with serve_tensors(local) as peer:
        by_peer = dataset.tensors(sources=wd.SourcePolicy(prefer=["peer", "store"], peers=[peer.url]))
        before = dataset.io_stats
        assert np.array_equal(by_peer["layer.1.w"].numpy(verify=True), ARRAYS["layer.1.w"])
        assert dataset.io_stats == before
    assert part.artifact_id == local.artifact_id


def test_the_only_set_needs_no_name(root: Path) -> None:
    dataset = wd.dataset("acme/model", store=root.as_uri())
    assert dataset.tensors().names() == sorted(ARRAYS)
    with pytest.raises(NotFoundError, match="Did you mean weights"):
        dataset.tensors("weight")
    (info,) = dataset.info().tensors
    assert (info.name, info.tensors, info.shards) == ("weights", 5, 5)
    assert info.artifact_id == dataset.tensors().artifact_id
    assert {_index(dataset), *shards_of(dataset)} <= set(dataset.blobs())


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"kind": "other"}, UnsupportedError),
        ({"attributes": {"artifact_id": "mi2:a:b", "tensors": 1, "more": 2}}, UnsupportedError),
        ({"index": None}, ManifestCorruptedError),
        ({"attributes": {"tensors": 1}}, ManifestCorruptedError),
        ({"attributes": {"artifact_id": "mi2:a:b", "tensors": True}}, ManifestCorruptedError),
    ],
)
def test_invalid_entries_are_rejected(root: Path, change: dict[str, Any], error: type[Exception]) -> None:
    payload: Payload = wd.dataset("acme/model", store=root.as_uri()).manifest.tensors["weights"]
    assert TensorsEntry.of("weights", payload).payload() == payload
    with pytest.raises(error):
        TensorsEntry.of("weights", replace(payload, **change))


def test_a_corrupt_or_lost_blob_comes_from_a_local_copy(own_root: Path, tmp_path: Path) -> None:
    """The store is the first source, and one of its blobs is damaged; a checkpoint on disk has the same tensors."""
    dataset = wd.dataset("acme/model", store=own_root.as_uri())
    dataset.tensors("weights").save_safetensors(tmp_path / "copy.safetensors")
    whole = wd.tensors.write_tensors(tmp_path / "copy.tensors", ARRAYS)
    assert whole.artifact_id == dataset.tensors("weights").artifact_id
    blobs = shards_of(dataset)
    damaged, lost = (own_root / blob_key(blobs[number].hash) for number in (0, 1))
    damaged.chmod(0o644)
    with damaged.open("r+b") as file:
        file.seek(100)
        file.write(b"\x99\x98\x97")
    lost.unlink()
    for name in ("copy.safetensors", "copy.tensors"):
        policy = wd.SourcePolicy(prefer=["store", "replica"], replicas=[tmp_path / name])
        art = wd.dataset("acme/model", store=own_root.as_uri()).tensors("weights", sources=policy)
        for tensor, array in ARRAYS.items():
            np.testing.assert_array_equal(art[tensor].numpy(), array)
        store, replica = art.source_stats()
        assert (store.kind, replica.kind) == ("store", "replica")
        assert store.corrupt > 0
        assert replica.bytes_read > 0
        assert replica.failures == 0
    with pytest.raises(CorruptError):
        wd.dataset("acme/model", store=own_root.as_uri()).tensors("weights")["embed"].numpy()
