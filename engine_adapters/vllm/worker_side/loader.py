"""The thread of a worker that brings what was ordered."""

import logging
import threading
import time
from contextlib import AbstractContextManager, nullcontext

from engine_adapters.vllm.messages.orders import LoadEnd, LoadOrder, LoadProgress
from engine_adapters.vllm.worker_side.load_job import LoadJob, LoadPlace

LOGGER = logging.getLogger("vllm.kvstored")
POLL_S = 0.0005
"""Between two looks at the boards while nothing arrives."""


class Loader:
    """Runs all loads of one worker.

    Every method may be called from the engine's thread and waits at most for the copy of one
    chunk.
    """

    def __init__(self, place: LoadPlace) -> None:
        self._place = place
        self._turn: AbstractContextManager[object] = (
            nullcontext() if place.meetings is None else place.meetings.turn
        )
        self._changed = threading.Condition()
        self._jobs: dict[int, LoadJob] = {}
        self._overtaken: dict[int, LoadJob] = {}
        self._ended: list[LoadJob] = []
        self._finished_requests: set[str] = set()
        self._bad_blocks: set[int] = set()
        self._ends: list[LoadEnd] = []
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="kvstored-loader", daemon=True)
        self._thread.start()

    def start(self, order: LoadOrder, *, claimed_chunks: int = 0) -> None:
        """Begins a load, of whose chunks computing owns the first ones already."""
        job = LoadJob(order, self._place)
        job.claim(claimed_chunks)
        if self._place.meetings is not None:
            self._place.meetings.open(order.load_id)
        with self._changed:
            self._jobs[order.load_id] = job
            if order.overtaken:
                self._overtaken[order.load_id] = job
            self._changed.notify()

    def claim(self, load_id: int, chunk_count: int) -> None:
        """Computing owns the first chunks of the load's request."""
        if (job := self._overtaken.get(load_id)) is not None:
            job.claim(chunk_count)

    def cancel(self, load_id: int) -> None:
        """Writes no block of the load any more."""
        with self._changed:
            self._overtaken.pop(load_id, None)
            job = self._jobs.get(load_id)
        if job is not None:
            job.cancel()

    @property
    def rank(self) -> int:
        """That of the worker."""
        return self._place.layout.shard.tensor_rank

    @property
    def is_busy(self) -> bool:
        """Whether a load runs."""
        return bool(self._jobs)

    @property
    def is_settled(self) -> bool:
        """Whether no load runs, and nothing of those that did is left to be taken."""
        with self._changed:
            return not (
                self.is_busy
                or self._overtaken
                or self._ends
                or self._finished_requests
                or self._bad_blocks
            )

    def wait(self, timeout_s: float) -> None:
        """Lets the loader's thread run: an engine that spins would keep it from the interpreter."""
        with self._changed:
            if self._jobs and not self._ends:
                self._changed.wait(timeout_s)

    def take_finished(self) -> set[str]:
        """Requests whose waited-for load has ended since the last call."""
        if not self._finished_requests:
            return set()
        with self._changed:
            finished, self._finished_requests = self._finished_requests, set()
        return finished

    def take_bad_blocks(self) -> set[int]:
        """Blocks that such loads did not fill."""
        if not self._bad_blocks:
            return set()
        with self._changed:
            bad, self._bad_blocks = self._bad_blocks, set()
        return bad

    def take_ends(self) -> tuple[LoadEnd, ...]:
        """Loads that ended since the last call."""
        if not self._ends:
            return ()
        with self._changed:
            ends, self._ends = self._ends, []
        return tuple(ends)

    def progress(self) -> dict[int, LoadProgress]:
        """How far every overtaken load is that was not cancelled."""
        if not self._overtaken:
            return {}
        with self._changed:
            jobs = list(self._overtaken.items())
        return {
            load_id: LoadProgress(first_loaded=first, goes_up=job.order.is_linked)
            for load_id, job in jobs
            if (first := job.first_loaded) is not None
        }

    def close(self) -> None:
        """Ends the thread; loads that run are cancelled."""
        with self._changed:
            self._is_closed = True
            for job in self._jobs.values():
                job.cancel()
            self._changed.notify()
        self._thread.join(self._place.timeout_s)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not (self._jobs or self._ended or self._is_closed):
                    self._place.clock.rest()
                    self._changed.wait()
                if self._is_closed and not (self._jobs or self._ended):
                    return
                jobs = list(self._jobs.values())
            with self._turn:
                self._place.clock.advance(time.monotonic(), load_count=len(jobs))
                moved = [self._step(job) for job in jobs]
            self._ended = [job for job in self._ended if not job.is_released]
            if not any(moved):
                time.sleep(POLL_S)

    def _step(self, job: LoadJob) -> bool:
        try:
            moved = job.step()
        except Exception:
            # Whatever it is, it is a miss: the request computes what is not there.
            LOGGER.exception("kvstored: a load failed and counts as a miss")
            job.abandon()
            moved = True
        if job.end is not None:
            self._note_end(job, job.end)
        return moved

    def _note_end(self, job: LoadJob, end: LoadEnd) -> None:
        if self._place.meetings is not None:
            self._place.meetings.close(end.load_id)
        with self._changed:
            del self._jobs[job.order.load_id]
            self._ended.append(job)
            self._ends.append(end)
            if not job.order.overtaken:
                self._bad_blocks.update(job.missing_block_ids)
                self._finished_requests.add(job.order.request_id)
            self._changed.notify_all()
