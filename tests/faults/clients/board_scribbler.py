"""A client that writes to its own board while the daemon reads into its arena."""

import random
import struct
import threading
from typing import Self

from kvstored_contract.board import HEAD_BYTES, board_bytes

WORDS = [0, 1, 2, 3, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1]


class BoardScribbler:
    """Writes random words and states to a board until the body of ``with`` has ended."""

    def __init__(
        self,
        arena: memoryview,
        *,
        offset: int,
        chunk_count: int,
        layer_count: int,
        source: random.Random,
    ) -> None:
        self._arena = arena
        self._offset = offset
        self._end = offset + board_bytes(chunk_count=chunk_count, layer_count=layer_count)
        self._source = source
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="scribbler")

    def _run(self) -> None:
        source = self._source
        while not self._is_over.wait(0.0001):
            value = source.choice([source.choice(WORDS), source.getrandbits(64)])
            word = self._offset + 8 * source.randrange(HEAD_BYTES // 8)
            self._arena[word : word + 8] = struct.pack("<Q", value)
            state = source.randrange(self._offset + HEAD_BYTES, self._end)
            self._arena[state] = source.randrange(256)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
