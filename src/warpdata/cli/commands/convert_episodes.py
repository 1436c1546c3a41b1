"""`warp episodes convert`: episode files from and to other formats, with a report of what became of everything."""

from __future__ import annotations

import click

from warpdata.cli.context import Invocation
from warpdata.cli.format import count_text
from warpdata.cli.options import command
from warpdata.cli.output import note, print_json, print_line
from warpdata.cli.values import escape

__all__ = ["convert_episodes"]

_FORMATS = ("wshard", "npz", "hdf5", "lerobot", "mcap")


@command(
    "convert",
    json_keys={
        "from": "the format of the source",
        "to": "the format of the target",
        "episodes": "how many were converted",
        "steps": "how many steps they have together",
        "written": "the files or folders that were made",
        "is_lossless": "whether nothing was changed or lost",
        "kept": "a list of {field, how, episodes}: what the target holds bit for bit",
        "changed": "the same for what it holds in another form",
        "lost": "the same for what it does not hold",
        "added": "the same for what it needs and the source does not have",
    },
    uses_store=False,
)
@click.argument("source", type=click.Path())
@click.argument("target", type=click.Path(), metavar="DEST")
@click.option(
    "--from", "source_format", type=click.Choice(_FORMATS), help="What SOURCE is, where its name does not tell."
)
@click.option(
    "--to", "target_format", type=click.Choice(_FORMATS), help="What DEST is to be, where its name does not tell."
)
@click.pass_obj
def convert_episodes(
    invocation: Invocation, source: str, target: str, source_format: str | None, target_format: str | None
) -> None:
    """Convert episodes from WShard to another format, or back.

    Other formats are npz (Dreamer), hdf5 (robomimic), lerobot (v3), and mcap, which is written only. SOURCE
    is a file, or a folder of files. Tells of every field whether it was kept, changed or lost.

    \b
      warp episodes convert lift.hdf5 episodes/
      warp episodes convert episodes/ dataset/ --to lerobot
    """
    from warpdata.formats.convert import convert

    with invocation.meter("Converting"):
        report = convert(source, target, source_format=source_format, target_format=target_format)
    if invocation.as_json:
        print_json(report.document())
        return
    for line in report.text().splitlines():
        print_line(escape(line), style="" if line.startswith(" ") else "bold")
    if not report.is_lossless:
        note(f"{count_text(len(report.changed), 'field')} changed, {len(report.lost)} lost")
