"""`warp gateway`: every version of a workspace as an S3 bucket, read-only and without a database."""

from __future__ import annotations

import random
import sys
from typing import Any

import click

from warpdata.cli.context import CliContext
from warpdata.cli.exit_codes import end_without_hurry
from warpdata.cli.options import command
from warpdata.cli.output import note, print_facts, print_json
from warpdata.cli.service_options import require_server
from warpdata.settings import gateway_key

__all__ = ["gateway"]


@command(
    "gateway",
    json_keys={
        "endpoint": "the address for S3 clients",
        "bucket": "the bucket, which is the workspace",
        "access_key": "the access key",
        "secret_key": "its secret; null if it comes from the environment",
        "region": "the region to configure",
    },
    reads=True,
)
@click.argument("place", metavar="WORKSPACE[/NAME[@REF]]")
@click.option("--host", default="127.0.0.1", show_default=True, metavar="HOST", help="Address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8766, show_default=True, metavar="PORT", help="0: a free port."
)
@click.option("--public-url", metavar="URL", help="The address that clients use, such as that of a proxy with https.")
@click.pass_obj
def gateway(cli: CliContext, /, place: str, **given: Any) -> None:
    """Serve versions as S3 buckets, read-only, to tools that speak S3.

    The workspace is the bucket, and keys are NAME/REF/PATH. Requests must be signed with the key that is printed, which
    is new at each start, or with that of WARP_GATEWAY_ACCESS_KEY and WARP_GATEWAY_SECRET_KEY. Labels are received by
    `warp serve`.

    \b
      warp gateway acme/ --port 9000
      warp gateway acme/pets@v3 --store s3://lake/prod
    """
    require_server("warp gateway")
    from warpdata.server.s3 import (
        GatewayOptions,
        KeyRight,
        SingleKey,
        derive_secret,
        new_access_key,
        parse_grant,
        serve_gateway,
    )

    grant, known, system = parse_grant(place, KeyRight.RO), gateway_key(), random.SystemRandom()
    access_key, secret = known or (new_access_key(system.getrandbits(96)), "")
    secret = secret or derive_secret(system.randbytes(32), access_key)

    def announce(endpoint: str) -> None:
        facts = {
            "endpoint": endpoint,
            "bucket": grant.workspace,
            "access_key": access_key,
            "secret_key": None if known else secret,
            "region": "us-east-1",
        }
        if cli.as_json:
            print_json(facts)
        else:
            print_facts({name.replace("_", " "): value for name, value in facts.items()})
            note("Clients need path style. Press Ctrl-C to stop.")
        sys.stdout.flush()

    end_without_hurry()
    options = GatewayOptions(given["host"], given["port"], given["public_url"])
    serve_gateway(cli.connect(), SingleKey(access_key, secret, grant), options, announce)
