"""XML from outside: read element by element by expat, without document types, entities or other files.

An element of the wanted name is complete when it is yielded, and is forgotten afterwards, so that a document may be
larger than memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from warpdata.errors import CorruptError
from warpdata.limits import MAX_LABEL_XML_DEPTH

__all__ = ["iterate_xml", "parse_xml"]

_PIECE_BYTES = 1 << 20


def iterate_xml(data: bytes, where: str, wanted: frozenset[str]) -> Iterator[tuple[Element, tuple[str, ...]]]:
    """Yield elements of the wanted names below the root, each with the names of the elements around it."""
    target = _Target(where, wanted)
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler = target.start
    parser.EndElementHandler = target.end
    parser.CharacterDataHandler = target.data
    parser.StartDoctypeDeclHandler = target.refuse
    parser.EntityDeclHandler = target.refuse
    parser.ExternalEntityRefHandler = target.refuse
    parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
    view = memoryview(data)
    try:
        for start in range(0, max(len(data), 1), _PIECE_BYTES):
            piece = view[start : start + _PIECE_BYTES]
            parser.Parse(bytes(piece), start + _PIECE_BYTES >= len(data))
            yield from target.take()
    except (expat.ExpatError, ValueError, LookupError) as error:
        raise CorruptError(f"{where} is not valid XML: {error}") from error


def parse_xml(data: bytes, where: str, root: str) -> Element:
    """Return the root of a document. `CorruptError` if it has another name."""
    found = [element for element, around in iterate_xml(data, where, frozenset({root})) if not around]
    if len(found) != 1:
        raise CorruptError(f"{where} has no element <{root}> at its top")
    return found[0]


class _Target:
    """Builds the wanted elements from the events of the parser."""

    def __init__(self, where: str, wanted: frozenset[str]) -> None:
        self._where = where
        self._wanted = wanted
        self._names: list[str] = []
        self._builder: TreeBuilder | None = None
        self._depth = 0
        self._done: list[tuple[Element, tuple[str, ...]]] = []

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if len(self._names) >= MAX_LABEL_XML_DEPTH:
            raise CorruptError(f"{self._where} is nested deeper than {MAX_LABEL_XML_DEPTH} elements")
        if self._builder is None and name in self._wanted:
            self._builder, self._depth = TreeBuilder(), len(self._names)
        self._names.append(name)
        if self._builder is not None:
            self._builder.start(name, attributes)

    def end(self, name: str) -> None:
        self._names.pop()
        if self._builder is not None:
            self._builder.end(name)
            if len(self._names) == self._depth:
                self._done.append((self._builder.close(), tuple(self._names)))
                self._builder = None

    def data(self, text: str) -> None:
        if self._builder is not None:
            self._builder.data(text)

    def refuse(self, *_given: object) -> int:
        raise CorruptError(f"{self._where} declares a document type or entities, which are refused")

    def take(self) -> list[tuple[Element, tuple[str, ...]]]:
        done, self._done = self._done, []
        return done
