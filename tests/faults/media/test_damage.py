"""Torn, lost, misdirected and flipped writes and stale reads: a miss, quarantine, a counter.

Every scenario damages what lies on media below the store, after or while it was written, and
then asks: does the offline check name exactly the damaged chunks; does no read, in any order
and any range of layers, give a wrong byte, while every other chunk is there whole; is the
damage counted and put into quarantine; and does the key serve its bytes again once stored
again?

Fails when ``Landings._verify`` takes every slice for sound (seen: WrongBytesError, "torn:
the header only"), when ``is_header_of`` does not compare the page's checksum with the
index (seen: WrongBytesError, "lost"), and when ``DamageControl`` does not quarantine
(seen: the counter is 0).
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import pytest

from kvstored.format.geometry import HEADER_BYTES
from kvstored.store.check.check_report import ProblemKind
from kvstored.store.read.plan import Order
from tests.faults.media.lab import fresh_lab
from tests.faults.media.served import EXTENT_BYTES, LAYERS, ServedStore, chunk_id, quiesce
from tests.faults.media.stack import PAGES, FaultStack
from tests.support import labs
from tests.support.devices import Wrapping
from tests.support.stores import NAMESPACE, key

NUMBERS = list(range(8))
VICTIM = 4
"""Lies on device 0, behind chunks 0 and 2 and before chunk 6."""
BYSTANDER = 6
SECTORS = EXTENT_BYTES // 512


@dataclass(frozen=True)
class Scenario:
    """``during`` arms faults before the victim is written, ``after`` damages it later."""

    name: str
    during: Callable[[FaultStack], None] = lambda _: None
    after: Callable[[FaultStack, int], None] = lambda *_: None
    lands: frozenset[int] = frozenset({0})
    unit_bytes: int = 4096
    shift_bytes: int = EXTENT_BYTES
    damaged: frozenset[int] = frozenset({VICTIM})


def tear(stack: FaultStack) -> None:
    stack.torn.count = 1


def lose(stack: FaultStack) -> None:
    stack.lost.count = 1


def misdirect(stack: FaultStack) -> None:
    stack.misdirected.count = 1


def torn(name: str, lands: set[int], unit_bytes: int = 4096) -> Scenario:
    return Scenario(f"torn: {name}", tear, lands=frozenset(lands), unit_bytes=unit_bytes)


def flipped(name: str, inside: int) -> Scenario:
    def flip(stack: FaultStack, offset: int) -> None:
        stack.flipped.flip(offset + inside, 5)

    return Scenario(f"flipped: {name}", after=flip)


def stale(name: str, first_page: int, page_count: int) -> Scenario:
    def recall(stack: FaultStack, offset: int) -> None:
        stack.stale.recall(offset + first_page * 4096, page_count * 4096)

    return Scenario(f"stale: {name}", after=recall)


SCENARIOS = [
    torn("the header only", {0}),
    torn("all but the header", set(range(1, PAGES))),
    torn("all but the last page", set(range(PAGES - 1))),
    torn("every other page", set(range(0, PAGES, 2))),
    torn("the first sector", {0}, 512),
    torn("all but the first sector", set(range(1, SECTORS)), 512),
    torn("all but one sector of the payload", set(range(SECTORS)) - {41}, 512),
    torn("all but the header's checksum", set(range(SECTORS)) - {7}, 512),
    Scenario("lost", lose),
    Scenario("misdirected to a free place", misdirect, shift_bytes=3 * EXTENT_BYTES),
    Scenario(
        "misdirected over another chunk",
        misdirect,
        shift_bytes=-EXTENT_BYTES,
        damaged=frozenset({VICTIM, VICTIM - 2}),
    ),
    Scenario(
        "misdirected half over another chunk",
        misdirect,
        shift_bytes=-4096,
        damaged=frozenset({VICTIM, VICTIM - 2}),
    ),
    stale("everything", 0, PAGES),
    stale("the header", 0, 1),
    stale("the payload", 1, PAGES - 1),
    stale("one page", 5, 1),
    flipped("the header", 100),
    flipped("the header's checksum", HEADER_BYTES - 1),
    flipped("the zeros of the header", 2000),
    flipped("the first slice", HEADER_BYTES),
    flipped("the last slice", HEADER_BYTES + 3 * 8192 + 7999),
]


def parity(number: int) -> list[int]:
    """Stripes that put chunks of even numbers on device 0, of odd ones on device 1."""
    return [number % 2]


def put_with_history(served: ServedStore, stacks: list[FaultStack], scenario: Scenario) -> None:
    """Puts all chunks; the victim's extent has held another version of it before."""
    for number in NUMBERS:
        served.put_durable([number], stripes=parity(number))
    served.delete([VICTIM])
    served.versions[VICTIM] = 1
    scenario.during(stacks[0])
    served.put_durable([VICTIM], stripes=parity(VICTIM))
    scenario.after(stacks[0], served.records()[VICTIM].extent.offset)
    served.forget_dram(NUMBERS)


def damaged_numbers(served: ServedStore, stacks: list[FaultStack]) -> set[int]:
    """The chunks whose extents do not read as they should."""
    return {
        number
        for number, record in served.records().items()
        if stacks[record.extent.device_index].is_damaged(record.extent.offset, EXTENT_BYTES)
    }


def named_by_check(served: ServedStore) -> set[int]:
    """Numbers of the chunks that the offline check complains of; of nothing else it may."""
    report = served.check()
    numbers = {
        number
        for problem in report.problems
        for number in NUMBERS
        if chunk_id(number).key.hex() in problem.where
    }
    kinds = {problem.kind for problem in report.problems}
    assert kinds <= {ProblemKind.EXTENT_HEADER, ProblemKind.SLICE}
    return numbers


WAYS = sorted(product(Order, (True, False)), key=lambda way: way != (Order.LAYER_FIRST, True))
"""The order of a read, and whether it takes transfers."""


def name_of(way: tuple[Order, bool]) -> str:
    order, takes_transfers = way
    return f"{order.name.lower()}-{'direct' if takes_transfers else 'copied'}"


@labs.DAMAGED_READS.first(("order", "takes_transfers"), WAYS, name=name_of)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_damage_is_a_miss_and_quarantined(
    scenario: Scenario, order: Order, takes_transfers: bool
) -> None:
    """One miss for the reader, then a miss for everybody until the key is put again."""
    stacks = Wrapping(
        lambda inner: FaultStack(
            inner,
            lands=set(scenario.lands),
            unit_bytes=scenario.unit_bytes,
            shift_bytes=scenario.shift_bytes,
        )
    )
    with fresh_lab() as lab, lab.open(stacks) as served:
        put_with_history(served, stacks, scenario)
        damaged = set(scenario.damaged)
        assert damaged_numbers(served, stacks) == damaged
        assert named_by_check(served) == damaged
        options = {"order": order, "takes_transfers": takes_transfers}
        assert served.whole(NUMBERS, **options) == set(NUMBERS) - damaged
        quiesce(served)
        assert served.counter("quarantined_chunks") == len(damaged)
        assert {served.store.match(NAMESPACE, [key(number)]) for number in damaged} == {0}
        served.put_durable(sorted(damaged), stripes=[0] * len(damaged))
        served.forget_dram(NUMBERS)
        assert served.whole(NUMBERS, **options) == set(NUMBERS)
        assert served.check().is_sound
        served.assert_released()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_no_range_of_layers_gives_wrong_bytes(scenario: Scenario) -> None:
    """Ranges that do not start at layer 0 read the header page by itself."""
    stacks = Wrapping(
        lambda inner: FaultStack(
            inner,
            lands=set(scenario.lands),
            unit_bytes=scenario.unit_bytes,
            shift_bytes=scenario.shift_bytes,
        )
    )
    with fresh_lab() as lab, lab.open(stacks) as served:
        put_with_history(served, stacks, scenario)
        bystanders = set(NUMBERS) - scenario.damaged
        for first_layer in range(LAYERS):
            for layer_count in range(1, LAYERS - first_layer + 1):
                for order in Order:
                    whole = served.whole(
                        NUMBERS, order=order, first_layer=first_layer, layer_count=layer_count
                    )
                    assert bystanders <= whole
        served.assert_released()


def test_sound_media_are_no_damage() -> None:
    """The lab itself: without a fault nothing is missed, counted or found."""
    stacks = Wrapping(FaultStack)
    with fresh_lab() as lab, lab.open(stacks) as served:
        put_with_history(served, stacks, Scenario("none"))
        assert damaged_numbers(served, stacks) == named_by_check(served) == set()
        for order in Order:
            assert served.whole(NUMBERS, order=order) == set(NUMBERS)
        assert served.counter("suspected_chunks") == 0
