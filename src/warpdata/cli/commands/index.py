"""`warp index`: list, create, update and drop indexes."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from warpdata.cli.context import CliContext
from warpdata.cli.edit_report import edit_table_option, pick_table
from warpdata.cli.engine_options import engine_options, take_engine
from warpdata.cli.format import bytes_text, count_text, short
from warpdata.cli.options import address_argument, apply_options, command, dataset_argument, group
from warpdata.cli.output import note, print_json, print_line, print_table
from warpdata.cli.parameters import EntryType

if TYPE_CHECKING:
    from collections.abc import Callable

    from warpdata.datasets import Dataset
    from warpdata.indexing import IndexStatus

__all__ = ["index"]

_INDEX = (
    "{name, kind, table, column, parameters, segments, size_bytes, rows, covered_rows, sources, stale_sources, problem}"
)
_CHANGE_KEYS = {
    "dataset_id": "workspace/name",
    "branch": "the branch that changes",
    "version": "version of the branch",
    "name": "name of the index",
    "changed": "false with --dry-run, or if the index was up to date",
    "index": f"the index after the change: {_INDEX}; null if there is none",
}


@group("index")
def index() -> None:
    """List, create, update and drop indexes.

    An index makes filters on one column faster. It never changes a result: rows that it does not cover are scanned.
    """


def _change_options(function: Any) -> Any:
    options = (
        click.option("--branch", default="main", show_default=True, metavar="NAME", help="Branch to change."),
        click.option("-m", "--message", default="", metavar="TEXT", help="Message. Default: the change in words."),
        click.option("--author", metavar="NAME", help="Author of the commit. Default: WARP_AUTHOR, or the user."),
        click.option("--dry-run", is_flag=True, help="Show what would change, and commit nothing."),
    )
    return apply_options(function, options)


@command(
    "ls",
    json_keys={"dataset_id": "workspace/name", "version": "64 hex digits", "indexes": f"list of {_INDEX}"},
    reads=True,
)
@address_argument()
@click.pass_obj
def _ls(cli: CliContext, address: str) -> None:
    """List the indexes of a version, with the rows that they cover."""
    with cli.progress(f"Opening {address}"):
        opened = cli.open(address)
        listed = opened.indexes()
    if cli.as_json:
        print_json(
            {"dataset_id": opened.id, "version": opened.version, "indexes": [asdict(status) for status in listed]}
        )
        return
    if not listed:
        note(f"{opened.id} has no indexes; `warp index create {opened.id} COLUMN` makes one")
        return
    headings = ("index", "kind", "table", "column", ">covered", ">size", ">stale")
    print_table(headings, [_cells(status) for status in listed])
    for status in listed:
        if status.problem is not None:
            note(f"index {status.name} has no effect: {status.problem}")


@command("create", json_keys=_CHANGE_KEYS)
@dataset_argument()
@click.argument("column", type=EntryType("columns"), metavar="COLUMN")
@click.option(
    "--kind", type=click.Choice(("bitmap", "btree", "imi", "ivf", "lsh", "text")), help="Default: bitmap or btree."
)
@click.option(
    "--metric",
    type=click.Choice(("cosine", "l2", "dot")),
    help="For vectors. Default: cosine, the only one of imi and lsh.",
)
@click.option("--name", metavar="NAME", help="Name of the index. Default: TABLE.COLUMN.")
@edit_table_option
@engine_options
@_change_options
@click.pass_obj
def _create(cli: CliContext, /, dataset_id: str, column: str, **given: Any) -> None:
    """Index a column of a table.

    A bitmap index suits columns of few values, and lists; a btree index suits ranges and columns of many values.
    Searches of vectors use an index of kind ivf, imi or lsh, and searches of words a text index.
    An interrupted build goes on where it ended.

    \b
      warp index create acme/photos label
      warp index create acme/photos taken --kind btree
    """
    kind, name, table, metric = (given.pop(key) for key in ("kind", "name", "table", "metric"))
    given |= take_engine(given)

    def change(dataset: Dataset, **options: Any) -> Dataset:
        return dataset.create_index(pick_table(dataset, table), column, kind, name, metric=metric, **options)

    def target(dataset: Dataset) -> str:
        from warpdata.indexing import default_name

        return name or default_name(pick_table(dataset, table), column)

    _run(cli, dataset_id, given, target, change)


@command("rebuild", json_keys=_CHANGE_KEYS)
@dataset_argument()
@click.argument("name", type=EntryType("indexes"), metavar="NAME")
@click.option("--all", "rebuild", is_flag=True, help="Build everything again, and replace damaged parts.")
@engine_options
@_change_options
@click.pass_obj
def _rebuild(cli: CliContext, /, dataset_id: str, name: str, rebuild: bool, **given: Any) -> None:
    """Cover rows that an index does not cover yet.

    \b
      warp index rebuild acme/photos main.label
    """
    given |= take_engine(given)
    _run(
        cli,
        dataset_id,
        given,
        partial(_known_name, name),
        lambda dataset, **options: dataset.update_index(name, rebuild=rebuild, **options),
    )


@command("drop", json_keys=_CHANGE_KEYS)
@dataset_argument()
@click.argument("name", type=EntryType("indexes"), metavar="NAME")
@_change_options
@click.pass_obj
def _drop(cli: CliContext, /, dataset_id: str, name: str, **given: Any) -> None:
    """Drop an index. Older versions keep it.

    \b
      warp index drop acme/photos main.label
    """

    def change(dataset: Dataset, **options: Any) -> Dataset:
        del options["progress"]
        return dataset.drop_index(name, **options)

    _run(cli, dataset_id, given, partial(_known_name, name), change)


def _known_name(name: str, dataset: Dataset) -> str:
    """Return the name. Raise `NotFoundError` with similar names if there is no such index."""
    from warpdata.kinds import payload_kind, pick_entry

    return pick_entry(payload_kind("indexes"), dataset.manifest, name)[0]


def _run(
    cli: CliContext,
    dataset_id: str,
    given: dict[str, Any],
    target: Callable[[Dataset], str],
    change: Callable[..., Dataset],
) -> None:
    """Make the change, unless it is a dry run, and print the index."""
    branch, dry_run = given["branch"], given.pop("dry_run")
    with cli.progress(f"Indexing {dataset_id}") as progress:
        before = cli.open(f"{dataset_id}@{branch}")
        name = target(before)
        after = before if dry_run else change(before, **given, progress=progress)
        status = next((status for status in after.indexes() if status.name == name), None)
    changed = after.version != before.version
    if cli.as_json:
        print_json(
            {
                "dataset_id": dataset_id,
                "branch": branch,
                "version": after.version,
                "name": name,
                "changed": changed,
                "index": status and asdict(status),
            }
        )
        return
    done = "would change" if dry_run else "changed" if changed else "is up to date:"
    print_line(f"{done} index {name}; {dataset_id}@{branch} is version {short(after.version)}")
    if status is not None:
        covered = count_text(status.covered_rows, "row")
        print_line(f"{status.kind} index, {covered} of {status.rows:,} covered, {bytes_text(status.size_bytes)}")


def _cells(status: IndexStatus) -> list[str]:
    covered = f"{status.covered_rows:,} of {status.rows:,}"
    stale = f"{status.stale_sources:,}" if status.stale_sources else ""
    return [status.name, status.kind, status.table, status.column, covered, bytes_text(status.size_bytes), stale]


for _command in (_ls, _create, _rebuild, _drop):
    index.add_command(_command)
