"""What all requests share."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from aiohttp import web

from engine_adapters.server.api_keys import ApiKeys
from engine_adapters.server.http.metrics import Metrics
from engine_adapters.server.protocol.api_error import ApiError
from engine_adapters.server.protocol.limits import Limits
from engine_adapters.server.running.admission import Admission
from engine_adapters.server.running.engine_thread import EngineThread
from engine_adapters.server.running.namespace import Namespace
from engine_adapters.server.served_model import ServedModel

ResultT = TypeVar("ResultT")

WORKERS = 8
"""Threads on which the store is waited for."""
READERS = 2
"""Threads on which text becomes tokens. They never wait, so that a store that hangs stops nothing
that does not need it."""


class Service:
    """The event loop only; made on it or before it runs."""

    def __init__(
        self,
        *,
        engine: EngineThread,
        model: ServedModel,
        namespaces: Mapping[str, Namespace],
        keys: ApiKeys,
        limits: Limits,
        running_max: int,
    ) -> None:
        """``namespaces`` has all that the keys open, by name; they stay the caller's."""
        self.engine = engine
        self.model = model
        self.limits = limits
        self.admission = Admission(running_max=running_max, waiting_max=limits.waiting_max)
        self.metrics = Metrics(lambda: self.admission.count)
        self._namespaces = namespaces
        self._keys = keys
        self._workers = ThreadPoolExecutor(WORKERS, thread_name_prefix="server-worker")
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="server-reader")
        self._tasks: set[asyncio.Task[Any]] = set()

    def namespace_of(self, request: web.Request) -> Namespace:
        """Whose request it is; raises ApiError with 401."""
        return self._namespaces[self._keys.namespace_of(request.headers.get("Authorization"))]

    def check_model(self, name: str) -> None:
        """Raises ApiError with 404 for a model of another name."""
        if name != self.model.name:
            raise ApiError(
                f"there is no model {name!r} here, but {self.model.name!r}",
                status=404,
                parameter="model",
                code="model_not_found",
            )

    async def in_thread(self, call: Callable[[], ResultT]) -> ResultT:
        """Runs what may wait for the store, on another thread."""
        return await asyncio.get_running_loop().run_in_executor(self._workers, call)

    async def in_reader(self, call: Callable[[], ResultT]) -> ResultT:
        """Runs what computes and asks the store nothing, on another thread."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, call)

    def spawn(self, work: Coroutine[Any, Any, ResultT]) -> "asyncio.Task[ResultT]":
        """Runs what must be done also where its client is gone."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._end)
        return task

    async def finish(self) -> None:
        """Waits for what was spawned; the engine has ended its jobs."""
        while self._tasks:
            await asyncio.wait(self._tasks)
        self._workers.shutdown(wait=True)
        self._readers.shutdown(wait=True)

    def _end(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        # Whether or not somebody still waits for it, its error was seen.
        if not task.cancelled():
            task.exception()
