"""Where one chunk lies."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Extent:
    """A stretch of one device that belongs to one chunk."""

    device_index: int
    offset: int
    byte_count: int

    @property
    def end(self) -> int:
        """First byte behind the extent."""
        return self.offset + self.byte_count
