"""Streams for PyTorch: tensors, and a loader whose workers are processes. Only this module of the package uses torch.

Worker `w` of `n` makes the batches `w`, `w + n`, … of its rank. The loader takes from the workers in turn, so the order
is that of the stream. The process that consumes the batches counts them; each batch brings the counts of its worker.
Implements "Workers" of docs/specs/streaming.md.
"""

from __future__ import annotations

import functools
import multiprocessing
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from math import prod
from multiprocessing import forkserver
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from warpdata.errors import BadInputError, UnsupportedError, WarpError
from warpdata.formats.media import decode_on_device
from warpdata.primitives.extras import require
from warpdata.primitives.worker_pickle import PortableFunction, check_sendable, without_missing_script
from warpdata.storage import IOStats
from warpdata.streaming.stats import COUNT_NUMBERS, BatchCounts, StreamStats
from warpdata.streaming.worker_count import resolve_worker_count

if TYPE_CHECKING:
    from multiprocessing.context import BaseContext

    from warpdata.streaming.stats import Telemetry
    from warpdata.streaming.stream import Stream

__all__ = ["OpenStream", "TorchLoader", "as_tensor", "resample_rgb"]

OpenStream: TypeAlias = "Callable[..., Stream]"
"""Opens the same stream in another process, or that of another `version`. Can be pickled."""


def as_tensor(values: Any) -> Any:
    """Return a tensor that shares the memory of an array. Other values are returned unchanged."""
    import numpy as np

    if not isinstance(values, np.ndarray):
        return values
    if values.dtype.name == "bfloat16":  # NumPy's type is unknown to torch
        return _torch().from_numpy(values.view(np.int16)).view(_torch().bfloat16)
    return _torch().from_numpy(values)


def resample_rgb(pixels: Any, size: tuple[int, int]) -> Any:
    """Scale an array of height × width × 3, uint8, to (height, width), bilinear and with an antialiasing filter.

    Equals the result of Pillow up to one level of 255, and takes a fraction of its time.
    """
    torch = _torch()
    # The batch axis comes first: torch then keeps the channels innermost, and nothing is transposed.
    image = torch.from_numpy(pixels)[None].permute(0, 3, 1, 2)
    scaled = torch.nn.functional.interpolate(image, size, mode="bilinear", antialias=True)
    return scaled.permute(0, 2, 3, 1)[0].numpy()


class _SharedArrays(list[Any]):
    """Arrays of different shapes that travel to another process through one block of shared memory.

    torch shares the memory of tensors, but would send arrays in a list byte by byte. A tensor for each of them would
    take a file descriptor each.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        torch = _torch()
        places, end = [], 0
        for array in self:
            places.append(None if array is None else (end, array.dtype, array.shape))
            end += 0 if array is None else -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
        block = torch.empty(end, dtype=torch.uint8)
        for array, place in zip(self, places, strict=True):
            if place is not None:
                _view(block, place)[...] = array
        return _restore_arrays, (block, places)


_ALIGNMENT = 64


def share_arrays(values: Any) -> Any:
    """Return a list of arrays so that a worker sends it through shared memory. Other values are returned unchanged."""
    import numpy as np

    is_shared = isinstance(values, list) and any(isinstance(value, np.ndarray) for value in values)
    plain = is_shared and all(
        value is None or (type(value) is np.ndarray and not value.dtype.hasobject) for value in values
    )
    return _SharedArrays(values) if plain else values


def _restore_arrays(block: Any, places: list[Any]) -> list[Any]:
    return [None if place is None else _view(block, place) for place in places]


def _view(block: Any, place: tuple[int, Any, tuple[int, ...]]) -> Any:
    start, dtype, shape = place
    return block[start : start + dtype.itemsize * prod(shape)].numpy().view(dtype).reshape(shape)


class TorchLoader:
    """Batches of one rank from `num_workers` processes. Iterate over `epoch(n)`, or over the loader to continue."""

    def __init__(
        self,
        stream: Stream,
        reopen: OpenStream,
        num_workers: int | Literal["auto"],
        *,
        pin_memory: bool = False,
        may_fork: bool = True,
    ) -> None:
        self._stream = stream
        self._reopen = reopen
        self._workers = resolve_worker_count(num_workers, stream.source, stream.options)
        self._pin_memory = pin_memory
        self._may_fork = may_fork
        self._context = None if may_fork or not self._workers.count else _without_fork()

    def __repr__(self) -> str:
        return f"TorchLoader({self._stream!r}, num_workers={self._workers.count})"

    @property
    def num_workers(self) -> int:
        """The number of worker processes; 0 if threads of this process make the batches."""
        return self._workers.count

    @property
    def num_workers_reason(self) -> str:
        """The reason for the number of workers."""
        return self._workers.reason

    def __len__(self) -> int:
        return len(self._stream)

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the rest of the current epoch."""
        state = self.state_dict()
        return self._run(state["epoch"], state["samples_done"])

    def epoch(self, number: int) -> Iterator[Any]:
        """Iterate over an epoch: over its rest if it is the current one, else over all of it."""
        state = self.state_dict()
        return self._run(number, state["samples_done"] if number == state["epoch"] else 0)

    @property
    def telemetry(self) -> Telemetry:
        """Telemetry of the batches that this loader returned, with the bytes and I/O of its workers."""
        return self._stream.telemetry

    @property
    def dataset(self) -> Any:
        """The batches as an `IterableDataset`, for a DataLoader or StatefulDataLoader of the caller.

        Give that `batch_size=None` and any number of workers, and call `set_epoch(n)` before each epoch: new workers
        begin with the state of the parent. `stats` has the totals of all workers, in `StreamStats`.
        """
        if self._stream.options.image_device is not None:
            raise UnsupportedError(
                "a DataLoader of the caller receives images before the device has decoded them",
                hint="Iterate over the loader itself, or drop image_device.",
            )
        return _dataset_class()(PortableFunction(self._reopen), self.state_dict(), totals=_SharedTotals())

    def state_dict(self) -> dict[str, Any]:
        """Return the state as `Stream.state_dict` does. Any number of workers and ranks can resume from it."""
        return self._stream.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._stream.load_state_dict(state)

    def rebase(self, version: str) -> TorchLoader:
        """Return a loader over another version, as `Stream.rebase` does."""
        stream = self._stream.rebase(version)
        reopen = functools.partial(self._reopen, version=stream.identity.document()["version"])
        return TorchLoader(stream, reopen, self._workers.count, pin_memory=self._pin_memory, may_fork=self._may_fork)

    def _opener(self) -> OpenStream:
        """Return the function that opens the stream. Without workers, the open stream is used."""
        if not self._workers.count:
            return functools.partial(self._stream.for_worker, 0, 1)
        return PortableFunction(self._reopen)

    def _run(self, epoch: int, begin: int) -> Iterator[Any]:
        stream = self._stream
        schedule = stream.schedule(begin, epoch)
        loader = _torch().utils.data.DataLoader(
            _dataset_class()(self._opener(), stream.state_at(epoch, begin)),
            batch_size=None,
            num_workers=self._workers.count,
            pin_memory=self._pin_memory,
            multiprocessing_context=self._context,
        )
        stream.seek(epoch, begin)
        batches = _started(loader)
        for step in range(len(schedule)):
            with _worker_errors():
                batch, numbers = stream.telemetry.wait_for(functools.partial(next, batches), 0)
            if isinstance(batch, WarpError):
                raise batch
            stream.seek(epoch, schedule.done_after(step))
            stream.count_batch(step, schedule, BatchCounts.of(numbers))
            yield self._placed(batch)
        stream.seek(epoch + 1, 0)

    def _placed(self, batch: Any) -> Any:
        """Return the batch with its encoded images decoded on the device of the stream."""
        options = self._stream.options
        if options.image_device is None:
            return batch
        images = {name: decode_on_device(batch[name], options.image_device) for name in options.encoded_images}
        return {**batch, **images}


_PRELOADED = (
    "torch.utils.data",
    "pyarrow.parquet",
    "obstore.store",
    "PIL.JpegImagePlugin",
    "simplejpeg",
    "warpdata.datasets",
    "warpdata.streaming.torch",
)
"""Modules that the fork server imports once for all workers. Missing ones are skipped."""


def _without_fork() -> BaseContext | None:
    """Return a context whose workers start with the threads that libraries need, which a forked process lacks.

    The fork server starts before any data is read, so its children start fast. None if the default start method is
    not fork.
    """
    if multiprocessing.get_start_method() != "fork":
        return None
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["__main__", *_PRELOADED])
    with without_missing_script():
        forkserver.ensure_running()
    return context


def _started(loader: Any) -> Iterator[Any]:
    """Start the workers. A stream that cannot be pickled is an error of the caller."""
    try:
        with without_missing_script():
            return iter(loader)
    except WarpError:
        raise
    except Exception as error:
        if "pickle" not in str(error):
            raise
        raise BadInputError(
            f"the stream cannot be sent to worker processes: {error}",
            hint="Use a transform that is a function of a module, or num_workers=0.",
        ) from error


@contextmanager
def _worker_errors() -> Iterator[None]:
    """Add a next step to torch's error about a worker that died, which names only the process."""
    try:
        yield
    except RuntimeError as error:
        if "DataLoader worker" in str(error):
            error.add_note("Its own error is printed above, unless the system killed it. num_workers=0 shows it here.")
        raise


def _dataset_class() -> type:
    """Return the dataset class that torch's loader sends to its workers. It is created on first use of torch."""
    if "WorkerBatches" not in globals():
        bases = (_WorkerBatches, _torch().utils.data.IterableDataset)
        globals()["WorkerBatches"] = type("WorkerBatches", bases, {"__module__": __name__})
    created: type = globals()["WorkerBatches"]
    return created


class _WorkerBatches:
    """The batches of one worker. Its state is the token that it began with, and the number of batches since.

    With `totals`, the counts of the batches are added to them. Without, each batch comes with its counts, and an
    error comes in place of a batch: torch would keep its text, but neither its hint nor its kind.
    """

    def __init__(self, reopen: OpenStream, token: dict[str, Any], totals: _SharedTotals | None = None) -> None:
        self._reopen = reopen
        self._token = token
        self._batches = 0
        self._totals = totals

    def __repr__(self) -> str:
        return f"WorkerBatches(epoch={self._token['epoch']}, samples_done={self._token['samples_done']})"

    @property
    def stats(self) -> StreamStats:
        """Totals of the batches that all workers made, also those that wait in a queue of the loader.

        `working_s` is the time from the first batch to the last.
        """
        assert self._totals is not None, "only the loader's own datasets have none"
        return self._totals.stats()

    def set_epoch(self, number: int) -> None:
        """Begin the next iteration with this epoch."""
        self._token, self._batches = self._reopen().state_at(number, 0), 0

    def state_dict(self) -> dict[str, Any]:
        return {"token": self._token, "batches": self._batches}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._token, self._batches = dict(state["token"]), state["batches"]

    def __iter__(self) -> Iterator[Any]:
        if self._totals is not None:
            for batch, counts, worker, times in self._made():
                self._totals.add(worker, counts, *times)
                yield batch
            return
        try:
            for batch, counts, _, _ in self._made():
                yield batch, counts.numbers
        except WarpError as error:
            yield error, ()

    def _made(self) -> Iterator[tuple[Any, BatchCounts, int, tuple[float, float]]]:
        """Yield each batch with its counts, the worker that made it, and the times when that began and now."""
        info = _torch().utils.data.get_worker_info()
        stream = self._reopen()
        if info is not None:
            stream = stream.for_worker(info.id, info.num_workers)
        stream.load_state_dict(self._token)
        clock, seen = stream.telemetry.clock, stream.telemetry.stats
        began = clock()
        for batch in stream.skip_batches(self._batches):
            if info is not None:
                if self._batches == 0:
                    check_sendable(batch)
                batch = {name: share_arrays(values) for name, values in batch.items()}  # noqa: PLW2901
            self._batches += 1
            stats = stream.telemetry.stats
            counts, seen = BatchCounts.between(seen, stats), stats
            if info is None and self._totals is None:
                counts = replace(counts, io=IOStats())  # the session of the consumer has counted it
            yield batch, counts, info.id if info is not None else 0, (began, clock())
        self._token, self._batches = stream.state_dict(), 0


_NS = 10**9
_TOTALS_ROWS = 256
_BATCHES, _BEGAN, _ENDED, _COUNTS = 0, 1, 2, 3


class _SharedTotals:
    """Counts of all workers in shared memory. Each worker writes a row of its own, so none waits for another."""

    def __init__(self) -> None:
        torch = _torch()
        self._rows = torch.zeros((_TOTALS_ROWS, _COUNTS + COUNT_NUMBERS), dtype=torch.int64).share_memory_()

    def add(self, worker: int, counts: BatchCounts, began: float, ended: float) -> None:
        """Add a batch that a worker made. The times are those of a clock that all processes share."""
        row = self._rows[worker % _TOTALS_ROWS]
        row[_BATCHES] += 1
        if not row[_BEGAN]:
            row[_BEGAN] = int(began * _NS)
        row[_ENDED] = int(ended * _NS)
        row[_COUNTS:] += _torch().tensor(counts.numbers, dtype=_torch().int64)

    def stats(self) -> StreamStats:
        rows = self._rows[self._rows[:, _BATCHES] > 0]
        if not len(rows):
            return StreamStats()
        counts = BatchCounts.of(rows[:, _COUNTS:].sum(0).tolist())
        return StreamStats(
            batches=int(rows[:, _BATCHES].sum()),
            samples=counts.samples,
            substituted=counts.substituted,
            bytes=counts.bytes,
            working_s=int(rows[:, _ENDED].max() - rows[:, _BEGAN].min()) / _NS,
            io=counts.io,
        )


def __getattr__(name: str) -> Any:
    """Create the dataset class in a spawned worker, which looks the name up while it unpickles."""
    if name == "WorkerBatches":
        return _dataset_class()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _torch() -> Any:
    return require("torch", purpose="this loader", extra="torch")
