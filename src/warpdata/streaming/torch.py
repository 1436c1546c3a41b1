"""Streams for PyTorch: tensors, and a loader whose workers are processes. The only home of torch here.

A worker makes every so-manieth batch of its rank, and the loader takes from the workers in turn, so the
order is that of the stream. Where the loader stands is counted in the process that consumes it.
Implements "Workers" of docs/specs/streaming.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from warpdata.errors import MissingExtraError

if TYPE_CHECKING:
    from warpdata.streaming.stream import Stream

__all__ = ["OpenStream", "TorchLoader", "as_tensor"]

OpenStream: TypeAlias = "Callable[[], Stream]"
"""Opens the same stream in another process; can be pickled."""


def as_tensor(values: Any) -> Any:
    """A tensor over the same memory; what is no array stays as it is."""
    import numpy as np

    if not isinstance(values, np.ndarray):
        return values
    if values.dtype.name == "bfloat16":  # torch does not know NumPy's
        return _torch().from_numpy(values.view(np.int16)).view(_torch().bfloat16)
    return _torch().from_numpy(values)


class TorchLoader:
    """Batches of one rank from `num_workers` processes. Iterate over `epoch(n)`, or over the loader itself."""

    def __init__(self, stream: Stream, reopen: OpenStream, num_workers: int, *, pin_memory: bool = False) -> None:
        self._stream = stream
        self._reopen = reopen
        self._num_workers = num_workers
        self._pin_memory = pin_memory

    def __len__(self) -> int:
        return len(self._stream)

    def __iter__(self) -> Iterator[Any]:
        """The rest of the epoch the loader is in."""
        state = self.state_dict()
        return self._run(state["epoch"], state["samples_done"])

    def epoch(self, number: int) -> Iterator[Any]:
        """The batches of an epoch: what is left of it if the loader stands within it, else all of it."""
        state = self.state_dict()
        return self._run(number, state["samples_done"] if number == state["epoch"] else 0)

    def state_dict(self) -> dict[str, Any]:
        """As `Stream.state_dict`; any number of workers and ranks goes on from it."""
        return self._stream.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._stream.load_state_dict(state)

    def _run(self, epoch: int, begin: int) -> Iterator[Any]:
        torch = _torch()
        stream = self._stream
        steps = stream.steps_from(begin)
        loader = torch.utils.data.DataLoader(
            _parts_class()(self._reopen, {**stream.state_dict(), "epoch": epoch, "samples_done": begin}),
            batch_size=None,
            num_workers=self._num_workers,
            pin_memory=self._pin_memory,
        )
        stream.stand_at(epoch, begin)
        for step, batch in enumerate(loader):
            stream.stand_at(epoch, steps.done_after(step))
            yield batch
        stream.stand_at(epoch + 1, 0)


def _parts_class() -> type:
    """The dataset that torch's loader hands to its workers; made here because torch is not there until asked for."""
    torch = _torch()
    if "Parts" not in _made:
        parts = type("Parts", (_Parts, torch.utils.data.IterableDataset), {"__module__": __name__})
        _made["Parts"] = globals()["Parts"] = parts
    return _made["Parts"]


_made: dict[str, type] = {}


class _Parts:
    """The batches of one worker."""

    def __init__(self, reopen: OpenStream, state: dict[str, Any]) -> None:
        self._reopen = reopen
        self._state = state

    def __iter__(self) -> Iterator[Any]:
        info = _torch().utils.data.get_worker_info()
        stream = self._reopen()
        if info is not None:
            stream = stream.for_worker(info.id, info.num_workers)
        stream.load_state_dict(self._state)
        return iter(stream)


def __getattr__(name: str) -> Any:
    """A worker that was spawned looks the dataset's class up here before anybody made it."""
    if name == "Parts":
        return _parts_class()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise MissingExtraError("this needs torch", hint="pip install 'warpdata[torch]'") from error
    return torch
