"""Files that are the chunks of one episode → what the index says of the episode. Pure.

Implements "Chunked episodes" of docs/specs/episodes.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from warpdata.errors import InvalidSourceError
from warpdata.formats.wshard import join_metadata, joined_identity
from warpdata.kinds.episodes.description import ChannelLayout, Described
from warpdata.limits import EPISODES_MAX_CHUNKS

__all__ = ["join_described"]

_RESIDUAL = "residual/"
"""Begins anew with each chunk, so it has no rows of the whole."""


def join_described(chunks: Sequence[tuple[Described, str]]) -> Described:
    """The episode that was cut into these, in order, each with a name to call it by. Their places were checked."""
    if len(chunks) == 1:
        return replace(chunks[0][0], chunk=None)
    first, rows = chunks[0][0], [row for row, _ in chunks]
    if len(chunks) > EPISODES_MAX_CHUNKS:
        raise InvalidSourceError(f"episode {first.id!r} has {len(chunks)} chunks; the most is {EPISODES_MAX_CHUNKS}")
    for row, name in chunks[1:]:
        _check_alike(first, row, name)
    whole = {spec.block for row in rows for spec in row.layout if spec.is_whole}
    return Described(
        id=first.id,
        env_id=first.env_id,
        length=sum(row.length for row in rows),
        timebase=first.timebase,
        tick_hz=first.tick_hz,
        identity=joined_identity([row.identity for row in rows]),
        is_sealed=all(row.is_sealed for row in rows),
        metadata=join_metadata([row.metadata for row in rows]),
        layout=tuple(replace(spec, is_whole=block in whole) for block, spec in _forms(first).items()),
    )


def _check_alike(first: Described, row: Described, name: str) -> None:
    """`InvalidSourceError` unless a chunk goes on with what the first one began."""
    for what, mine, other in (
        ("environment", row.env_id, first.env_id),
        ("timebase", (row.timebase, row.tick_hz), (first.timebase, first.tick_hz)),
    ):
        if mine != other:
            raise InvalidSourceError(f"{name} has the {what} {mine!r}, and the first chunk of {row.id!r} {other!r}")
    has, wanted = _forms(row), _forms(first)
    for block in [*wanted, *has]:
        if has.get(block) != wanted.get(block):
            raise InvalidSourceError(
                f"{name} has the block {block!r} as {_text(has.get(block))}, "
                f"and the first chunk of {row.id!r} as {_text(wanted.get(block))}",
                hint="All chunks of an episode have the same channels.",
            )


def _forms(row: Described) -> dict[str, ChannelLayout]:
    return {spec.block: replace(spec, is_whole=False) for spec in row.layout if not spec.block.startswith(_RESIDUAL)}


def _text(spec: ChannelLayout | None) -> str:
    if spec is None:
        return "nothing"
    rate = "" if spec.rate_hz is None else f" at {spec.rate_hz:g} Hz"
    return f"{spec.id}: {spec.dtype}{list(spec.shape)}{rate}"
