"""Users, sign-in links, signed-in browsers and personal tokens.

Every secret has 160 random bits and is stored as its SHA-256. It is found by that hash, so a comparison leaks nothing
about other secrets. A fast hash is enough, because secrets are random and not chosen by people.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sqlalchemy import delete, select
from sqlalchemy.exc import IntegrityError

from warpdata.errors import AlreadyExistsError, AuthenticationError, BadInputError, NotFoundError
from warpdata.primitives.hashing import sha256_hex
from warpdata.server.access.roles import Place, Principal, Role, Scope, load_roles
from warpdata.server.database import MemberRow, SignInCodeRow, SignInRow, TokenRow, UserRow
from warpdata.server.service import Service

__all__ = [
    "SIGN_IN_S",
    "TOKEN_PREFIX",
    "IssuedToken",
    "NewToken",
    "begin_sign_in",
    "create_token",
    "create_user",
    "end_sign_in",
    "find_sign_in",
    "find_token",
    "find_user",
    "is_user_name",
    "issue_sign_in_code",
    "list_tokens",
    "recall_sign_in",
    "recall_token",
    "redeem_sign_in_code",
    "revoke_token",
    "set_role",
]

_USER_NAME = re.compile(r"[A-Za-z0-9._@+-]{1,128}")
TOKEN_PREFIX = "wd_"  # noqa: S105 - not a password
SIGN_IN_S = 14 * 24 * 3600
SIGN_IN_CODE_S = 15 * 60
MAX_TOKEN_DAYS = 366
_INVALID_TOKEN = "the token is not valid: unknown, expired or revoked"  # noqa: S105 - not a password


@dataclass(frozen=True, slots=True)
class NewToken:
    """What a token shall be good for. Without a reach, all that the user sees."""

    name: str
    scope: Scope
    days: int
    reach: Place | None = None


@dataclass(frozen=True, slots=True)
class _Identity:
    """A principal, and when what it presented expires."""

    principal: Principal
    expires: str


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """A token with its secret, which is shown once and cannot be read again."""

    row: TokenRow
    secret: str


def create_user(service: Service, name: str, *, is_admin: bool = False) -> UserRow:
    """Create a user. `AlreadyExistsError` if the name is taken."""
    if not is_user_name(name):
        raise BadInputError(
            f"{name[:200]!r} is not the name of a user",
            hint="Write letters, digits and . _ @ + -, such as ana@acme",
        )
    row = UserRow(id=service.new_id(), name=name, is_admin=is_admin, is_active=True, created=service.now())
    try:
        with service.database.write() as db:
            db.add(row)
    except IntegrityError as error:  # names are unique
        raise AlreadyExistsError(f"there is a user {name!r} already", hint="Choose another name.") from error
    return row


def is_user_name(name: str) -> bool:
    """Return whether a user can be called so."""
    return _USER_NAME.fullmatch(name) is not None


def find_user(service: Service, name: str) -> UserRow:
    """Return the user of this name."""
    with service.database.read() as db:
        row = db.scalar(select(UserRow).where(UserRow.name == name))
    if row is None:
        raise NotFoundError(f"there is no user {name!r}", hint="`warp server user NAME` creates one.")
    return row


def set_role(service: Service, user_id: str, place: Place, role: Role) -> None:
    """Give a user a role in a workspace or for a dataset, in place of the role before. `NONE` ends a membership."""
    with service.database.write() as db:
        key = (user_id, place.workspace, place.dataset or "")
        row = db.get(MemberRow, key)
        if role is Role.NONE and place.dataset is None:
            if row is not None:
                db.delete(row)
        elif row is None:
            db.add(MemberRow(user_id=user_id, workspace=key[1], dataset=key[2], role=role))
        else:
            row.role = role


def issue_sign_in_code(service: Service, user_id: str) -> str:
    """Return a code that signs the user in once, within a quarter of an hour."""
    code = service.new_secret()
    with service.database.write() as db:
        db.execute(delete(SignInCodeRow).where(SignInCodeRow.expires <= service.now()))
        db.add(SignInCodeRow(hash=_hashed(code), user_id=user_id, expires=service.later(SIGN_IN_CODE_S)))
    return code


def redeem_sign_in_code(service: Service, code: str) -> tuple[UserRow, str]:
    """Return the user of a code and the secret of a new sign-in. The code is used up."""
    with service.database.write() as db:
        found = db.get(SignInCodeRow, _hashed(code))
        if found is not None:
            db.delete(found)
        user = None if found is None or found.expires <= service.now() else db.get(UserRow, found.user_id)
    if user is None or not user.is_active:
        raise AuthenticationError(
            "the sign-in link was used before, or has expired", hint="`warp server link` prints a new one."
        )
    return user, begin_sign_in(service, user.id)


def begin_sign_in(service: Service, user_id: str) -> str:
    """Sign a user in whose identity was checked, and return the secret of the cookie."""
    secret = service.new_secret()
    with service.database.write() as db:
        db.execute(delete(SignInRow).where(SignInRow.expires <= service.now()))
        expires = service.later(SIGN_IN_S)
        db.add(SignInRow(hash=_hashed(secret), user_id=user_id, created=service.now(), expires=expires))
    return secret


def find_sign_in(service: Service, secret: str) -> Principal | None:
    """Return the principal of a cookie; None if it has expired or was signed out."""
    key = ("sign-in", _hashed(secret))
    found: _Identity | None = service.identities.ask(key, lambda: _read_sign_in(service, key[1]))
    return None if found is None else found.principal


def recall_sign_in(service: Service, secret: str) -> Principal | None:
    """Return the principal of a cookie that was found within the last second. Asks nothing of the database."""
    return _recalled(service, ("sign-in", _hashed(secret)))


def _read_sign_in(service: Service, hashed: str) -> _Identity | None:
    with service.database.read() as db:
        row = db.get(SignInRow, hashed)
        user = None if row is None or row.expires <= service.now() else db.get(UserRow, row.user_id)
        if row is None or user is None or not user.is_active:
            return None
        principal = Principal(user.id, user.name, load_roles(db, user.id, is_admin=user.is_admin))
        return _Identity(principal, row.expires)


def _recalled(service: Service, key: tuple[str, str]) -> Principal | None:
    found: _Identity | None = service.identities.recall(key)
    return None if found is None or found.expires <= service.now() else found.principal


def end_sign_in(service: Service, secret: str) -> None:
    """Sign out. The cookie is worthless from now on."""
    with service.database.write() as db:
        db.execute(delete(SignInRow).where(SignInRow.hash == _hashed(secret)))


def create_token(service: Service, user_id: str, new: NewToken) -> IssuedToken:
    """Create a personal token. It may do what its user may, within its scope and reach, until it expires."""
    if not 1 <= new.days <= MAX_TOKEN_DAYS:
        raise BadInputError(f"days={new.days} is not within 1 … {MAX_TOKEN_DAYS}", hint="Tokens expire within a year.")
    secret = service.new_secret(TOKEN_PREFIX)
    row = TokenRow(
        id=service.new_id(),
        hash=_hashed(secret),
        user_id=user_id,
        name=new.name,
        scope=new.scope,
        workspace=new.reach.workspace if new.reach else "",
        dataset=(new.reach.dataset or "") if new.reach else "",
        created=service.now(),
        expires=service.later(new.days * 24 * 3600),
        revoked=None,
    )
    with service.database.write() as db:
        db.add(row)
    return IssuedToken(row, secret)


def find_token(service: Service, secret: str) -> Principal:
    """Return the principal of a token. `AuthenticationError` if it is unknown, expired or revoked."""
    key = ("token", _hashed(secret))
    found: _Identity | None = service.identities.ask(key, lambda: _read_token(service, key[1]))
    if found is None:
        raise AuthenticationError(_INVALID_TOKEN, hint="Create another, and send it as `Authorization: Bearer`.")
    return found.principal


def recall_token(service: Service, secret: str) -> Principal | None:
    """Return the principal of a token that was found within the last second. Asks nothing of the database."""
    return _recalled(service, ("token", _hashed(secret)))


def _read_token(service: Service, hashed: str) -> _Identity | None:
    with service.database.read() as db:
        row = db.scalar(select(TokenRow).where(TokenRow.hash == hashed))
        user = None if row is None else db.get(UserRow, row.user_id)
        if row is None or user is None or not user.is_active or not is_live(row, service.now()):
            return None
        roles = load_roles(db, user.id, is_admin=user.is_admin)
    reach = Place(row.workspace, row.dataset or None) if row.workspace else None
    return _Identity(Principal(user.id, user.name, roles, Scope(row.scope), reach, row.id), row.expires)


def list_tokens(service: Service, user_id: str) -> list[TokenRow]:
    """Return the tokens of a user, oldest first, also those that have ended."""
    query = select(TokenRow).where(TokenRow.user_id == user_id).order_by(TokenRow.created, TokenRow.id)
    with service.database.read() as db:
        return list(db.scalars(query))


def is_live(row: TokenRow, now: str) -> bool:
    """Return whether a token can be used."""
    return row.revoked is None and row.expires > now


def revoke_token(service: Service, user_id: str, token_id: str) -> None:
    """End a token of a user, and the signed URLs that were made with it. Repeating it changes nothing."""
    with service.database.write() as db:
        row = db.get(TokenRow, token_id)
        if row is None or row.user_id != user_id:
            raise NotFoundError(f"there is no token {token_id!r}")
        row.revoked = row.revoked or service.now()


def _hashed(secret: str) -> str:
    return sha256_hex(secret.encode("utf-8", "surrogateescape"))
