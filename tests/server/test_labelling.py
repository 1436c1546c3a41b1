"""If this fails, labels enter HEAD unseen or get lost, a tool reaches what is not its own, or a selection is wrong."""

from __future__ import annotations

import base64
import hmac
import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import pytest
from starlette.testclient import TestClient

import warpdata as wd
from tests.collections.scenes import png
from tests.server.conftest import Scene
from tests.server.running import running
from tests.server.s3.test_service_keys import client_of, issue
from warpdata.formats.labels import Annotation, LabeledImage, label_studio_task
from warpdata.server import Place, Role, set_role
from warpdata.server.jobs import JobWorker
from warpdata.server.labelling import NewConnection, connections, create_connection
from warpdata.server.labelling.studio_api import ToolAnswer

API = "/api/v1"
ZOO = f"{API}/datasets/acme/zoo"
CAT, DOG = wd.Box("cat", 1, 2, 30, 20), wd.Box("dog", 40, 30, 10, 12)
SIZE = (80, 60)


@pytest.fixture
def zoo(local: Scene) -> wd.Collection:
    """A collection of three images in the service, `lara` labels it."""
    collection = wd.connect(local.store).collection("acme/zoo")
    with collection.changes("first", author="ana") as change:
        for at in range(3):
            change.add(f"cats/{at}.png", png(at, *SIZE), annotations=[CAT], split="train", tags=["day"])
    collection.create_version("v1")
    from warpdata.server import create_user

    local.users["lara"] = create_user(local.service, "lara").id
    set_role(local.service, local.users["lara"], Place("acme"), Role.LABELER)
    return collection


def returned(collection: wd.Collection, path: str, objects: list[Annotation], at: int = 1) -> dict[str, Any]:
    """Return what Label Studio sends after a task of HEAD was labelled."""
    head = collection.head
    rows = head.table("images").raw().to_arrow().to_pylist()
    row = next(one for one in rows if one["path"] == path)
    image = LabeledImage(path, objects, row["width"], row["height"], hash=row["hash"])
    task = json.loads(label_studio_task(image, "s3://acme/zoo/x.png", version=head.version))
    annotation = task["annotations"][0] if task["annotations"] else {"result": []}
    by = {"completed_by": {"id": 3, "email": "ann"}, "updated_at": f"2026-01-0{at}T00:00:00Z", "unique_id": f"u{path}"}
    return {**annotation, "id": 17, "task": {"id": 5, "data": task["data"]}, **by}


def send(client: TestClient, document: Mapping[str, Any]) -> list[str]:
    answer = client.post(f"{ZOO}/inbox", content=json.dumps(document))
    assert answer.status_code == 201, answer.text
    items: list[str] = answer.json()["items"]
    return items


def run_jobs(scene: Scene) -> None:
    worker = JobWorker(scene.service)
    while worker.run_next():
        pass


def job_of(scene: Scene, answer: Any) -> dict[str, Any]:
    assert answer.status_code == 202, answer.text
    run_jobs(scene)
    found: dict[str, Any] = scene["ana"].get(f"{API}/jobs/{answer.json()['id']}").json()
    assert found["state"] == "done", found
    return found


def test_a_labeler_sends_and_a_maintainer_merges_what_was_seen(local: Scene, zoo: wd.Collection) -> None:
    before = zoo.head.version
    [item] = send(local["lara"], returned(zoo, "cats/0.png", [CAT, DOG]))
    assert send(local["lara"], returned(zoo, "cats/0.png", [CAT, DOG])) == [item]
    listed = local["vera"].get(f"{ZOO}/inbox").json()
    assert listed["counts"] == {"clean": 1, "conflict": 0, "stale": 0, "unchanged": 0}
    [shown] = listed["items"]
    assert (shown["inbox_id"], shown["state"], shown["added"]) == (item, "clean", 1)
    assert zoo.head.version == before
    preview = local["lara"].get(f"{ZOO}/inbox/{item}").json()
    assert [one["class_name"] for one in preview["added"]] == ["dog"]
    assert preview["item"]["token"] == shown["token"]
    wanted = {"items": [{"inbox_id": item, "token": shown["token"]}]}
    assert local["lara"].post(f"{ZOO}/inbox/accept", json=wanted).status_code == 403
    assert local["vera"].post(f"{ZOO}/inbox", content=b"{}").status_code == 403
    merged = local["ana"].post(f"{ZOO}/inbox/accept", json=wanted).json()
    assert (merged["previous"], merged["outcomes"][0]["reason"]) == (before, None)
    assert zoo.annotations("cats/0.png") == [CAT, DOG]
    again = local["ana"].post(f"{ZOO}/inbox/accept", json=wanted).json()
    assert "accepted already" in again["outcomes"][0]["reason"]
    assert [one["inbox_id"] for one in local["ana"].get(f"{ZOO}/inbox?state=accepted").json()["items"]] == [item]


def test_what_changed_after_it_was_shown_is_not_merged(local: Scene, zoo: wd.Collection) -> None:
    ids = [send(local["ana"], returned(zoo, f"cats/{at}.png", [CAT, DOG]))[0] for at in range(3)]
    seen = {one["inbox_id"]: one["token"] for one in local["ana"].get(f"{ZOO}/inbox").json()["items"]}
    zoo.annotate("cats/1.png", [wd.Box("bird", 60, 5, 8, 8)])
    zoo.add("cats/2.png", png(9, *SIZE), replace=True)
    wanted = [{"inbox_id": one, "token": seen[one]} for one in ids]
    done = local["ana"].post(f"{ZOO}/inbox/accept", json={"items": wanted}).json()
    reasons = [one["reason"] for one in done["outcomes"]]
    assert reasons[0] is None
    assert "changed after it was shown" in reasons[1]
    assert "stale" in reasons[2]
    assert len(wd.connect(local.store).collection("acme/zoo").annotations("cats/1.png")) == 2
    assert zoo.head.history(1)[0].message == "accept labels of cats/0.png"


def test_a_person_decides_each_conflict(local: Scene, zoo: wd.Collection) -> None:
    theirs = wd.Box("cat", 2, 3, 28, 18)
    [item] = send(local["ana"], returned(zoo, "cats/0.png", [theirs]))
    zoo.annotate("cats/0.png", [wd.Box("cat", 1, 2, 33, 24)], replace=True)
    [shown] = local["ana"].get(f"{ZOO}/inbox?state=conflict").json()["items"]
    assert shown["conflicts"] == 1
    bare = {"inbox_id": item, "token": shown["token"]}
    left = local["ana"].post(f"{ZOO}/inbox/accept", json={"items": [bare]}).json()
    assert "1 conflicts, and 0 were decided" in left["outcomes"][0]["reason"]
    chosen = {**bare, "choices": ["returned"]}
    local["ana"].post(f"{ZOO}/inbox/accept", json={"items": [chosen]}).raise_for_status()
    assert zoo.annotations("cats/0.png") == [theirs]


def test_rejected_labels_stay_listed(local: Scene, zoo: wd.Collection) -> None:
    items = [send(local["ana"], returned(zoo, f"cats/{at}.png", [CAT, DOG]))[0] for at in range(2)]
    page = local["ana"].get(f"{ZOO}/inbox?limit=1").json()
    rest = local["ana"].get(f"{ZOO}/inbox", params={"limit": 1, "cursor": page["next_cursor"]}).json()
    assert [page["items"][0]["inbox_id"], rest["items"][0]["inbox_id"]] == items
    body = {"items": items, "note": "blurred"}
    assert local["lara"].post(f"{ZOO}/inbox/reject", json=body).status_code == 403
    assert local["ana"].post(f"{ZOO}/inbox/reject", json=body).json() == {"rejected": items}
    assert local["ana"].post(f"{ZOO}/inbox/reject", json=body).status_code == 409
    assert local["ana"].get(f"{ZOO}/inbox").json()["items"] == []
    assert len(local["ana"].get(f"{ZOO}/inbox?state=rejected").json()["items"]) == 2


@pytest.fixture
def connection(local: Scene, zoo: wd.Collection) -> Any:
    new = NewConnection(
        Place("acme", "zoo"), "label-studio", "studio", "https://192.0.2.1", "t" * 40, local.users["ana"]
    )
    return create_connection(local.service, new)


def test_a_webhook_becomes_an_item_at_once(local: Scene, zoo: wd.Collection, connection: Any) -> None:
    events = f"{API}/labelling/{connection.id}/events"
    sent = returned(zoo, "cats/0.png", [CAT, DOG])
    task = sent.pop("task")
    event = json.dumps({"action": "ANNOTATION_CREATED", "annotation": sent, "task": task, "project": {"id": 1}})
    tool = local.client(None)
    assert tool.post(events, content=event).status_code == 401
    assert tool.post(events, content=event, headers={"X-Warp-Secret": "0" * 40}).status_code == 401
    assert tool.post(f"{API}/labelling/{'0' * 32}/events", content=event).status_code == 401
    made = tool.post(events, content=event, headers={"X-Warp-Secret": connection.secret}).json()["items"]
    assert len(made) == 1
    signature = hmac.new(connection.secret.encode(), event.encode(), sha256).hexdigest()
    signed = tool.post(events, content=event, headers={"X-Signature-256": f"sha256={signature}"})
    assert signed.json()["items"] == made
    other = json.dumps({"action": "PROJECT_UPDATED", "project": {"id": 1}})
    assert tool.post(events, content=other, headers={"X-Warp-Secret": connection.secret}).json() == {"items": []}
    assert [one["inbox_id"] for one in local["ana"].get(f"{ZOO}/inbox").json()["items"]] == made


def test_a_file_at_the_gateway_is_an_item_at_once(local: Scene, zoo: wd.Collection) -> None:
    label = json.dumps(returned(zoo, "cats/0.png", [CAT, DOG])).encode()
    with running(local.service) as url, client_of(url, *issue(local, "lara", "acme/zoo", "inbox")) as tool:
        for name, body in (("17", label), ("notes", b"{}")):
            tool.put_object(Bucket="acme", Key=f"zoo/v1/inbox/{name}", Body=body)
        [item] = local["ana"].get(f"{ZOO}/inbox").json()["items"]
    assert (item["state"], item["base"]) == ("clean", zoo.dataset("v1").version)
    synced = local["lara"].post(f"{ZOO}/inbox/sync").json()
    assert (synced["items"], synced["unread_count"], synced["unread"][0]["file"]) == (1, 1, "v1/notes")
    assert local["vera"].post(f"{ZOO}/inbox/sync").status_code == 403
    schedule = local["ana"].post(f"{ZOO}/schedules", json={"kind": "labels", "every_s": 300})
    assert schedule.status_code == 201


def test_the_ml_backend_answers_as_label_studio_asks(local: Scene, zoo: wd.Collection, connection: Any) -> None:
    basic = base64.b64encode(f"{connection.id}:{connection.secret}".encode()).decode()
    tool = local.client(None)
    tool.headers["Authorization"] = f"Basic {basic}"
    backend = f"{API}/labelling/{connection.id}/ml/v1"
    v1 = zoo.dataset("v1").version
    zoo.add("cats/1.png", png(9, *SIZE), replace=True)
    assert tool.get(f"{backend}/health").json()["status"] == "UP"
    setup = {"project": "1.1700000000", "schema": "<View/>", "hostname": "http://labels", "extra_params": None}
    assert tool.post(f"{backend}/setup", json=setup).json() == {"model_version": v1}
    tasks = [{"id": at, "data": returned(zoo, f"cats/{at}.png", [])["task"]["data"]} for at in range(2)]
    tasks.append({"id": 7, "data": {"text": "no image"}})
    asked = {"tasks": tasks, "project": "1.17", "label_config": "<View/>", "params": {"login": None, "context": None}}
    answer = tool.post(f"{backend}/predict", json=asked).json()
    assert answer["model_version"] == v1
    first, replaced, none = answer["results"]
    assert (first["model_version"], first["score"]) == (v1, 1.0)
    [region] = first["result"]
    assert (region["type"], region["value"]["rectanglelabels"]) == ("rectanglelabels", ["cat"])
    assert region["value"]["x"] == pytest.approx(100 * CAT.x / SIZE[0])
    assert replaced["result"] == none["result"] == []
    assert tool.get(f"{backend}/versions").json() == {"versions": [v1]}
    assert local.client(None).get(f"{backend}/health").status_code == 401


class Studio:
    """A stand-in for the API of Label Studio, with the answers that release 1.23.2 gave."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, Any]] = []
        self.tasks: list[dict[str, Any]] = []

    def __call__(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> ToolAnswer:
        assert headers["Authorization"] == f"Token {'t' * 40}"
        path = url.removeprefix("https://192.0.2.1").partition("?")[0]
        given: Any = json.loads(body) if body else None
        self.calls.append((method, path, given))
        if path.endswith("/import"):
            self.tasks += given
            return ToolAnswer(201, {}, json.dumps({"task_count": len(given)}))
        if path.endswith("/export"):
            return ToolAnswer(200, {}, json.dumps([one for one in self.tasks if one.get("annotations")]))
        return ToolAnswer(201 if method == "POST" else 200, {}, json.dumps({"id": 12}))


def test_a_batch_is_sent_and_its_labels_come_back_once(
    local: Scene, zoo: wd.Collection, connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    studio = Studio()
    monkeypatch.setattr(connections, "_ask_through", lambda _rule: studio)
    body = {"title": "two cats", "ref": "v1", "filter": "path <> 'cats/2.png'", "classes": ["cat", "dog"]}
    sent = local["ana"].post(f"{ZOO}/connections/{connection.id}/batches", json=body)
    assert sent.status_code == 202, sent.text
    run_jobs(local)
    [batch] = local["vera"].get(f"{ZOO}/connections/{connection.id}/batches").json()["batches"]
    assert (batch["project"], batch["tasks"], batch["error"]) == ("12", 2, None)
    v1 = zoo.dataset("v1").version
    assert {one["data"]["version"] for one in studio.tasks} == {v1}
    assert studio.tasks[0]["predictions"][0]["result"][0]["value"]["rectanglelabels"] == ["cat"]
    hook = next(given for _, path, given in studio.calls if path == "/api/webhooks/")
    assert hook["headers"] == {"X-Warp-Secret": connection.secret}
    target = next(given for _, path, given in studio.calls if path == "/api/storages/export/s3")
    assert target["prefix"] == f"zoo/{v1}/inbox/project-12"
    source = next(given for _, path, given in studio.calls if path == "/api/storages/s3")
    assert source["prefix"] == "zoo/HEAD/images"  # one that the gateway lists, because the tool asks for a key of it
    drawn = returned(zoo, "cats/0.png", [CAT, DOG])
    items = send(local["ana"], drawn)  # by its target storage or a webhook, where the user is an object
    exported = {**drawn, "completed_by": 3}
    exported.pop("task")
    studio.tasks[0]["annotations"] = [exported]
    polled = local["ana"].post(f"{ZOO}/connections/{connection.id}/poll").json()["batches"][0]
    assert (polled["labelled"], polled["received"]) == (1, 1)
    assert [one["inbox_id"] for one in local["ana"].get(f"{ZOO}/inbox").json()["items"]] == items


def test_checks_say_what_to_set(local: Scene, connection: Any) -> None:
    check = f"{ZOO}/connections/{connection.id}/check"
    tool = local["ana"].post(check, params={"part": "tool"}).json()["checks"]
    assert tool[0]["status"] == "failed"
    assert "--allow-network 192.0.2.1" in tool[0]["next_step"]
    assert {one["status"] for one in tool[1:]} == {"skipped"}
    gateway = local["ana"].post(check).json()["checks"]
    assert [one["check"] for one in gateway] == ["reach", "credentials", "listing", "browser"]
    assert local["vera"].post(check).status_code == 403


def test_a_connection_is_made_by_a_person_and_ends_its_key(local: Scene, connection: Any) -> None:
    body = {"name": "mine", "url": "https://labels.example.com", "token": "x"}
    refused = local["ana"].post(f"{ZOO}/connections", json=body)
    assert (refused.status_code, refused.json()["detail"]) == (403, "a token cannot create or change credentials")
    listed = local["vera"].get(f"{ZOO}/connections").json()["connections"]
    assert [one["secret"] for one in listed] == [None]
    assert local["ana"].get(f"{ZOO}/connections").json()["connections"][0]["secret"] == connection.secret
    assert local["ana"].delete(f"{ZOO}/connections/{connection.id}").status_code == 204
    assert local["ana"].get(f"{ZOO}/connections").json()["connections"] == []
    keys = local["ana"].get(f"{API}/s3-keys").json()["keys"]
    assert [one["revoked"] is not None for one in keys if one["access_key"] == connection.access_key] == [True]


def test_a_selection_is_changed_by_one_commit(local: Scene, zoo: wd.Collection) -> None:
    ana = local["ana"]
    body = {"filter": "path <> 'cats/0.png'", "add_tags": ["night", "day"], "split": "val"}
    job = job_of(local, ana.post(f"{ZOO}/image-changes", json=body))
    assert job["result"]["images"] == 2
    rows = {one["path"]: one for one in zoo.head.table("images").raw().to_arrow().to_pylist()}
    assert [(one["split"], one["tags"]) for _, one in sorted(rows.items())] == [
        ("train", ["day"]),
        ("val", ["day", "night"]),
        ("val", ["day", "night"]),
    ]
    job_of(local, ana.post(f"{ZOO}/image-changes", json={"paths": ["cats/1.png"], "remove": True}))
    assert "cats/1.png" not in zoo.head.artifact("images")
    assert "cats/1.png" in zoo.dataset("v1").artifact("images")
    for wrong in (
        {"paths": ["a"], "remove": True, "split": "x"},
        {"paths": ["a"]},
        {"filter": "nope = 1", "split": "x"},
    ):
        assert ana.post(f"{ZOO}/image-changes", json=wrong).status_code in (404, 422)
    assert local["lara"].post(f"{ZOO}/image-changes", json=body).status_code == 403


def test_a_selection_is_exported_in_a_format_of_labels(local: Scene, zoo: wd.Collection) -> None:
    body = {"format": "coco", "paths": ["cats/0.png"]}
    job = job_of(local, local["ana"].post(f"{ZOO}/exports", json=body))
    assert job["result"]["report"]["files"] == 2
    wrong = local["ana"].post(f"{ZOO}/exports", json={"format": "parquet", "class_name": "cat"})
    assert wrong.status_code == 422


def test_rows_of_a_query_become_a_version(local: Scene, zoo: wd.Collection) -> None:
    query = 'SELECT path, size_bytes FROM "acme/zoo/images" ORDER BY path LIMIT 2'
    body = {"query": query, "workspace": "acme", "dataset": "small", "message": "two of them"}
    assert local["vera"].post(f"{API}/sql/versions", json=body).status_code == 403
    assert local["rita"].post(f"{API}/sql/versions", json={**body, "workspace": "rival"}).status_code == 404
    job = job_of(local, local["ana"].post(f"{API}/sql/versions", json=body))
    made = wd.connect(local.store).dataset("acme/small")
    assert (made.version, made.table("main").count()) == (job["result"]["version"], 2)
    assert made.history(1)[0].message == f"two of them\n\n{query}"
    job_of(local, local["ana"].post(f"{API}/sql/versions", json={**body, "table": "other"}))
    assert sorted(wd.connect(local.store).dataset("acme/small").tables) == ["main", "other"]


def upload(client: TestClient) -> str:
    started: str = client.post(f"{ZOO}/uploads", json={"only_images": True}).json()["id"]
    return f"{ZOO}/uploads/{started}"


@pytest.mark.parametrize(
    ("path", "data", "reason"),
    [
        ("page.svg", b"<svg><script>alert(1)</script></svg>", "is no image. It is markup"),
        ("huge.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + (40_000).to_bytes(4, "big") * 2 + b"\x08\2\0\0\0", "pixels"),
        ("cut.png", b"\x89PNG\r\n\x1a\nxx", "damaged header"),
    ],
)
def test_files_that_are_no_images_are_refused_on_arrival(
    local: Scene, zoo: wd.Collection, path: str, data: bytes, reason: str
) -> None:
    url, digest = upload(local["ana"]), sha256(data).hexdigest()
    refused = local["ana"].put(f"{url}/files/{path}", content=data, headers={"X-Content-SHA256": digest})
    assert refused.status_code == 422
    assert reason in refused.json()["detail"]
    name = base64.b64encode(path.encode()).decode()
    headers = {"Upload-Length": str(len(data)), "Upload-Metadata": f"filename {name}"}
    place = local["ana"].post(f"{url}/partial", headers=headers).headers["location"]
    headers = {"Upload-Offset": "0", "Content-Type": "application/offset+octet-stream"}
    assert local["ana"].patch(place, content=data, headers=headers).status_code == 422
    good = png(7, *SIZE)
    headers = {"X-Content-SHA256": sha256(good).hexdigest()}
    local["ana"].put(f"{url}/files/new/7.png", content=good, headers=headers).raise_for_status()
    local["ana"].post(f"{url}/commit", json={"message": "more"}).raise_for_status()
    assert "new/7.png" in zoo.head.artifact("images")
