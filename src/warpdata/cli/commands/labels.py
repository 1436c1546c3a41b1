"""`warp labels`: connections to labelling tools, labels that came back from them, and the quality of labels."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import warpdata
from warpdata.cli.commands.label_check import check_labels
from warpdata.cli.context import CliContext
from warpdata.cli.format import count_text, escape, short, time_text
from warpdata.cli.options import address_argument, command, dataset_argument, group
from warpdata.cli.output import note, print_facts, print_json, print_line, print_table

if TYPE_CHECKING:
    from warpdata.collections import InboxReview, LabelInbox, LabelQuality

__all__ = ["labels"]

_STATES = ("clean", "conflict", "stale", "unchanged", "accepted", "rejected")
_CHECKS = ("tiny", "outside", "overlapping", "duplicate", "leakage", "near_leakage")
_ITEM = "{inbox_id, state, path, source, annotator, time, objects, hash, base}"


@group("labels")
def labels() -> None:
    """Connect labelling tools, review labels that came back, and check their quality.

    `warp import` adds the labels of a directory, and `warp export` writes them.
    """


@group("inbox")
def inbox() -> None:
    """Review labels that came back from labelling tools.

    A label is bound to the bytes that it was drawn on. It is stale if HEAD has others; otherwise its objects are merged
    with those of HEAD. Nothing enters HEAD before `accept`.
    """


def _open(cli: CliContext, dataset_id: str) -> LabelInbox:
    return warpdata.collection(dataset_id, store=cli.connect()).inbox


@command("ls", json_keys={"items": f"list of {_ITEM}"})
@dataset_argument()
@click.option("--state", type=click.Choice(_STATES), help="Only items in this state. Default: all that wait.")
@click.pass_obj
def _ls(cli: CliContext, dataset_id: str, state: str | None) -> None:
    """List labels that wait, or those in one state."""
    with cli.progress(f"Reading the inbox of {dataset_id}"):
        items = _open(cli, dataset_id).items(state)
    if cli.as_json:
        print_json({"items": [asdict(item) for item in items]})
        return
    if not items:
        note(f"the inbox of {dataset_id} has no items" if state is None else f"no item is {state}")
        return
    times = (time_text(datetime.fromisoformat(one.time)) for one in items)
    rows = (
        (one.inbox_id, one.state, one.path, f"{one.objects:,}", one.annotator, time)
        for one, time in zip(items, times, strict=True)
    )
    print_table(("item", "state", "image", ">objects", "annotator", "received"), rows)


_REVIEW = {
    "inbox_id": "id of the item",
    "state": ", ".join(_STATES),
    "path": "image",
    "source": "label-studio or cvat",
    "annotator": "who drew it",
    "time": "when it came",
    "hash": "SHA-256 of the image it was drawn on",
    "base": "version that the annotator saw",
    "objects": "what was drawn, as in the Platform Format",
    "removed": "objects of HEAD that an acceptance removes",
    "added": "objects that it adds",
    "conflicts": "list of {base, head, returned}: both sides changed the object",
    "lost": "what the tool sent and the collection has no place for",
}


@command("show", json_keys=_REVIEW)
@dataset_argument()
@click.argument("item")
@click.pass_obj
def _show(cli: CliContext, dataset_id: str, item: str) -> None:
    """Show one item, and the changes that an acceptance would make."""
    with cli.progress(f"Reading the inbox of {dataset_id}"):
        review = _open(cli, dataset_id).review(item)
    if cli.as_json:
        print_json(review.document())
    else:
        _print_review(review)


@command("accept", json_keys={"accepted": "ids of the items", "version": "version of HEAD; null without items"})
@dataset_argument()
@click.argument("items", nargs=-1)
@click.option("--prefer", type=click.Choice(["returned", "head"]), help="Whose side wins the conflicts of an item.")
@click.option("--clean", is_flag=True, help="Accept all items without conflicts.")
@click.option("--annotator", "annotators", multiple=True, help="With --clean: only of this annotator. Repeatable.")
@click.pass_obj
def _accept(cli: CliContext, /, dataset_id: str, items: tuple[str, ...], **given: Any) -> None:
    """Merge items into HEAD, each as a commit.

    \b
      warp labels inbox accept acme/pets 0f3a… --prefer returned
      warp labels inbox accept acme/pets --clean --annotator ann@example.com
    """
    if bool(items) == given["clean"]:
        raise click.UsageError("name items, or pass --clean")
    opened = _open(cli, dataset_id)
    with cli.progress(f"Merging into {dataset_id}"):
        if given["clean"]:
            done = opened.accept_clean(annotators=list(given["annotators"]) or None)
        else:
            done = [item for item in items if opened.accept(item, prefer=given["prefer"])]
    version = warpdata.collection(dataset_id, store=cli.connect()).head.version if done else None
    if cli.as_json:
        print_json({"accepted": done, "version": version})
    elif version is None:
        note("no item is without conflicts")
    else:
        print_line(f"{count_text(len(done), 'item')} merged; HEAD of {dataset_id} is {short(version)}")


@command("reject", json_keys={"rejected": "ids of the items"})
@dataset_argument()
@click.argument("items", nargs=-1, required=True)
@click.option("--note", "reason", default="", metavar="TEXT", help="Reason, kept with the item.")
@click.pass_obj
def _reject(cli: CliContext, dataset_id: str, items: tuple[str, ...], reason: str) -> None:
    """Reject items. They stay listed with --state rejected."""
    opened = _open(cli, dataset_id)
    with cli.progress(f"Rejecting labels of {dataset_id}"):
        for item in items:
            opened.reject(item, note=reason)
    if cli.as_json:
        print_json({"rejected": list(items)})
    else:
        print_line(f"{count_text(len(items), 'item')} rejected")


@command("add", json_keys={"items": "ids of the items"})
@dataset_argument()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--source",
    type=click.Choice(["label-studio", "cvat"]),
    default="label-studio",
    show_default=True,
    help="The tool that wrote the files.",
)
@click.option("--version", metavar="REF", help="Version that the annotator saw, if the files do not say it.")
@click.option("--annotator", metavar="NAME", help="Who drew the labels, if the files do not say it.")
@click.pass_obj
def _add(cli: CliContext, /, dataset_id: str, files: tuple[Path, ...], **given: Any) -> None:
    """Put files of a labelling tool into the inbox: stored annotations of Label Studio, or XML of CVAT.

    \b
      warp labels inbox add acme/pets annotations.xml --source cvat --version v3 --annotator ann
    """
    opened = _open(cli, dataset_id)
    with cli.progress(f"Receiving labels of {dataset_id}"):
        found = [one for file in files for one in opened.receive(file.read_bytes(), **given)]
    if cli.as_json:
        print_json({"items": found})
    else:
        print_line(f"{count_text(len(found), 'item')} in the inbox of {dataset_id}")


@command("sync", json_keys={"items": "ids of the items", "unread": "list of {file, reason}"})
@dataset_argument()
@click.pass_obj
def _sync(cli: CliContext, dataset_id: str) -> None:
    """Make items of the files that Label Studio has sent to the S3 gateway.

    A repetition makes nothing twice. Files that cannot be read stay, and are listed.
    """
    with cli.progress(f"Reading what was sent to {dataset_id}"):
        found = _open(cli, dataset_id).sync()
    if cli.as_json:
        unread = [{"file": name, "reason": reason} for name, reason in found.unread]
        print_json({"items": list(found.items), "unread": unread})
        return
    print_line(f"{count_text(len(found.items), 'item')} in the inbox of {dataset_id} from files of the gateway")
    for name, reason in found.unread:
        note(escape(f"{name} is no label: {reason}"))


_QUALITY = {
    "dataset_id": "workspace/name",
    "version": "64 hex digits",
    "images": "number",
    "objects": "number",
    "counts": "number of findings by check",
    "unread": "files that could not be decoded, with --near",
    "findings": (
        "list of {check, image, other_image, object, other_object, class_name, other_class, value}; an object is a "
        "position among the annotations of its image"
    ),
    "classes": "list of {class_name, split, objects, images, share, ratio_to_largest}; split is null over all",
    "agreement": (
        "list of {image, annotator, other, objects, other_objects, matched, same_class, mean_iou, kappa}, from the "
        "inbox; image is null over all images"
    ),
}


@command("quality", json_keys=_QUALITY, reads=True)
@address_argument()
@click.option(
    "--near",
    "near_bits",
    type=click.IntRange(0, 7),
    metavar="BITS",
    help="Find similar images in other splits: hashes of 64 bits differ in at most this many. Reads all images.",
)
@click.option("--tiny-area", type=float, metavar="PIXELS", help="Area below which a box is tiny. Default: 16.")
@click.option("--paths", "check", type=click.Choice(_CHECKS), help="Print only the images with findings of this check.")
@click.pass_obj
def _quality(cli: CliContext, /, address: str, check: str | None, **given: Any) -> None:
    """Check the quality of labels.

    Finds tiny, overlapping, duplicate and outside boxes and leakage between splits, and shows balance and agreement.

    \b
      warp labels quality acme/pets@v3
      warp labels quality acme/pets --paths duplicate
    """
    from warpdata.collections import QualityOptions, check_quality

    options = QualityOptions(**{name: value for name, value in given.items() if value is not None})
    dataset = cli.open(address)
    with cli.progress(f"Checking {address}") as progress:
        found = check_quality(dataset, options, progress=progress)
        agreement = warpdata.collection(dataset.id, store=dataset.session).inbox.agreement()
    if check is not None and not cli.as_json:
        for path in found.paths(check):
            print_line(path)
    elif cli.as_json:
        print_json({**found.document(), "agreement": agreement.to_pylist()})
    else:
        _print_quality(found, agreement.to_pylist())


def _print_quality(found: LabelQuality, agreement: list[dict[str, Any]]) -> None:
    print_facts({"images": f"{found.images:,}", "objects": f"{found.objects:,}"})
    print_line()
    rows = ((name, f"{count:,}", f"{len(found.paths(name)):,}") for name, count in found.counts.items())
    print_table(("check", ">findings", ">images"), rows)
    if found.classes.num_rows:
        print_line()
        overall = (row for row in found.classes.to_pylist() if row["split"] is None)
        counts = ((row["class_name"], f"{row['objects']:,}", f"{row['share']:.1%}") for row in overall)
        print_table(("class", ">objects", ">share"), counts)
    pairs = [row for row in agreement if row["image"] is None]
    if pairs:
        print_line()
        listed = ((row["annotator"], row["other"], _decimal(row["mean_iou"]), _decimal(row["kappa"])) for row in pairs)
        print_table(("annotator", "and", ">mean IoU", ">kappa"), listed)
    if found.unread:
        note(f"{count_text(found.unread, 'file')} could not be decoded")


def _decimal(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _print_review(review: InboxReview) -> None:
    item, merge = review.item, review.merge
    about = {"item": item.inbox_id, "state": item.state, "image": item.path, "annotator": item.annotator or None}
    print_facts({**about, "drawn on": item.hash[:12], "base": item.base[:12], "objects": f"{item.objects:,}"})
    if merge is not None and not merge.is_empty:
        print_line()
        rows = [("removes", repr(review.head[at])) for at in merge.removed]
        rows += [("adds", repr(one)) for one in merge.added]
        for conflict in merge.conflicts:
            sides = (("was", conflict.base), ("HEAD has", conflict.head), ("returned", conflict.returned))
            rows += [("conflict" if n == 0 else "", f"{name} {one!r}") for n, (name, one) in enumerate(sides)]
        print_table(("", "object"), rows)
    for lost in review.lost:
        note(f"lost: {escape(lost)}")


for _command in (_sync, _ls, _show, _accept, _reject, _add):
    inbox.add_command(_command)
labels.add_command(inbox)
labels.add_command(_quality)
labels.add_command(check_labels)
