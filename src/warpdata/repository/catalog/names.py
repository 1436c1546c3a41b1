"""Names of datasets (`workspace/name`), addresses (`workspace/name@ref`), branches and labels.

Implements "Names" and "Refs" of docs/specs/catalog.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from warpdata.errors import BadInputError, ErrorKind
from warpdata.limits import MAX_NAME_LENGTH, MAX_REF_LENGTH
from warpdata.primitives.hashing import is_digest
from warpdata.repository.manifest import DATASET_ID

__all__ = [
    "MAIN",
    "Address",
    "RefSteps",
    "check_dataset_id",
    "check_ref_name",
    "check_workspace",
    "is_dataset_id",
    "is_workspace",
    "parse_address",
    "parse_date",
    "parse_ref",
]

MAIN = "main"
"""The branch of an address without a ref."""

_REF_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_WORKSPACE = re.compile(r"[a-z0-9_-]+")
_STEPS_BACK = re.compile(r"[0-9]{1,9}")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?(Z|[+-][0-9]{2}:[0-9]{2})?")
_REF_HINT = "Write a version, label or branch, then perhaps ~2 for an older commit or @2026-11-01T12:00Z for a time."


@dataclass(frozen=True, slots=True)
class Address:
    """A dataset and an optional ref: a version, a label or a branch, perhaps with steps back or a time."""

    dataset_id: str
    ref: str | None = None

    def __str__(self) -> str:
        return f"{self.dataset_id}@{self.ref}" if self.ref else self.dataset_id


@dataclass(frozen=True, slots=True)
class RefSteps:
    """A parsed ref: a name, then `back` first parents, or the commit at a time. `name` None means `main`."""

    name: str | None
    back: int = 0
    time: datetime | None = None


def parse_address(text: str) -> Address:
    """Parse `workspace/name` or `workspace/name@ref`. Raise `BadInputError` for anything else."""
    _check_text(text, "an address")
    dataset_id, at, ref = text.partition("@")
    check_dataset_id(dataset_id)
    if not at:
        return Address(dataset_id)
    parse_ref(ref)
    return Address(dataset_id, ref)


def parse_ref(ref: str) -> RefSteps:
    """Parse `name`, `name~n`, `time` or `name@time`. Raise `BadInputError` for anything else.

    A date alone may also be the name of a label or branch, so it is parsed as a name: see `parse_date`.
    """
    if ":" in ref and "@" not in ref:
        return RefSteps(None, time=_parse_time(ref))
    name, at, time = ref.partition("@")
    name, tilde, back = name.partition("~")
    if not _REF_NAME.fullmatch(name) or len(name) > MAX_REF_LENGTH:
        raise _bad_ref(f"the ref {ref[:200]!r} is not a version, label or branch name")
    if tilde and not _STEPS_BACK.fullmatch(back):
        raise _bad_ref(f"the ref {ref[:200]!r} has {back[:20]!r} after ~, not a number of commits")
    if tilde and at:
        raise _bad_ref(f"the ref {ref[:200]!r} has both a number of commits and a time")
    return RefSteps(name, int(back) if tilde else 0, _parse_time(time) if at else None)


def parse_date(text: str) -> datetime | None:
    """Return the beginning of a day in UTC, written as `2026-11-01`; None for other text."""
    if not _DATE.fullmatch(text):
        return None
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError:
        return None


def _parse_time(text: str) -> datetime:
    date = parse_date(text)
    if date is not None:
        return date
    try:
        found = datetime.fromisoformat(text) if _TIME.fullmatch(text) else None
    except ValueError:
        found = None
    if found is None:
        raise _bad_ref(f"{text[:200]!r} is not a time", "Write a time such as 2026-11-01T12:00Z, or a day: 2026-11-01.")
    if found.tzinfo is None:
        raise _bad_ref(f"the time {text!r} has no offset from UTC", f"Add Z for UTC, or an offset: {text}Z.")
    return found


def _bad_ref(message: str, hint: str = _REF_HINT) -> BadInputError:
    return BadInputError(message, hint=hint, kind=ErrorKind.INVALID_NAME)


def check_dataset_id(dataset_id: str) -> str:
    """Return the id if it is `workspace/name`. A valid id never leaves its directory."""
    _check_text(dataset_id, "a dataset name")
    if not is_dataset_id(dataset_id):
        raise BadInputError(
            f"{dataset_id[:200]!r} is not a dataset name",
            hint="Write workspace/name in lower-case letters, digits, dash and underscore.",
            kind=ErrorKind.INVALID_NAME,
        )
    return dataset_id


def is_dataset_id(text: str) -> bool:
    """Return whether a text is the name of a dataset, `workspace/name`."""
    short = all(len(part) <= MAX_NAME_LENGTH for part in text.split("/"))
    return short and DATASET_ID.fullmatch(text) is not None


def is_workspace(text: str) -> bool:
    return len(text) <= MAX_NAME_LENGTH and _WORKSPACE.fullmatch(text) is not None


def check_workspace(workspace: str) -> str:
    """Return the first half of a dataset id, if it is valid."""
    _check_text(workspace, "a workspace name")
    if not is_workspace(workspace):
        raise BadInputError(f"{workspace[:200]!r} is not a workspace name", kind=ErrorKind.INVALID_NAME)
    return workspace


def check_ref_name(name: str, what: str) -> str:
    """Return the name of a new branch or label, if it is valid. It must not look like a version."""
    _check_text(name, f"a {what} name")
    if not _REF_NAME.fullmatch(name) or len(name) > MAX_REF_LENGTH or is_digest(name):
        raise BadInputError(
            f"{name[:200]!r} is not a {what} name",
            hint="Use letters, digits, dot, dash and underscore, starting with a letter or digit.",
            kind=ErrorKind.INVALID_NAME,
        )
    return name


def _check_text(value: object, what: str) -> None:
    if not isinstance(value, str):
        raise BadInputError(f"{what} must be text, not {type(value).__name__}", kind=ErrorKind.INVALID_NAME)
