"""The identity of an episode: a hash of the hashes of its blocks, independent of compression.

A sealed file stores the list of hashes as its last block; for other files the list is computed. Implements
"Identity" of docs/specs/wshard.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from warpdata.errors import BadInputError, CorruptError
from warpdata.formats.wshard.canonical_json import JsonObject, encode_json
from warpdata.formats.wshard.reader import WShardFile, open_container
from warpdata.formats.wshard.source import PathLike
from warpdata.primitives.hashing import sha256_chunks, sha256_hex
from warpdata.storage import RangeSource

__all__ = ["META_IDENTITY", "META_PROVENANCE", "check_provenance", "identity", "joined_identity", "seal_bytes"]

META_IDENTITY, META_PROVENANCE = "meta/identity", "meta/provenance"
_PROVENANCE_KEYS = frozenset(
    ("end_state", "epoch", "first_seq", "last_seq", "prev_identity", "run_id", "source", "start_state", "v")
)


def identity(path: PathLike | RangeSource) -> str:
    """Return 64 hex digits that name the content. Compression, alignment and block order do not change them.

    Reads and hashes every block. `CorruptError` if a sealed file does not match its seal.
    """
    with open_container(path) as file:
        computed = seal_bytes(_hashes(file))
        if META_IDENTITY in file and file.read_json(META_IDENTITY) != computed:
            raise CorruptError("the blocks of the file are not those that were sealed")
        return sha256_hex(computed)


def joined_identity(identities: Sequence[str]) -> str:
    """Return the identity of an episode in several files, from those of its chunks, in order."""
    return sha256_hex(encode_json({"chunks": list(identities), "v": 1}))


def seal_bytes(hashes: Mapping[str, str]) -> bytes:
    """Return the content of `meta/identity`, from the SHA-256 of each other block."""
    return encode_json({"entries": dict(hashes), "leaf": "sha256", "v": 1})


def check_provenance(provenance: JsonObject) -> None:
    """Raise `BadInputError` unless exactly the known members are present."""
    if set(provenance) != _PROVENANCE_KEYS:
        names = ", ".join(sorted(set(provenance) ^ _PROVENANCE_KEYS))
        raise BadInputError(f"the provenance has missing or unknown members: {names}")


def _hashes(file: WShardFile) -> dict[str, str]:
    return {name: sha256_chunks(file[name].pieces()).hash for name in file.blocks if name != META_IDENTITY}
