"""What is fetched from the devices into DRAM before a waiting request asks for it.

AttentionStore, section 3.3.1. Here tiers are inclusive: what leaves DRAM is still on the devices,
so the capacity of retention is that of the devices. In the paper it is the sum of both.
"""

from collections.abc import Container, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)


def window_length(capacity_bytes: int, sequence_bytes: float) -> int:
    """Sequences of this mean size that fit: L_pw = C_mem / S_kv, at least one.

    The same with the capacity of retention is the window of look-ahead eviction.
    """
    if sequence_bytes <= 0:
        raise ValueError("a sequence has bytes")
    return max(1, int(capacity_bytes / sequence_bytes))


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermarks:
    """When DRAM makes room before somebody needs it: a buffer for what is fetched or saved.

    Below ``low_bytes`` free, victims go until ``high_bytes`` are.
    """

    low_bytes: int
    high_bytes: int

    def __post_init__(self) -> None:
        if not 0 <= self.low_bytes <= self.high_bytes:
            raise ValueError("a low watermark is from 0 to the high one")

    def bytes_to_free(self, free_bytes: int) -> int:
        """How many bytes of victims go now."""
        return self.high_bytes - free_bytes if free_bytes < self.low_bytes else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingSequence(Generic[KeyT]):
    """The chunks on the devices that a waiting request will read, in the order of its tokens."""

    chunks: Sequence[KeyT]
    chunk_bytes: int
    """Of each."""


def plan_prefetch(
    queue: Iterable[WaitingSequence[KeyT]], resident: Container[KeyT], *, capacity_bytes: int
) -> Iterator[tuple[KeyT, ...]]:
    """The chunks to fetch, a group for each sequence that lacks some, the soonest first.

    ``queue`` begins with the request that runs first, and is read as far as the window reaches.
    ``resident`` has the chunks in DRAM, and those that are fetched already. ``capacity_bytes`` is
    what DRAM has for states without the buffer of its watermarks. The window is as long
    as the sequences at the head of the queue fit there together: each has its own size, so this
    is C_mem / S_kv with the mean of those. What lies further back is left: it would displace
    what is needed sooner.

    A window has at least one sequence, as in ``window_length``. Of one at the head that alone is
    larger than DRAM its first chunks are fetched, as many as fit, and nothing else: these are what
    ``QueueHead`` keeps there, and they are what is read first. With those behind it instead,
    what is needed last would take the room.
    """
    planned: set[KeyT] = set()
    for sequence in queue:
        chunks = [chunk for chunk in sequence.chunks if chunk not in planned]
        fitting = chunks[: max(capacity_bytes // sequence.chunk_bytes, 0)]
        is_whole = len(fitting) == len(chunks)
        if planned and not is_whole:
            return
        capacity_bytes -= len(fitting) * sequence.chunk_bytes
        planned.update(fitting)
        missing = tuple([chunk for chunk in fitting if chunk not in resident])
        if missing:
            yield missing
        if not is_whole:
            return
