"""Sizes as people write them: `200GB`, `128MiB`, or plain bytes. Pure.

Decimal units are powers of 1000 and binary ones (with an i) of 1024. A bare `200G` is refused, because
programs do not agree on what it means.
"""

from __future__ import annotations

import re
from decimal import Decimal

from warpdata.errors import BadInputError

__all__ = ["parse_size"]

_FORM = re.compile(r"(?P<amount>\d{1,19}(?:\.\d{1,9})?) ?(?P<unit>[A-Za-z]{0,3})", re.ASCII)
_PREFIXES = "kmgtp"
_UNITS = {
    "": 1,
    "b": 1,
    **{f"{prefix}b": 1000**power for power, prefix in enumerate(_PREFIXES, start=1)},
    **{f"{prefix}ib": 1024**power for power, prefix in enumerate(_PREFIXES, start=1)},
}
_LARGEST = 2**63 - 1


def parse_size(size: int | str) -> int:
    """Bytes, a fraction of a byte dropped; `BadInputError` names what is no size."""
    if isinstance(size, int) and not isinstance(size, bool):
        amount = size
    else:
        found = _FORM.fullmatch(size.strip()) if isinstance(size, str) else None
        factor = None if found is None else _UNITS.get(found["unit"].lower())
        if found is None or factor is None:
            raise BadInputError(
                f"{size!r} is not a size", hint="Write bytes, or a unit such as 500MB, 200GB or 128MiB."
            )
        amount = int(Decimal(found["amount"]) * factor)
    if not 0 <= amount <= _LARGEST:
        raise BadInputError(f"{size!r} is not a size: it must be from 0 to {_LARGEST} bytes")
    return amount
