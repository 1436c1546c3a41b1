"""Where the bytes of a remote store may come from, as a word that people choose.

Implements "Modes" of docs/specs/cache.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from warpdata.errors import BadInputError

__all__ = ["FILL_EAGERLY", "FILL_FOR_EPOCHS", "FILL_FOR_MEDIA", "FILL_FOR_TABLES", "FillPolicy", "Mode", "parse_mode"]


class Mode(StrEnum):
    """`auto` keeps what is read often, `remote` keeps nothing, `hybrid` keeps all that is touched, `local` asks
    no store at all.
    """

    AUTO = "auto"
    REMOTE = "remote"
    HYBRID = "hybrid"
    LOCAL = "local"


def parse_mode(text: str) -> Mode:
    """The mode of that name; `BadInputError` for any other text."""
    try:
        return Mode(text)
    except ValueError:
        raise BadInputError(f"{text!r} is not a mode", hint=f"Use one of {', '.join(Mode)}.") from None


@dataclass(frozen=True, slots=True)
class FillPolicy:
    """When reads of a blob are reason enough to fetch the whole of it: after so many, or after they asked for
    that fraction of its bytes, whichever comes first. An `eager` fill may evict whatever nobody uses; any other
    only what has been idle for a while.
    """

    after_reads: int | None
    after_fraction: float | None
    eager: bool

    def is_due(self, read_count: int, asked_bytes: int, size_bytes: int | None) -> bool:
        if self.after_reads is not None and read_count >= self.after_reads:
            return True
        if self.after_fraction is None or size_bytes is None:
            return False
        return asked_bytes >= self.after_fraction * size_bytes


FILL_FOR_MEDIA = FillPolicy(after_reads=8, after_fraction=None, eager=False)
FILL_FOR_EPOCHS = FillPolicy(after_reads=1, after_fraction=None, eager=False)
"""For whoever will read all of it, and reads large parts at once."""
FILL_FOR_TABLES = FillPolicy(after_reads=None, after_fraction=0.5, eager=False)
FILL_EAGERLY = FillPolicy(after_reads=1, after_fraction=None, eager=True)
