"""Who the caller is, and signing out."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from warpdata.server.access import AuditEntry, authorize_credentials, end_sign_in, record
from warpdata.server.caller import Caller, ServiceOf, cookie_name
from warpdata.server.routes.parameters import Answer

__all__ = ["router"]

router = APIRouter(prefix="/session", tags=["session"])


class CallerView(Answer):
    """The user of the request. `reach` narrows a token to a workspace or dataset."""

    user_id: str
    name: str
    is_admin: bool
    scope: str
    reach: str | None
    by_token: bool
    workspaces: dict[str, str]


@router.get("", summary="Who am I?")
def get_session(caller: Caller) -> CallerView:
    return CallerView(
        user_id=caller.user_id,
        name=caller.name,
        is_admin=caller.roles.is_admin,
        scope=caller.scope,
        reach=str(caller.reach) if caller.reach else None,
        by_token=bool(caller.token_id),
        workspaces={name: role.value for name, role in sorted(caller.roles.workspaces.items())},
    )


@router.delete("", status_code=204, summary="Sign out")
def sign_out(request: Request, service: ServiceOf, caller: Caller) -> Response:
    """End the sign-in of this browser. Tokens stay."""
    authorize_credentials(caller)
    name = cookie_name(service)
    end_sign_in(service, request.cookies.get(name, ""))
    with service.database.write() as db:
        record(service, db, caller, AuditEntry("sign-out", f"user {caller.name}"))
    answer = Response(status_code=204)
    answer.delete_cookie(name, path="/", secure=name.startswith("__Host-"), httponly=True, samesite="lax")
    return answer
