"""`warp export`: write a table or labels, and their files, into a directory for other tools."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from warpdata.cli.context import CliContext
from warpdata.cli.engine_options import engine_options, take_engine
from warpdata.cli.format import bytes_text, count_text, escape
from warpdata.cli.label_report import LABEL_FORMAT_NAMES, show_report
from warpdata.cli.options import address_argument, columns_option, command, filter_option, table_option
from warpdata.cli.output import note, print_facts, print_json
from warpdata.cli.parameters import SizeType

__all__ = ["export"]

_FORMATS = ("parquet", "imagefolder", "audiofolder", "webdataset", "huggingface")
_OUTCOME = "list of {field, how, rows}"
_KEYS = {
    "dataset_id": "workspace/name",
    "version": "64 hex digits",
    "table": "name of the table",
    "format": "format of the directory",
    "target": "absolute path of the directory",
    "rows": "number of rows",
    "files": "number of files of references",
    "size_bytes": "their size",
    "is_dry_run": "true if nothing was written",
    "is_lossless": "true if no column was changed or lost",
    "kept": _OUTCOME,
    "changed": _OUTCOME,
    "lost": _OUTCOME,
    "added": _OUTCOME,
}


@command("export", json_keys=_KEYS, reads=True)
@address_argument(metavar="[FORMAT] ID[@REF]")
@click.argument("directory", type=click.Path(file_okay=False))
@click.argument("last", required=False, metavar="", type=click.Path(file_okay=False))
@click.option(
    "--format",
    "format_",
    type=click.Choice([*_FORMATS, *(name for name in LABEL_FORMAT_NAMES if name not in _FORMATS)]),
    help="Format of the directory, if it is not the first argument. Default: parquet.",
)
@click.option("--task", metavar="TASK", help="Of labels: detect, segment, pose, obb or classify of yolo.")
@click.option("--no-images", is_flag=True, help="Of labels: write no image files.")
@table_option()
@columns_option()
@filter_option()
@click.option("--label", metavar="COLUMN", help="Column of classes. Default: label, if there is one.")
@click.option("--no-label", is_flag=True, help="Do not treat any column as classes.")
@click.option("--split", metavar="COLUMN", help="Column of splits. Default: split, if there is one.")
@click.option("--no-split", is_flag=True, help="Do not treat any column as splits.")
@click.option("--media", metavar="COLUMN", help="Column of files, for imagefolder and audiofolder.")
@click.option(
    "--shard-size", "shard_bytes", type=SizeType(), metavar="SIZE", help="Approximate size of a tar or Parquet file."
)
@partial(engine_options, has_job=False)
@click.option("--dry-run", is_flag=True, help="Show what would be written, and what would be lost.")
@click.pass_obj
def export(cli: CliContext, /, address: str, directory: str, last: str | None, **given: Any) -> None:
    """Write a table or labels, and their files, into a directory.

    Of a collection, coco, yolo, voc, cvat, label-studio, datumaro, masks, imagefolder, csv, parquet and platform
    write labels with their images, unless --table selects a table. The output ends with all that the format lacks.

    parquet keeps all columns, with the files of references beside the Parquet files. imagefolder and
    audiofolder write one file per row, in directories of the split and the class. webdataset writes tars.
    huggingface writes Parquet files that datasets.load_dataset reads, with features.

    The directory must be absent or empty. It appears when the export is complete. The output lists every
    column that has another form in the target, or that the target lacks. With --engine, workers write the files of
    parquet, imagefolder, audiofolder and labels into a directory that all of them share.

    \b
      warp export yolo acme/pets@v3 out/ --task segment
      warp export imagefolder acme/photos@v1 photos/
      warp export acme/photos tars/ --format webdataset --filter "split = 'train'"
    """
    if last is not None:
        if given["format_"] is not None:
            raise click.UsageError("the format was given twice")
        given["format_"], address, directory = address, directory, last
    name = given.pop("format_") or "parquet"
    given["engine"] = take_engine(given)["engine"]
    if not _export_labels(cli, name, address, directory, given):
        _export_table(cli, name, address, directory, given)


def _export_labels(cli: CliContext, name: str, address: str, directory: str, given: dict[str, Any]) -> bool:
    """Export labels, and return True, if the format has them and the dataset is a collection."""
    from warpdata.collections import Collection, is_collection

    task, no_images = given.pop("task"), given.pop("no_images")
    if name not in LABEL_FORMAT_NAMES or given["table"] is not None:
        return False
    dataset = cli.open(address)
    if not is_collection(dataset):
        if name in _FORMATS:
            return False
        raise click.UsageError(f"{dataset.id} is not a collection, so it has no labels to export as {name}")
    collection = Collection(dataset.session, dataset.id)
    with cli.progress(f"Exporting {address}") as progress:
        done = collection.export_labels(
            directory,
            name,
            dataset.version,
            task=task,
            filter=given["expression"],
            images=not no_images,
            engine=given["engine"],
            progress=progress,
        )
    if cli.as_json:
        print_json(done.document())
        return True
    exported = f"{done.dataset_id}@{done.version[:12]}"
    print_facts({"exported": exported, "to": str(done.target), "files": f"{done.files:,}"})
    show_report(done.report)
    return True


def _export_table(cli: CliContext, format_: str, address: str, directory: str, given: dict[str, Any]) -> None:
    from warpdata.exporters import ExportOptions, export_dataset

    for name in ("label", "split"):
        if given.pop(f"no_{name}"):
            if given[name] is not None:
                raise click.UsageError(f"--{name} and --no-{name} exclude each other")
            given[name] = False
    options = ExportOptions(
        table=given["table"],
        columns=given["columns"] or None,
        filter=given["expression"],
        **{name: given[name] for name in ("label", "split", "media", "shard_bytes", "dry_run", "engine")},
    )
    with cli.progress(f"Opening {address}") as progress:
        report = export_dataset(cli.open(address), directory, format_, options, progress)
    if cli.as_json:
        print_json(report.document())
        return
    files = f"{count_text(report.files, 'file')}, {bytes_text(report.size_bytes)}" if report.files else None
    print_facts(
        {
            "would export" if report.is_dry_run else "exported": f"{report.dataset_id}@{report.version[:12]}",
            "to": str(report.target),
            "rows": f"{report.rows:,}",
            "files": files,
        }
    )
    for name in ("changed", "lost", "added"):
        for outcome in getattr(report.fields, name):
            note(f"{name}: {escape(outcome.field)}: {escape(outcome.how)}")
