"""If this fails, a wrong type raises an error from inside the library, which a caller cannot interpret or catch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import warpdata.conversion as conversion
import warpdata.wshard as wshard
from warpdata.errors import BadInputError, WarpError

WRONG: list[Any] = [None, 5, 1.5, b"x", [], {}, ["x"], {1: 2}, np.zeros(2), "a\0b"]
EPISODE = wshard.Episode("ep", 1)

ONE: dict[str, Callable[[Any], object]] = {
    "load_wshard": wshard.load_wshard,
    "open_wshard": wshard.open_wshard,
    "open_file": wshard.open_file,
    "identity": wshard.identity,
    "recover": wshard.recover,
    "load_chunk_manifest": wshard.load_chunk_manifest,
    "is_chunk_manifest": wshard.is_chunk_manifest,
    "save_wshard path": lambda value: wshard.save_wshard(EPISODE, value),
    "save_wshard episode": lambda value: wshard.save_wshard(value, "x.wshard"),
    "compose_wshard": lambda value: wshard.compose_wshard(value, "x.wshard", {}),
    "join_episodes": lambda value: wshard.join_episodes([value]),
    "join_chunks": lambda value: wshard.join_chunks(value, "x.wshard"),
    "validate_chunk_continuity": wshard.validate_chunk_continuity,
    "WShardStreamWriter path": lambda value: wshard.WShardStreamWriter(value, "ep", []),
    "ChunkedEpisodeWriter directory": lambda value: wshard.ChunkedEpisodeWriter(value, "ep"),
    "JoinedFile": lambda value: wshard.JoinedFile([value]),
    "convert source": lambda value: conversion.convert(value, "x.npz"),
    "convert target": lambda value: conversion.convert("x.wshard", value),
    "export_npz": lambda value: conversion.export_npz(value, "x.npz"),
    "export_mcap": lambda value: conversion.export_mcap(value, "x.mcap"),
    "export_hdf5": lambda value: conversion.export_hdf5([value], "x.hdf5"),
    "export_lerobot": lambda value: conversion.export_lerobot([value], "x"),
    "import_npz": lambda value: conversion.import_npz(value, "x.wshard"),
    "import_hdf5": lambda value: conversion.import_hdf5(value, "x"),
    "import_lerobot": lambda value: conversion.import_lerobot(value, "x"),
}
MANY: dict[str, Callable[[Any], object]] = {
    "export_hdf5": lambda value: conversion.export_hdf5(value, "x.hdf5"),
    "export_lerobot": lambda value: conversion.export_lerobot(value, "x"),
    "join_episodes": wshard.join_episodes,
    "JoinedFile": wshard.JoinedFile,
    "load_wshard channels": lambda value: wshard.load_wshard("ep.wshard", channels=value),
}


@pytest.mark.parametrize("call", ONE)
def test_wrong_type_is_bad_input(call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for value in WRONG:
        with pytest.raises(BadInputError):
            ONE[call](value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("call", MANY)
def test_wrong_type_of_a_list_is_bad_input(call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    wshard.save_wshard(EPISODE, "ep.wshard")
    for value in (5, 1.5, "signal/a", b"x", [5], np.zeros(2)):
        with pytest.raises(WarpError):
            MANY[call](value)


def test_single_path_is_a_list_of_one(tmp_path: Path) -> None:
    path = tmp_path / "ep.wshard"
    wshard.save_wshard(EPISODE, path)
    assert conversion.export_hdf5(path, tmp_path / "x.hdf5").episodes == 1  # type: ignore[arg-type]
    assert conversion.export_hdf5(str(path), tmp_path / "y.hdf5").episodes == 1


def test_residuals_of_lists() -> None:
    packed = wshard.pack_residual([1.0, 3.0, 1.0])  # type: ignore[arg-type]
    assert wshard.unpack_residual(packed.tolist(), 3).tolist() == [[False, True, False]]
    for bad in (None, ["a"], [[1], [1, 2]], object()):
        with pytest.raises(BadInputError):
            wshard.pack_residual(bad)  # type: ignore[arg-type]
