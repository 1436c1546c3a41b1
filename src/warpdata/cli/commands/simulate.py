"""`warp simulate`: an epoch of a stream on many machines, without them."""

from __future__ import annotations

from typing import Any

import click

from warpdata.cli.context import CliContext
from warpdata.cli.format import bytes_text, seconds_text
from warpdata.cli.options import address_argument, columns_option, command, filter_option, table_option
from warpdata.cli.output import note, print_facts, print_json
from warpdata.cli.parameters import SizeType

__all__ = ["simulate"]

_KEYS = {
    "dataset_id": "workspace/name",
    "version": "64 hex digits",
    "samples": "samples of an epoch",
    "steps": "steps of an epoch",
    "windows": "windows of the shuffle",
    "first_batch_s": "seconds from the start to the first batch",
    "epoch_s": "seconds of an epoch",
    "waits_s": "seconds of it in which ranks wait for data",
    "requests": "requests of all nodes",
    "requests_per_s": "requests of all nodes in a second",
    "hottest_prefix_requests_per_s": "the most requests in a second for one of the 256 prefixes of blobs",
    "node_bytes": "bytes that a node fetches, with a cache that its ranks share",
    "uncached_node_bytes": "bytes that a node fetches without it",
    "dollars": "cost of the requests, and of the bytes if they cost something",
    "resume_s": "seconds from a restart in the middle of an epoch to the next batch",
    "resume_bytes": "bytes that all nodes fetch again then",
    "notes": "list of limits that the plan exceeds",
}


@command("simulate", json_keys=_KEYS, reads=True)
@address_argument()
@table_option()
@columns_option()
@filter_option()
@click.option("--ranks", type=click.IntRange(1), required=True, metavar="N", help="Processes that train.")
@click.option("--nodes", type=click.IntRange(1), default=1, show_default=True, metavar="N", help="Machines.")
@click.option("--batch-size", type=click.IntRange(1), default=256, show_default=True, metavar="N", help="Of one rank.")
@click.option("--no-shuffle", is_flag=True, help="Read in the order of the table.")
@click.option("--seed", type=int, default=0, show_default=True, metavar="N", help="Seed of the order.")
@click.option("--samples-per-s", type=float, metavar="N", help="Samples that a rank trains on in a second.")
@click.option("--latency-ms", type=float, default=30.0, show_default=True, metavar="MS", help="Of a request.")
@click.option("--connection-rate", type=SizeType(), default="80MB", show_default=True, help="Bytes a second of one.")
@click.option("--node-rate", type=SizeType(), default="3GB", show_default=True, help="Bytes a second of a machine.")
@click.option(
    "--prefix-requests", type=float, default=5500.0, show_default=True, metavar="N", help="Requests a second a prefix."
)
@click.option("--dollars-per-million", type=float, default=0.4, show_default=True, metavar="USD", help="Requests.")
@click.option("--dollars-per-gb", type=float, default=0.0, show_default=True, metavar="USD", help="Bytes read.")
@click.pass_obj
def simulate(cli: CliContext, /, address: str, **given: Any) -> None:
    """Simulate an epoch of a stream on many machines.

    Plans the reads of the real order, and computes their time with a model of the store: latency, bandwidth
    and requests a second for each prefix. Reads the manifest, and no data.

    \b
      warp simulate acme/photos --ranks 1000 --nodes 125 --samples-per-s 400
    """
    from warpdata.simulation import ClusterModel, StoreModel
    from warpdata.simulation import simulate as run

    cluster = ClusterModel(given["ranks"], given["nodes"], given["node_rate"], samples_per_s=given["samples_per_s"])
    store = StoreModel(
        given["latency_ms"] / 1000,
        given["connection_rate"],
        given["prefix_requests"],
        given["dollars_per_million"],
        given["dollars_per_gb"],
    )
    keywords: dict[str, Any] = {"batch_size": given["batch_size"], "seed": given["seed"]}
    keywords |= {"shuffle": not given["no_shuffle"], "filter": given["expression"], "columns": given["columns"] or None}
    with cli.progress(f"Planning {address}"):
        opened = cli.open(address)
        found = run(opened, given["table"], cluster=cluster, store=store, **keywords)
    if cli.as_json:
        print_json({"dataset_id": opened.id, "version": opened.version, **found.document()})
        return
    cached = f"{bytes_text(found.node_bytes)}, without a shared cache {bytes_text(found.uncached_node_bytes)}"
    print_facts(
        {
            "first batch": seconds_text(found.first_batch_s),
            "epoch": f"{seconds_text(found.epoch_s)}, {seconds_text(found.waits_s)} of it waiting for data",
            "samples": f"{found.samples:,} in {found.steps:,} steps and {found.windows:,} windows",
            "requests": f"{found.requests:,.0f}, {found.requests_per_s:,.0f} a second",
            "hottest prefix": f"{found.hottest_prefix_requests_per_s:,.0f} requests a second",
            "bytes of a node": cached,
            "cost": f"${found.dollars:,.2f}",
            "after a loss": f"next batch in {seconds_text(found.resume_s)}, {bytes_text(found.resume_bytes)} again",
        }
    )
    for line in found.notes:
        note(line)
