"""What commands print about conversions of labels: counts, and every loss."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warpdata.cli.format import escape
from warpdata.cli.output import note, print_line, print_table

if TYPE_CHECKING:
    from warpdata.formats.labels import ConservationReport

__all__ = ["LABEL_FORMAT_NAMES", "REPORT_KEYS", "show_report"]

LABEL_FORMAT_NAMES = (
    "coco",
    "yolo",
    "voc",
    "cvat",
    "label-studio",
    "datumaro",
    "masks",
    "imagefolder",
    "csv",
    "parquet",
    "platform",
)
"""The names of `LABEL_FORMATS`, so that completion need not load the formats. A test compares both."""

_ITEMS = "list of {fact, why, count, first}"
REPORT_KEYS = {
    "format": "format of the labels",
    "direction": "import or export",
    "is_lossless": "true if nothing was lost or changed",
    "in": "what came in, as numbers by fact, such as images, objects, boxes and attributes",
    "out": "what came out, as numbers by fact: in + added = out + lost",
    "lost": _ITEMS,
    "changed": _ITEMS,
    "added": _ITEMS,
}


def show_report(report: ConservationReport) -> None:
    """Print the counts as a table, and each item as a note."""
    facts = sorted({*report.taken, *report.given}, key=lambda fact: (fact not in ("images", "objects"), fact))
    print_line()
    rows = ((fact, f"{report.taken.get(fact, 0):,}", f"{report.given.get(fact, 0):,}") for fact in facts)
    print_table(("", ">in", ">out"), rows)
    for name in ("lost", "changed", "added"):
        for item in getattr(report, name):
            note(f"{name}: {item.count:,} {escape(item.fact)}: {escape(item.why)} (first: {escape(item.first)})")
