"""The queue of one session: its version, and what of it may wait. Pure."""

from collections.abc import Iterable, Mapping

from kvstored_contract.limits import HINTED_CHUNKS_PER_SESSION_MAX, WAITING_PER_SESSION_MAX


class SessionQueue:
    """Who waits, with the number of chunks of each. The owner serialises the calls.

    Invariant: at most ``WAITING_PER_SESSION_MAX`` names with together at most
    ``HINTED_CHUNKS_PER_SESSION_MAX`` chunks.
    """

    def __init__(self) -> None:
        self.version = 0
        self._chunk_counts: dict[str, int] = {}
        self._chunk_count = 0

    @property
    def names(self) -> tuple[str, ...]:
        """All who wait."""
        return tuple(self._chunk_counts)

    def takes(self, version: int, previous_version: int) -> bool:
        """Whether a change is a newer one of the queue that is known, or is a whole queue."""
        return version > self.version and previous_version in (0, self.version)

    def leave(self, names: Iterable[str]) -> list[str]:
        """Takes names out; those that did wait."""
        left = [name for name in dict.fromkeys(names) if name in self._chunk_counts]
        for name in left:
            self._chunk_count -= self._chunk_counts.pop(name)
        return left

    def enter(self, chunk_counts: Mapping[str, int]) -> list[str]:
        """Enters names that do not wait, one after the other; those for whom there is room."""
        entered = []
        for name, count in chunk_counts.items():
            if (
                len(self._chunk_counts) < WAITING_PER_SESSION_MAX
                and self._chunk_count + count <= HINTED_CHUNKS_PER_SESSION_MAX
            ):
                self._chunk_counts[name] = count
                self._chunk_count += count
                entered.append(name)
        return entered
