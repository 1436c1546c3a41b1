"""If this fails, a virtual file is not what an export would write, or is not the same whenever it is read."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import warpdata as wd
from tests.server.s3.conftest import Gateway, serve_store


@pytest.fixture(scope="module")
def client(gateway: Gateway) -> Any:
    return gateway.client()


def read_tree(client: Any, prefix: str) -> dict[str, bytes]:
    found = {}
    for page in client.get_paginator("list_objects_v2").paginate(Bucket="acme", Prefix=prefix):
        for one in page.get("Contents", []):
            body = client.get_object(Bucket="acme", Key=one["Key"])["Body"].read()
            assert (len(body), one["ETag"]) == (one["Size"], client.head_object(Bucket="acme", Key=one["Key"])["ETag"])
            found[one["Key"].removeprefix(prefix)] = body
    return found


def test_yolo_is_what_an_export_writes(gateway: Gateway, client: Any, tmp_path: Path) -> None:
    pets = wd.collection("acme/pets", store=gateway.session.writer.url)
    report = pets.export_labels(tmp_path / "yolo", "yolo", "v1")
    exported = {
        path.relative_to(tmp_path / "yolo").as_posix(): path.read_bytes()
        for path in (tmp_path / "yolo").rglob("*")
        if path.is_file()
    }
    served = read_tree(client, "pets/v1/yolo/")
    account = json.loads(served.pop("conservation.json"))
    assert account == report.report.document()
    assert served == exported
    assert {"data.yaml", "labels/cats/cat0.txt", "images/cats/cat0.jpg"} <= set(served)


def test_coco_has_all_images_and_objects(client: Any) -> None:
    document = json.load(client.get_object(Bucket="acme", Key="pets/v1/coco.json")["Body"])
    assert len(document["images"]) == 6
    assert sorted(one["bbox"] for one in document["annotations"]) == [[1, 2, 3, 4 + number] for number in range(5)]
    assert [one["name"] for one in document["categories"]] == ["cat"]


def test_a_task_names_the_image_the_hash_and_the_version(gateway: Gateway, client: Any) -> None:
    dataset = wd.dataset("acme/pets@v1", store=gateway.session.writer.url)
    tasks = read_tree(client, "pets/v1/tasks/")
    assert len(tasks) == 6
    task = json.loads(tasks["cats/cat1.jpg.json"])
    assert task["data"]["image"] == "s3://acme/pets/v1/images/cats/cat1.jpg"
    assert task["data"]["version"] == dataset.version
    assert task["data"]["hash"] == dataset.artifact("images").shard_of("cats/cat1.jpg").hash
    (region,) = task["predictions"][0]["result"]
    value = region["value"]
    assert (value["x"] * 64 / 100, value["y"] * 48 / 100) == pytest.approx((1, 2))


def test_a_table_is_one_parquet_file(client: Any, tmp_path: Path) -> None:
    client.download_file("acme", "packed/v1/tables/main.parquet", str(tmp_path / "main.parquet"))
    table = pq.read_table(tmp_path / "main.parquet")
    assert table["name"].to_pylist() == [f"row {at}" for at in range(100)]


def test_another_gateway_makes_the_same_files(gateway: Gateway, client: Any) -> None:
    """Replicas behind one address, and a gateway that has forgotten what it made."""
    with ExitStack() as stack:
        other = serve_store(wd.connect(gateway.session.writer.url), stack).client()
        for prefix in ("pets/v1/", "packed/v1/tables/", "datasets/"):
            assert read_tree(client, prefix) == read_tree(other, prefix)


def test_a_version_keeps_its_files_while_head_moves(own_gateway: Gateway) -> None:
    client = own_gateway.client()
    before = read_tree(client, "pets/v1/")
    pets = wd.collection("acme/pets", store=own_gateway.session.writer.url)
    pets.add("new.jpg", b"new", annotations=[wd.Label("new")])
    assert read_tree(client, "pets/v1/") == before


def test_the_pages_of_a_listing_are_of_one_version(own_gateway: Gateway) -> None:
    client = own_gateway.client()
    first = client.list_objects_v2(Bucket="acme", Prefix="pets/HEAD/images/", MaxKeys=2)
    pets = wd.collection("acme/pets", store=own_gateway.session.writer.url)
    pets.remove("dogs/dog 1 ü+&.jpg")
    own_gateway.gateway.forget("acme/pets")  # as after a second
    token = first["NextContinuationToken"]
    rest = client.list_objects_v2(Bucket="acme", Prefix="pets/HEAD/images/", ContinuationToken=token)
    assert "pets/HEAD/images/dogs/dog 1 ü+&.jpg" in [one["Key"] for one in rest["Contents"]]
    fresh = client.list_objects_v2(Bucket="acme", Prefix="pets/HEAD/images/")
    assert "pets/HEAD/images/dogs/dog 1 ü+&.jpg" not in [one["Key"] for one in fresh["Contents"]]
