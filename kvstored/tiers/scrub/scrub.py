"""The online scrub: everything on the devices is read now and then, at a bounded rate.

It finds damage before a client needs the bytes, and while another copy may still exist.
Nothing is remembered across starts: each pass begins at a place that chance chooses, so
that a daemon that is often restarted comes to every chunk as well.
"""

import logging
import secrets
import threading
import time

from kvstored.counters import Counters
from kvstored.io.engine import IoEngine
from kvstored.io.memory import AlignedMemory
from kvstored.store.write.chunk_store import ChunkStore
from kvstored.tiers.chunks.nvme_room import NvmeRoom
from kvstored.tiers.chunks.status import ScrubStatus
from kvstored.tiers.scrub.scrub_device import Pacer, ScrubDevice, ScrubStopped
from kvstored.tiers.scrub.scrub_pace import Pace, ScrubLimits, look_count
from kvstored.tiers.scrub.scrub_pass import ScrubPass

LOGGER = logging.getLogger(__name__)

REQUEST_BYTES_MAX = 1024 * 1024
"""The longest read: what a client's read may have to wait for."""


class Scrub:
    """One thread that makes passes until it is closed. ``status`` may be asked from any.

    Counters: ``scrub_passes`` that ended, ``scrub_bytes`` that were read, and those of
    ``ScrubPass``.
    """

    def __init__(
        self,
        *,
        store: ChunkStore,
        room: NvmeRoom,
        engine: IoEngine,
        counters: Counters,
        limits: ScrubLimits,
    ) -> None:
        self._store = store
        self._room = room
        self._engine = engine
        self._counters = counters
        self._limits = limits
        self._memory = AlignedMemory(REQUEST_BYTES_MAX)
        self._stop = threading.Event()
        self._pacer = Pacer(Pace(limits.bytes_per_s), self._stop)
        self._pass: ScrubPass | None = None
        self._ended_ms = 0
        self._thread = threading.Thread(target=self._run, name="kvstored-scrub", daemon=True)
        self._thread.start()

    def status(self) -> ScrubStatus:
        """How far the pass in progress is, and when the last one ended."""
        running = self._pass
        return ScrubStatus(
            progress=0.0 if running is None else running.progress, ended_ms=self._ended_ms
        )

    def close(self) -> None:
        """Ends the thread after the one transfer that may be in flight."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        wait_s = self._limits.start_delay_s
        while not self._stop.wait(wait_s):
            began_s = time.monotonic()
            try:
                self._make_pass()
            except ScrubStopped:
                return
            except Exception:
                LOGGER.exception("a scrub pass ended early")
            finally:
                self._pass = None
            wait_s = self._limits.next_pass_wait_s(time.monotonic() - began_s)

    def _make_pass(self) -> None:
        began_s = time.monotonic()
        scrub_pass = self._pass = ScrubPass(
            store=self._store,
            room=self._room,
            counters=self._counters,
            devices=[
                ScrubDevice(
                    device,
                    device_index,
                    engine=self._engine,
                    pacer=self._pacer,
                    counters=self._counters,
                    on_error=self._store.failures.report,
                )
                for device_index, device in enumerate(self._store.device_set.devices)
            ],
            pacer=self._pacer,
            scratch=self._memory.view,
        )
        scrub_pass.run(secrets.randbelow(max(look_count(self._room.row_end), 1)))
        self._ended_ms = int(time.time() * 1000)
        self._counters.add("scrub_passes")
        found = scrub_pass.found
        LOGGER.info(
            "scrub pass ended: %d chunks, %d bytes in %.0f s; damaged: %d chunks, "
            "%d index entries, %d slab headers, %d superblock copies; not readable: %d chunks",
            found["scrub_chunks"],
            scrub_pass.read_bytes,
            time.monotonic() - began_s,
            found["scrub_damaged_chunks"],
            found["scrub_lost_records"],
            found["scrub_damaged_slab_headers"],
            found["scrub_damaged_superblocks"],
            found["scrub_unread_chunks"],
        )
