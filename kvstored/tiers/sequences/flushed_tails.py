"""Open tails whose frames others may have, because their bytes are stored as well."""

import threading
from collections import OrderedDict

from kvstored.tiers.sequences.open_sequence import SequenceId

LET_GO_AT_ONCE = 16
"""Frames that go for one that is wanted: of one size class there may be none."""


class FlushedTails:
    """Names of sequences whose tail is flushed and in a frame, the longest ago first. Thread-safe.

    Some may have been appended to since, or be gone: who takes one looks.
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

    def take(self) -> SequenceId | None:
        """Takes out the first one; None when there is none."""
        with self._lock:
            return self._names.popitem(last=False)[0] if self._names else None
