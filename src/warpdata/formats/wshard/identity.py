"""The identity of an episode: a hash of hashes of its blocks, the same however it is compressed.

A sealed file carries the list of hashes as its last block; for any other the list is computed. Implements
"Identity" of docs/specs/wshard.md.
"""

from __future__ import annotations

from collections.abc import Mapping

from warpdata.errors import BadInputError, EpisodeCorruptedError
from warpdata.formats.wshard.byte_source import ByteSource, PathLike
from warpdata.formats.wshard.canonical_json import JsonObject, encode_json
from warpdata.formats.wshard.reader import WShardFile, open_container
from warpdata.primitives.hashing import sha256_chunks, sha256_hex

__all__ = ["META_IDENTITY", "META_PROVENANCE", "check_provenance", "identity", "seal_bytes"]

META_IDENTITY, META_PROVENANCE = "meta/identity", "meta/provenance"
_PROVENANCE_KEYS = frozenset(
    ("end_state", "epoch", "first_seq", "last_seq", "prev_identity", "run_id", "source", "start_state", "v")
)


def identity(path: PathLike | ByteSource) -> str:
    """64 hex digits that name the content. Compression, alignment and order of blocks do not change it.

    Reads and hashes every block. `EpisodeCorruptedError` where a sealed file does not match its seal.
    """
    with open_container(path) as file:
        computed = seal_bytes(_hashes(file))
        if META_IDENTITY in file and file.read_json(META_IDENTITY) != computed:
            raise EpisodeCorruptedError("the file is sealed, and its blocks are not those that were sealed")
        return sha256_hex(computed)


def seal_bytes(hashes: Mapping[str, str]) -> bytes:
    """The content of `meta/identity`, from the SHA-256 of each other block."""
    return encode_json({"entries": dict(hashes), "leaf": "sha256", "v": 1})


def check_provenance(provenance: JsonObject) -> None:
    """`BadInputError` unless all members are there and no others."""
    if set(provenance) != _PROVENANCE_KEYS:
        odd = ", ".join(sorted(set(provenance) ^ _PROVENANCE_KEYS))
        raise BadInputError(f"the provenance has these members too many or too few: {odd}")


def _hashes(file: WShardFile) -> dict[str, str]:
    return {name: sha256_chunks(file[name].pieces()).hash for name in file.blocks if name != META_IDENTITY}
