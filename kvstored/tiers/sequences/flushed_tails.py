"""Open tails whose frames others may have, because their bytes are stored as well."""

import threading
from collections import OrderedDict
from collections.abc import Callable

from kvstored.tiers.sequences.open_sequence import SequenceId

LET_GO_AT_ONCE = 16
"""Frames that go for one that is wanted: of one size class there may be none."""


class FlushedTails:
    """Names of sequences that cost memory and need not, the longest ago first. Thread-safe.

    Their tail is flushed and in a frame, or they are durable and have a mark that they were
    stopped. Some may have been appended to since, or be gone: who takes one looks.
    """

    def __init__(self) -> None:
        self._names: OrderedDict[SequenceId, None] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """How many there are."""
        return len(self._names)

    def add(self, identity: SequenceId) -> None:
        """Makes a sequence the last one."""
        with self._lock:
            self._names[identity] = None
            self._names.move_to_end(identity)

    def keep(self, identity: SequenceId) -> None:
        """Makes a sequence the last one unless it is there."""
        with self._lock:
            self._names.setdefault(identity)

    def discard(self, identity: SequenceId) -> None:
        """Forgets a sequence, if it is there."""
        with self._lock:
            self._names.pop(identity, None)

    def first(self, is_meant: Callable[[SequenceId], bool]) -> list[SequenceId]:
        """Those that are meant, as they are now, the first one first."""
        with self._lock:
            return [identity for identity in self._names if is_meant(identity)]
