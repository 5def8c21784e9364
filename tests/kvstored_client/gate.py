"""Holds calls up at the store until a test lets them go on."""

import threading

from google.protobuf.message import Message

from kvstored_client.testing import MemoryStore
from tests.support.waiting import PATIENCE_S


class Gate:
    """Closed from its making until ``open``; ``entered`` counts the calls that came to it."""

    def __init__(self, store: MemoryStore) -> None:
        self.entered = threading.Semaphore(0)
        self._is_open = threading.Event()
        store.faults.before = self._pass

    def open(self) -> None:
        self._is_open.set()

    def _pass(self, _: Message) -> None:
        self.entered.release()
        assert self._is_open.wait(PATIENCE_S)
