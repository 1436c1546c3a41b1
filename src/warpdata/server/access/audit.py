"""The audit log: who did what, in a chain of hashes.

Each entry hashes its content and the hash before it. Changing or removing an entry breaks every later hash, so keeping
the last hash elsewhere is enough to notice it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session as OrmSession

from warpdata.primitives.hashing import sha256_hex
from warpdata.server.access.roles import Place, Principal
from warpdata.server.database import AuditRow, AuditTipRow
from warpdata.server.service import Service

__all__ = ["AuditEntry", "find_tampering", "record"]

_FIRST = "0" * 64
_TIP = 1
_PAGE = 1000


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """Something that was done. `place` is None for the service itself."""

    action: str
    resource: str
    place: Place | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)


def record(service: Service, db: OrmSession, principal: Principal, entry: AuditEntry) -> None:
    """Append an entry in the transaction of the change itself, so that neither is there without the other."""
    tip = db.scalar(select(AuditTipRow).where(AuditTipRow.id == _TIP).with_for_update())
    if tip is None:
        tip = AuditTipRow(id=_TIP, sequence=0, hash=_FIRST)
        db.add(tip)
    row = AuditRow(
        sequence=tip.sequence + 1,
        time=service.now(),
        actor=principal.name,
        token_id=principal.token_id,
        ip=principal.ip,
        action=entry.action,
        workspace=entry.place.workspace if entry.place else "",
        resource=entry.resource,
        detail=json.dumps(dict(entry.detail), sort_keys=True, separators=(",", ":")),
        previous=tip.hash,
        hash="",
    )
    row.hash = tip.hash = _hash(row)
    tip.sequence = row.sequence
    db.add(row)


def find_tampering(service: Service) -> int | None:
    """Return the sequence of the first entry that is missing or differs from what was written; None if none does."""
    expected, previous = 1, _FIRST
    with service.database.read() as db:
        tip = db.get(AuditTipRow, _TIP)
        while True:
            query = select(AuditRow).where(AuditRow.sequence >= expected).order_by(AuditRow.sequence).limit(_PAGE)
            rows = db.scalars(query).all()
            for row in rows:
                if row.sequence != expected or row.previous != previous or row.hash != _hash(row):
                    return expected
                expected, previous = expected + 1, row.hash
            if not rows:
                break
    is_whole = (tip.sequence, tip.hash) == (expected - 1, previous) if tip is not None else expected == 1
    return None if is_whole else expected


def _hash(row: AuditRow) -> str:
    content = [
        row.sequence,
        row.time,
        row.actor,
        row.token_id,
        row.ip,
        row.action,
        row.workspace,
        row.resource,
        row.detail,
        row.previous,
    ]
    return sha256_hex(json.dumps(content, separators=(",", ":")).encode())
