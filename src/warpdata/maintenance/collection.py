"""Garbage collection of a store, and the pins that keep versions from it.

A façade over `repository.gc`: opens a session, parses the rule, and returns what was found. docs/specs/gc.md is the
normative text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from warpdata.datasets import check_uncollected
from warpdata.datasets import dataset as open_by_address
from warpdata.errors import BadInputError, ErrorKind, NotFoundError
from warpdata.primitives.arguments import check_arguments
from warpdata.primitives.progress import Progress, silent
from warpdata.primitives.suggest import suggest
from warpdata.repository.catalog import Pin, check_ref_name, create_pin, pin_key, read_pin, retry_unknown
from warpdata.repository.gc import (
    KEEP_ALL,
    CollectorClock,
    GarbageReport,
    LeaseClock,
    collect,
    list_pins,
    parse_retention,
)
from warpdata.session import Session, connect
from warpdata.settings import Settings

__all__ = ["Collected", "PinnedVersion", "gc", "pin", "pins", "unpin"]


@dataclass(frozen=True, slots=True)
class Collected:
    """The result of `gc`."""

    report: GarbageReport


@dataclass(frozen=True)
class PinnedVersion:
    """A pin that was created. `remove` it when the version may be collected; `with` does so at the end."""

    name: str
    dataset_id: str
    version: str
    _remove: Callable[[], None] = field(repr=False, compare=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def remove(self) -> None:
        """Remove the pin. One that is already gone is no error."""
        self._remove()


@check_arguments
def gc(
    store: str | Session | None = None,
    *,
    keep: str = KEEP_ALL,
    dry_run: bool = True,
    wait_s: float | None = None,
    progress: Progress = silent,
    settings: Settings | None = None,
) -> Collected:
    """Find the garbage of a store, and with `dry_run=False` delete it.

    `keep` says which versions of the history stay: "all", or terms such as "labels, pins, last 10, 30 days". Heads,
    labels and pins always stay. Others may publish meanwhile; the collection waits for publishes that are under way, at
    most `wait_s` seconds. A dataset that cannot be read stops it before anything is deleted.
    """
    rule = parse_retention(keep)
    if wait_s is not None and not 0 <= wait_s < float("inf"):
        raise BadInputError(f"wait_s={wait_s!r} is not a time in seconds")
    session = _session(store, settings)
    clock = CollectorClock(
        LeaseClock(session.clock, session.timer), session.sleep, session.pause, session.new_generation
    )
    report = collect(session.writer, rule, clock, dry_run=dry_run, wait_s=wait_s, progress=progress)
    return Collected(report)


@check_arguments
def pin(address: str, name: str, *, store: str | None = None, settings: Settings | None = None) -> PinnedVersion:
    """Keep the version at an address until the pin is removed, such as for the time of a training job.

    Pins belong to a store, and their names are unique in it. Repeating a pin for the same version has no effect; for
    another version it is an error.
    """
    opened = open_by_address(address, store=store, settings=settings)
    session = opened.session
    with session.lease(f"pin {name}") as lease:
        check_uncollected(session, opened.version_ref, opened.manifest, lease)
        made = create_pin(
            session.writer, opened.version_ref, name, session.timestamp(), session.pause, check_lease=lease.check
        )
    return PinnedVersion(name, made.dataset_id, made.version, lambda: _remove(session, name))


@check_arguments
def pins(*, store: str | None = None, settings: Settings | None = None) -> list[Pin]:
    """Return all pins of a store, in order of their names."""
    return list_pins(connect(store, settings).writer)


@check_arguments
def unpin(name: str, *, store: str | None = None, settings: Settings | None = None) -> None:
    """Remove a pin. Raise `NotFoundError` if there is none of this name."""
    session = connect(store, settings)
    check_ref_name(name, "pin")
    if read_pin(session.writer, name) is None:
        known = [one.name for one in list_pins(session.writer)]
        raise NotFoundError(
            f"{session.writer.url} has no pin {name!r}", hint=suggest(name, known), kind=ErrorKind.REF_NOT_FOUND
        )
    _remove(session, name)


def _remove(session: Session, name: str) -> None:
    retry_unknown(lambda: session.writer.delete(pin_key(name)), session.pause)


def _session(store: str | Session | None, settings: Settings | None) -> Session:
    return store if isinstance(store, Session) else connect(store, settings)
