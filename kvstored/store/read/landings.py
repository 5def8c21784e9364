"""What was read from the devices: verified against its header, then brought into the arena."""

import logging
import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple

from kvstored.format.checksum import checksum
from kvstored.format.errors import FormatError
from kvstored.format.extent_header import ExtentHeader
from kvstored.store.read.chunk_source import StoredChunk, is_header_of
from kvstored.store.read.fragments import fragments_checksum, scatter
from kvstored.store.read.placement import Fragments
from kvstored.store.read.plan import LayerRun
from kvstored.store.read.read_task import ReadTask
from kvstored_contract.board import SliceState

LOGGER = logging.getLogger(__name__)


class Landing(NamedTuple):
    """A run that was read from a device and is not verified yet.

    ``fragments`` tell for each of its layers where the slice goes in the arena. ``payload``
    holds the slices as they lie on the device, in memory that no client can write; None
    when they went straight into the arena. ``release`` gives that memory back and is
    called once, when the run needs it no more.
    """

    run: LayerRun
    fragments: tuple[Fragments, ...]
    payload: memoryview | None
    release: Callable[[], None]


Settled = tuple[LayerRun, SliceState]
"""A run and what has become of its slices."""


class Landings:
    """Runs of one read that have landed, and the headers of their chunks. Thread-safe.

    What ``landed`` and ``failed`` yield has given its memory back; the caller must take all
    of it. ``on_damage`` is called once for each chunk whose bytes do not match the index.
    """

    def __init__(self, task: ReadTask, on_damage: Callable[[StoredChunk], None]) -> None:
        self._task = task
        self._on_damage = on_damage
        self._headers: dict[int, ExtentHeader] = {}
        self._waiting: dict[int, list[Landing]] = {}
        self._damaged: set[int] = set()
        self._lock = threading.Lock()

    def is_damaged(self, chunk: int) -> bool:
        """Whether nothing of a chunk, by its number in the read, can be verified any more."""
        return chunk in self._damaged

    def landed(self, landing: Landing, header_page: bytes) -> Iterator[Settled]:
        """Takes over a run that was read; yields it, and the runs that waited for it.

        ``header_page`` is empty for runs without header; those that land before the
        header of their chunk wait for it. The header's run is always issued first, so
        that it never waits for the memory that they hold.
        """
        if landing.run.with_header:
            try:
                self._accept_header(landing.run, header_page)
            except Exception:
                LOGGER.exception("the header of a chunk cannot be looked at, which is a miss")
        elif self._must_wait(landing):
            return
        yield from self._concluded(landing, self._state_of(landing))

    def failed(self, landing: Landing) -> Iterator[Settled]:
        """Takes over a run that could not be read; yields it, and the runs that waited for it."""
        return self._concluded(landing, SliceState.MISSING)

    def _must_wait(self, landing: Landing) -> bool:
        """Keeps a run whose chunk's header has not landed."""
        chunk = landing.run.chunk
        with self._lock:
            is_decided = chunk in self._headers or chunk in self._damaged
            if not is_decided:
                self._waiting.setdefault(chunk, []).append(landing)
        return not is_decided

    def _concluded(self, landing: Landing, state: SliceState) -> Iterator[Settled]:
        """Gives a run's memory back and yields it; after a header, the runs that waited too."""
        landing.release()
        waiting: list[Landing] = []
        if landing.run.with_header:
            chunk = landing.run.chunk
            with self._lock:
                if chunk not in self._headers:
                    self._damaged.add(chunk)
                waiting = self._waiting.pop(chunk, [])
        yield landing.run, state
        for late in waiting:
            yield from self._concluded(late, self._state_of(late))

    def _accept_header(self, run: LayerRun, page: bytes) -> None:
        """Keeps the header if it is the one that the index vouches for."""
        source = self._task.stored(run)
        try:
            header = ExtentHeader.decode(page)
        except FormatError:
            header = None
        if header is not None and is_header_of(header, page, source):
            with self._lock:
                self._headers[run.chunk] = header
        else:
            self._mark_damaged(run.chunk, source)

    def _state_of(self, landing: Landing) -> SliceState:
        """What becomes of a run; one that cannot be looked at is missing, and keeps no memory."""
        try:
            return self._verify(landing)
        except Exception:
            LOGGER.exception("what a device has read cannot be verified and is a miss")
            return SliceState.MISSING

    def _verify(self, landing: Landing) -> SliceState:
        """Compares every slice with the header; those that are not in the arena go there."""
        run, payload, arena = landing.run, landing.payload, self._task.target.arena
        header = self._headers.get(run.chunk)
        if header is None:
            return SliceState.MISSING
        source = self._task.stored(run)
        sums = header.slices[run.first_layer : run.end_layer]
        if payload is None:
            is_sound = all(
                not expected.byte_count or fragments_checksum(arena, fragments) == expected.checksum
                for fragments, expected in zip(landing.fragments, sums, strict=True)
            )
        else:
            starts = source.geometry.starts_in_run(run.first_layer, run.layer_count)
            is_sound = all(
                not expected.byte_count
                or checksum(payload[start : start + expected.byte_count]) == expected.checksum
                for start, expected in zip(starts, sums, strict=True)
            )
        if not is_sound:
            self._mark_damaged(run.chunk, source)
            return SliceState.MISSING
        if payload is not None:
            scatter(payload, arena, zip(starts, landing.fragments, strict=True))
        return SliceState.RESIDENT

    def _mark_damaged(self, chunk: int, source: StoredChunk) -> None:
        with self._lock:
            is_news = chunk not in self._damaged
            self._damaged.add(chunk)
        if is_news:
            self._on_damage(source)
