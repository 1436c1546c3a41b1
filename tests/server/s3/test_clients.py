"""If this fails, a client that many people use does not work with the gateway."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import duckdb
import pyarrow.fs
import pyarrow.parquet
import pytest

from tests.server.s3.conftest import SECRET, Gateway, large_content

S3FS_PYTHON = Path(__file__).parents[3] / ".venv-s3fs" / "bin" / "python"
"""s3fs needs a botocore of its own: `make test-s3-clients` installs it."""


def environment(gateway: Gateway, right: str = "ro") -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": "/nonexistent",
        "AWS_ACCESS_KEY_ID": gateway.keys.make("acme", right),
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def run(command: list[str], environment: dict[str, str]) -> str:
    done = subprocess.run(command, check=False, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_pyarrow(gateway: Gateway) -> None:
    system = pyarrow.fs.S3FileSystem(
        access_key=gateway.keys.make("acme"),
        secret_key=SECRET,
        region="us-east-1",
        scheme="http",
        endpoint_override=gateway.endpoint.removeprefix("http://"),
    )
    listed = system.get_file_info(pyarrow.fs.FileSelector("acme/packed/v1", recursive=True))
    sizes = {one.path: one.size for one in listed if one.type == pyarrow.fs.FileType.File}
    assert sizes["acme/packed/v1/files/large.bin"] == len(large_content())
    assert system.get_file_info("acme/packed/v1/files").type == pyarrow.fs.FileType.Directory
    assert system.get_file_info("acme/packed/v2").type == pyarrow.fs.FileType.NotFound
    with system.open_input_file("acme/packed/v1/files/large.bin") as file:
        assert file.read_at(100, 4194250) == large_content()[4194250:4194350]
        assert file.read() == large_content()
    table = pyarrow.parquet.read_table("acme/packed/v1/tables/main.parquet", filesystem=system)
    assert table["id"].to_pylist() == list(range(100))


def test_duckdb(gateway: Gateway, tmp_path: Path) -> None:
    import duckdb_extension_httpfs

    folder = Path(duckdb_extension_httpfs.__file__).parent
    (extension,) = folder.rglob("httpfs.duckdb_extension*")
    with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as db:
        db.execute(f"LOAD '{extension}'")
        host, path = gateway.endpoint.removeprefix("http://").split("/")
        db.execute(
            f"""CREATE SECRET (TYPE s3, KEY_ID '{gateway.keys.make("acme")}', SECRET '{SECRET}', REGION 'us-east-1',
            ENDPOINT '{host}/{path}', URL_STYLE 'path', USE_SSL false)"""
        )
        found = db.sql("SELECT sum(id), count(*) FROM 's3://acme/packed/v1/tables/main.parquet'").fetchone()
        assert found == (4950, 100)
        names = db.sql("SELECT file FROM glob('s3://acme/packed/*/files/part-0*/*.bin') ORDER BY file").fetchall()
        assert names[0] == ("s3://acme/packed/HEAD/files/part-00/0.bin",)
        assert len(names) == 30


@pytest.mark.skipif(shutil.which("rclone") is None, reason="rclone is not installed on this machine")
def test_rclone(gateway: Gateway, tmp_path: Path) -> None:
    settings = {
        **environment(gateway, "inbox"),
        "RCLONE_CONFIG": str(tmp_path / "rclone.conf"),
        "RCLONE_CONFIG_W_TYPE": "s3",
        "RCLONE_CONFIG_W_PROVIDER": "Other",
        "RCLONE_CONFIG_W_ENV_AUTH": "true",
        "RCLONE_CONFIG_W_ENDPOINT": gateway.endpoint,
        "RCLONE_S3_NO_CHECK_BUCKET": "true",
    }
    assert "acme" in run(["rclone", "lsd", "w:"], settings)
    listed = run(["rclone", "lsf", "-R", "--files-only", "w:acme/packed/v1/files"], settings).splitlines()
    assert len(listed) == 21
    run(["rclone", "copy", "w:acme/packed/v1/files", str(tmp_path / "copy")], settings)
    assert (tmp_path / "copy" / "large.bin").read_bytes() == large_content()
    run(["rclone", "check", "--download", "w:acme/packed/v1/files", str(tmp_path / "copy")], settings)
    (tmp_path / "17.json").write_text('{"id": 17}')
    run(["rclone", "copyto", str(tmp_path / "17.json"), "w:acme/pets/v1/inbox/rclone/17.json"], settings)
    assert run(["rclone", "cat", "w:acme/pets/v1/inbox/rclone/17.json"], settings) == '{"id": 17}'


def test_s5cmd(gateway: Gateway, tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("s5cmd")
    if not program.exists():
        pytest.skip("s5cmd is not installed")
    command = [str(program), "--endpoint-url", gateway.endpoint]
    settings = environment(gateway, "inbox")
    listed = run([*command, "--json", "ls", "s3://acme/packed/v1/files/*"], settings).splitlines()
    assert len([json.loads(line) for line in listed]) == 21
    run([*command, "cp", "s3://acme/packed/v1/files/*", str(tmp_path / "copy") + "/"], settings)
    assert (tmp_path / "copy" / "large.bin").read_bytes() == large_content()
    (tmp_path / "18.json").write_text('{"id": 18}')
    run([*command, "cp", str(tmp_path / "18.json"), "s3://acme/pets/v1/inbox/s5cmd/18.json"], settings)
    assert run([*command, "cat", "s3://acme/pets/v1/inbox/s5cmd/18.json"], settings).strip() == '{"id": 18}'


@pytest.mark.skipif(not S3FS_PYTHON.exists(), reason="`make test-s3-clients` installs s3fs")
def test_s3fs(gateway: Gateway) -> None:
    program = f"""
import s3fs
fs = s3fs.S3FileSystem(endpoint_url={gateway.endpoint!r}, client_kwargs={{"region_name": "us-east-1"}})
assert fs.ls("acme/pets", detail=False) == ["acme/pets/HEAD", "acme/pets/main", "acme/pets/v1"]
assert len(fs.find("acme/packed/v1/files")) == 21
assert fs.isdir("acme/packed/v1/files") and not fs.exists("acme/packed/v2")
with fs.open("acme/packed/v1/files/large.bin", block_size=2**20) as file:
    file.seek(4194300)
    print(file.read(10).hex(), fs.size("acme/packed/v1/files/large.bin"))
fs.pipe("acme/pets/v1/inbox/s3fs/19.json", b'{{"id": 19}}')
print(fs.cat("acme/pets/v1/inbox/s3fs/19.json").decode())
"""
    printed = run([str(S3FS_PYTHON), "-c", program], environment(gateway, "inbox")).split("\n")
    assert printed[0] == f"{large_content()[4194300:4194310].hex()} {len(large_content())}"
    assert printed[1] == '{"id": 19}'
