"""If this fails, a link that someone put into a directory publishes a file of another place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import warpdata as wd
from tests.cli.scenes import run
from tests.ingest.scenes import png, write_tar
from warpdata.errors import BadInputError, InvalidSourceError
from warpdata.formats.wshard import Channel, ChunkedEpisodeWriter, Episode, save_wshard
from warpdata.ingest import Media, Packing, audiofolder, csv, imagefolder, webdataset

SECRET = b"root:x:0:0:root:/root:/bin/bash\n"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A directory with files that must not be published."""
    directory = tmp_path / "outside"
    directory.mkdir()
    (directory / "passwd").write_bytes(SECRET)
    (directory / "passwd.png").write_bytes(png(1))
    write_tar(directory / "passwd.tar", [("0001.txt", SECRET)])
    pq.write_table(pa.table({"word": ["secret"]}), directory / "passwd.parquet")
    save_wshard(
        Episode(id="secret", length=2, observations={"x": Channel("x", np.arange(2))}), directory / "passwd.wshard"
    )
    return directory


@pytest.fixture
def inside(tmp_path: Path) -> Path:
    directory = tmp_path / "inside"
    (directory / "deep").mkdir(parents=True)
    (directory / "deep" / "a.png").write_bytes(png(2))
    (directory / "table.csv").write_text("image\ndeep/a.png\n")
    write_tar(directory / "a.tar", [("0000.txt", b"hello")])
    return directory


Make = Callable[[Path, bool], wd.DatasetBuilder]
INGESTS: dict[str, tuple[str, str, Make]] = {
    "imagefolder": ("x.png", "passwd", lambda at, follow: imagefolder("a/b", at, packing=Packing(follow_links=follow))),
    "audiofolder": ("x.wav", "passwd", lambda at, follow: audiofolder("a/b", at, packing=Packing(follow_links=follow))),
    "csv": ("x.csv", "passwd", lambda at, follow: csv("a/b", at, packing=Packing(follow_links=follow))),
    "csv by glob": (
        "x.csv",
        "passwd",
        lambda at, follow: csv("a/b", f"{at}/*.csv", packing=Packing(follow_links=follow)),
    ),
    "media of a csv": (
        "deep/x.png",
        "passwd",
        lambda at, follow: csv(
            "a/b", at / "table.csv", media={"image": Media(at)}, packing=Packing(follow_links=follow)
        ),
    ),
    "webdataset": ("x.tar", "passwd.tar", lambda at, follow: webdataset("a/b", at, follow_links=follow)),
    "add_table": (
        "deep/x.parquet",
        "passwd.parquet",
        lambda at, follow: wd.DatasetBuilder("a/b").add_table("main", at, follow_links=follow),
    ),
    "add_table by glob": (
        "x.parquet",
        "passwd.parquet",
        lambda at, follow: wd.DatasetBuilder("a/b").add_table("main", [f"{at}/*.parquet"], follow_links=follow),
    ),
    "append_table": (
        "x.parquet",
        "passwd.parquet",
        lambda at, follow: wd.DatasetBuilder("a/b").append_table("main", at, follow_links=follow),
    ),
    "add_episodes": (
        "deep/x.wshard",
        "passwd.wshard",
        lambda at, follow: wd.DatasetBuilder("a/b").add_episodes("demos", at, follow_links=follow),
    ),
    "add_episodes by glob": (
        "x.wshard",
        "passwd.wshard",
        lambda at, follow: wd.DatasetBuilder("a/b").add_episodes("demos", f"{at}/*.wshard", follow_links=follow),
    ),
    "add_artifact": (
        "x",
        "passwd",
        lambda at, follow: wd.DatasetBuilder("a/b").add_artifact("raw", at, follow_links=follow),
    ),
    "add_artifact by glob": (
        "deep/x",
        "passwd",
        lambda at, follow: wd.DatasetBuilder("a/b").add_artifact("raw", f"{at}/deep/*", follow_links=follow),
    ),
    "tar shards": (
        "x.tar",
        "passwd.tar",
        lambda at, follow: wd.DatasetBuilder("a/b").add_artifact(
            "raw", f"{at}/*.tar", "webdataset_shards", follow_links=follow
        ),
    ),
}


@pytest.mark.parametrize("how", INGESTS)
def test_a_link_out_of_the_directory_is_refused_or_followed_on_request(how: str, inside: Path, outside: Path) -> None:
    name, target, make = INGESTS[how]
    (inside / name).symlink_to(outside / target)
    with pytest.raises(InvalidSourceError, match=rf"{name} is a link to .*passwd.*, outside of") as raised:
        make(inside, False).publish()
    assert "follow_links=True (--follow-links)" in str(raised.value.hint)
    assert wd.list_datasets() == []
    assert make(inside, True).publish().changed


@pytest.mark.parametrize("how", ["imagefolder", "add_artifact", "add_artifact by glob"])
def test_a_link_within_the_directory_is_a_file(how: str, inside: Path) -> None:
    name, _, make = INGESTS[how]
    (inside / name).symlink_to(inside / "deep" / "a.png")
    make(inside, False).publish()
    assert wd.dataset("a/b").artifact().read(Path(name).name if "glob" in how else name) == png(2)


def test_a_directory_behind_a_link_in_a_glob_is_outside(inside: Path, outside: Path) -> None:
    (inside / "more").symlink_to(outside)
    with pytest.raises(InvalidSourceError, match="outside of"):
        wd.DatasetBuilder("a/b").add_artifact("raw", f"{inside}/*/passwd*").publish()


def test_a_directory_that_is_a_link_itself_may_be_named(inside: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(inside)
    imagefolder("a/b", tmp_path / "alias").publish()
    assert len(wd.dataset("a/b").artifact()) == 1


def test_files_named_one_by_one_are_read(outside: Path, tmp_path: Path) -> None:
    for suffix in ("", ".parquet", ".wshard"):
        (tmp_path / f"link{suffix}").symlink_to(outside / f"passwd{suffix}")
    builder = wd.DatasetBuilder("a/b").add_artifact("raw", [tmp_path / "link"])
    builder.add_table("main", tmp_path / "link.parquet").add_episodes("demos", [tmp_path / "link.wshard"]).publish()
    assert wd.dataset("a/b").artifact().read("link") == SECRET
    assert wd.dataset("a/b").table().head(1)["word"].to_pylist() == ["secret"]


def test_a_chunk_that_a_manifest_names_stays_in_its_directory(inside: Path, outside: Path) -> None:
    episode = Episode(id="e", length=4, observations={"x": Channel("x", np.arange(4))})
    writer = ChunkedEpisodeWriter(inside, "e", chunk_size_t=4)
    writer.write_chunk(episode)
    writer.finalize_manifest()
    (manifest,), (chunk,) = inside.glob("*_manifest.wshard"), inside.glob("*_chunk_*")
    chunk.rename(outside / chunk.name)
    chunk.symlink_to(outside / chunk.name)
    with pytest.raises(InvalidSourceError, match="outside of"):
        wd.DatasetBuilder("a/b").add_episodes("demos", manifest).publish()
    assert wd.DatasetBuilder("a/b").add_episodes("demos", manifest, follow_links=True).publish().changed


@pytest.mark.parametrize(
    "command",
    [
        ("ingest", "imagefolder", "a/b", "{}"),
        ("publish", "a/b", "--artifact", "raw={}"),
        ("publish", "a/b", "--table", "main={}"),
        ("publish", "a/b", "--episodes", "demos={}"),
    ],
    ids=lambda command: command[-1],
)
def test_the_command_line_refuses_and_follows(command: tuple[str, ...], inside: Path, outside: Path) -> None:
    for suffix in ("png", "parquet", "wshard"):
        (inside / f"x.{suffix}").symlink_to(outside / f"passwd.{suffix}")
    args = [part.format(inside) for part in command]
    refused = run(*args)
    assert refused.exit_code != 0
    assert "--follow-links" in refused.stderr
    assert run(*args, "--follow-links").exit_code == 0


def refuse(value: Any) -> None:
    with pytest.raises(BadInputError, match=r"cannot be made from|source must be"):
        wd.DatasetBuilder("a/b").add_artifact("raw", value).publish()


def test_what_is_no_source_of_an_artifact_is_refused() -> None:
    for value in (5, object(), [5], {"a": 5}, b"bytes"):
        refuse(value)
