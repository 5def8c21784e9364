"""Extents of the devices: taken where the header of their slab is on media, and given back."""

import threading
from concurrent.futures import Future
from functools import partial

from kvstored.deadlines import NO_DEADLINE, remaining_s
from kvstored.format.geometry import HEADER_BYTES, Extent
from kvstored.format.slab_header import SlabHeader
from kvstored.io.device import DeviceError, NotBegunError
from kvstored.io.engine import IoEngine, IoRequest, Operation
from kvstored.io.memory import AlignedMemory
from kvstored.store.read.fragments import copy
from kvstored.store.space.allocator import Allocator
from kvstored.store.space.device_set import DeviceSet
from kvstored.store.write.device_failures import DeviceFailures
from kvstored_contract.reasons import Reason

Slab = tuple[int, int]
"""Device index and slab index."""
Opening = Future[DeviceError | None]
"""Resolves when a slab's header is written, to None, or to why it is not; never raises."""


class SlabOpenings:
    """The writes of slab headers that are under way. Thread-safe.

    Invariant: a slab is in here from ``begin`` until its header is written or, where that failed,
    until ``forget``. The caller of ``begin`` must call ``write``, and no slab is begun twice
    meanwhile.
    """

    def __init__(self, *, engine: IoEngine, device_set: DeviceSet) -> None:
        self._engine = engine
        self._device_set = device_set
        self._openings: dict[Slab, Opening] = {}

    def begin(self, slab: Slab) -> Opening:
        """Announces the write of a slab's header."""
        opening: Opening = Future()
        self._openings[slab] = opening
        return opening

    def find(self, slab: Slab) -> Opening | None:
        """The write of a slab's header that is under way or has failed; None where it is there."""
        return self._openings.get(slab)

    def forget(self, slab: Slab) -> None:
        """Lets a slab be begun again whose header could not be written."""
        del self._openings[slab]

    def write(self, slab: Slab, class_bytes: int, offset: int) -> None:
        """Writes the header of a slab that was begun; returns at once, and never raises."""
        opening = self._openings[slab]
        try:
            self._submit(slab, class_bytes, offset, opening)
        except Exception as error:
            name = self._device_set.devices[slab[0]].facts.name
            opening.set_result(NotBegunError(name, "write", repr(error)))

    def _submit(self, slab: Slab, class_bytes: int, offset: int, opening: Opening) -> None:
        device_index, slab_index = slab
        page = AlignedMemory(HEADER_BYTES)
        header = SlabHeader(
            device_id=self._device_set.device_ids[device_index],
            slab_index=slab_index,
            class_bytes=class_bytes,
            epoch=self._device_set.epoch,
        )
        copy(page.view, memoryview(header.encode()))

        def done(error: DeviceError | None) -> None:
            # In this order: who hears of the result may empty the slab, and another put may
            # begin it again then.
            if error is None:
                del self._openings[slab]
            opening.set_result(error)

        self._engine.submit(
            IoRequest(
                device_index=device_index,
                operation=Operation.WRITE,
                buffers=(page.view,),
                offset=offset,
                done=done,
                # Puts wait for it; behind all their chunks they would wait for those.
                is_awaited=True,
            )
        )


OPENING_WAIT_S = 0.1
"""How long a put waits for the header of a slab at least, even with no time at all."""


class Extents:
    """Allocates extents on the devices that have not failed. Thread-safe."""

    def __init__(
        self, *, allocator: Allocator, openings: SlabOpenings, failures: DeviceFailures
    ) -> None:
        self.allocator = allocator
        self._openings = openings
        self._failures = failures
        self._lock = threading.Lock()

    def allocate(
        self, class_bytes: int, device_index: int, *, deadline: float = NO_DEADLINE
    ) -> Extent | Reason:
        """Takes an extent, preferably on ``device_index``; STORE_FULL when there is no room.

        The first extent of a slab has the slab's header written. A put that takes one of that
        slab waits for that write, so that no chunk of the slab can become durable without it;
        DEADLINE when that is not over by ``deadline``, on the monotonic clock. INTERNAL where
        that write cannot even begin: the slab stays free, and the next put tries again.
        """
        while True:
            taken = self._take(class_bytes, device_index)
            if taken is None:
                return Reason.STORE_FULL
            extent, opening, is_new = taken
            if opening is None:
                return extent
            if is_new:
                slab = self._slab(extent)
                self._openings.write(
                    slab, class_bytes, self.allocator.geometry.slab_offset(slab[1])
                )
            left_s = remaining_s(deadline)
            try:
                error = opening.result(None if left_s is None else max(left_s, OPENING_WAIT_S))
            except TimeoutError:
                # Not before: the slab might become another class's while it is written.
                opening.add_done_callback(partial(self._free_after, extent))
                return Reason.DEADLINE
            if error is None:
                return extent
            self._free_after(extent, opening)
            if is_new and isinstance(error, NotBegunError):
                return Reason.INTERNAL

    def free(self, extent: Extent) -> None:
        """Returns an extent that no key names: nothing was visible there, or it is deleted."""
        with self._lock:
            self.allocator.free(extent)

    def used_bytes(self, device_index: int) -> int:
        """Bytes of the extents in use on a device."""
        with self._lock:
            return self.allocator.used_bytes(device_index)

    def _take(
        self, class_bytes: int, device_index: int
    ) -> tuple[Extent, Opening | None, bool] | None:
        """An extent, what it has to wait for, and whether that is to be written by the caller.

        None when there is no room.
        """
        with self._lock:
            while True:
                allocation = self.allocator.allocate(
                    class_bytes, device_index, excluded=self._failures.devices
                )
                if allocation is None:
                    return None
                extent = allocation.extent
                slab = self._slab(extent)
                if allocation.opened_slab is not None:
                    return extent, self._openings.begin(slab), True
                opening = self._openings.find(slab)
                if opening is None or not opening.done() or opening.result() is None:
                    return extent, opening, False
                # It has no header. Those who waited for that give its extents back by now.
                self.allocator.close_slab(*slab)
                self.allocator.free(extent)

    def _slab(self, extent: Extent) -> Slab:
        return extent.device_index, self.allocator.geometry.slab_index(extent)

    def _free_after(self, extent: Extent, opening: Opening) -> None:
        """Gives back an extent that nobody waits for, once its slab's header is settled.

        Where that could not be written nobody has stored anything in the slab. It is used again
        when all who took an extent of it have given that back, and not before: for one that had
        none to wait for, a chunk could become durable that no rebuild would find.
        """
        error = opening.result()
        if error is None:
            self.free(extent)
            return
        is_gone = not isinstance(error, NotBegunError)
        self._failures.report(extent.device_index, error, is_gone=is_gone)
        slab = self._slab(extent)
        with self._lock:
            self.allocator.free(extent)
            if not self.allocator.used_count(*slab):
                self._openings.forget(slab)
                self.allocator.reopen_slab(*slab)
