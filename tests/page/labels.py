"""Labels that came back, and a stand-in for Label Studio, for tests and screenshots of the page Labelling."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.request import Request, urlopen

import httpx2

import warpdata as wd
from tests.page.conftest import Site, name_of
from tests.page.street import draw_scene
from warpdata.formats.labels import Annotation, Box, LabeledImage, label_studio_task

STREET = "/datasets/acme/street"


@dataclass
class SentLabels:
    """The images of labels that were sent, by the state that their items have."""

    clean: list[str] = field(default_factory=list)
    conflict: list[str] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)


def send_labels(site: Site) -> SentLabels:
    """Send labels of all kinds to `acme/street`: fresh ones, one in conflict, and one of an image that was replaced."""
    collection = wd.connect(site.store).collection("acme/street")
    sent = SentLabels()
    for at in (1, 2, 6):
        drawn = [*collection.annotations(name_of(at)), Box("bicycle", 30 + 10 * at, 190, 64, 46)]
        send(site, document(collection, name_of(at), drawn, "HEAD", "ann@example.com"))
        sent.clean.append(name_of(at))
    path, drawn = relabelled_bus(collection)
    send(site, document(collection, path, drawn, "v1", "bob@example.com"))
    sent.conflict.append(path)
    replaced = name_of(7)
    send(site, document(collection, replaced, list(collection.annotations(replaced)), "HEAD", "ann@example.com"))
    collection.add(replaced, draw_scene(907).data, annotations=draw_scene(907).annotations, replace=True)
    sent.stale.append(replaced)
    return sent


def relabelled_bus(collection: wd.Collection) -> tuple[str, list[Annotation]]:
    """Return an image of v1 with its bus moved. In HEAD, the bus is a truck."""
    old = collection.dataset("v1")
    for at in range(0, 24, 4):
        objects = collection.annotations(name_of(at), ref="v1")
        buses = [one for one in objects if isinstance(one, Box) and one.class_name == "bus"]
        if buses and name_of(at) in old.artifact("images"):
            moved = [
                Box("bus", one.x - 6, one.y - 4, one.width + 14, one.height + 8) if one in buses else one
                for one in objects
            ]
            return name_of(at), list(moved)
    raise AssertionError("no scene has a bus")


def document(
    collection: wd.Collection, path: str, objects: list[Annotation], ref: str, annotator: str
) -> dict[str, Any]:
    """Return what Label Studio sends after a task of a version was labelled."""
    dataset = collection.head if ref == "HEAD" else collection.dataset(ref)
    row = next(one for one in dataset.table("images").raw().to_arrow().to_pylist() if one["path"] == path)
    image = LabeledImage(path, objects, row["width"], row["height"], hash=row["hash"])
    task = json.loads(label_studio_task(image, "s3://acme/street/x.jpg", version=dataset.version))
    by = {"completed_by": {"id": 3, "email": annotator}, "updated_at": "2026-01-01T00:00:00Z", "unique_id": path}
    return {**task["annotations"][0], "id": 17, "task": {"id": 5, "data": task["data"]}, **by}


def send(site: Site, label: dict[str, Any]) -> None:
    """Send a label to the inbox."""
    headers = {"Authorization": f"Bearer {site.tokens['admin']}"}
    url = f"{site.url}/api/v1{STREET}/inbox"
    httpx2.post(url, content=json.dumps(label), headers=headers).raise_for_status()


@dataclass
class Studio:
    """The calls that a stand-in for Label Studio got, and the tasks that it has."""

    url: str
    calls: list[tuple[str, str, Any]] = field(default_factory=list)
    tasks: list[dict[str, Any]] = field(default_factory=list)
    hook: str = ""
    refuses_private: bool = False


@contextmanager
def studio() -> Iterator[Studio]:
    """Run a server with the answers of Label Studio 1.23.2 to the calls of checks and batches."""
    found = Studio("")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.partition("?")[0].endswith("/export"):
                self._answer(200, [one for one in found.tasks if one.get("annotations")])
            else:
                self._answer(200, {"id": 7})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"] or 0)) or b"null")
            path = self.path.partition("?")[0]
            found.calls.append(("POST", path, body))
            if path.endswith("/validate"):
                refused = {"detail": "URL resolves to a reserved network address (block: 127.0.0.0/8)"}
                self._answer(400 if found.refuses_private else 200, refused if found.refuses_private else {})
                return
            if path.endswith("/import"):
                found.tasks += body
                self._answer(201, {"task_count": len(body)})
                return
            if path == "/api/webhooks/":
                found.hook = body["url"]
            if path == "/api/tasks":
                with suppress(OSError):
                    urlopen(Request(found.hook, b'{"action": "TASKS_CREATED"}', method="POST"), timeout=5)  # noqa: S310
            self._answer(201, {"id": 7})

        def do_DELETE(self) -> None:
            self._answer(204, None)

        def _answer(self, status: int, body: Any) -> None:
            data = b"" if body is None else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_args: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
