"""`warp import`: add labels of other tools to a collection."""

from __future__ import annotations

from typing import Any

import click

import warpdata
from warpdata.cli.context import CliContext
from warpdata.cli.format import count_text
from warpdata.cli.label_report import LABEL_FORMAT_NAMES, REPORT_KEYS, show_report
from warpdata.cli.options import command, dataset_argument
from warpdata.cli.output import print_facts, print_json

__all__ = ["import_labels"]

_KEYS = {
    "dataset_id": "workspace/name",
    "version": "version of HEAD, 64 hex digits",
    "added_images": "number of images that HEAD did not have",
    "added_annotations": "number of annotations that were added",
    **REPORT_KEYS,
}


@command("import", json_keys=_KEYS)
@click.argument("format_", metavar="FORMAT", type=click.Choice(LABEL_FORMAT_NAMES))
@dataset_argument()
@click.argument("source", type=click.Path(exists=True))
@click.option("--task", metavar="TASK", help="Kind of files: detect, segment, pose, obb or classify of yolo.")
@click.option(
    "--existing",
    type=click.Choice(["keep", "add", "replace"]),
    default="keep",
    show_default=True,
    help="For images of HEAD that have other annotations: keep those, add the new ones, or replace them.",
)
@click.option("--images", type=click.Path(exists=True, file_okay=False), help="Directory of the image files.")
@click.option("--no-images", is_flag=True, help="Add no files: only labels of images that HEAD has.")
@click.pass_obj
def import_labels(cli: CliContext, /, format_: str, dataset_id: str, source: str, **given: Any) -> None:
    """Add labels of another tool to a collection, with their images.

    FORMAT is coco, yolo, voc, cvat, label-studio, datumaro, masks, imagefolder, csv, parquet or platform. Images
    that HEAD has under the same path get the labels; others are added with their files. Ends with a report: all that
    came in is in HEAD, or is listed as lost. Repeat the command after an interruption.

    \b
      warp import coco acme/pets coco/
      warp import yolo acme/pets labels/ --no-images --existing replace
    """
    if given.pop("no_images"):
        if given["images"] is not None:
            raise click.UsageError("--images and --no-images exclude each other")
        given["images"] = False
    collection = warpdata.collection(dataset_id, store=cli.connect())
    with cli.progress(f"Importing into {dataset_id}") as progress:
        done = collection.import_labels(source, format_, progress=progress, **given)
    if cli.as_json:
        print_json(done.document())
        return
    added = f"{count_text(done.added_images, 'image')}, {count_text(done.added_annotations, 'annotation')}"
    print_facts({"added": added, "HEAD": done.version[:12]})
    show_report(done.report)
