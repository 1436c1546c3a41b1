"""Names of datasets (`workspace/name`), addresses (`workspace/name@ref`), branches and labels."""

from __future__ import annotations

import re
from dataclasses import dataclass

from warpdata.errors import BadInputError, ErrorKind
from warpdata.limits import MAX_NAME_LENGTH, MAX_REF_LENGTH
from warpdata.primitives.hashing import is_digest
from warpdata.repository.manifest import DATASET_ID

__all__ = [
    "MAIN",
    "Address",
    "check_dataset_id",
    "check_ref_name",
    "check_workspace",
    "is_dataset_id",
    "is_workspace",
    "parse_address",
]

MAIN = "main"
"""The branch of an address without a ref."""

_REF_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_WORKSPACE = re.compile(r"[a-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class Address:
    """A dataset and an optional ref: a version of 64 hex digits, a label or a branch."""

    dataset_id: str
    ref: str | None = None

    def __str__(self) -> str:
        return f"{self.dataset_id}@{self.ref}" if self.ref else self.dataset_id


def parse_address(text: str) -> Address:
    """Parse `workspace/name` or `workspace/name@ref`. Raise `BadInputError` for anything else."""
    _check_text(text, "an address")
    dataset_id, at, ref = text.partition("@")
    check_dataset_id(dataset_id)
    if not at:
        return Address(dataset_id)
    if not _REF_NAME.fullmatch(ref) or len(ref) > MAX_REF_LENGTH:
        raise BadInputError(
            f"{text!r} has the ref {ref!r}, which is not a version, label or branch name",
            hint="Refs use letters, digits, dot, dash and underscore, and start with a letter or digit.",
            kind=ErrorKind.INVALID_NAME,
        )
    return Address(dataset_id, ref)


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
