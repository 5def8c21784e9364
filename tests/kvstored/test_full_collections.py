"""Lists of free tuples do not grow for good."""

import asyncio
import gc
import re
import sys

import pytest

from kvstored.full_collections import TIME_SHARE_MAX, collect_all, wait_s
from tests.support.waiting import SOON_S

LENGTH, COUNT = 17, 600
FULL = 2
"""The generation of a full collection."""


def free_tuples(capfd: pytest.CaptureFixture[str]) -> int:
    """What the interpreter keeps of LENGTH."""
    capfd.readouterr()
    sys._debugmallocstats()
    found = re.search(rf"(\d+) free {LENGTH}-sized PyTupleObject", capfd.readouterr().err)
    assert found is not None
    return int(found[1])


async def collected() -> None:
    """Returns when a full collection is over."""
    is_over = asyncio.Event()

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "stop" and info["generation"] == FULL:
            is_over.set()

    gc.callbacks.append(note)
    collecting = asyncio.create_task(collect_all(interval_s=0.001))
    try:
        async with asyncio.timeout(SOON_S):
            await is_over.wait()
    finally:
        collecting.cancel()
        gc.callbacks.remove(note)


def test_free_tuples_of_a_length_grew_until_there_were_two_thousand(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Bug: resident memory grew for hours, by a few bytes with each call."""
    made = [tuple([0] * LENGTH) for _ in range(COUNT)]
    del made
    assert free_tuples(capfd) >= COUNT
    asyncio.run(collected())
    assert free_tuples(capfd) < COUNT // 10


@pytest.mark.parametrize(("took_s", "waited_s"), [(0.0, 30.0), (0.02, 30.0), (0.05, 50.0)])
def test_collections_take_a_small_part_of_the_time(took_s: float, waited_s: float) -> None:
    assert wait_s(30.0, took_s) == waited_s
    assert took_s <= TIME_SHARE_MAX * wait_s(30.0, took_s)
