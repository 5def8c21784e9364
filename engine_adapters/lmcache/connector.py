"""The class that LMCache loads: its ``native_plugin`` protocol over the SDK."""

import itertools
import logging
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from engine_adapters.lmcache.completions import Completion, Completions
from engine_adapters.lmcache.object_store import Bytes, ObjectStore
from engine_adapters.lmcache.stored_object import OBJECT_BYTES_MAX
from engine_adapters.started_pool import started_pool
from kvstored_client import Client

LOGGER = logging.getLogger(__name__)


class Connector:
    """Keeps LMCache's objects in the daemon of this node.

    ``socket``: the daemon's (default: KVSTORED_SOCKET). ``weights``: what names the model's
    weights, a revision say: LMCache's keys have the model's name only. ``arena_bytes``: memory
    shared with the daemon, through which every object is copied once. ``threads``: of transfers.

    Every ``submit_`` returns at once with the number of the call. ``drain_completions`` tells what
    became of it. Nothing raises because of the store: what fails is a miss. Thread-safe.
    """

    def __init__(
        self,
        socket: str | os.PathLike[str] | None = None,
        *,
        weights: str = "",
        arena_bytes: int | str = "512MiB",
        threads: int = 4,
        client: Client | None = None,
    ) -> None:
        self._objects = ObjectStore(
            client or Client(socket, arena_bytes=arena_bytes, name="LMCache"), weights=weights
        )
        self._completions = Completions()
        self._numbers = itertools.count(1)
        self._transfers = started_pool(threads, "kvstored-transfer")
        # A look-up waits for no transfer, and for no deletion to be durable.
        self._lookups = started_pool(1, "kvstored-lookup")
        self._deletions = started_pool(1, "kvstored-delete")
        self._warned_bytes = OBJECT_BYTES_MAX

    def event_fd(self) -> int:
        """A descriptor that can be read while ``drain_completions`` has something to tell."""
        return self._completions.descriptor

    def submit_batch_set(self, keys: list[str], views: list[memoryview]) -> int:
        """Stores objects; their memory is LMCache's again when the call is completed."""
        sources = [_bytes_of(view) for view in views]
        self._warn_of_size(sources)
        return self._submit(
            self._transfers, len(keys), lambda: self._objects.store(keys, sources), needs_all=True
        )

    def submit_batch_get(self, keys: list[str], views: list[memoryview]) -> int:
        """Loads objects into the memory of the views."""
        targets = [_bytes_of(view) for view in views]
        return self._submit(
            self._transfers, len(keys), lambda: self._objects.load(keys, targets), needs_all=True
        )

    def submit_batch_exists(self, keys: list[str]) -> int:
        """Which objects are stored."""
        return self._submit(self._lookups, len(keys), lambda: self._objects.find(keys))

    def submit_batch_delete(self, keys: list[str]) -> int:
        """Deletes objects durably."""
        return self._submit(self._deletions, len(keys), lambda: self._objects.delete(keys))

    def drain_completions(self) -> list[Completion]:
        """What was completed since the last call."""
        return self._completions.drain()

    def close(self) -> None:
        """Waits for what runs, drops what does not, and closes the descriptor."""
        for pool in (self._transfers, self._lookups, self._deletions):
            pool.shutdown(wait=True, cancel_futures=True)
        self._completions.close()
        self._objects.close()

    def _submit(
        self,
        pool: ThreadPoolExecutor,
        count: int,
        work: Callable[[], list[bool]],
        *,
        needs_all: bool = False,
    ) -> int:
        number = next(self._numbers)

        def run() -> None:
            try:
                found = work()
                ok = all(found) or not needs_all
                error = "" if ok else f"{found.count(False)} of {count} objects are a miss"
            except Exception as failure:
                LOGGER.exception("a call of kvstored's connector counts as a miss")
                found, ok, error = [False] * count, False, str(failure)
            self._completions.add((number, ok, error, found))

        try:
            pool.submit(run)
        except RuntimeError as closed:
            # After ``close``: a started pool refuses nothing else, and never runs it later.
            self._completions.add((number, False, str(closed), [False] * count))
        return number

    def _warn_of_size(self, sources: Sequence[Bytes]) -> None:
        largest = max((source.nbytes for source in sources), default=0)
        if largest > self._warned_bytes:
            self._warned_bytes = largest
            LOGGER.warning(
                "kvstored does not store objects of %d bytes; it takes up to %d: use a smaller "
                "chunk size in LMCache",
                largest,
                OBJECT_BYTES_MAX,
            )


def _bytes_of(view: memoryview) -> Bytes:
    """All bytes behind a view; LMCache's are made by ctypes."""
    return np.frombuffer(view, np.uint8)
