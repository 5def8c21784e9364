"""Serves until somebody asks it to stop, and lets what runs end."""

import asyncio
import logging
import signal
from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import web

from engine_adapters.server.http.application import make_application
from engine_adapters.server.http.service import Service

LOGGER = logging.getLogger(__name__)
CLOSE_S = 2.0
"""How long answers to aborted requests may take to be sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a server listens, and how long its requests may take once it shall stop."""

    host: str
    port: int
    drain_s: float


async def serve(service: Service, place: Place, *, on_ready: Callable[[str], None]) -> None:
    """Returns after SIGTERM or SIGINT: the engine has stopped, and nobody holds anything.

    ``on_ready`` hears the URL. Raises OSError where it cannot listen.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    runner = web.AppRunner(
        make_application(service),
        access_log=None,
        handler_cancellation=True,
        shutdown_timeout=CLOSE_S,
    )
    await runner.setup()
    try:
        site = web.TCPSite(runner, place.host, place.port)
        await site.start()
        on_ready(url_of(runner))
        await stop.wait()
        await drain(service, place.drain_s)
    finally:
        await loop.run_in_executor(None, service.engine.stop)
        await runner.cleanup()
        await service.finish()


async def drain(service: Service, limit_s: float) -> None:
    """Takes no more requests, and waits so long for those that there are."""
    empty = asyncio.Event()
    service.admission.drain(empty.set)
    LOGGER.info("stopping; %d requests have %g s to end", service.admission.count, limit_s)
    try:
        async with asyncio.timeout(limit_s):
            await empty.wait()
    except TimeoutError:
        LOGGER.warning("%d requests did not end in time", service.admission.count)


def url_of(runner: web.AppRunner) -> str:
    """Where clients find it."""
    host, port = runner.addresses[0][:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
