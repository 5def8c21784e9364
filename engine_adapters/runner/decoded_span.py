"""Chunks that a thread decodes as they arrive."""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum

import torch
from torch import Tensor

from engine_adapters.codecs.errors import PayloadError
from engine_adapters.runner.section import Section
from engine_adapters.runner.span import Span
from engine_adapters.runner.state_format import StateFormat
from kvstored_client import Client, Order, Read, Region, SliceState

LOGGER = logging.getLogger(__name__)

THREAD_NAME = "span-decoder"

LOOK_INTERVAL_S = 0.05
"""How often the thread looks whether it is still wanted."""


class _Slice(IntEnum):
    """What became of one slice."""

    PENDING = 0
    DECODED = 1
    MISSING = 2


class DecodedSpan(Span):
    """A span of a layout with a codec: what it shows as there is decoded, in private memory.

    Its thread takes the slices in the order in which they are read, and ends when none is
    pending any more. A slice that cannot be decoded is missing. The other methods are called
    as those of ``Span``; ``release`` waits for the thread too.
    """

    def __init__(
        self,
        client: Client,
        state_format: StateFormat,
        region: Region,
        *,
        keys: Sequence[bytes],
        first_chunk: int,
        order: Order,
        sections: Sequence[Section] | None = None,
    ) -> None:
        super().__init__(
            client,
            state_format,
            region,
            keys=keys,
            first_chunk=first_chunk,
            order=order,
            sections=sections,
        )
        assert state_format.codec is not None
        self._codec = state_format.codec
        layers = [
            layer
            for section in self._sections
            for layer in range(section.first_layer, section.stop_layer)
        ]
        self._decoded = {
            layer: torch.empty(
                (self.chunk_count, *state_format.slice_shape(layer)), dtype=state_format.dtype
            )
            for layer in layers
        }
        self._slices = {layer: bytearray(self.chunk_count) for layer in layers}
        self._layers_left = [len(layers)] * self.chunk_count
        """Of each chunk, layers that are not decoded."""
        self._chunks_left = dict.fromkeys(layers, self.chunk_count)
        """Of each layer, chunks that are neither decoded nor missing."""
        self._lost_chunks: set[int] = set()
        self._reached_chunks = 0
        self._is_unwanted = False
        self._decode_s = 0.0
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)
        self._thread.start()

    @property
    def is_finished(self) -> bool:
        """As ``Span``; the thread is over as well."""
        return super().is_finished and not self._thread.is_alive()

    @property
    def decode_s(self) -> float:
        """Processor's time of decoding so far."""
        return self._decode_s

    def start_read(self, timeout_ms: int) -> None:
        """As ``Span``."""
        super().start_read(timeout_ms)
        with self._changed:
            self._changed.notify_all()

    def give_up(self) -> None:
        """As ``Span``."""
        super().give_up()
        with self._changed:
            self._changed.notify_all()

    def resident_chunks(self) -> int:
        """As ``Span``."""
        with self._changed:
            return min(super().resident_chunks(), *self._lost_chunks, self.chunk_count)

    def is_resident(self, chunk: int) -> bool:
        """As ``Span``: decoded."""
        return self._layers_left[chunk] == 0

    def is_lost(self, chunk: int) -> bool:
        """As ``Span``."""
        return chunk in self._lost_chunks or super().is_lost(chunk)

    def is_layer_settled(self, layer: int) -> bool:
        """As ``Span``."""
        return self._chunks_left[layer] == 0

    def reach(self, chunk_count: int) -> None:
        """As ``Span``; what was reached is not decoded any more."""
        self._reached_chunks = chunk_count
        super().reach(chunk_count)

    def cancel(self) -> None:
        """As ``Span``; nothing more is decoded."""
        with self._changed:
            self._is_unwanted = True
            self._changed.notify_all()
        super().cancel()

    def wait_chunk(self, chunk: int, timeout_s: float) -> None:
        """As ``Span``."""
        deadline_s = time.monotonic() + timeout_s
        super().wait_chunk(chunk, timeout_s)
        self._wait(lambda: self.is_resident(chunk) or self.is_lost(chunk), deadline_s)

    def wait_layer(self, layer: int, timeout_s: float) -> int:
        """As ``Span``."""
        if not self.is_layer_asked_for(layer):
            return 0
        deadline_s = time.monotonic() + timeout_s
        super().wait_layer(layer, timeout_s)
        self._wait(lambda: self.is_layer_settled(layer), deadline_s)
        return self.arrived_chunks(layer)

    def wait_slice(self, layer: int, chunk: int, timeout_s: float) -> None:
        """As ``Span``."""
        deadline_s = time.monotonic() + timeout_s
        super().wait_slice(layer, chunk, timeout_s)
        self._wait(lambda: self._slices[layer][chunk] != _Slice.PENDING, deadline_s)

    def is_slice_lost(self, layer: int, chunk: int) -> bool:
        """As ``Span``."""
        return self._slices[layer][chunk] == _Slice.MISSING

    def arrived_chunks(self, layer: int) -> int:
        """As ``Span``."""
        found = self._slices[layer]
        present = next((n for n, each in enumerate(found) if each != _Slice.DECODED), len(found))
        return present if self.is_current else 0

    def states(self, layer: int, chunk_count: int, *, first_chunk: int = 0) -> Tensor:
        """As ``Span``, but aliases private memory."""
        return self._decoded[layer][first_chunk : first_chunk + chunk_count]

    def release(self) -> tuple[int, int]:
        """As ``Span``."""
        self.cancel()
        self._thread.join()
        # Whoever still knows this span keeps it, not the memory of its states.
        self._decoded = {}
        return super().release()

    def _wait(self, is_over: Callable[[], bool], deadline_s: float) -> None:
        with self._changed:
            self._changed.wait_for(is_over, max(0.0, deadline_s - time.monotonic()))

    def _run(self) -> None:
        try:
            for number, section in enumerate(self._sections):
                read = self._started(number)
                if read is None:
                    break
                for layer, chunk in _in_order(section, self.chunk_count, self._order):
                    is_decoded = self._has_arrived(
                        read, chunk, layer - section.first_layer
                    ) and self._decode(read, section, layer, chunk)
                    self._note(layer, chunk, _Slice.DECODED if is_decoded else _Slice.MISSING)
        except Exception:
            LOGGER.exception("decoding a history failed")
        finally:
            for layer, found in self._slices.items():
                for chunk, each in enumerate(found):
                    if each == _Slice.PENDING:
                        self._note(layer, chunk, _Slice.MISSING)

    def _started(self, number: int) -> Read | None:
        """The read of a section, once it was started; None when it never will be."""
        with self._changed:
            self._changed.wait_for(
                lambda: len(self._reads) > number or self._is_given_up or self._is_unwanted
            )
            return self._reads[number] if len(self._reads) > number else None

    def _has_arrived(self, read: Read, chunk: int, layer: int) -> bool:
        """Whether a slice is there, once that is known; ``layer`` counts from the read's first."""
        state = SliceState.PENDING
        while state is SliceState.PENDING and not self._is_unwanted:
            read.wait_for(chunk, layer, LOOK_INTERVAL_S)
            state = read.state(chunk, layer)
        return (
            state is SliceState.RESIDENT and chunk >= self._reached_chunks and not self._is_unwanted
        )

    def _decode(self, read: Read, section: Section, layer: int, chunk: int) -> bool:
        """Whether the bytes of a slice could be decoded."""
        number = layer - section.first_layer
        byte_count = read.slice_bytes(chunk, number)
        if byte_count is None:
            return False
        first = self._offset_of(section)
        first += (number * self.chunk_count + chunk) * section.slice_stride
        started_s = time.thread_time()
        try:
            payload = self._region.view[first : first + byte_count]
            self._codec.decode(layer, payload, self._decoded[layer][chunk])
        except PayloadError as error:
            LOGGER.warning("a stored slice of layer %d is computed again: %s", layer, error)
            return False
        finally:
            self._decode_s += time.thread_time() - started_s
        return True

    def _note(self, layer: int, chunk: int, result: _Slice) -> None:
        with self._changed:
            self._slices[layer][chunk] = result
            if result is _Slice.DECODED:
                self._layers_left[chunk] -= 1
            else:
                self._lost_chunks.add(chunk)
            self._chunks_left[layer] -= 1
            self._changed.notify_all()


def _in_order(section: Section, chunk_count: int, order: Order) -> Iterator[tuple[int, int]]:
    """Layers and chunks of a section's slices as a read of that order brings them."""
    layers = range(section.first_layer, section.stop_layer)
    if order is Order.LAYER_FIRST:
        yield from ((layer, chunk) for layer in layers for chunk in range(chunk_count))
        return
    chunks = range(chunk_count) if order is Order.HEAD_FIRST else reversed(range(chunk_count))
    yield from ((layer, chunk) for chunk in chunks for layer in layers)


def open_span(
    client: Client,
    state_format: StateFormat,
    region: Region,
    *,
    keys: Sequence[bytes],
    first_chunk: int,
    order: Order,
    sections: Sequence[Section] | None = None,
) -> Span:
    """A span of this layout: decoded if it has a codec. Parameters as those of ``Span``.

    Where it cannot be made the region is given back.
    """
    kind = Span if state_format.codec is None else DecodedSpan
    try:
        return kind(
            client,
            state_format,
            region,
            keys=keys,
            first_chunk=first_chunk,
            order=order,
            sections=sections,
        )
    except BaseException:
        region.release()
        raise
