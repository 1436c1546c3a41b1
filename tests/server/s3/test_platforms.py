"""If this fails, CVAT cannot use a version as cloud storage, or the trainer of a platform cannot read a snapshot.

The sequence of CVAT's calls is that of its source; the trainer is the one that the platform's documents show.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import boto3
import pytest
from boto3.s3.transfer import TransferConfig
from botocore.client import Config
from botocore.exceptions import ClientError

import warpdata as wd
from tests.server.s3.conftest import JPEG, SECRET, Gateway


def cvat_client(gateway: Gateway, right: str = "ro") -> Any:
    """A client as CVAT makes it: two seconds to connect, five to read, one attempt."""
    access_key = gateway.keys.make("acme/pets", right)
    assert len(access_key) <= 40
    assert len(SECRET) <= 64
    session = boto3.Session(aws_access_key_id=access_key, aws_secret_access_key=SECRET, region_name="us-east-1")
    client = session.resource("s3", endpoint_url=gateway.endpoint).meta.client
    gateway.clients.append(client)
    return client


def head_bucket_as_cvat(gateway: Gateway, client: Any, bucket: str) -> str:
    timeouts = Config(connect_timeout=2, read_timeout=5, retries={"max_attempts": 1})
    checked = boto3.client(
        "s3",
        endpoint_url=gateway.endpoint,
        config=timeouts,
        region_name="us-east-1",
        aws_access_key_id=client._request_signer._credentials.access_key,
        aws_secret_access_key=SECRET,
    )
    try:
        checked.head_bucket(Bucket=bucket)
    except ClientError as error:
        return {"403": "FORBIDDEN", "404": "NOT_FOUND"}[error.response["Error"]["Code"]]
    finally:
        checked.close()
    return "AVAILABLE"


def test_cvat_checks_lists_and_reads_a_version(gateway: Gateway) -> None:
    client = cvat_client(gateway)
    # status of a storage, and of one that is not there
    assert head_bucket_as_cvat(gateway, client, "acme") == "AVAILABLE"
    assert head_bucket_as_cvat(gateway, client, "rival") == "NOT_FOUND"
    # permissions: without a policy, everything is assumed to be allowed
    with pytest.raises(ClientError) as error:
        client.get_bucket_policy(Bucket="acme")
    assert error.value.response["Error"]["Code"] == "NoSuchBucketPolicy"
    # browsing, a directory at a time
    listed = client.list_objects_v2(Bucket="acme", Prefix="pets/v1/", Delimiter="/", MaxKeys=500)
    assert "pets/v1/images/" in [one["Prefix"] for one in listed["CommonPrefixes"]]
    files = {one["Key"]: one["Size"] for one in listed["Contents"]}
    assert "pets/v1/manifest.jsonl" in files
    first = client.list_objects_v2(Bucket="acme", Prefix="pets/v1/images/cats/", Delimiter="/", MaxKeys=2)
    token = first["NextContinuationToken"]
    rest = client.list_objects_v2(
        Bucket="acme", Prefix="pets/v1/images/cats/", Delimiter="/", MaxKeys=500, ContinuationToken=token
    )
    keys = [one["Key"] for page in (first, rest) for one in page["Contents"]]
    assert keys == [f"pets/v1/images/cats/cat{number}.jpg" for number in range(5)]
    # the manifest: looked at, compared with the copy, and read
    head = client.head_object(Bucket="acme", Key="pets/v1/manifest.jsonl")
    assert head["LastModified"] == client.head_object(Bucket="acme", Key="pets/v1/manifest.jsonl")["LastModified"]
    lines = client.get_object(Bucket="acme", Key="pets/v1/manifest.jsonl")["Body"].read().splitlines()
    assert [json.loads(line) for line in lines[:2]] == [{"version": "1.1"}, {"type": "images"}]
    entries = [json.loads(line) for line in lines[2:]]
    assert entries[0] == {
        "name": "images/cats/cat0",
        "extension": ".jpg",
        "width": 64,
        "height": 48,
        "meta": {"related_images": []},
    }
    assert [f"pets/v1/{one['name']}{one['extension']}" for one in entries] == keys
    # the size of an image, when no manifest is used: parts of it, then all
    for part in ("bytes=0-2047", "bytes=2047-16383", "bytes=16383-65535"):
        try:
            got = client.get_object(Bucket="acme", Key=keys[1], Range=part)["Body"].read()
        except ClientError as error:
            assert error.response["Error"]["Code"] == "InvalidRange"  # noqa: PT017 - the rest is behind the end
        else:
            assert got == (JPEG + b"\1")[int(part[6:].split("-")[0]) :]
    # frames
    for key in keys:
        size = client.head_object(Bucket="acme", Key=key)["ContentLength"]
        assert len(client.get_object(Bucket="acme", Key=key)["Body"].read()) == size


def test_cvat_reads_large_files_in_parallel_parts(gateway: Gateway, tmp_path: Path) -> None:
    client = gateway.client()
    parts = TransferConfig(multipart_threshold=1024 * 1024, multipart_chunksize=1024 * 1024)
    client.download_file("acme", "packed/v1/files/large.bin", str(tmp_path / "large.bin"), Config=parts)
    digest = client.head_object(Bucket="acme", Key="packed/v1/files/large.bin")["ContentLength"]
    assert (tmp_path / "large.bin").stat().st_size == digest


def test_cvat_exports_into_the_inbox(own_gateway: Gateway, tmp_path: Path) -> None:
    client = cvat_client(own_gateway, "inbox")
    archive = tmp_path / "annotations.zip"
    archive.write_bytes(os.urandom(100_000))
    client.upload_file(str(archive), "acme", "pets/v1/inbox/cvat/task_1_annotations.zip")
    got = client.get_object(Bucket="acme", Key="pets/v1/inbox/cvat/task_1_annotations.zip")["Body"].read()
    assert got == archive.read_bytes()
    for key in ("pets/v1/images/cats/cat1.jpg", "pets/v1/manifest.jsonl"):
        with pytest.raises(ClientError) as error:
            client.put_object(Bucket="acme", Key=key, Body=b"x")
        assert error.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403


class TrainingS3:
    """What the documents of the platform call `s3`: a client whose `get_object` returns the JSON of an object."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def get_object(self, bucket: str, key: str) -> Any:
        return json.load(self._client.get_object(Bucket=bucket, Key=key)["Body"])

    def download_file(self, bucket: str, key: str, path: str) -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        self._client.download_file(bucket, key, path)


def load_dataset_from_snapshot(s3: Any, bucket: str, dataset_id: str, snapshot_id: str, workspace: str) -> Any:
    """The trainer's steps, in its order and with its keys."""
    snapshot_path = f"datasets/{dataset_id}/snapshots/{snapshot_id}.json"
    snapshot_data = s3.get_object(bucket, snapshot_path)
    annotations = snapshot_data["annotations"]
    for img in annotations["images"]:
        s3.download_file(
            bucket,
            f"datasets/{dataset_id}/images/{img['file_name']}",
            f"{workspace}/dataset/images/{img['file_name']}",
        )
    with open(f"{workspace}/dataset/annotations.json", "w") as f:  # noqa: PTH123
        json.dump(annotations, f)
    return annotations


@pytest.mark.parametrize("dataset_id", ["pets", "acme/pets"])
def test_the_trainer_of_the_platform_runs_unchanged(own_gateway: Gateway, tmp_path: Path, dataset_id: str) -> None:
    pets = wd.collection("acme/pets", store=own_gateway.session.writer.url)
    job = pets.start_training("detection", "yolo", job_id="41")
    assert job.environment["ANNOTATIONS_PATH"] == "datasets/acme/pets/snapshots/training-job-41.json"
    environ = {
        "S3_ENDPOINT": own_gateway.endpoint,
        "BUCKET_NAME": "acme",
        "AWS_ACCESS_KEY_ID": own_gateway.keys.make("acme"),
        "AWS_SECRET_ACCESS_KEY": SECRET,
    }
    s3 = boto3.client(
        "s3",
        endpoint_url=environ["S3_ENDPOINT"],
        aws_access_key_id=environ["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=environ["AWS_SECRET_ACCESS_KEY"],
    )
    annotations = load_dataset_from_snapshot(
        TrainingS3(s3), environ["BUCKET_NAME"], dataset_id, job.environment["SNAPSHOT_ID"], str(tmp_path)
    )
    s3.close()
    checksums = pets.snapshot_document("training-job-41")["integrity"]["image_checksums"]
    assert len(annotations["images"]) == len(checksums) == 6
    for path, checksum in checksums.items():
        data = (tmp_path / "dataset" / "images" / path).read_bytes()
        assert f"sha256:{hashlib.sha256(data).hexdigest()}" == checksum
    assert json.loads((tmp_path / "dataset" / "annotations.json").read_text()) == annotations
