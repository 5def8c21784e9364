"""A large call is worked on in slices, and everybody else has a turn between two of them."""

import asyncio
from collections.abc import Sequence

from kvstored.server.waits import SLICE_ITEMS, in_slices


async def slices_beside_another(items: Sequence[int]) -> list[Sequence[int] | None]:
    """The slices in their order; None where another task had its turn."""
    turns: list[Sequence[int] | None] = []
    take_turn = turns.append

    async def large() -> None:
        async for part in in_slices(items):
            take_turn(part)

    async def small() -> None:
        take_turn(None)

    await asyncio.gather(large(), small())
    return turns


async def test_another_has_a_turn_before_the_second_slice() -> None:
    items = range(2 * SLICE_ITEMS + 1)
    first, other, second, third = await slices_beside_another(items)
    assert other is None
    assert [first, second, third] == [
        items[:SLICE_ITEMS],
        items[SLICE_ITEMS : 2 * SLICE_ITEMS],
        items[2 * SLICE_ITEMS :],
    ]


async def test_a_small_call_is_one_slice_at_once() -> None:
    items = range(SLICE_ITEMS)
    assert await slices_beside_another(items) == [items, None]


async def test_nothing_has_no_slices() -> None:
    assert await slices_beside_another(()) == [None]
