"""`warp doctor`: check that reading and publishing work, with a next step for each failure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace

import click

import warpdata
from warpdata.cli.context import CliContext
from warpdata.cli.doctor_checks import (
    Finding,
    StoreProbe,
    check_cache,
    check_credentials,
    check_duckdb,
    check_images,
    check_machine,
    check_store,
)
from warpdata.cli.exit_codes import STORAGE
from warpdata.cli.options import command
from warpdata.cli.output import print_facts, print_json, print_line
from warpdata.cli.terminal import escape
from warpdata.errors import WarpError
from warpdata.primitives.redaction import redact
from warpdata.session import Session
from warpdata.settings import Settings, apply_budgets
from warpdata.storage import normalize_url
from warpdata.storage.cache import Mode

__all__ = ["doctor", "print_findings", "read_table"]

_KEYS = {
    "store": "URL of the checked store, or null if the settings are invalid",
    "ok": "true if no check failed",
    "checks": "list of {check, status, detail, next_step}; status is ok, note, failed or skipped",
}
_MARKS = {"ok": ("✓", "green"), "note": ("•", "yellow"), "failed": ("✗", "red"), "skipped": ("–", "dim")}
_MAX_TIMEOUT_S = 5.0
_TRIED_DATASETS = 10


@command("doctor", json_keys=_KEYS)
@click.pass_obj
@click.pass_context
def doctor(ctx: click.Context, cli: CliContext) -> None:
    """Check settings, credentials, libraries, store, cache and clock.

    Prints the threads, the requests at a time and the memory that reads use here, and why.

    Sends a request with the credentials. Writes two small objects under doctor/ in the store, tests byte ranges,
    Parquet and create-only puts with them, and removes them. A read-only store passes; there the first row of a
    published table is read. Exits with code 7 if a check failed.
    """
    store: str | None = None
    findings: list[Finding] = []
    with cli.progress("Checking"):
        try:
            settings = warpdata.load_settings()
            store = normalize_url(cli.store or settings.store_url)
        except WarpError as error:
            findings.append(
                Finding("settings", "failed", error.message, error.hint or "Correct the environment variable.")
            )
        else:
            findings.append(Finding("settings", "ok", f"store {redact(store)}"))
            findings.extend(_run_checks(store, settings))
    failed = [finding for finding in findings if finding.status == "failed"]
    if cli.as_json:
        print_json(
            {
                "store": None if store is None else redact(store),
                "ok": not failed,
                "checks": [asdict(finding) for finding in findings],
            }
        )
    else:
        print_findings(findings, len(failed))
    if failed:
        ctx.exit(STORAGE)


def _run_checks(store: str, settings: Settings) -> Iterator[Finding]:
    """Run the checks with short timeouts: a store that needs minutes to answer is a failure here."""
    limited = replace(
        settings,
        timeout_s=min(settings.timeout_s, _MAX_TIMEOUT_S),
        connect_timeout_s=min(settings.connect_timeout_s, _MAX_TIMEOUT_S),
        retry_timeout_s=min(settings.retry_timeout_s, _MAX_TIMEOUT_S),
        max_retries=min(settings.max_retries, 1),
    )
    try:
        apply_budgets(settings)
        yield from check_machine()
        session = warpdata.connect(store, limited)
    except WarpError as error:
        yield check_credentials(store, limited)
        yield Finding("store", "failed", error.message, error.hint or "Check the store's URL.")
        return
    if session.mode is Mode.LOCAL and not session.is_local:
        yield check_duckdb(limited)
        yield check_images()
        yield check_cache(limited.cache_dir)
        yield Finding("store", "skipped", f"mode local uses no network, so {redact(store)} is not asked")
        return
    yield check_credentials(store, limited, session.writer)
    yield check_duckdb(limited)
    yield check_images()
    yield check_cache(limited.cache_dir)
    probe = StoreProbe(session.writer, f"doctor/{session.new_id()}", session.clock, lambda: read_table(session))
    yield from check_store(probe)


def read_table(session: Session) -> str | None:
    """Read the first row of a published table and describe it. None if there is no table."""
    for name in session.catalog.datasets()[:_TRIED_DATASETS]:
        opened = warpdata.dataset(name, store=session.reader.url, settings=session.settings, mode="remote")
        for table in opened.tables[:1]:
            opened.table(table).raw().head(1)
            return f"the first row of {name}, by byte ranges"
    return None


def print_findings(findings: list[Finding], failed: int) -> None:
    """Print each check with its mark and next step, and how many failed."""
    from rich.text import Text

    rows: dict[str, Text] = {}
    for finding in findings:
        mark, style = _MARKS[finding.status]
        text = Text.assemble(
            (f"{mark} ", style), (escape(finding.detail), "dim" if finding.status == "skipped" else "")
        )
        if finding.next_step:
            text.append(f"\n  → {escape(finding.next_step)}", style="cyan")
        rows[finding.check] = text
    print_facts(rows)
    print_line()
    if failed:
        print_line(f"{failed} of {len(findings)} checks failed", style="red")
    else:
        print_line("all checks passed", style="green")
