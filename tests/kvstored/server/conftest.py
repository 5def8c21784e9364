"""A server over the fake store, and a session with it."""

import gc
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from kvstored.server.access import AccessRules, Tenant
from kvstored.server.session_table import SessionLimits
from tests.kvstored.server.caller import Caller, calling
from tests.kvstored.server.served import ARENA_BYTES, NOT_ADMIN, Served


@pytest.fixture
def rules() -> AccessRules:
    return AccessRules(
        daemon_uid=os.getuid(),
        tenants=(Tenant(namespace="team", uids=frozenset({os.getuid(), NOT_ADMIN})),),
    )


@pytest.fixture
def limits() -> SessionLimits:
    return SessionLimits(
        arena_bytes_max=4 * ARENA_BYTES, arenas_bytes_max=5 * ARENA_BYTES, sessions_max=3
    )


@pytest.fixture
async def served(
    tmp_path: Path, rules: AccessRules, limits: SessionLimits
) -> AsyncIterator[Served]:
    server = Served(tmp_path, rules=rules, limits=limits)
    await server.started()
    yield server
    server.store.hold.set()
    server.store.look_hold.set()
    server.stop.set()
    await server.task


@pytest.fixture
async def caller(served: Served) -> AsyncIterator[Caller]:
    async with calling(served) as caller:
        yield caller


@pytest.fixture
def no_collection() -> Iterator[None]:
    """The daemon looks for cycles after many thousands of new objects: an idle one never does."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()
