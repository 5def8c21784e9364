"""Slices that a thread decodes as they arrive."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from enum import IntEnum
from math import prod

import torch
from torch import Tensor

from engine_adapters.chunk_codec import ChunkCodec
from engine_adapters.codecs.errors import PayloadError
from engine_adapters.reading.arena_slices import ArenaSlices
from engine_adapters.reading.piece import tokens_of
from engine_adapters.reading.section import Section
from engine_adapters.reading.section_reads import SectionReads
from engine_adapters.reading.slice_format import SliceFormat
from kvstored_client import Order, Read, SliceState

LOGGER = logging.getLogger(__name__)

THREAD_NAME = "span-decoder"

LOOK_INTERVAL_S = 0.05
"""How often the thread looks whether it is still wanted."""


class _Slice(IntEnum):
    """What became of one slice."""

    PENDING = SliceState.PENDING
    DECODED = SliceState.RESIDENT
    MISSING = SliceState.MISSING


class DecodedSlices:
    """What a codec makes of a span's bytes, in private memory.

    Its thread takes the slices in the order in which they are read, and ends when none is
    pending any more. A slice that cannot be decoded is missing, and so is one that was reached
    before. ``close`` waits for the thread.
    """

    def __init__(
        self,
        reads: SectionReads,
        slice_format: SliceFormat,
        codec: ChunkCodec,
        *,
        spent: Callable[[float], None],
    ) -> None:
        """``spent`` hears on the thread of the processor's seconds of each slice."""
        self._reads = reads
        self._format = slice_format
        self._arena = ArenaSlices(reads, slice_format)
        self._codec = codec
        self._spent = spent
        layers = [
            layer
            for section in reads.sections
            for layer in range(section.first_layer, section.stop_layer)
        ]
        self._decoded = {
            layer: torch.empty(
                (reads.chunk_count, prod(slice_format.slice_shape(layer))),
                dtype=slice_format.dtype,
            )
            for layer in layers
        }
        self._slices = {layer: bytearray(reads.chunk_count) for layer in layers}
        self._layers_left = [len(layers)] * reads.chunk_count
        """Of each chunk, layers that are not decoded."""
        self._lost_chunks: set[int] = set()
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)
        self._thread.start()

    def state(self, chunk: int, layer: int | None = None) -> SliceState:
        """RESIDENT once it is decoded."""
        if layer is not None:
            return SliceState(self._slices[layer][chunk])
        if self._layers_left[chunk] == 0:
            return SliceState.RESIDENT
        is_lost = chunk in self._lost_chunks or self._arena.state(chunk) not in (
            SliceState.PENDING,
            SliceState.RESIDENT,
        )
        return SliceState.MISSING if is_lost else SliceState.PENDING

    def arrived_chunks(self, layer: int) -> int:
        """Those that are decoded."""
        found = bytes(self._slices[layer])
        return len(found) - len(found.lstrip(bytes((_Slice.DECODED,))))

    def wait(self, chunk: int, layer: int | None = None, *, timeout_s: float) -> None:
        """Waits for the board, and then for the thread."""
        reads = self._reads
        if layer is not None and reads.read_of(layer) is None:
            return
        deadline_s = time.monotonic() + timeout_s
        self._arena.wait(chunk, layer, timeout_s=timeout_s)
        with self._changed:
            self._changed.wait_for(
                lambda: self.state(chunk, layer) is not SliceState.PENDING,
                max(0.0, deadline_s - time.monotonic()),
            )

    def view(self, layer: int, chunks: range) -> Tensor:
        """Aliases private memory."""
        return self._place(layer, chunks)

    def close(self) -> None:
        """Ends the thread and frees the memory, even where somebody still knows the span."""
        self._thread.join()
        self._decoded = {}

    def _place(self, layer: int, chunks: range) -> Tensor:
        shape = self._format.slice_shape(layer, tokens_of(self._reads.pieces, chunks))
        flat = self._decoded[layer][chunks.start : chunks.stop, : prod(shape)]
        return flat.view(len(chunks), *shape)

    def _run(self) -> None:
        reads = self._reads
        try:
            for number, section in enumerate(reads.sections):
                read = self._started(number)
                if read is None:
                    break
                for layer, chunk in _in_order(section, reads.chunk_count, reads.order):
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
        reads = self._reads
        with reads.changed:
            reads.changed.wait_for(
                lambda: len(reads.started) > number or reads.is_given_up or reads.is_cancelled
            )
            return reads.started[number] if len(reads.started) > number else None

    def _has_arrived(self, read: Read, chunk: int, layer: int) -> bool:
        """Whether a slice is there, once that is known; ``layer`` counts from the read's first."""
        reads = self._reads
        state = SliceState.PENDING
        while state is SliceState.PENDING and not reads.is_cancelled:
            read.wait_for(chunk, layer, LOOK_INTERVAL_S)
            state = read.state(chunk, layer)
        is_wanted = chunk >= reads.reached_chunks and not reads.is_cancelled
        return state is SliceState.RESIDENT and is_wanted

    def _decode(self, read: Read, section: Section, layer: int, chunk: int) -> bool:
        """Whether the bytes of a slice could be decoded."""
        byte_count = read.slice_bytes(chunk, layer - section.first_layer)
        if byte_count is None:
            return False
        first = self._reads.offset_of(layer, chunk)
        started_s = time.thread_time()
        try:
            payload = self._reads.region.view[first : first + byte_count]
            self._codec.decode(layer, payload, self._place(layer, range(chunk, chunk + 1))[0])
        except PayloadError as error:
            LOGGER.warning("a stored slice of layer %d is computed again: %s", layer, error)
            return False
        finally:
            self._spent(time.thread_time() - started_s)
        return True

    def _note(self, layer: int, chunk: int, result: _Slice) -> None:
        with self._changed:
            # First: who sees the slice, without the lock, asks then whether its chunk is lost.
            if result is not _Slice.DECODED:
                self._lost_chunks.add(chunk)
            self._slices[layer][chunk] = result
            if result is _Slice.DECODED:
                self._layers_left[chunk] -= 1
            self._changed.notify_all()


def _in_order(section: Section, chunk_count: int, order: Order) -> Iterator[tuple[int, int]]:
    """Layers and chunks of a section's slices as a read of that order brings them."""
    layers = range(section.first_layer, section.stop_layer)
    if order is Order.LAYER_FIRST:
        yield from ((layer, chunk) for layer in layers for chunk in range(chunk_count))
        return
    chunks = range(chunk_count) if order is Order.HEAD_FIRST else reversed(range(chunk_count))
    yield from ((layer, chunk) for chunk in chunks for layer in layers)
