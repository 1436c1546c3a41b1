"""`warp search`: find rows near to a vector, or with words of a text."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from warpdata.cli.context import CliContext
from warpdata.cli.format import plain_rows
from warpdata.cli.options import address_argument, columns_option, command, filter_option, table_option
from warpdata.cli.output import note, print_json, print_rows
from warpdata.cli.parameters import EntryType
from warpdata.errors import BadInputError

if TYPE_CHECKING:
    from warpdata.datasets import Dataset
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
@click.option("--near", metavar="VECTOR", help="A .npy file with one vector, or a JSON list of numbers.")
@click.option("--text", metavar="WORDS", help="Find rows with these words.")
@click.option("--column", type=EntryType("columns"), metavar="COLUMN", help="Column of vectors, or of texts.")
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
@click.option("--explain", is_flag=True, help="Also show how the rows were found.")
@table_option()
@columns_option()
@filter_option()
@click.pass_obj
def search(cli: CliContext, /, address: str, **given: Any) -> None:
    """Find rows near to a vector, or with words of a text.

    The best rows come first; _score is higher for better ones, and _id is the sample id. References are shown as
    paths.

    \b
      warp search acme/photos --near query.npy --column emb --k 12 --filter "split = 'val'"
      warp search acme/photos --text "red car" --column caption --json
    """
    if given["column"] is None:
        raise BadInputError("a search needs a column", hint="Pass --column with the name of a column.")
    near = given["near"] if given["near"] is None else _read_vector(given["near"])
    with cli.progress(f"Searching {address}"):
        opened = cli.open(address)
        hits = _search(opened, near, given)
    if cli.as_json:
        rows = [row for batch in hits.to_arrow().to_batches() for row in plain_rows(batch)]
        explanation = asdict(hits.explain())
        print_json({"dataset_id": opened.id, "version": opened.version, "hits": rows, "explanation": explanation})
        return
    print_rows(hits.to_arrow())
    if not len(hits):
        note("no row can be compared" if given["expression"] is None else "no row matches the filter")
    if given["explain"]:
        note(str(hits.explain()))


def _search(opened: Dataset, near: Any, given: dict[str, Any]) -> Hits:
    text_column = given["text_column"] or (given["column"] if near is None else None)
    table = opened.table(given["table"]).name
    return opened.search(
        table,
        near=None if near is None else (given["column"], near),
        text=given["text"],
        column=text_column,
        k=given["k"],
        filter=given["expression"],
        columns=given["columns"] or None,
        metric=given["metric"],
        exact=given["exact"],
    )


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
            hint="Compute its vector with the model that made the column, and save it with numpy.save.",
        ) from error
    return found.reshape(-1) if found.ndim == 2 and found.shape[0] == 1 else found
