"""If this fails, raw files of a dataset change or are described wrongly."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import warpdata as wd
from tests.cli.scenes import PROGRAM, ask, parquet, run, run_program
from tests.cli.test_app import loaded
from tests.ingest.scenes import plant, png
from warpdata.cli.parameters import ArtifactType, BindingType, MediaType, SliceType
from warpdata.limits import MEMBER_CHUNK_BYTES
from warpdata.primitives.hashing import blob_key

IMAGES = {f"images/{name}.png": png(shade) for shade, name in enumerate(("ant", "bee", "cat", "é"))}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Images, and a table with their paths."""
    parquet(tmp_path, "main.parquet", pa.table({"n": range(4), "image": list(IMAGES)}))
    return plant(tmp_path, {**IMAGES})


def publish_pets(directory: Path, *more: str) -> str:
    args = ("--artifact", f"raw={directory}/images", "--bind", "main.image=raw:image", *more)
    version: str = ask("publish", "acme/pets", "--table", f"main={directory}/main.parquet", *args)["version"]
    return version


# Publishing


def test_publish_packs_and_binds(directory: Path) -> None:
    version = publish_pets(directory, "--compression", "zstd", "--shard-size", "100")
    opened = wd.dataset("acme/pets")
    (artifact,) = opened.info().artifacts
    assert (artifact.kind, artifact.compression, artifact.members, artifact.shards) == ("tar_shards", "zstd", 4, 4)
    assert [ref.read_bytes() for ref in next(opened.table().batch_dicts(4))["image"]] == list(IMAGES.values())
    again = ask(
        *("publish", "acme/pets", "--table", f"main={directory}/main.parquet", "--artifact", f"raw={directory}/images"),
        *("--bind", "main.image=raw:image", "--compression", "zstd", "--shard-size", "100"),
    )
    assert (again["version"], again["changed"], again["uploaded_files"]) == (version, False, 0)


def test_artifact_without_table(directory: Path) -> None:
    done = ask("publish", "acme/raw", "--artifact", f"each:files={directory}/images", "--artifact", f"all={directory}")
    assert done["changed"] is True
    kinds = {artifact.name: artifact.kind for artifact in wd.dataset("acme/raw").info().artifacts}
    assert kinds == {"each": "files", "all": "tar_shards"}


def test_dry_run_lists_shards_before_packing(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(directory)
    args = ("publish", "acme/pets", "--table", "main=main.parquet", "--artifact", "raw=images", "--dry-run")
    shown = ask(*args, "--shard-size", "150")
    assert set(shown) <= set(loaded("publish").json_keys)
    assert (shown["tables"], shown["artifacts"]) == ({"main": 4}, {"raw": 4})
    listed = [(file["path"], file["members"]) for file in shown["files"]]
    shards = [("raw/000000.tar", 2), ("raw/000001.tar", 2)]
    assert listed == [("main.parquet", None), *shards, ("raw.members", None)]
    text = run(*args, "--shard-size", "150").stdout
    assert "raw/000001.tar (2 files)" in text
    assert "artifact raw   4 files" in text
    assert wd.list_datasets() == []


def test_bind_tables_and_columns_with_dots(directory: Path) -> None:
    for name in ("a", "a.b"):
        parquet(directory, f"{name}.parquet", pa.table({"c": list(IMAGES), "b.c": list(IMAGES), "x=y": list(IMAGES)}))
    args = ("--artifact", f"raw={directory}/images", "--bind", "a.b.c=raw", "--bind", "a.x=y=raw:file")
    ask("publish", "acme/t", "--table", f"a={directory}/a.parquet", *args)
    assert {(bound.table, bound.column) for bound in wd.dataset("acme/t").info().bindings} == {
        ("a", "b.c"),
        ("a", "x=y"),
    }
    ask(
        "publish",
        "acme/t",
        *(f"--table={name}={directory}/{name}.parquet" for name in ("a", "a.b")),
        *args,
        "--replace",
    )
    assert {(bound.table, bound.column) for bound in wd.dataset("acme/t").info().bindings} == {
        ("a.b", "c"),
        ("a", "x=y"),
    }


def test_path_without_member_is_bad_input(directory: Path) -> None:
    (directory / "images" / "bee.png").unlink()
    args = ("--artifact", f"raw={directory}/images", "--bind", "main.image=raw:image")
    result = run("publish", "acme/pets", "--table", f"main={directory}/main.parquet", *args)
    assert result.exit_code == 5
    assert "images/bee.png" in result.stderr
    assert wd.list_datasets() == []


def test_convert_parameter_values() -> None:
    artifact, binding, media, part = ArtifactType(), BindingType(), MediaType(), SliceType()
    assert artifact.convert("raw=a=b:c", None, None) == ("raw", "tar_shards", "a=b:c")
    assert binding.convert("t.c=raw:image", None, None) == ("t.c", "raw", "image")
    assert media.convert("photo=a:b/c", None, None) == ("photo", "a:b/c", None)
    assert media.convert("photo=a/b:image", None, None) == ("photo", "a/b", "image")
    slices = [part.convert(text, None, None) for text in ("0:50", "50:", ":50", ":", "7")]
    assert slices == [slice(0, 50), slice(50, None), slice(None, 50), slice(None), slice(7, 8)]


# Reading


@pytest.mark.parametrize("mode", [[], ["--mode", "local"]])
def test_info_inspect_schema_head_and_members(directory: Path, mode: list[str]) -> None:
    publish_pets(directory)
    for name in ("info", "inspect", "schema", "head", "members"):
        assert list(ask(name, "acme/pets", *mode)) == list(loaded(name).json_keys)
    (artifact,) = ask("info", "acme/pets", *mode)["artifacts"]
    assert {key: artifact[key] for key in ("name", "kind", "members", "shards", "compression")} == {
        "name": "raw",
        "kind": "tar_shards",
        "members": 4,
        "shards": 1,
        "compression": None,
    }
    binding = {"table": "main", "column": "image", "artifact": "raw", "ref_type": "image"}
    assert ask("info", "acme/pets")["bindings"] == ask("inspect", "acme/pets")["bindings"] == [binding]
    table, packed = ask("inspect", "acme/pets")["entries"]
    assert (table["rows"], table["members"], packed["rows"], packed["members"]) == (4, None, None, 4)
    image = ask("schema", "acme/pets")["tables"][0]["columns"][1]
    assert (image["type"], image["refers_to"]) == ("string", {"artifact": "raw", "ref_type": "image"})
    assert "ref<image> → raw" in run("schema", "acme/pets").stdout
    assert "artifact raw: tar_shards, 4 files" in run("inspect", "acme/pets").stdout
    assert "4 rows, 4 files, " in run("info", "acme/pets").stdout


def test_bound_columns_are_paths(directory: Path) -> None:
    publish_pets(directory)
    assert [row["image"] for row in ask("head", "acme/pets")["rows"]] == list(IMAGES)
    assert "images/bee.png" in run("head", "acme/pets", "--filter", "image LIKE '%bee%'").stdout
    lines = run("stream", "acme/pets", "--columns", "image").stdout.splitlines()
    assert [json.loads(line)["image"] for line in lines] == list(IMAGES)
    arrow = pa.ipc.open_stream(run("stream", "acme/pets", "--format", "arrow").stdout_bytes).read_all()
    assert arrow.schema.field("image").type == pa.string()
    assert "image: ref<image>" in run("init", "acme/pets", "-o", "-").stdout


def test_list_members(directory: Path) -> None:
    version = publish_pets(directory)
    shown = ask("members", "acme/pets")
    assert (shown["version"], shown["artifact"]) == (version, "raw")
    sizes = {name: len(content) for name, content in IMAGES.items()}
    assert [(m["path"], m["size_bytes"], m["shard"]) for m in shown["members"]] == [(n, s, 0) for n, s in sizes.items()]
    assert [m["path"] for m in ask("members", "acme/pets", "--prefix", "images/b")["members"]] == ["images/bee.png"]
    assert [m["path"] for m in ask("members", "acme/pets", "--limit", "2")["members"]] == list(IMAGES)[:2]
    assert ask("members", "acme/pets", "--limit", "0")["members"] == []
    lines = run("members", "acme/pets", "--artifact", "raw").stdout.splitlines()
    assert [line.split()[-1] for line in lines] == list(IMAGES)
    nothing = run("members", "acme/pets", "--prefix", "z")
    assert (nothing.exit_code, nothing.stdout) == (0, "")
    assert "begins with 'z'" in nothing.stderr


def test_member_names_are_escaped() -> None:
    wd.DatasetBuilder("acme/evil").add_artifact("raw", {"\x1b[31mred\n": b"x"}).publish()
    assert "\x1b" not in run("members", "acme/evil").stdout
    assert len(run("members", "acme/evil").stdout.splitlines()) == 1
    assert ask("members", "acme/evil")["members"][0]["path"] == "\x1b[31mred\n"


# Bytes


def test_cat_writes_only_bytes(directory: Path) -> None:
    publish_pets(directory)
    names = list(IMAGES)
    done = subprocess.run(
        [*PROGRAM, "cat", "acme/pets", "--artifact", "raw", "--ref", names[2], "--ref", names[0]],
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == IMAGES[names[2]] + IMAGES[names[0]]
    assert done.stderr == b""
    missing = run("cat", "acme/pets", "--ref", names[0], "--ref", "images/be.png")
    assert (missing.exit_code, missing.stdout_bytes) == (3, b"")
    assert "images/bee.png" in missing.stderr


def test_cat_refuses_terminal_without_force() -> None:
    wd.DatasetBuilder("acme/raw").add_artifact("raw", {"a.txt": b"hello"}).publish()
    for force, code, shown in ((False, 2, b""), (True, 0, b"hello")):
        controller, terminal = pty.openpty()
        args = [*PROGRAM, "cat", "acme/raw", "--ref", "a.txt", *(["--force"] if force else [])]
        done = subprocess.run(args, stdout=terminal, stderr=subprocess.PIPE, timeout=60, check=False)
        os.close(terminal)
        try:
            written = os.read(controller, 100)
        except OSError:
            written = b""
        os.close(controller)
        assert (done.returncode, written) == (code, shown)
        assert force or b"--force" in done.stderr


def test_cat_of_large_file_uses_constant_memory(tmp_path: Path) -> None:
    for name, count in (("small", 2), ("large", 24)):
        with (tmp_path / name).open("wb") as file:
            file.write(b"first")
            file.truncate(count * MEMBER_CHUNK_BYTES)
    wd.DatasetBuilder("acme/raw").add_artifact("raw", tmp_path).publish()
    script = (
        "import sys, resource\n"
        "from warpdata.cli import warp\n"
        "try: warp.main(['cat', 'acme/raw', '--ref', sys.argv[1]], prog_name='warp')\n"
        "finally: print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)\n"
    )
    peak_kib = {}
    for name in ("small", "large"):
        with (tmp_path / f"{name}.out").open("wb") as out:
            done = subprocess.run([sys.executable, "-c", script, name], stdout=out, stderr=subprocess.PIPE, check=True)
        peak_kib[name] = int(done.stderr)
        assert (tmp_path / f"{name}.out").stat().st_size == (tmp_path / name).stat().st_size
    assert peak_kib["large"] - peak_kib["small"] < 4 * MEMBER_CHUNK_BYTES // 1024, peak_kib


def test_cat_ends_silently_on_closed_pipe(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(3 * MEMBER_CHUNK_BYTES))
    wd.DatasetBuilder("acme/raw").add_artifact("raw", tmp_path).publish()
    with subprocess.Popen(
        [*PROGRAM, "cat", "acme/raw", "--ref", "large"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as program:
        assert program.stdout is not None
        assert program.stderr is not None
        assert program.stdout.read(10)
        program.stdout.close()
        assert program.stderr.read() == b""
        assert program.wait(timeout=30) == 0


def test_cat_never_writes_corrupt_data(directory: Path) -> None:
    publish_pets(directory)
    opened = wd.dataset("acme/pets")
    path = wd.connect().reader.local_path(blob_key(opened.artifact().shard_of("images/bee.png").hash))
    assert path is not None
    data = bytearray(path.read_bytes())
    data[data.index(png(1)) + 5] ^= 1
    path.chmod(0o644)
    path.write_bytes(data)
    corrupt = run("cat", "acme/pets", "--ref", "images/bee.png")
    assert (corrupt.exit_code, corrupt.stdout_bytes) == (8, b"")
    assert "images/bee.png" in corrupt.stderr
    assert run_program("verify", "acme/pets").returncode == 8
    assert run("cat", "acme/pets", "--ref", "images/cat.png").stdout_bytes == png(2)
