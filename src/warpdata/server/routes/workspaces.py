"""Workspaces, and the roles of users in them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Response
from pydantic import Field
from sqlalchemy import func, select

from warpdata.limits import MAX_NAME_LENGTH
from warpdata.server.access import (
    Action,
    AuditEntry,
    Place,
    Role,
    authorize,
    authorize_credentials,
    find_user,
    record,
    set_role,
)
from warpdata.server.caller import Caller, ServiceOf
from warpdata.server.database import DatasetRow, MemberRow, UserRow
from warpdata.server.routes.parameters import Answer, Body, DatasetName, WorkspaceName

__all__ = ["router"]

router = APIRouter(prefix="/workspaces", tags=["workspaces"])

UserName = Annotated[str, Path(pattern=r"^[A-Za-z0-9._@+-]+$", max_length=MAX_NAME_LENGTH)]


class WorkspaceView(Answer):
    """A workspace, with the number of datasets in the index and the role of the caller."""

    name: str
    role: str
    datasets: int


class WorkspaceList(Answer):
    """The workspaces that the caller sees."""

    workspaces: list[WorkspaceView]


class MemberView(Answer):
    """A role of a user. Without a dataset, it is for the whole workspace."""

    user: str
    dataset: str | None
    role: Role


class MemberList(Answer):
    """The members of a workspace."""

    members: list[MemberView]


class RoleBody(Body):
    """A role to give."""

    role: Role = Field(strict=False)


@router.get("", summary="List workspaces")
def list_workspaces(service: ServiceOf, caller: Caller) -> WorkspaceList:
    """List the workspaces that the caller may read. The default of a new service is empty."""
    with service.database.read() as db:
        query = select(DatasetRow.workspace, func.count()).group_by(DatasetRow.workspace)
        counts = {row[0]: row[1] for row in db.execute(query)}
    names = sorted({*counts, *caller.roles.workspaces})
    visible = [name for name in names if caller.may(Action.READ, Place(name))]
    return WorkspaceList(
        workspaces=[
            WorkspaceView(name=name, role=caller.role_at(Place(name)), datasets=counts.get(name, 0)) for name in visible
        ]
    )


@router.get("/{workspace}/members", summary="List members")
def list_members(service: ServiceOf, caller: Caller, workspace: WorkspaceName) -> MemberList:
    """List the roles in a workspace. Owners may."""
    authorize(caller, Action.MANAGE, Place(workspace))
    query = select(MemberRow, UserRow.name).join(UserRow).where(MemberRow.workspace == workspace)
    with service.database.read() as db:
        rows = db.execute(query.order_by(UserRow.name, MemberRow.dataset)).all()
    return MemberList(
        members=[MemberView(user=name, dataset=row.dataset or None, role=Role(row.role)) for row, name in rows]
    )


@router.put("/{workspace}/members/{user}", summary="Give a role in a workspace", status_code=204)
def put_member(
    service: ServiceOf, caller: Caller, workspace: WorkspaceName, user: UserName, body: RoleBody
) -> Response:
    """Give a user a role in a workspace. `none` ends the membership."""
    return _give(service, caller, user, Place(workspace), body.role)


@router.put("/{workspace}/datasets/{name}/members/{user}", summary="Give a role for a dataset", status_code=204)
def put_dataset_member(
    service: ServiceOf, caller: Caller, workspace: WorkspaceName, name: DatasetName, user: UserName, body: RoleBody
) -> Response:
    """Give a user a role for one dataset, in place of that in the workspace. `none` hides the dataset."""
    return _give(service, caller, user, Place(workspace, name), body.role)


def _give(service: ServiceOf, caller: Caller, user: str, place: Place, role: Role) -> Response:
    authorize(caller, Action.MANAGE, Place(place.workspace))
    authorize_credentials(caller)
    found = find_user(service, user)
    set_role(service, found.id, place, role)
    with service.database.write() as db:
        record(service, db, caller, AuditEntry("set-role", str(place), place, {"user": found.name, "role": role.value}))
    return Response(status_code=204)
