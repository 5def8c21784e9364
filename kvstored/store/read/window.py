"""The window of a read: how many of its bytes may be in flight, and whose turn it is. Pure."""

from collections.abc import Iterable


class Window:
    """Shares ``window_bytes`` out to the lanes of one read. Not thread-safe.

    A lane may use as much as its even share, or else the lane that is asked first would
    take everything and the others would stand still. One run always fits.
    """

    def __init__(self, window_bytes: int, lanes: Iterable[int]) -> None:
        self._window_bytes = window_bytes
        self._used_bytes = dict.fromkeys(lanes, 0)
        self._was_full = False

    def take(self, lane: int, byte_count: int, *, lane_count: int) -> bool:
        """Takes room for a run, if there is any; ``lane_count`` lanes still have runs."""
        own_bytes = self._used_bytes[lane]
        used_bytes = sum(self._used_bytes.values())
        share_bytes = self._window_bytes // lane_count
        has_room = not used_bytes or (
            used_bytes + byte_count <= self._window_bytes
            and (not own_bytes or own_bytes + byte_count <= share_bytes)
        )
        if has_room:
            self._used_bytes[lane] = own_bytes + byte_count
        else:
            self._was_full = True
        return has_room

    def release(self, lane: int, byte_count: int) -> bool:
        """Gives room back; True when a lane has found none, so that any may go on now."""
        self._used_bytes[lane] -= byte_count
        was_full, self._was_full = self._was_full, False
        return was_full
