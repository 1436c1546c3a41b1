"""If these fail, one alien directory hides every dataset of a store, or a listing costs a request for each dataset."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

import warpdata as wd
from tests.faults.scenes import append, faulty, link, memory, numbers, replace, rows
from warpdata.datasets import open_dataset
from warpdata.errors import ManifestCorruptedError, NotFoundError
from warpdata.repository.catalog import Catalog, VersionRef, parse_address


def test_a_workspace_costs_one_request() -> None:
    store = memory("listing-cost")
    for number in range(12):
        wd.DatasetBuilder(f"{'ab'[number % 2]}/d{number:02}", link(store, number)).add_table("main", rows(0)).publish()
    counting = faulty(store)
    assert len(Catalog(counting).datasets("a")) == 6
    assert counting.counts() == {"list_objects": 1}
    counting.clear()
    assert Catalog(counting).datasets() == [f"a/d{n:02}" for n in range(0, 12, 2)] + [
        f"b/d{n:02}" for n in range(1, 12, 2)
    ]
    assert counting.counts() == {"list_folders": 1, "list_objects": 2}, "the workspaces, and each of them"


def test_a_large_workspace_is_listed_by_its_directories(monkeypatch: pytest.MonkeyPatch) -> None:
    store = memory("listing-large")
    for number in range(3):
        wd.DatasetBuilder(f"a/d{number}", link(store, number)).add_table("main", rows(0)).publish()
    store.create("datasets/a/Alien/x", b"")
    store.create("datasets/a/killed/manifests/x.json", b"")
    exact = Catalog(store).list_datasets("a")
    monkeypatch.setattr("warpdata.repository.catalog.catalog._LISTED_OBJECTS", 7)
    assert Catalog(store).list_datasets("a") == exact
    assert exact.dataset_ids == ("a/d0", "a/d1", "a/d2")
    assert exact.skipped == ("datasets/a/Alien",)


def test_alien_directories_are_skipped_and_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = (tmp_path / "store").as_uri()
    wd.DatasetBuilder("acme/trips", store).add_table("main", rows(0)).publish()
    for alien in ("lost+found/x", "acme/Trips 2", "acme/" + "x" * 129, ".snapshots"):
        (tmp_path / "store" / "datasets" / alien).mkdir(parents=True)
    with caplog.at_level(logging.WARNING, logger="warpdata.repository.catalog"):
        assert wd.list_datasets(store=store) == ["acme/trips"]
    assert "4 directories" in caplog.text
    assert "lost+found" in caplog.text
    assert Catalog(wd.connect(store).reader).list_datasets("acme").skipped == (
        "datasets/acme/Trips 2",
        "datasets/acme/" + "x" * 129,
    )


def test_a_missing_manifest_of_a_head_is_corruption() -> None:
    store = memory("missing-manifest")
    replace(link(store), 0)
    first = open_dataset(link(store), parse_address("a/b"))
    first.snapshot("v1")
    append(link(store, 1), 100)
    head = Catalog(store).resolve(parse_address("a/b"))
    for version in (first.version, head.version):
        store.delete(f"datasets/a/b/manifests/{version}.json")
    for address in ("a/b", "a/b@main", "a/b@v1", f"a/b@{head.version}"):
        with pytest.raises(ManifestCorruptedError, match="is missing") as caught:
            open_dataset(link(store), parse_address(address))
        assert "Publish" in (caught.value.hint or "")
    with pytest.raises(ManifestCorruptedError, match="is missing"):
        append(link(store, 2), 200)
    with pytest.raises(NotFoundError) as unknown:
        Catalog(store).manifest(VersionRef("a/b", "0" * 64))
    assert not isinstance(unknown.value, ManifestCorruptedError)
    wd.DatasetBuilder("a/b", link(store, 3)).add_table("main", rows(0)).publish(replace=True)
    assert numbers(link(store)) == [0, 1, 2, 3]
