"""Which rows of the table have expired."""

import threading

from kvstored.store.space.chunk_table import ChunkTable
from kvstored.tiers.chunks.device_ages import DeviceAges
from kvstored.tiers.policy.lifetimes import Lifetimes
from tests.kvstored.tiers.chunks.test_account_rows import A, B, chunk, numbers
from tests.kvstored.tiers.chunks.test_account_rows import table as table  # noqa: PLC0414

LIFETIMES = Lifetimes(default_s=10, by_namespace={A: 5, B: 100})


def ages_of(table: ChunkTable) -> DeviceAges:
    ages = DeviceAges(LIFETIMES, table=table, lock=threading.Lock())
    ages.look(0)
    return ages


def in_table(ages: DeviceAges, first: int = 0, count_max: int = 1000) -> list[int]:
    return numbers([one for _, one in ages.in_segment(0, first, count_max)])


def test_rows_expire_by_the_time_of_their_namespace(table: ChunkTable) -> None:
    ages = ages_of(table)
    assert in_table(ages) == []
    table.touch([chunk(4).encode(), chunk(6).encode()])
    ages.look(6)
    assert in_table(ages) == [number for number in range(0, 40, 4) if number != 4]
    ages.look(11)
    others = [number for number in range(40) if number % 4 > 1]
    expired = [*range(0, 40, 4), *others]
    assert in_table(ages) == sorted(set(expired) - {6})
    expired_now, absent = ages.expired([chunk(0), chunk(1), chunk(4), chunk(6), chunk(99)])
    assert expired_now == {chunk(0), chunk(4)}
    assert absent == [chunk(99)]


def test_a_segment_is_looked_through_in_slices(table: ChunkTable) -> None:
    ages = ages_of(table)
    ages.look(11)
    everything = ages.in_segment(0, 0, 1000)
    found, first = [], 0
    while part := ages.in_segment(0, first, 4):
        assert len(part) <= 4
        found += part
        first = part[-1][0] + 1
    assert found == everything
    assert len(found) == 30
    table.remove(chunk(0))
    assert 0 not in in_table(ages)


def test_a_sequence_expires_as_a_whole(table: ChunkTable) -> None:
    ages = ages_of(table)
    table.touch([chunk(number).encode() for number in (0, 4, 8)], together=True)
    ages.look(3)
    table.touch([chunk(4).encode()])
    ages.look(6)
    assert in_table(ages) == list(range(12, 40, 4))
    assert ages.expired([chunk(0), chunk(12)]) == ({chunk(12)}, [])
    ages.look(9)
    assert not {0, 4, 8} & set(in_table(ages))
    ages.look(12)
    assert {0, 4, 8} < set(in_table(ages))
