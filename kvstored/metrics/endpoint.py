"""Answers monitoring over HTTP, on a thread of its own."""

import asyncio
import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from kvstored import package_version
from kvstored.metrics.connections import Connections
from kvstored.metrics.families import families_of
from kvstored.metrics.page import Page, silent
from kvstored.metrics.readiness import Readiness, report_of
from kvstored.metrics.snapshot import Snapshot
from kvstored.metrics.view import DaemonView, SilentError

LOGGER = logging.getLogger(__name__)
KEEP_ALIVE_S = 75.0
"""How long a connection without a request stays open for the next; scrapes are 15 s apart."""
STOP_S = 5.0
"""How long answers that are under way may take when the daemon ends."""


@contextmanager
def endpoint(listener: socket.socket, view: DaemonView) -> Iterator[None]:
    """Answers while the body runs; closes ``listener``.

    ``/metrics`` has the numbers, ``/healthz`` says whether the daemon lives, ``/readyz`` whether
    clients should be sent to it, and ``/`` shows it to people.
    """
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()
    thread = threading.Thread(
        target=loop.run_until_complete,
        args=(_serve(listener, _Handlers(view), stop),),
        name="kvstored-metrics",
        daemon=True,
    )
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


async def _serve(listener: socket.socket, handlers: "_Handlers", stop: asyncio.Event) -> None:
    page = Page(handlers.view)
    application = web.Application()
    application.add_routes(
        [
            web.get("/metrics", handlers.metrics),
            web.get("/healthz", handlers.health),
            web.get("/readyz", handlers.readiness),
            web.get("/", page.document),
            web.get("/page.json", page.data),
        ]
    )
    runner = web.AppRunner(
        application, access_log=None, shutdown_timeout=STOP_S, keepalive_timeout=KEEP_ALIVE_S
    )
    await runner.setup()
    assert runner.server is not None
    tasks = [
        asyncio.create_task(Connections(listener, runner.server).accept()),
        asyncio.create_task(page.sample()),
    ]
    try:
        await stop.wait()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await runner.cleanup()
        listener.close()


class _Handlers:
    """Each answers one path, on the endpoint's loop."""

    def __init__(self, view: DaemonView) -> None:
        self.view = view

    async def metrics(self, request: web.Request) -> web.Response:
        """The numbers; without those of the store before and after it serves."""
        del request
        try:
            snapshot = await self.view.snapshot()
        except SilentError:
            return silent()
        report = report_of(Readiness(self.view.phase), snapshot)
        families = families_of(report.readiness, snapshot, version=package_version())
        registry = CollectorRegistry()
        registry.register(_Families(families))
        return web.Response(
            body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST}
        )

    async def health(self, request: web.Request) -> web.Response:
        """200 as long as the daemon's event loop answers."""
        del request
        try:
            await self.view.check_alive()
        except SilentError:
            return silent()
        return web.Response(text="alive\n")

    async def readiness(self, request: web.Request) -> web.Response:
        """The state, and what has failed; 503 where no client should be sent to it."""
        del request
        snapshot: Snapshot | None = None
        try:
            snapshot = await self.view.snapshot()
        except SilentError:
            return silent()
        report = report_of(Readiness(self.view.phase), snapshot)
        lines = [report.readiness.value, *report.reasons]
        return web.Response(
            text="\n".join(lines) + "\n", status=200 if report.readiness.takes_work else 503
        )


class _Families(Collector):
    """What was collected already."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        """As prometheus_client asks for them."""
        return self._families
