"""Times reads through the daemon: how long the states of one layer take."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from engine_adapters.reading.section import sections_of
from engine_adapters.reading.section_reads import placement_of
from engine_adapters.restore import Sample
from engine_adapters.runner.calibrate.compute_costs import spread_of
from kvstored_client import (
    Ack,
    Client,
    LayerState,
    NewChunk,
    Order,
    Placement,
    StateKind,
    StateLayout,
    StoreError,
)

LAYERS_READ = 4
"""Layers of one measurement: enough for the next read to overlap with the last one's end."""

PUT_BYTES_MAX = 32 * 1024 * 1024
"""Arena bytes of one put, unless a single chunk is larger."""

READ_BYTES_MAX = 64 * 1024 * 1024
"""Arena bytes of one read, likewise: longer ones are spans, one after the other."""

CHUNKS_PER_DELETE = 4096
"""Chunks that are deleted at once."""

FLUSHED_DRAM_BYTES_MAX = 2 * 1024**3
"""A DRAM tier up to this size is filled with other chunks before reads are timed."""

READ_TIMEOUT_S = 60.0


class CalibrationError(RuntimeError):
    """The daemon cannot be measured now; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadCosts:
    """Seconds of one layer by its bytes; ``is_cold`` when all bytes came from devices.

    ``spread`` is the slowest repetition of a size over its median.
    """

    samples: tuple[Sample, ...]
    is_cold: bool
    spread: float


class ReadTimer:
    """Stores chunks of its own, reads each once, and deletes them in the end.

    Chunks that were just put lie in DRAM. Where that tier is small enough and the devices
    have room, other chunks push them out, so that the devices are measured.
    """

    def __init__(
        self,
        client: Client,
        *,
        clock: Callable[[], float] = time.perf_counter,
        pause: Callable[[], None] = lambda: None,
    ) -> None:
        """``pause`` is made between two repetitions."""
        self._client = client
        self._clock = clock
        self._pause = pause
        self._keys: list[bytes] = []

    def measure(
        self, token_bytes: int, token_counts: Sequence[int], *, chunk_tokens: int, repeats: int
    ) -> ReadCosts:
        """Times reads of about so many tokens; each time is the median of ``repeats``.

        Raises CalibrationError when the daemon is absent, or takes or gives no chunks.
        """
        layout = StateLayout(
            model="calibration",
            dtype="uint8",
            layers=(LayerState(StateKind.HIDDEN, token_bytes),) * LAYERS_READ,
            chunk_tokens=chunk_tokens,
        )
        chunks_max = READ_BYTES_MAX // Placement.contiguous_bytes(layout, 1)
        chunk_counts = sorted(
            {max(1, min(count // chunk_tokens, chunks_max)) for count in token_counts}
        )
        try:
            groups = [
                [self._store(layout, count) for _ in range(repeats)] for count in chunk_counts
            ]
            self._push_out(layout)
            results = self._read_all(layout, groups)
            samples = [
                Sample(count * layout.slice_bytes(0), median(seconds) / LAYERS_READ)
                for count, seconds in zip(chunk_counts, map(_seconds_of, results), strict=True)
            ]
            return ReadCosts(
                samples=tuple(samples),
                is_cold=all(is_cold for result in results for _, is_cold in result),
                spread=max(spread_of(_seconds_of(result)) for result in results),
            )
        finally:
            while self._keys:
                self._client.delete(self._keys[:CHUNKS_PER_DELETE])
                del self._keys[:CHUNKS_PER_DELETE]

    def _read_all(
        self, layout: StateLayout, groups: Sequence[Sequence[Sequence[bytes]]]
    ) -> list[list[tuple[float, bool]]]:
        """What ``_read`` tells of all repetitions of each size; of all sizes in turn."""
        results: list[list[tuple[float, bool]]] = [[] for _ in groups]
        for repetition, keys_of_sizes in enumerate(zip(*groups, strict=True)):
            if repetition:
                self._pause()
            for result, keys in zip(results, keys_of_sizes, strict=True):
                result.append(self._read(layout, keys))
        return results

    def _store(self, layout: StateLayout, chunk_count: int) -> list[bytes]:
        """Puts chunks under random keys, which the next reads ask for."""
        keys = [os.urandom(32) for _ in range(chunk_count)]
        batch = max(1, PUT_BYTES_MAX // Placement.contiguous_bytes(layout, 1))
        for first in range(0, chunk_count, batch):
            part = keys[first : first + batch]
            region = self._client.allocate(Placement.contiguous_bytes(layout, len(part)))
            if region is None:
                raise CalibrationError(
                    "the daemon is absent, or the arena is too small for a chunk: start it, or "
                    "ask for more --arena-bytes"
                )
            self._keys += part
            with region:
                region.view[:] = os.urandom(4096) * (region.byte_count // 4096)
                report = self._client.put(
                    layout,
                    [
                        NewChunk(key=key, token_count=layout.chunk_tokens, stripe=first + index)
                        for index, key in enumerate(part)
                    ],
                    Placement.contiguous(region, layout),
                    ack=Ack.DURABLE,
                    timeout_ms=int(READ_TIMEOUT_S * 1000),
                )
            if report.rejected_count:
                raise CalibrationError(
                    f"the daemon refused {report.rejected_count} of {len(part)} chunks: "
                    f"{report.results[-1].reason.name}"
                )
        return keys

    def _push_out(self, layout: StateLayout) -> None:
        """Fills the DRAM tier with other chunks, if it may be asked about and that is cheap."""
        try:
            stats = self._client.admin.stats()
        except StoreError:
            return
        free_bytes = sum(device.capacity_bytes - device.used_bytes for device in stats.devices)
        dram_bytes = stats.dram_capacity_bytes
        if dram_bytes <= FLUSHED_DRAM_BYTES_MAX and free_bytes > 2 * dram_bytes:
            self._store(layout, -(-dram_bytes // layout.chunk_bytes()))

    def _read(self, layout: StateLayout, keys: Sequence[bytes]) -> tuple[float, bool]:
        """Seconds of the read of all layers, and whether nothing came from DRAM."""
        (section,) = sections_of(layout)
        region = self._client.allocate(section.region_bytes(len(keys)))
        if region is None:
            raise CalibrationError(
                f"the arena is too small for {len(keys)} chunks: ask for more --arena-bytes"
            )
        with region:
            started_s = self._clock()
            with self._client.read(
                layout,
                keys,
                placement_of(section, region, 0, len(keys)),
                order=Order.LAYER_FIRST,
                timeout_ms=int(READ_TIMEOUT_S * 1000),
            ) as read:
                report = read.wait(READ_TIMEOUT_S)
                seconds = self._clock() - started_s
        if report.resident_prefix < len(keys):
            raise CalibrationError("the daemon lost chunks while they were measured: try again")
        return seconds, report.dram_bytes == 0


def _seconds_of(results: Sequence[tuple[float, bool]]) -> list[float]:
    return [seconds for seconds, _ in results]
