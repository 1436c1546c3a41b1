"""Commits for people and for JSON: the shape `log` and `resolve` share."""

from __future__ import annotations

from typing import Any

from warpdata.datasets import Revision

__all__ = ["REVISION_KEYS", "revision_document"]

REVISION_KEYS = "{commit, version, parents, operation, author, message, time, txn_id}"


def revision_document(revision: Revision) -> dict[str, Any]:
    return {
        "commit": revision.commit,
        "version": revision.version,
        "parents": list(revision.parents),
        "operation": revision.operation,
        "author": revision.author,
        "message": revision.message,
        "time": revision.time,
        "txn_id": revision.txn_id,
    }
