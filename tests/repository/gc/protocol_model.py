"""A model of the collection protocol: actors, a store and a network, and no code of the library.

A store maps keys to content. Requests of actors arrive at once, arrive late, arrive although their reply is lost, or
never arrive. Actors stall and die between any two requests. All choices come from one seed. Time is in ticks, and the
limits have the proportions of docs/specs/gc.md: a request arrives within `FLIGHT` or never, a writer trusts its lease
for `VALID`, and a collector for `LAPSE`, which is longer than both together.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Protocol: TypeAlias = Literal["full", "grace period", "no condemned list", "same key again"]

FLIGHT = 12
VALID = 20
LAPSE = VALID + FLIGHT + 8
DELETE_WITHIN = 150
UNFINISHED_FOR = DELETE_WITHIN + FLIGHT + 8
FINISHED_FOR = FLIGHT + 8
GRACE = 30
CONTENTS = 5

Blob: TypeAlias = int
Key: TypeAlias = tuple[Any, ...]
Steps: TypeAlias = Generator["Request", Any, None]
"""An actor yields requests and is sent their replies."""


@dataclass(frozen=True)
class Version:
    """The key of each blob of a version."""

    keys: tuple[tuple[Blob, Key], ...]

    @property
    def key(self) -> Key:
        return ("manifest", self.keys)


@dataclass(frozen=True)
class Request:
    """`act` runs when the request arrives, and returns the reply. Reads are never late."""

    act: Callable[[], Any]
    is_write: bool


class LostReplyError(Exception):
    """No reply came."""


@dataclass
class Store:
    """Objects with their time of writing, and the log of one branch."""

    now: int = 0
    objects: dict[Key, tuple[Any, int]] = field(default_factory=dict)

    def create(self, key: Key, value: Any) -> Request:
        def act() -> bool:
            if key in self.objects:
                return False
            self.objects[key] = (value, self.now)
            return True

        return Request(act, is_write=True)

    def replace(self, key: Key, value: Any) -> Request:
        return Request(lambda: self.objects.__setitem__(key, (value, self.now)), is_write=True)

    def delete(self, key: Key) -> Request:
        return Request(lambda: self.objects.pop(key, None), is_write=True)

    def has(self, key: Key) -> Request:
        return Request(lambda: key in self.objects, is_write=False)

    def read(self, key: Key) -> Request:
        return Request(lambda: self.objects.get(key, (None, 0))[0], is_write=False)

    def list(self, kind: str) -> Request:
        return Request(lambda: {key: value for key, value in self.objects.items() if key[0] == kind}, is_write=False)

    def head(self) -> Request:
        return Request(self.newest, is_write=False)

    def newest(self) -> tuple[int, Version | None]:
        entries = [(key[1], value[0]) for key, value in self.objects.items() if key[0] == "head"]
        sequence, entry = max(entries, default=(0, None), key=lambda pair: pair[0])
        return sequence, None if entry is None else entry[1]

    def dangling(self, *, keeps_all: bool) -> str | None:
        """Return a root that refers to an object that is not there."""
        newest = self.newest()[0]
        for key, (value, _) in self.objects.items():
            if key[0] == "label" or (key[0] == "head" and (keeps_all or key[1] == newest)):
                version = value[1]
                missing = [part for _, part in version.keys if part not in self.objects]
                if version.key not in self.objects or missing:
                    return f"{key} refers to {missing or version.key}"
        return None


@dataclass
class World:
    """One schedule: a store, a network, actors, and all chance."""

    seed: int
    protocol: Protocol
    keeps_all: bool
    store: Store = field(default_factory=Store)
    late: list[tuple[int, Callable[[], Any]]] = field(default_factory=list)
    acknowledged: int = 0
    generations: int = 0

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)

    def run(self, actors: list[Steps], steps: int) -> str | None:
        """Run the schedule. Return the first violation, or None."""
        waiting: dict[int, tuple[Steps, Any]] = {number: (actor, None) for number, actor in enumerate(actors)}
        asleep: dict[int, int] = {}
        for _ in range(steps):
            if not waiting and not self.late:
                break
            self.store.now += 1
            self._deliver()
            awake = [number for number in waiting if asleep.get(number, 0) <= self.store.now]
            if awake:
                number = self.chance.choice(awake)
                actor, reply = waiting.pop(number)
                drawn = self.chance.random()
                if drawn < 0.004:
                    continue  # killed
                if drawn < 0.02:
                    asleep[number] = self.store.now + self.chance.randint(5, 3 * LAPSE)
                    waiting[number] = (actor, reply)
                    continue
                following = self._step(actor, reply)
                if following is not None:
                    waiting[number] = (actor, following[0])
            found = self.store.dangling(keeps_all=self.keeps_all)
            if found is not None:
                return f"seed {self.seed}, tick {self.store.now}: {found}"
        return None

    def _step(self, actor: Steps, reply: Any) -> tuple[Any] | None:
        """Resume an actor, and carry out its next request. Return the reply in a tuple; None if the actor ended."""
        try:
            request = actor.throw(reply) if isinstance(reply, LostReplyError) else actor.send(reply)
        except StopIteration:
            return None
        drawn = self.chance.random()
        if not request.is_write or drawn > 0.12:
            return (request.act(),)
        if drawn < 0.04:
            request.act()
        elif drawn < 0.09:
            self.late.append((self.store.now + self.chance.randint(1, FLIGHT), request.act))
        return (LostReplyError(),)

    def _deliver(self) -> None:
        due = [item for item in self.late if item[0] <= self.store.now]
        self.late = [item for item in self.late if item[0] > self.store.now]
        for _, act in due:
            act()


def surely(request: Request) -> Generator[Request, Any, Any]:
    """Repeat a write until a reply comes."""
    while True:
        try:
            return (yield request)
        except LostReplyError:
            continue


class AbortedError(Exception):
    """The lease may have lapsed."""


def writer(world: World, name: str) -> Steps:
    """Publish some contents, a few times."""
    for turn in range(world.chance.randint(1, 3)):
        contents = sorted(world.chance.sample(range(CONTENTS), world.chance.randint(1, 2)))
        try:
            yield from publish(world, f"{name}.{turn}", contents)
        except AbortedError:
            continue


@dataclass
class Writing:
    """The state of one publish."""

    world: World
    txn: str
    renewed: int
    condemned: set[Key] = field(default_factory=set)
    fresh: dict[Blob, Key] = field(default_factory=dict)

    @property
    def has_lease(self) -> bool:
        return self.world.protocol != "grace period"

    def keep_lease(self) -> Generator[Request, Any, None]:
        """Renew the lease if it is due. Nothing comes between the last check and the next request."""
        store = self.world.store
        if self.has_lease and VALID // 3 < store.now - self.renewed <= VALID:
            sent = store.now
            try:
                yield store.replace(("lease", self.txn), self.txn)
                self.renewed = sent
            except LostReplyError:
                pass
        if self.has_lease and store.now - self.renewed > VALID:
            raise AbortedError

    def begin(self) -> Generator[Request, Any, None]:
        store = self.world.store
        if self.has_lease:
            yield from surely(store.create(("lease", self.txn), self.txn))
        if self.world.protocol in ("full", "same key again"):
            lists = yield store.list("condemned")
            for value, written in lists.values():
                if store.now - written <= (FINISHED_FOR if value[1] else UNFINISHED_FOR):
                    self.condemned |= value[0]

    def place(self, blob: Blob, reached: dict[Blob, Key]) -> Key:
        """Choose the key of a blob: that of the head, the plain one, or a new one."""
        if blob in reached:
            return reached[blob]
        plain: Key = ("blob", blob, 0)
        if plain not in self.condemned or self.world.protocol != "full":
            return plain
        if blob not in self.fresh:
            self.world.generations += 1
            self.fresh[blob] = ("blob", blob, self.world.generations)
        return self.fresh[blob]

    def upload(self, contents: list[Blob], base: Version | None) -> Generator[Request, Any, Version]:
        store, reached = self.world.store, {} if base is None else dict(base.keys)
        keys = []
        for blob in contents:
            yield from self.keep_lease()
            key = self.place(blob, reached)
            is_there = yield store.has(key)
            if not is_there or (key in self.condemned and blob not in reached):
                yield from surely(store.replace(key, blob))
            keys.append((blob, key))
        version = Version(tuple(keys))
        if version.key in self.condemned and version != base and self.world.protocol == "full":
            self.world.generations += 1
            forced: Key = ("blob", keys[0][0], self.world.generations)
            yield from surely(store.create(forced, keys[0][0]))
            version = Version(((keys[0][0], forced), *keys[1:]))
        yield from surely(store.create(version.key, True))
        return version


def publish(world: World, txn: str, contents: list[Blob]) -> Steps:
    writing = Writing(world, txn, world.store.now)
    yield from writing.begin()
    while True:
        sequence, base = yield world.store.head()
        version = yield from writing.upload(contents, base)
        if (yield from _advance(writing, sequence + 1, version)):
            world.acknowledged += 1
            break
    if writing.has_lease:
        yield from surely(world.store.delete(("lease", txn)))


def _advance(writing: Writing, sequence: int, version: Version) -> Generator[Request, Any, bool]:
    store, key = writing.world.store, ("head", sequence)
    while True:
        yield from writing.keep_lease()
        try:
            if (yield store.create(key, (writing.txn, version))):
                return True
        except LostReplyError:
            pass
        seen = yield store.read(key)
        if seen is not None:
            return bool(seen[0] == writing.txn)


def labeller(world: World, name: str) -> Steps:
    """Give the version of some log entry a label."""
    store = world.store
    for turn in range(2):
        txn = f"{name}.{turn}"
        lease, began = ("lease", txn), store.now
        yield from surely(store.create(lease, txn))
        lists = yield store.list("condemned")
        condemned: set[Key] = set().union(*(value[0] for value, _ in lists.values()))
        newest, _ = yield store.head()
        entry = (yield store.read(("head", world.chance.randint(1, newest)))) if newest else None
        if entry is not None:
            version = entry[1]
            whole = {version.key, *(key for _, key in version.keys)}
            is_whole = True
            for key in whole:
                is_whole = is_whole and (yield store.has(key))
            if is_whole and not whole & condemned and store.now - began <= VALID:
                yield from surely(store.create(("label", txn), (txn, version)))
        yield from surely(store.delete(lease))


def collector(world: World, name: str) -> Steps:
    """Collect a few times."""
    for turn in range(2):
        yield from collect(world, f"{name}.{turn}")


def collect(world: World, name: str) -> Steps:
    store, began = world.store, world.store.now
    live, known = yield from mark(world, None)
    blobs = yield store.list("blob")
    manifests = yield store.list("manifest")
    garbage = {key: written for key, (_, written) in {**blobs, **manifests}.items() if key not in live}
    if world.protocol == "grace period":
        for key in [key for key, written in garbage.items() if store.now - written > GRACE]:
            yield from surely(store.delete(key))
        return
    condemned = set(garbage)
    part = ("condemned", name)
    if world.protocol != "no condemned list":
        yield from surely(store.create(part, (frozenset(condemned), False)))
    waiting = set((yield store.list("lease")))
    while waiting:
        asked = store.now  # before the listing: a collector that stalls after it must not count that time
        present = yield store.list("lease")
        waiting = {key for key in waiting if key in present and asked - present[key][1] <= LAPSE}
        if store.now - began > DELETE_WITHIN:
            return
    again, _ = yield from mark(world, known)
    deleted = condemned - again
    for key in sorted(deleted, key=repr):
        if store.now - began > DELETE_WITHIN:
            return
        yield from surely(store.delete(key))
    if world.protocol != "no condemned list":
        yield from surely(store.replace(part, (frozenset(deleted), True)))
        lists = yield store.list("condemned")
        for key, (value, written) in lists.items():
            if store.now - written > (FINISHED_FOR if value[1] else UNFINISHED_FOR):
                yield from surely(store.delete(key))


def mark(world: World, known: set[int] | None) -> Generator[Request, Any, tuple[set[Key], set[int]]]:
    """Return the live keys and the log entries. The second time, entries that were not known are kept."""
    heads = yield world.store.list("head")
    labels = yield world.store.list("label")
    newest = max((key[1] for key in heads), default=0)
    kept = [
        value[1]
        for key, (value, _) in heads.items()
        if world.keeps_all or key[1] == newest or (known is not None and key[1] not in known)
    ]
    kept += [value[1] for value, _ in labels.values()]
    live = {version.key for version in kept} | {key for version in kept for _, key in version.keys}
    return live, {key[1] for key in heads}


def run_schedule(seed: int, protocol: Protocol) -> tuple[str | None, World]:
    """Run writers, a labeller and collectors against each other, as the seed says."""
    world = World(seed, protocol, keeps_all=seed % 3 == 0)
    garbage = [("blob", blob, 0) for blob in range(CONTENTS) if world.chance.random() < 0.7]
    world.store.objects |= {key: (key[1], -2 * GRACE) for key in garbage}
    actors = [writer(world, f"w{number}") for number in range(world.chance.randint(1, 3))]
    actors += [collector(world, f"c{number}") for number in range(world.chance.randint(1, 2))]
    if protocol == "full":
        actors.append(labeller(world, "l"))
    return world.run(actors, 400), world
