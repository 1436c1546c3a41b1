"""The identity of a stream, and its state as a token that resumes it. Pure.

Implements "Plans", "Tokens" and the documents of "Going on with another version" of docs/specs/streaming.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Protocol, TypeGuard

from warpdata.errors import BadInputError, ErrorKind, LimitExceededError
from warpdata.limits import MAX_TOKEN_SEGMENTS
from warpdata.primitives.hashing import is_digest, sha256_hex
from warpdata.repository.manifest import canonical_json
from warpdata.streaming.order import Order, Shuffle

__all__ = [
    "ConsumedSegment",
    "MixedIdentity",
    "RebasedIdentity",
    "StreamIdentity",
    "StreamState",
    "TableIdentity",
    "VersionIdentity",
    "parse_consumed",
    "parse_state",
]

_FORMAT = 1
_SHOWN = 10
_SHOWN_CHARS = 80


class StreamIdentity(Protocol):
    """Everything except the epoch that determines the order of samples. Equal identities give equal orders.

    Ranks, workers and batch size are not part of it, so a run can resume with others.
    """

    @property
    def sample_count(self) -> int: ...

    @property
    def plan_hash(self) -> str: ...

    def document(self) -> dict[str, Any]:
        """Return the identity as JSON: the plan of the stream."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionIdentity(ABC):
    """The order of the samples of one version that a filter keeps."""

    dataset_id: str
    version: str
    filter: str
    sample_count: int
    seed: int
    shuffle: Shuffle | None

    @abstractmethod
    def sample_fields(self) -> dict[str, Any]:
        """Return the fields of `document` that name the samples."""

    def document(self) -> dict[str, Any]:
        """Return the identity as JSON: the plan of the stream."""
        shuffle = self.shuffle
        return {
            "format": _FORMAT,
            "dataset_id": self.dataset_id,
            "version": self.version,
            **self.sample_fields(),
            "filter": self.filter,
            "sample_count": self.sample_count,
            "seed": str(self.seed),
            "shuffle": None if shuffle is None else shuffle.numbers,
        }

    @property
    def plan_hash(self) -> str:
        return sha256_hex(canonical_json(self.document()))

    def order(self, epoch: int) -> Order:
        return Order(self.sample_count, self.shuffle, self.seed, epoch)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableIdentity(VersionIdentity):
    """The order of the rows of one table."""

    table: str
    rows: str = ""
    """The SHA-256 of the row numbers of a restricted table; empty for a whole one."""

    def sample_fields(self) -> dict[str, Any]:
        return {"table": self.table, **({"rows": self.rows} if self.rows else {})}


@dataclass(frozen=True, slots=True)
class ConsumedSegment:
    """The part of an epoch that was consumed from one version."""

    version: str
    shuffle: Shuffle | None
    samples_done: int

    def document(self) -> list[Any]:
        return [self.version, None if self.shuffle is None else self.shuffle.numbers, self.samples_done]


@dataclass(frozen=True, slots=True, kw_only=True)
class RebasedIdentity(TableIdentity):
    """The order of the rows that remain of one epoch after segments of other versions."""

    epoch: int
    consumed: tuple[ConsumedSegment, ...]

    def document(self) -> dict[str, Any]:
        return {
            **TableIdentity.document(self),
            "epoch": self.epoch,
            "after": [segment.document() for segment in self.consumed],
        }


@dataclass(frozen=True, slots=True)
class MixedIdentity:
    """The order of a mixture: its parts, with their weights as fractions."""

    parts: tuple[TableIdentity, ...]
    weights: tuple[str, ...]
    seed: int
    stop: str
    sample_count: int

    def document(self) -> dict[str, Any]:
        """Return the identity as JSON: the plan of the stream."""
        return {
            "format": _FORMAT,
            "parts": [part.document() for part in self.parts],
            "weights": list(self.weights),
            "seed": str(self.seed),
            "stop": self.stop,
            "sample_count": self.sample_count,
        }

    @property
    def plan_hash(self) -> str:
        return sha256_hex(canonical_json(self.document()))


@dataclass(frozen=True, slots=True)
class StreamState:
    """The position of a stream: the same on every rank, valid for any number of ranks. As JSON, a token."""

    plan_hash: str
    plan: Mapping[str, Any]
    epoch: int
    samples_done: int

    @staticmethod
    def of(identity: StreamIdentity, epoch: int, samples_done: int) -> StreamState:
        return StreamState(identity.plan_hash, identity.document(), epoch, samples_done)

    def document(self) -> dict[str, Any]:
        """Return the token."""
        return {
            "plan_hash": self.plan_hash,
            "plan": dict(self.plan),
            "epoch": self.epoch,
            "samples_done": self.samples_done,
        }

    def check(self, identity: StreamIdentity) -> None:
        """Raise `BadInputError`, with every difference, unless the state belongs to this identity."""
        if self.plan_hash == identity.plan_hash:
            return
        expected = identity.document()
        different = [
            f"{name:.40} was {_short(self.plan.get(name))} and is {_short(expected.get(name))}"
            for name in sorted(expected.keys() | {str(name) for name in self.plan})
            if self.plan.get(name) != expected.get(name)
        ]
        raise BadInputError(
            f"the token belongs to another stream: {'; '.join(different[:_SHOWN]) or 'its hash differs'}",
            hint="Open the version and filter of the token, or use rebase() for a newer version.",
            kind=ErrorKind.TOKEN_MISMATCH,
        )


def parse_state(token: Mapping[str, Any]) -> StreamState:
    """Parse a token. `BadInputError` names the missing or wrong field."""
    expected = {field.name for field in fields(StreamState)}
    if not isinstance(token, Mapping) or set(token) != expected:
        raise BadInputError(f"a token of a stream has the fields {sorted(expected)}")
    for name in ("epoch", "samples_done"):
        value = token[name]
        if not _is_count(value):
            raise BadInputError(f"{name}={_short(value)} of a token is not a count")
    if not isinstance(token["plan"], Mapping) or not isinstance(token["plan_hash"], str):
        raise BadInputError("the plan of a token cannot be read")
    return StreamState(token["plan_hash"], token["plan"], token["epoch"], token["samples_done"])


def parse_consumed(state: StreamState) -> tuple[int, tuple[ConsumedSegment, ...]] | None:
    """Return the epoch and the segments that the plan of a token continues, or None if it continues nothing.

    The segments decide what is read, so the plan must have the hash of the token.
    """
    plan = state.plan
    if "after" not in plan:
        return None
    if sha256_hex(canonical_json(dict(plan))) != state.plan_hash:
        raise BadInputError("the plan of a token does not have its hash", kind=ErrorKind.TOKEN_MISMATCH)
    epoch, segments = plan.get("epoch"), plan["after"]
    if not _is_count(epoch) or not isinstance(segments, list):
        raise BadInputError("the plan of a token cannot be read: it has no epoch or no list of segments")
    if len(segments) > MAX_TOKEN_SEGMENTS:
        raise LimitExceededError(f"a token has {len(segments):,} segments; the limit is {MAX_TOKEN_SEGMENTS:,}")
    return epoch, tuple(map(_parse_segment, segments))


def _parse_segment(segment: Any) -> ConsumedSegment:
    if not isinstance(segment, list) or len(segment) != 3:
        raise BadInputError(f"a segment of a token has a version, a shuffle and a count, not {_short(segment)}")
    version, numbers, done = segment
    is_shuffle = numbers is None or (isinstance(numbers, list) and len(numbers) in (2, 3))
    if not isinstance(version, str) or not is_digest(version) or not is_shuffle or not _is_count(done):
        raise BadInputError(f"a segment of a token has a version, a shuffle and a count, not {_short(segment)}")
    return ConsumedSegment(version, None if numbers is None else Shuffle(*numbers), done)


def _is_count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _short(value: Any) -> str:
    """Return a value of a token for a message. Foreign values may be long."""
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"
