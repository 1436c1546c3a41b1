"""`warp serve`: the service, until Ctrl-C."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

import warpdata
from warpdata.cli.context import CliContext
from warpdata.cli.exit_codes import end_without_hurry
from warpdata.cli.options import command
from warpdata.cli.output import note, print_facts, print_json
from warpdata.cli.service_options import (
    database_option,
    network_options,
    open_cli_service,
    require_server,
    set_up_cli_logs,
)
from warpdata.settings import oidc_secret

if TYPE_CHECKING:
    from warpdata.server import ProviderOptions, Running, ServiceOptions

__all__ = ["serve"]


@command(
    "serve",
    json_keys={
        "url": "the address of the service",
        "sign_in_url": "a link that signs the first user in, once; null without sign-in",
        "store": "the store that is served",
    },
    reads=True,
)
@click.option("--host", default="127.0.0.1", show_default=True, metavar="HOST", help="Address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8765, show_default=True, metavar="PORT", help="0: a free port."
)
@database_option()
@click.option("--workers", type=click.IntRange(1, 64), default=1, show_default=True, metavar="N", help="Processes.")
@click.option("--public-url", metavar="URL", help="The address that users open, such as that of a proxy with https.")
@click.option("--no-sign-in", is_flag=True, help="Let everyone on this machine in, as an owner of everything.")
@click.option("--no-jobs", is_flag=True, help="Run no jobs in this process; `warp worker` runs them.")
@network_options()
@click.option("--oidc-issuer", metavar="URL", help="Let an OpenID Connect provider sign users in.")
@click.option("--oidc-client", metavar="ID", help="The id of the service there. WARP_OIDC_SECRET has its secret.")
@click.option("--oidc-create-users", is_flag=True, help="Create a user for each verified e-mail address there.")
@click.pass_obj
def serve(cli: CliContext, /, host: str, port: int, database: str | None, **given: Any) -> int:
    """Serve the datasets of a store over HTTP.

    Prints the address, and a link that signs the first user in once, then answers until Ctrl-C. The API is described at
    /api/v1/openapi.json. The service listens only to this machine, unless --host and --public-url say more.

    \b
      warp serve
      warp serve --store s3://lake/prod --database postgresql://warp@db/warp --host 0.0.0.0 \\
          --public-url https://data.example.com
    """
    require_server("warp serve")
    from warpdata.server import ServiceOptions, bind, check_options, run_processes

    options = ServiceOptions(
        host=host,
        port=port,
        version=warpdata.__version__,
        public_url=given["public_url"],
        requires_sign_in=not given["no_sign_in"],
        runs_jobs=not given["no_jobs"],
        allowed_networks=given["allow_network"],
        mirrors=given["mirror"],
        provider=_provider(given),
    )
    check_options(options)
    set_up_cli_logs(given["log_format"])
    if given["workers"] == 1:
        _serve(cli, database, options)
        return 0
    with bind(host, port) as shared:

        def run(number: int) -> None:
            runs_jobs = options.runs_jobs and number == 0
            _serve(cli, database, replace(options, runs_jobs=runs_jobs), shared, is_quiet=number > 0)

        return run_processes(given["workers"], run, time.monotonic)


def _provider(given: Mapping[str, Any]) -> ProviderOptions | None:
    from warpdata.server import ProviderOptions

    if given["oidc_issuer"] is None and given["oidc_client"] is None:
        return None
    if given["oidc_issuer"] is None or given["oidc_client"] is None:
        raise click.UsageError("--oidc-issuer and --oidc-client belong together")
    return ProviderOptions(given["oidc_issuer"], given["oidc_client"], oidc_secret(), given["oidc_create_users"])


def _serve(
    cli: CliContext,
    database: str | None,
    options: ServiceOptions,
    shared: Any = None,
    *,
    is_quiet: bool = False,
) -> None:
    """Answer in this process, on a port of its own or on a shared one."""
    from warpdata.server import serve as serve_forever

    with open_cli_service(cli, database, options) as service:
        store = service.session.reader.url

        def announce(running: Running) -> None:
            if is_quiet:
                return
            if cli.as_json:
                print_json({"url": running.url, "sign_in_url": running.sign_in_url, "store": store})
            else:
                print_facts({"address": running.url, "sign in": running.sign_in_url, "store": store})
                note(f"Open {'the link, which works once' if running.sign_in_url else running.url}. Ctrl-C stops.")
            sys.stdout.flush()

        end_without_hurry()
        serve_forever(service, announce, [] if shared is None else [shared])
