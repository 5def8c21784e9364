"""A real browser without a screen, over its debugging protocol."""

import asyncio
import base64
import json
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp

from tests.support.waiting import PATIENCE_S, until, until_async

CHROMIUM = shutil.which("chromium")
_OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-port=0",
)


class Tab:
    """One page of the browser."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = count(1)

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One call of the protocol; raises what the browser answers as an error."""
        number = next(self._numbers)
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        async with asyncio.timeout(PATIENCE_S):
            while True:
                message = await self._socket.receive_json()
                if message.get("id") == number:
                    assert "error" not in message, message
                    result: dict[str, Any] = message["result"]
                    return result

    async def value(self, expression: str) -> Any:
        """What an expression of the page's language is."""
        answer = await self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def is_loaded(self) -> bool:
        """Whether the document is whole, and not the empty one that comes first."""
        is_whole = "document.readyState === 'complete' && location.protocol !== 'about:'"
        return bool(await self.value(is_whole))

    async def shape(self, width: int, height: int, scheme: str) -> None:
        """Gives the window a size, and a preference for ``light`` or ``dark``."""
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        feature = {"name": "prefers-color-scheme", "value": scheme}
        await self.call("Emulation.setEmulatedMedia", features=[feature])

    async def screenshot(self) -> bytes:
        """The page as a PNG, as high as it is."""
        answer = await self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        return base64.b64decode(answer["data"])


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Tab]:
    """A browser with one page, until the body ends."""
    assert CHROMIUM is not None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        process = await asyncio.create_subprocess_exec(
            CHROMIUM,
            *_OPTIONS,
            f"--user-data-dir={home}",
            url,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            place = Path(home) / "DevToolsActivePort"
            await until(lambda: place.exists() and place.read_text().count("\n") > 0)
            port = int(place.read_text().split()[0])
            async with aiohttp.ClientSession() as session:
                async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                    tabs = json.loads(await answer.text())
                page = next(tab for tab in tabs if tab["type"] == "page")
                async with session.ws_connect(
                    page["webSocketDebuggerUrl"], max_msg_size=0
                ) as socket:
                    tab = Tab(socket)
                    await until_async(tab.is_loaded)
                    yield tab
        finally:
            process.terminate()
            await process.wait()
