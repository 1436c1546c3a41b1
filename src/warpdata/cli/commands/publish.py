"""`warp publish`: publish files as a new version."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

import warpdata
from warpdata.cli.context import CliContext
from warpdata.cli.options import command, dataset_argument
from warpdata.cli.parameters import ArtifactType, BindingType, PairType
from warpdata.cli.publish_report import (
    DRY_RUN_KEYS,
    PUBLISH_KEYS,
    PublishRequest,
    links_option,
    packing_options,
    print_result,
    publish_options,
    run_publish,
)
from warpdata.cli.table_sources import check_table_source

if TYPE_CHECKING:
    from warpdata.publish import DatasetBuilder
    from warpdata.session import Session

__all__ = ["publish"]


@dataclass(frozen=True, slots=True)
class _Content:
    """The parts of the new version."""

    tables: tuple[tuple[str, str], ...]
    artifacts: tuple[tuple[str, str, str], ...]
    bindings: tuple[tuple[str, str, str], ...]
    episodes: tuple[tuple[str, str], ...]
    tensors: tuple[tuple[str, str], ...]
    append: bool
    rewrite: bool
    compression: str | None
    shard_bytes: int | None
    follow_links: bool


@command("publish", json_keys={**PUBLISH_KEYS, **DRY_RUN_KEYS})
@dataset_argument()
@click.option(
    "--table",
    "tables",
    type=PairType("NAME=GLOB"),
    multiple=True,
    metavar="NAME=GLOB",
    help="Table from Parquet files: a file, a directory or a quoted glob. Repeatable.",
)
@click.option("--append", is_flag=True, help="Append the rows to the table, and keep the rest of the head.")
@click.option("--rewrite", is_flag=True, help="Rewrite the files with even row groups and page checksums.")
@click.option(
    "--artifact",
    "artifacts",
    type=ArtifactType(),
    multiple=True,
    metavar="NAME[:KIND]=PATH",
    help="Artifact from raw files: a directory, a file or a quoted glob. KIND is tar_shards (packed, the default), "
    "webdataset_shards (existing tars, unchanged) or files (one object per file). Repeatable.",
)
@click.option(
    "--bind",
    "bindings",
    type=BindingType(),
    multiple=True,
    metavar="TABLE.COLUMN=ARTIFACT[:TYPE]",
    help="Bind the paths in a column to the files of an artifact. TYPE is file (the default), image, audio or video. "
    "Repeatable.",
)
@click.option(
    "--episodes",
    type=PairType("NAME=PATH"),
    multiple=True,
    metavar="NAME=PATH",
    help="Recorded episodes: a WShard file, a directory or a quoted glob. Repeatable.",
)
@click.option(
    "--tensors",
    type=PairType("NAME=PATH"),
    multiple=True,
    metavar="NAME=PATH",
    help="Tensors: a .safetensors file or a directory of them. Repeatable.",
)
@packing_options
@links_option
@publish_options
@click.pass_obj
def publish(cli: CliContext, /, dataset_id: str, **given: Any) -> None:
    """Publish tables, files, episodes and tensors.

    The result is a new version of the dataset, with exactly the given content. If the head has tables,
    artifacts, episodes, tensors or bindings that are not given, nothing is published: --keep adds them, and
    --replace publishes without them. Parquet and WShard files are stored unchanged, byte for byte.
    Publishing the same content again changes nothing. An interrupted publish leaves the previous version
    intact; running it again skips the files that were already uploaded.

    \b
      warp publish acme/trips --table main='data/*.parquet' -m "first load" --label v1
      warp publish acme/trips --table main=data/june.parquet --append
      warp publish acme/trips --table stations=stations.parquet --keep
      warp publish acme/pets --table main=pets.parquet --artifact raw_images=images/ \\
        --bind main.image=raw_images:image
      warp publish acme/robot --episodes demos='recordings/*.wshard'
    """
    content = _Content(**{name: given.pop(name) for name in _Content.__slots__})
    request = PublishRequest(dataset_id=dataset_id, **given)
    if not (content.tables or content.artifacts or content.episodes or content.tensors):
        raise click.UsageError("nothing to publish; give --table, --artifact, --episodes or --tensors")
    if content.append and not content.tables:
        raise click.UsageError("--append needs a --table to append to")
    if request.replace and (content.append or request.keep):
        raise click.UsageError(f"--replace does not mix with {'--append' if content.append else '--keep'}")
    if content.compression and "tar_shards" not in {kind for _, kind, _ in content.artifacts}:
        raise click.UsageError("--compression needs an --artifact of kind tar_shards")
    with cli.progress(f"Preparing {dataset_id}") as progress:
        session = cli.connect()
        done = run_publish(_builder(session, dataset_id, content), session, request, progress)
    print_result(cli, session, request, done)


def _builder(session: Session, dataset_id: str, content: _Content) -> DatasetBuilder:
    builder = warpdata.DatasetBuilder(dataset_id, session)
    sources: dict[str, list[str]] = {}
    for name, source in content.tables:
        check_table_source(dataset_id, name, source)
        sources.setdefault(name, []).append(source)
    for name, globs in sources.items():
        add = builder.append_table if content.append else builder.add_table
        add(name, list(globs), rewrite=content.rewrite, follow_links=content.follow_links)
    for name, kind, path in content.artifacts:
        compression = content.compression if kind == "tar_shards" else None
        builder.add_artifact(
            name,
            path,
            kind,
            compression=compression,
            shard_bytes=content.shard_bytes,
            follow_links=content.follow_links,
        )
    episodes: dict[str, list[str]] = {}
    for name, source in content.episodes:
        episodes.setdefault(name, []).append(source)
    for name, globs in episodes.items():
        builder.add_episodes(name, globs, follow_links=content.follow_links)
    for name, path in content.tensors:
        builder.add_tensors(name, path)
    for target, artifact, ref_type in content.bindings:
        builder.bind(*_split_column(target, sources), artifact, ref_type)
    return builder


def _split_column(target: str, tables: dict[str, list[str]]) -> tuple[str, str]:
    """Split `TABLE.COLUMN`. Both may contain dots; the longest known table name wins."""
    known = [name for name in tables if target.startswith(f"{name}.")]
    table = max(known, key=len, default=target.partition(".")[0])
    return table, target.removeprefix(f"{table}.")
