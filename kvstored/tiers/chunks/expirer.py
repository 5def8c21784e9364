"""Frees what nobody has used for too long, a slice at a time."""

import logging
import threading
import time
from collections.abc import Sequence
from concurrent.futures import wait

from kvstored.counters import Counters
from kvstored.format.identity import ChunkId
from kvstored.store.index.index import IndexFailure
from kvstored.store.write.chunk_store import ChunkStore
from kvstored.tiers.chunks.dram import DramTier
from kvstored.tiers.chunks.nvme_room import NvmeRoom

LOGGER = logging.getLogger(__name__)

EXPIRED_AT_ONCE = 256
"""Chunks that leave the devices together. The next ones follow when that is committed."""


class Expirer:
    """One thread that looks now and then what has expired. Pins are respected.

    Expired chunks are misses from the look on that finds their time over; to free them may take
    longer. Counts ``expired_chunks``, on the devices and, of chunks that only DRAM had, there.
    """

    def __init__(
        self, *, store: ChunkStore, dram: DramTier, room: NvmeRoom, counters: Counters
    ) -> None:
        self._store = store
        self._dram = dram
        self._room = room
        self._counters = counters
        self._stop = threading.Event()
        # What is there at the start counts as used then.
        room.ages.look(time.monotonic())
        self._thread = threading.Thread(target=self._run, name="kvstored-expire", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread after the slice in progress."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._room.ages.lifetimes.look_s):
            try:
                self._room.ages.look(time.monotonic())
                for segment in range(self._room.ages.segment_count):
                    self._expire_segment(segment)
                self._dram.ages.expire()
            except IndexFailure as error:
                LOGGER.warning("expired chunks stay: %s", error)
            except Exception:
                LOGGER.exception("%s: a look is given up", self._thread.name)

    def _expire_segment(self, segment: int) -> None:
        first = 0
        while not self._stop.is_set():
            found = self._room.ages.in_segment(segment, first, EXPIRED_AT_ONCE)
            if found:
                self._expire([chunk for _, chunk in found])
            if len(found) < EXPIRED_AT_ONCE:
                return
            first = found[-1][0] + 1

    def _expire(self, chunks: Sequence[ChunkId]) -> None:
        leaving = self._store.evict(chunks)
        wait(leaving)
        gone_count = sum(each.exception() is None and each.result() for each in leaving)
        self._counters.add("expired_chunks", gone_count)
        # After the devices: nothing is loaded from there any more.
        stored = self._room.are_stored(chunks)
        self._dram.ages.drop(
            [chunk for chunk, is_stored in zip(chunks, stored, strict=True) if not is_stored]
        )
