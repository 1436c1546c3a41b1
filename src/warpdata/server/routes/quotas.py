"""Quotas: what a workspace holds, and the most that it may."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from pydantic import Field

from warpdata.server.access import Action, AuditEntry, Place, authorize, authorize_admin, record
from warpdata.server.caller import Caller, ServiceOf
from warpdata.server.quotas import Usage, find_usage, set_quota
from warpdata.server.routes.parameters import Answer, Body, WorkspaceName

__all__ = ["router"]

router = APIRouter(prefix="/workspaces/{workspace}/quota", tags=["workspaces"])
_Count = Annotated[int, Field(ge=0, lt=2**62)]


class QuotaBody(Body):
    """The most that a workspace may hold. Null is no limit."""

    max_bytes: _Count | None
    max_files: _Count | None


class QuotaView(Answer):
    """What a workspace holds: the heads of its datasets, and files of uploads without a commit."""

    workspace: str
    used_bytes: int
    used_files: int
    max_bytes: int | None
    max_files: int | None


@router.get("", summary="Show the quota of a workspace")
def get_quota(service: ServiceOf, caller: Caller, workspace: WorkspaceName) -> QuotaView:
    """Show what a workspace holds, and the most that it may."""
    authorize(caller, Action.READ, Place(workspace))
    return QuotaView.model_validate(find_usage(service, workspace))


@router.put("", summary="Limit a workspace")
def put_quota(service: ServiceOf, caller: Caller, workspace: WorkspaceName, body: QuotaBody) -> QuotaView:
    """Set the quota of a workspace. Administrators may. What is stored stays, also if it is more."""
    authorize(caller, Action.READ, Place(workspace))
    authorize_admin(caller, f"quota of {workspace!r} to set")
    usage: Usage = set_quota(service, workspace, body.max_bytes, body.max_files)
    with service.database.write() as db:
        record(service, db, caller, AuditEntry("set-quota", workspace, Place(workspace), body.model_dump()))
    return QuotaView.model_validate(usage)
