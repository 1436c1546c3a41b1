"""`warp labels check`: the connection of a labelling tool to the gateway."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

import warpdata
from warpdata.cli.commands.doctor import print_findings
from warpdata.cli.context import CliContext
from warpdata.cli.exit_codes import STORAGE
from warpdata.cli.options import command
from warpdata.cli.output import print_json
from warpdata.cli.service_options import require_server
from warpdata.errors import BadInputError
from warpdata.repository.catalog import parse_address
from warpdata.settings import label_studio_key

__all__ = ["check_labels"]


@command(
    "check",
    json_keys={
        "endpoint": "the address that was checked",
        "ok": "true if no check failed",
        "checks": "the checks: `check`, `status`, `detail` and `next_step`",
    },
)
@click.argument("endpoint", metavar="ENDPOINT")
@click.argument("dataset", metavar="WORKSPACE/NAME[@REF]")
@click.option("--label-studio", metavar="URL", help="Ask this Label Studio, with the token in LABEL_STUDIO_API_KEY.")
@click.option(
    "--callback-host",
    default="127.0.0.1",
    show_default=True,
    metavar="HOST",
    help="The name under which Label Studio reaches this machine, for the echo of a webhook.",
)
@click.pass_context
def check_labels(ctx: click.Context, /, endpoint: str, dataset: str, **given: Any) -> None:
    """Check the connection of a labelling tool to the S3 gateway.

    Reads a dataset as the tool and a browser do, and prints what to set where a check fails. The key is that of
    AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY. With --label-studio, a project is made there and removed again.

    \b
      warp labels check http://127.0.0.1:8765/s3 acme/pets@v1
      warp labels check https://data.example.com/s3 acme/pets@v1 --label-studio https://labels.example.com
    """
    require_server("warp labels check")
    from warpdata.cli.label_checks import LabelConnection, check_connection

    cli: CliContext = ctx.obj
    address, keys = parse_address(dataset), warpdata.load_settings().s3
    if keys.access_key_id is None or keys.secret_access_key is None:
        raise BadInputError(
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set",
            hint="Make a key with `warp server s3-key USER WORKSPACE --right inbox`, and set both.",
        )
    studio, token = given["label_studio"], label_studio_key()
    if studio is not None and token is None:
        raise BadInputError(
            "LABEL_STUDIO_API_KEY is not set", hint="Copy the token of a user from Account & Settings of Label Studio."
        )
    workspace, _, name = address.dataset_id.partition("/")
    prefix = f"{name}/{address.ref or 'HEAD'}/images/"
    link = LabelConnection(
        endpoint.rstrip("/"),
        keys.access_key_id,
        keys.secret_access_key,
        workspace,
        prefix,
        studio,
        token,
        given["callback_host"],
    )
    with cli.progress("Checking the connection"):
        findings = list(check_connection(link))
    failed = [finding for finding in findings if finding.status == "failed"]
    if cli.as_json:
        checks = [asdict(finding) for finding in findings]
        print_json({"endpoint": link.endpoint, "ok": not failed, "checks": checks})
    else:
        print_findings(findings, len(failed))
    if failed:
        ctx.exit(STORAGE)
