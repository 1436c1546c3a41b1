"""S3 keys of the caller, for tools that speak S3. Only a user who signed in makes and ends them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response
from pydantic import Field, StringConstraints

from warpdata.errors import BadInputError
from warpdata.limits import MAX_NAME_LENGTH, MAX_S3_KEY_DAYS
from warpdata.server.access import (
    Action,
    AuditEntry,
    NewS3Key,
    Place,
    S3KeyRing,
    authorize,
    authorize_credentials,
    create_s3_key,
    list_s3_keys,
    record,
    revoke_s3_key,
)
from warpdata.server.caller import LOCAL_USER, Caller, Once, ServiceOf
from warpdata.server.routes.parameters import Answer, Body, RefName
from warpdata.server.s3 import KeyRight, S3Grant

__all__ = ["router"]

router = APIRouter(prefix="/s3-keys", tags=["S3 keys"])
_Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_-]+$", max_length=MAX_NAME_LENGTH)]
AccessKey = Annotated[str, Path(pattern=r"^[A-Z2-7]{20}$")]
_ACTIONS = {KeyRight.RO: Action.READ, KeyRight.INBOX: Action.LABEL, KeyRight.HEAD: Action.WRITE}


class NewS3KeyBody(Body):
    """What a key shall be good for: a workspace, one dataset of it, or one version. Without days, until it is ended."""

    name: Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f]+$", max_length=MAX_NAME_LENGTH)]
    right: KeyRight = Field(
        KeyRight.RO, strict=False, description="`ro` reads; `inbox` also sends labels; `head` also adds images."
    )
    workspace: _Name
    dataset: _Name | None = None
    ref: RefName | None = None
    days: Annotated[int, Field(ge=1, le=MAX_S3_KEY_DAYS)] | None = None


class S3KeyView(Answer):
    """A key without its secret."""

    access_key: str
    name: str
    right: str
    workspace: str
    dataset: str
    ref: str
    created: str
    expires: str | None
    revoked: str | None


class S3KeyList(Answer):
    """The keys of the caller."""

    keys: list[S3KeyView]


class IssuedS3KeyView(S3KeyView):
    """A new key. `secret_key` is shown once. `endpoint` is the address for tools."""

    secret_key: str
    endpoint: str


@router.get("", summary="List S3 keys")
def get_s3_keys(service: ServiceOf, caller: Caller) -> S3KeyList:
    """List the S3 keys of the caller, also those that have expired or were revoked."""
    return S3KeyList(keys=[S3KeyView.model_validate(row) for row in list_s3_keys(service, caller.user_id)])


@router.post("", summary="Create an S3 key", status_code=201, response_model=IssuedS3KeyView)
def post_s3_key(request: Request, service: ServiceOf, caller: Caller, body: NewS3KeyBody, once: Once) -> Response:
    """Create a key for tools that speak S3. Its secret is in the answer, and nowhere else."""
    authorize_credentials(caller)
    if caller.user_id == LOCAL_USER:
        raise BadInputError(
            "a service without sign-in has no users, and a key belongs to one",
            hint="`warp server user NAME --admin`, then `warp server s3-key NAME WORKSPACE`.",
        )
    if body.ref is not None and body.dataset is None:
        raise BadInputError("a ref needs its dataset")
    place = Place(body.workspace, body.dataset)
    authorize(caller, _ACTIONS[body.right], place)

    def work() -> IssuedS3KeyView:
        grant = S3Grant(body.right, body.workspace, body.dataset, body.ref)
        issued = create_s3_key(service, caller.user_id, NewS3Key(body.name, grant, body.days))
        with service.database.write() as db:
            detail = {"key": issued.row.access_key, "right": body.right.value, "ref": body.ref or ""}
            record(service, db, caller, AuditEntry("create-s3-key", body.name, place, detail))
        base = (service.options.public_url or str(request.base_url)).rstrip("/")
        shown = S3KeyView.model_validate(issued.row).model_dump()
        return IssuedS3KeyView(**shown, secret_key=issued.secret, endpoint=f"{base}/s3")

    return once.answer(work, keeps_body=False)


@router.delete("/{access_key}", summary="Revoke an S3 key", status_code=204)
def delete_s3_key(request: Request, service: ServiceOf, caller: Caller, access_key: AccessKey) -> Response:
    """End a key, and the URLs that were signed with it. Other processes of the service notice within a second."""
    authorize_credentials(caller)
    revoke_s3_key(service, caller.user_id, access_key)
    with service.database.write() as db:
        record(service, db, caller, AuditEntry("revoke-s3-key", access_key))
    keys: S3KeyRing = request.app.state.s3_keys
    keys.forget()
    return Response(status_code=204)
