"""Clients go away, one after the other and all at once: how soon nothing is held for them.

Nothing runs beside these tests. Waits for a processor that others used are taken off all the same.
The lab of disconnects tries more moments, and asks for no time. Prints what it has measured.

Fails when ``EngineThread._abort`` sleeps for 2 s.
"""

import asyncio
import os
import random
import sys
import time
from typing import Any

import pytest

from tests.engine_adapters.server.http.test_disconnects import CACHES, go_away, requests_of
from tests.engine_adapters.server.lab import TEXT, WAIT_S, Served, ServerLab
from tests.faults.kill.killable import cpu_wait_s
from tests.support import labs, seeds
from tests.support.sharing import ALONE

BACK_WITHIN_S = 1.0
"""The promise: slots, leases, reads and memory in the arena are back in this time."""


@ALONE
@labs.TIMED_DISCONNECTS.sizes("count")
async def test_nothing_is_held_for_long(
    lab: ServerLab, count: int, capsys: pytest.CaptureFixture[str]
) -> None:
    choices = random.Random(seeds.seed())
    async with lab.serve() as served:
        asked = requests_of((await served.ask(CACHES, text=TEXT * 4))["id"])
        await until_free(lab, served)
        alone = [await one_client(lab, served, asked, choices) for _ in range(count)]
        together = await clients_at_once(lab, served, asked, choices, count)
    with capsys.disabled():
        sys.stdout.write(
            f"\n{count} clients that went away: all was back after {sorted(alone)[count // 2]:.3f} "
            f"s (median), {max(alone):.3f} s (longest), {together:.3f} s (all at once)\n"
        )
    assert max(alone) <= BACK_WITHIN_S
    assert together <= BACK_WITHIN_S


async def one_client(
    lab: ServerLab, served: Served, asked: list[tuple[str, dict[str, Any]]], choices: random.Random
) -> float:
    path, fields = asked[choices.randrange(len(asked))]
    await go_away(served, path, {**fields, "max_tokens": 400}, choices)
    return await until_free(lab, served)


async def clients_at_once(
    lab: ServerLab,
    served: Served,
    asked: list[tuple[str, dict[str, Any]]],
    choices: random.Random,
    count: int,
) -> float:
    requests = (asked[choices.randrange(len(asked))] for _ in range(count))
    running = [
        await served.post(path, stream=True, **{**fields, "max_tokens": 400})
        for path, fields in requests
    ]
    for response in running:
        response.close()
    return await until_free(lab, served)


async def until_free(lab: ServerLab, served: Served) -> float:
    """Seconds until nobody holds anything, without waits for a processor."""
    began_s, waited_s, store = time.monotonic(), cpu_wait_s(os.getpid()), lab.store
    engine = served.service.engine._engine
    while (
        served.service.admission.count
        or engine._pool.free_count < engine._pool.slot_count
        or store.regions_in_use
        or store.boards_in_use
        or store.leases_in_use
    ):
        assert time.monotonic() < began_s + WAIT_S, "requests still hold something"
        await asyncio.sleep(0.001)
    return time.monotonic() - began_s - (cpu_wait_s(os.getpid()) - waited_s)
