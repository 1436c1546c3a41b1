"""`warp tensors serve`: tensors for other hosts, until the process is asked to end."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import click

from warpdata.cli.context import CliContext
from warpdata.cli.format import bytes_text, count_text
from warpdata.cli.options import command
from warpdata.cli.output import note, print_facts, print_json
from warpdata.cli.tensor_views import (
    TARGET_KEYS,
    identity_facts,
    name_option,
    open_target,
    readable_facts,
    target_argument,
)

__all__ = ["serve"]


@command(
    "serve",
    json_keys={
        **TARGET_KEYS,
        "url": "the URL for clients",
        "tensors": "number of tensors",
        "size_bytes": "number of bytes of the tensors",
        "available_bytes": "number of these bytes that this machine has or can fetch",
        "needs_token": "true if clients must send a token",
    },
    reads=True,
)
@target_argument()
@name_option()
@click.option(
    "--view",
    "views",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    multiple=True,
    metavar="FILE",
    help="Also serve this view file, which `warp tensors view --keep` wrote. Repeatable.",
)
@click.option("--host", default="127.0.0.1", show_default=True, metavar="HOST", help="Address to listen on, or ::1.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, metavar="PORT", help="Port; default: a free one.")
@click.option(
    "--token", envvar="WARP_TENSORS_TOKEN", metavar="TOKEN", help="Token that clients must send. [WARP_TENSORS_TOKEN]"
)
@click.option(
    "--max-connections",
    type=click.IntRange(min=1),
    default=128,
    show_default=True,
    metavar="N",
    help="Maximum number of clients at a time.",
)
@click.option(
    "--idle-timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="Time after which a silent client is disconnected.",
)
@click.pass_obj
def serve(cli: CliContext, /, target: str, name: str | None, host: str, port: int, **given: Any) -> None:
    """Serve tensors to other hosts over HTTP, until Ctrl-C.

    Clients read with SourcePolicy(peers=[URL]), and verify every byte. Prints the URL first. Without --token, every
    host that can reach the address can read. The connection is not encrypted.

    \b
      warp tensors serve acme/model --port 7070
      warp tensors serve model.tensors --host :: --token "$TOKEN" --json
    """
    from warpdata.formats.tensors import ServerLimits, open_tensors, serve_tensors

    limits = ServerLimits(given["max_connections"], given["idle_timeout"])
    with cli.progress(f"Opening {target}"):
        opened = open_target(cli, target, name)
        art = opened.tensors
    available = sum(part.end - part.start for part in art.replica.extents.parts)
    token: str | None = given["token"] or None
    with ExitStack() as stack:
        wait_for_end = stack.enter_context(_end_signals())
        views = [stack.enter_context(open_tensors(path)) for path in given["views"]]
        stack.enter_context(art)
        server = stack.enter_context(serve_tensors(art, host=host, port=port, token=token, views=views, limits=limits))
        facts = {**opened.facts, **identity_facts(art), "url": server.url}
        sizes = {"tensors": len(art), "size_bytes": art.index.total_size, "available_bytes": available}
        if cli.as_json:
            print_json({**facts, **sizes, "needs_token": bool(given["token"])})
        else:
            contents = (
                f"{count_text(len(art), 'tensor')}, {bytes_text(available)} of {bytes_text(art.index.total_size)}"
            )
            print_facts(
                {**readable_facts(facts), "contents": contents, "token": "required" if given["token"] else "none"}
            )
            note("Press Ctrl-C to stop.")
        sys.stdout.flush()
        try:
            wait_for_end()
        finally:
            served = server.stats()
    if not cli.as_json:
        note(f"Served {count_text(served.requests, 'request')}, {bytes_text(served.bytes_sent)}.")


@contextmanager
def _end_signals() -> Iterator[Callable[[], None]]:
    """Yield a function that returns when the process is asked to end, by Ctrl-C or SIGTERM, since this call."""
    done = threading.Event()
    before = signal.signal(signal.SIGTERM, lambda *_: done.set())

    def wait() -> None:
        with suppress(KeyboardInterrupt):
            while not done.wait(0.2):  # in short waits, so that the signal handler runs on every system
                pass

    try:
        yield wait
    finally:
        signal.signal(signal.SIGTERM, before)
