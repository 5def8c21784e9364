"""Copies from and to a GPU, on streams of their own."""

import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from engine_adapters.device_copies.copies import Brought
from engine_adapters.device_copies.landing import Landing
from engine_adapters.device_copies.pinned_memory import PinnedMemory
from engine_adapters.device_copies.staging_ring import StagingRing

PIECE_BYTES = 1 << 25
"""Of what is gathered or scattered at once, while the piece beside it crosses the bus."""
WORD = torch.int64
"""What blocks are gathered in where they are made of whole ones: the kernels of PyTorch take an
item at a time, and as long for one byte as for eight."""


class _CudaLanding:
    """What a stream has launched up to now."""

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self._device = stream.device
        self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]  # torch has no types here
        self._event.record(stream)

    @property
    def is_over(self) -> bool:
        """Asks the event."""
        return bool(self._event.query())  # type: ignore[no-untyped-call]  # torch has no types here

    def wait(self) -> None:
        """Waits for the event, not for what was launched after it."""
        self._event.synchronize()

    def hold_engine(self) -> None:
        """The calling thread's stream waits for the event, on the GPU."""
        torch.cuda.current_stream(self._device).wait_event(self._event)

    def hold(self, stream: torch.cuda.Stream) -> None:
        """``stream`` waits for the event, on the GPU."""
        stream.wait_event(self._event)


class CudaCopies:
    """For one GPU: a stream for each direction, beside that of the engine.

    Blocks are gathered by the engine's stream itself, before it overwrites them, into memory of
    the GPU; from there a stream copies them out. What comes in is copied to memory of the GPU in
    pieces as large as the host has them, and scattered from there, by a third stream. So single
    blocks never cross the bus, and the engine's stream waits for nothing.
    """

    def __init__(self, device: torch.device) -> None:
        if device.index is None:
            device = torch.device("cuda", torch.cuda.current_device())
        self._device = device
        self._outward = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch has no types here
        self._inward = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch has no types here
        self._scattering = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch has no types here
        self._pinned = PinnedMemory(device)
        self._pinning = threading.Lock()
        self._ring = StagingRing(device)
        # For copies of which nobody gives up the memory: it must not be unmapped before.
        self._ending = weakref.finalize(
            self, _drop, self._pinned, (self._outward, self._inward, self._scattering)
        )
        self._ending.atexit = False

    def pin(self, memory: memoryview | None) -> None:
        """Registers the memory with CUDA, once."""
        with self._pinning:
            if memory is None or not self._pinned.is_of(memory):
                # Copies may still use that of a session which ended.
                _finish((self._outward, self._inward))
                self._pinned.register(memory)

    def mark(self) -> Landing:
        """An event of the engine's stream."""
        return _CudaLanding(torch.cuda.current_stream(self._device))

    def gather(self, blocks: Tensor, block_ids: Sequence[int], target: Tensor) -> Landing:
        """Gathers on the engine's stream, copies out on another, some rows at a time."""
        words = _in_words(blocks)
        row_blocks = len(block_ids) // len(target)
        piece_rows = max(1, PIECE_BYTES // target[0].nbytes)
        with _finished_if_it_fails(self._outward):
            for first in range(0, len(target), piece_rows):
                rows = target[first : first + piece_rows]
                ids = block_ids[first * row_blocks : (first + len(rows)) * row_blocks]
                chosen = words.index_select(0, self._on_device(ids))
                self._copy_out(chosen.flatten().view(rows.dtype).view(rows.shape), rows)
            return _CudaLanding(self._outward)

    def scatter(
        self, parts: Sequence[Tensor], blocks: Tensor, block_ids: Sequence[int], *, after: Landing
    ) -> Landing:
        """Copies in on a stream of its own, and scatters on another, some parts at a time."""
        words = _in_words(blocks)
        block_bytes = blocks[0].numel() * blocks.itemsize
        first = 0
        self._await(after)
        with _finished_if_it_fails(self._inward, self._scattering):
            for piece in _pieces(parts):
                stop = first + sum(len(part) for part in piece) // block_bytes
                staged, ids = self._staged(piece, block_ids[first:stop])
                with torch.cuda.stream(self._scattering):
                    chosen = staged.view(words.dtype).view(-1, *words.shape[1:])
                    words.index_copy_(0, ids, chosen)
                first = stop
            return _CudaLanding(self._scattering)

    def fetch(self, sources: Sequence[Tensor], target: Tensor) -> Landing:
        """Stacks on the engine's stream, copies out on another."""
        whole = sources[0] if len(sources) == 1 else torch.stack(tuple(sources))
        self._outward.wait_stream(torch.cuda.current_stream(self._device))
        whole.record_stream(self._outward)
        with torch.cuda.stream(self._outward):
            target.copy_(whole, non_blocking=True)
            return _CudaLanding(self._outward)

    @contextmanager
    def brought(self, source: Tensor) -> Iterator[Brought]:
        """A copy in a buffer of the ring, which the engine's stream waits for."""
        engine = torch.cuda.current_stream(self._device)
        buffer = self._ring.take(source.nbytes, stream=self._inward)
        tensor = buffer.memory[: source.nbytes].view(source.dtype).view(source.shape)
        with torch.cuda.stream(self._inward):
            _copy_rows(source, tensor)
        landing = _CudaLanding(self._inward)
        landing.hold(engine)
        try:
            yield Brought(tensor, landing)
        except BaseException:
            landing.wait()
            raise
        finally:
            buffer.memory.record_stream(engine)
            buffer.used.record(engine)

    def _copy_out(self, source: Tensor, target: Tensor) -> None:
        """Copies rows of the GPU to rows of the host, which may lie apart."""
        self._outward.wait_stream(torch.cuda.current_stream(self._device))
        source.record_stream(self._outward)
        with torch.cuda.stream(self._outward):
            _copy_rows(source, target)

    def _staged(self, parts: Sequence[Tensor], block_ids: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Bytes of the host on the GPU, one part behind the other, and ids, for the third stream.

        The bus takes one copy after the other: ids that were asked for later, by whatever stream,
        would come after all other pieces.
        """
        with torch.cuda.stream(self._inward):
            staged = torch.empty(
                sum(len(part) for part in parts), dtype=torch.uint8, device=self._device
            )
            first = 0
            for part in _joined(parts):
                staged[first : first + len(part)].copy_(part, non_blocking=True)
                first += len(part)
            ids = self._on_device(block_ids)
        self._scattering.wait_stream(self._inward)
        for tensor in (staged, ids):
            tensor.record_stream(self._scattering)
        return staged, ids

    def _await(self, after: Landing) -> None:
        if isinstance(after, _CudaLanding):
            after.hold(self._scattering)
        else:
            after.wait()

    def _on_device(self, block_ids: Sequence[int]) -> Tensor:
        # NumPy reads a list several times as fast as PyTorch. From memory that is not pinned the
        # copy would wait for the stream.
        ids = torch.from_numpy(np.array(block_ids, np.int64)).pin_memory()
        return ids.to(self._device, non_blocking=True)


@contextmanager
def _finished_if_it_fails(*streams: torch.cuda.Stream) -> Iterator[None]:
    """Where memory runs out between two pieces nobody hears of the first, and none may go on."""
    try:
        yield
    except BaseException:
        _finish(streams)
        raise


def _finish(streams: Sequence[torch.cuda.Stream]) -> None:
    for stream in streams:
        stream.synchronize()


def _drop(pinned: PinnedMemory, streams: Sequence[torch.cuda.Stream]) -> None:
    pinned.drop(lambda: _finish(streams))


def _in_words(blocks: Tensor) -> Tensor:
    """The same blocks in words, or as they are where rows or gaps are not made of whole ones."""
    try:
        return blocks.view(WORD)
    except RuntimeError:
        return blocks


def _pieces(parts: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """The parts in order, as many at a time as make a piece."""
    piece: list[Tensor] = []
    byte_count = 0
    for part in parts:
        piece.append(part)
        byte_count += len(part)
        if byte_count >= PIECE_BYTES:
            yield piece
            piece, byte_count = [], 0
    if piece:
        yield piece


def _joined(parts: Sequence[Tensor]) -> Iterator[Tensor]:
    """The same bytes in the same order; parts that follow each other in memory are one.

    The bus takes a long copy for less than several short ones.
    """
    joined, byte_count = parts[0], len(parts[0])
    for part in parts[1:]:
        if _follows(part, joined, byte_count):
            byte_count += len(part)
        else:
            yield joined.as_strided((byte_count,), (1,))
            joined, byte_count = part, len(part)
    yield joined.as_strided((byte_count,), (1,))


def _follows(part: Tensor, first: Tensor, byte_count: int) -> bool:
    is_next = part.data_ptr() == first.data_ptr() + byte_count
    # Two mappings of memory may be neighbours, too, which nobody may copy as one.
    return is_next and part.untyped_storage().data_ptr() == first.untyped_storage().data_ptr()


def _copy_rows(source: Tensor, target: Tensor) -> None:
    """Launches copies between host and GPU, as few as gaps between rows allow.

    One of memory with gaps would be made by way of a copy on the host, which is waited for.
    """
    if source.is_contiguous() and target.is_contiguous():
        target.copy_(source, non_blocking=True)
    else:
        for row, part in zip(target, source, strict=True):
            row.copy_(part, non_blocking=True)
