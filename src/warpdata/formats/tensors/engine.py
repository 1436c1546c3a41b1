"""What carries out reading, for one artifact or for several: threads while a call lasts, and staging between calls.

Staging is made when bytes first go to a device and kept, because pinning memory takes as long as filling it many
times over. It is given back by `close()`, and after every error.
"""

from __future__ import annotations

import mmap
import os
import threading
import weakref
from typing import Any, Self

from warpdata.errors import BadInputError
from warpdata.formats.tensors.cuda.pinned_pool import Staging
from warpdata.formats.tensors.cuda.streams import Cuda
from warpdata.formats.tensors.cuda.torch_interop import DeviceTarget
from warpdata.formats.tensors.cuda.transfer import Device, fill_device, slot_bytes_for
from warpdata.formats.tensors.targets import HostTarget
from warpdata.formats.tensors.transfer import Work, fill
from warpdata.limits import VIEW_PIECE_BYTES, VIEW_STAGING_BYTES

__all__ = ["Engine"]


class Engine:
    """How many threads read, and how much memory may be pinned. Costs nothing until it is used."""

    def __init__(self, *, threads: int | None = None, staging_bytes: int = VIEW_STAGING_BYTES) -> None:
        if (threads is not None and threads < 1) or staging_bytes < 1:
            raise BadInputError(f"an engine can not have {threads} threads and {staging_bytes} bytes of staging")
        self.threads = threads
        self.staging_bytes = staging_bytes
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._devices: dict[int, tuple[Staging, Device]] = {}
        self._close = weakref.finalize(self, _close_all, self._devices)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pinned_bytes(self) -> int:
        """Staging that is held at the moment."""
        return sum(staging.pinned_bytes for staging, _ in self._devices.values())

    def fill(self, work: Work, target: HostTarget | DeviceTarget) -> None:
        """Make the target what the work says."""
        if isinstance(target, HostTarget):
            fill(work, target, self.threads)
            return
        self._notice_fork()
        with self._lock:
            try:
                staging, device = self._staging(target.device, slot_bytes_for(work.reads))
                fill_device(work, target, staging, device, threads=self.threads)
            except BaseException:
                _close_all(self._devices)
                raise

    def close(self) -> None:
        """Give pinned memory back. The engine can be used again; safe to call twice."""
        self._notice_fork()
        with self._lock:
            _close_all(self._devices)

    def _staging(self, device: Any, slot_bytes: int) -> tuple[Staging, Device]:
        """Slots of at least this size, on this device."""
        known = self._devices.get(device.index)
        if known is not None and known[0].slot_bytes >= slot_bytes:
            return known
        if known is not None:
            known[0].close()
        cuda = known[1] if known is not None else Cuda(device)
        size = -(-max(slot_bytes, VIEW_PIECE_BYTES) // mmap.PAGESIZE) * mmap.PAGESIZE
        made = (Staging(cuda, size, max(2, self.staging_bytes // size)), cuda)
        self._devices[device.index] = made
        return made

    def _notice_fork(self) -> None:
        """Devices and locks of the process we were forked from are not ours."""
        if self._process != os.getpid():
            self._process, self._lock = os.getpid(), threading.Lock()
            _close_all(self._devices)


def _close_all(devices: dict[int, tuple[Staging, Device]]) -> None:
    for staging, _ in devices.values():
        staging.close()
    devices.clear()
