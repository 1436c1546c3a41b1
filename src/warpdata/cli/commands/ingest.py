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
from warpdata.cli.parameters import MediaType, PairType
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
    "fields": (
        "of datasets of other libraries: the fields that were kept, changed, lost and added, as four lists of "
        "{field, how, rows}"
    ),
    **DRY_RUN_KEYS,
}
_SHOWN_EXTENSIONS = 6


@group("ingest")
def ingest() -> None:
    """Publish media, CSV files and datasets of other libraries.

    Packs the raw files, builds a table and binds its columns. The same files give the same version, so
    repeating the command changes nothing.
    """


def _format(
    name: str, source: str, *options: Callable[[Any], Any], has_table: bool = True
) -> Callable[[Callable[..., Any]], WarpCommand]:
    """Define a command of the group, with its own options and the shared ones."""

    def decorate(function: Callable[..., Any]) -> WarpCommand:
        table = click.option("--table", default="main", show_default=True, metavar="NAME", help="Name of the table.")
        source_argument = click.argument("source", metavar=source)
        tables = (table,) if has_table else ()
        decorators = (dataset_argument(), source_argument, *options, *tables, links_option, publish_options)
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


_splits_option = click.option(
    "--splits",
    type=click.Choice(["column", "tables"]),
    default="column",
    show_default=True,
    help="Store splits as a column of one table, or as one table each.",
)
_contents_option = click.option(
    "--media",
    "contents",
    type=PairType("COLUMN=TYPE"),
    multiple=True,
    metavar="COLUMN=TYPE",
    help="Publish the bytes of a column as files. TYPE is file, image, audio or video. Repeatable.",
)
_root_option = click.option(
    "--media-root",
    type=click.Path(file_okay=False),
    metavar="DIRECTORY",
    help="Read files that rows name by path, if they are inside of this directory. Default: refuse them.",
)
_version_option = click.option("--version", metavar="VERSION", help="Version or tag of the source. Default: newest.")
_version3_option = click.option(
    "--version", default="latest", show_default=True, metavar="HEX", help="Version of the source."
)
_name_option = click.option("--name", metavar="ID", help="Name of the dataset in ROOT. Default: the new name.")


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


@_format("huggingface", "DIRECTORY", _splits_option, _contents_option, _root_option, _kind_option, packing_options)
def _huggingface(cli: CliContext, /, source: str, table: str, **given: Any) -> None:
    """Publish a directory of Hugging Face datasets.

    The directory comes from save_to_disk, or has Parquet files. Several splits become the column split.
    Column label of type ClassLabel holds the names, and label_id the integers. Images, audio and videos
    become the artifact raw_COLUMN, and their column is bound to it.

    \b
      warp ingest huggingface acme/beans saved/
    """
    _run_foreign(cli, warpdata.ingest.huggingface, source, table, given)


@_format("lance", "DIRECTORY", _version_option, _contents_option, _kind_option, packing_options)
def _lance(cli: CliContext, /, source: str, table: str, **given: Any) -> None:
    """Publish a Lance dataset.

    Publishes the rows of one version. Blob columns become artifacts.

    \b
      warp ingest lance acme/photos photos.lance --media image=image
    """
    _run_foreign(cli, warpdata.ingest.lance, source, table, given)


@_format("mds", "DIRECTORY", _splits_option, _contents_option, _kind_option, packing_options)
def _mds(cli: CliContext, /, source: str, table: str, **given: Any) -> None:
    """Publish MDS shards of MosaicML Streaming.

    The directory has an index.json, or one directory for each split. Columns of images become artifacts.
    Pickled columns are refused.

    \b
      warp ingest mds acme/web mds/
    """
    _run_foreign(cli, warpdata.ingest.mds, source, table, given)


@_format("litdata", "DIRECTORY", _splits_option, _contents_option, _kind_option, packing_options)
def _litdata(cli: CliContext, /, source: str, table: str, **given: Any) -> None:
    """Publish LitData chunks.

    The directory has an index.json, or one directory for each split. Images, audio, videos and files
    become artifacts. Pickled leaves are refused.

    \b
      warp ingest litdata acme/web optimized/
    """
    _run_foreign(cli, warpdata.ingest.litdata, source, table, given)


@_format("warpdata3", "ROOT", _name_option, _version3_option, has_table=False)
def _warpdata3(cli: CliContext, /, source: str, **given: Any) -> None:
    """Publish a dataset of warpdata 3.0.

    ROOT has the directory manifests. Tables and tar shards are published unchanged. Local registrations
    need --follow-links, because their files are outside of ROOT.

    \b
      warp ingest warpdata3 vision/pets ~/.warpdata --follow-links
    """
    own = {name: given.pop(name) for name in ("name", "version", "follow_links")}
    request = PublishRequest(**given)
    _run(cli, request, partial(warpdata.ingest.warpdata3, request.dataset_id, source, **own))


def _run_foreign(cli: CliContext, function: Callable[..., Any], source: str, table: str, given: dict[str, Any]) -> None:
    """Ingest a dataset of another library, with the options that its command has."""
    own = {name: given.pop(name) for name in ("splits", "media_root", "version") if name in given}
    media = dict(given.pop("contents"))
    packing, request = _packing(given), PublishRequest(**given)
    _run(cli, request, partial(function, request.dataset_id, source, table=table, media=media, packing=packing, **own))


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
        document = {**result_document(session, request, done), **counted, "fields": survey.fields.document("rows")}
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
    for name in ("changed", "lost"):
        for outcome in getattr(survey.fields, name):
            note(f"{name}: {escape(outcome.field)}: {escape(outcome.how)}")
