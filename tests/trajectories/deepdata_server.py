"""A server with the documented HTTP interface of DeepData, as far as trajectories need it: strict, and in memory."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

TOKEN = "a-token"
_OPERATORS = {"$eq": lambda a, b: a == b, "$gte": lambda a, b: a >= b, "$lte": lambda a, b: a <= b}


class DeepDataServer(ThreadingHTTPServer):
    """`collections` has the documents of each, by id. `reply` overrides the answer of a search."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.collections: dict[str, dict[int, dict[str, Any]]] = {}
        self.sizes: dict[str, int] = {}
        self.reply: Any = None
        self.requests: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def serve_deepdata() -> Iterator[DeepDataServer]:
    with DeepDataServer() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: DeepDataServer

    def log_message(self, *_: Any) -> None:
        """Print nothing."""

    def do_POST(self) -> None:
        self._route("POST")

    def do_PUT(self) -> None:
        self._route("PUT")

    def _route(self, method: str) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}")
        self.server.requests.append(f"{method} {self.path}")
        parts = self.path.strip("/").split("/")
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._send(401, {"code": "unauthenticated", "message": "the credential is missing", "hint": "Send one."})
        elif parts[:4] == ["v3", "tenants", "default", "collections"]:
            self._answer(method, parts[4:], body)
        else:
            self._send(404, {"code": "not_found", "message": "no such route"})

    def _answer(self, method: str, parts: list[str], body: dict[str, Any]) -> None:
        known = self.server.collections
        if not parts:
            field = body["fields"][0]
            assert set(body) == {"name", "fields"}
            assert (field["name"], field["type"], field["index"]) == ("embedding", "dense", {"type": "hnsw"})
            if body["name"] in known:
                self._send(409, {"code": "already_exists", "message": "the collection exists"})
                return
            known[body["name"]], self.server.sizes[body["name"]] = {}, field["dim"]
            self._send(201, {"status": "success"})
        elif parts[0] not in known:
            self._send(404, {"code": "not_found", "message": f"collection not found: {parts[0]}"})
        elif method == "PUT" and parts[1] == "docs":
            assert set(body) == {"vectors", "metadata"}
            assert int(parts[2]) > 0
            if len(body["vectors"]["embedding"]) != self.server.sizes[parts[0]]:
                self._send(400, {"code": "invalid_argument", "message": "the vector has another size", "hint": "Fix."})
                return
            known[parts[0]][int(parts[2])] = body
            self._send(200, {"status": "success", "id": int(parts[2])})
        else:
            assert set(body) <= {"queries", "top_k", "filters", "include_vectors"}
            self._send(200, self.server.reply or self._search(known[parts[0]], body))

    def _search(self, documents: dict[int, dict[str, Any]], body: dict[str, Any]) -> dict[str, Any]:
        query = np.array(body["queries"]["embedding"])
        found = []
        for number, document in documents.items():
            metadata, vector = document["metadata"], np.array(document["vectors"]["embedding"])
            if all(
                name in metadata and _OPERATORS[op](metadata[name], value)
                for name, ops in body.get("filters", {}).items()
                for op, value in ops.items()
            ):
                cosine = vector @ query / (np.linalg.norm(vector) * np.linalg.norm(query))
                found.append((1 - float(cosine), number, metadata))
        found = sorted(found, key=lambda each: each[:2])[: body["top_k"]]
        return {
            "status": "success",
            "documents": [{"id": number, "metadata": metadata} for _, number, metadata in found] or None,
            "scores": [score for score, _, _ in found] or None,
            "score_direction": "lower_is_better",
        }

    def _send(self, status: int, document: dict[str, Any]) -> None:
        data = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
