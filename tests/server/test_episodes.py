"""If this fails, a page or a program sees other episodes than the dataset has, or those of another workspace."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
from starlette.testclient import TestClient

import warpdata as wd
from tests.server.conftest import Scene
from tests.server.robots import EPISODES, make_episode
from warpdata.kinds.episodes import Episodes
from warpdata.wshard import ChunkPlace

ROBOTS = "/api/v1/datasets/acme/robots"


def episodes_of(scene: Scene, ref: str = "main") -> Episodes:
    return wd.dataset(f"acme/robots@{ref}", store=scene.store).episodes()


def listed(client: TestClient, **query: Any) -> dict[str, Any]:
    answer = client.get(f"{ROBOTS}/episodes", params=query)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_a_list_shows_what_the_episodes_are(robots: Scene) -> None:
    page = listed(robots["vera"])
    stored = episodes_of(robots)
    assert page["total"] == len(page["episodes"]) == len(stored) == EPISODES
    for shown, episode in zip(page["episodes"], stored, strict=True):
        assert (shown["id"], shown["length"]) == (episode.id, episode.length)
        assert shown["reward"] == float(np.asarray(episode.read(["reward"])["reward"], np.float64).sum())
        assert shown["duration_s"] == episode.length / 30
        assert (shown["success"], shown["tags"]) == (episode.metadata["success"], episode.metadata["tags"])
        assert shown["cameras"] == ["wrist", "depth"]
        assert shown["size_bytes"] == episode.size_bytes
    assert page["fields"] == ["operator", "success"]
    assert listed(robots["vera"], ref="step-1")["total"] == EPISODES - 1


def test_filters_and_orders_are_those_of_python(robots: Scene) -> None:
    client, stored = robots["vera"], episodes_of(robots)
    rewards = {one.id: float(one.read(["reward"])["reward"].sum()) for one in stored}
    by_reward = sorted(rewards, key=lambda one: -rewards[one])
    assert [one["id"] for one in listed(client, sort="reward", order="desc")["episodes"]] == by_reward
    kept = listed(client, filter="metadata.success AND reward > 2", sort="length", order="desc")
    wanted = [one.id for one in stored.filter("metadata.success") if rewards[one.id] > 2]
    assert [one["id"] for one in kept["episodes"]] == wanted[::-1]
    assert kept["total"] == len(wanted) > 1
    by_operator = listed(client, sort="metadata.operator")["episodes"]
    assert [one["metadata"]["operator"] for one in by_operator] == ["a"] * 6 + ["b"] * 6
    assert [one["number"] for one in by_operator[:6]] == [0, 2, 4, 6, 8, 10], "equal values keep the order of the set"
    assert listed(client, sort="success")["episodes"][0]["success"] is False
    for query in ({"sort": "colour"}, {"sort": "metadata.colour"}, {"filter": "length >"}, {"limit": 1000}):
        assert client.get(f"{ROBOTS}/episodes", params=query).status_code == 422


def test_pages_by_cursor_are_of_one_version(robots: Scene) -> None:
    client = robots["vera"]
    first = listed(client, limit=5, sort="reward", order="desc", ref="step-1")
    with wd.connect(robots.store).dataset("acme/robots").edit("fewer") as edit:
        edit.remove_episodes("demos", [first["episodes"][-1]["id"]])
    ids, cursor = [one["id"] for one in first["episodes"]], first["next_cursor"]
    while cursor:
        page = listed(client, limit=5, sort="reward", order="desc", cursor=cursor)
        assert page["version"] == first["version"]
        ids += [one["id"] for one in page["episodes"]]
        cursor = page["next_cursor"]
    assert len(ids) == len(set(ids)) == first["total"] == EPISODES - 1
    assert [one["id"] for one in listed(client, ref="step-2", offset=9, limit=1)["episodes"]] == ["ep_009"]
    other = client.get(f"{ROBOTS}/episodes", params={"limit": 5, "cursor": first["next_cursor"]})
    assert other.status_code == 422
    assert other.json()["code"] == "token_mismatch"


def test_an_episode_has_its_files_channels_and_neighbours(robots: Scene) -> None:
    client, stored = robots["vera"], episodes_of(robots)["ep_004"]
    shown = client.get(f"{ROBOTS}/episode", params={"id": "ep_004", "filter": "metadata.success"}).json()
    assert (shown["previous"], shown["next"]) == ("ep_002", "ep_005")
    assert (shown["position"], shown["total"]) == (2, 8)
    assert (shown["identity"], shown["tick_hz"]) == (stored.identity, 30)
    assert shown["document"] == dict(stored.metadata)
    assert [one["block"] for one in shown["channels"]][:4] == [*stored.info.channels][:4]
    assert {one["encoding"] for one in shown["channels"] if one["id"] == "wrist"} == {"png"}
    assert shown["files"] == [
        {"chunk": 0, "hash": stored.hash, "size_bytes": stored.size_bytes, "first_step": 0, "length": stored.length}
    ]
    outside = client.get(f"{ROBOTS}/episode", params={"id": "ep_003", "filter": "metadata.success"}).json()
    assert (outside["position"], outside["previous"], outside["next"]) == (None, None, None)
    assert client.get(f"{ROBOTS}/episode", params={"id": "ep_999"}).status_code == 404


def test_bytes_of_a_file_are_those_that_were_published(robots: Scene) -> None:
    client, stored = robots["vera"], episodes_of(robots)["ep_001"]
    whole = client.get(f"{ROBOTS}/episode/file", params={"id": "ep_001"})
    assert hashlib.sha256(whole.content).hexdigest() == stored.hash
    assert whole.headers["etag"] == f'"{stored.hash}"'
    assert whole.headers["cache-control"] == "private, no-cache"
    assert "sandbox" in whole.headers["content-security-policy"]
    version = listed(client)["version"]
    for header, start, end in (("bytes=0-99", 0, 100), ("bytes=5000-90000", 5000, 90_001), ("bytes=-7", -7, None)):
        part = client.get(f"{ROBOTS}/episode/file", params={"id": "ep_001", "ref": version}, headers={"Range": header})
        assert part.status_code == 206
        assert part.content == whole.content[start:end]
        assert "immutable" in part.headers["cache-control"]
    all_of_it = {"Range": f"bytes=0-{10 * stored.size_bytes}"}
    part = client.get(f"{ROBOTS}/episode/file", params={"id": "ep_001"}, headers=all_of_it)
    assert (part.status_code, part.content) == (206, whole.content), "readers of small files ask for all of it"
    head = client.head(f"{ROBOTS}/episode/file", params={"id": "ep_001"})
    assert int(head.headers["content-length"]) == stored.size_bytes
    known = client.get(
        f"{ROBOTS}/episode/file", params={"id": "ep_001"}, headers={"If-None-Match": head.headers["etag"]}
    )
    assert known.status_code == 304
    past = client.get(f"{ROBOTS}/episode/file", params={"id": "ep_001"}, headers={"Range": "bytes=99999999-"})
    assert past.status_code == 416
    assert client.get(f"{ROBOTS}/episode/file", params={"id": "ep_001", "chunk": 1}).status_code == 404


def test_chunks_of_an_episode_are_files_of_it(local: Scene) -> None:
    parts = [make_episode(1, 20), make_episode(1, 30)]
    chunks = [
        replace(part, chunk=ChunkPlace(at, 2, first))
        for at, (part, first) in enumerate(zip(parts, (0, 20), strict=True))
    ]
    wd.DatasetBuilder("acme/robots", local.store).add_episodes("demos", chunks).publish()
    shown = local["vera"].get(f"{ROBOTS}/episode", params={"id": "ep_001"}).json()
    assert [(one["first_step"], one["length"]) for one in shown["files"]] == [(0, 20), (20, 30)]
    assert shown["episode"]["length"] == 50
    for at in range(2):
        found = local["vera"].get(f"{ROBOTS}/episode/file", params={"id": "ep_001", "chunk": at})
        assert hashlib.sha256(found.content).hexdigest() == shown["files"][at]["hash"]


def test_what_a_user_may_not_read_does_not_exist(robots: Scene) -> None:
    for path in ("episodes", "episode?id=ep_001", "episode/file?id=ep_001"):
        assert robots["rita"].get(f"{ROBOTS}/{path}").status_code == 404
        assert robots["rita"].get(f"{ROBOTS}/{path}").json()["detail"] == "there is no dataset 'acme/robots'"
        assert robots.client(None).get(f"{ROBOTS}/{path}").status_code == 401
    pets = robots["vera"].get("/api/v1/datasets/acme/pets/episodes")
    assert (pets.status_code, pets.json()["code"]) == (404, "episode_not_found")
