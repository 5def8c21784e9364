"""The engine on a thread of its own; anybody may give it jobs."""

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue

from engine_adapters.runner.engine.engine import Engine
from engine_adapters.runner.model.errors import RequestError
from engine_adapters.server.running.job import Job, Outcome
from engine_adapters.server.running.shared_sink import SharedSink

LOGGER = logging.getLogger(__name__)
THREAD_NAME = "engine"


class EngineThread:
    """Steps an engine while it has jobs, and sleeps while it has none.

    ``submit`` and ``abort`` return at once; they are done between two steps. Every job that was
    submitted ends once, also when the engine fails: then ``is_alive`` is False, and all others end
    with an error as well. Thread-safe.
    """

    def __init__(self, engine: Engine, sink: SharedSink) -> None:
        """``sink`` is the engine's. Nobody else uses the engine from now on."""
        self._engine = engine
        self._sink = sink
        self._orders: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._ordering = threading.Lock()
        self._is_over = False
        """Whether nobody reads orders any more; changed and looked at with the lock."""
        self._jobs: dict[int, Job] = {}
        self._failure: Exception | None = None
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether jobs are done."""
        return self._failure is None and self._thread.is_alive()

    def submit(self, job: Job) -> None:
        """Queues a job; one that comes after the end of the thread ends at once."""
        if not self._order(lambda: self._add(job)):
            self._add(job)

    def abort(self, job: Job) -> None:
        """Ends a job that nobody wants any more; nothing happens where it is over."""
        # After the end of the thread every job is.
        self._order(lambda: self._abort(job))

    def stop(self) -> None:
        """Aborts all jobs and waits for the end of the thread."""
        self._order(self._stop)
        self._thread.join()
        with self._ordering:
            self._is_over = True
            # What came too late for the thread ends as well, and nothing can come after it.
            while not self._orders.empty():
                self._orders.get()()

    def _order(self, order: Callable[[], None]) -> bool:
        """Has the thread do it between two steps; False where nobody would read the order."""
        with self._ordering:
            if not self._is_over:
                self._orders.put(order)
            return not self._is_over

    def _run(self) -> None:
        while not self._is_stopped:
            try:
                self._take_orders()
                if self._failure is None:
                    self._step()
            except Exception as error:
                LOGGER.exception("the engine failed; start the server again")
                self._failure = error
                for request_id in list(self._jobs):
                    self._end(request_id, error)

    def _take_orders(self) -> None:
        """Does what was asked meanwhile; with nothing to compute it waits for somebody to ask."""
        if self._failure is not None or self._engine.is_idle:
            self._orders.get()()
        while not self._orders.empty():
            self._orders.get()()

    def _step(self) -> None:
        if self._is_stopped or self._engine.is_idle:
            return
        for completion in self._engine.step():
            outcome: Outcome = completion if completion.error is None else completion.error
            self._end(completion.request_id, outcome)

    def _add(self, job: Job) -> None:
        if self._failure is not None or self._is_stopped:
            job.listener.end(self._failure)
            return
        try:
            job.request_id = self._engine.add_request(
                job.prompt,
                new_tokens_max=job.new_tokens_max,
                sampling=job.sampling,
                conversation=job.conversation,
                link=job.link,
                watch=job.listener.take,
            )
        except RequestError as error:
            job.listener.end(error)
            return
        except Exception as error:
            LOGGER.exception("a request was not taken; the others go on")
            job.listener.end(error)
            return
        if job.saver is not None:
            self._sink.assign(job.request_id, job.saver)
        self._jobs[job.request_id] = job

    def _abort(self, job: Job) -> None:
        request_id = job.request_id
        if request_id is not None and self._engine.abort(request_id):
            self._end(request_id, None)

    def _stop(self) -> None:
        self._is_stopped = True
        for job in list(self._jobs.values()):
            self._abort(job)

    def _end(self, request_id: int, outcome: Outcome) -> None:
        job = self._jobs.pop(request_id)
        self._sink.forget(request_id)
        job.listener.end(outcome)
