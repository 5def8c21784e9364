"""Executes read plans: devices through the I/O engine, the DRAM tier by copies."""

import logging
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from kvstored.format.geometry import HEADER_BYTES
from kvstored.io.device import DeviceError
from kvstored.io.engine import IoEngine, IoRequest, Operation
from kvstored.io.memory import AlignedMemory
from kvstored.store.read.chunk_source import ChunkSource, StoredChunk
from kvstored.store.read.fragments import coalesce, scatter
from kvstored.store.read.landings import Landing
from kvstored.store.read.lane import Lane, LaneSlot, Transfer
from kvstored.store.read.plan import Order, PlanLimits, plan_runs
from kvstored.store.read.read_stream import ReadStream
from kvstored.store.read.read_task import ReadTask
from kvstored.turnstile import TURNSTILE

LOGGER = logging.getLogger(__name__)
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
            threading.Thread(target=self._copy_queued, name=f"kvstored-copy-{number}", daemon=True)
            for number in range(limits.copy_depth)
        ]
        for thread in self._threads:
            thread.start()

    def start(
        self,
        task: ReadTask,
        *,
        order: Order,
        on_damage: Callable[[StoredChunk], None],
        on_finish: Callable[[ReadStream], None],
    ) -> ReadStream:
        """Plans and starts one read; returns at once. A window of 0 is the default one."""
        options = task.options
        plan = plan_runs(
            lanes=[self._lane_of(source) for source in task.sources],
            geometries=[source.geometry if source else None for source in task.sources],
            order=order,
            first_layer=options.first_layer,
            layer_count=options.layer_count,
            limits=self._limits.plan,
        )
        stream = ReadStream(
            task,
            plan,
            window_bytes=options.window_bytes or self._limits.window_bytes,
            on_damage=on_damage,
            on_finish=on_finish,
        )
        stream.begin()
        for lane in stream.queues.lanes:
            self._lanes[lane].add(stream)
        return stream

    def cancel(self, stream: ReadStream) -> None:
        """Gives up what is not in flight."""
        stream.queues.cancel()
        self.give_up(stream)

    def give_up(self, stream: ReadStream) -> None:
        """Settles what is late, overtaken or cancelled, and is not in flight.

        Lanes look at this before each issue. A device that answers none of its transfers
        lets them issue nothing, so somebody must call this for reads whose time is over.
        """
        for lane in stream.queues.lanes:
            self._lanes[lane].give_up(stream)

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
        """Begins a transfer; one that cannot begin gives its slot back, and its run is missing."""
        try:
            self._engine.submit(self._request(lane, transfer))
        except Exception:
            LOGGER.exception("a read from device %d cannot begin; its chunk is a miss", lane)
            run = transfer.run
            release = partial(self._transferred, lane, transfer, is_pumped=True)
            transfer.stream.failed(Landing(run=run, fragments=(), payload=None, release=release))

    def _request(self, lane: int, transfer: Transfer) -> IoRequest:
        stream, run, slot = transfer.stream, transfer.run, transfer.slot
        task = stream.task
        payload_bytes = run.byte_count - (HEADER_BYTES if run.with_header else 0)
        fragments = task.fragments(run)
        payload: memoryview | None = None
        if payload_bytes > len(slot.bounce) or task.takes_transfers(run):
            arena = task.target.arena
            buffers = [arena[offset : offset + size] for offset, size in coalesce(fragments)]
        else:
            payload = slot.bounce[:payload_bytes]
            buffers = [payload] if payload_bytes else []
        if run.with_header:
            buffers.insert(0, slot.header)
        landing = Landing(
            run=run,
            fragments=fragments,
            payload=payload,
            release=partial(self._transferred, lane, transfer),
        )

        def done(error: DeviceError | None) -> None:
            if error is None:
                stream.landed(landing, bytes(slot.header) if run.with_header else b"")
            else:
                stream.failed(landing)
                self._on_device_error(lane, error)

        return IoRequest(
            device_index=lane,
            operation=Operation.READ,
            buffers=tuple(buffers),
            offset=task.stored(run).record.extent.offset + run.start,
            done=done,
        )

    def _issue_copy(self, _lane: int, transfer: Transfer) -> None:
        """Copies a small read at once: waking a thread would take longer than the copy."""
        if transfer.stream.task.copy_bytes <= INLINE_COPY_BYTES_MAX:
            self._copy(transfer, is_pumped=True)
        else:
            self._copies.put(transfer)

    def _copy_queued(self) -> None:
        while (transfer := self._copies.get()) is not None:
            try:
                self._copy(transfer)
            except Exception:
                LOGGER.exception("the end of a copy from DRAM failed")
            # No view of an arena outlives its copy while this waits for the next one.
            del transfer

    def _copy(self, transfer: Transfer, *, is_pumped: bool = False) -> None:
        """Copies a run from its frame to the arena; see ``_transferred``.

        One that cannot be copied is missing: the thread and the slot serve others.
        """
        stream, run = transfer.stream, transfer.run
        task, source = stream.task, stream.task.framed(run)
        is_copied = False
        try:
            starts = source.geometry.slice_offsets[run.first_layer : run.end_layer]
            slices = zip(starts, task.fragments(run), strict=True)
            # Many copies after each other keep the interpreter from small calls.
            pause = None if is_pumped else TURNSTILE.give_way
            scatter(source.frame, task.target.arena, slices, pause=pause)
            is_copied = True
        except Exception:
            LOGGER.exception("a chunk cannot be copied from DRAM and is a miss")
        self._transferred(self._dram_lane, transfer, is_pumped=is_pumped)
        stream.copied(run, is_sound=is_copied)

    def _transferred(self, lane: int, transfer: Transfer, *, is_pumped: bool = False) -> None:
        """Gives back what a transfer used, and issues what may go on now.

        ``is_pumped``: the lane's own pump waits for this transfer and goes on after it. Were the
        lane pumped here too, every run would lie some calls deeper than the one before it.
        """
        self._lanes[lane].done(transfer)
        if transfer.stream.queues.release(lane, transfer.run):
            self._pump_others(lane, transfer.stream.queues.lanes)
        if not is_pumped:
            self._lanes[lane].pump()

    def _pump_others(self, lane: int, lanes: tuple[int, ...]) -> None:
        """Pumps all lanes of a read but one, which has its turn last: a small window goes round."""
        place = lanes.index(lane)
        for other in lanes[place + 1 :] + lanes[:place]:
            self._lanes[other].pump()
