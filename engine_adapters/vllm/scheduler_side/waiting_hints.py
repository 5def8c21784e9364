"""The engine's waiting requests, as the store hears of them."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol, Self

from engine_adapters.hints.queue_teller import QueueTeller
from engine_adapters.vllm.identity.chunk_keys import rank_key
from engine_adapters.vllm.scheduler_side.found import Found, Question
from kvstored_client import Client, QueueEntry, StateLayout

FRONT_PLACE = 2**47
"""Places of those that arrive follow it, and those of preempted requests go before it."""


class Teller(Protocol):
    """Takes changes of a queue, and returns at once."""

    def enter(self, entry: QueueEntry) -> None:
        """Somebody waits."""

    def leave(self, name: str) -> None:
        """Somebody waits no more."""

    def close(self) -> None:
        """Tells nothing any more."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A request in the queue: the number in its names, and its place."""

    number: int
    place: int


class WaitingHints:
    """Who waits is known from what vLLM tells a connector: who arrived, got blocks, was preempted.

    A request waits for the chunks that the store has of it, from the answer to its question on,
    until it has blocks. With several ranks it has an entry for each, because each has keys of its
    own. The scheduler's thread pays for a note of each change; keys are made, and told, by another
    one. Thread-safe.
    """

    def __init__(self, teller: Teller, layouts: Sequence[StateLayout]) -> None:
        self._teller = teller
        self._layouts = layouts
        self._lock = threading.Lock()
        self._waiting: dict[str, _Waiting] = {}
        self._numbers = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="kvstored-hints")

    @classmethod
    def of_client(cls, client: Client, layouts: Sequence[StateLayout]) -> Self:
        """Tells a daemon, in the session of ``client``."""
        return cls(QueueTeller(client), layouts)

    def wait(self, request_id: str, question: Question) -> None:
        """A request waits behind all others, for what the answer to its question names."""
        waiting = self._enter(request_id, 1)
        question.when_found(lambda found: self._answered(request_id, waiting, found))

    def wait_again(self, request_id: str, saved: Found) -> None:
        """A request was preempted: it waits before all others, for what was saved of it."""
        self._answered(request_id, self._enter(request_id, -1), saved)

    def leave(self, request_id: str) -> None:
        """A request runs, is loaded, or has ended."""
        with self._lock:
            waiting = self._waiting.pop(request_id, None)
        if waiting is not None:
            for rank in range(len(self._layouts)):
                self._teller.leave(_name(waiting, rank))

    def close(self) -> None:
        """Tells nothing any more."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._teller.close()

    def _enter(self, request_id: str, direction: int) -> _Waiting:
        self.leave(request_id)
        with self._lock:
            self._numbers += 1
            place = FRONT_PLACE + direction * self._numbers
            waiting = self._waiting[request_id] = _Waiting(self._numbers, place)
        return waiting

    def _answered(self, request_id: str, waiting: _Waiting, found: Found) -> None:
        if found.chain is None or not found.chunk_count:
            return
        # A copy: the chain belongs to the scheduler's thread from here on.
        chain_keys = tuple(found.chain.extend(()))[: found.chunk_count]
        try:
            self._thread.submit(self._tell, request_id, waiting, chain_keys)
        except RuntimeError:
            # It is closed.
            return

    def _tell(self, request_id: str, waiting: _Waiting, chain_keys: Sequence[bytes]) -> None:
        for rank, layout in enumerate(self._layouts):
            if self._waiting.get(request_id) is not waiting:
                return
            keys = [rank_key(key, layout.layout_id) for key in chain_keys]
            entry = QueueEntry(
                name=_name(waiting, rank), place=waiting.place, keys=keys, layout=layout
            )
            # With the lock held, so that nobody enters who has left.
            with self._lock:
                if self._waiting.get(request_id) is waiting:
                    self._teller.enter(entry)


def _name(waiting: _Waiting, rank: int) -> str:
    return f"{waiting.number}.{rank}"
