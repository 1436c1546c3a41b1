"""S3 keys of users: rows without secrets, whose secrets follow from a master key outside of the database.

A key does what its user may do now, within its right and its place. It ends with its expiry, when it is revoked, and
when the user may no longer read the place.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from sqlalchemy import select

from warpdata.errors import BadInputError, NotFoundError
from warpdata.limits import MAX_S3_KEY_DAYS
from warpdata.primitives.byte_lru import ByteLRU
from warpdata.server.access.roles import Action, Place, Principal, load_roles
from warpdata.server.database import S3KeyRow, UserRow
from warpdata.server.s3 import KeyRight, KnownKey, S3Grant, derive_secret, is_access_key, new_access_key
from warpdata.server.service import Service

__all__ = ["IssuedS3Key", "NewS3Key", "S3KeyRing", "create_s3_key", "list_s3_keys", "revoke_s3_key", "secret_of_s3_key"]

_FRESH_S = 1.0
_KEYS = 10_000
_MASTER_BYTES = 32
_MIN_MASTER_LENGTH = 32
_ACTIONS = {KeyRight.RO: Action.READ, KeyRight.INBOX: Action.LABEL, KeyRight.HEAD: Action.WRITE}


@dataclass(frozen=True, slots=True)
class NewS3Key:
    """What a key shall be good for. Without `days`, until it is revoked."""

    name: str
    grant: S3Grant
    days: int | None = None


@dataclass(frozen=True, slots=True)
class IssuedS3Key:
    """A key with its secret, which is shown once."""

    row: S3KeyRow
    secret: str


def create_s3_key(service: Service, user_id: str, new: NewS3Key) -> IssuedS3Key:
    """Create a key of a user."""
    if new.days is not None and not 1 <= new.days <= MAX_S3_KEY_DAYS:
        raise BadInputError(f"days={new.days} is not within 1 … {MAX_S3_KEY_DAYS}")
    master = _master_key(service)
    row = S3KeyRow(
        access_key=new_access_key(service.session.rng.getrandbits(96)),
        user_id=user_id,
        name=new.name,
        right=new.grant.right,
        workspace=new.grant.workspace or "",
        dataset=new.grant.dataset or "",
        ref=new.grant.ref or "",
        master=_fingerprint(master),
        created=service.now(),
        expires=None if new.days is None else service.later(new.days * 24 * 3600),
        revoked=None,
    )
    with service.database.write() as db:
        db.add(row)
    return IssuedS3Key(row, derive_secret(master, row.access_key))


def list_s3_keys(service: Service, user_id: str) -> list[S3KeyRow]:
    """Return the keys of a user, oldest first, also those that have ended."""
    query = select(S3KeyRow).where(S3KeyRow.user_id == user_id).order_by(S3KeyRow.created, S3KeyRow.access_key)
    with service.database.read() as db:
        return list(db.scalars(query))


def revoke_s3_key(service: Service, user_id: str, access_key: str) -> None:
    """End a key of a user. Repeating it changes nothing. Other processes notice within a second."""
    with service.database.write() as db:
        row = db.get(S3KeyRow, access_key)
        if row is None or row.user_id != user_id:
            raise NotFoundError(f"there is no S3 key {access_key[:40]!r}")
        row.revoked = row.revoked or service.now()


def secret_of_s3_key(service: Service, access_key: str) -> str:
    """Return the secret of a key that the service itself hands to a tool."""
    return derive_secret(_master_key(service), access_key)


@dataclass(frozen=True)
class S3KeyRing:
    """Finds keys in the database. What it has read is good for a second."""

    service: Service
    _known: ByteLRU[tuple[str, str], tuple[float, KnownKey | None]] = field(
        default_factory=lambda: ByteLRU(max_entries=_KEYS)
    )

    def find(self, access_key: str, ip: str) -> KnownKey | None:
        """Return the key if it is valid now."""
        now = self.service.session.timer()
        known = self._fresh(access_key, ip)
        if known is None:
            known = (now, self._read(access_key, ip))
            self._known.put((access_key, ip), known)
        return known[1]

    def recall(self, access_key: str, ip: str) -> KnownKey | None:
        """Return the key if it was valid within the last second. Asks nothing of the database."""
        known = self._fresh(access_key, ip)
        return None if known is None else known[1]

    def _fresh(self, access_key: str, ip: str) -> tuple[float, KnownKey | None] | None:
        known = self._known.get((access_key, ip))
        return None if known is None or self.service.session.timer() - known[0] >= _FRESH_S else known

    def forget(self) -> None:
        """Read all keys again, because one was revoked here."""
        self._known.clear()

    def _read(self, access_key: str, ip: str) -> KnownKey | None:
        if not is_access_key(access_key):
            return None
        with self.service.database.read() as db:
            row = db.get(S3KeyRow, access_key)
            user = None if row is None else db.get(UserRow, row.user_id)
            if row is None or user is None or not user.is_active or not _is_live(row, self.service.now()):
                return None
            roles = load_roles(db, user.id, is_admin=user.is_admin)
        master = _master_key(self.service)
        if row.master != _fingerprint(master):
            return None  # made with a master key that was replaced
        principal = Principal(user.id, user.name, roles, token_id=row.access_key, ip=ip)
        grant = S3Grant(KeyRight(row.right), row.workspace or None, row.dataset or None, row.ref or None)
        return KnownKey(access_key, derive_secret(master, access_key), grant, user.name, ip, _allows(principal))


def _allows(principal: Principal) -> Callable[[KeyRight, str], bool]:
    def allows(right: KeyRight, dataset_id: str) -> bool:
        workspace, _, dataset = dataset_id.partition("/")
        return principal.may(_ACTIONS[right], Place(workspace, dataset))

    return allows


def _is_live(row: S3KeyRow, now: str) -> bool:
    return row.revoked is None and (row.expires is None or row.expires > now)


def _master_key(service: Service) -> bytes:
    """Return the key from which secrets follow: that of the settings, else of a file beside an SQLite database."""
    given = service.session.settings.s3_master_key
    if given is not None:
        if len(given) < _MIN_MASTER_LENGTH:
            raise BadInputError(
                f"WARP_S3_MASTER_KEY has {len(given)} characters, fewer than {_MIN_MASTER_LENGTH}",
                hint="Make one with `openssl rand -hex 32`.",
            )
        return given.encode()
    path = service.database.path
    if path is None:
        raise BadInputError(
            "S3 keys of a service with PostgreSQL need WARP_S3_MASTER_KEY",
            hint="Set it to the output of `openssl rand -hex 32`, the same for all processes of the service.",
        )
    return _file_key(service, path.with_name(f"{path.name}.s3-master-key"))


def _file_key(service: Service, path: Path) -> bytes:
    """Read the key of this machine. The first use makes it, readable by this user alone."""
    with suppress(FileExistsError):
        made = service.session.rng.getrandbits(8 * _MASTER_BYTES).to_bytes(_MASTER_BYTES, "big")
        temporary = path.with_name(f"{path.name}.{service.new_id()}")
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(made)
        try:
            os.link(temporary, path)  # whole or not at all, and never over another process's key
        finally:
            temporary.unlink()
    return path.read_bytes()


def _fingerprint(master: bytes) -> str:
    """Return a name of a master key that says nothing about it."""
    return hmac.new(master, b"warpdata s3 master key", sha256).hexdigest()[:16]
