"""Layer inputs that forwards leave on a device: how they come to the host."""

import logging
import queue
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress

import torch
from torch import Tensor

from engine_adapters.device_copies.copies import DeviceCopies
from engine_adapters.device_copies.host_copies import OVER
from engine_adapters.device_copies.landing import Landing, all_of
from engine_adapters.vllm.blocks.block_rows import BlockRows
from engine_adapters.vllm.blocks.late_rows import LateRows
from engine_adapters.vllm.blocks.staged_inputs import StagedInputs

LOGGER = logging.getLogger("vllm.kvstored")
HOST_ROOMS = 3
"""Forwards on their way at once: one is copied, one is gathered, one waits."""
LOOK_S = 0.001
"""How often the thread of the rows looks whether a copy is over."""
STACKED_BYTES = 1 << 25
"""Rows of a forward that cross the bus in one copy: gathering more first would take as much memory
of the device again."""


class _HostRoom:
    """Memory of the host for one forward, which doubles until the longest one fits.

    A GPU copies to pinned memory only without making the engine's thread wait. The slots lie apart:
    PyTorch takes whole powers of two of pinned memory, of which the rows often are one.
    """

    def __init__(self, shape: tuple[int, int, int], dtype: torch.dtype, *, is_pinned: bool) -> None:
        """``shape`` is that of the rows of the longest forward."""
        self._layer_count, self._count_max, self._width = shape
        self._dtype = dtype
        self._is_pinned = is_pinned
        self._slots = torch.empty(self._count_max, dtype=torch.int64, pin_memory=is_pinned)
        self._rows = torch.empty(0, dtype=dtype)
        self._refused_count = self._count_max + 1

    def views(self, count: int) -> tuple[Tensor, Tensor]:
        """Room for rows [layer_count, count, width], and for a slot [count] of each.

        Raises RuntimeError where the host gives none; so many are asked for once only.
        """
        items = self._layer_count * count * self._width
        if len(self._rows) < items:
            self._grow(count)
        rows = self._rows[:items].view(self._layer_count, count, self._width)
        return rows, self._slots[:count]

    def _grow(self, count: int) -> None:
        if count >= self._refused_count:
            raise RuntimeError("the host has no more memory to pin")
        room_count = min(self._count_max, 1 << (count - 1).bit_length())
        try:
            self._rows = torch.empty(0, dtype=self._dtype)
            self._rows = torch.empty(
                self._layer_count * room_count * self._width,
                dtype=self._dtype,
                pin_memory=self._is_pinned,
            )
        except RuntimeError:
            self._refused_count = count
            raise


class StagedForwards:
    """Copies what each forward has left of some layers, and has the host gather it by blocks.

    All methods run in the engine's thread, which waits for nothing: the forward after a copy waits
    for it on the device (two-stage saving: HCache, section 4.2.2). While HOST_ROOMS forwards are on
    their way the rows of another one are missed, and with them all blocks that are not complete.
    Raises RuntimeError where the host has no memory to pin.
    """

    def __init__(
        self,
        staged: StagedInputs,
        layers: Sequence[int],
        *,
        copies: DeviceCopies,
        rows: LateRows,
    ) -> None:
        self._staged = staged
        self._layers = tuple(layers)
        self._copies = copies
        self._rows = rows
        self._is_off = False
        self._has_missed = False
        self._slots: Tensor | None = None
        self._landing: Landing = OVER
        self._rooms: queue.SimpleQueue[_HostRoom] = queue.SimpleQueue()
        longest = staged.rows(0, staged.row_count_max)
        shape = (len(self._layers), *longest.shape)
        for _ in range(HOST_ROOMS):
            is_pinned = staged.device.type == "cuda"
            self._rooms.put(_HostRoom(shape, longest.dtype, is_pinned=is_pinned))

    def hold(self) -> None:
        """What the engine launches from here on waits for the copy of the last forward."""
        self._landing.hold_engine()

    def begin(self) -> None:
        """Before a forward."""
        self.hold()
        self._slots = None

    def note_slots(self, slots: Tensor) -> None:
        """The places in the cache of the rows [row_count], -1 behind the last.

        After ``begin``, and before the engine writes those of its next step over them.
        """
        self._slots = slots.to(torch.int64, copy=True)

    def end(self, *, has_failed: bool, is_idle: bool) -> None:
        """A forward was launched, or has failed; an idle one computes nothing."""
        slots, self._slots = self._slots, None
        if self._is_off or is_idle:
            return
        if self._staged.is_broken:
            self.stop()
            LOGGER.warning(
                "kvstored: layer inputs of this model are no rows of hidden states, or more than "
                "max_num_batched_tokens, so nothing more is saved"
            )
        elif has_failed:
            self._miss("it failed")
        elif slots is None or len(slots) > self._staged.row_count_max:
            self._miss("vLLM does not say where in the cache its tokens lie")
        else:
            self._copy_out(slots)

    def stop(self) -> None:
        """Nothing is copied any more."""
        self._is_off = True
        self._rows.use(BlockRows.clear)

    def _copy_out(self, slots: Tensor) -> None:
        try:
            room = self._rooms.get_nowait()
        except queue.Empty:
            self._miss("the host gathers layer inputs more slowly than the device computes them")
            return
        begun: list[Landing] = []
        try:
            rows, places = room.views(len(slots))
            for landing in self._fetches(slots, rows, places):
                begun.append(landing)  # noqa: PERF402  # what was begun counts where the next fails
        except RuntimeError as error:
            # Of memory of a device, or of pinned memory.
            self._miss(str(error))
            with suppress(Exception):
                all_of(begun).wait()
            self._rooms.put(room)
            return
        self._landing = over = all_of(begun)
        self._rows.use(lambda gathered: self._gather(gathered, room, rows, places, over))

    def _fetches(self, slots: Tensor, rows: Tensor, places: Tensor) -> Iterator[Landing]:
        yield self._copies.fetch((slots,), places)
        inputs = [self._staged.rows(layer, len(slots)) for layer in self._layers]
        if rows.nbytes <= STACKED_BYTES and len(inputs) > 1:
            yield self._copies.fetch(inputs, rows)
            return
        for source, target in zip(inputs, rows, strict=True):
            yield self._copies.fetch((source,), target)

    def _gather(
        self, gathered: BlockRows, room: _HostRoom, rows: Tensor, places: Tensor, landing: Landing
    ) -> None:
        """On the thread of the rows."""
        try:
            # A wait for an event of CUDA would keep a core busy through the whole forward.
            while not landing.is_over:
                time.sleep(LOOK_S)
            landing.wait()
            slots = places.tolist()
            count = next((row for row, slot in enumerate(slots) if slot < 0), len(slots))
            gathered.add(rows[:, :count], slots[:count])
        finally:
            self._rooms.put(room)

    def _miss(self, why: str) -> None:
        self._rows.use(BlockRows.clear)
        if not self._has_missed:
            self._has_missed = True
            LOGGER.warning(
                "kvstored: layer inputs of a forward are missed (%s); the metric dropped_saves "
                "counts the chunks of all that are",
                why,
            )
