"""The board: words in the arena through which both sides of a read see progress. Pure.

A board begins at an 8-byte aligned arena offset and holds a head of eight
little-endian 64-bit words followed by one state byte for each slice of the read,
``chunk * layer_count + layer``. If the layout has a codec, a little-endian 32-bit length
for each slice follows at the next multiple of 8 bytes. Every word has exactly one writer:

====  ==========================  =======  ==========================================
word  name                        writer   meaning
====  ==========================  =======  ==========================================
0     POINTER                     engine   leading chunks that the engine computes
1     CANCEL                      engine   not 0: stop reading
2     FINISHED                    daemon   1 when no state will change any more
3     DEVICE_BYTES                daemon   bytes read from devices
4     DRAM_BYTES                  daemon   bytes copied from the DRAM tier
5     WATCHED                     engine   what wakes the client (``Watch``), only growing
6-7   reserved                             0
====  ==========================  =======  ==========================================

Invariants: a slice's state goes from PENDING to one other state, once; RESIDENT is
written only after the verified bytes lie at their destination and their length, if
there is one, on the board; FINISHED is written last, after the daemon's last access to
the destination. The engine zeroes the board before the call and may not reuse it or the
destination before FINISHED.

Assumption: aligned 8-byte and 1-byte stores are atomic and become visible in order
(x86-64), or the reader waits through the eventfd, which orders them everywhere.
"""

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

WORD_BYTES = 8
HEAD_WORDS = 8
HEAD_BYTES = HEAD_WORDS * WORD_BYTES
_LENGTH_BYTES = 4


class BoardWord(IntEnum):
    """Index of each word of the head."""

    POINTER = 0
    CANCEL = 1
    FINISHED = 2
    DEVICE_BYTES = 3
    DRAM_BYTES = 4
    WATCHED = 5


class Watch(IntEnum):
    """What the daemon rings the eventfd for.

    A client says it before the look at the board that lets it sleep, and looks again by
    itself after a while, in case both sides missed each other.
    """

    NOTHING = 0
    """Nobody waits: a wake-up would cost more than most small reads."""
    END = 1
    """Only FINISHED."""
    PROGRESS = 2
    """Every change, but not more often than once a millisecond; and FINISHED."""


class SliceState(IntEnum):
    """State byte of one slice."""

    PENDING = 0
    RESIDENT = 1
    """Verified bytes lie at the destination."""
    MISSING = 2
    """Not stored, evicted, damaged, or its device failed."""
    SKIPPED = 3
    """Not read: the engine's pointer had reached the chunk, or the read was cancelled."""
    LATE = 4
    """Not read before the deadline."""


def board_bytes(*, chunk_count: int, layer_count: int, has_lengths: bool = False) -> int:
    """Bytes of a board, rounded up to whole words."""
    slices = chunk_count * layer_count
    lengths_bytes = slices * _LENGTH_BYTES if has_lengths else 0
    return HEAD_BYTES + _whole_words(slices) + _whole_words(lengths_bytes)


def _whole_words(byte_count: int) -> int:
    return -(-byte_count // WORD_BYTES) * WORD_BYTES


class Board:
    """Typed view of one board over a writable buffer that starts at the board's first byte.

    ``words`` has shape [HEAD_WORDS] and dtype uint64, ``states`` shape
    [chunk_count, layer_count] and dtype uint8, ``lengths`` the same shape and dtype uint32,
    if there are any; all alias the buffer.
    """

    __slots__ = ("lengths", "states", "words")

    words: NDArray[np.uint64]
    states: NDArray[np.uint8]
    lengths: NDArray[np.uint32] | None

    def __init__(
        self,
        buffer: memoryview,
        *,
        chunk_count: int,
        layer_count: int,
        has_lengths: bool = False,
    ) -> None:
        self.words = np.frombuffer(buffer, dtype="<u8", count=HEAD_WORDS)
        self.states = np.frombuffer(
            buffer, dtype=np.uint8, count=chunk_count * layer_count, offset=HEAD_BYTES
        ).reshape(chunk_count, layer_count)
        self.lengths = None
        if has_lengths:
            offset = board_bytes(chunk_count=chunk_count, layer_count=layer_count)
            self.lengths = np.frombuffer(
                buffer, dtype="<u4", count=chunk_count * layer_count, offset=offset
            ).reshape(chunk_count, layer_count)

    def clear(self) -> None:
        """Zeroes every word, state and length; the engine does this before the call."""
        self.words[:] = 0
        self.states[:] = SliceState.PENDING
        if self.lengths is not None:
            self.lengths[:] = 0
