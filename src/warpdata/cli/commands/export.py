"""`warp export`: write a table and its files into a directory for other libraries."""

from __future__ import annotations

from typing import Any

import click

from warpdata.cli.context import CliContext
from warpdata.cli.format import bytes_text, count_text, escape
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
@address_argument()
@click.argument("directory", type=click.Path(file_okay=False))
@click.option(
    "--format",
    "format_",
    type=click.Choice(_FORMATS),
    default="parquet",
    show_default=True,
    help="Format of the directory.",
)
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
@click.option("--dry-run", is_flag=True, help="Show what would be written, and what would be lost.")
@click.pass_obj
def export(cli: CliContext, /, address: str, directory: str, **given: Any) -> None:
    """Write a table and its files into a directory.

    parquet keeps all columns, with the files of references beside the Parquet files. imagefolder and
    audiofolder write one file per row, in directories of the split and the class. webdataset writes tars.
    huggingface writes Parquet files that datasets.load_dataset reads, with features.

    The directory must be absent or empty. It appears when the export is complete. The output lists every
    column that has another form in the target, or that the target lacks.

    \b
      warp export acme/pets@v1 pets/ --format imagefolder
      warp export acme/pets tars/ --format webdataset --filter "split = 'train'"
    """
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
        **{name: given[name] for name in ("label", "split", "media", "shard_bytes", "dry_run")},
    )
    with cli.progress(f"Opening {address}") as progress:
        report = export_dataset(cli.open(address), directory, given["format_"], options, progress)
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
