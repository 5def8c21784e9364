"""Sequences go from the devices as a whole, the one that was unused longest first."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvstored.counters import Counters
from kvstored.format.identity import ChunkId
from kvstored.format.sequence_record import SequenceRecord, SequenceTail
from kvstored.store.index.failure import IndexFailure
from kvstored.store.index.walks import IndexWalks
from kvstored.tiers.chunks import nvme_room
from kvstored.tiers.policy.retention import Retention
from kvstored.tiers.sequences.earlier_uses import EarlierUses
from kvstored.tiers.sequences.sequences import Caller
from tests.kvstored.tiers.hints.test_hints import hint
from tests.support.appends import TOKENS, append, create, flush
from tests.support.rows import Rows
from tests.support.stores import (
    BASE,
    LAYOUT,
    NAMESPACE,
    StoreUnderTest,
    key,
    new_board,
    open_store,
    put_durable,
)
from tests.support.waiting import wait_until

ME = Caller(NAMESPACE, 1)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[StoreUnderTest]:
    """One device with room for three slabs."""
    with open_store(tmp_path, device_count=1, slabs_per_device=3) as opened:
        opened.fill(1)
        opened.store.layouts.register(LAYOUT)
        wait_until(lambda: opened.store._store.index.layout(LAYOUT.layout_id) is not None)
        yield opened


def put(opened: StoreUnderTest, numbers: list[int]) -> list[bytes]:
    """Puts chunks one after the other; their keys."""
    for number in numbers:
        put_durable(opened, [number])
    return [key(number) for number in numbers]


def name(opened: StoreUnderTest, name: str, numbers: list[int]) -> None:
    opened.store.sequences.create(ME, name, LAYOUT, keys=[key(number) for number in numbers])


def order(opened: StoreUnderTest) -> list[int]:
    """The numbers of all chunks on the devices, the first to go first."""
    room = opened.store._room
    with room._table_lock:
        return [int.from_bytes(chunk.key, "big") for chunk in room.shares.policy.victims()]


def read(opened: StoreUnderTest, numbers: list[int]) -> None:
    used = opened.store._room._table.clock
    assert opened.read(numbers, base=BASE, board=new_board(len(numbers))).wait()
    # A stream counts behind its end.
    wait_until(lambda: opened.store._room._table.clock > used)


def stored(opened: StoreUnderTest, numbers: list[int]) -> int:
    return opened.store.match(NAMESPACE, [key(number) for number in numbers])


def test_what_was_computed_first_went_first_of_a_conversation_that_went_on(
    opened: StoreUnderTest,
) -> None:
    """Bug: its new chunks stayed, without those before them, and others went after its old ones."""
    put(opened, [0, 1, 2, 10, 11, 12])
    name(opened, "a", [0, 1, 2])
    name(opened, "b", [10, 11, 12])
    opened.store.sequences.append(ME, "a", put(opened, [3]), 3)
    assert order(opened) == [12, 11, 10, 3, 2, 1, 0]
    put(opened, list(range(100, 100 + 3 * 28)))
    assert stored(opened, [10, 11, 12]) == 0
    assert 0 <= stored(opened, [0, 1, 2, 3]) < 4


def test_a_full_store_gives_up_one_conversation_before_the_next(opened: StoreUnderTest) -> None:
    first, second = list(range(20)), list(range(100, 120))
    for numbers in zip(first, second, strict=True):
        put(opened, list(numbers))
    name(opened, "first", first)
    name(opened, "second", second)
    others = 200
    while stored(opened, first) == 20:
        put(opened, [others])
        others += 1
    while (left := stored(opened, first)) > 0:
        assert opened.store._room.are_stored([ChunkId(NAMESPACE, key(n)) for n in first]) == [
            n < left for n in first
        ]
        assert stored(opened, second) == 20
        put(opened, [others])
        others += 1


def test_a_shared_beginning_stays_while_one_of_its_sequences_does(opened: StoreUnderTest) -> None:
    put(opened, [0, 1, 2, 3, 4, 5])
    name(opened, "a", [0, 1, 2, 3])
    name(opened, "b", [0, 1, 4, 5])
    assert order(opened) == [3, 2, 5, 4, 1, 0]
    read(opened, [0, 1, 2, 3])
    assert order(opened) == [5, 4, 3, 2, 1, 0]


def test_what_a_turn_reads_no_more_is_not_kept_by_those_that_it_reads(
    opened: StoreUnderTest,
) -> None:
    """After a cut the sequence goes on naming what was dropped."""
    put(opened, [0, 1, 2, 3])
    name(opened, "a", [0, 1, 2, 3])
    put(opened, [9])
    read(opened, [2, 3])
    opened.store.sequences.append(ME, "a", put(opened, [4]), 4)
    assert order(opened) == [1, 0, 9, 4, 3, 2]


def test_what_is_put_again_is_a_use_of_its_sequence(opened: StoreUnderTest) -> None:
    put(opened, [0, 1, 9])
    name(opened, "a", [0, 1])
    put(opened, [8])
    put(opened, [0])
    assert order(opened) == [9, 8, 1, 0]


def test_appended_chunks_and_flushed_tails_go_with_their_sequence(tmp_path: Path) -> None:
    rows = Rows()
    with open_store(tmp_path, device_count=1) as opened:
        opened.store.layouts.register(rows.layout)
        create(opened, "a")
        create(opened, "b")
        for start in range(0, 48, 8):
            append(opened, {"a": range(start, start + 8)})
            append(opened, {"b": range(start, start + 8)}, tokens=TOKENS[::-1])
        for one in "ab":
            flush(opened, one, 48)
        append(opened, {"a": range(48, 53)})
        flush(opened, "a", 53)
        states = {one: opened.store.sequences.get(ME, one) for one in "ab"}
        tail = states["a"].durable_tail
        assert tail is not None
        expected = [*states["b"].keys[::-1], tail.key, *states["a"].keys[::-1]]
        room = opened.store._room
        with room._table_lock:
            assert [chunk.key for chunk in room.shares.policy.victims()] == expected


def test_a_sequence_longer_than_a_part_is_one(
    opened: StoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvme_room, "TOUCHED_AT_ONCE", 3)
    put(opened, [*range(8), 9])
    for count in range(9):
        chunks = [ChunkId(NAMESPACE, key(number)) for number in range(count)]
        opened.store._room.used_together(chunks)
        assert order(opened) == [*range(count, 8), 9, *reversed(range(count))]


def test_what_no_longer_waits_goes_from_its_end(opened: StoreUnderTest) -> None:
    put(opened, [0, 1, 2, 9])
    hint(opened, {"x": [0, 1, 2]})
    assert order(opened) == [9, 2, 1, 0]
    hint(opened, {}, ("x",), versions=(2, 1))
    assert order(opened) == [9, 2, 1, 0]


def make_records(opened: StoreUnderTest) -> None:
    """Sequences that were used together before the start, as far as their records tell."""
    table = opened.store.open_sequences.table
    keys = put(opened, [0, 10, 1, 11, 2, 12])
    tail = SequenceTail(key=keys[4], token_count=3)
    named = {"a": (keys[0], keys[2]), "b": tuple(keys[1::2]), "c": keys[:1], "d": (keys[0], key(7))}
    for one, its_keys in named.items():
        record = SequenceRecord(
            layout_id=LAYOUT.layout_id, keys=tuple(its_keys), tail=tail if one == "a" else None
        )
        table.create(NAMESPACE, one, record)


def clock(opened: StoreUnderTest) -> int:
    return opened.store._room._table.clock


def look_back(opened: StoreUnderTest, *, start: int | None = None) -> Counters:
    """As after a start, when the clock was ``start``, now unless given; what it counted."""
    counters = Counters()
    earlier = EarlierUses(
        index=opened.store._store.index,
        room=opened.store._room,
        counters=counters,
        clock=clock(opened) if start is None else start,
    )
    earlier.wait()
    earlier.close()
    return counters


def test_after_a_start_sequences_go_as_a_whole(opened: StoreUnderTest) -> None:
    make_records(opened)
    assert order(opened) == [0, 10, 1, 11, 2, 12]
    counters = look_back(opened)
    assert order(opened) == [2, 1, 0, 12, 11, 10]
    assert counters.values() == {"sequences_put_together": 4}


def test_what_was_used_since_the_start_is_left_alone(opened: StoreUnderTest) -> None:
    make_records(opened)
    start = clock(opened)
    read(opened, [1, 2])
    look_back(opened, start=start)
    assert order(opened) == [0, 12, 11, 10, 2, 1]


def test_an_idle_sequence_took_what_another_one_had_used(opened: StoreUnderTest) -> None:
    """Bug: with a common first chunk it counted as used just now, and left the other without."""
    keys = put(opened, [0, 1, 2])
    for name, its_keys in {"idle": keys[:2], "used": keys[::2]}.items():
        record = SequenceRecord(layout_id=LAYOUT.layout_id, keys=tuple(its_keys), tail=None)
        opened.store.open_sequences.table.create(NAMESPACE, name, record)
    start = clock(opened)
    read(opened, [0, 2])
    look_back(opened, start=start)
    assert order(opened) == [1, 2, 0]


@pytest.mark.parametrize(
    ("error", "message"),
    [(IndexFailure("no"), "not all sequences"), (RuntimeError("no"), "is given up")],
)
def test_a_walk_that_fails_leaves_chunks_by_themselves(
    opened: StoreUnderTest,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    message: str,
) -> None:
    make_records(opened)

    def fail(_: IndexWalks) -> Iterator[tuple[bytes, SequenceRecord]]:
        raise error

    monkeypatch.setattr(IndexWalks, "sequence_records", fail)
    with caplog.at_level(logging.WARNING):
        look_back(opened)
    assert message in caplog.text
    assert order(opened) == [0, 10, 1, 11, 2, 12]


@pytest.mark.parametrize("kind", Retention)
def test_dram_gives_up_sequences_where_it_is_told_to(tmp_path: Path, kind: Retention) -> None:
    """As in AttentionStore: with least recently used below."""
    with open_store(tmp_path, dram_retention=kind) as opened:
        opened.fill(1)
        put(opened, [0, 1, 2, 10, 11, 12])
        name(opened, "a", [0, 1, 2])
        name(opened, "b", [10, 11, 12])
        read(opened, [10, 11, 12])
        opened.store.sequences.append(ME, "a", put(opened, [3]), 3)
        with opened.store._dram._room:
            victims = list(opened.store._dram.shares.policy.victims())
    found = [int.from_bytes(chunk.key, "big") for chunk in victims]
    is_by_sequence = kind in {Retention.LRU, Retention.LOOK_AHEAD}
    assert (found == [12, 11, 10, 3, 2, 1, 0]) is is_by_sequence
