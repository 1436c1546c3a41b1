"""Third-party libraries of this format, each behind a function that says which extra is missing.

NumPy is needed by everything here, so it is loaded with the package. Codecs and hashes are loaded when
a file first needs them: a plain file can be read where no codec is installed.
"""

from __future__ import annotations

from typing import Any

from warpdata.errors import MissingExtraError

__all__ = ["bfloat16", "crc32c", "lz4_block", "missing", "np", "xxh64", "zstd"]

_HINT = "pip install 'warpdata[wshard]'"


def missing(library: str) -> MissingExtraError:
    return MissingExtraError(f"the library {library!r} is not installed, and episode files need it", hint=_HINT)


try:
    import numpy as np
except ImportError as error:  # pragma: no cover - the test environment has it
    raise missing("numpy") from error


def crc32c(data: Any, before: int = 0) -> int:
    """CRC-32C of the data, continuing from `before`."""
    try:
        from crc32c import crc32c as checksum
    except ImportError as error:
        raise missing("crc32c") from error
    return int(checksum(data, before))


def xxh64(data: bytes) -> int:
    """xxHash64 with seed 0."""
    try:
        import xxhash
    except ImportError as error:
        raise missing("xxhash") from error
    return xxhash.xxh64_intdigest(data)


def zstd() -> Any:
    """The module `zstandard`."""
    try:
        import zstandard
    except ImportError as error:
        raise missing("zstandard") from error
    return zstandard


def lz4_block() -> Any:
    """The module `lz4.block`."""
    try:
        import lz4.block
    except ImportError as error:
        raise missing("lz4") from error
    return lz4.block


def bfloat16() -> np.dtype[Any] | None:
    """The dtype of bfloat16 where `ml_dtypes` is installed, else `None`: its bits are kept as uint16."""
    try:
        import ml_dtypes
    except ImportError:
        return None
    found: np.dtype[Any] = np.dtype(str(ml_dtypes.bfloat16.__name__))
    return found
