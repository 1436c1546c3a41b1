"""A filtered epoch of images that keeps a half, a tenth or a hundredth: bytes fetched per kept sample.

The score of the filter is unrelated to the position of an image. litdata, mosaicml-streaming and WebDataset have no
filter: they read everything and drop samples before decoding. Lance and datasets apply the filter themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from benchmarks.harness.timing import RunOptions, format_bytes, format_seconds
from benchmarks.results import Measurement, Outcome
from benchmarks.streams.images import ImageFiles, make_images
from benchmarks.streams.peers import OURS, peer_notes
from benchmarks.streams.testbed import MakeSpec, Testbed, image_source, last_line, open_testbed

__all__ = ["run"]

_KEPT_SHARES = (0.5, 0.1, 0.01)
_PROMISED_SHARE = 0.01
_UNFILTERED = ("litdata", "mosaicml-streaming", "webdataset")


@dataclass(frozen=True, slots=True)
class _Epoch:
    bytes_per_sample: float
    took_s: float
    request_count: int

    @property
    def words(self) -> str:
        return f"{self.request_count:,} requests in {format_seconds(self.took_s)}"


def run(options: RunOptions) -> Outcome:
    images = make_images(400 if options.is_smoke else 8_000)
    measurements = []
    with open_testbed(options) as testbed:
        specs, notes = testbed.prepare_all(image_source(images))
        for share in _KEPT_SHARES:
            epochs = {}
            for arm, make in specs.items():
                try:
                    epochs[arm] = _read(testbed, images, arm, make, share)
                except RuntimeError as error:
                    notes.append(f"{arm}, {share:.0%} kept, does not score: {last_line(error)}.")
            measurements += _measure(epochs, share)
        versions, skipped = peer_notes(testbed.peers)
        return Outcome(
            title="A filtered epoch",
            method=f"{images.count:,} JPEGs, {format_bytes(images.size_bytes)}; {testbed.distance}; empty cache, one "
            "epoch each. The ratio is the bytes that the peer fetches per kept sample, relative to ours.",
            measurements=measurements,
            notes=[*notes, *versions],
            skipped=skipped,
            is_timed=False,
        )


def _read(testbed: Testbed, images: ImageFiles, arm: str, make: MakeSpec, share: float) -> _Epoch:
    with testbed.start(arm) as worker:
        run = testbed.read(worker, replace(make(testbed.fresh_cache()), keep=share))
    expected = [number for number in range(images.count) if images.score(number) < share]
    run.check_ids(expected)
    return _Epoch(run.fetched_bytes / len(expected), run.answer["took_s"], run.request_count)


def _measure(epochs: Mapping[str, _Epoch], share: float) -> list[Measurement]:
    ours = epochs.get(OURS)
    if ours is None:
        return []
    case, ours_kb = f"{share:.0%} kept", ours.bytes_per_sample / 1e3
    peers = {arm: epoch for arm, epoch in epochs.items() if arm != OURS}
    if not peers:
        return [Measurement(case=case, unit="kB per sample", ours=ours_kb, detail=ours.words)]
    unfiltered = [arm for arm in peers if arm in _UNFILTERED]
    best = min(unfiltered, key=lambda arm: peers[arm].bytes_per_sample, default=None)
    return [
        Measurement(
            case=case,
            unit="kB per sample",
            ours=ours_kb,
            peer=epoch.bytes_per_sample / 1e3,
            peer_name=f"{arm}, reads and drops" if arm in _UNFILTERED else arm,
            ratio=epoch.bytes_per_sample / ours.bytes_per_sample,
            quantity="bytes",
            detail=f"{ours.words}, against {epoch.words}",
            promise="selective-bytes" if arm == best and share == _PROMISED_SHARE else "",
        )
        for arm, epoch in peers.items()
    ]
