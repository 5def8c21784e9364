"""The page for people: what a daemon answers, and what a browser shows of it."""

import asyncio
import json
import os
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from kvstored.config_values import TcpAddress
from kvstored.metrics.endpoint import endpoint
from kvstored.metrics.listener import listener_of
from kvstored.metrics.snapshot import HotRow, Snapshot
from kvstored.metrics.view import DaemonView
from kvstored.server.listen import SocketPermissions
from tests.kvstored.metrics.snapshots import DEVICE, NAMESPACES, snapshot_of
from tests.support.browser import CHROMIUM, Tab, opened
from tests.support.scale import Scale, at
from tests.support.waiting import until_async

MIB = 1024**2
GIB = 1024 * MIB
SCREENSHOTS = "KVSTORED_SCREENSHOTS"
"""A folder that the test leaves its screenshots in."""
EVIL = "<img src=x onerror=document.title='broken'>"
needs_browser = pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium on this machine (apt-get install chromium)"
)


def full(look: int) -> Snapshot:
    """A busy daemon with two devices, of which one has failed."""
    devices = tuple(
        replace(
            DEVICE,
            path=f"/dev/disk/by-id/nvme-DRIVE_{number}",
            capacity_bytes=1800 * GIB,
            used_bytes=(1500 - 700 * number) * GIB,
            read_bytes=look * 150 * MIB + look % 5 * 20 * MIB,
            written_bytes=look * 40 * MIB + look % 3 * 9 * MIB,
            failed=number == 1,
        )
        for number in range(2)
    )
    team = replace(NAMESPACES[0], dram_used_bytes=5 * GIB, dram_limit_bytes=16 * GIB)
    counters = {
        "dram_hit_chunks": 90 * look,
        "nvme_hit_chunks": 40 * look + look % 7,
        "missed_chunks": 12 * look,
        "put_stored_chunks": 30 * look + 5 * (look % 3),
        "device_errors": 3,
    }
    return snapshot_of(
        devices=devices,
        namespaces=(team, NAMESPACES[1]),
        counters=counters,
        dram_used_bytes=30 * GIB,
        dram_capacity_bytes=64 * GIB,
    )


async def hottest(count: int) -> tuple[HotRow, ...]:
    names = ("support-chat-4711", "nightly-summary", EVIL)
    return tuple(
        HotRow(namespace="team", name=name, chunk_count=80, dram_chunk_count=60, reads=9.0)
        for name in names[:count]
    )


@contextmanager
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The endpoint over TCP of a daemon that is a loop in another thread; yields its URL."""
    monkeypatch.setattr("kvstored.metrics.page.SAMPLE_S", 0.05)
    looks = iter(range(1, 1_000_000))

    async def look() -> Snapshot:
        return full(next(looks))

    loop, view = asyncio.new_event_loop(), DaemonView()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def begin() -> None:
        view.begin_serving(look, hottest)

    asyncio.run_coroutine_threadsafe(begin(), loop).result()
    listener = listener_of(TcpAddress("127.0.0.1", 0), SocketPermissions(mode=0o600, gid=None))
    port = listener.getsockname()[1]
    try:
        with endpoint(listener, view):
            yield f"http://127.0.0.1:{port}/"
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def fetched(url: str) -> tuple[str, bytes]:
    """Content type and body, as no browser asks for it."""
    with urlopen(url, timeout=60) as answer:
        return answer.headers["Content-Type"], answer.read()


def test_the_page_is_one_document_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    with served(monkeypatch) as url:
        kind, body = fetched(url)
        assert kind.startswith("text/html")
        page = body.decode()
        for part in ("src=", "<link", "@import", "url(", "https://"):
            assert part not in page
        data: dict[str, Any] = json.loads(fetched(f"{url}page.json")[1])
    assert (data["state"], len(data["devices"])) == ("degraded", 2)
    assert data["hottest"][-1]["name"] == EVIL
    assert data["reasons"] == ["/dev/disk/by-id/nvme-DRIVE_1 has failed; restart the daemon"]


async def text(tab: Tab, element: str) -> str:
    return str(await tab.value(f"document.getElementById('{element}').textContent"))


@at(Scale.QUICK)
@needs_browser
async def test_a_browser_shows_it_in_every_window(monkeypatch: pytest.MonkeyPatch) -> None:
    with served(monkeypatch) as url:
        async with opened(url) as tab:

            async def is_filled() -> bool:
                points = "[...document.querySelectorAll('#tiers polyline')].map(p => p.getAttribute"
                drawn = await tab.value(f"{points}('points').length > 200)")
                return bool(drawn) and all(drawn)

            await until_async(is_filled)
            assert await text(tab, "state") == "degraded"
            assert "nvme-DRIVE_1 has failed" in await text(tab, "reasons")
            tiers = await text(tab, "tiers")
            assert "30.0 GiB" in tiers
            assert "nvme-DRIVE_1 has failed" in tiers
            assert "team" in await text(tab, "namespaces")
            assert "transfers and flushes that failed" in await text(tab, "failures")
            # Names are text, and nothing of theirs runs.
            assert EVIL in await text(tab, "hottest")
            assert await tab.value("document.title") == "kvstored"
            grounds = set()
            for width, scheme in ((1240, "light"), (1240, "dark"), (390, "light"), (390, "dark")):
                await tab.shape(width, 900, scheme)
                assert await tab.value("document.documentElement.scrollWidth") <= width
                grounds.add(
                    (scheme, await tab.value("getComputedStyle(document.body).backgroundColor"))
                )
                if folder := os.environ.get(SCREENSHOTS):
                    await tab.value("document.querySelector('#hottest tr:last-child').remove()")
                    picture = Path(folder) / f"page-{width}-{scheme}.png"
                    picture.write_bytes(await tab.screenshot())
            assert len(grounds) == 2
            assert len({ground for _, ground in grounds}) == 2


@at(Scale.QUICK)
@needs_browser
async def test_a_daemon_that_is_gone_is_said_to_be() -> None:
    async with AsyncExitStack() as browser:
        with pytest.MonkeyPatch.context() as patch, served(patch) as url:
            tab = await browser.enter_async_context(opened(url))

            async def says(state: str) -> bool:
                return await text(tab, "state") == state

            await until_async(lambda: says("degraded"))
        await until_async(lambda: says("does not answer"))
