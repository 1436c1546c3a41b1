"""Keys of the gateway: an access key, the secret that follows from it, and what the key may do where.

A secret is `HMAC(master key, access key)`. It is computed when it is needed, so no store of secrets can be stolen.
Implements "Keys" of docs/specs/gateway.md.
"""

from __future__ import annotations

import base64
import hmac
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from typing import Protocol

from warpdata.errors import BadInputError
from warpdata.repository.catalog import check_dataset_id, parse_address

__all__ = [
    "KeyRight",
    "KeyRing",
    "KnownKey",
    "S3Grant",
    "SingleKey",
    "derive_secret",
    "is_access_key",
    "new_access_key",
    "parse_grant",
]

_PREFIX = "WD"
_RANDOM_BYTES = 12
_SHAPE = re.compile(r"[A-Z2-7]{20}")
_CONTEXT = b"warpdata s3 secret 1\n"


class KeyRight(StrEnum):
    """A right of a key. Each right includes those before it."""

    RO = "ro"
    INBOX = "inbox"
    HEAD = "head"


_RANKS = {right: rank for rank, right in enumerate(KeyRight)}


@dataclass(frozen=True, slots=True)
class S3Grant:
    """The reach of a key: a workspace, one dataset, or one version of it. Without a workspace, everything."""

    right: KeyRight
    workspace: str | None = None
    dataset: str | None = None
    ref: str | None = None

    def includes(self, right: KeyRight) -> bool:
        return _RANKS[self.right] >= _RANKS[right]

    def covers_workspace(self, workspace: str) -> bool:
        return self.workspace in (None, workspace)

    def covers_dataset(self, workspace: str, dataset: str) -> bool:
        return self.covers_workspace(workspace) and self.dataset in (None, dataset)

    def covers(self, workspace: str, dataset: str, ref: str) -> bool:
        return self.covers_dataset(workspace, dataset) and self.ref in (None, ref)

    def __str__(self) -> str:
        parts = [self.workspace or "*", self.dataset, self.ref]
        return "/".join(part for part in parts if part is not None)


def parse_grant(place: str, right: KeyRight) -> S3Grant:
    """Parse `workspace`, `workspace/name` or `workspace/name@ref`. A slash at the end is allowed."""
    place = place.rstrip("/")
    if "/" not in place:
        return S3Grant(right, check_dataset_id(f"{place}/any").partition("/")[0])
    address = parse_address(place)
    workspace, _, dataset = address.dataset_id.partition("/")
    if address.ref is not None and "/" in address.ref:
        raise BadInputError(f"{place[:200]!r} is not WORKSPACE/NAME@REF")
    return S3Grant(right, workspace, dataset, address.ref)


@dataclass(frozen=True, slots=True)
class KnownKey:
    """A key that is valid now. `allows` says whether its owner has this right to a dataset, now."""

    access_key: str
    secret: str
    grant: S3Grant
    author: str
    ip: str
    allows: Callable[[KeyRight, str], bool]

    def may(self, right: KeyRight, dataset_id: str, ref: str) -> bool:
        workspace, _, dataset = dataset_id.partition("/")
        return (
            self.grant.includes(right) and self.grant.covers(workspace, dataset, ref) and self.allows(right, dataset_id)
        )

    def sees(self, dataset_id: str) -> bool:
        """Return whether some version of a dataset can be read with the key."""
        workspace, _, dataset = dataset_id.partition("/")
        return self.grant.covers_dataset(workspace, dataset) and self.allows(KeyRight.RO, dataset_id)


class KeyRing(Protocol):
    """Finds keys."""

    def find(self, access_key: str, ip: str) -> KnownKey | None:
        """Return the key if it is valid now; None for one that is unknown, expired or revoked."""

    def recall(self, access_key: str, ip: str) -> KnownKey | None:
        """Return the key if it was found valid within the last second. Does not wait."""


@dataclass(frozen=True, slots=True)
class SingleKey:
    """One key, without a database."""

    access_key: str
    secret: str
    grant: S3Grant

    def find(self, access_key: str, ip: str) -> KnownKey | None:
        if not hmac.compare_digest(access_key.encode(), self.access_key.encode()):
            return None
        return KnownKey(self.access_key, self.secret, self.grant, self.access_key, ip, lambda _right, _dataset: True)

    recall = find


def new_access_key(random_bits: int) -> str:
    """Return an access key of 20 letters and digits from 90 random bits."""
    data = (random_bits & (2**96 - 1)).to_bytes(_RANDOM_BYTES, "big")
    return _PREFIX + base64.b32encode(data).decode()[:18]


def is_access_key(text: str) -> bool:
    """Return whether a text has the form of an access key."""
    return _SHAPE.fullmatch(text) is not None


def derive_secret(master_key: bytes, access_key: str) -> str:
    """Return the secret of an access key: 40 hex digits, which every tool takes."""
    return hmac.new(master_key, _CONTEXT + access_key.encode(), sha256).hexdigest()[:40]
