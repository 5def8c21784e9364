"""Slabs whose header is being written: nothing lies in a slab before that is done."""

from concurrent.futures import Future

from kvstored.format.geometry import HEADER_BYTES
from kvstored.format.slab_header import SlabHeader
from kvstored.io.device import DeviceError
from kvstored.io.engine import IoEngine, IoRequest, Operation
from kvstored.io.memory import AlignedMemory
from kvstored.store.read.fragments import copy
from kvstored.store.space.device_set import DeviceSet

Slab = tuple[int, int]
"""Device index and slab index."""
Opening = Future[DeviceError | None]
"""Resolves when a slab's header is written, to None, or to why it is not; never raises."""


class SlabOpenings:
    """The writes of slab headers that are under way. Thread-safe.

    Invariant: a slab is in here from ``begin`` until its header is written, for ever where
    that failed. The caller of ``begin`` must call ``write``, and no slab is begun twice
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

    def write(self, slab: Slab, class_bytes: int, offset: int) -> None:
        """Writes the header of a slab that was begun; returns at once."""
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
            # begin it again then. A device that has failed here is not used any more, and its
            # slab stays unready.
            opening = self._openings[slab]
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
