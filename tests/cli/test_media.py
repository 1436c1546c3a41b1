"""If this fails, raw files do not come out of a dataset as they went in, or are told to be what they are not."""

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

PICTURES = {f"pictures/{name}.png": png(shade) for shade, name in enumerate(("ant", "bee", "cat", "é"))}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Pictures, and a table that names them."""
    parquet(tmp_path, "main.parquet", pa.table({"n": range(4), "image": list(PICTURES)}))
    return plant(tmp_path, {**PICTURES})


def publish_pets(folder: Path, *more: str) -> str:
    args = ("--artifact", f"raw={folder}/pictures", "--bind", "main.image=raw:image", *more)
    version: str = ask("publish", "acme/pets", "--table", f"main={folder}/main.parquet", *args)["version"]
    return version


# Publishing


def test_publish_packs_and_binds(folder: Path) -> None:
    version = publish_pets(folder, "--compression", "zstd", "--shard-size", "100")
    opened = wd.dataset("acme/pets")
    (artifact,) = opened.info().artifacts
    assert (artifact.kind, artifact.compression, artifact.members, artifact.shards) == ("tar_shards", "zstd", 4, 4)
    assert [ref.read_bytes() for ref in next(opened.table().batch_dicts(4))["image"]] == list(PICTURES.values())
    again = ask(
        *("publish", "acme/pets", "--table", f"main={folder}/main.parquet", "--artifact", f"raw={folder}/pictures"),
        *("--bind", "main.image=raw:image", "--compression", "zstd", "--shard-size", "100"),
    )
    assert (again["version"], again["changed"], again["uploaded_files"]) == (version, False, 0)


def test_an_artifact_needs_no_table_and_has_a_kind(folder: Path) -> None:
    done = ask("publish", "acme/raw", "--artifact", f"each:files={folder}/pictures", "--artifact", f"all={folder}")
    assert done["changed"] is True
    kinds = {artifact.name: artifact.kind for artifact in wd.dataset("acme/raw").info().artifacts}
    assert kinds == {"each": "files", "all": "tar_shards"}


def test_a_dry_run_names_shards_that_are_not_packed_yet(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    args = ("publish", "acme/pets", "--table", "main=main.parquet", "--artifact", "raw=pictures", "--dry-run")
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


def test_tables_and_columns_with_dots_are_told_apart(folder: Path) -> None:
    for name in ("a", "a.b"):
        parquet(
            folder, f"{name}.parquet", pa.table({"c": list(PICTURES), "b.c": list(PICTURES), "x=y": list(PICTURES)})
        )
    args = ("--artifact", f"raw={folder}/pictures", "--bind", "a.b.c=raw", "--bind", "a.x=y=raw:file")
    ask("publish", "acme/t", "--table", f"a={folder}/a.parquet", *args)
    assert {(bound.table, bound.column) for bound in wd.dataset("acme/t").info().bindings} == {
        ("a", "b.c"),
        ("a", "x=y"),
    }
    ask("publish", "acme/t", *(f"--table={name}={folder}/{name}.parquet" for name in ("a", "a.b")), *args)
    assert {(bound.table, bound.column) for bound in wd.dataset("acme/t").info().bindings} == {
        ("a.b", "c"),
        ("a", "x=y"),
    }


def test_a_path_that_leads_nowhere_is_bad_input(folder: Path) -> None:
    (folder / "pictures" / "bee.png").unlink()
    args = ("--artifact", f"raw={folder}/pictures", "--bind", "main.image=raw:image")
    result = run("publish", "acme/pets", "--table", f"main={folder}/main.parquet", *args)
    assert result.exit_code == 5
    assert "pictures/bee.png" in result.stderr
    assert wd.list_datasets() == []


def test_values_that_are_more_than_text() -> None:
    artifact, binding, media, part = ArtifactType(), BindingType(), MediaType(), SliceType()
    assert artifact.convert("raw=a=b:c", None, None) == ("raw", "tar_shards", "a=b:c")
    assert binding.convert("t.c=raw:image", None, None) == ("t.c", "raw", "image")
    assert media.convert("photo=a:b/c", None, None) == ("photo", "a:b/c", None)
    assert media.convert("photo=a/b:image", None, None) == ("photo", "a/b", "image")
    slices = [part.convert(text, None, None) for text in ("0:50", "50:", ":50", ":", "7")]
    assert slices == [slice(0, 50), slice(50, None), slice(None, 50), slice(None), slice(7, 8)]


# Looking


@pytest.mark.parametrize("mode", [[], ["--mode", "local"]])
def test_what_there_is_is_told(folder: Path, mode: list[str]) -> None:
    publish_pets(folder)
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


def test_rows_show_paths(folder: Path) -> None:
    publish_pets(folder)
    assert [row["image"] for row in ask("head", "acme/pets")["rows"]] == list(PICTURES)
    assert "pictures/bee.png" in run("head", "acme/pets", "--filter", "image LIKE '%bee%'").stdout
    lines = run("stream", "acme/pets", "--columns", "image").stdout.splitlines()
    assert [json.loads(line)["image"] for line in lines] == list(PICTURES)
    arrow = pa.ipc.open_stream(run("stream", "acme/pets", "--format", "arrow").stdout_bytes).read_all()
    assert arrow.schema.field("image").type == pa.string()
    assert "image: ref<image>" in run("init", "acme/pets", "-o", "-").stdout


def test_members_are_listed(folder: Path) -> None:
    version = publish_pets(folder)
    shown = ask("members", "acme/pets")
    assert (shown["version"], shown["artifact"]) == (version, "raw")
    sizes = {name: len(content) for name, content in PICTURES.items()}
    assert [(m["path"], m["size_bytes"], m["shard"]) for m in shown["members"]] == [(n, s, 0) for n, s in sizes.items()]
    assert [m["path"] for m in ask("members", "acme/pets", "--prefix", "pictures/b")["members"]] == ["pictures/bee.png"]
    assert [m["path"] for m in ask("members", "acme/pets", "--limit", "2")["members"]] == list(PICTURES)[:2]
    assert ask("members", "acme/pets", "--limit", "0")["members"] == []
    lines = run("members", "acme/pets", "--artifact", "raw").stdout.splitlines()
    assert [line.split()[-1] for line in lines] == list(PICTURES)
    nothing = run("members", "acme/pets", "--prefix", "z")
    assert (nothing.exit_code, nothing.stdout) == (0, "")
    assert "begins with 'z'" in nothing.stderr


def test_a_terminal_is_never_told_what_to_do_by_a_name() -> None:
    wd.DatasetBuilder("acme/evil").add_artifact("raw", {"\x1b[31mred\n": b"x"}).publish()
    assert "\x1b" not in run("members", "acme/evil").stdout
    assert len(run("members", "acme/evil").stdout.splitlines()) == 1
    assert ask("members", "acme/evil")["members"][0]["path"] == "\x1b[31mred\n"


# Bytes


def test_cat_writes_bytes_and_nothing_else(folder: Path) -> None:
    publish_pets(folder)
    names = list(PICTURES)
    done = subprocess.run(
        [*PROGRAM, "cat", "acme/pets", "--artifact", "raw", "--ref", names[2], "--ref", names[0]],
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == PICTURES[names[2]] + PICTURES[names[0]]
    assert done.stderr == b""
    missing = run("cat", "acme/pets", "--ref", names[0], "--ref", "pictures/be.png")
    assert (missing.exit_code, missing.stdout_bytes) == (3, b"")
    assert "pictures/bee.png" in missing.stderr


def test_cat_refuses_a_terminal_unless_forced() -> None:
    wd.DatasetBuilder("acme/raw").add_artifact("raw", {"a.txt": b"hello"}).publish()
    for force, code, shown in ((False, 2, b""), (True, 0, b"hello")):
        ours, theirs = pty.openpty()
        args = [*PROGRAM, "cat", "acme/raw", "--ref", "a.txt", *(["--force"] if force else [])]
        done = subprocess.run(args, stdout=theirs, stderr=subprocess.PIPE, timeout=60, check=False)
        os.close(theirs)
        try:
            written = os.read(ours, 100)
        except OSError:
            written = b""
        os.close(ours)
        assert (done.returncode, written) == (code, shown)
        assert force or b"--force" in done.stderr


def test_cat_reads_a_large_file_with_flat_memory(tmp_path: Path) -> None:
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


def test_a_reader_that_has_enough_ends_cat_quietly(tmp_path: Path) -> None:
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


def test_damage_is_never_written(folder: Path) -> None:
    publish_pets(folder)
    opened = wd.dataset("acme/pets")
    path = wd.connect().reader.local_path(blob_key(opened.artifact().shard_of("pictures/bee.png").hash))
    assert path is not None
    data = bytearray(path.read_bytes())
    data[data.index(png(1)) + 5] ^= 1
    path.chmod(0o644)
    path.write_bytes(data)
    damaged = run("cat", "acme/pets", "--ref", "pictures/bee.png")
    assert (damaged.exit_code, damaged.stdout_bytes) == (8, b"")
    assert "pictures/bee.png" in damaged.stderr
    assert run_program("verify", "acme/pets").returncode == 8
    assert run("cat", "acme/pets", "--ref", "pictures/cat.png").stdout_bytes == png(2)
