"""A read of the in-memory store: what has come of it is what a test lets come."""

import threading
import time
from collections.abc import Callable, Iterable

from engine_adapters.runner.decoded_span import THREAD_NAME as DECODER
from kvstored_client import ReadReport
from kvstored_contract.board import SliceState


class FakeRead:
    """A read that was settled when it was asked for, or hangs until it is closed.

    A layer of one that ``is_slow`` looks settled only after it was waited for. Where it also
    ``comes_in_pieces``, each wait brings the slice that was waited for and one from the end,
    as from two devices, and only what is pending may be waited for.

    ``slices[chunk][layer]`` tells which slices are resident, from the read's first layer on,
    ``lengths`` how long they are.
    """

    def __init__(
        self,
        slices: list[list[bool]],
        *,
        lengths: list[list[int]],
        chunk_bytes: int,
        hangs: bool,
        is_slow: bool,
        comes_in_pieces: bool,
        lost_as: SliceState,
        wait_lock: threading.Lock,
        on_wait: Callable[[], None],
        on_close: Callable[[], None],
    ) -> None:
        self._slices = slices
        self._lengths = lengths
        self._chunk_bytes = chunk_bytes
        self._hangs = hangs
        self._is_slow = is_slow
        self._comes_in_pieces = comes_in_pieces
        self._lost_as = lost_as
        self._waited_slices: set[tuple[int, int]] = set()
        self._wait_lock = wait_lock
        self._on_wait = on_wait
        self._on_close = on_close

    @property
    def finished(self) -> bool:
        return not self._hangs

    def report(self) -> ReadReport:
        resident = tuple(all(layers) for layers in self._slices)
        return ReadReport(
            resident=resident,
            resident_prefix=next(
                (index for index, whole in enumerate(resident) if not whole), len(resident)
            ),
            device_bytes=sum(resident) * self._chunk_bytes,
            dram_bytes=0,
            finished=self.finished,
        )

    def is_layer_settled(self, layer: int) -> bool:
        if self._hangs:
            return all(layers[layer] for layers in self._slices)
        return all(self._has_come(chunk, layer) for chunk in range(len(self._slices)))

    def is_chunk_settled(self, chunk: int) -> bool:
        return not self._hangs or all(self._slices[chunk])

    def is_resident(self, chunk: int, layer: int | None = None) -> bool:
        layers = self._slices[chunk]
        if layer is None:
            return all(layers)
        return layers[layer] and (self._hangs or self._has_come(chunk, layer))

    def advance(self, pointer: int) -> None:
        assert 0 <= pointer <= len(self._slices)

    def cancel(self) -> None:
        pass

    def state(self, chunk: int, layer: int) -> SliceState:
        if self.is_resident(chunk, layer):
            return SliceState.RESIDENT
        is_pending = self._hangs or not self._has_come(chunk, layer)
        return SliceState.PENDING if is_pending else self._lost_as

    def slice_bytes(self, chunk: int, layer: int) -> int | None:
        return self._lengths[chunk][layer] if self.is_resident(chunk, layer) else None

    def wait_for(self, chunk: int, layer: int | None = None, timeout_s: float = 0.0) -> bool:
        assert timeout_s >= 0
        if threading.current_thread().name == DECODER and not self.is_resident(chunk, layer):
            time.sleep(0.001)
        if layer is not None:
            count = len(self._slices)
            if self._comes_in_pieces:
                assert self.state(chunk, layer) is SliceState.PENDING, "a busy loop"
                self._wait_once(layer, [chunk, count - 1 - chunk])
            else:
                self._wait_once(layer, range(count))
        return self.is_resident(chunk, layer)

    def wait_layer(self, layer: int, timeout_s: float) -> bool:
        assert timeout_s >= 0
        self._wait_once(layer, range(len(self._slices)))
        return all(layers[layer] for layers in self._slices)

    def close(self) -> None:
        self._on_close()

    def _has_come(self, chunk: int, layer: int) -> bool:
        return not self._is_slow or (chunk, layer) in self._waited_slices

    def _wait_once(self, layer: int, chunks: Iterable[int]) -> None:
        # A reader's thread waits beside the engine's: nobody goes on before a fault has happened.
        with self._wait_lock:
            slices = {(chunk, layer) for chunk in chunks}
            if not slices <= self._waited_slices:
                self._waited_slices |= slices
                self._on_wait()
