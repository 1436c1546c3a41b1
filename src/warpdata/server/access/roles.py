"""Roles, and the one decision: may this principal do this action in this place?

A place that a principal may not read does not exist for it: the error is the same as for a name that was never used.
A place that it may read, and not change, is denied.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from sqlalchemy import select
from sqlalchemy.orm import Session as OrmSession

from warpdata.errors import AccessDeniedError, ErrorKind, NotFoundError
from warpdata.server.database import MemberRow
from warpdata.server.service import no_dataset

__all__ = [
    "Action",
    "Place",
    "Principal",
    "Role",
    "Roles",
    "Scope",
    "authorize",
    "authorize_admin",
    "authorize_credentials",
    "load_roles",
]


class Role(StrEnum):
    """What a user is in a workspace or for a dataset. `NONE` hides a dataset from a member of its workspace."""

    NONE = "none"
    VIEWER = "viewer"
    LABELER = "labeler"
    MAINTAINER = "maintainer"
    OWNER = "owner"


class Action(StrEnum):
    """A kind of work. Each needs a role, and a scope of a token."""

    READ = "read"
    LABEL = "label"
    WRITE = "write"
    MANAGE = "manage"


class Scope(StrEnum):
    """The most that a token may do, whatever its user may."""

    READ = "read"
    WRITE = "write"
    MANAGE = "manage"


_RANKS = {role: rank for rank, role in enumerate(Role)}
_NEEDED_ROLE = {
    Action.READ: Role.VIEWER,
    Action.LABEL: Role.LABELER,
    Action.WRITE: Role.MAINTAINER,
    Action.MANAGE: Role.OWNER,
}
_ALLOWED = {
    Scope.READ: {Action.READ},
    Scope.WRITE: {Action.READ, Action.LABEL, Action.WRITE},
    Scope.MANAGE: set(Action),
}


@dataclass(frozen=True, slots=True)
class Place:
    """A workspace, or one dataset of it."""

    workspace: str
    dataset: str | None = None

    def __str__(self) -> str:
        return self.workspace if self.dataset is None else f"{self.workspace}/{self.dataset}"


@dataclass(frozen=True, slots=True)
class Roles:
    """The roles of a user, by workspace and by dataset."""

    is_admin: bool
    workspaces: dict[str, Role] = field(default_factory=dict)
    datasets: dict[tuple[str, str], Role] = field(default_factory=dict)

    def at(self, place: Place) -> Role:
        """Return the role in a place: that for the dataset, else that for the workspace."""
        if self.is_admin:
            return Role.OWNER
        role = self.workspaces.get(place.workspace, Role.NONE)
        return role if place.dataset is None else self.datasets.get((place.workspace, place.dataset), role)


@dataclass(frozen=True, slots=True)
class Principal:
    """A user as a request presents itself: signed in, or by a token that narrows what the user may."""

    user_id: str
    name: str
    roles: Roles
    scope: Scope = Scope.MANAGE
    reach: Place | None = None
    """The workspace or dataset that a token is for; None for all."""
    token_id: str = ""
    ip: str = ""

    def reaches(self, place: Place) -> bool:
        """Return whether the token covers a place."""
        if self.reach is None:
            return True
        return place.workspace == self.reach.workspace and self.reach.dataset in (None, place.dataset)

    def role_at(self, place: Place) -> Role:
        return self.roles.at(place) if self.reaches(place) else Role.NONE

    def may(self, action: Action, place: Place) -> bool:
        """Return whether role and scope allow the action."""
        return action in _ALLOWED[self.scope] and _RANKS[self.role_at(place)] >= _RANKS[_NEEDED_ROLE[action]]


def authorize(principal: Principal, action: Action, place: Place) -> None:
    """Return if the principal may do this. `NotFoundError` if it may not even read the place."""
    if not principal.may(Action.READ, place):
        raise no_dataset(str(place)) if place.dataset else no_workspace(place.workspace)
    if not principal.may(action, place):
        held = f"the scope {principal.scope!r}" if principal.token_id else f"the role {principal.role_at(place)!r}"
        raise AccessDeniedError(
            f"{held} does not allow to {action} in {place}",
            hint=f"It takes the role {_NEEDED_ROLE[action]!r}; an owner of the workspace gives roles.",
        )


def authorize_admin(principal: Principal, what: str) -> None:
    """Return for an administrator. For others, what belongs to the whole service does not exist."""
    if not principal.roles.is_admin or principal.reach is not None or Action.MANAGE not in _ALLOWED[principal.scope]:
        raise NotFoundError(f"there is no {what}", kind=ErrorKind.NOT_FOUND)


def authorize_credentials(principal: Principal) -> None:
    """Return for a user who signed in. A token never makes or changes credentials."""
    if principal.token_id:
        raise AccessDeniedError("a token cannot create or change credentials", hint="Sign in with a browser.")


def no_workspace(name: str) -> NotFoundError:
    """Return the error for a workspace that does not exist, or that the user may not see."""
    return NotFoundError(f"there is no workspace {name!r}", kind=ErrorKind.NOT_FOUND)


def load_roles(db: OrmSession, user_id: str, *, is_admin: bool) -> Roles:
    """Read the roles of a user."""
    if is_admin:
        return Roles(is_admin=True)
    rows = db.scalars(select(MemberRow).where(MemberRow.user_id == user_id)).all()
    return Roles(
        is_admin=False,
        workspaces={row.workspace: Role(row.role) for row in rows if not row.dataset},
        datasets={(row.workspace, row.dataset): Role(row.role) for row in rows if row.dataset},
    )
