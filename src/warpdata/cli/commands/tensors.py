"""`warp tensors`: look at tensors, at views of them, and move them between datasets and safetensors files."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from warpdata.cli.context import Invocation
from warpdata.cli.exit_codes import CORRUPT, complain, suggest
from warpdata.cli.format import bytes_text, count_text, short_id
from warpdata.cli.options import address_argument, command, dataset_argument, group
from warpdata.cli.output import note, print_facts, print_json, print_line, print_table
from warpdata.cli.publish_report import DRY_RUN_KEYS, PUBLISH_KEYS, PublishRequest, perform, publish_options, tell
from warpdata.cli.tensor_views import name_option, open_place, place_argument, view_of, view_options

if TYPE_CHECKING:
    from warpdata.formats.tensors import TensorEntry, View, ViewExplanation

__all__ = ["tensors"]

_PLACE_KEYS = {
    "dataset_id": "workspace/name; path instead, where a file or folder was opened",
    "version": "64 hex digits; only of a dataset",
    "name": "which tensors of the dataset; only of a dataset",
    "artifact_id": "the name of these tensors, wherever they lie; null where it would have to be computed",
    "index_multihash": "the name of their index",
}
_VIEW_KEYS = {
    "view_id": "the name of the view; null for tensors as they are",
    "size_bytes": "bytes of the view",
}
_ENTRY = "{name, dtype, shape, size_bytes, offset}"


@group("tensors")
def tensors() -> None:
    """Look at tensors and views, and move them in and out of safetensors.

    Commands that read take a dataset, or a file or folder here. A path begins with ".", "/" or "~", or ends in
    ".safetensors"; anything else with one slash is a dataset.
    """


@command(
    "ls",
    json_keys={
        "dataset_id": "workspace/name",
        "version": "64 hex digits",
        "tensors": "a list of {name, artifact_id, tensors, shards, size_bytes}",
    },
    reads=True,
)
@address_argument()
@click.pass_obj
def _ls(invocation: Invocation, address: str) -> None:
    """List the sets of tensors of a dataset."""
    with invocation.meter(f"Opening {address}"):
        opened = invocation.open(address)
        listed = opened.info().tensors
    if invocation.as_json:
        sets = [asdict(one) for one in listed]
        print_json({"dataset_id": opened.id, "version": opened.version, "tensors": sets})
        return
    if not listed:
        note(f"{opened.id} holds no tensors")
        return
    print_table(
        ("name", ">tensors", ">shards", ">size", "artifact id"),
        (
            (t.name, f"{t.tensors:,}", f"{t.shards:,}", bytes_text(t.size_bytes), short_id(t.artifact_id))
            for t in listed
        ),
    )


@command(
    "show",
    json_keys={**_PLACE_KEYS, **_VIEW_KEYS, "tensors": f"a list of {_ENTRY}, in the order of the view"},
    reads=True,
)
@place_argument()
@name_option()
@view_options
@click.option("--limit", type=click.IntRange(min=0), metavar="N", help="List no more than this many.")
@click.pass_obj
def _show(invocation: Invocation, /, place: str, name: str | None, limit: int | None, **given: Any) -> None:
    """Show names, types, shapes and sizes.

    Of all tensors, or of a view that the options describe, with its id. Reads no data.

    \b
      warp tensors show acme/model
      warp tensors show acme/model --narrow 'layers.*.w=0:3/8'
    """
    with invocation.meter(f"Opening {place}"):
        opened = open_place(invocation, place, name)
        view = view_of(opened.tensors, given)
    listed = [view.index[name] for name in view.names[:limit]]
    facts = {**opened.facts, **_identity(opened.tensors, view)}
    if invocation.as_json:
        print_json({**facts, "tensors": [_entry(entry) for entry in listed]})
        return
    print_facts({**_readable(facts), "holds": f"{count_text(len(view.names), 'tensor')}, {bytes_text(view.size)}"})
    print_line()
    print_table(
        ("tensor", "type", "shape", ">size"),
        ((e.name, e.dtype.name, _shape(e.shape), bytes_text(e.byte_size)) for e in listed),
    )
    if len(listed) < len(view.names):
        print_line(f"… and {len(view.names) - len(listed):,} more", style="dim")


@command(
    "view",
    json_keys={
        **_PLACE_KEYS,
        **_VIEW_KEYS,
        "requests": "how many requests reading it takes",
        "bytes_read": "how many bytes are asked for",
        "bytes_kept": "how many of them end up in the view",
        "transposed": "names of tensors whose axes are swapped after reading",
        "choices": "a list of {name, method, requests, bytes_read, bytes_kept, cost, alternative_cost}",
        "output": "the file that was written, or null",
    },
    reads=True,
)
@place_argument()
@name_option()
@view_options
@click.option("--verify", is_flag=True, help="Plan, and read, with every byte checked against its hash.")
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write it as safetensors.")
@click.pass_obj
def _view(invocation: Invocation, /, place: str, name: str | None, **given: Any) -> None:
    """Explain what reading a view costs, and perhaps read it.

    Requests, bytes read against bytes kept, and how each tensor is fetched, known before any data is read.
    With --output the view becomes a safetensors file.

    \b
      warp tensors view acme/model --narrow 'layers.*.w=1:0/8' --only 'layers.*'
      warp tensors view acme/model --transpose head.w=0,1 --only head.w -o head.safetensors
    """
    output: Path | None = given["output"]
    with invocation.meter(f"Opening {place}") as meter:
        opened = open_place(invocation, place, name)
        view = view_of(opened.tensors, given)
        told = view.explain(verify=given["verify"] or None)
        if output is not None:
            watch = meter.count_bytes(view.size)
            opened.tensors.save_safetensors(output, view, on_bytes=watch)
    facts = {**opened.facts, **_identity(opened.tensors, view)}
    if invocation.as_json:
        print_json({**facts, **_cost(told), "output": None if output is None else str(output)})
        return
    more = told.bytes_read / told.bytes_kept if told.bytes_kept else 1.0
    print_facts(
        {
            **_readable(facts),
            "size": f"{count_text(len(view.names), 'tensor')}, {bytes_text(view.size)}",
            "reads": f"{count_text(told.requests, 'request')}, {bytes_text(told.bytes_read)}",
            "keeps": f"{bytes_text(told.bytes_kept)} of it (reads {more:.2f} times what it keeps)",
            "transposes": ", ".join(told.transposed) or None,
            "written to": output,
        }
    )
    print_line()
    print_table(
        ("tensor", "fetched", ">requests", ">read", ">kept"),
        (
            (c.name, c.method, f"{c.requests:,}", bytes_text(c.bytes_read), bytes_text(c.bytes_kept))
            for c in told.choices
        ),
    )


@command(
    "verify",
    json_keys={
        **_PLACE_KEYS,
        "ok": "whether everything is as promised",
        "size_bytes": "how many bytes were read",
        "damaged": "a list of {start, end, names, is_missing}: bytes, and the tensors in them",
    },
)
@place_argument()
@name_option()
@click.pass_obj
@click.pass_context
def _verify(ctx: click.Context, invocation: Invocation, place: str, name: str | None) -> None:
    """Read every tensor again, and compare it with its hashes.

    Exits with 8 and names tensors and bytes if anything is missing or damaged. Published tensors and files of
    ours have hashes; safetensors files have none.
    """
    invocation.mode = "remote"  # the store itself is asked, and not what is kept of it here
    with invocation.meter(f"Opening {place}") as meter:
        opened = open_place(invocation, place, name)
        size = opened.tensors.index.total_size
        damaged = opened.tensors.verify(on_bytes=meter.count_bytes(size))
    facts = {**opened.facts, **_identity(opened.tensors)}
    if invocation.as_json:
        print_json({**facts, "ok": not damaged, "size_bytes": size, "damaged": [asdict(one) for one in damaged]})
    else:
        for one in damaged:
            click.echo(str(one))
        if not damaged:
            count = count_text(len(opened.tensors), "tensor")
            print_line(f"{opened.place} is whole: {count}, {bytes_text(size)} read and hashed")
    if damaged:
        complain(f"{opened.place} is damaged in {count_text(len(damaged), 'place')}")
        suggest("Publish the same tensors again with --repair, or read an older version.")
        ctx.exit(CORRUPT)


@command("import", json_keys={**PUBLISH_KEYS, **DRY_RUN_KEYS})
@dataset_argument()
@click.argument("source", type=click.Path(exists=True, path_type=Path), metavar="PATH")
@click.option("--name", default="weights", show_default=True, metavar="NAME", help="What to call the tensors.")
@publish_options
@click.pass_obj
def _import(invocation: Invocation, /, dataset_id: str, source: Path, name: str, **given: Any) -> None:
    """Publish a safetensors file, or a folder of them.

    The new version holds these tensors and nothing else; `warp publish --tensors` publishes them beside tables.
    A tensor that did not change since an earlier version is not sent again.

    \b
      warp tensors import acme/model model.safetensors --label v1
      warp tensors import acme/model checkpoints/step-1000/ -m "step 1000"
    """
    from warpdata.publish import DatasetBuilder

    request = PublishRequest(dataset_id=dataset_id, **given)
    with invocation.meter(f"Preparing {dataset_id}") as meter:
        link = invocation.connect()
        done = perform(DatasetBuilder(dataset_id, link).add_tensors(name, source), link, request, meter)
    tell(invocation, link, request, done)


@command(
    "export",
    json_keys={**_PLACE_KEYS, **_VIEW_KEYS, "tensors": "how many were written", "output": "the file"},
    reads=True,
)
@place_argument()
@click.argument("output", type=click.Path(path_type=Path), metavar="FILE")
@name_option()
@view_options
@click.pass_obj
def _export(invocation: Invocation, /, place: str, output: Path, name: str | None, **given: Any) -> None:
    """Write tensors, or a view of them, as a safetensors file.

    Every byte is checked on the way, where hashes are known. A file that is there is never replaced.

    \b
      warp tensors export acme/model@v1 model.safetensors
      warp tensors export acme/model rank3.safetensors --narrow 'layers.*.w=0:3/8'
    """
    with invocation.meter(f"Opening {place}") as meter:
        opened = open_place(invocation, place, name)
        view = view_of(opened.tensors, given)
        opened.tensors.save_safetensors(output, view, on_bytes=meter.count_bytes(view.size))
    if invocation.as_json:
        facts = {**opened.facts, **_identity(opened.tensors, view)}
        print_json({**facts, "tensors": len(view.names), "output": str(output)})
        return
    print_line(f"{output}: {count_text(len(view.names), 'tensor')}, {bytes_text(output.stat().st_size)}")


def _identity(art: Any, view: View | None = None) -> dict[str, Any]:
    """Names of things. That of an artifact is told only where it costs nothing."""
    named = {"artifact_id": art.known_artifact_id, "index_multihash": art.index_multihash}
    return named if view is None else {**named, "view_id": view.view_id, "size_bytes": view.size}


def _readable(facts: dict[str, Any]) -> dict[str, Any]:
    words = {"dataset_id": "dataset", "artifact_id": "artifact id", "index_multihash": "index", "view_id": "view id"}
    return {words.get(key, key): value for key, value in facts.items() if key != "size_bytes"}


def _entry(entry: TensorEntry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "dtype": entry.dtype.name,
        "shape": list(entry.shape),
        "size_bytes": entry.byte_size,
        "offset": entry.offset,
    }


def _shape(shape: tuple[int, ...]) -> str:
    return " × ".join(map(str, shape)) or "scalar"


def _cost(told: ViewExplanation) -> dict[str, Any]:
    return {
        "requests": told.requests,
        "bytes_read": told.bytes_read,
        "bytes_kept": told.bytes_kept,
        "transposed": list(told.transposed),
        "choices": [asdict(choice) for choice in told.choices],
    }


for _command in (_ls, _show, _view, _verify, _import, _export):
    tensors.add_command(_command)
