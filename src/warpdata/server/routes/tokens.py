"""Personal tokens of the caller. Only a user who signed in makes and ends them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Response
from pydantic import Field, StringConstraints

from warpdata.errors import BadInputError
from warpdata.limits import MAX_NAME_LENGTH
from warpdata.server.access import (
    Action,
    AuditEntry,
    NewToken,
    Place,
    Scope,
    authorize,
    authorize_credentials,
    create_token,
    record,
    revoke_token,
)
from warpdata.server.access import list_tokens as find_tokens
from warpdata.server.caller import LOCAL_USER, Caller, Once, ServiceOf
from warpdata.server.routes.parameters import Answer, Body

__all__ = ["router"]

router = APIRouter(prefix="/tokens", tags=["tokens"])
_Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_-]+$", max_length=MAX_NAME_LENGTH)]
TokenId = Annotated[str, Path(pattern=r"^[0-9a-f]{32}$")]


class NewTokenBody(Body):
    """What a token shall be good for. Without a workspace, for all that its user sees."""

    name: Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f]+$", max_length=MAX_NAME_LENGTH)]
    scope: Scope = Field(Scope.READ, strict=False)
    days: Annotated[int, Field(ge=1, le=366)] = 90
    workspace: _Name | None = None
    dataset: _Name | None = None


class TokenView(Answer):
    """A token without its secret."""

    id: str
    name: str
    scope: str
    workspace: str
    dataset: str
    created: str
    expires: str
    revoked: str | None


class TokenList(Answer):
    """The tokens of the caller."""

    tokens: list[TokenView]


class IssuedTokenView(TokenView):
    """A new token. `secret` is shown once."""

    secret: str


@router.get("", summary="List tokens")
def list_tokens(service: ServiceOf, caller: Caller) -> TokenList:
    """List the tokens of the caller, also those that have expired or were revoked."""
    return TokenList(tokens=[TokenView.model_validate(row) for row in find_tokens(service, caller.user_id)])


@router.post("", summary="Create a token", status_code=201, response_model=IssuedTokenView)
def post_token(service: ServiceOf, caller: Caller, body: NewTokenBody, once: Once) -> Response:
    """Create a token. Its secret is in the answer, and nowhere else."""
    authorize_credentials(caller)
    if caller.user_id == LOCAL_USER:
        raise BadInputError("a service without sign-in needs no tokens")
    if body.dataset is not None and body.workspace is None:
        raise BadInputError("a dataset needs its workspace")
    reach = Place(body.workspace, body.dataset) if body.workspace else None
    if reach is not None:
        authorize(caller, Action.READ, reach)

    def work() -> IssuedTokenView:
        issued = create_token(service, caller.user_id, NewToken(body.name, body.scope, body.days, reach))
        with service.database.write() as db:
            detail = {"token": issued.row.id, "scope": body.scope.value, "reach": str(reach or "")}
            record(service, db, caller, AuditEntry("create-token", body.name, reach, detail))
        shown = TokenView.model_validate(issued.row)
        return IssuedTokenView(**shown.model_dump(), secret=issued.secret)

    return once.answer(work, keeps_body=False)


@router.delete("/{token_id}", summary="Revoke a token", status_code=204)
def delete_token(service: ServiceOf, caller: Caller, token_id: TokenId) -> Response:
    """End a token, and the signed URLs that were made with it."""
    authorize_credentials(caller)
    revoke_token(service, caller.user_id, token_id)
    with service.database.write() as db:
        record(service, db, caller, AuditEntry("revoke-token", token_id))
    return Response(status_code=204)
