"""`warp worker`: the jobs of a service, until Ctrl-C."""

from __future__ import annotations

import signal
import threading

import click

from warpdata.cli.context import CliContext
from warpdata.cli.exit_codes import end_without_hurry
from warpdata.cli.options import command
from warpdata.cli.output import note
from warpdata.cli.service_options import database_option, open_cli_service

__all__ = ["worker"]


@command("worker", reads=True)
@database_option()
@click.pass_obj
def worker(cli: CliContext, database: str | None) -> None:
    """Run the jobs of a service, until Ctrl-C.

    `warp serve` runs jobs itself. Start workers where jobs need more than that, beside `warp serve --no-jobs`. A job
    whose worker dies continues on another.

    \b
      warp worker --database postgresql://warp@db/warp --store s3://lake/prod
    """
    with open_cli_service(cli, database) as service:
        from warpdata.server import work

        end_without_hurry()
        ending = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: ending.set())
        signal.signal(signal.SIGINT, lambda *_: ending.set())
        note("Waiting for jobs. Press Ctrl-C to stop.")
        work(service, ending.is_set)
