"""If this fails, `warp collection` says something else than it does, or erases without being asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import warpdata as wd
from tests.cli.scenes import ask, run
from tests.collections.scenes import CAT, jpeg, png


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    for number in range(3):
        jpeg(tmp_path / f"photos/c/{number}.png", number)
    return tmp_path / "photos"


def test_a_collection_from_a_shell(photos: Path) -> None:
    (photos.parent / "one.png").write_bytes(png(9))
    added = ask(
        "collection", "add", "a/pets", "one.png", str(photos.parent / "one.png"), "--label", "cat", "--tag", "x"
    )
    assert added["path"] == "one.png"
    receipt = ask("collection", "upload", "a/pets", str(photos))
    assert [file["path"] for file in receipt["files"]] == ["c/0.png", "c/1.png", "c/2.png"]
    assert ask("collection", "create-version", "a/pets", "v1")["snapshot_type"] == "manual"
    job = ask("collection", "train", "a/pets", "--task-type", "detection", "--model", "yolo", "--job-id", "5")
    assert job["environment"]["SNAPSHOT_ID"] == "training-job-5"
    ask("collection", "rm", "a/pets", "one.png")
    compared = ask("collection", "compare", "a/pets", "v1")
    assert (compared["removed"], compared["classes"]) == (["one.png"], {"cat": [1, 0]})
    assert ask("collection", "stats", "a/pets", "v1")["images"] == 4
    assert {one["name"] for one in ask("collection", "versions", "a/pets")["versions"]} == {"v1", "training-job-5"}
    assert [one["job_id"] for one in ask("collection", "jobs", "a/pets")["jobs"]] == ["5"]
    assert ask("collection", "state", "a/pets")["state"] == "unlabeled"
    assert ask("collection", "restore", "a/pets", "v1")["changed"]
    assert ask("collection", "state", "a/pets")["state"] == "labeled"
    for words in ("versions", "jobs", "stats", "state", "integrity"):
        assert run("collection", words, "a/pets").exit_code == 0


def test_a_purge_asks_and_a_dry_run_erases_nothing(photos: Path) -> None:
    collection = wd.collection("a/pets")
    collection.upload(photos)
    collection.create_version("v1")
    seen = ask("collection", "purge", "a/pets", "c/0.png", "--action", "mark_broken", "--dry-run")
    assert (seen["status"], seen["receipt"]) == ("confirmation_required", None)
    refused = run("collection", "purge", "a/pets", "c/0.png", "--action", "mark_broken")
    assert refused.exit_code == 2
    assert "--yes" in refused.stderr
    assert ask("collection", "purge", "a/pets", "c/0.png", "--action", "cancel")["status"] == "cancelled"
    assert collection.read("c/0.png", "v1") == CAT
    token = ask("collection", "impact", "a/pets", "c/0.png")["token"]
    collection.create_version("v2")
    stale = run(
        "collection", "purge", "a/pets", "c/0.png", "--action", "mark_broken", "--token", token, "--yes", "--json"
    )
    assert stale.exit_code == 4
    assert json.loads(stale.stderr or stale.stdout)["error"]["kind"] == "impact_changed"
    done = ask("collection", "purge", "a/pets", "c/0.png", "--action", "auto_repair", "--yes")
    assert done["receipt"]["is_clean"]
    assert ask("collection", "resume", "a/pets") == {"receipts": []}
    assert ask("collection", "integrity", "a/pets")["problems"] == []


def test_a_check_exits_with_the_code_of_corruption(photos: Path) -> None:
    collection = wd.collection("a/pets")
    digest = collection.upload(photos).files[0].hash
    collection.session.writer.delete(f"blobs/{digest[:2]}/{digest[2:4]}/{digest}")
    found = run("collection", "integrity", "a/pets")
    assert found.exit_code == 8
    assert "c/0.png" in found.stdout
