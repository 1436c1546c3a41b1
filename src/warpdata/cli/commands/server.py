"""`warp server`: what an operator does on the machine of a service, without signing in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from warpdata.cli.context import CliContext
from warpdata.cli.exit_codes import CORRUPT, print_error
from warpdata.cli.options import command, group
from warpdata.cli.output import note, print_facts, print_json, print_line, print_table
from warpdata.cli.service_options import database_option, open_cli_service, require_server
from warpdata.settings import database_url

if TYPE_CHECKING:
    from warpdata.server import AuditEntry, Place, Service

__all__ = ["server"]

_ROLES = ("none", "viewer", "labeler", "maintainer", "owner")
_SCOPES = ("read", "write", "manage")
_RIGHTS = ("ro", "inbox", "head")


@group("server")
def server() -> None:
    """Users, tokens, the index and the audit log of a service.

    These commands open the database of the service, which may be running. A user who can open it is trusted.
    """


@command(
    "reindex",
    json_keys={
        "datasets": "datasets in the store",
        "changed": "datasets whose entry in the index changed",
        "removed": "entries of datasets that the store does not have",
    },
)
@database_option()
@click.pass_obj
def _reindex(cli: CliContext, database: str | None) -> None:
    """Bring the index of datasets to the state of the store.

    The index is needed for lists only. An empty database gets all of it.
    """
    from dataclasses import asdict

    with open_cli_service(cli, database) as service, cli.progress("Reading the store"):
        from warpdata.server import synchronize

        done = synchronize(service)
    if cli.as_json:
        print_json(asdict(done))
    else:
        print_line(f"{done.datasets} datasets, {done.changed} changed, {done.removed} removed")


@command("user", json_keys={"id": "id of the user", "name": "name of the user", "is_admin": "owner of everything"})
@click.argument("name")
@click.option("--admin", is_flag=True, help="Make the user an owner of every workspace.")
@database_option()
@click.pass_obj
def _user(cli: CliContext, name: str, admin: bool, database: str | None) -> None:
    """Create a user.

    \b
      warp server user ana && warp server role ana acme maintainer && warp server link ana
    """
    with open_cli_service(cli, database) as service:
        from warpdata.server import AuditEntry, create_user

        made = create_user(service, name, is_admin=admin)
        _record(service, AuditEntry("create-user", name))
    if cli.as_json:
        print_json({"id": made.id, "name": made.name, "is_admin": made.is_admin})
    else:
        print_line(f"created {made.name}")


@command("role", json_keys={"user": "name of the user", "place": "workspace or dataset", "role": "the new role"})
@click.argument("user")
@click.argument("place", metavar="WORKSPACE[/NAME]")
@click.argument("role", type=click.Choice(_ROLES))
@database_option()
@click.pass_obj
def _role(cli: CliContext, user: str, place: str, role: str, database: str | None) -> None:
    """Give a user a role in a workspace, or for one dataset."""
    with open_cli_service(cli, database) as service:
        from warpdata.server import AuditEntry, Role, find_user, set_role

        where = _place(place)
        set_role(service, find_user(service, user).id, where, Role(role))
        _record(service, AuditEntry("set-role", place, where, {"user": user, "role": role}))
    if cli.as_json:
        print_json({"user": user, "place": place, "role": role})
    else:
        print_line(f"{user} is {role} in {place}")


@command("link", json_keys={"sign_in_url": "the link, which works once within 15 minutes"})
@click.argument("user")
@click.option("--url", default="http://127.0.0.1:8765", show_default=True, metavar="URL", help="Where it listens.")
@database_option()
@click.pass_obj
def _link(cli: CliContext, user: str, url: str, database: str | None) -> None:
    """Print a link that signs a user in, once."""
    with open_cli_service(cli, database) as service:
        from warpdata.server import AuditEntry, find_user, issue_sign_in_code, sign_in_link

        link = sign_in_link(url, issue_sign_in_code(service, find_user(service, user).id))
        _record(service, AuditEntry("issue-link", user))
    if cli.as_json:
        print_json({"sign_in_url": link})
    else:
        print_line(link)


@group("token")
def token() -> None:
    """Personal tokens of users.

    `warp server token USER` is short for `warp server token create USER`.
    """


@command("create", json_keys={"id": "id of the token", "expires": "time of its end", "secret": "the token; shown once"})
@click.argument("user")
@click.option("--name", "title", default="cli", show_default=True, metavar="TEXT", help="What the token is for.")
@click.option("--scope", type=click.Choice(_SCOPES), default="read", show_default=True, help="The most it may do.")
@click.option("--for", "place", metavar="WORKSPACE[/NAME]", help="Only there. Default: all that the user sees.")
@click.option("--days", type=click.IntRange(1, 366), default=90, show_default=True, metavar="N", help="Days.")
@database_option()
@click.pass_obj
def _create_token(cli: CliContext, /, user: str, **given: Any) -> None:
    """Create a personal token of a user.

    \b
      warp server token create ci --scope write --for acme/pets --days 30
    """
    with open_cli_service(cli, given["database"]) as service:
        from warpdata.server import AuditEntry, NewToken, Scope, create_token, find_user

        reach = _place(given["place"]) if given["place"] else None
        new = NewToken(given["title"], Scope(given["scope"]), given["days"], reach)
        issued = create_token(service, find_user(service, user).id, new)
        _record(service, AuditEntry("create-token", given["title"], reach, {"user": user, "token": issued.row.id}))
    facts = {"id": issued.row.id, "expires": issued.row.expires, "secret": issued.secret}
    if cli.as_json:
        print_json(facts)
    else:
        print_facts(facts)
        note("The secret is not stored, and cannot be shown again.")


@command("list", json_keys={"tokens": "tokens of the user, each with id, name, scope, place, expires and revoked"})
@click.argument("user")
@database_option()
@click.pass_obj
def _list_tokens(cli: CliContext, user: str, database: str | None) -> None:
    """List the tokens of a user. Secrets are not stored, and cannot be shown."""
    with open_cli_service(cli, database) as service:
        from warpdata.server import find_user, list_tokens

        rows = list_tokens(service, find_user(service, user).id)
    tokens = [
        {
            "id": row.id,
            "name": row.name,
            "scope": row.scope,
            "place": "/".join(filter(None, (row.workspace, row.dataset))),
            "expires": row.expires,
            "revoked": row.revoked,
        }
        for row in rows
    ]
    if cli.as_json:
        print_json({"tokens": tokens})
    else:
        print_table(
            ["id", "name", "scope", "place", "expires", "revoked"],
            [[value or "" for value in one.values()] for one in tokens],
        )


@command(
    "backup",
    uses_store=False,
    json_keys={"target": "the new file", "size_bytes": "its size", "database": "sqlite or postgresql"},
)
@click.argument("target", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path))
@database_option()
@click.pass_obj
def _backup(cli: CliContext, target: Path, database: str | None) -> None:
    """Copy the database to a new file, while the service runs.

    The store is not part of it: its objects never change, so copy them with the tools of the store. For SQLite, the
    file is a database that `--database` opens. For PostgreSQL, it is an archive for pg_restore, and pg_dump must be
    installed.

    \b
      warp server backup /backups/warp-$(date +%F)
    """
    require_server("The service")
    from warpdata.server import back_up
    from warpdata.server.database import open_database

    opened = open_database(database or database_url())
    try:
        with cli.progress("Copying the database"):
            size = back_up(opened, target)
    finally:
        opened.close()
    if cli.as_json:
        kind = "sqlite" if opened.is_sqlite else "postgresql"
        print_json({"target": str(target), "size_bytes": size, "database": kind})
    else:
        print_line(f"wrote {target}, {size:,} bytes")


@command("revoke", json_keys={"id": "id of the token that ended"})
@click.argument("user")
@click.argument("token_id", metavar="TOKEN_ID")
@database_option()
@click.pass_obj
def _revoke(cli: CliContext, user: str, token_id: str, database: str | None) -> None:
    """End a token of a user, and the URLs that were signed with it."""
    with open_cli_service(cli, database) as service:
        from warpdata.server import AuditEntry, find_user, revoke_token

        revoke_token(service, find_user(service, user).id, token_id)
        _record(service, AuditEntry("revoke-token", token_id))
    if cli.as_json:
        print_json({"id": token_id})
    else:
        print_line(f"token {token_id} is revoked")


@command(
    "s3-key",
    json_keys={
        "access_key": "the access key",
        "secret_key": "its secret; shown once",
        "bucket": "the bucket, which is the workspace",
        "expires": "time of its end, or null",
    },
)
@click.argument("user")
@click.argument("place", metavar="WORKSPACE[/NAME[@REF]]")
@click.option("--name", "title", default="cli", show_default=True, metavar="TEXT", help="What the key is for.")
@click.option(
    "--right",
    type=click.Choice(_RIGHTS),
    default="ro",
    show_default=True,
    help="ro reads; inbox also sends labels; head also adds images to HEAD.",
)
@click.option("--days", type=click.IntRange(1, 3660), metavar="N", help="Days. Default: until it is revoked.")
@database_option()
@click.pass_obj
def _s3_key(cli: CliContext, /, user: str, place: str, **given: Any) -> None:
    """Create an S3 key of a user, for tools that speak S3. The endpoint is /s3 of the service.

    \b
      warp server s3-key ana acme/pets --right inbox --name 'Label Studio'
    """
    with open_cli_service(cli, given["database"]) as service:
        from warpdata.server import AuditEntry, NewS3Key, create_s3_key, find_user
        from warpdata.server.s3 import KeyRight, parse_grant

        grant = parse_grant(place, KeyRight(given["right"]))
        issued = create_s3_key(service, find_user(service, user).id, NewS3Key(given["title"], grant, given["days"]))
        where = _place(place.rstrip("/").partition("@")[0])
        detail = {"user": user, "key": issued.row.access_key, "right": given["right"], "ref": grant.ref or ""}
        _record(service, AuditEntry("create-s3-key", given["title"], where, detail))
    row = issued.row
    facts = {"access_key": row.access_key, "secret_key": issued.secret, "bucket": row.workspace, "expires": row.expires}
    if cli.as_json:
        print_json(facts)
    else:
        print_facts({name.replace("_", " "): value for name, value in facts.items()})
        note("The secret is not stored, and cannot be shown again.")


@command("s3-revoke", json_keys={"access_key": "the key that ended"})
@click.argument("user")
@click.argument("access_key", metavar="ACCESS_KEY")
@database_option()
@click.pass_obj
def _s3_revoke(cli: CliContext, user: str, access_key: str, database: str | None) -> None:
    """End an S3 key of a user, and the URLs that were signed with it."""
    with open_cli_service(cli, database) as service:
        from warpdata.server import AuditEntry, find_user, revoke_s3_key

        revoke_s3_key(service, find_user(service, user).id, access_key)
        _record(service, AuditEntry("revoke-s3-key", access_key))
    if cli.as_json:
        print_json({"access_key": access_key})
    else:
        print_line(f"key {access_key} is revoked")


@command("audit", json_keys={"first_altered": "sequence of the first entry that was altered, or null"})
@database_option()
@click.pass_obj
def _audit(cli: CliContext, database: str | None) -> int:
    """Check the audit log: no entry was changed or removed."""
    with open_cli_service(cli, database) as service, cli.progress("Checking the audit log"):
        from warpdata.server import find_tampering

        found = find_tampering(service)
    if cli.as_json:
        print_json({"first_altered": found})
    elif found is None:
        print_line("the audit log is whole")
    else:
        print_error(f"entry {found} of the audit log was changed or removed")
    return CORRUPT if found is not None else 0


def _place(text: str) -> Place:
    from warpdata.repository.catalog import check_dataset_id
    from warpdata.server import Place

    workspace, _, name = check_dataset_id(text if "/" in text else f"{text}/any").partition("/")
    return Place(workspace, name if "/" in text else None)


def _record(service: Service, entry: AuditEntry) -> None:
    """Record what an operator did on the machine of the service."""
    from warpdata.server import Principal, Roles, record

    operator = Principal("", f"operator {service.session.settings.author}", Roles(is_admin=True))
    with service.database.write() as db:
        record(service, db, operator, entry)


for _command in (_create_token, _list_tokens, _revoke):
    token.add_command(_command)
token.default_command = "create"
for _command in (_reindex, _user, _role, _link, _revoke, _s3_key, _s3_revoke, _audit, _backup):
    server.add_command(_command)
server.add_command(token)
