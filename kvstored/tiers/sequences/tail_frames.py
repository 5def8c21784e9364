"""Frames of open tails: filled from stored chunks, copied, and flushed as short chunks."""

import time
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass

from kvstored.deadlines import remaining_s
from kvstored.format.extent_header import SliceSum
from kvstored.format.geometry import ChunkGeometry
from kvstored.format.identity import ChunkId
from kvstored.io.device import DeviceError
from kvstored.io.engine import IoEngine
from kvstored.store.read.chunk_source import StoredChunk
from kvstored.store.read.fragments import copy
from kvstored.store.write.append_rows import head_moves
from kvstored.store.write.chunk_store import ChunkStore
from kvstored.tiers.chunks.dram import DramTier
from kvstored.tiers.chunks.extent_load import load_extent, outcome_of
from kvstored.tiers.chunks.frame import Frame, OpenFrame
from kvstored.tiers.chunks.requests import ROOM_WAIT_S, NewChunk, PutTicket
from kvstored.tiers.chunks.stager import STORED_BEFORE, Stager, WantedChunk, slice_sums
from kvstored_contract.layout import StateLayout
from kvstored_contract.reasons import Reason


@dataclass(frozen=True, slots=True, eq=False)
class TailLoad:
    """A short chunk on its way into an open frame; ``end`` or ``give_up`` must follow."""

    source: StoredChunk
    opened: OpenFrame
    token_count: int
    landed: Future[DeviceError | None]


class TailFrames:
    """Thread-safe; nothing waits for room in DRAM."""

    def __init__(
        self, *, store: ChunkStore, dram: DramTier, engine: IoEngine, stager: Stager
    ) -> None:
        self._store = store
        self._dram = dram
        self._engine = engine
        self._stager = stager
        self._late: set[ChunkId] = set()
        """Tails whose reads were not over by a deadline: a device that hangs keeps a frame each."""

    def load(
        self, chunk: ChunkId, layout: StateLayout, token_count: int, *, deadline: float
    ) -> OpenFrame | Reason:
        """An open frame with the first tokens of a stored chunk, verified; or why not.

        Waits for the device unless the chunk is in DRAM, until ``deadline`` on the monotonic
        clock; then the reason is DEADLINE. Raises IndexFailure.
        """
        begun = self.begin(chunk, layout, token_count, deadline=deadline)
        return self.end(begun, deadline) if isinstance(begun, TailLoad) else begun

    def begin(
        self, chunk: ChunkId, layout: StateLayout, token_count: int, *, deadline: float
    ) -> "TailLoad | OpenFrame | Reason":
        """As ``load``, but a device is not waited for: what it was asked for must be ended."""
        if chunk in self._late:
            return Reason.DEADLINE
        opened = self._dram.open_frames.open(layout, chunk.namespace_id)
        if opened is None:
            return Reason.DRAM_FULL
        try:
            begun = self._begin_fill(opened, chunk, token_count, deadline)
        except BaseException:
            self._dram.open_frames.close(opened)
            raise
        if isinstance(begun, TailLoad):
            return begun
        if begun is not Reason.UNSPECIFIED:
            self._dram.open_frames.close(opened)
            return begun
        return opened

    def end(self, load: "TailLoad", deadline: float) -> OpenFrame | Reason:
        """What has become of a load at ``deadline``: as ``load``."""
        opened = load.opened
        try:
            reads = self._reads(load, deadline)
            reason = outcome_of(load.source, opened.view, reads, self._store.counters)
            if reason is Reason.UNSPECIFIED:
                move_head(
                    opened.layout,
                    opened.view,
                    opened.view,
                    source_tokens=load.source.record.token_count,
                    target_tokens=opened.layout.chunk_tokens,
                    token_count=load.token_count,
                )
        except _LateError as late:
            self._leave_to_device(load, late.landed)
            return Reason.DEADLINE
        except BaseException:
            self._dram.open_frames.close(opened)
            raise
        finally:
            self._store.pins.unpin([load.source.chunk])
        if reason is Reason.UNSPECIFIED:
            return opened
        self._dram.open_frames.close(opened)
        if reason is Reason.CHECKSUM:
            self._store.quarantine(load.source.chunk, load.source.record)
        return reason

    def give_up(self, begun: "TailLoad | OpenFrame | Reason") -> None:
        """Ends what ``begin`` began, and that nobody wants any more."""
        if isinstance(begun, OpenFrame):
            self._dram.open_frames.close(begun)
        elif isinstance(begun, TailLoad):
            self._leave_to_device(begun, begun.landed)
            self._store.pins.unpin([begun.source.chunk])

    def _leave_to_device(self, load: "TailLoad", landed: Future[DeviceError | None]) -> None:
        """The device may still write to the frame: it is free when that has answered."""
        chunk = load.source.chunk
        self._late.add(chunk)
        landed.add_done_callback(lambda _: self._end_late(chunk, load.opened))

    def _end_late(self, chunk: ChunkId, opened: OpenFrame) -> None:
        self._dram.open_frames.close(opened)
        self._late.discard(chunk)

    def close(self, opened: OpenFrame | None) -> None:
        """Gives back an open frame, if it is one."""
        if opened is not None:
            self._dram.open_frames.close(opened)

    def copied(self, source: OpenFrame) -> OpenFrame | None:
        """Another frame with the same bytes; None when there is no room."""
        opened = self._dram.open_frames.open(source.layout, source.namespace_id)
        if opened is not None:
            copy(opened.view, source.view)
        return opened

    def flush(
        self, namespace_id: bytes, opened: OpenFrame, new: NewChunk, *, deadline: float
    ) -> PutTicket:
        """Stores the first ``new.token_count`` tokens of an open frame as a short chunk.

        The frame stays open. Waits for room on the devices until ``deadline``, on the monotonic
        clock, at most ROOM_WAIT_S. Raises IndexFailure.
        """
        layout, chunk = opened.layout, ChunkId(namespace_id, new.key)
        now = time.monotonic()
        deadline = min(deadline, now + ROOM_WAIT_S)
        if self._stager.are_stored([chunk]) == [True]:
            return STORED_BEFORE

        def fill(frame: Frame) -> tuple[SliceSum, ...]:
            move_head(
                layout,
                opened.view,
                frame.view,
                source_tokens=layout.chunk_tokens,
                target_tokens=new.token_count,
                token_count=new.token_count,
            )
            return slice_sums(frame)

        wanted = WantedChunk(
            chunk=chunk, new=new, layout=layout, deadline=deadline, frame_deadline=now
        )
        ticket = self._stager.put(wanted, fill)
        frames = self._dram.open_frames
        while ticket.reason is Reason.DRAM_FULL and frames.let_go(
            frames.helps(namespace_id, wanted.class_bytes)
        ):
            ticket = self._stager.put(wanted, fill)
        return ticket

    def _begin_fill(
        self, opened: OpenFrame, chunk: ChunkId, token_count: int, deadline: float
    ) -> "TailLoad | Reason":
        """UNSPECIFIED where DRAM had the chunk: then the frame is filled."""
        frame = self._dram.pin(chunk)
        if frame is None:
            return self._ask_device(opened, chunk, token_count, deadline)
        try:
            layout = opened.layout
            frame_tokens = sum(frame.geometry.slice_bytes) // layout.chunk_bytes(1)
            if frame.layout_id != layout.layout_id or frame_tokens < token_count:
                return Reason.NOT_STORED
            move_head(
                layout,
                frame.view,
                opened.view,
                source_tokens=frame_tokens,
                target_tokens=layout.chunk_tokens,
                token_count=token_count,
            )
        finally:
            self._dram.unpin([frame])
        return Reason.UNSPECIFIED

    def _ask_device(
        self, opened: OpenFrame, chunk: ChunkId, token_count: int, deadline: float
    ) -> "TailLoad | Reason":
        """A load of a chunk that stays pinned until it is ended, or why there is none."""
        self._store.pins.pin([chunk])
        begun: TailLoad | Reason = Reason.INTERNAL
        try:
            begun = self._asked(opened, chunk, token_count, deadline)
        finally:
            if isinstance(begun, Reason):
                self._store.pins.unpin([chunk])
        return begun

    def _asked(
        self, opened: OpenFrame, chunk: ChunkId, token_count: int, deadline: float
    ) -> "TailLoad | Reason":
        layout = opened.layout
        (record,) = self._store.find([chunk])
        if record is None and self._is_on_failed_device(chunk):
            return Reason.DEVICE_FAILED
        if record is None or record.layout_id != layout.layout_id:
            return Reason.NOT_STORED
        if not token_count <= record.token_count <= layout.chunk_tokens:
            return Reason.NOT_STORED
        geometry = ChunkGeometry.of(layout, record.token_count)
        if time.monotonic() >= deadline:
            return Reason.DEADLINE
        source = self._store.source(chunk, record, geometry)
        landed = load_extent(self._engine, source, opened.view, background=None)
        return TailLoad(source, opened, token_count, landed)

    def _reads(self, load: "TailLoad", deadline: float) -> Iterator[DeviceError | None]:
        """How the read under way ended, and each further one; raises _LateError."""
        landed = load.landed
        while True:
            yield _error_by(landed, deadline)
            landed = load_extent(self._engine, load.source, load.opened.view, background=None)

    def _is_on_failed_device(self, chunk: ChunkId) -> bool:
        """Whether a chunk that is not visible will be so again with its device."""
        record = self._store.index.get(chunk)
        return record is not None and record.extent.device_index in self._store.failures.devices


class _LateError(Exception):
    """A transfer that was not over at the deadline."""

    def __init__(self, landed: Future[DeviceError | None]) -> None:
        super().__init__()
        self.landed = landed


def _error_by(landed: Future[DeviceError | None], deadline: float) -> DeviceError | None:
    """How a transfer ended; raises _LateError where it has not by the deadline."""
    try:
        return landed.result(remaining_s(deadline))
    except TimeoutError:
        raise _LateError(landed) from None


def move_head(
    layout: StateLayout,
    source: memoryview,
    target: memoryview,
    *,
    source_tokens: int,
    target_tokens: int,
    token_count: int,
) -> None:
    """Copies the first tokens of a chunk to one of another length, which may be itself."""
    for start, end, byte_count in head_moves(
        layout, source_tokens=source_tokens, target_tokens=target_tokens, token_count=token_count
    ):
        copy(target[end : end + byte_count], source[start : start + byte_count])
