"""A fake client whose reads bring chunks, or layers, only when the test says so."""

import threading
from collections.abc import Sequence
from typing import Any

from engine_adapters.runner.decoded_span import THREAD_NAME as DECODER
from engine_adapters.runner.span_reader import THREAD_NAME
from kvstored_client import Order, Placement, ReadReport, Region, StateLayout
from kvstored_contract.board import SliceState
from tests.engine_adapters.runner.fake_client import FakeClient, FakeStore


class StreamedRead:
    """States of slices as on a board; all but ``deliver`` only looks or sets words."""

    def __init__(
        self,
        client: "StreamedClient",
        deliveries: list[Any],
        shape: tuple[int, int],
        lengths: list[list[int]],
    ) -> None:
        self._client = client
        self._lengths = lengths
        self._deliveries = deliveries
        chunk_count, layer_count = shape
        self.states = [[SliceState.PENDING] * layer_count for _ in range(chunk_count)]
        self.pointer = 0
        self.pointers: list[int] = []
        self.is_closed = False

    @property
    def finished(self) -> bool:
        self._look()
        return all(SliceState.PENDING not in row for row in self.states)

    def deliver(self) -> bool:
        """Brings the next chunk or layer; False when there is none."""
        while self._deliveries:
            places, bring = self._deliveries.pop(0)
            waiting = [place for place in places if self._is_pending(place)]
            if waiting:
                for chunk, layer in waiting:
                    is_reached = chunk < self.pointer
                    state = SliceState.SKIPPED if is_reached else bring(chunk, layer)
                    self.states[chunk][layer] = state
                return True
        return False

    def report(self) -> ReadReport:
        resident = tuple(self.is_resident(chunk) for chunk in range(len(self.states)))
        prefix = next((n for n, there in enumerate(resident) if not there), len(resident))
        return ReadReport(
            resident=resident,
            resident_prefix=prefix,
            device_bytes=sum(resident),
            dram_bytes=0,
            finished=self.finished,
        )

    def is_resident(self, chunk: int, layer: int | None = None) -> bool:
        row = self.states[chunk]
        return set(row if layer is None else row[layer : layer + 1]) == {SliceState.RESIDENT}

    def is_chunk_settled(self, chunk: int) -> bool:
        self._look()
        row = set(self.states[chunk])
        return row == {SliceState.RESIDENT} or bool(row - {SliceState.RESIDENT, SliceState.PENDING})

    def is_layer_settled(self, layer: int) -> bool:
        self._look()
        return all(row[layer] is not SliceState.PENDING for row in self.states)

    def advance(self, pointer: int) -> None:
        assert self.pointer <= pointer <= len(self.states)
        if pointer > self.pointer:
            self.pointers.append(pointer)
        self.pointer = pointer

    def cancel(self) -> None:
        self._settle(SliceState.SKIPPED)

    def state(self, chunk: int, layer: int) -> SliceState:
        self._look()
        return self.states[chunk][layer]

    def slice_bytes(self, chunk: int, layer: int) -> int | None:
        return self._lengths[chunk][layer] if self.is_resident(chunk, layer) else None

    def wait_for(self, chunk: int, layer: int | None = None, timeout_s: float = 0.0) -> bool:
        def is_settled() -> bool:
            if layer is None:
                return self.is_chunk_settled(chunk)
            return self.state(chunk, layer) is not SliceState.PENDING

        self._client.wait(is_settled, timeout_s)
        return self.is_resident(chunk, layer)

    def wait_layer(self, layer: int, timeout_s: float) -> bool:
        self._client.wait(lambda: self.is_layer_settled(layer), timeout_s)
        return all(row[layer] is SliceState.RESIDENT for row in self.states)

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self.cancel()
            self._client.reads_in_flight -= 1

    def _is_pending(self, place: tuple[int, int]) -> bool:
        chunk, layer = place
        return self.states[chunk][layer] is SliceState.PENDING

    def _look(self) -> None:
        if not self._client.alive:
            self._settle(SliceState.MISSING)

    def _settle(self, state: SliceState) -> None:
        with self._client.changed:
            for row in self.states:
                row[:] = [state if old is SliceState.PENDING else old for old in row]
            self._client.changed.notify_all()


class StreamedClient(FakeClient):
    """``deliver`` brings so many chunks, or layers of LAYER_FIRST reads, one read after another.

    Whoever waits on the engine's thread lets one arrive, so that waiting always ends;
    ``waits`` counts that. Keys in ``lost`` are missing when it is their turn, what comes of
    those in ``garbled`` is no payload of any codec, and after ``dies_after`` deliveries the
    session is lost. ``refused_bytes`` are the sizes for which a reader found no room.
    """

    def __init__(self, store: FakeStore, **options: Any) -> None:
        super().__init__(store, **options)
        self.changed = threading.Condition()
        self.reads: list[StreamedRead] = []
        self.lost: set[bytes] = set()
        self.garbled: set[bytes] = set()
        self.dies_after: int | None = None
        self.waits = 0
        self.refused_bytes: set[int] = set()
        self._delivered = 0

    def allocate(self, byte_count: int, *, connects: bool = True) -> Region | None:
        region = super().allocate(byte_count) if self.alive else None
        if region is None and threading.current_thread().name == THREAD_NAME:
            self.refused_bytes.add(byte_count)
        return region

    def read(
        self,
        layout: StateLayout,
        keys: Sequence[bytes],
        destination: Placement,
        *,
        order: Order,
        first_layer: int,
        layer_count: int,
        window_bytes: int = 0,
        timeout_ms: int,
    ) -> StreamedRead:
        assert timeout_ms > 0
        layers, chunks = range(layer_count), range(len(keys))

        def bring(chunk: int, layer: int) -> SliceState:
            self.missing_layers = {(key, first_layer + layer) for key in self.lost}
            place = Placement(
                regions=destination.regions,
                base=destination.base
                + layer * destination.layer_stride
                + chunk * destination.chunk_stride,
                layer_stride=0,
            )
            one = range(first_layer + layer, first_layer + layer + 1)
            (is_there,) = self._deliver(layout, one, keys[chunk], place, 0)
            if keys[chunk] in self.garbled:
                self._arena[place.base] ^= 0xFF
            return SliceState.RESIDENT if is_there else SliceState.MISSING

        if order is Order.LAYER_FIRST:
            places = [[(chunk, layer) for chunk in chunks] for layer in layers]
        else:
            places = [[(chunk, layer) for layer in layers] for chunk in reversed(chunks)]
        read = StreamedRead(
            self,
            [(each, bring) for each in places],
            (len(keys), layer_count),
            [self.lengths(key, range(first_layer, first_layer + layer_count)) for key in keys],
        )
        with self.changed:
            self.read_sizes.append(len(keys))
            self.orders.append(order)
            self.reads.append(read)
            self.reads_in_flight += 1
            self.changed.notify_all()
        return read

    def deliver(self, count: int) -> None:
        with self.changed:
            for _ in range(count):
                if self._delivered == self.dies_after and self.alive:
                    self.alive = False
                    # The next session's bytes may lie where this one's did.
                    self._arena[:] = b"\x7f" * len(self._arena)
                self._delivered += self.alive and any(read.deliver() for read in self.reads)
            self.changed.notify_all()

    def wait(self, is_settled: Any, timeout_s: float) -> None:
        if threading.current_thread().name in (THREAD_NAME, DECODER):
            with self.changed:
                self.changed.wait_for(is_settled, timeout_s)
        elif timeout_s > 0 and not is_settled():
            self.waits += 1
            self.deliver(1)

    def _read_closed(self) -> None:
        raise AssertionError("reads of this client count themselves")
