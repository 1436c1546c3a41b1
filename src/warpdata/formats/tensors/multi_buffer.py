"""Tensors that each have a place of their own, read together: one plan over many pieces of memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from warpdata.formats.tensors.cuda.torch_interop import DeviceTarget
from warpdata.formats.tensors.index import ALIGNMENT_BYTES, TensorIndex, align
from warpdata.formats.tensors.plan import Permute, Run, ViewPlan, make_plan
from warpdata.formats.tensors.spec import NormalView, Selection, whole
from warpdata.formats.tensors.targets import HostTarget

__all__ = ["Assembly"]


class Assembly:
    """Collects pieces. A tensor that stays as it is has its elements alone, and not the storage it lies in."""

    def __init__(self, index: TensorIndex) -> None:
        self._index = index
        self._runs: list[Run] = []
        self._permutes: list[Permute] = []
        self.regions: list[tuple[int, Any]] = []
        self._names: list[str] = []
        self._cursor = 0

    def __bool__(self) -> bool:
        return bool(self.regions)

    def piece(self, name: str, selection: Selection | None) -> ViewPlan:
        """What one tensor will be, before there is memory for it."""
        chosen = selection or whole(self._index[name])
        return make_plan(self._index, NormalView(((name, chosen),)), (name,))

    def add(self, piece: ViewPlan, contents: Any) -> None:
        """`contents` are as many bytes as the piece has, here or on a device."""
        if not piece.size:
            return
        self._runs += [replace(run, target=run.target + self._cursor) for run in piece.runs]
        self._permutes += [replace(one, target=one.target + self._cursor) for one in piece.permutes]
        self.regions.append((self._cursor, contents))
        self._names += piece.names
        # Room between regions, so that nothing is ever copied across.
        self._cursor = align(self._cursor + piece.size) + ALIGNMENT_BYTES

    def plan(self) -> ViewPlan:
        """All pieces side by side."""
        return ViewPlan(TensorIndex(()), tuple(self._names), tuple(self._runs), tuple(self._permutes), self._cursor)

    def target(self, *, on_device: bool) -> HostTarget | DeviceTarget:
        """Where they go."""
        regions: Sequence[tuple[int, Any]] = self.regions
        return DeviceTarget(regions) if on_device else HostTarget(regions)

    def forget(self) -> None:
        """Let go of the memory."""
        self.regions = []
