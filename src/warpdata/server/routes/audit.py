"""The audit log, for owners of a workspace and administrators."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from sqlalchemy import select

from warpdata.limits import MAX_NAME_LENGTH
from warpdata.server.access import Action, Place, authorize, authorize_admin
from warpdata.server.caller import Caller, ServiceOf
from warpdata.server.database import AuditRow
from warpdata.server.routes.parameters import Answer

__all__ = ["router"]

router = APIRouter(prefix="/audit", tags=["audit"])


class AuditView(Answer):
    """An entry. `hash` covers it and the hash of the entry before."""

    sequence: int
    time: str
    actor: str
    token_id: str
    ip: str
    action: str
    workspace: str
    resource: str
    detail: str
    previous: str
    hash: str


class AuditList(Answer):
    """Entries, newest first."""

    entries: list[AuditView]
    next_cursor: int | None


@router.get("", summary="List audit entries")
def list_audit(
    service: ServiceOf,
    caller: Caller,
    workspace: Annotated[str | None, Query(pattern=r"^[a-z0-9_-]+$", max_length=MAX_NAME_LENGTH)] = None,
    cursor: Annotated[int | None, Query(ge=1, le=2**53)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> AuditList:
    """List what was done in a workspace; its owners may. Without a workspace, in the whole service."""
    if workspace is None:
        authorize_admin(caller, "audit log of the whole service")
    else:
        authorize(caller, Action.MANAGE, Place(workspace))
    query = select(AuditRow).order_by(AuditRow.sequence.desc()).limit(limit + 1)
    if workspace is not None:
        query = query.where(AuditRow.workspace == workspace)
    if cursor is not None:
        query = query.where(AuditRow.sequence < cursor)
    with service.database.read() as db:
        rows = db.scalars(query).all()
    following = rows[limit - 1].sequence if len(rows) > limit else None
    return AuditList(entries=[AuditView.model_validate(row) for row in rows[:limit]], next_cursor=following)
