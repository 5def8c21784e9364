"""Copies from and to a GPU, on streams of their own."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from engine_adapters.device_copies.copies import Brought
from engine_adapters.device_copies.landing import Landing
from engine_adapters.device_copies.pinned_memory import PinnedMemory
from engine_adapters.device_copies.staging_ring import StagingRing


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
    pieces as large as the host has them, and scattered from there. So single blocks never
    cross the bus, and the engine's stream waits for nothing.
    """

    def __init__(self, device: torch.device) -> None:
        if device.index is None:
            device = torch.device("cuda", torch.cuda.current_device())
        self._device = device
        self._outward = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch has no types here
        self._inward = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch has no types here
        self._pinned = PinnedMemory(device)
        self._pinning = threading.Lock()
        self._ring = StagingRing(device)

    def pin(self, memory: memoryview) -> None:
        """Registers the memory with CUDA, once."""
        with self._pinning:
            if self._pinned.is_of(memory):
                return
            # Copies may still use that of a session which ended.
            self._outward.synchronize()
            self._inward.synchronize()
            self._pinned.register(memory)

    def mark(self) -> Landing:
        """An event of the engine's stream."""
        return _CudaLanding(torch.cuda.current_stream(self._device))

    def gather(self, blocks: Tensor, block_ids: Sequence[int], target: Tensor) -> Landing:
        """Gathers on the engine's stream, copies out on another."""
        chosen = blocks.index_select(0, self._on_device(block_ids))
        return self._copy_out(chosen.flatten().view(target.dtype).view(target.shape), target)

    def scatter(
        self, parts: Sequence[Tensor], blocks: Tensor, block_ids: Sequence[int], *, after: Landing
    ) -> Landing:
        """Copies in and scatters on a stream of its own."""
        with torch.cuda.stream(self._inward):
            self._await(after)
            byte_count = sum(len(part) for part in parts)
            staged = torch.empty(byte_count, dtype=torch.uint8, device=self._device)
            first = 0
            for part in parts:
                staged[first : first + len(part)].copy_(part, non_blocking=True)
                first += len(part)
            chosen = staged.view(blocks.dtype).view(-1, *blocks.shape[1:])
            blocks.index_copy_(0, self._on_device(block_ids), chosen)
            return _CudaLanding(self._inward)

    def fetch(self, sources: Sequence[Tensor], target: Tensor) -> Landing:
        """Stacks and copies out on a stream of its own."""
        engine = torch.cuda.current_stream(self._device)
        self._outward.wait_stream(engine)
        for source in sources:
            source.record_stream(self._outward)
        with torch.cuda.stream(self._outward):
            whole = sources[0] if len(sources) == 1 else torch.stack(tuple(sources))
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

    def _copy_out(self, source: Tensor, target: Tensor) -> Landing:
        """Copies rows of the GPU to rows of the host, which may lie apart."""
        self._outward.wait_stream(torch.cuda.current_stream(self._device))
        source.record_stream(self._outward)
        with torch.cuda.stream(self._outward):
            _copy_rows(source, target)
            return _CudaLanding(self._outward)

    def _await(self, after: Landing) -> None:
        if isinstance(after, _CudaLanding):
            after.hold(self._inward)
        else:
            after.wait()

    def _on_device(self, block_ids: Sequence[int]) -> Tensor:
        # From memory that is not pinned the copy would wait for the stream.
        return torch.tensor(block_ids, pin_memory=True).to(self._device, non_blocking=True)


def _copy_rows(source: Tensor, target: Tensor) -> None:
    """Launches copies between host and GPU, as few as gaps between rows allow.

    One of memory with gaps would be made by way of a copy on the host, which is waited for.
    """
    if source.is_contiguous() and target.is_contiguous():
        target.copy_(source, non_blocking=True)
    else:
        for row, part in zip(target, source, strict=True):
            row.copy_(part, non_blocking=True)
