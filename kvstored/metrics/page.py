"""The page for people, and what it shows. Belongs to the endpoint's loop."""

import asyncio
import time
from contextlib import suppress
from functools import cache
from importlib.resources import files

from aiohttp import web

from kvstored import package_version
from kvstored.metrics.history import SAMPLE_S, History
from kvstored.metrics.page_data import page_data
from kvstored.metrics.readiness import Readiness, report_of
from kvstored.metrics.snapshot import HotRow
from kvstored.metrics.view import DaemonView, SilentError

HOTTEST = 10
"""Sequences that are shown."""
HOTTEST_S = 10.0
"""They are looked for so often at most: that goes through many entries of the index."""
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
        "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    ),
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
}


class Page:
    """Samples the daemon, and answers what the page asks."""

    def __init__(self, view: DaemonView) -> None:
        self._view = view
        self._history = History()
        self._hottest: tuple[HotRow, ...] = ()
        self._looked_s = -HOTTEST_S

    async def sample(self) -> None:
        """Looks at the daemon, for ever."""
        while True:
            with suppress(SilentError):
                snapshot = await self._view.snapshot()
                if snapshot is not None:
                    self._history.add(time.monotonic(), snapshot)
            await asyncio.sleep(SAMPLE_S)

    async def document(self, request: web.Request) -> web.Response:
        """The page itself."""
        del request
        return web.Response(text=_document(), content_type="text/html", headers=_HEADERS)

    async def data(self, request: web.Request) -> web.Response:
        """What it shows now."""
        del request
        try:
            snapshot = await self._view.snapshot()
            if snapshot is not None and time.monotonic() - self._looked_s >= HOTTEST_S:
                self._looked_s = time.monotonic()
                self._hottest = await self._view.hottest(HOTTEST)
        except SilentError:
            return silent()
        report = report_of(Readiness(self._view.phase), snapshot)
        return web.json_response(
            page_data(
                report,
                snapshot,
                self._history.series(),
                self._hottest,
                version=package_version(),
            ),
            headers=_HEADERS,
        )


@cache
def _document() -> str:
    return files("kvstored.metrics").joinpath("page.html").read_text()


def silent() -> web.Response:
    """What is answered while the daemon's event loop does not answer."""
    return web.Response(text="the daemon's event loop does not answer\n", status=503)
