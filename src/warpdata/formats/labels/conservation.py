"""The law of a conversion: everything that goes in comes out, or is an item of the report.

Readers and writers count what they take and what they give. For each fact, such as boxes or attributes, the report
balances: in + added = out + lost. A conversion that loses something without an item raises an error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from warpdata.errors import CorruptError, ErrorKind
from warpdata.formats.labels.annotations import Annotation, geometry_columns
from warpdata.formats.labels.model import FACTS, LabeledImage, measure
from warpdata.primitives.reprs import short_repr

if TYPE_CHECKING:
    from warpdata.formats.labels.columns import LabelBlock

__all__ = ["Conservation", "ConservationItem", "ConservationReport"]

_OUTCOMES = ("lost", "changed", "added")


@dataclass(frozen=True, slots=True)
class ConservationItem:
    """Some facts that a conversion lost, changed or added: how many, why, and where the first of them is."""

    fact: str
    why: str
    count: int
    first: str


@dataclass(frozen=True, slots=True)
class ConservationReport:
    """The account of a conversion of labels. `taken` and `given` count facts before and after.

    A changed fact has another form, such as a polygon with rounded points. What a format needs and its source lacks is
    added.
    """

    format: str
    direction: str
    """`import` or `export`."""
    taken: Mapping[str, int]
    given: Mapping[str, int]
    lost: tuple[ConservationItem, ...] = ()
    changed: tuple[ConservationItem, ...] = ()
    added: tuple[ConservationItem, ...] = ()

    def __repr__(self) -> str:
        counts = {name: sum(item.count for item in getattr(self, name)) for name in _OUTCOMES}
        return short_repr("ConservationReport", self.format, self.direction, **counts)

    @property
    def is_lossless(self) -> bool:
        """True if nothing was lost or changed."""
        return not self.lost and not self.changed

    def document(self) -> dict[str, Any]:
        """Return the report as plain values for JSON."""
        items = {
            name: [
                {"fact": item.fact, "why": item.why, "count": item.count, "first": item.first}
                for item in getattr(self, name)
            ]
            for name in _OUTCOMES
        }
        about = {"format": self.format, "direction": self.direction, "is_lossless": self.is_lossless}
        return {**about, "in": dict(self.taken), "out": dict(self.given), **items}

    def text(self) -> str:
        """Return the report as lines for people."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        for fact in sorted({*self.taken, *self.given}):
            before, after = self.taken.get(fact, 0), self.given.get(fact, 0)
            yield f"{fact}: {before:,}" if before == after else f"{fact}: {before:,} in, {after:,} out"
        for name in _OUTCOMES:
            for item in getattr(self, name):
                yield f"{name}: {item.count:,} {item.fact}: {item.why} (first: {item.first})"


class Conservation:
    """Keeps the account while a conversion runs."""

    def __init__(self, format: str, direction: str) -> None:  # noqa: A002 - the word that users look for
        self._format = format
        self._direction = direction
        self._taken: Counter[str] = Counter()
        self._given: Counter[str] = Counter()
        self._items: dict[tuple[str, str, str], list[Any]] = {}

    def take(self, facts: str | Mapping[str, int], count: int = 1) -> None:
        """Count facts of the source."""
        self._taken.update({facts: count} if isinstance(facts, str) else facts)

    def give(self, facts: str | Mapping[str, int], count: int = 1) -> None:
        """Count facts of the target."""
        self._given.update({facts: count} if isinstance(facts, str) else facts)

    def take_image(self, image: LabeledImage) -> None:
        self._taken.update(measure(image))

    def take_block(self, block: LabelBlock) -> None:
        self._taken.update(block.facts)

    def take_details(self, image: LabeledImage) -> None:
        """Count what an image has, except images and objects, which a reader counts before it parses them."""
        found = measure(image)
        del found["images"]
        found.pop("objects", None)
        self._taken.update(found)

    def take_details_of(self, block: LabelBlock) -> None:
        """Count what the images of a block have, except images and objects."""
        self._taken.update({fact: count for fact, count in block.facts.items() if fact not in ("images", "objects")})

    def drop(self, fact: str, why: str, where: str, count: int = 1) -> None:
        """Count facts of the source that the model has no place for, and list them as lost."""
        self.take(fact, count)
        self.lose(fact, why, where, count)

    def hold(self, one: Annotation, held: Annotation | None, why: str, path: str) -> None:
        """List the difference between an annotation and the form in which the target holds it."""
        if held == one:
            return
        before, after = (measure(LabeledImage(path, [] if each is None else [each])) for each in (one, held))
        for fact, count in (before - after).items():
            self.lose(fact, why, path, count)
        for fact, count in (after - before).items():
            self.add(fact, why, path, count)
        if held is not None and held.kind == one.kind and _drawn(held) != _drawn(one):
            self.change(FACTS[one.kind], why, path)

    def lose_image(self, image: LabeledImage, why: str) -> None:
        """List an image as lost, with all that it has."""
        self.take_image(image)
        for fact, count in measure(image).items():
            self.lose(fact, why, image.path, count)

    def add_object(self, one: Annotation, why: str, path: str) -> None:
        """List an annotation as added, with its attributes and its rotation."""
        for fact, count in measure(LabeledImage(path, [one])).items():
            if fact != "images":
                self.add(fact, why, path, count)

    def give_image(self, image: LabeledImage) -> None:
        self._given.update(measure(image))

    def give_block(self, block: LabelBlock) -> None:
        self._given.update(block.facts)

    def lose(self, fact: str, why: str, where: str, count: int = 1) -> None:
        """List facts that the target does not have."""
        self._add("lost", fact, why, where, count)

    def change(self, fact: str, why: str, where: str, count: int = 1) -> None:
        """List facts that have another form in the target."""
        self._add("changed", fact, why, where, count)

    def add(self, fact: str, why: str, where: str, count: int = 1) -> None:
        """List facts that only the target has."""
        self._add("added", fact, why, where, count)

    def losses(self) -> Iterator[tuple[str, str, int]]:
        """Yield what was lost so far: the fact, the reason and the count."""
        return ((fact, why, item[0]) for (name, fact, why), item in self._items.items() if name == "lost")

    def report(self) -> ConservationReport:
        """Return the report. `CorruptError` if a loss is not listed."""
        for fact in sorted(self._taken | self._given):
            lost, added = self._sum("lost", fact), self._sum("added", fact)
            if self._taken[fact] + added != self._given[fact] + lost:
                raise CorruptError(
                    f"the {self._direction} of {self._format} has an unlisted loss of {fact}: "
                    f"{self._taken[fact]:,} in, {added:,} added, {self._given[fact]:,} out, {lost:,} lost",
                    kind=ErrorKind.UNLISTED_LOSS,
                )
        items = {name: self._listed(name) for name in _OUTCOMES}
        taken, given = (dict(sorted(one.items())) for one in (+self._taken, +self._given))
        return ConservationReport(self._format, self._direction, taken, given, **items)

    def _add(self, outcome: str, fact: str, why: str, where: str, count: int) -> None:
        if count:
            self._items.setdefault((outcome, fact, why), [0, where])[0] += count

    def _sum(self, outcome: str, fact: str) -> int:
        return sum(item[0] for (name, one, _), item in self._items.items() if (name, one) == (outcome, fact))

    def _listed(self, outcome: str) -> tuple[ConservationItem, ...]:
        return tuple(
            ConservationItem(fact, why, count, first)
            for (name, fact, why), (count, first) in self._items.items()
            if name == outcome
        )


def _drawn(one: Annotation) -> dict[str, Any]:
    """Return class and geometry. Attributes and rotations are facts of their own, unless they have another value."""
    columns = geometry_columns(one)
    return {name: columns[name] for name in columns if name not in ("attributes", "rotation")} | {
        "rotation": columns["rotation"] or None
    }
