"""Streams for PyTorch: tensors, and a loader whose workers are processes. The only home of torch here.

A worker makes every so-manieth batch of its rank, and the loader takes from the workers in turn, so the
order is that of the stream. Where the loader stands is counted in the process that consumes it.
Implements "Workers" of docs/specs/streaming.md.
"""

from __future__ import annotations

import functools
import multiprocessing
from collections.abc import Callable, Iterator, Mapping
from multiprocessing import forkserver
from typing import TYPE_CHECKING, Any, TypeAlias

from warpdata.errors import BadInputError, MissingExtraError

if TYPE_CHECKING:
    from multiprocessing.context import BaseContext

    from warpdata.streaming.stream import Stream
    from warpdata.streaming.telemetry import Telemetry

__all__ = ["OpenStream", "TorchLoader", "as_tensor"]

OpenStream: TypeAlias = "Callable[..., Stream]"
"""Opens the same stream in another process, perhaps of another `version`; can be pickled."""


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

    def __init__(
        self,
        stream: Stream,
        reopen: OpenStream,
        num_workers: int,
        *,
        pin_memory: bool = False,
        may_fork: bool = True,
    ) -> None:
        self._stream = stream
        self._reopen = reopen
        self._num_workers = num_workers
        self._pin_memory = pin_memory
        self._may_fork = may_fork
        self._context = None if may_fork or not num_workers else _without_fork()

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

    @property
    def telemetry(self) -> Telemetry:
        """As that of a stream, seen from the process that consumes: bytes and traffic are the workers'."""
        return self._stream.telemetry

    @property
    def dataset(self) -> Any:
        """The batches as an `IterableDataset`, for a DataLoader or StatefulDataLoader of your own.

        Give that `batch_size=None` and any number of workers. `set_epoch(n)` says which epoch comes next.
        """
        return _parts_class()(self._reopen, self.state_dict())

    def state_dict(self) -> dict[str, Any]:
        """As `Stream.state_dict`; any number of workers and ranks goes on from it."""
        return self._stream.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._stream.load_state_dict(state)

    def rebase(self, version: str) -> TorchLoader:
        """As `Stream.rebase`."""
        stream = self._stream.rebase(version)
        reopen = functools.partial(self._reopen, version=stream.identity.document()["version"])
        return TorchLoader(stream, reopen, self._num_workers, pin_memory=self._pin_memory, may_fork=self._may_fork)

    def _opener(self) -> OpenStream:
        """Without workers, the stream that is open already is good enough."""
        return self._reopen if self._num_workers else functools.partial(self._stream.for_worker, 0, 1)

    def _run(self, epoch: int, begin: int) -> Iterator[Any]:
        torch = _torch()
        stream = self._stream
        steps = stream.steps_from(begin, epoch)
        loader = torch.utils.data.DataLoader(
            _parts_class()(self._opener(), stream.token_at(epoch, begin)),
            batch_size=None,
            num_workers=self._num_workers,
            pin_memory=self._pin_memory,
            multiprocessing_context=self._context,
        )
        stream.stand_at(epoch, begin)
        batches = _started(loader)
        for step in range(len(steps)):
            batch = stream.telemetry.waited_for(functools.partial(next, batches), 0)
            stream.stand_at(epoch, steps.done_after(step))
            stream.telemetry.handed_out(sum(b - a for a, b in steps.spans(step, stream.options.rank)))
            stream.show(step, len(steps))
            yield batch
        stream.stand_at(epoch + 1, 0)


_PRELOADED = (
    "torch.utils.data",
    "pyarrow.parquet",
    "obstore.store",
    "PIL.JpegImagePlugin",
    "warpdata.datasets",
    "warpdata.streaming.torch",
)
"""What workers need, imported once by the server they are forked from; what is not installed is left out."""


def _without_fork() -> BaseContext | None:
    """How to start workers that need threads of libraries that a forked process does not have.

    A server that is forked from before anything was read makes them fast to start; None where the default
    is no fork anyway.
    """
    if multiprocessing.get_start_method() != "fork":
        return None
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["__main__", *_PRELOADED])
    forkserver.ensure_running()
    return context


def _started(loader: Any) -> Iterator[Any]:
    """Iterate, which starts the workers; what can not be sent to them is an error of the caller's."""
    try:
        return iter(loader)
    except Exception as error:
        if "pickle" not in str(error):
            raise
        raise BadInputError(
            f"the stream can not be sent to worker processes: {error}",
            hint="Use a transform that is a function of a module, or num_workers=0.",
        ) from error


def _parts_class() -> type:
    """The dataset that torch's loader hands to its workers; made here because torch is not there until asked for."""
    torch = _torch()
    if "Parts" not in _made:
        parts = type("Parts", (_Parts, torch.utils.data.IterableDataset), {"__module__": __name__})
        _made["Parts"] = globals()["Parts"] = parts
    return _made["Parts"]


_made: dict[str, type] = {}


class _Parts:
    """The batches of one worker. Its state is the token it began with, and how many batches it made since."""

    def __init__(self, reopen: OpenStream, token: dict[str, Any]) -> None:
        self._reopen = reopen
        self._token = token
        self._made = 0

    def set_epoch(self, number: int) -> None:
        """Begin with this epoch when iterated next."""
        self._token, self._made = self._reopen().token_at(number, 0), 0

    def state_dict(self) -> dict[str, Any]:
        return {"token": self._token, "batches": self._made}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._token, self._made = dict(state["token"]), state["batches"]

    def __iter__(self) -> Iterator[Any]:
        info = _torch().utils.data.get_worker_info()
        stream = self._reopen()
        if info is not None:
            stream = stream.for_worker(info.id, info.num_workers)
        stream.load_state_dict(self._token)
        for batch in stream.after(self._made):
            self._made += 1
            yield batch
        self._token, self._made = stream.state_dict(), 0


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
