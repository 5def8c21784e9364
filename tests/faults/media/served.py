"""An open store, asked by chunk numbers; every byte that it serves is compared.

What a chunk holds follows from its number and its version. A version is counted up when a
chunk is stored again, so that old bytes of the same key differ from the new ones.
"""

import queue
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from kvstored.format.chunk_record import ChunkRecord
from kvstored.format.identity import ChunkId
from kvstored.io.device import DeviceError
from kvstored.io.engine import IoEngine, IoRequest
from kvstored.store.check.check_report import CheckReport
from kvstored.store.check.offline_check import check_store
from kvstored.store.index.index import Index
from kvstored.store.read.placement import Placement
from kvstored.store.read.plan import Order
from kvstored.store.space.chunk_table import ChunkTable
from kvstored.store.space.device_set import DeviceSet
from kvstored.tiers.chunks.damage import DamageControl
from kvstored.tiers.chunks.frame import FrameState
from kvstored.tiers.chunks.requests import NewChunk, PutRequest, PutTicket, ReadRequest
from kvstored.tiers.tiered_store import TieredStore
from kvstored_contract.board import Board, SliceState, board_bytes
from kvstored_contract.layout import LayerState, StateKind, StateLayout
from kvstored_contract.reasons import Reason
from tests.support.stores import NAMESPACE, key
from tests.support.waiting import PATIENCE_S

MIB = 1024 * 1024
ARENA_BYTES = 4 * MIB
LAYERS = 4
LAYOUT = StateLayout(
    model="media",
    dtype="float32",
    layers=(LayerState(StateKind.KV, 512),) * (LAYERS - 1) + (LayerState(StateKind.KV, 500),),
    chunk_tokens=16,
)
"""Three slices of 8192 bytes and one of 8000, so that there is padding."""
ENCODED_FIRST = 1_000_000
"""Chunks from this number on are of a layout with a codec: their slices differ in length."""
ENCODED = replace(LAYOUT, model="encoded media", codec="lab")
STRIDE = LAYOUT.layer_stride
CHUNK_BYTES = LAYERS * STRIDE
EXTENT_BYTES = 4096 + CHUNK_BYTES
UNTOUCHED = 0xEE
RESIDENT = SliceState.RESIDENT
CALM_LOOKS = 3


class WrongBytesError(AssertionError):
    """The store has served bytes that were not stored under that key."""


class HangError(AssertionError):
    """A read did not end, or a put was not settled."""


def layout_of(number: int) -> StateLayout:
    """The layout of a chunk."""
    return ENCODED if number >= ENCODED_FIRST else LAYOUT


def lengths_of(number: int, version: int = 0) -> tuple[int, ...]:
    """Bytes of each slice of a chunk."""
    most = [LAYOUT.slice_bytes(layer) for layer in range(LAYERS)]
    if layout_of(number) == LAYOUT:
        return tuple(most)
    lengths = np.random.default_rng((number, version, 1)).integers(1, most, endpoint=True)
    return tuple(lengths.tolist())


def payload(number: int, version: int = 0) -> bytes:
    """What chunk ``number`` holds: layers at their strides, padding zeroed."""
    data = bytearray(np.random.default_rng((number, version)).bytes(CHUNK_BYTES))
    for layer, length in enumerate(lengths_of(number, version)):
        end = layer * STRIDE + length
        data[end : (layer + 1) * STRIDE] = bytes((layer + 1) * STRIDE - end)
    return bytes(data)


def slices_of(number: int, version: int = 0) -> list[bytes]:
    """The slices of chunk ``number``."""
    data = payload(number, version)
    return [
        data[layer * STRIDE :][:length] for layer, length in enumerate(lengths_of(number, version))
    ]


def chunk_id(number: int) -> ChunkId:
    """The chunk's name in the store."""
    return ChunkId(NAMESPACE, key(number))


@dataclass(slots=True, kw_only=True)
class ServedStore:
    """A store with an arena.

    ``versions`` tells which version of a chunk is put, and what a read must give of it.
    Where that is not so simple, ``may_be`` has all versions that it may give, and none
    of a chunk that is not in it. ``grown`` has the slices of chunks that sequences made.
    """

    store: TieredStore
    device_set: DeviceSet
    index: Index
    table: ChunkTable
    arena: memoryview
    versions: dict[int, int] = field(default_factory=dict)
    may_be: dict[int, set[int]] | None = None
    grown: dict[int, list[bytes]] = field(default_factory=dict)
    stops_cleanly: bool = False

    def put(
        self, numbers: Sequence[int], *, stripes: Sequence[int] = (), timeout_s: float = PATIENCE_S
    ) -> list[PutTicket]:
        """Puts chunks in the versions that ``versions`` tells; by default chunk n on device n.

        All are of the first one's layout.
        """
        layout = layout_of(numbers[0])
        for slot, number in enumerate(numbers):
            data = payload(number, self.versions.get(number, 0))
            self.arena[slot * CHUNK_BYTES : (slot + 1) * CHUNK_BYTES] = data
        return self.store.put_path.put(
            PutRequest(
                namespace_id=NAMESPACE,
                layout=layout,
                chunks=tuple(
                    NewChunk(
                        key(number),
                        b"",
                        layout.chunk_tokens,
                        stripe,
                        lengths_of(number, self.versions.get(number, 0))
                        if layout.is_encoded
                        else (),
                    )
                    for number, stripe in zip(numbers, stripes or numbers, strict=True)
                ),
                source=self.arena,
                placement=Placement(base=0, layer_stride=STRIDE, chunk_stride=CHUNK_BYTES),
                deadline=time.monotonic() + timeout_s,
            )
        )

    def put_settled(self, numbers: Sequence[int], **options: object) -> list[Reason]:
        """Puts and waits; for each chunk why it is not durable, or UNSPECIFIED."""
        return [settled(ticket) for ticket in self.put(numbers, **options)]  # type: ignore[arg-type]

    def put_durable(self, numbers: Sequence[int], **options: object) -> None:
        """Puts chunks that must become durable."""
        reasons = self.put_settled(numbers, **options)
        assert reasons == [Reason.UNSPECIFIED] * len(numbers), reasons

    def delete(self, numbers: Iterable[int]) -> int:
        """Deletes chunks and waits; returns how many there were."""
        return self.store.delete(NAMESPACE, list(map(key, numbers))).result(PATIENCE_S)

    def forget_dram(self, numbers: Iterable[int]) -> None:
        """Leaves the chunks on the devices only."""
        for number in numbers:
            self.store._dram.drop(chunk_id(number))

    def read(
        self,
        numbers: Sequence[int],
        *,
        order: Order = Order.TAIL_FIRST,
        first_layer: int = 0,
        layer_count: int = LAYERS,
        takes_transfers: bool = False,
        timeout_s: float = PATIENCE_S,
    ) -> np.ndarray:
        """Reads, compares every resident byte, and returns the board's states.

        Shape [chunk, layer]. All chunks are of the first one's layout. Raises
        WrongBytesError, or HangError when the read outlives its deadline.
        """
        layout = layout_of(numbers[0])
        board = new_board(len(numbers), layer_count, layout)
        stride = layer_count * STRIDE
        self.arena[: len(numbers) * stride] = bytes([UNTOUCHED]) * (len(numbers) * stride)
        stream = self.store.read_path.read(
            ReadRequest(
                namespace_id=NAMESPACE,
                layout=layout,
                keys=tuple(map(key, numbers)),
                order=order,
                first_layer=first_layer,
                layer_count=layer_count,
                arena=self.arena,
                takes_transfers=takes_transfers,
                placement=Placement(base=0, layer_stride=STRIDE, chunk_stride=stride),
                board=board,
                notify=lambda: None,
                window_bytes=0,
                deadline=time.monotonic() + timeout_s,
            )
        )
        if not stream.wait(timeout_s):
            raise HangError(f"a read of {numbers} outlives its deadline")
        for slot, number in enumerate(numbers):
            lengths = None if board.lengths is None else board.lengths[slot]
            self._compare(number, slot * stride, first_layer, board.states[slot], lengths)
        return board.states.copy()

    def whole(self, numbers: Sequence[int], **options: object) -> set[int]:
        """Those of the chunks that a read gives whole; raises for wrong bytes."""
        states = self.read(numbers, **options)  # type: ignore[arg-type]
        is_whole = (states == RESIDENT).all(axis=1)
        return {number for number, is_there in zip(numbers, is_whole, strict=True) if is_there}

    def records(self) -> dict[int, ChunkRecord]:
        """Every chunk in service, by its number."""
        return {
            int.from_bytes(chunk.key, "big"): record for chunk, record in self.index.walks.records()
        }

    def counter(self, name: str) -> int:
        """One of the store's counters."""
        return self.store.inspection.stats().counters.get(name, 0)

    def check(self) -> CheckReport:
        """What the offline check says of the media as they are now."""
        return check_store(self.index, self.device_set, lambda *_: None)

    def assert_released(self) -> None:
        """Nothing is pinned, on its way or held, in memory or on a device, that should not be."""
        store, dram = self.store._store, self.store._dram
        quiesce(self)
        assert not store.pins.count, store.pins._pins
        assert not store.writes._under_way, store.writes._under_way
        assert not store._deleting, store._deleting
        frames = list(dram._frames.values())
        assert all(frame.state is FrameState.CLEAN and not frame.pins for frame in frames), frames
        assert sum(frame.extent.byte_count for frame in frames) == dram.space.used_bytes
        held = [record.extent for record in self.records().values()]
        held += [record.extent for _, record in self.index.walks.quarantined()]
        for device in range(len(self.device_set.devices)):
            if device not in store.failures.devices:
                used_bytes = sum(e.byte_count for e in held if e.device_index == device)
                assert store.extents.used_bytes(device) == used_bytes, (
                    f"extents of device {device} leak"
                )

    def _compare(
        self,
        number: int,
        start: int,
        first_layer: int,
        states: np.ndarray,
        lengths: np.ndarray | None,
    ) -> None:
        if SliceState.PENDING in states:
            raise HangError(f"a layer of chunk {number} was never settled")
        resident = [first_layer + int(place) for place in np.flatnonzero(states == RESIDENT)]
        versions = {self.versions.get(number, 0)}
        if self.may_be is not None:
            versions = self.may_be.get(number, set())
        if resident and not any(
            self._holds(number, version, start, first_layer, resident, lengths)
            for version in versions
        ):
            raise WrongBytesError(f"layers {resident} of chunk {number}, versions {versions}")

    def _holds(
        self,
        number: int,
        version: int,
        start: int,
        first_layer: int,
        layers: list[int],
        lengths: np.ndarray | None,
    ) -> bool:
        """Whether these layers of what was read to ``start`` are those of a version."""
        expected = self.grown.get(number) or slices_of(number, version)
        for layer in layers:
            part = expected[layer]
            place = start + (layer - first_layer) * STRIDE
            if lengths is not None and lengths[layer - first_layer] != len(part):
                return False
            if self.arena[place : place + len(part)] != part:
                return False
        return True


def new_board(chunk_count: int, layer_count: int, layout: StateLayout) -> Board:
    """A cleared board in memory of its own."""
    has_lengths = layout.is_encoded
    size = board_bytes(chunk_count=chunk_count, layer_count=layer_count, has_lengths=has_lengths)
    return Board(
        memoryview(bytearray(size)),
        chunk_count=chunk_count,
        layer_count=layer_count,
        has_lengths=has_lengths,
    )


def settled(ticket: PutTicket) -> Reason:
    """Why a put chunk is not durable, or UNSPECIFIED."""
    if ticket.durable is None:
        return ticket.reason
    try:
        return ticket.durable.result(PATIENCE_S)
    except TimeoutError:
        raise HangError("a put is not settled") from None


class CountingEngine:
    """Implements ``IoEngine`` around another one; counts requests until their completion ends."""

    def __init__(self, inner: IoEngine) -> None:
        self._inner = inner
        self._lock = threading.Lock()
        self.in_flight = 0

    def submit(self, request: IoRequest) -> None:
        self._count(1)

        def done(error: DeviceError | None) -> None:
            try:
                request.done(error)
            finally:
                self._count(-1)

        try:
            self._inner.submit(replace(request, done=done))
        except BaseException:
            self._count(-1)
            raise

    def close(self) -> None:
        self._inner.close()

    def _count(self, change: int) -> None:
        with self._lock:
            self.in_flight += change


def quiesce(served: ServedStore) -> None:
    """Waits until no thread of the store has anything to do."""
    deadline = time.monotonic() + PATIENCE_S
    calm_looks = 0
    while calm_looks < CALM_LOOKS:
        calm_looks = 0 if is_busy(served.store) else calm_looks + 1
        if time.monotonic() > deadline:
            raise HangError("the store does not come to rest")
        time.sleep(0.001)


def is_busy(store: TieredStore) -> bool:
    """Whether anything is under way; in the order in which one thing gives work to the next."""
    assert isinstance(store._promoter._loader._engine, CountingEngine)
    damage = getattr(store.read_path._on_damage, "__self__", None)
    assert isinstance(damage, DamageControl)
    return bool(
        store._promoter._loader._engine.in_flight
        or not waits_for_work(damage._work._thread, damage._work._queue)
        or not waits_for_work(store._promoter._work._thread, store._promoter._work._queue)
        or store._store.pins.count
        or store._store.writes._under_way
        or store._store._deleting
        or any(
            frame.pins or frame.state is not FrameState.CLEAN
            for frame in list(store._dram._frames.values())
        )
    )


def waits_for_work(thread: threading.Thread, work: "queue.Queue[Any]") -> bool:
    """Whether a thread stands in ``get`` of its empty queue.

    A look at the queue alone would not do: a thread that has taken the last thing from it may get
    no processor for a while before it marks anything.
    """
    frame = sys._current_frames().get(thread.ident or 0)
    return (
        work.empty()
        and frame is not None
        and frame.f_code is threading.Condition.wait.__code__
        and frame.f_back is not None
        and frame.f_back.f_code is queue.Queue.get.__code__
    )
