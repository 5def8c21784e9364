"""Every wrapper of media faults on top of the others, each idle until a test uses it."""

import numpy as np

from kvstored.io.device import Device
from kvstored.io.faults.calls import FailingCalls
from kvstored.io.faults.overlay import read_bytes
from kvstored.io.faults.reads import FlippedBits, StaleReads
from kvstored.io.faults.writes import LostWrites, MisdirectedWrites, NextWrites, TornWrites
from tests.faults.media.served import EXTENT_BYTES

PAGES = EXTENT_BYTES // 4096
CHUNK_BYTES_MIN = 2 * 4096
"""Headers of slabs and superblocks are one page."""


class FaultStack(FailingCalls):
    """A device with all faults at hand. The innermost device keeps what should be there.

    ``torn``, ``lost`` and ``misdirected`` choose writes of chunks, short ones too: set their
    ``count``. ``lands`` is what of a torn write reaches media, in units of ``unit_bytes``.
    """

    def __init__(
        self,
        inner: Device,
        *,
        lands: set[int] | None = None,
        unit_bytes: int = 4096,
        shift_bytes: int = EXTENT_BYTES,
    ) -> None:
        self.pristine = inner
        self.torn, self.lost, self.misdirected = (
            NextWrites(bytes_min=CHUNK_BYTES_MIN) for _ in range(3)
        )
        landing = {0} if lands is None else lands
        torn = TornWrites(inner, self.torn, lands=landing.__contains__, unit_bytes=unit_bytes)
        lost = LostWrites(torn, self.lost)
        misdirected = MisdirectedWrites(lost, self.misdirected, shift_bytes=shift_bytes)
        self.stale = StaleReads(misdirected)
        self.flipped = FlippedBits(self.stale)
        super().__init__(self.flipped)

    def is_damaged(self, offset: int, byte_count: int) -> bool:
        """Whether a stretch of whole pages reads otherwise than it should."""
        shown = read_bytes(self.flipped, offset, byte_count)
        return shown != read_bytes(self.pristine, offset, byte_count)

    def image(self) -> np.ndarray:
        """Every byte as it reads now."""
        return np.frombuffer(read_bytes(self.flipped, 0, self.facts.capacity_bytes), np.uint8)
