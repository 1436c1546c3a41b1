"""`warp worker`: the jobs of a service, until Ctrl-C."""

from __future__ import annotations

import signal
import threading
from typing import Any

import click

from warpdata.cli.context import CliContext
from warpdata.cli.exit_codes import end_without_hurry
from warpdata.cli.options import command
from warpdata.cli.output import note
from warpdata.cli.service_options import (
    database_option,
    network_options,
    open_cli_service,
    require_server,
    set_up_cli_logs,
)

__all__ = ["worker"]


@command("worker", reads=True)
@database_option()
@network_options()
@click.pass_obj
def worker(cli: CliContext, /, database: str | None, **given: Any) -> None:
    """Run the jobs of a service.

    The command runs until Ctrl-C. `warp serve` runs jobs itself; start workers where jobs need more than that, beside
    `warp serve --no-jobs`. A job whose worker dies continues on another.

    \b
      warp worker --database postgresql://warp@db/warp --store s3://lake/prod
    """
    require_server("warp worker")
    from warpdata.server import ServiceOptions, work

    options = ServiceOptions(allowed_networks=given["allow_network"], mirrors=given["mirror"])
    set_up_cli_logs(given["log_format"])
    with open_cli_service(cli, database, options) as service:
        end_without_hurry()
        ending = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: ending.set())
        signal.signal(signal.SIGINT, lambda *_: ending.set())
        note("Waiting for jobs. Press Ctrl-C to stop.")
        work(service, ending.is_set)
