"""`warp compact`: join small stored files, and leave out deleted rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from warpdata.cli.context import CliContext
from warpdata.cli.engine_options import engine_options, take_engine
from warpdata.cli.format import count_text, short
from warpdata.cli.options import command, dataset_argument, names_option
from warpdata.cli.output import print_json, print_line
from warpdata.cli.parameters import SizeType
from warpdata.limits import MIB

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["compact"]

_KEYS = {
    "dataset_id": "workspace/name",
    "branch": "the branch that changes",
    "version": "version of the branch after the compaction",
    "commit": "id of the new commit; with `changed` false, that of the head",
    "changed": "false with --dry-run, or if no file is worth rewriting",
    "shards": "number of stored files that were rewritten by table; with --dry-run, that would be",
}


@command("compact", json_keys=_KEYS)
@dataset_argument()
@names_option("--tables", "Compact only these tables.")
@click.option(
    "--target-size",
    "target_bytes",
    type=SizeType(),
    default=256 * MIB,
    show_default="256MiB",
    metavar="SIZE",
    help="Size up to which neighbouring files are joined.",
)
@click.option(
    "--max-deleted",
    type=click.FloatRange(0, 1),
    default=0.1,
    show_default=True,
    metavar="PART",
    help="Rewrite files of which a larger part of the rows is deleted.",
)
@click.option("--branch", default="main", show_default=True, metavar="NAME", help="Branch to change.")
@click.option("--author", metavar="NAME", help="Author of the commit. Default: WARP_AUTHOR, or the user.")
@engine_options
@click.option("--dry-run", is_flag=True, help="Show the number of files to rewrite, and change nothing.")
@click.pass_obj
def compact(cli: CliContext, /, dataset_id: str, tables: tuple[str, ...], **given: Any) -> None:
    """Join small stored files, and leave out deleted rows.

    Readers see the same rows in the same order, with the same sample ids. Earlier versions keep their files;
    `warp gc` deletes those that no version needs.

    \b
      warp compact acme/trips --dry-run
      warp compact acme/trips --target-size 128MiB
    """
    branch, author, dry_run = given.pop("branch"), given.pop("author"), given.pop("dry_run")
    how = take_engine(given)
    with cli.progress(f"Compacting {dataset_id}") as progress:
        dataset = cli.open(f"{dataset_id}@{branch}")
        if dry_run:
            from warpdata.edit import CompactionOptions, plan_compaction

            shards = plan_compaction(dataset.manifest, dataset.load_page, tables or None, CompactionOptions(**given))
            version, commit, changed = dataset.version, dataset.version_ref.commit, False
        else:
            done = dataset.compact(tables or None, branch=branch, author=author, progress=progress, **how, **given)
            version, commit, changed, shards = done.version, done.commit, done.changed, done.shards
    if cli.as_json:
        print_json(
            {
                "dataset_id": dataset_id,
                "branch": branch,
                "version": version,
                "commit": commit,
                "changed": changed,
                "shards": shards,
            }
        )
    elif not shards:
        print_line("no file is worth rewriting")
    elif dry_run:
        print_line(f"would rewrite {_counts(shards)}")
    else:
        print_line(f"rewrote {_counts(shards)}; {dataset_id}@{branch} is version {short(version)}")


def _counts(shards: Mapping[str, int]) -> str:
    return ", ".join(f"{count_text(count, 'file')} of table {name}" for name, count in shards.items())
