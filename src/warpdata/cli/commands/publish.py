"""`warp publish`: files become a new version."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click

from warpdata.cli.context import CliContext
from warpdata.cli.options import command, dataset_argument
from warpdata.cli.parameters import ArtifactType, BindingType, PairType
from warpdata.cli.publish_report import (
    DRY_RUN_KEYS,
    PUBLISH_KEYS,
    PublishRequest,
    packing_options,
    print_result,
    publish_options,
    run_publish,
)
from warpdata.publish import DatasetBuilder
from warpdata.session import Session

__all__ = ["publish"]


@dataclass(frozen=True, slots=True)
class _Content:
    """What to publish."""

    tables: tuple[tuple[str, str], ...]
    artifacts: tuple[tuple[str, str, str], ...]
    bindings: tuple[tuple[str, str, str], ...]
    episodes: tuple[tuple[str, str], ...]
    tensors: tuple[tuple[str, str], ...]
    append: bool
    rewrite: bool
    compression: str | None
    shard_bytes: int | None


@command("publish", json_keys={**PUBLISH_KEYS, **DRY_RUN_KEYS})
@dataset_argument()
@click.option(
    "--table",
    "tables",
    type=PairType("NAME=GLOB"),
    multiple=True,
    metavar="NAME=GLOB",
    help="A table and its Parquet files: a file, a folder or a quoted glob. Repeat it for more.",
)
@click.option("--append", is_flag=True, help="Add the rows to what is there, instead of replacing it.")
@click.option("--rewrite", is_flag=True, help="Write the files anew, with even row groups and page checksums.")
@click.option(
    "--artifact",
    "artifacts",
    type=ArtifactType(),
    multiple=True,
    metavar="NAME[:KIND]=PATH",
    help="Raw files: a folder, a file or a quoted glob. KIND is tar_shards (packed, the default), webdataset_shards "
    "(tars taken as they are) or files (each an object of its own). Repeat it for more.",
)
@click.option(
    "--bind",
    "bindings",
    type=BindingType(),
    multiple=True,
    metavar="TABLE.COLUMN=ARTIFACT[:TYPE]",
    help="The paths in a column refer to files of an artifact, as TYPE file (the default), image, audio or video.",
)
@click.option(
    "--episodes",
    type=PairType("NAME=PATH"),
    multiple=True,
    metavar="NAME=PATH",
    help="Recorded episodes: a WShard file, a folder or a quoted glob. Repeat it for more.",
)
@click.option(
    "--tensors",
    type=PairType("NAME=PATH"),
    multiple=True,
    metavar="NAME=PATH",
    help="Tensors: a .safetensors file or a folder of them. Repeat it for more.",
)
@packing_options
@publish_options
@click.pass_obj
def publish(cli: CliContext, /, dataset_id: str, **given: Any) -> None:
    """Publish tables, raw files, episodes and tensors as a new version.

    Parquet and WShard files are taken as they are, byte for byte. Publishing the same content again changes
    nothing. Interrupted at any point, it leaves the previous version intact and can be run again:
    what was sent is not sent twice.

    \b
      warp publish acme/trips --table main='data/*.parquet' -m "first load" --label v1
      warp publish acme/trips --table main=data/june.parquet --append
      warp publish acme/pets --table main=pets.parquet --artifact raw_images=images/ \\
        --bind main.image=raw_images:image
      warp publish acme/robot --episodes demos='recordings/*.wshard'
    """
    content = _Content(**{name: given.pop(name) for name in _Content.__slots__})
    request = PublishRequest(dataset_id=dataset_id, **given)
    if not (content.tables or content.artifacts or content.episodes or content.tensors):
        raise click.UsageError("there is nothing to publish: give --table, --artifact, --episodes or --tensors")
    if content.append and (content.artifacts or content.bindings or content.episodes or content.tensors):
        raise click.UsageError("--append adds rows to tables only; everything else is published with all rows")
    if content.compression and "tar_shards" not in {kind for _, kind, _ in content.artifacts}:
        raise click.UsageError("--compression is for artifacts that are packed, of kind tar_shards")
    with cli.progress(f"Preparing {dataset_id}") as progress:
        session = cli.connect()
        done = run_publish(_builder(session, dataset_id, content), session, request, progress)
    print_result(cli, session, request, done)


def _builder(session: Session, dataset_id: str, content: _Content) -> DatasetBuilder:
    builder = DatasetBuilder(dataset_id, session)
    sources: dict[str, list[str]] = {}
    for name, source in content.tables:
        sources.setdefault(name, []).append(source)
    for name, globs in sources.items():
        add = builder.append_table if content.append else builder.add_table
        add(name, list(globs), rewrite=content.rewrite)
    for name, kind, path in content.artifacts:
        compression = content.compression if kind == "tar_shards" else None
        builder.add_artifact(name, path, kind, compression=compression, shard_bytes=content.shard_bytes)
    recorded: dict[str, list[str]] = {}
    for name, source in content.episodes:
        recorded.setdefault(name, []).append(source)
    for name, globs in recorded.items():
        builder.add_episodes(name, globs)
    for name, path in content.tensors:
        builder.add_tensors(name, path)
    for place, artifact, ref_type in content.bindings:
        builder.bind(*_take_apart(place, sources), artifact, ref_type)
    return builder


def _take_apart(place: str, tables: dict[str, list[str]]) -> tuple[str, str]:
    """Table and column; where both may have dots, the longest name of a table wins."""
    known = [name for name in tables if place.startswith(f"{name}.")]
    table = max(known, key=len, default=place.partition(".")[0])
    return table, place.removeprefix(f"{table}.")
