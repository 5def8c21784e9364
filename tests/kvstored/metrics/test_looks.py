"""Monitoring looks at a server while the daemon's other threads are all busy."""

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from kvstored.format.identity import namespace_id
from kvstored.metrics.endpoint import endpoint
from kvstored.metrics.listener import listener_of
from kvstored.metrics.looks import Looks, hot_rows
from kvstored.metrics.view import DaemonView
from kvstored.server import session_table
from kvstored.server.access import AccessRules, Tenant
from kvstored.server.listen import SocketPermissions
from kvstored.server.server import Server
from kvstored.server.session_table import SessionLimits
from kvstored.tiers.tiered_store import TieredStore
from kvstored.tiers.upkeep.hottest import HotSequence
from kvstored_contract.handshake import frame
from kvstored_contract.limits import PROTOCOL_VERSION
from kvstored_protos.v1 import session_pb2
from tests.kvstored.server.served import ARENA_BYTES, Served
from tests.support.waiting import PATIENCE_S, until
from tests.support.web import get

ARENAS = 40
"""More than the threads that the event loop has by itself on any machine: at most 32."""


@pytest.fixture
def making(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Arenas are in the making until it is set."""
    made, make = threading.Event(), session_table._make_channel

    def slow(*arguments: object, **named: object) -> object:
        made.wait(PATIENCE_S)
        return make(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(session_table, "_make_channel", slow)
    yield made
    made.set()


async def test_six_arenas_in_the_making_delayed_healthz(
    tmp_path: Path, making: threading.Event
) -> None:
    """Bug: all threads of the event loop made arenas, and every answer waited for one of them."""
    rules = AccessRules(daemon_uid=os.getuid())
    limits = SessionLimits(
        arena_bytes_max=ARENA_BYTES, arenas_bytes_max=ARENAS * ARENA_BYTES, sessions_max=ARENAS
    )
    served = Served(tmp_path, rules=rules, limits=limits)
    await served.started()
    server: Server = served._server
    looks = Looks(cast("TieredStore", served.store), server, rules)
    view = DaemonView()
    view.begin_serving(looks.snapshot, looks.hottest)
    hello = session_pb2.Hello(
        protocol_version=PROTOCOL_VERSION, client_name="large", arena_bytes=ARENA_BYTES
    )
    clients = []
    path = tmp_path / "m"
    answers: dict[str, tuple[int, str]] = {}

    def ask() -> None:
        for page in ("/healthz", "/readyz", "/metrics"):
            answers[page] = get(path, page)

    try:
        clients += [await _asking(served, hello) for _ in range(ARENAS)]
        await until(lambda: server._sessions._places._session_count == ARENAS)
        listener = listener_of(path, SocketPermissions(mode=0o600, gid=None))
        with endpoint(listener, view):
            asking = threading.Thread(target=ask)
            asking.start()
            await until(lambda: not asking.is_alive())
    finally:
        making.set()
        for writer in clients:
            writer.close()
        served.stop.set()
        await served.task
        looks.close()
    assert answers["/healthz"] == (200, "alive\n")
    assert answers["/readyz"] == (200, "serving\n")
    assert answers["/metrics"][0] == 200


async def _asking(served: Served, hello: session_pb2.Hello) -> asyncio.StreamWriter:
    _, writer = await asyncio.open_unix_connection(served.options.socket)
    writer.write(frame(hello))
    return writer


def test_rows_have_names_where_the_configuration_has_them() -> None:
    rules = AccessRules(daemon_uid=0, tenants=(Tenant(namespace="team"),))
    found = [
        HotSequence(
            namespace_id=namespace_id(name), name="s", chunk_count=3, dram_chunk_count=2, reads=1.5
        )
        for name in ("team", "default", "elsewhere")
    ]
    names = [row.namespace for row in hot_rows(found, rules)]
    assert names[:2] == ["team", "default"]
    assert names[2] == namespace_id("elsewhere").hex()[:12]
