"""What sequences used together before the start: the devices do not have it, but their records."""

import logging
import threading

from kvstored.counters import Counters
from kvstored.format.identity import ChunkId
from kvstored.format.sequence_record import SequenceRecord
from kvstored.store.index.failure import IndexFailure
from kvstored.store.index.index import Index
from kvstored.tiers.chunks.nvme_room import NvmeRoom

LOGGER = logging.getLogger(__name__)


class EarlierUses:
    """One thread that walks over all sequences once, and ends. Until then chunks go by themselves.

    Chunks that no sequence names go by themselves after it, too, until they are used together.
    ``clock`` is the table's at the start: what was used since is left alone.
    Counts ``sequences_put_together``.
    """

    def __init__(self, *, index: Index, room: NvmeRoom, counters: Counters, clock: int) -> None:
        self._index = index
        self._room = room
        self._counters = counters
        self._clock = clock
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="kvstored-earlier", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Waits until all sequences were looked at."""
        self._thread.join()

    def close(self) -> None:
        """Ends the thread after the sequence in progress."""
        self._is_closing = True
        self._thread.join()

    def _run(self) -> None:
        try:
            for namespace_id, record in self._index.walks.sequence_records():
                if self._is_closing:
                    return
                self._put_together(namespace_id, record)
        except IndexFailure as error:
            LOGGER.warning("not all sequences go as a whole yet: %s", error)
        except Exception:
            LOGGER.exception("%s is given up", self._thread.name)

    def _put_together(self, namespace_id: bytes, record: SequenceRecord) -> None:
        keys = (*record.keys, record.tail.key) if record.tail else record.keys
        if len(keys) > 1:
            chunks = [ChunkId(namespace_id, key) for key in keys]
            self._room.used_together(chunks, before=self._clock)
        self._counters.add("sequences_put_together")
