"""`warp tensors`: show, verify, import, export and serve tensors and views of them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from warpdata.cli.context import CliContext
from warpdata.cli.exit_codes import CORRUPT, print_error, print_hint
from warpdata.cli.format import bytes_text, count_text, short_id
from warpdata.cli.options import address_argument, command, dataset_argument, group
from warpdata.cli.output import note, print_facts, print_json, print_line, print_table
from warpdata.cli.publish_report import (
    DRY_RUN_KEYS,
    PUBLISH_KEYS,
    PublishRequest,
    print_result,
    publish_options,
    run_publish,
)
from warpdata.cli.tensor_serve import serve
from warpdata.cli.tensor_views import (
    TARGET_KEYS,
    build_view,
    identity_facts,
    name_option,
    open_target,
    readable_facts,
    target_argument,
    view_options,
)

if TYPE_CHECKING:
    from warpdata.formats.tensors import TensorEntry, ViewExplanation

__all__ = ["tensors"]

_VIEW_KEYS = {
    "view_id": "id of the view; null for unchanged tensors",
    "size_bytes": "size of the view",
}
_ENTRY = "{name, dtype, shape, size_bytes, offset}"


@group("tensors")
def tensors() -> None:
    """Show, verify, import, export and serve tensors.

    Commands that read take a dataset, or a file or directory on this machine. A path begins with ".", "/" or
    "~", or ends with ".safetensors". Any other name with one slash is a dataset.
    """


@command(
    "ls",
    json_keys={
        "dataset_id": "workspace/name",
        "version": "64 hex digits",
        "tensors": "list of {name, artifact_id, tensors, shards, size_bytes}",
    },
    reads=True,
)
@address_argument()
@click.pass_obj
def _ls(cli: CliContext, address: str) -> None:
    """List the sets of tensors of a dataset."""
    with cli.progress(f"Opening {address}"):
        opened = cli.open(address)
        listed = opened.info().tensors
    if cli.as_json:
        sets = [asdict(one) for one in listed]
        print_json({"dataset_id": opened.id, "version": opened.version, "tensors": sets})
        return
    if not listed:
        note(f"{opened.id} has no tensors")
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
    json_keys={**TARGET_KEYS, **_VIEW_KEYS, "tensors": f"list of {_ENTRY}, in the order of the view"},
    reads=True,
)
@target_argument()
@name_option()
@view_options
@click.option("--limit", type=click.IntRange(min=0), metavar="N", help="Maximum number of tensors to list.")
@click.pass_obj
def _show(cli: CliContext, /, target: str, name: str | None, limit: int | None, **given: Any) -> None:
    """Show names, types, shapes and sizes.

    The options select a view; by default all tensors are shown. Reads no tensor data.

    \b
      warp tensors show acme/model
      warp tensors show acme/model --narrow 'layers.*.w=0:3/8'
    """
    with cli.progress(f"Opening {target}"):
        opened = open_target(cli, target, name)
        view = build_view(opened.tensors, given)
    listed = [view.index[name] for name in view.names[:limit]]
    facts = {**opened.facts, **identity_facts(opened.tensors, view)}
    if cli.as_json:
        print_json({**facts, "tensors": [_entry(entry) for entry in listed]})
        return
    print_facts(
        {**readable_facts(facts), "contents": f"{count_text(len(view.names), 'tensor')}, {bytes_text(view.size)}"}
    )
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
        **TARGET_KEYS,
        **_VIEW_KEYS,
        "requests": "number of read requests",
        "bytes_read": "number of bytes to read",
        "bytes_kept": "number of these bytes in the view",
        "transposed": "names of tensors that are transposed after reading",
        "choices": "list of {name, method, requests, bytes_read, bytes_kept, cost, alternative_cost}",
        "space_id": "id of the ByteSpace of the view",
        "output": "the written file, or null",
        "kept": "the written view file, or null",
        "view_data_hash": "hash of the bytes in the view file, or null",
    },
    reads=True,
)
@target_argument()
@name_option()
@view_options
@click.option("--verify", is_flag=True, help="Verify every byte against its hash, in the plan and when reading.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write the view to this safetensors file."
)
@click.option(
    "--keep",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the bytes of the view to this view file, which `warp tensors serve --view` serves.",
)
@click.pass_obj
def _view(cli: CliContext, /, target: str, name: str | None, **given: Any) -> None:
    """Explain the cost of reading a view, and optionally write it.

    Shows the number of requests, the bytes read and kept, and the read method of each tensor, without reading
    data. --output writes the view to a safetensors file.

    \b
      warp tensors view acme/model --narrow 'layers.*.w=1:0/8' --only 'layers.*'
      warp tensors view acme/model --transpose head.w=0,1 --only head.w -o head.safetensors
    """
    output: Path | None = given["output"]
    keep: Path | None = given["keep"]
    with cli.progress(f"Opening {target}") as progress:
        opened = open_target(cli, target, name)
        view = build_view(opened.tensors, given)
        plan = view.explain(verify=given["verify"] or None)
        if output is not None:
            opened.tensors.save_safetensors(output, view, on_bytes=progress.count_bytes(view.size))
        kept_hash = None if keep is None else opened.tensors.save_view(view, keep).data_multihash
    facts = {**opened.facts, **identity_facts(opened.tensors, view)}
    if cli.as_json:
        written = {
            "output": None if output is None else str(output),
            "kept": None if keep is None else str(keep),
            "view_data_hash": kept_hash,
        }
        print_json({**facts, "space_id": view.space_id, **_cost(plan), **written})
        return
    ratio = plan.bytes_read / plan.bytes_kept if plan.bytes_kept else 1.0
    print_facts(
        {
            **readable_facts(facts),
            "size": f"{count_text(len(view.names), 'tensor')}, {bytes_text(view.size)}",
            "reads": f"{count_text(plan.requests, 'request')}, {bytes_text(plan.bytes_read)}",
            "keeps": f"{bytes_text(plan.bytes_kept)} (reads {ratio:.2f} times the size it keeps)",
            "transposes": ", ".join(plan.transposed) or None,
            "written to": output,
            "kept in": keep,
            "data hash": kept_hash,
        }
    )
    print_line()
    print_table(
        ("tensor", "method", ">requests", ">read", ">kept"),
        (
            (c.name, c.method, f"{c.requests:,}", bytes_text(c.bytes_read), bytes_text(c.bytes_kept))
            for c in plan.choices
        ),
    )


@command(
    "verify",
    json_keys={
        **TARGET_KEYS,
        "ok": "true if no byte is missing or corrupt",
        "size_bytes": "number of bytes that were read",
        "damaged": "list of {start, end, names, is_missing}: corrupt byte ranges and their tensors",
    },
)
@target_argument()
@name_option()
@click.pass_obj
@click.pass_context
def _verify(ctx: click.Context, cli: CliContext, target: str, name: str | None) -> None:
    """Read every tensor and compare it with its hashes.

    Exits with code 8 and names the tensors and byte ranges that are missing or corrupt. Published tensors and
    warpdata tensor files have hashes; safetensors files have none.
    """
    cli.mode = cli.direct_mode
    with cli.progress(f"Opening {target}") as progress:
        opened = open_target(cli, target, name)
        size = opened.tensors.index.total_size
        damaged = opened.tensors.verify(on_bytes=progress.count_bytes(size))
    facts = {**opened.facts, **identity_facts(opened.tensors)}
    if cli.as_json:
        print_json({**facts, "ok": not damaged, "size_bytes": size, "damaged": [asdict(one) for one in damaged]})
    else:
        for one in damaged:
            print_line(str(one))
        if not damaged:
            count = count_text(len(opened.tensors), "tensor")
            print_line(f"{opened.title} is valid: {count}, {bytes_text(size)} read and hashed")
    if damaged:
        print_error(f"{opened.title} has {count_text(len(damaged), 'corrupt range')}")
        print_hint("Publish the same tensors again with --repair, or read an older version.")
        ctx.exit(CORRUPT)


@command("import", json_keys={**PUBLISH_KEYS, **DRY_RUN_KEYS})
@dataset_argument()
@click.argument("source", type=click.Path(exists=True, path_type=Path), metavar="PATH")
@click.option("--name", default="weights", show_default=True, metavar="NAME", help="Name of the set of tensors.")
@publish_options
@click.pass_obj
def _import(cli: CliContext, /, dataset_id: str, source: Path, name: str, **given: Any) -> None:
    """Publish a safetensors file or a directory of them.

    The new version has only these tensors; `warp publish --tensors` publishes them together with tables.
    Tensors that are unchanged since an earlier version are not uploaded again.

    \b
      warp tensors import acme/model model.safetensors --label v1
      warp tensors import acme/model checkpoints/step-1000/ -m "step 1000"
    """
    from warpdata.publish import DatasetBuilder

    request = PublishRequest(dataset_id=dataset_id, **given)
    with cli.progress(f"Preparing {dataset_id}") as progress:
        session = cli.connect()
        done = run_publish(DatasetBuilder(dataset_id, session).add_tensors(name, source), session, request, progress)
    print_result(cli, session, request, done)


@command(
    "export",
    json_keys={**TARGET_KEYS, **_VIEW_KEYS, "tensors": "number of tensors", "output": "the written file"},
    reads=True,
)
@target_argument()
@click.argument("output", type=click.Path(path_type=Path), metavar="FILE")
@name_option()
@view_options
@click.pass_obj
def _export(cli: CliContext, /, target: str, output: Path, name: str | None, **given: Any) -> None:
    """Write tensors, or a view of them, to a safetensors file.

    Verifies every byte that has a hash. Never overwrites a file.

    \b
      warp tensors export acme/model@v1 model.safetensors
      warp tensors export acme/model rank3.safetensors --narrow 'layers.*.w=0:3/8'
    """
    with cli.progress(f"Opening {target}") as progress:
        opened = open_target(cli, target, name)
        view = build_view(opened.tensors, given)
        opened.tensors.save_safetensors(output, view, on_bytes=progress.count_bytes(view.size))
    if cli.as_json:
        facts = {**opened.facts, **identity_facts(opened.tensors, view)}
        print_json({**facts, "tensors": len(view.names), "output": str(output)})
        return
    print_line(f"{output}: {count_text(len(view.names), 'tensor')}, {bytes_text(output.stat().st_size)}")


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


def _cost(plan: ViewExplanation) -> dict[str, Any]:
    return {
        "requests": plan.requests,
        "bytes_read": plan.bytes_read,
        "bytes_kept": plan.bytes_kept,
        "transposed": list(plan.transposed),
        "choices": [asdict(choice) for choice in plan.choices],
    }


for _command in (_ls, _show, _view, _verify, _import, _export, serve):
    tensors.add_command(_command)
