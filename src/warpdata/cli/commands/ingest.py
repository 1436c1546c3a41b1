"""`warp ingest`: from what people have on disk to a published dataset with bound media, in one step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from warpdata.cli.context import Invocation
from warpdata.cli.format import count_text
from warpdata.cli.options import WarpCommand, command, dataset_argument, group
from warpdata.cli.output import note, print_json
from warpdata.cli.parameters import MediaType
from warpdata.cli.publish_report import (
    DRY_RUN_KEYS,
    PUBLISH_KEYS,
    PublishRequest,
    document,
    packing_options,
    perform,
    publish_options,
    tell,
)
from warpdata.cli.values import escape
from warpdata.ingest import IngestReport, Media, OnReport, Packing, audiofolder, csv, imagefolder, webdataset
from warpdata.publish import DatasetBuilder
from warpdata.session import Session

__all__ = ["ingest"]

_Prepare = Callable[[Session, OnReport], DatasetBuilder]

_KEYS = {
    **PUBLISH_KEYS,
    "version": "64 hex digits",
    "rows": "rows of the table",
    "members": "files of the artifacts",
    "ignored": "files left out: how many there are by the ending of their names",
    "undescribed": "media files that no metadata file describes, where there is one",
    **DRY_RUN_KEYS,
}
_SHOWN_ENDINGS = 6


@group("ingest")
def ingest() -> None:
    """Publish pictures, sounds, WebDataset tars or a CSV in one step.

    Looks at what is there, packs raw files, makes a table and binds its columns. The same files give
    the same version, so doing it again changes nothing.
    """


def _format(name: str, source: str, *options: Callable[[Any], Any]) -> Callable[[Callable[..., Any]], WarpCommand]:
    """A command under `ingest`, with options of its own and those that all of them take."""

    def decorate(function: Callable[..., Any]) -> WarpCommand:
        wrapped = publish_options(click.pass_obj(function))
        table = click.option(
            "--table", default="main", show_default=True, metavar="NAME", help="What to call the table."
        )
        for option in reversed((dataset_argument(), click.argument("source", metavar=source), *options, table)):
            wrapped = option(wrapped)
        made = command(name, json_keys=_KEYS)(wrapped)
        ingest.add_command(made)
        return made

    return decorate


_kind_option = click.option(
    "--kind",
    type=click.Choice(["tar_shards", "files"]),
    default="tar_shards",
    show_default=True,
    help="Pack the files, or keep each as an object of its own.",
)
_media_option = click.option(
    "--media",
    type=MediaType(),
    multiple=True,
    metavar="COLUMN=FOLDER[:TYPE]",
    help="The paths in a column lead into a folder, which is packed and bound; TYPE is file, image, audio or video, "
    "by default what the paths end in. Repeat it for more.",
)


@_format("imagefolder", "FOLDER", _kind_option, packing_options)
def _imagefolder(invocation: Invocation, /, source: str, table: str, **given: Any) -> None:
    """Publish a folder of pictures.

    The table has a row for each picture: image, bound to the artifact raw_images; label, the class
    folder it lies in, where there are two or more; split, where the outermost folders are train, val,
    valid, validation, dev or test; and the columns of a metadata.csv, .jsonl or .parquet for the files
    named in its column file_name. Other files are left out and counted.

    \b
      warp ingest imagefolder acme/pets pets/ --label v1
    """
    packing, request = _packing(given), PublishRequest(**given)

    def prepare(session: Session, report: OnReport) -> DatasetBuilder:
        return imagefolder(request.dataset_id, source, store=session, table=table, packing=packing, report=report)

    _run(invocation, request, prepare)


@_format("audiofolder", "FOLDER", _kind_option, packing_options)
def _audiofolder(invocation: Invocation, /, source: str, table: str, **given: Any) -> None:
    """Publish a folder of sounds.

    As imagefolder, with a column audio that is bound to the artifact raw_audio.

    \b
      warp ingest audiofolder acme/birds recordings/
    """
    packing, request = _packing(given), PublishRequest(**given)

    def prepare(session: Session, report: OnReport) -> DatasetBuilder:
        return audiofolder(request.dataset_id, source, store=session, table=table, packing=packing, report=report)

    _run(invocation, request, prepare)


@_format("webdataset", "TARS")
def _webdataset(invocation: Invocation, /, source: str, table: str, **given: Any) -> None:
    """Publish WebDataset tars.

    The tars of a folder or of a quoted glob are taken as they are, as the artifact raw. The table has a
    row for each sample: __key__, and a column for each ending. Pictures, sounds, films and other files
    are bound to the artifact; cls, id, txt, json and their like hold the text, or integers where all are.

    \b
      warp ingest webdataset acme/web 'shards/*.tar'
    """
    request = PublishRequest(**given)

    def prepare(session: Session, report: OnReport) -> DatasetBuilder:
        return webdataset(request.dataset_id, source, store=session, table=table, report=report)

    _run(invocation, request, prepare)


@_format("csv", "FILE", _media_option, _kind_option, packing_options)
def _csv(invocation: Invocation, /, source: str, table: str, **given: Any) -> None:
    """Publish a CSV, TSV, JSON lines or Parquet file.

    A folder or a quoted glob takes several, one after another. With --media the paths in a column become
    references into a folder, written with or without the folder's own name in front. The folder is
    packed whole, as the artifact raw_COLUMN.

    \b
      warp ingest csv acme/pets pets.csv --media photo=photos/
    """
    media = {column: Media(folder, ref_type) for column, folder, ref_type in given.pop("media")}
    packing, request = _packing(given), PublishRequest(**given)

    def prepare(session: Session, report: OnReport) -> DatasetBuilder:
        return csv(request.dataset_id, source, store=session, table=table, media=media, packing=packing, report=report)

    _run(invocation, request, prepare)


def _packing(given: dict[str, Any]) -> Packing:
    """Takes its options out of those given. One object for each file is stored as it is."""
    kind, compression, shard_bytes = (given.pop(name) for name in ("kind", "compression", "shard_bytes"))
    return Packing(kind, compression, shard_bytes)


def _run(invocation: Invocation, request: PublishRequest, prepare: _Prepare) -> None:
    found: list[IngestReport] = []
    with invocation.meter(f"Looking at what is there for {request.dataset_id}") as meter:
        session = invocation.connect()
        done = perform(prepare(session, found.append), session, request, meter)
    (survey,) = found
    if invocation.as_json:
        counted = {name: getattr(survey, name) for name in ("rows", "members", "ignored", "undescribed")}
        whole = {**document(session, request, done), **counted}
        print_json({key: whole[key] for key in _KEYS if key in whole})
        return
    tell(invocation, session, request, done)
    _note(survey)


def _note(survey: IngestReport) -> None:
    note(f"{count_text(survey.rows, 'row')} and {count_text(survey.members, 'file')} from {escape(survey.source)}")
    if survey.ignored:
        parts = [
            f"{count:,} {'.' + escape(ending) if ending else 'without ending'}"
            for ending, count in survey.ignored.items()
        ]
        shown = ", ".join(parts[:_SHOWN_ENDINGS]) + (", …" if len(parts) > _SHOWN_ENDINGS else "")
        note(f"left out {count_text(sum(survey.ignored.values()), 'file')} of other types: {shown}")
    if survey.undescribed:
        note(f"the metadata does not describe {count_text(survey.undescribed, 'file')}")
