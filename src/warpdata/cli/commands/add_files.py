"""`warp add-files`: add files to an artifact."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from warpdata.cli.context import CliContext
from warpdata.cli.edit_report import EDIT_KEYS, EditRequest, edit_options, run_edit
from warpdata.cli.options import command, dataset_argument
from warpdata.cli.parameters import EntryType
from warpdata.cli.publish_report import links_option
from warpdata.errors import InvalidSourceError

if TYPE_CHECKING:
    from warpdata.datasets import Dataset
    from warpdata.edit import Edit

__all__ = ["add_files"]


@command("add-files", json_keys=EDIT_KEYS)
@dataset_argument()
@click.argument("artifact", type=EntryType("artifacts"))
@click.argument("sources", type=click.Path(), nargs=-1, required=True, metavar="DIR|FILES...")
@click.option("--prefix", default="", metavar="PATH", help="Directory in the artifact for the new files.")
@links_option
@edit_options
@click.pass_obj
def add_files(cli: CliContext, /, dataset_id: str, artifact: str, sources: tuple[str, ...], **given: Any) -> None:
    """Add files to an artifact.

    Member paths are as for `publish --artifact`: the files of a directory keep their paths below it. Files of the
    artifact are not uploaded again. In Python, one edit adds files and the rows that refer to them in one commit.

    \b
      warp add-files acme/pets raw_images new_images/
      warp add-files acme/pets raw_images 'shots/*.jpg' --prefix june
    """
    files = _members(sources, given.pop("prefix"), follow_links=given.pop("follow_links"))

    def change(_dataset: Dataset, edit: Edit) -> None:
        edit.add_files(artifact, files)

    run_edit(cli, EditRequest(dataset_id, **given), f"add {len(files):,} files to {artifact}", change)


def _members(sources: tuple[str, ...], prefix: str, *, follow_links: bool) -> dict[str, bytes | str | Path]:
    """Return the source of each member path."""
    from warpdata.kinds.artifacts import FileRange, list_sources

    found: dict[str, bytes | str | Path] = {}
    for source in sources:
        for file in list_sources(source, f"{prefix.rstrip('/')}/" if prefix else "", follow_links=follow_links):
            if file.path in found:
                raise InvalidSourceError(
                    f"{found[file.path]!s} and {file.where} would both be the file {file.path!r}",
                    hint="Add them in two steps, with different --prefix.",
                )
            assert not isinstance(file.content, FileRange), "a directory lists whole files"
            found[file.path] = file.content
    return found
