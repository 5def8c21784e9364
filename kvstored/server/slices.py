"""Work of the event loop in slices, so that a large call holds up no other one for long."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TypeVar

SLICE_ITEMS = 256
"""Some hundred microseconds of what is done for each chunk of a call."""

ItemT = TypeVar("ItemT")


async def in_slices(items: Sequence[ItemT]) -> AsyncIterator[Sequence[ItemT]]:
    """Stretches of the items, between which everybody else has a turn."""
    for start in range(0, len(items), SLICE_ITEMS):
        if start:
            await asyncio.sleep(0)
        yield items[start : start + SLICE_ITEMS]
