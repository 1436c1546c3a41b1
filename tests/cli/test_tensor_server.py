"""If this fails, `warp tensors serve` costs memory for idle clients, or does not end when it is asked to."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest

from tests.cli.scenes import PROGRAM, ask, run
from warpdata.tensors import SourcePolicy, narrow, open_tensors, write_tensors

MIB = 2**20


@contextmanager
def served(*args: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, object]]]:
    command = [*PROGRAM, "tensors", "serve", *args, "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        text = ""
        while not text.rstrip().endswith("}"):
            line = process.stdout.readline()
            assert line, process.communicate()
            text += line
        yield process, json.loads(text)
    finally:
        process.kill()
        process.communicate()


def rss_mib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))) // 1024


def test_a_served_file_is_read_by_a_client(tmp_path: Path) -> None:
    arrays = {"a": np.arange(300_000)}
    write_tensors(tmp_path / "t.tensors", arrays).close()
    with served(str(tmp_path / "t.tensors"), "--token", "abc") as (process, facts):
        assert facts["needs_token"] is True
        assert facts["available_bytes"] == facts["size_bytes"] == 2_400_000
        policy = SourcePolicy(peers=[str(facts["url"])], token="abc")
        with open_tensors(str(facts["artifact_id"]), sources=policy) as art:
            np.testing.assert_array_equal(art["a"].numpy(), arrays["a"])
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
        assert process.returncode == 0
        assert "Traceback" not in out + err
        assert "abc" not in out + err


def test_published_tensors_are_served(tmp_path: Path) -> None:
    arrays = {"a": np.arange(300_000, dtype=np.float32), "b": np.arange(5)}
    with write_tensors(tmp_path / "t.tensors", arrays) as art:
        art.save_safetensors(tmp_path / "t.safetensors")
    ask("tensors", "import", "acme/model", str(tmp_path / "t.safetensors"))
    with served("acme/model") as (_, facts):
        assert facts["dataset_id"] == "acme/model"
        with open_tensors(str(facts["artifact_id"]), sources=SourcePolicy(peers=[str(facts["url"])])) as far:
            for name, array in arrays.items():
                np.testing.assert_array_equal(far[name].numpy(), array)


def test_a_kept_view_is_written_and_served(tmp_path: Path) -> None:
    arrays = {"a": np.arange(120).reshape(10, 12), "b": np.arange(5)}
    write_tensors(tmp_path / "t.tensors", arrays).close()
    view = ("--narrow", "a=1:2:4")
    kept = ask("tensors", "view", str(tmp_path / "t.tensors"), *view, "--keep", str(tmp_path / "kept"))
    assert kept["kept"] == str(tmp_path / "kept")
    with served(str(tmp_path / "t.tensors"), "--view", str(tmp_path / "kept")) as (_, facts):
        policy = SourcePolicy(
            peers=[str(facts["url"])], view_hashes={str(kept["space_id"]): str(kept["view_data_hash"])}
        )
        with open_tensors(str(facts["artifact_id"]), sources=policy) as art:
            again = art.view({"a": narrow(1, 2, 4)})
            assert again.explain().space_kind == "view"
            np.testing.assert_array_equal(again.materialize()["a"], arrays["a"][:, 2:6])


def test_sigterm_ends_the_server(tmp_path: Path) -> None:
    write_tensors(tmp_path / "t.tensors", {"a": np.arange(3)}).close()
    with served(str(tmp_path / "t.tensors"), "--host", "127.0.0.1") as (process, facts):
        assert facts["needs_token"] is False
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=30)
        assert (process.returncode, out) == (0, "")
        assert "Traceback" not in err


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the memory of a process from /proc")
def test_idle_clients_cost_little_memory(tmp_path: Path) -> None:
    """60 clients ask for 64 MiB each and do not read. Each may hold one piece, not the whole range."""
    path = tmp_path / "t.tensors"
    write_tensors(path, {"a": np.zeros(64 * MIB, np.uint8)}).close()
    with served(str(path)) as (process, facts), ExitStack() as stack:
        address = urlsplit(str(facts["url"]))
        request = (
            f"GET /tensors/{facts['index_multihash']}/bytes HTTP/1.1\r\nRange: bytes=0-{64 * MIB - 1}\r\n\r\n"
        ).encode()
        before = rss_mib(process.pid)
        for _ in range(60):
            client = stack.enter_context(socket.create_connection((str(address.hostname), int(address.port or 0)), 30))
            client.sendall(request)
        begun = time.monotonic()
        samples = []
        while time.monotonic() - begun < 1.5:
            samples.append(rss_mib(process.pid) - before)
            time.sleep(0.1)
        assert max(samples) < 120, samples
        with open_tensors(str(facts["artifact_id"]), sources=SourcePolicy(peers=[str(facts["url"])])) as art:
            assert art["a"][5:9].numpy(verify=False).tolist() == [0, 0, 0, 0]


def test_a_port_in_use_is_an_error_without_a_traceback(tmp_path: Path) -> None:
    write_tensors(tmp_path / "t.tensors", {"a": np.arange(3)}).close()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = run("tensors", "serve", str(tmp_path / "t.tensors"), "--port", str(taken.getsockname()[1]))
    assert done.exit_code == 5  # bad input
    assert "cannot listen" in done.output
