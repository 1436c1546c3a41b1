"""Serving: open the store and the database, then answer until the process is asked to end."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from sqlalchemy import select

from warpdata.errors import AlreadyExistsError, BadInputError
from warpdata.repository.catalog import mark_store
from warpdata.server.access import create_user, issue_sign_in_code
from warpdata.server.app import create_app
from warpdata.server.database import UserRow, open_database
from warpdata.server.jobs import start_workers, stop_workers
from warpdata.server.listening import listen
from warpdata.server.service import Service, ServiceOptions
from warpdata.server.tracing import tracing
from warpdata.session import Session

__all__ = ["Running", "check_options", "first_user", "open_service", "serve", "sign_in_link", "work"]

FIRST_USER = "admin"


@dataclass(frozen=True, slots=True)
class Running:
    """A service that answers. `sign_in_url` signs the first user in, once."""

    url: str
    sign_in_url: str | None


def check_options(options: ServiceOptions) -> None:
    """Refuse options that would let strangers in. `BadInputError` with the option to change."""
    if is_loopback(options.host):
        return
    if not options.requires_sign_in:
        raise BadInputError(
            f"the service would be open to everyone who reaches {options.host}",
            hint="Leave out --no-sign-in, or listen on 127.0.0.1.",
        )
    if options.public_url is None or not urlsplit(options.public_url).hostname:
        raise BadInputError(
            f"{options.host} is reachable from other machines, so the address that users open must be known",
            hint="Pass --public-url https://HOST, the address of the proxy in front of this service.",
        )


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches a service that listens there."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


@contextmanager
def open_service(session: Session, database_url: str, options: ServiceOptions | None = None) -> Iterator[Service]:
    """Open the database, and close it at the end. A new store is marked as one."""
    database = open_database(database_url)
    try:
        mark_store(session.writer, session.pause)
        service = Service(session, database, options or ServiceOptions())
        try:
            yield service
        finally:
            service.thumbnails.close()
    finally:
        database.close()


def serve(service: Service, on_ready: Callable[[Running], None], sockets: Sequence[Any] = ()) -> None:
    """Answer requests until SIGINT or SIGTERM. `on_ready` hears of the address when the first request can come.

    `sockets` listen already: those that several processes share.
    """
    check_options(service.options)
    options = service.options
    with tracing(options.version):
        app = create_app(service)

        def end() -> None:
            app.state.is_ending = True

        place = (options.host, options.port)
        listen(app, place, lambda port: on_ready(_announce(service, port)), end, sockets=sockets)


def work(service: Service, is_ending: Callable[[], bool]) -> None:
    """Run jobs of a service until `is_ending` says so, in a process of their own."""
    with tracing(service.options.version):
        workers = start_workers(service)
        try:
            while not is_ending():
                service.session.sleep(0.2)
        finally:
            stop_workers(workers)


def _announce(service: Service, port: int) -> Running:
    host = service.options.host
    url = service.options.public_url or f"http://{f'[{host}]' if ':' in host else host}:{port}"
    if not service.options.requires_sign_in:
        return Running(url, None)
    code = issue_sign_in_code(service, first_user(service).id)
    return Running(url, sign_in_link(url, code))


def sign_in_link(url: str, code: str) -> str:
    """Return the link that redeems a code."""
    return f"{url.rstrip('/')}/sign-in?code={code}"


def first_user(service: Service) -> UserRow:
    """Return the oldest active administrator. A new service creates one."""
    query = select(UserRow).where(UserRow.is_admin, UserRow.is_active).order_by(UserRow.created, UserRow.id).limit(1)

    def find() -> UserRow | None:
        with service.database.read() as db:
            return db.scalar(query)

    found = find()
    if found is not None:
        return found
    try:
        return create_user(service, FIRST_USER, is_admin=True)
    except AlreadyExistsError:  # another process of a new service was first, or that user was deactivated
        found = find()
        if found is None:
            raise
        return found
