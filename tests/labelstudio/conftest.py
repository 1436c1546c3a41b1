"""A real Label Studio on SQLite in an environment of its own, and the service with its gateway beside it.

`make test-labelstudio` installs both. Without them, the tests are skipped.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageDraw
from urllib3 import PoolManager
from urllib3.exceptions import HTTPError

import warpdata as wd
from tests.server.running import running
from warpdata.server import IssuedS3Key, NewS3Key, Service, create_s3_key, create_user, open_service
from warpdata.server.s3 import KeyRight, parse_grant

PROGRAM = Path(__file__).parents[2] / ".venv-labelstudio" / "bin" / "label-studio"
COLORS = [(220, 30, 30), (30, 200, 30), (30, 30, 220), (200, 200, 0)]
SIZE, HOLE = (640, 480), (200, 150, 400, 300)
INTERFACE = (
    '<View><Image name="image" value="$image"/><RectangleLabels name="box" toName="image">'
    '<Label value="cat"/><Label value="dog"/></RectangleLabels></View>'
)
_START_S = 300


@dataclass
class Studio:
    """A Label Studio that answers, and its API."""

    url: str
    email: str
    password: str
    token: str
    http: PoolManager

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        headers = {"Authorization": f"Token {self.token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        got = self.http.request(method, f"{self.url}{path}", body=data, headers=headers, redirect=False)
        is_json = "json" in got.headers.get("Content-Type", "")
        return got.status, json.loads(got.data) if is_json and got.data else got


@contextmanager
def label_studio(directory: Path, *, protects_addresses: bool) -> Iterator[Studio]:
    """Start Label Studio on a free port. The same directory has the same projects."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    token_file = directory / "token"
    directory.mkdir(exist_ok=True)
    if not token_file.exists():
        token_file.write_text(secrets.token_hex(20))
    studio = Studio(f"http://127.0.0.1:{port}", "a@b.co", "a-password-17", token_file.read_text(), PoolManager())
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(directory),
        "SSRF_PROTECTION_ENABLED": str(protects_addresses).lower(),
        "LABEL_STUDIO_BASE_DATA_DIR": str(directory),
        "LABEL_STUDIO_ENABLE_LEGACY_API_TOKEN": "true",
        "COLLECT_ANALYTICS": "False",
    }
    command = [str(PROGRAM), "start", "--no-browser", "--internal-host", "127.0.0.1", "--port", str(port)]
    account = ["--username", studio.email, "--password", studio.password, "--user-token", studio.token]
    with (directory / "log").open("ab") as log:
        process = subprocess.Popen(
            [*command, *account], env=environment, stdout=log, stderr=log, start_new_session=True, cwd=directory
        )
    try:
        _wait_for(studio, process)
        yield studio
    finally:
        studio.http.clear()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait_for(studio: Studio, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(HTTPError):
            if studio.http.request("GET", f"{studio.url}/health", retries=False, timeout=5).status == 200:
                return
        time.sleep(0.5)
    pytest.fail("Label Studio did not start; its log is in the directory of the test")


@dataclass
class Platform:
    """The service with a labelled collection, and a key that reads version v1 and sends labels for it."""

    service: Service
    url: str
    key: IssuedS3Key
    images: dict[str, bytes]

    @property
    def endpoint(self) -> str:
        return f"{self.url}/s3"

    def storage(self, project: int, prefix: str, **more: Any) -> dict[str, Any]:
        """Return the settings of a storage of Label Studio."""
        return {
            "project": project,
            "bucket": "acme",
            "prefix": prefix,
            "aws_access_key_id": self.key.row.access_key,
            "aws_secret_access_key": self.key.secret,
            "region_name": "us-east-1",
            "s3_endpoint": self.endpoint,
            **more,
        }


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    root = tmp_path_factory.mktemp("platform")
    pets = wd.collection("acme/pets", store=str(root / "store"))
    images = {f"cats/cat{number}.png": image_of(color) for number, color in enumerate(COLORS)}
    with pets.changes("first") as change:
        for path, data in images.items():
            change.add(path, data)
    pets.create_version("v1")
    with open_service(wd.connect(str(root / "store")), f"sqlite:///{root}/service.db") as service:
        user = create_user(service, "ana", is_admin=True)
        grant = parse_grant("acme/pets@v1", KeyRight.INBOX)
        key = create_s3_key(service, user.id, NewS3Key("Label Studio", grant))
        with running(service) as url:
            yield Platform(service, url, key, images)


def image_of(color: tuple[int, int, int]) -> bytes:
    """Return an image of one colour with a white hole."""
    image = Image.new("RGB", SIZE, color)
    ImageDraw.Draw(image).rectangle((*HOLE[:2], HOLE[2] - 1, HOLE[3] - 1), fill=(255, 255, 255))
    out = BytesIO()
    image.save(out, "PNG")
    return out.getvalue()
