"""`warp ingest`: publish common directory and file layouts with bound media in one step."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import click

import warpdata
from warpdata.cli.context import CliContext
from warpdata.cli.format import count_text, escape
from warpdata.cli.options import WarpCommand, apply_options, command, dataset_argument, group
from warpdata.cli.output import note, print_json
from warpdata.cli.parameters import MediaType
from warpdata.cli.publish_report import (
    DRY_RUN_KEYS,
    PUBLISH_KEYS,
    PublishRequest,
    links_option,
    packing_options,
    print_result,
    publish_options,
    result_document,
    run_publish,
)

if TYPE_CHECKING:
    from warpdata.ingest import IngestReport, Packing
    from warpdata.publish import DatasetBuilder

__all__ = ["ingest"]

_KEYS = {
    **PUBLISH_KEYS,
    "version": "64 hex digits",
    "rows": "number of rows of the table",
    "members": "number of files of the artifacts",
    "ignored": "number of skipped files by file extension",
    "undescribed": "number of media files without a row in the metadata file",
    **DRY_RUN_KEYS,
}
_SHOWN_EXTENSIONS = 6


@group("ingest")
def ingest() -> None:
    """Publish images, audio, WebDataset tars or CSV files.

    Packs the raw files, builds a table and binds its columns. The same files give the same version, so
    repeating the command changes nothing.
    """


def _format(name: str, source: str, *options: Callable[[Any], Any]) -> Callable[[Callable[..., Any]], WarpCommand]:
    """Define a command of the group, with its own options and the shared ones."""

    def decorate(function: Callable[..., Any]) -> WarpCommand:
        table = click.option("--table", default="main", show_default=True, metavar="NAME", help="Name of the table.")
        source_argument = click.argument("source", metavar=source)
        decorators = (dataset_argument(), source_argument, *options, table, links_option, publish_options)
        made = command(name, json_keys=_KEYS)(apply_options(click.pass_obj(function), decorators))
        ingest.add_command(made)
        return made

    return decorate


_kind_option = click.option(
    "--kind",
    type=click.Choice(["tar_shards", "files"]),
    default="tar_shards",
    show_default=True,
    help="Pack the files into tar shards, or store one object per file.",
)
_media_option = click.option(
    "--media",
    type=MediaType(),
    multiple=True,
    metavar="COLUMN=DIRECTORY[:TYPE]",
    help="Pack a directory and bind the paths in a column to its files. TYPE is file, image, audio or video. "
    "Default: by file extension. Repeatable.",
)


@_format("imagefolder", "DIRECTORY", _kind_option, packing_options)
def _imagefolder(cli: CliContext, /, source: str, table: str, **given: Any) -> None:
    """Publish a directory of images.

    The table has one row per image. Column image is bound to the artifact raw_images. Column label is the
    class directory, if there are at least two. Column split is the outermost directory, if these are named
    train, val, valid, validation, dev or test. A metadata.csv, .jsonl or .parquet adds its columns to the
    files named in its column file_name. Other files are skipped and counted.

    \b
      warp ingest imagefolder acme/pets pets/ --label v1
    """
    packing, request = _packing(given), PublishRequest(**given)
    _run(cli, request, partial(warpdata.ingest.imagefolder, request.dataset_id, source, table=table, packing=packing))


@_format("audiofolder", "DIRECTORY", _kind_option, packing_options)
def _audiofolder(cli: CliContext, /, source: str, table: str, **given: Any) -> None:
    """Publish a directory of audio files.

    Works like imagefolder. Column audio is bound to the artifact raw_audio.

    \b
      warp ingest audiofolder acme/birds recordings/
    """
    packing, request = _packing(given), PublishRequest(**given)
    _run(cli, request, partial(warpdata.ingest.audiofolder, request.dataset_id, source, table=table, packing=packing))


@_format("webdataset", "TARS")
def _webdataset(cli: CliContext, /, source: str, table: str, **given: Any) -> None:
    """Publish WebDataset tars.

    The tars of a directory or of a quoted glob become the artifact raw, unchanged. The table has one row
    per sample, with column __key__ and one column per file extension. Columns of images, audio, video and
    other files are bound to the artifact. Columns such as cls, id, txt and json hold the text, or integers
    if all values are integers.

    \b
      warp ingest webdataset acme/web 'shards/*.tar'
    """
    follow_links, request = given.pop("follow_links"), PublishRequest(**given)
    ingest_tars = partial(warpdata.ingest.webdataset, table=table, follow_links=follow_links)
    _run(cli, request, partial(ingest_tars, request.dataset_id, source))


@_format("csv", "FILE", _media_option, _kind_option, packing_options)
def _csv(cli: CliContext, /, source: str, table: str, **given: Any) -> None:
    """Publish a CSV, TSV, JSON lines or Parquet file.

    A directory or a quoted glob concatenates several files. With --media, the paths in a column become
    references into a directory; they may begin with the name of the directory. The whole directory is
    packed as the artifact raw_COLUMN.

    \b
      warp ingest csv acme/pets pets.csv --media photo=photos/
    """
    media = {column: warpdata.ingest.Media(directory, ref_type) for column, directory, ref_type in given.pop("media")}
    packing, request = _packing(given), PublishRequest(**given)
    _run(
        cli,
        request,
        partial(warpdata.ingest.csv, request.dataset_id, source, table=table, media=media, packing=packing),
    )


def _packing(given: dict[str, Any]) -> Packing:
    """Remove the packing options from `given` and return them."""
    names = ("kind", "compression", "shard_bytes", "follow_links")
    return warpdata.ingest.Packing(**{name: given.pop(name) for name in names})


def _run(cli: CliContext, request: PublishRequest, prepare: Callable[..., DatasetBuilder]) -> None:
    found: list[IngestReport] = []
    with cli.progress(f"Scanning {request.dataset_id}") as progress:
        session = cli.connect()
        done = run_publish(prepare(store=session, report=found.append), session, request, progress)
    (survey,) = found
    if cli.as_json:
        counted = {name: getattr(survey, name) for name in ("rows", "members", "ignored", "undescribed")}
        document = {**result_document(session, request, done), **counted}
        print_json({key: document[key] for key in _KEYS if key in document})
        return
    print_result(cli, session, request, done)
    _note(survey)


def _note(survey: IngestReport) -> None:
    note(f"{count_text(survey.rows, 'row')} and {count_text(survey.members, 'file')} from {escape(survey.source)}")
    if survey.ignored:
        parts = [
            f"{count:,} {'.' + escape(extension) if extension else 'without extension'}"
            for extension, count in survey.ignored.items()
        ]
        shown = ", ".join(parts[:_SHOWN_EXTENSIONS]) + (", …" if len(parts) > _SHOWN_EXTENSIONS else "")
        note(f"skipped {count_text(sum(survey.ignored.values()), 'file')} of other types: {shown}")
    if survey.undescribed:
        note(f"the metadata file has no row for {count_text(survey.undescribed, 'file')}")
