"""If this fails, a stranger reads or changes what is not theirs, or a secret outlives its end."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import update
from starlette.testclient import TestClient

from tests.server.conftest import Scene
from warpdata.errors import BadInputError
from warpdata.server import (
    Place,
    Role,
    Scope,
    ServiceOptions,
    check_options,
    find_tampering,
    issue_sign_in_code,
    set_role,
)
from warpdata.server.database import AuditRow, LabelConnectionRow
from warpdata.server.jobs import JobWorker

API = "/api/v1"
PETS = f"{API}/datasets/acme/pets"
CHANGE = {"X-Warp-Request": "1"}
PUBLIC = {"/healthz", "/readyz", "/api/v1/files/{signed}/{filename}"}
OWN = {"/api/v1/session", "/api/v1/tokens", "/api/v1/datasets", "/api/v1/workspaces", "/api/v1/jobs", "/api/v1/sql"}
OWN |= {"/api/v1/objects", "/api/v1/schedules", "/api/v1/s3-keys"}
"""Routes without the id of a thing: they answer with what belongs to the caller."""
TOOLS = "/api/v1/labelling/"
"""Routes that ask for the secret of a connection, and answer 401 without one, also to its owner."""
IDS = ("connection_id", "upload_id", "partial_id", "webhook_id", "delivery_id", "schedule_id", "job_id")


def operations(client: TestClient) -> list[tuple[str, str]]:
    document = client.get(f"{API}/openapi.json").json()
    return [(method, path) for path, methods in document["paths"].items() for method in methods]


BODIES: tuple[tuple[tuple[str, ...], dict[str, object]], ...] = (
    (("/sql/versions",), {"query": 'SELECT label FROM "acme/pets"', "workspace": "acme", "dataset": "pets"}),
    (("/labels", "/branches", "/versions"), {"name": "x"}),
    (("/training-jobs",), {"task_type": "detection", "model_name": "yolo"}),
    (("/annotations/{path}",), {"annotations": []}),
    (("/annotations",), {"images": [{"path": "cats/1.png", "annotations": []}]}),
    (("/purges",), {"path": "cats/1.png", "action": "mark_broken", "token": "0" * 64}),
    (("/search",), {"text": "cat", "column": "label"}),
    (("/connections",), {"name": "mine", "url": "https://192.0.2.1", "token": "x"}),
    (("/batches",), {"title": "x"}),
    (("/inbox/accept",), {"items": [{"inbox_id": "0" * 32, "token": "0" * 64}]}),
    (("/inbox/reject",), {"items": ["0" * 32]}),
    (("/image-changes",), {"paths": ["cats/1.png"], "split": "val"}),
    (("/webhooks",), {"url": "https://8.8.8.8/hook", "events": ["job.done"]}),
    (("/schedules",), {"kind": "scrub"}),
    (("/quota",), {"max_bytes": None, "max_files": None}),
    (("{name}/jobs",), {"kind": "verify"}),
    (("/v1/jobs",), {"kind": "synchronize"}),
    (("/members/{user}",), {"role": "viewer"}),
)
"""A valid body for each route that takes one, by the end of its path."""


def body_of(method: str, path: str, ids: dict[str, str]) -> dict[str, object]:
    if method == "patch":
        return {"ref": "main"} if path.endswith("/head") else {}
    if path.endswith("/imports"):
        return {"format": "files", "upload": ids["upload_id"]}
    return next((body for ends, body in BODIES if path.endswith(ends)), {})


def ask(client: TestClient, method: str, path: str, ids: dict[str, str]) -> int:
    """Send a request to a route with the ids of `acme/pets`, valid in everything but the caller."""
    values = {
        **ids,
        "workspace": "acme",
        "name": "pets",
        "path": "cats/1.png",
        "user": "vera",
        "ref_name": "v1",
        "purge_id": "0" * 36,
        "token_id": "0" * 32,
        "access_key": "A" * 20,
        "version_name": "v1",
        "training_job_id": "41",
        "document": "meta.json",
        "snapshot_id": "v1",
        "key": "datasets/acme/pets/latest.json",
        "inbox_id": "0" * 32,
        "sample_id": "0",
        "ref": "HEAD",
    }
    url = re.sub(r"\{(\w+)(:path)?\}", lambda found: values[found[1]], path)
    query = {"from": "main", "to": "main"} if path.endswith(("/diff", "/compare", "/object-diff")) else {}
    query |= {"image": "cats/1.png"} if path.endswith(("/annotations", "/image-annotations")) else {}
    query |= {"columns": "label"} if path.endswith("/stats") else {}
    body = body_of(method, path, ids)
    headers = {"X-Content-SHA256": "0" * 64, "Upload-Length": "5", "Upload-Metadata": "filename YQ=="}
    headers["Upload-Offset"] = "0"
    options = {"params": query, "headers": headers}
    if method in ("post", "put", "patch"):
        return client.request(method, url, json=body, **options).status_code  # type: ignore[arg-type]
    return client.request(method, url, **options).status_code  # type: ignore[arg-type]


def things(scene: Scene) -> dict[str, str]:
    """Make one of each thing that has an id, and return their ids."""
    ana = scene["ana"]
    upload = ana.post(f"{PETS}/uploads", json={}).json()["id"]
    headers = {"Upload-Length": "5", "Upload-Metadata": "filename YQ=="}
    partial = ana.post(f"{PETS}/uploads/{upload}/partial", headers=headers).headers["location"]
    hooks = f"{API}/workspaces/acme/webhooks"
    hook = ana.post(hooks, json={"url": "https://8.8.8.8/hook", "events": ["job.done"]}).json()["id"]
    export = ana.post(f"{PETS}/exports", json={"format": "files"}).json()["id"]
    assert JobWorker(scene.service).run_next()
    return {
        "connection_id": connect_tool(scene),
        "upload_id": upload,
        "partial_id": partial.rpartition("/")[2],
        "webhook_id": hook,
        "delivery_id": ana.get(f"{hooks}/{hook}/deliveries").json()["deliveries"][0]["id"],
        "schedule_id": ana.post(f"{PETS}/schedules", json={"kind": "scrub"}).json()["id"],
        "job_id": export,
    }


def connect_tool(scene: Scene) -> str:
    """Connect a tool without a key, which PostgreSQL has no master key for here, and return the id."""
    about = {"workspace": "acme", "dataset": "pets", "tool": "cvat", "name": "cvat", "url": "https://192.0.2.1"}
    with scene.service.database.write() as db:
        row = LabelConnectionRow(id="c" * 32, **about, token="x", access_key="A" * 20, secret="s" * 40)
        row.owner_id, row.created = scene.users["ana"], scene.service.now()
        db.add(row)
    return row.id


def compare_owners(scene: Scene, method: str, path: str, ids: dict[str, str]) -> bool:
    """Check that a route is there for its owner alone."""
    status = ask(scene["rita"], method, path, ids)
    assert status == 404, f"{method} {path} answers {status}"
    if path.endswith("/quota") and method == "put":
        return True  # for administrators
    own = ask(scene["ana"], method, path, ids)
    ends = ("/refs/{ref_name}", "/commit", "/{purge_id}", "/snapshots/{snapshot_id}.json", "/{inbox_id}")
    is_credential = "/members/" in path or (method == "post" and path.endswith("/connections"))  # no token makes one
    is_absent = "/episode" in path or "/tensors" in path  # `acme/pets` has none: their routes have tests of their own
    is_made_up = path.endswith(ends) or is_credential or is_absent
    assert own < 400 or is_made_up or own in (409, 415, 422), f"{method} {path} answers its owner {own}"
    return True


def test_every_route_answers_404_to_the_owner_of_another_workspace(scene: Scene) -> None:
    """Also routes that are added later, because they are read from the contract."""
    ids = things(scene)
    visited = 0
    for method, path in operations(scene["rita"]):
        if path.startswith(TOOLS):
            assert ask(scene["rita"], method, path, ids) == 401, (method, path)
            continue
        if path in PUBLIC or path in OWN or path.endswith(("/audit", "/events", "/tokens/{token_id}", "/{access_key}")):
            continue
        if method == "delete" and path.endswith(("{schedule_id}", "{webhook_id}", "{partial_id}", "{connection_id}")):
            continue  # asked last, because they take things away
        visited += compare_owners(scene, method, path, ids)
    for path in (
        f"{API}/datasets/{{workspace}}/{{name}}/uploads/{{upload_id}}/partial/{{partial_id}}",
        f"{API}/schedules/{{schedule_id}}",
        f"{API}/datasets/{{workspace}}/{{name}}/connections/{{connection_id}}",
        f"{API}/workspaces/{{workspace}}/webhooks/{{webhook_id}}",
    ):
        visited += compare_owners(scene, "delete", path, ids)
    assert visited > 20
    assert scene["rita"].get(f"{API}/audit", params={"workspace": "acme"}).status_code == 404
    assert scene["rita"].get(f"{API}/audit").status_code == 404
    assert scene["root"].get(f"{API}/audit").status_code == 200


def test_lists_have_only_what_is_visible(scene: Scene) -> None:
    scene["ana"].post(f"{PETS}/jobs", json={"kind": "verify"})
    assert [one["id"] for one in scene["rita"].get(f"{API}/datasets").json()["datasets"]] == ["rival/secret"]
    assert [one["name"] for one in scene["rita"].get(f"{API}/workspaces").json()["workspaces"]] == ["rival"]
    assert scene["rita"].get(f"{API}/jobs").json()["jobs"] == []
    refused = scene["rita"].post(f"{API}/sql", json={"query": 'SELECT * FROM "acme/pets"'})
    unknown = scene["rita"].post(f"{API}/sql", json={"query": 'SELECT * FROM "acme/none"'})
    assert refused.status_code == unknown.status_code == 404
    assert refused.json()["detail"].replace("pets", "none") == unknown.json()["detail"]


def test_hidden_and_missing_datasets_have_one_answer(local: Scene) -> None:
    hidden, missing = (local["rita"].get(f"{API}/datasets/acme/{name}") for name in ("pets", "none"))
    mine = local["ana"].get(f"{API}/datasets/acme/none")
    assert hidden.text.replace("pets", "none") == missing.text == mine.text


def test_roles_allow_what_they_say(local: Scene) -> None:
    vera = local["vera"]
    assert vera.get(PETS).json()["role"] == "viewer"
    denied = vera.post(f"{PETS}/labels", json={"name": "v1"})
    assert (denied.status_code, denied.json()["code"]) == (403, "access_denied")
    assert local["ana"].put(f"{API}/workspaces/acme/members/vera", json={"role": "owner"}).status_code == 403  # a token


def test_a_dataset_can_be_hidden_from_a_member(local: Scene) -> None:
    place = Place("acme", "pets")
    set_role(local.service, local.users["vera"], place, Role.NONE)
    assert local["vera"].get(PETS).status_code == 404
    assert local["vera"].get(f"{API}/datasets").json()["datasets"] == []
    set_role(local.service, local.users["rita"], place, Role.VIEWER)
    assert local["rita"].get(PETS).status_code == 200
    assert len(local["rita"].get(f"{API}/datasets").json()["datasets"]) == 2


def test_tokens_are_narrow(local: Scene) -> None:
    reader = local.client(local.token("ana", Scope.READ))
    assert reader.get(PETS).status_code == 200
    assert reader.post(f"{PETS}/labels", json={"name": "v1"}).status_code == 403
    narrow = local.client(local.token("ana", Scope.MANAGE, Place("acme", "other")))
    assert narrow.get(PETS).status_code == 404
    assert narrow.get(f"{API}/datasets").json()["datasets"] == []
    root = local.client(local.token("root", Scope.MANAGE, Place("acme")))
    assert root.get(f"{API}/audit").status_code == 404
    assert root.get(f"{API}/datasets/rival/secret").status_code == 404


def test_a_token_makes_no_credentials(local: Scene) -> None:
    assert local["ana"].post(f"{API}/tokens", json={"name": "more"}).status_code == 403
    assert local["ana"].delete(f"{API}/tokens/{'0' * 32}").status_code == 403


@pytest.mark.parametrize("secret", ["wd_" + "0" * 40, "", "x", "wd_" + "\u00e9" * 9, "0" * 5000])
def test_forged_tokens_are_refused(local: Scene, secret: str) -> None:
    client = local.client(None)
    answer = client.get(PETS, headers={b"Authorization": f"Bearer {secret}".encode()})
    assert (answer.status_code, answer.json()["code"]) == (401, "authentication")


def test_tokens_end(local: Scene) -> None:
    ana = sign_in(local, "ana")
    made = ana.post(f"{API}/tokens", json={"name": "short", "days": 1}, headers=CHANGE).json()
    client = local.client(made["secret"])
    assert client.get(PETS).status_code == 200
    tomorrow = local.service.session.clock() + timedelta(days=1, seconds=1)
    late = Scene(replace(local.service, session=replace(local.service.session, clock=lambda: tomorrow)), local.store)
    assert late.client(made["secret"]).get(PETS).status_code == 401
    assert ana.delete(f"{API}/tokens/{made['id']}", headers=CHANGE).status_code == 204
    assert client.get(PETS).status_code == 401
    assert made["secret"] not in ana.get(f"{API}/tokens").text


def sign_in(scene: Scene, user: str) -> TestClient:
    client = scene.client(None)
    answer = client.get("/sign-in", params={"code": issue_sign_in_code(scene.service, scene.users[user])})
    assert answer.status_code == 303, answer.text
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    return client


def test_a_link_signs_in_once(scene: Scene) -> None:
    code = issue_sign_in_code(scene.service, scene.users["ana"])
    client = scene.client(None)
    assert client.get("/sign-in", params={"code": code}, headers={"Sec-Purpose": "prefetch"}).status_code == 401
    assert client.get("/sign-in", params={"code": code}).status_code == 303
    assert client.get(f"{API}/session").json()["name"] == "ana"
    assert scene.client(None).get("/sign-in", params={"code": code}).status_code == 401
    assert client.delete(f"{API}/session", headers=CHANGE).status_code == 204
    assert client.get(f"{API}/session").status_code == 401


def test_changes_by_cookie_need_proof_of_their_origin(local: Scene) -> None:
    client, body = sign_in(local, "ana"), {"name": "v1"}
    assert client.post(f"{PETS}/labels", json=body).status_code == 403
    for foreign in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "null"}):
        assert client.post(f"{PETS}/labels", json=body, headers={**CHANGE, **foreign}).status_code == 403
    own = {**CHANGE, "Origin": "http://127.0.0.1"}
    assert client.post(f"{PETS}/labels", json=body, headers=own).status_code == 201


def test_other_host_names_are_refused(local: Scene) -> None:
    """A site can point its name at a loopback address, so only known names are answered."""
    for host in ("evil.example", "evil.example:80", "", "127.0.0.1.evil.example", "[::1].evil"):
        assert local["ana"].get(PETS, headers={"Host": host}).status_code == 400
    for host in ("localhost:8765", "127.0.0.1", "[::1]:99"):
        assert local["ana"].get(PETS, headers={"Host": host}).status_code == 200


def test_guessing_is_slowed_down(local: Scene) -> None:
    client = local.client("wd_" + "0" * 40)
    answers = [client.get(PETS) for _ in range(25)]
    assert [one.status_code for one in answers] == [401] * 20 + [429] * 5
    assert 1 <= int(answers[-1].headers["retry-after"]) <= 61
    assert client.get("/sign-in", params={"code": "0" * 40}, headers={"Authorization": ""}).status_code == 429


def test_without_a_secret_nothing_answers(local: Scene) -> None:
    stranger = local.client(None)
    for method, path in operations(local["ana"]):
        if path not in PUBLIC:
            assert ask(stranger, method, path, dict.fromkeys(IDS, "0" * 32)) == 401, path
    assert stranger.get("/metrics").status_code == 401
    assert local["ana"].get("/metrics").status_code == 404
    assert b"warp_requests_total" in local["root"].get("/metrics").content


def test_strangers_are_not_let_in_from_other_machines() -> None:
    check_options(ServiceOptions(requires_sign_in=False))
    for options in (
        ServiceOptions(host="0.0.0.0", requires_sign_in=False),  # noqa: S104 - is refused
        ServiceOptions(host="::", requires_sign_in=False, public_url="https://data.example"),
        ServiceOptions(host="192.168.1.2"),
    ):
        with pytest.raises(BadInputError):
            check_options(options)
    check_options(ServiceOptions(host="::", public_url="https://data.example"))


def test_a_cookie_for_https_is_bound_to_its_host(make_scene: Callable[..., Scene], tmp_path: Path) -> None:
    scene = make_scene(f"sqlite:///{tmp_path}/s.db", ServiceOptions(public_url="https://data.example"))
    client = TestClient(scene.client(None).app, base_url="https://data.example", follow_redirects=False)
    answer = client.get("/sign-in", params={"code": issue_sign_in_code(scene.service, scene.users["ana"])})
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith("__Host-warp=")
    assert "Secure" in cookie
    assert "Path=/" in cookie
    assert "Domain" not in cookie


def test_the_audit_log_shows_what_was_altered(scene: Scene) -> None:
    for name in ("v1", "v2", "v3"):
        assert scene["ana"].post(f"{PETS}/labels", json={"name": name}).status_code == 201
    entries = scene["ana"].get(f"{API}/audit", params={"workspace": "acme"}).json()["entries"]
    assert [(one["actor"], one["action"]) for one in entries] == [("ana", "create-label")] * 3
    assert find_tampering(scene.service) is None
    with scene.service.database.write() as db:
        db.execute(update(AuditRow).where(AuditRow.sequence == 2).values(actor="vera"))
    assert find_tampering(scene.service) == 2


def test_the_last_audit_entry_cannot_be_removed_unseen(local: Scene) -> None:
    local["ana"].post(f"{PETS}/labels", json={"name": "v1"})
    with local.service.database.write() as db:
        db.delete(db.get_one(AuditRow, 1))
    assert find_tampering(local.service) == 1


def test_many_replicas_append_to_one_chain(scene: Scene) -> None:
    """Two entries with one predecessor would break the chain."""
    assert scene["ana"].get(PETS).status_code == 200  # the routes are built by the first request
    with ThreadPoolExecutor(8) as pool:
        answers = [*pool.map(lambda at: scene["ana"].post(f"{PETS}/labels", json={"name": f"v{at}"}), range(16))]
    assert {one.status_code for one in answers} == {201}
    assert find_tampering(scene.service) is None
    assert len(scene["root"].get(f"{API}/audit").json()["entries"]) == 16
