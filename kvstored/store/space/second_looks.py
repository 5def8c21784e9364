"""How often a scan may read again what no sound header was found in."""

import threading

LOOKS_MIN = 16
READS_PER_LOOK = 8
"""Beyond the first LOOKS_MIN, there is one second look in vain for so many reads: of a device that
is really damaged, or of slabs that are mostly empty, little more than once everything is read."""


class SecondLooks:
    """Counts the reads of one device, and the second looks that found nothing. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._read_count = 0
        self._vain_count = 0

    def count_read(self) -> None:
        """Hears of a first read."""
        with self._lock:
            self._read_count += 1

    def take(self) -> bool:
        """Whether there may be one more, which counts as one in vain until ``give_back``."""
        with self._lock:
            may_look = self._vain_count < LOOKS_MIN + self._read_count // READS_PER_LOOK
            self._vain_count += may_look
            return may_look

    def give_back(self) -> None:
        """Hears that the look found what the first read had missed."""
        with self._lock:
            self._vain_count -= 1
