"""`warp search`: find rows near to a vector, like an example image, or with words of a text."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from warpdata.cli.context import CliContext
from warpdata.cli.format import plain_rows
from warpdata.cli.image_grid import can_show_images, print_images
from warpdata.cli.model_source import load_object
from warpdata.cli.options import address_argument, columns_option, command, filter_option, table_option
from warpdata.cli.output import note, print_json, print_rows
from warpdata.cli.parameters import EntryType
from warpdata.errors import BadInputError

if TYPE_CHECKING:
    import pyarrow as pa

    from warpdata.datasets import Dataset
    from warpdata.kinds.tables import Table
    from warpdata.search import Hits

__all__ = ["search"]

_MAX_VECTOR_BYTES = 16 * 1024**2
_KEYS = {
    "dataset_id": "workspace/name",
    "version": "64 hex digits",
    "hits": "list of objects with the columns, `_score` and `_id`, best first",
    "explanation": "{table, filter, rows, selected, parts, requests, bytes_fetched}",
}


@command("search", json_keys=_KEYS, reads=True)
@address_argument()
@click.option(
    "--near", metavar="EXAMPLE", help="An image file, a .npy file with one vector, or a JSON list of numbers."
)
@click.option(
    "--model",
    metavar="FILE.py:NAME",
    help="Function of a list of images or texts, or an object with encode. It computes the vector of --near.",
)
@click.option("--text", metavar="WORDS", help="Find rows with these words.")
@click.option("--column", type=EntryType("columns"), metavar="COLUMN", help="Column of vectors, images or texts.")
@click.option("--text-column", type=EntryType("columns"), metavar="COLUMN", help="Column of texts, if both are given.")
@click.option("--k", "k", type=click.IntRange(0), default=10, show_default=True, help="Number of rows.")
@click.option(
    "--metric",
    type=click.Choice(("cosine", "l2", "dot")),
    default="cosine",
    show_default=True,
    help="Comparison of vectors.",
)
@click.option("--exact", is_flag=True, help="Compare every row, without an index.")
@click.option(
    "--grid/--no-grid",
    default=None,
    help="Show thumbnails. Default: on a terminal with colours, for --column of images.",
)
@click.option("--explain", is_flag=True, help="Also show how the rows were found.")
@table_option()
@columns_option()
@filter_option()
@click.pass_obj
def search(cli: CliContext, /, address: str, **given: Any) -> None:
    """Find rows near to a vector, like an example image, or with words of a text.

    The best rows come first; _score is higher for better ones, and _id is the sample id. References are shown as
    paths, or as thumbnails if the terminal has colours. An example image finds copies in a column of images. With a
    column of vectors and --model, it finds what the model takes for similar.

    \b
      warp search acme/photos --near query.npy --column emb --k 12 --filter "split = 'val'"
      warp search acme/photos --near query.jpg --column image --k 12
      warp search acme/photos --near query.jpg --column emb --model clip.py:encode
      warp search acme/photos --text "red car" --column caption --json
    """
    if given["column"] is None:
        raise BadInputError("a search needs a column", hint="Pass --column with the name of a column.")
    with cli.progress(f"Searching {address}"):
        opened = cli.open(address)
        hits = _search(opened, given)
    if cli.as_json:
        rows = [row for batch in _with_paths(hits.to_arrow()).to_batches() for row in plain_rows(batch)]
        explanation = asdict(hits.explain())
        print_json({"dataset_id": opened.id, "version": opened.version, "hits": rows, "explanation": explanation})
        return
    if not _print_grid(hits, given):
        print_rows(_with_paths(hits.to_arrow()))
    if not len(hits):
        note("no row can be compared" if given["expression"] is None else "no row matches the filter")
    if given["explain"]:
        note(str(hits.explain()))


def _search(opened: Dataset, given: dict[str, Any]) -> Hits:
    text_column = given["text_column"] or (given["column"] if given["near"] is None else None)
    table, model = opened.table(given["table"]), None if given["model"] is None else load_object(given["model"])
    return opened.search(
        table.name,
        near=None if given["near"] is None else (given["column"], _read_near(table, given)),
        text=given["text"],
        column=text_column,
        k=given["k"],
        filter=given["expression"],
        columns=given["columns"] or None,
        metric=given["metric"],
        exact=given["exact"],
        model=model,
    )


def _read_near(table: Table, given: dict[str, Any]) -> Any:
    """Return the example of a column of images, the input of a model, or a vector."""
    from warpdata.search import ExampleImage, is_image

    near = given["near"]
    if given["model"] is not None:
        return ExampleImage.of(near) if Path(near).is_file() else near
    return ExampleImage.of(near) if is_image(table.schema(), given["column"]) else _read_vector(near)


def _print_grid(hits: Hits, given: dict[str, Any]) -> bool:
    """Print thumbnails, if the hits have images and the terminal can show them. Return whether it did."""
    schema = hits.to_arrow().schema
    images = [field.name for field in schema if getattr(field.type, "ref_type", None) == "image"]
    wanted = given["column"] in images if given["grid"] is None else given["grid"]
    if not wanted or not images or not len(hits) or not can_show_images():
        return False
    column = given["column"] if given["column"] in images else images[0]
    rows = list(hits)
    captions = [f"{row['_score']:.3f}  {row[column].path if row[column] is not None else 'NULL'}" for row in rows]
    print_images([row[column] for row in rows], captions)
    return True


def _with_paths(rows: pa.Table) -> pa.Table:
    """Return the rows with references as they are stored: as paths, or as locations in a shard."""
    import pyarrow as pa

    for position, field in enumerate(rows.schema):
        if hasattr(field.type, "ref_type"):
            plain = pa.chunked_array([chunk.storage for chunk in rows.column(position).chunks], field.type.storage_type)
            rows = rows.set_column(position, field.name, plain)
    return rows


def _read_vector(given: str) -> Any:
    """Return the vector of a file, or of a list of numbers."""
    if given.lstrip().startswith("["):
        try:
            return json.loads(given)
        except ValueError as error:
            raise BadInputError(f"--near {given[:40]!r} is not a JSON list: {error}") from error
    import numpy as np

    path = Path(given)
    try:
        if path.stat().st_size > _MAX_VECTOR_BYTES:
            raise BadInputError(f"{path} is larger than {_MAX_VECTOR_BYTES:,} bytes, so it is not one vector")
        found = np.load(path, allow_pickle=False)
    except OSError as error:
        raise BadInputError(f"{path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise BadInputError(
            f"{path} is not a vector in a .npy file",
            hint="Pass --model FILE.py:NAME with the model that made the column, or a column of images.",
        ) from error
    return found.reshape(-1) if found.ndim == 2 and found.shape[0] == 1 else found
