"""`warp demo`: publish, open, stream and train, on the handwritten digits of scikit-learn."""

from __future__ import annotations

import shlex
import time

import click

from warpdata.cli.commands.schema import table_bindings
from warpdata.cli.context import CliContext, python_command, warp_command
from warpdata.cli.demo_data import digit_files, digits_table, draw_images, measure_accuracy, train
from warpdata.cli.format import bytes_text, count_text, rate_text, seconds_text, short
from warpdata.cli.options import command
from warpdata.cli.output import print_line, print_rows, show
from warpdata.datasets import Dataset, open_dataset
from warpdata.kinds.artifacts import read_many
from warpdata.kinds.tables import Table
from warpdata.publish import DatasetBuilder
from warpdata.repository.catalog import Address
from warpdata.session import Session

__all__ = ["demo"]

_NAME = "demo/digits"
_COLUMNS = ("image", "label")
_BATCH_ROWS = 64
_EPOCHS = 8
_SHOWN_ROWS = 3
_SHOWN_IMAGES = 6


@command("demo")
@click.pass_obj
def demo(cli: CliContext) -> None:
    """Publish a small dataset, open it, and train on it.

    The data are the 1,797 images of handwritten digits in scikit-learn. The demo publishes them as
    demo/digits, both as a table and as image files, opens the dataset by name, and trains a classifier on
    its stream. A second run reuses the published version.
    """
    session = cli.connect()
    _publish(cli, session)
    opened = _open(session)
    _read_files(opened)
    training = _filter(opened)
    _stream(training)
    _train(cli, opened, training)
    _print_next_steps(cli)


def _publish(cli: CliContext, session: Session) -> None:
    with cli.progress("Loading the images"):
        images = digits_table()
    began = time.perf_counter()
    with cli.progress("Publishing") as progress:
        builder = DatasetBuilder(_NAME, session).add_table("main", images)
        builder.add_artifact("raw_images", digit_files(images)).bind("main", "file", "raw_images", "image")
        done = builder.publish("handwritten digits", progress=progress)
    taken = seconds_text(time.perf_counter() - began)
    if done.changed:
        sent = f"{count_text(images.num_rows, 'image')}, {bytes_text(done.uploaded_bytes)} in {taken}"
        _step("publish", f"{_NAME} at version {short(done.version)}: {sent}")
    else:
        _step("publish", f"version {short(done.version)} exists, nothing to upload ({taken})")


def _open(session: Session) -> Dataset:
    began = time.perf_counter()
    opened = open_dataset(session, Address(_NAME))
    rows = opened.table("main").raw().head(_SHOWN_IMAGES)
    _step("open", f"{_NAME}, first rows after {seconds_text(time.perf_counter() - began)}")
    print_line()
    for line in draw_images(rows["image"].to_pylist()):
        print_line(f"  {line}", style="cyan")
    print_line()
    bound = table_bindings(opened.manifest, "main")
    print_rows(rows.slice(0, _SHOWN_ROWS), {name: f"ref<{binding.ref_type}>" for name, binding in bound.items()})
    print_line()
    return opened


def _read_files(opened: Dataset) -> None:
    began = time.perf_counter()
    contents = read_many(opened.table("main").head(_BATCH_ROWS)["file"])
    taken = seconds_text(time.perf_counter() - began)
    files = count_text(len(contents), "PNG file")
    _step("files", f"{files} of {len(opened.artifact()):,} read in {taken} through column file")


def _filter(opened: Dataset) -> Table:
    training = opened.table("main").filter("split = 'train'")
    rows, kept = opened.table("main").count(), training.count()
    _step("filter", f"split = 'train' keeps {kept:,} of {count_text(rows, 'row')}")
    return training.select(_COLUMNS)


def _stream(training: Table) -> None:
    began = time.perf_counter()
    first_s, samples = 0.0, 0
    for batch in training.batches(_BATCH_ROWS):
        first_s = first_s or time.perf_counter() - began
        samples += batch.num_rows
    rate = rate_text(samples, time.perf_counter() - began, "samples")
    _step("stream", f"first batch after {seconds_text(first_s)}, {rate} in batches of {_BATCH_ROWS}")


def _train(cli: CliContext, opened: Dataset, training: Table) -> None:
    with cli.progress("Training"):
        trained = train(lambda: training.batches(_BATCH_ROWS), _EPOCHS)
        held_out = opened.table("main").filter("split = 'test'").select(_COLUMNS)
        correct, seen = measure_accuracy(trained.model, held_out.batches(_BATCH_ROWS))
    rate = rate_text(trained.samples, trained.seconds, "samples")
    _step("train", f"{_EPOCHS} epochs in {seconds_text(trained.seconds)}, {rate}")
    _step("accuracy", f"{correct / seen:.1%} on {count_text(seen, 'test image')}", style="bold green")


def _print_next_steps(cli: CliContext) -> None:
    """Print commands that run as printed: `warp` may not be on the path."""
    warp = warp_command()
    store = f" --store {shlex.quote(cli.store)}" if cli.store else ""
    print_line()
    print_line("Next steps:")
    for line in (
        f"{warp} info {_NAME}{store}",
        f'{warp} head {_NAME}{store} --columns label,caption --filter "label = 7"',
        f"{warp} stream {_NAME}{store} --columns label,split --limit 3",
        f"{warp} cat {_NAME}{store} --ref 3/0003.png > three.png",
        f"{warp} init {_NAME}{store} --output digits.py --force && {python_command()} digits.py",
        f"{warp} publish --help",
        f"{warp} ingest imagefolder --help",
    ):
        print_line(f"  {line}", style="cyan")
    print_line()
    print_line(f"In a browser, at http://127.0.0.1:8765/d/{_NAME}/browse:")
    print_line(f"  {warp} serve{store} --no-sign-in", style="cyan")


def _step(name: str, text: str, style: str = "") -> None:
    from rich.text import Text

    show(Text.assemble((f"{name:<9}", "dim"), (text, style)), soft_wrap=True)
