"""What a stream will do, as a value: which samples, in which order, with a name that binds tokens to it. Pure.

Implements "Plans" and "Tokens" of docs/specs/streaming.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Protocol

from warpdata.errors import BadInputError, TokenMismatchError
from warpdata.primitives.hashing import sha256_hex
from warpdata.repository.manifest import canonical_json
from warpdata.streaming.order import Order, Shuffle

__all__ = ["Identity", "MixedIdentity", "TableIdentity", "Token", "VersionIdentity", "parse_token"]

_FORMAT = 1


class Identity(Protocol):
    """All that the order of samples depends on, beside the epoch. Equal identities give equal orders.

    How many ranks, workers and samples a batch there are is not part of it, so a run may go on elsewhere.
    """

    @property
    def sample_count(self) -> int: ...

    @property
    def plan_hash(self) -> str: ...

    def document(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionIdentity(ABC):
    """The order of samples of one version that a filter keeps."""

    dataset_id: str
    version: str
    filter: str
    sample_count: int
    seed: int
    shuffle: Shuffle | None

    @abstractmethod
    def samples(self) -> dict[str, Any]:
        """What the samples are, as members of `document`."""

    def document(self) -> dict[str, Any]:
        shuffle = self.shuffle
        return {
            "format": _FORMAT,
            "dataset_id": self.dataset_id,
            "version": self.version,
            **self.samples(),
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

    def samples(self) -> dict[str, Any]:
        return {"table": self.table}


@dataclass(frozen=True, slots=True)
class MixedIdentity:
    """The order of a mixture: its parts, with their weights as fractions."""

    parts: tuple[TableIdentity, ...]
    weights: tuple[str, ...]
    seed: int
    stop: str
    sample_count: int

    def document(self) -> dict[str, Any]:
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
class Token:
    """Where a stream stands: the same on every rank, good for any number of them."""

    plan_hash: str
    plan: Mapping[str, Any]
    epoch: int
    samples_done: int

    @staticmethod
    def of(identity: Identity, epoch: int, samples_done: int) -> Token:
        return Token(identity.plan_hash, identity.document(), epoch, samples_done)

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "plan_hash": self.plan_hash,
            "plan": dict(self.plan),
            "epoch": self.epoch,
            "samples_done": self.samples_done,
        }

    def check(self, identity: Identity) -> None:
        """`TokenMismatchError` says in what the token's plan differs from this one."""
        if self.plan_hash == identity.plan_hash:
            return
        ours = identity.document()
        different = [
            f"{name} was {self.plan.get(name)!r} and is {ours.get(name)!r}"
            for name in sorted(ours.keys() | self.plan.keys())
            if self.plan.get(name) != ours.get(name)
        ]
        raise TokenMismatchError(
            f"the token belongs to another stream: {'; '.join(different) or 'its hash differs'}",
            hint="Open what it was made for; rebase() goes on with a newer version.",
        )


def parse_token(document: Mapping[str, Any]) -> Token:
    """`BadInputError` names what a token must have and this one has not."""
    wanted = {field.name for field in fields(Token)}
    if not isinstance(document, Mapping) or set(document) != wanted:
        raise BadInputError(f"this is not a token of a stream: it must have {sorted(wanted)}")
    for name in ("epoch", "samples_done"):
        value = document[name]
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise BadInputError(f"{name}={value!r} of a token is not a count")
    if not isinstance(document["plan"], Mapping) or not isinstance(document["plan_hash"], str):
        raise BadInputError("the plan of a token cannot be read")
    return Token(document["plan_hash"], document["plan"], document["epoch"], document["samples_done"])
