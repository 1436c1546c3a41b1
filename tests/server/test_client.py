"""If this fails, a program with an address and a token reads other bytes than one with the store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import warpdata as wd
from tests.server.conftest import Scene, publish
from tests.server.running import running
from warpdata.errors import (
    AuthenticationError,
    BadInputError,
    CorruptError,
    DatasetNotFoundError,
    ObjectNotFoundError,
    StoreUnavailableError,
)
from warpdata.primitives.hashing import blob_key
from warpdata.server import Place, Scope
from warpdata.settings import Settings
from warpdata.storage import ByteRange


@pytest.fixture
def address(local: Scene) -> Iterator[str]:
    with running(local.service) as url:
        yield url


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(store_url="unused", cache_dir=tmp_path / "cache", max_retries=0)


def blobs_of(dataset: wd.Dataset) -> list[str]:
    return [shard.hash for shard in dataset.artifact("images").shards()]


def test_tables_media_and_streams_are_those_of_the_store(local: Scene, address: str, settings: Settings) -> None:
    far = wd.connect(address, settings, token=local.token("vera", Scope.READ))
    near = wd.connect(local.store)
    assert far.datasets() == ["acme/pets"]
    assert near.datasets() == ["acme/pets", "rival/secret"]
    one, two = far.dataset("acme/pets"), near.dataset("acme/pets")
    assert one.version == two.version
    rows = [dataset.table().raw().filter("number > 6").to_arrow() for dataset in (one, two)]
    assert rows[0].equals(rows[1])
    assert one.artifact("images").read("cats/3.png") == two.artifact("images").read("cats/3.png")
    batches = [list(dataset.stream(columns=["number"], shuffle=True, seed=3).epoch(0)) for dataset in (one, two)]
    assert all(np.array_equal(a["number"], b["number"]) for a, b in zip(*batches, strict=True))
    assert [entry.version for entry in one.history()] == [entry.version for entry in two.history()]


def test_a_session_says_who_the_user_is_and_never_shows_the_token(
    local: Scene, address: str, settings: Settings
) -> None:
    secret = local.token("vera", Scope.READ)
    session = wd.connect(address, settings, token=secret)
    assert session.settings.author == "vera"
    shown = f"{session!r}{session.settings!r}{session.reader!r}{session.writer!r}{vars(session.writer)!r}"
    assert secret not in shown
    with pytest.raises(AuthenticationError) as refused:
        wd.connect(address, settings, token="wd_wrong")
    assert "wd_wrong" not in str(refused.value)
    with pytest.raises(BadInputError, match="unprotected"):
        wd.connect("http://example.org", settings, token=secret)
    with pytest.raises(BadInputError, match="takes no token"):
        wd.connect(local.store, settings, token=secret)
    with pytest.raises(StoreUnavailableError):
        wd.connect("http://127.0.0.1:9", settings, token=secret)


def test_what_a_user_may_not_read_does_not_exist(local: Scene, address: str, settings: Settings) -> None:
    mine = wd.connect(address, settings, token=local.token("rita"))
    foreign = wd.connect(local.store).dataset("acme/pets")
    with pytest.raises(DatasetNotFoundError):
        mine.dataset("acme/pets")
    shared = set(blobs_of(wd.connect(local.store).dataset("rival/secret")))
    hidden = [blob_key(digest) for digest in blobs_of(foreign) if digest not in shared]
    assert len(hidden) == 7
    hidden += [f"datasets/acme/pets/manifests/{foreign.version}.json", "leases/x.json", "gc/condemned/x", "pins/x.json"]
    for key in hidden:
        for read in (mine.reader.read, mine.reader.stat, lambda key: mine.reader.read_range(key, ByteRange(0, 1))):
            with pytest.raises(ObjectNotFoundError):
                read(key)
    assert list(mine.writer.list_objects("datasets/acme/pets/heads")) == []
    assert list(mine.writer.list_objects("blobs")) == []
    assert mine.writer.list_folders("datasets") == ["rival"]
    assert mine.writer.list_folders("datasets/acme") == []
    own = mine.dataset("rival/secret")
    assert own.artifact("images").read("cats/1.png")


def test_a_blob_is_found_in_versions_that_are_not_the_head(local: Scene, address: str, settings: Settings) -> None:
    near = wd.connect(local.store)
    old = near.dataset("acme/pets")
    wd.DatasetBuilder("acme/pets", near).add_table("main", {"x": [1, 2]}).publish(replace=True)
    far = wd.connect(address, settings, token=local.token("vera", Scope.READ))
    digest = next(digest for digest in blobs_of(old))
    assert len(far.reader.read(blob_key(digest)).data) > 0
    assert far.dataset(f"acme/pets@{old.version}").artifact("images").read("cats/3.png")
    publish(local.store, "acme/more", 4)
    assert far.dataset("acme/more").table().count() == 4  # published after the index of blobs was made


def test_a_token_for_one_dataset_reads_no_blob_of_another(local: Scene, address: str, settings: Settings) -> None:
    near = wd.connect(local.store)
    wd.DatasetBuilder("acme/other", near).add_table("main", {"x": [1, 2, 3]}).publish()
    shards = [shard.hash for shard in near.dataset("acme/other").manifest.tables["main"].shards.shards]
    narrow = wd.connect(address, settings, token=local.token("ana", Scope.READ, Place("acme", "pets")))
    assert narrow.dataset("acme/pets").table().count() == 10
    with pytest.raises(ObjectNotFoundError):
        narrow.reader.read(blob_key(shards[0]))


def test_bytes_that_were_changed_behind_the_service_are_noticed(local: Scene, address: str, settings: Settings) -> None:
    near = wd.connect(local.store)
    shard = near.dataset("acme/pets").artifact("images").shard_of("cats/3.png")
    near.writer.replace(blob_key(shard.hash), b"x" * shard.byte_size)
    far = wd.connect(address, settings, token=local.token("vera", Scope.READ))
    with pytest.raises(CorruptError):
        far.dataset("acme/pets").artifact("images").read("cats/3.png")


def test_objects_have_ranges_and_tags(local: Scene) -> None:
    client = local["vera"]
    digest = blobs_of(wd.connect(local.store).dataset("acme/pets"))[0]
    url = f"/api/v1/objects/{blob_key(digest)}"
    whole = client.get(url)
    assert whole.headers["etag"] == f'"{digest}"'
    assert client.get(url, headers={"If-None-Match": f'"{digest}"'}).status_code == 304
    part = client.get(url, headers={"Range": "bytes=2-5"})
    assert (part.status_code, part.content) == (206, whole.content[2:6])
    assert part.headers["content-range"] == f"bytes 2-5/{len(whole.content)}"
    assert client.get(url, headers={"Range": "bytes=99999999-"}).status_code == 416
    assert client.head(url).headers["content-length"] == str(len(whole.content))
    for odd in ("../x", "datasets/acme/pets/../../rival/secret/latest.json", "blobs/00/00/nothing", "datasets/acme"):
        assert client.get(f"/api/v1/objects/{odd}").status_code in (404, 422)


def test_a_listing_comes_in_pages(local: Scene) -> None:
    found: list[str] = []
    while True:
        query: dict[str, str | int] = {"prefix": "datasets/acme/pets", "after": found[-1] if found else "", "limit": 1}
        page = local["vera"].get("/api/v1/objects", params=query).json()
        found += [one["key"] for one in page["objects"]]
        if page["next_cursor"] is None:
            break
    assert found == [info.key for info in wd.connect(local.store).writer.list_objects("datasets/acme/pets")]
