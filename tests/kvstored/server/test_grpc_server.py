"""What the gRPC server takes altogether."""

from pathlib import Path
from typing import Any

import grpc
import pytest

from kvstored.server.access import AccessRules
from kvstored.server.session import CALLS_PER_SESSION_MAX
from kvstored.server.session_table import SessionLimits
from tests.kvstored.server.served import ARENA_BYTES, Served

SESSIONS_MAX = 64


async def test_the_server_takes_every_call_that_its_sessions_may_make(
    tmp_path: Path, rules: AccessRules, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: eight sessions of one client used up every call that the server took."""
    taken: list[int] = []
    make_server = grpc.aio.server

    def spy(*, maximum_concurrent_rpcs: int, **others: Any) -> grpc.aio.Server:
        taken.append(maximum_concurrent_rpcs)
        return make_server(maximum_concurrent_rpcs=maximum_concurrent_rpcs, **others)

    monkeypatch.setattr(grpc.aio, "server", spy)
    limits = SessionLimits(
        arena_bytes_max=ARENA_BYTES, arenas_bytes_max=ARENA_BYTES, sessions_max=SESSIONS_MAX
    )
    served = Served(tmp_path, rules=rules, limits=limits)
    await served.started()
    served.stop.set()
    await served.task
    (calls_max,) = taken
    assert calls_max > CALLS_PER_SESSION_MAX * SESSIONS_MAX
