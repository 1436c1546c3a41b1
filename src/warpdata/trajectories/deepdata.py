"""An index of trajectories on a DeepData server, by its HTTP interface of version 3.

A record is a document of a collection with one dense field, under an id that follows from its key. So ingesting an
episode again replaces it. Scores of dense fields are cosine distances there, and cosines here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from warpdata.errors import AlreadyExistsError, CorruptError, LimitExceededError, NotFoundError
from warpdata.primitives.parallel import IO_POOL
from warpdata.storage import ClientOptions, ServiceClient
from warpdata.trajectories.trajectory_index import KEY, VECTOR, Found, Record, Wanted

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["DeepDataIndex"]

_MAX_HITS = 1000
_MAX_REQUESTS = 8


class DeepDataIndex:
    """Collections of one tenant."""

    def __init__(self, url: str, token: str | None, tenant: str) -> None:
        self._client = ServiceClient(url, token, ClientOptions(api_path="/v3"))
        self._root = f"/tenants/{tenant}/collections"
        self._sizes: dict[str, int] = {}

    def add(self, table: str, records: Sequence[Record]) -> None:
        self._create(table, len(records[0].vector))
        IO_POOL.map_all(partial(self._put, table), records, limit=_MAX_REQUESTS)

    def search(self, table: str, vector: NDArray[np.float32], k: int, wanted: Wanted) -> list[Found]:
        if k > _MAX_HITS:
            raise LimitExceededError(f"k={k} exceeds {_MAX_HITS}, the limit of a DeepData server")
        if not k:
            return []
        body: dict[str, Any] = {"queries": {VECTOR: vector.tolist()}, "top_k": k, "include_vectors": False}
        filters: dict[str, dict[str, Any]] = {}
        for name, op, value in wanted.bounds():
            filters.setdefault(name, {})[f"${op}"] = value
        if filters:
            body["filters"] = filters
        try:
            reply = self._client.post(f"{self._root}/{table}/search", body)
        except NotFoundError:
            return []  # nothing was ingested yet
        return _parse_hits(reply, self._client.url)

    def _create(self, table: str, size: int) -> None:
        if self._sizes.get(table) == size:
            return
        field = {"name": VECTOR, "type": "dense", "dim": size, "index": {"type": "hnsw"}}
        with suppress(AlreadyExistsError):
            self._client.post(self._root, {"name": table, "fields": [field]})
        self._sizes[table] = size

    def _put(self, table: str, record: Record) -> None:
        metadata = {name: value for name, value in record.metadata.items() if value is not None}
        body = {"vectors": {VECTOR: record.vector.tolist()}, "metadata": {**metadata, KEY: record.key}}
        self._client.send(
            "PUT",
            f"{self._root}/{table}/docs/{_document_id(record.key)}",
            body=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
            is_repeatable=True,
        )


def _document_id(key: str) -> int:
    """Return a positive number below 2⁵³, which JSON holds exactly."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") >> 11 or 1


def _parse_hits(reply: Any, url: str) -> list[Found]:
    """Check the answer of a search."""
    documents = reply.get("documents") if isinstance(reply, dict) else None
    scores = reply.get("scores") if isinstance(reply, dict) else None
    if documents is None and scores is None and isinstance(reply, dict):
        return []  # an empty list is encoded as null
    if not isinstance(documents, list) or not isinstance(scores, list) or len(documents) != len(scores):
        raise CorruptError(f"{url} answered a search without as many documents as scores")
    is_distance = reply.get("score_direction", "lower_is_better") == "lower_is_better"
    out = []
    for document, score in zip(documents, scores, strict=True):
        metadata = document.get("metadata") if isinstance(document, dict) else None
        if not isinstance(metadata, dict) or isinstance(score, bool) or not isinstance(score, int | float):
            raise CorruptError(f"{url} answered a search with a document without metadata or score")
        known = {name: value for name, value in metadata.items() if name != KEY}
        out.append(Found(known, 1.0 - score if is_distance else float(score)))
    return out
