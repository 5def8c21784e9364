"""A read in flight without a daemon: both ends of its board."""

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

from kvstored_client.session.arena import Arena
from kvstored_client.session.presence import Presence
from kvstored_client.verbs.held_board import HeldBoard
from kvstored_client.verbs.progress import ReadProgress
from kvstored_contract.board import Board

CHUNKS, LAYERS = 3, 2


class Side:
    """Both ends of a read: what the daemon writes and what the client sees."""

    def __init__(self, limit: float, *, has_lengths: bool = False) -> None:
        client_socket, self.daemon_socket = socket.socketpair()
        self.presence = Presence(client_socket, os.eventfd(0))
        self.memory = bytearray(b"\xff" * 8192)
        self.arena = Arena(memoryview(self.memory), self.presence.check)
        region = self.arena.allocate(100)
        assert region is not None
        self.progress = ReadProgress(
            HeldBoard.start(
                region,
                self.presence,
                chunk_count=CHUNKS,
                layer_count=LAYERS,
                has_lengths=has_lengths,
            ),
            limit=limit,
        )
        self.board = Board(
            memoryview(self.memory),
            chunk_count=CHUNKS,
            layer_count=LAYERS,
            has_lengths=has_lengths,
        )


@contextmanager
def open_side(*, limit_s: float = 60, has_lengths: bool = False) -> Iterator[Side]:
    """A read that counts as hung after ``limit_s``, of encoded chunks if it ``has_lengths``."""
    side = Side(time.monotonic() + limit_s, has_lengths=has_lengths)
    try:
        yield side
    finally:
        side.daemon_socket.close()
