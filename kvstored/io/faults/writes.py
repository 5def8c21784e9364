"""Writes that end well and do not leave on media what they should."""

from collections.abc import Callable, Sequence

from kvstored.io.device import Device
from kvstored.io.faults.overlay import DamagedDevice, read_bytes

WriteChoice = Callable[[int, int], bool]
"""Asked with offset and bytes of a write whether it goes wrong."""

PAGE_BYTES = 4096


class NextWrites:
    """A choice: the next ``count`` writes of at least ``bytes_min`` go wrong.

    ``chosen`` lists offset and bytes of those that did.
    """

    def __init__(self, count: int = 0, *, bytes_min: int = 0) -> None:
        self.count = count
        self.chosen: list[tuple[int, int]] = []
        self._bytes_min = bytes_min

    def __call__(self, offset: int, byte_count: int) -> bool:
        """Whether this write goes wrong."""
        if self.count < 1 or byte_count < self._bytes_min:
            return False
        self.count -= 1
        self.chosen.append((offset, byte_count))
        return True


class TornWrites(DamagedDevice):
    """Of a chosen write only some units of ``unit_bytes`` reach media.

    ``lands`` is asked for each of them, by its number in the write. The others keep the
    bytes that they had.
    """

    def __init__(
        self,
        inner: Device,
        choose: WriteChoice,
        *,
        lands: Callable[[int], bool],
        unit_bytes: int = PAGE_BYTES,
    ) -> None:
        super().__init__(inner)
        self._choose = choose
        self._lands = lands
        self._unit_bytes = unit_bytes

    def writev(self, buffers: Sequence[memoryview], offset: int) -> None:
        """Writes, and covers what did not land; raises DeviceError."""
        byte_count = sum(buffer.nbytes for buffer in buffers)
        if not self._choose(offset, byte_count):
            super().writev(buffers, offset)
            return
        before = read_bytes(self, offset, byte_count)
        super().writev(buffers, offset)
        unit_bytes = self._unit_bytes
        for unit, start in enumerate(range(0, byte_count, unit_bytes)):
            if not self._lands(unit):
                self.overlay.cover(offset + start, before[start : start + unit_bytes])


class LostWrites(TornWrites):
    """Nothing of a chosen write reaches media."""

    def __init__(self, inner: Device, choose: WriteChoice) -> None:
        super().__init__(inner, choose, lands=lambda _: False)


class MisdirectedWrites(DamagedDevice):
    """A chosen write lands ``shift_bytes`` further, over whatever lies there."""

    def __init__(self, inner: Device, choose: WriteChoice, *, shift_bytes: int) -> None:
        super().__init__(inner)
        self._choose = choose
        self._shift_bytes = shift_bytes

    def writev(self, buffers: Sequence[memoryview], offset: int) -> None:
        """Writes, and shows the bytes at the other place; raises DeviceError."""
        byte_count = sum(buffer.nbytes for buffer in buffers)
        if not self._choose(offset, byte_count):
            super().writev(buffers, offset)
            return
        before = read_bytes(self, offset, byte_count)
        super().writev(buffers, offset)
        self.overlay.cover(offset, before)
        start = offset + self._shift_bytes
        self.overlay.cover(start, b"".join(buffers)[: self.facts.capacity_bytes - start])
