"""If this fails, a corrupt byte in the store is accepted, or makes a valid version unreadable."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

import warpdata as wd
from tests.faults.scenes import append, link, memory, numbers, replace
from warpdata.datasets import open_dataset
from warpdata.errors import CorruptError, ManifestCorruptedError
from warpdata.primitives.hashing import blob_key
from warpdata.repository.catalog import Catalog, is_valid, key_policy, parse_address
from warpdata.session import Session
from warpdata.settings import load_settings
from warpdata.storage import GetResult, MetadataCache, Reader, ReaderWrapper, Writer, open_store


def flip(store: Writer, key: str, position: int) -> None:
    data = bytearray(store.read(key).data)
    data[position % len(data)] ^= 0x01
    store.replace(key, bytes(data))


def keys(store: Writer, part: str) -> list[str]:
    return [info.key for info in store.list_objects("") if part in info.key]


@pytest.fixture
def store(request: pytest.FixtureRequest) -> Writer:
    made = memory(f"bits-{request.node.name}")
    replace(link(made), 0)
    append(link(made, seed=1), 100)
    return made


def test_every_bit_of_a_manifest_is_covered(store: Writer) -> None:
    version = Catalog(store).resolve(parse_address("a/b")).version
    (key,) = [key for key in keys(store, "/manifests/") if version in key]
    valid = store.read(key).data
    for position in range(len(valid)):
        flip(store, key, position)
        with pytest.raises(ManifestCorruptedError):
            open_dataset(link(store), parse_address("a/b"))
        store.replace(key, valid)
    assert len(numbers(link(store))) == 8


def test_a_damaged_manifest_is_repaired_by_publishing_again(store: Writer) -> None:
    replace(link(store, seed=2), 0)
    version = Catalog(store).resolve(parse_address("a/b")).version
    flip(store, f"datasets/a/b/manifests/{version}.json", 40)
    with pytest.raises(CorruptError) as raised:
        replace(link(store, seed=3), 100)
    assert "replace=True" in str(raised.value.hint), "the content that would go is unknown"
    replace(link(store, seed=3), 100, replace=True)
    replace(link(store, seed=4), 0)
    assert numbers(link(store)) == [0, 1, 2, 3]


def test_a_damaged_or_missing_head_manifest_is_mended_by_publishing_the_same_again(store: Writer) -> None:
    replace(link(store, seed=2), 0)
    version = Catalog(store).resolve(parse_address("a/b")).version
    key = f"datasets/a/b/manifests/{version}.json"
    for is_deleted in (False, True):
        if is_deleted:
            store.delete(key)
        else:
            flip(store, key, 40)
        replace(link(store, seed=3), 0)
        assert numbers(link(store)) == [0, 1, 2, 3]
    assert len(open_dataset(link(store), parse_address("a/b")).history()) == 3


def test_a_damaged_manifest_is_not_remembered_after_its_repair(store: Writer, tmp_path: Path) -> None:
    version = Catalog(store).resolve(parse_address("a/b")).version
    key = f"datasets/a/b/manifests/{version}.json"
    valid = store.read(key).data
    flip(store, key, 40)
    cached = Catalog(MetadataCache(store, tmp_path / "cache", key_policy, is_valid))
    with pytest.raises(ManifestCorruptedError):
        cached.manifest(cached.resolve(parse_address("a/b")))
    store.replace(key, valid)
    assert cached.manifest(cached.resolve(parse_address("a/b"))).dataset_id == "a/b"


def test_every_bit_of_the_hint_may_go_and_the_newest_version_is_found(store: Writer) -> None:
    valid = store.read("datasets/a/b/latest.json").data
    for position in range(len(valid)):
        flip(store, "datasets/a/b/latest.json", position)
        assert len(numbers(link(store))) == 8
        store.replace("datasets/a/b/latest.json", valid)
    store.delete("datasets/a/b/latest.json")
    assert len(numbers(link(store))) == 8


def test_a_hint_that_lags_is_only_a_hint(store: Writer) -> None:
    old = store.read("datasets/a/b/latest.json").data
    for seed in range(5):
        append(link(store, seed=10 + seed), 1000 * seed)
    store.replace("datasets/a/b/latest.json", old)
    assert len(numbers(link(store))) == 8 + 5 * 4


def test_damaged_log_entries_and_commits_are_named(store: Writer) -> None:
    for key in keys(store, "/heads/"):
        flip(store, key, 30)
    store.delete("datasets/a/b/latest.json")
    with pytest.raises(CorruptError, match="heads/main"):
        open_dataset(link(store), parse_address("a/b"))


def test_damaged_commits_are_found_when_history_is_read(store: Writer) -> None:
    for key in keys(store, "/commits/"):
        flip(store, key, 30)
    dataset = open_dataset(link(store), parse_address("a/b"))
    with pytest.raises(CorruptError, match="commit"):
        dataset.history()


def test_verify_names_every_damaged_and_missing_blob(store: Writer) -> None:
    dataset = open_dataset(link(store), parse_address("a/b"))
    assert wd.verify(dataset).problems == ()
    blobs = sorted(set(dataset.blobs()))
    assert len(blobs) == 3
    flip(store, blob_key(blobs[0].hash), 200)
    store.delete(blob_key(blobs[2].hash))
    problems = wd.verify(dataset).problems
    assert len(problems) == 2
    assert blobs[0].hash in problems[0] or blobs[0].hash in problems[1]
    assert any(blobs[2].hash in problem for problem in problems)


def test_repair_uploads_corrupt_blobs_again(store: Writer) -> None:
    replace(link(store, seed=5), 0)
    dataset = open_dataset(link(store), parse_address("a/b"))
    for blob in dataset.blobs():
        flip(store, blob_key(blob.hash), 100)
    replace(link(store, seed=6), 0)
    assert wd.verify(dataset).problems
    with pytest.raises(CorruptError) as raised:
        numbers(link(store))
    assert "--repair" in str(raised.value.hint), "a publish without it keeps blobs of the right size"
    from tests.faults.scenes import rows

    builder = wd.DatasetBuilder("a/b", link(store, seed=7)).add_table("main", rows(0)).add_table("other", rows(1000))
    assert not builder.publish(repair=True).changed
    assert wd.verify(dataset).problems == ()
    assert numbers(link(store)) == [0, 1, 2, 3]


def test_damaged_pages_are_not_believed(store: Writer) -> None:
    from tests.faults.scenes import rows

    parts = [rows(n) for n in range(40)]
    folder = Path(load_settings().cache_dir, "parts")
    folder.mkdir(parents=True)
    import pyarrow.parquet as pq

    for number, part in enumerate(parts):
        pq.write_table(part, folder / f"{number:03d}.parquet")
    wd.DatasetBuilder("a/b", link(store, seed=8)).add_table("main", folder).publish(replace=True)
    dataset = open_dataset(link(store), parse_address("a/b"))
    (page,) = dataset.manifest.tables["main"].shards.pages
    flip(store, blob_key(page.hash), 50)
    with pytest.raises(CorruptError):
        open_dataset(link(store), parse_address("a/b")).table("main").to_arrow()


def test_a_damaged_reply_is_not_cached_beside_a_valid_tag(store: Writer, tmp_path: Path) -> None:
    """The tag would confirm it for ever."""
    open_dataset(link(store), parse_address("a/b")).snapshot("v1")
    plain = Catalog(store)
    for number, key in enumerate(keys(store, "datasets/")):
        damaging = DamagedReply(store, key)
        cached = Catalog(MetadataCache(damaging, tmp_path / f"cache-{number}", key_policy, is_valid))
        for address in map(parse_address, ("a/b", "a/b@v1", "a/b@main~1")):
            damaging.key = key
            with suppress(CorruptError):
                cached.open(address)
            damaging.key = ""
            assert cached.open(address) == plain.open(address), key


class DamagedReply(ReaderWrapper):
    """Flips a bit in each reply for one key. The tag is right."""

    def __init__(self, reader: Reader, key: str) -> None:
        super().__init__(reader)
        self.key = key

    def read(self, key: str) -> GetResult:
        reply = self._reader.read(key)
        return self._damaged(reply) if key == self.key else reply

    def read_if_changed(self, key: str, etag: str) -> GetResult | None:
        reply = self._reader.read_if_changed(key, etag)
        return self._damaged(reply) if reply is not None and key == self.key else reply

    @staticmethod
    def _damaged(reply: GetResult) -> GetResult:
        data = bytearray(reply.data)
        data[len(data) // 2] ^= 1
        return GetResult(bytes(data), reply.etag)


def test_a_damaged_cached_pointer_is_fetched_again(tmp_path: Path) -> None:
    plain = open_store((tmp_path / "store").as_uri(), load_settings())
    replace(link(plain), 0)
    cached = MetadataCache(plain, tmp_path / "cache", key_policy, is_valid)
    connection = Session(plain, cached, load_settings())
    first = open_dataset(connection, parse_address("a/b"))
    files = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert files
    for path in files:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 0x04
        path.write_bytes(bytes(data))
    assert open_dataset(connection, parse_address("a/b")).version == first.version
    append(link(plain, seed=1), 100)
    assert open_dataset(connection, parse_address("a/b")).version != first.version
