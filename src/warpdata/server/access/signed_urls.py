"""URLs that read one file of one version, for a while, without a cookie or a token.

The URL carries what it grants and an HMAC over it, in letters that no program encodes again. It does what the user who
made it may do when it is used: it ends with its expiry, with the token that made it, and when the user may no longer
read the dataset. Retiring a signing key ends all URLs that it signed.
"""

from __future__ import annotations

import base64
import hmac
import json
from binascii import Error as Base64Error
from collections.abc import Callable, Hashable
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any

from sqlalchemy import select

from warpdata.errors import NotFoundError
from warpdata.server.access.credentials import is_live
from warpdata.server.access.roles import Place, Principal, Scope, load_roles
from warpdata.server.database import SigningKeyRow, TokenRow, UserRow
from warpdata.server.service import Service

__all__ = ["FileGrant", "recall_file", "sign_file", "verify_file"]

_MAX_LENGTH = 8192
_Ask = Callable[[Hashable, Callable[[], Any]], Any]
"""Answers a question by what is known of it, or by reading the database."""


@dataclass(frozen=True, slots=True)
class FileGrant:
    """One file of an artifact of one version, and who granted it until when."""

    dataset_id: str
    version: str
    artifact: str
    path: str
    user_id: str
    token_id: str
    expires: str


def sign_file(service: Service, grant: FileGrant) -> str:
    """Return the part of a URL that proves the grant."""
    key = _signing_key(service)
    claims = _encode(json.dumps([key.id, *asdict(grant).values()], separators=(",", ":")).encode())
    return f"{claims}.{_mac(key, claims)}"


def verify_file(service: Service, signed: str) -> tuple[FileGrant, Principal]:
    """Return a grant and its user. `NotFoundError` if it was forged, has expired, or was ended."""
    found = _verify(service, signed, service.identities.ask)
    if found is None:
        raise NotFoundError("the signed URL is not valid: forged, expired or revoked", hint="Ask for a new one.")
    return found


def recall_file(service: Service, signed: str) -> tuple[FileGrant, Principal] | None:
    """Return a grant and its user if the database was asked about them within the last second."""
    return _verify(service, signed, lambda key, _read: service.identities.recall(key))


def _verify(service: Service, signed: str, ask: _Ask) -> tuple[FileGrant, Principal] | None:
    grant = _parse(service, signed, ask)
    if grant is None or grant.expires <= service.now():
        return None
    found = ask(("grant", grant.user_id, grant.token_id), lambda: _read_user(service, grant))
    if found is None or (found[1] is not None and found[1] <= service.now()):
        return None
    return grant, found[0]


def _read_user(service: Service, grant: FileGrant) -> tuple[Principal, str | None] | None:
    """Return the user of a grant, and when the token that made it expires; None if either has ended."""
    with service.database.read() as db:
        user = db.get(UserRow, grant.user_id)
        token = db.get(TokenRow, grant.token_id) if grant.token_id else None
        if user is None or not user.is_active:
            return None
        if grant.token_id and (token is None or not is_live(token, service.now())):
            return None
        roles = load_roles(db, user.id, is_admin=user.is_admin)
    reach = Place(token.workspace, token.dataset or None) if token is not None and token.workspace else None
    principal = Principal(user.id, user.name, roles, Scope.READ, reach, grant.token_id)
    return principal, None if token is None else token.expires


def _parse(service: Service, signed: str, ask: _Ask) -> FileGrant | None:
    claims, dot, mac = signed.partition(".")
    if not dot or len(signed) > _MAX_LENGTH or not signed.isascii():
        return None
    try:
        key_id, *values = json.loads(_decode(claims))
    except (ValueError, Base64Error, TypeError, RecursionError):
        return None
    is_id = isinstance(key_id, str) and "\0" not in key_id
    key = ask(("signing key", key_id), lambda: _read_key(service, key_id)) if is_id else None
    if key is None or key.retired is not None or not hmac.compare_digest(_mac(key, claims), mac):
        return None
    return FileGrant(*values)  # signed by this service, so the values are its own


def _read_key(service: Service, key_id: str) -> SigningKeyRow | None:
    with service.database.read() as db:
        return db.get(SigningKeyRow, key_id)


def _signing_key(service: Service) -> SigningKeyRow:
    """Return the newest key. The first use makes one."""
    query = select(SigningKeyRow).where(SigningKeyRow.retired.is_(None)).order_by(SigningKeyRow.created.desc()).limit(1)
    with service.database.read() as db:
        row = db.scalar(query)
    if row is None:
        with service.database.write() as db:
            row = SigningKeyRow(
                id=service.new_id()[:12], secret=service.new_secret(), created=service.now(), retired=None
            )
            db.add(row)
    return row


def _mac(key: SigningKeyRow, claims: str) -> str:
    return _encode(hmac.new(key.secret.encode(), claims.encode(), sha256).digest())


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _decode(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
