"""Flips below a whole store, asked through reads of every kind and the offline check."""

import random

from kvstored.format.geometry import HEADER_BYTES, ChunkGeometry
from kvstored.store.read.plan import Order
from tests.faults.media.flips_target import Specimen, Target, Verdict, Violation
from tests.faults.media.lab import fresh_lab
from tests.faults.media.served import (
    ENCODED_FIRST,
    LAYERS,
    ServedStore,
    chunk_id,
    lengths_of,
    quiesce,
)
from tests.faults.media.stack import FaultStack
from tests.support.devices import Wrapping

BATCH = 40
"""Chunks with one flip each: extents in quarantine are kept, so every batch has a store."""


class ServedTarget(Target):
    """Every chunk of a store gets one flip; none of those may be served as if it were sound."""

    name = "served"

    def __init__(self, _: Specimen) -> None:
        pass

    def flip(self, dice: random.Random) -> list[Verdict]:
        first = dice.choice([0, ENCODED_FIRST])
        numbers = list(range(first, first + BATCH))
        stacks = Wrapping(FaultStack)
        with fresh_lab(slab_count=7) as lab, lab.open(stacks) as served:
            served.put_durable(numbers)
            served.forget_dram(numbers)
            damaged = {number for number in numbers if plant(served, stacks, number, dice)}
            expect("the check names", named_by_check(served, numbers), damaged)
            first_layer = dice.randrange(LAYERS)
            served.read(
                numbers,
                order=dice.choice(list(Order)),
                first_layer=first_layer,
                layer_count=dice.randint(1, LAYERS - first_layer),
                takes_transfers=dice.random() < 0.5,
            )
            whole = served.whole(
                numbers, order=dice.choice(list(Order)), takes_transfers=dice.random() < 0.5
            )
            expect("read whole are all but", set(numbers) - whole, damaged)
            quiesce(served)
            expect("in quarantine are", set(numbers) - set(served.records()), damaged)
            served.put_durable(numbers)
            served.forget_dram(numbers)
            expect("after another put missing are", set(numbers) - served.whole(numbers), set())
        return [Verdict.DETECTED if n in damaged else Verdict.HARMLESS for n in numbers]


def plant(served: ServedStore, stacks: list[FaultStack], number: int, dice: random.Random) -> bool:
    """Flips a bit of a chunk's extent, in its header every fourth time; whether it counts."""
    extent = served.records()[number].extent
    lengths = lengths_of(number)
    geometry = ChunkGeometry.of_slices(lengths)
    is_in_header = dice.random() < 0.25
    bounds = (0, HEADER_BYTES) if is_in_header else (HEADER_BYTES, geometry.extent_bytes)
    inside = dice.randrange(*bounds)
    stacks[extent.device_index].flipped.flip(extent.offset + inside, dice.randrange(8))
    return is_in_header or any(
        start <= inside < start + length
        for start, length in zip(geometry.slice_offsets, lengths, strict=False)
    )


def named_by_check(served: ServedStore, numbers: list[int]) -> set[int]:
    """Numbers that the offline check complains of."""
    places = " ".join(problem.where for problem in served.check().problems)
    return {number for number in numbers if chunk_id(number).key.hex() in places}


def expect(what: str, found: set[int], wanted: set[int]) -> None:
    if found != wanted:
        raise Violation(f"{what} {sorted(found)} where {sorted(wanted)} are damaged")
