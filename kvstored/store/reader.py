"""Executes read plans: devices through the I/O engine, the DRAM tier by copies."""

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain

from kvstored.format.geometry import HEADER_BYTES
from kvstored.io.device import DeviceError
from kvstored.io.engine import IoEngine, IoRequest, Operation
from kvstored.io.memory import AlignedMemory
from kvstored.store.lane import Lane, LaneSlot, Transfer
from kvstored.store.pieces import coalesce, scatter
from kvstored.store.plan import LayerRun, Order, PlanLimits, plan_runs
from kvstored.store.read_stream import (
    ChunkSource,
    FramedChunk,
    Landing,
    ReadStream,
    ReadTarget,
    StoredChunk,
    StreamOptions,
)

INLINE_COPY_BYTES_MAX = 2 * 1024 * 1024
"""A read of no more bytes from DRAM is over when it has started, a fifth of a millisecond later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderLimits:
    """Sizes that are fixed when the daemon starts.

    ``depth`` transfers of each device have memory to land in; ``copy_depth`` threads
    copy from the DRAM tier; a read without a window of its own gets ``window_bytes``.
    """

    depth: int
    copy_depth: int
    window_bytes: int
    plan: PlanLimits


class Reader:
    """Starts reads and carries them out. Thread-safe.

    ``on_device_error`` hears of every failed transfer, with the device's index.
    """

    def __init__(
        self,
        *,
        engine: IoEngine,
        device_count: int,
        limits: ReaderLimits,
        on_device_error: Callable[[int, DeviceError], None],
    ) -> None:
        self._engine = engine
        self._limits = limits
        self._on_device_error = on_device_error
        slot_bytes = HEADER_BYTES + limits.plan.run_bytes_max
        memory = AlignedMemory(slot_bytes * limits.depth * device_count).view
        slots = [
            LaneSlot(
                memory[start : start + HEADER_BYTES],
                memory[start + HEADER_BYTES :][: limits.plan.run_bytes_max],
            )
            for start in range(0, len(memory), slot_bytes)
        ]
        empty = LaneSlot(memoryview(b""), memoryview(b""))
        self._dram_lane = device_count
        self._lanes = [
            Lane(index, slots[index::device_count], self._issue_read)
            for index in range(device_count)
        ]
        self._lanes.append(Lane(self._dram_lane, [empty] * limits.copy_depth, self._issue_copy))
        self._copies: queue.SimpleQueue[Transfer | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._copy_loop, name=f"kvstored-copy-{number}", daemon=True)
            for number in range(limits.copy_depth)
        ]
        for thread in self._threads:
            thread.start()

    def start(
        self,
        *,
        sources: tuple[ChunkSource | None, ...],
        order: Order,
        target: ReadTarget,
        options: StreamOptions,
        on_damage: Callable[[StoredChunk], None],
        on_finish: Callable[[ReadStream], None],
    ) -> ReadStream:
        """Plans and starts one read; returns at once. A window of 0 is the default one."""
        plan = plan_runs(
            lanes=[self._lane_of(source) for source in sources],
            geometries=[source.geometry if source else None for source in sources],
            order=order,
            first_layer=options.first_layer,
            layer_count=options.layer_count,
            limits=self._limits.plan,
        )
        if options.window_bytes == 0:
            options = StreamOptions(
                first_layer=options.first_layer,
                layer_count=options.layer_count,
                window_bytes=self._limits.window_bytes,
                deadline=options.deadline,
            )
        stream = ReadStream(
            sources=sources,
            plan=plan,
            target=target,
            options=options,
            on_damage=on_damage,
            on_finish=on_finish,
        )
        stream.begin()
        for lane in stream.lanes:
            self._lanes[lane].add(stream)
        return stream

    def wake(self, stream: ReadStream) -> None:
        """Lets every lane look at a stream again, after it was cancelled."""
        for lane in stream.lanes:
            self._lanes[lane].pump()

    def close(self) -> None:
        """Ends the copy threads; every read must be over."""
        for _ in self._threads:
            self._copies.put(None)
        for thread in self._threads:
            thread.join()

    def _lane_of(self, source: ChunkSource | None) -> int | None:
        if isinstance(source, StoredChunk):
            return source.record.extent.device_index
        return None if source is None else self._dram_lane

    def _issue_read(self, lane: int, transfer: Transfer) -> None:
        stream, run, slot = transfer.stream, transfer.run, transfer.slot
        source = stream.sources[run.chunk]
        assert isinstance(source, StoredChunk)
        payload_bytes = run.byte_count - (HEADER_BYTES if run.with_header else 0)
        pieces = stream.run_pieces(run)
        payload: memoryview | None = None
        if payload_bytes > len(slot.bounce) or stream.takes_transfers(run):
            arena = stream.target.arena
            joined = coalesce(chain.from_iterable(pieces))
            buffers = [arena[offset : offset + size] for offset, size in joined]
        else:
            payload = slot.bounce[:payload_bytes]
            buffers = [payload] if payload_bytes else []
        if run.with_header:
            buffers.insert(0, slot.header)
        landing = Landing(
            run=run,
            pieces=pieces,
            payload=payload,
            release=lambda: self._transferred(lane, transfer),
        )

        def done(error: DeviceError | None) -> None:
            if error is None:
                stream.landed(landing, bytes(slot.header) if run.with_header else b"")
            else:
                stream.failed(landing)
                self._on_device_error(lane, error)

        self._engine.submit(
            IoRequest(
                device_index=lane,
                operation=Operation.READ,
                buffers=tuple(buffers),
                offset=source.record.extent.offset + run.start,
                done=done,
            )
        )

    def _issue_copy(self, _lane: int, transfer: Transfer) -> None:
        """Copies a small read at once: waking a thread would take longer than the copy."""
        if transfer.stream.copy_bytes <= INLINE_COPY_BYTES_MAX:
            self._copy(transfer)
        else:
            self._copies.put(transfer)

    def _copy_loop(self) -> None:
        while self._copy_one():
            pass

    def _copy_one(self) -> bool:
        """Copies one run; False at the end of the queue.

        A function of its own so that no transfer, and with it no view of an arena,
        outlives its copy while the thread waits for the next one.
        """
        transfer = self._copies.get()
        if transfer is None:
            return False
        self._copy(transfer)
        return True

    def _copy(self, transfer: Transfer) -> None:
        stream, run = transfer.stream, transfer.run
        source = stream.sources[run.chunk]
        assert isinstance(source, FramedChunk)
        copy_run(stream, run, source)
        self._transferred(self._dram_lane, transfer)
        stream.copied(run)

    def _transferred(self, lane: int, transfer: Transfer) -> None:
        """Gives back what a transfer used, and issues what may go on now."""
        self._lanes[lane].done(transfer)
        if transfer.stream.release_window(lane, transfer.run):
            self._pump_behind(lane, transfer.stream.lanes)
        else:
            self._lanes[lane].pump()

    def _pump_behind(self, lane: int, lanes: tuple[int, ...]) -> None:
        """Pumps all lanes of a read, the one that had its turn last: a small window goes round."""
        place = lanes.index(lane) + 1
        for other in lanes[place:] + lanes[:place]:
            self._lanes[other].pump()


def copy_run(stream: ReadStream, run: LayerRun, source: FramedChunk) -> None:
    """Copies a run from its frame to the arena."""
    starts = source.geometry.slice_offsets[run.first_layer : run.end_layer]
    scatter(source.frame, stream.target.arena, zip(starts, stream.run_pieces(run), strict=True))
