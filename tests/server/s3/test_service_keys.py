"""If this fails, an S3 key of the service outlives its end or its user, or does what its user may not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import boto3
import psycopg
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from sqlalchemy import select

import warpdata as wd
from tests.server.conftest import Scene
from tests.server.running import running
from warpdata.collections import InboxFiles
from warpdata.errors import BadInputError
from warpdata.server import (
    NewS3Key,
    Place,
    Role,
    create_s3_key,
    find_tampering,
    issue_sign_in_code,
    revoke_s3_key,
    set_role,
)
from warpdata.server.access import S3KeyRing
from warpdata.server.database import AuditRow, S3KeyRow, UserRow
from warpdata.server.s3 import KeyRight, parse_grant

API = "/api/v1/s3-keys"
CHANGE = {"X-Warp-Request": "1"}


@contextmanager
def client_of(url: str, access_key: str, secret: str) -> Iterator[Any]:
    made = boto3.client(
        "s3",
        endpoint_url=f"{url}/s3",
        aws_access_key_id=access_key,
        aws_secret_access_key=secret,
        region_name="us-east-1",
        config=Config(retries={"total_max_attempts": 1}),
    )
    yield made
    made.close()


def issue(scene: Scene, user: str, place: str, right: str = "ro", days: int | None = None) -> tuple[str, str]:
    new = NewS3Key("test", parse_grant(place, KeyRight(right)), days)
    issued = create_s3_key(scene.service, scene.users[user], new)
    return issued.row.access_key, issued.secret


def code(client: Any, operation: str, **options: Any) -> str:
    try:
        getattr(client, operation)(**options)
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    return ""


def test_a_key_does_what_its_user_may(local: Scene) -> None:
    wd.create_collection("acme/zoo", store=local.store)
    wd.collection("acme/zoo", store=local.store).add("a.jpg", b"a")
    with running(local.service) as url, ExitStack() as stack:

        def client(user: str, place: str, right: str) -> Any:
            return stack.enter_context(client_of(url, *issue(local, user, place, right)))

        owner, viewer, stranger = (
            client("ana", "acme", "head"),
            client("vera", "acme", "head"),
            client("rita", "acme", "head"),
        )
        for one in (owner, viewer):
            assert code(one, "get_object", Bucket="acme", Key="pets/HEAD/images/cats/1.png") == ""
            assert [bucket["Name"] for bucket in one.list_buckets()["Buckets"]] == ["acme"]
        assert stranger.list_buckets()["Buckets"] == []
        assert code(stranger, "get_object", Bucket="acme", Key="pets/HEAD/images/cats/1.png") == "NoSuchKey"
        assert code(stranger, "list_objects_v2", Bucket="acme") == "NoSuchBucket"
        assert code(stranger, "list_objects_v2", Bucket="rival") == "NoSuchBucket"  # the key is for acme
        assert code(viewer, "put_object", Bucket="acme", Key="zoo/HEAD/inbox/1", Body=b"x") == "AccessDenied"
        assert code(stranger, "put_object", Bucket="acme", Key="zoo/HEAD/inbox/1", Body=b"x") == "NoSuchKey"
        assert code(owner, "put_object", Bucket="acme", Key="zoo/HEAD/inbox/1", Body=b"label") == ""
        assert code(owner, "put_object", Bucket="acme", Key="zoo/HEAD/images/b.jpg", Body=b"b") == ""
        assert wd.collection("acme/zoo", store=local.store).read("b.jpg") == b"b"
        set_role(local.service, local.users["vera"], Place("acme", "pets"), Role.NONE)
        with client_of(url, *issue(local, "vera", "acme")) as later:
            assert code(later, "get_object", Bucket="acme", Key="pets/HEAD/images/cats/1.png") == "NoSuchKey"
    entry = InboxFiles(local.service.session, "acme/zoo").find("HEAD", "1")
    assert entry is not None
    assert entry.author == "ana"
    with local.service.database.read() as db:
        rows = db.scalars(select(AuditRow).where(AuditRow.action.in_(["receive-label", "add-image"]))).all()
    assert [(row.action, row.actor, row.resource) for row in rows] == [
        ("receive-label", "ana", "acme/zoo"),
        ("add-image", "ana", "acme/zoo"),
    ]
    assert all(row.token_id.startswith("WD") and row.ip == "127.0.0.1" for row in rows)
    assert find_tampering(local.service) is None


def test_keys_are_made_listed_and_ended_by_their_user(local: Scene) -> None:
    ana, vera = signed_in(local, "ana"), signed_in(local, "vera")
    made = ana.post(API, json={"name": "tool", "workspace": "acme", "dataset": "pets", "days": 30}, headers=CHANGE)
    assert made.status_code == 201
    key = made.json()
    assert (len(key["access_key"]), len(key["secret_key"]), key["right"]) == (20, 40, "ro")
    assert key["endpoint"].endswith("/s3")
    listed = ana.get(API).json()["keys"]
    assert [one["access_key"] for one in listed] == [key["access_key"]]
    assert "secret_key" not in listed[0]
    assert vera.get(API).json()["keys"] == []
    assert vera.delete(f"{API}/{key['access_key']}", headers=CHANGE).status_code == 404
    body = {"name": "x", "workspace": "acme", "right": "head"}
    assert vera.post(API, json=body, headers=CHANGE).status_code == 403
    assert vera.post(API, json={"name": "x", "workspace": "rival"}, headers=CHANGE).status_code == 404
    assert local["ana"].post(API, json=body).status_code == 403  # a token makes no credentials
    with running(local.service) as url, client_of(url, key["access_key"], key["secret_key"]) as client:
        presigned = client.generate_presigned_url("get_object", {"Bucket": "acme", "Key": "pets/HEAD/meta.json"})
        assert code(client, "head_bucket", Bucket="acme") == ""
        assert ana.delete(f"{API}/{key['access_key']}", headers=CHANGE).status_code == 204
        assert presigned
    keys = S3KeyRing(local.service)
    assert keys.find(key["access_key"], "") is None


def signed_in(scene: Scene, user: str) -> Any:
    client = scene.client(None)
    answer = client.get("/sign-in", params={"code": issue_sign_in_code(scene.service, scene.users[user])})
    assert answer.status_code == 303
    return client


def test_a_key_ends_with_its_time_its_revocation_and_its_user(local: Scene) -> None:
    service = local.service
    ended, revoked, kept = (issue(local, "ana", "acme", days=days)[0] for days in (1, None, None))
    assert all(S3KeyRing(service).find(key, "") for key in (ended, revoked, kept))
    revoke_s3_key(service, local.users["ana"], revoked)
    later = replace(service, session=replace(service.session, clock=lambda: wd_now(service) + timedelta(days=2)))
    assert [S3KeyRing(later).find(key, "") is not None for key in (ended, revoked, kept)] == [False, False, True]
    with service.database.write() as db:
        db.get_one(UserRow, local.users["ana"]).is_active = False
    assert S3KeyRing(later).find(kept, "") is None


def wd_now(service: Any) -> Any:
    return service.session.clock()


def test_a_revoked_key_is_refused_by_a_running_service_within_a_second(local: Scene) -> None:
    seconds = [0.0]
    service = replace(local.service, session=replace(local.service.session, timer=lambda: seconds[0]))
    keys, (access_key, _) = S3KeyRing(service), issue(local, "ana", "acme")
    assert keys.find(access_key, "") is not None
    revoke_s3_key(service, local.users["ana"], access_key)
    seconds[0] = 1.0
    assert keys.find(access_key, "") is None


def test_the_database_has_no_secret_and_a_new_master_key_ends_all_keys(
    make_scene: Callable[..., Scene],
    tmp_path: Path,
) -> None:
    scene = make_scene(f"sqlite:///{tmp_path}/keys.db")
    access_key, secret = issue(scene, "ana", "acme")
    master = tmp_path / "keys.db.s3-master-key"
    assert master.stat().st_mode & 0o777 == 0o600
    with scene.service.database.read() as db:
        row = db.get_one(S3KeyRow, access_key)
        stored = " ".join(str(getattr(row, column.name)) for column in S3KeyRow.__table__.columns)
    assert secret not in stored
    assert master.read_bytes().hex() not in stored
    found = S3KeyRing(scene.service).find(access_key, "")
    assert found is not None
    assert found.secret == secret
    master.write_bytes(b"x" * 32)
    assert S3KeyRing(scene.service).find(access_key, "") is None
    session = scene.service.session
    short = replace(session, settings=replace(session.settings, s3_master_key="short"))
    with pytest.raises(BadInputError, match="WARP_S3_MASTER_KEY"):
        create_s3_key(
            replace(scene.service, session=short), scene.users["ana"], NewS3Key("x", parse_grant("acme", KeyRight.RO))
        )


def test_a_service_with_postgresql_asks_for_a_master_key(make_scene: Callable[..., Scene], postgresql: str) -> None:
    with psycopg.connect(f"{postgresql}/postgres", autocommit=True) as connection:
        connection.execute("CREATE DATABASE s3_keys")
    scene = make_scene(f"{postgresql}/s3_keys")
    with pytest.raises(BadInputError, match="WARP_S3_MASTER_KEY"):
        issue(scene, "ana", "acme")
    session = scene.service.session
    given = replace(session, settings=replace(session.settings, s3_master_key="k" * 64))
    service = replace(scene.service, session=given)
    issued = create_s3_key(service, scene.users["ana"], NewS3Key("x", parse_grant("acme", KeyRight.RO)))
    found = S3KeyRing(service).find(issued.row.access_key, "")
    assert found is not None
    assert found.secret == issued.secret
