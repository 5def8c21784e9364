"""When the slices of a read arrive, and which."""

import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvstored_client import LayerState, Order, SliceState, StateKind, StateLayout
from kvstored_client.testing import Delivery, Faults, MemoryClient, MemoryStore, Wait
from tests.kvstored_client.testing.conftest import ARENA_BYTES, KEYS, Bench
from tests.support.waiting import wait_until

CHUNKS, LAYERS = 3, 3
PENDING, RESIDENT, MISSING, SKIPPED, LATE = SliceState


def test_a_held_read_brings_what_the_test_says(bench: Bench) -> None:
    bench.put()
    bench.store.faults.delivery = Delivery.HELD
    read = bench.read()
    (served,) = bench.store.reads
    assert not read.wait_for(0, timeout_s=0.0)
    assert served.deliver(1, 2) == 1
    assert read.is_resident(1, 2)
    assert served.deliver(1) == 2
    assert served.deliver(layer=0) == 2
    assert read.wait_for(1)
    assert read.wait_layer(0)
    assert not read.wait_for(0, timeout_s=0.0)
    assert not read.finished
    assert served.deliver() == 4
    assert served.is_finished
    assert read.wait().resident == (True,) * CHUNKS
    assert all(bench.is_right(chunk, 0) for chunk in range(CHUNKS))
    read.close()


@pytest.mark.parametrize(
    ("order", "places"),
    [
        (Order.TAIL_FIRST, [{(2, 0), (2, 1), (2, 2)}, {(1, 0), (1, 1), (1, 2)}]),
        (Order.HEAD_FIRST, [{(0, 0), (0, 1), (0, 2)}, {(1, 0), (1, 1), (1, 2)}]),
        (Order.LAYER_FIRST, [{(0, 0), (1, 0), (2, 0)}, {(0, 1), (1, 1), (2, 1)}]),
    ],
)
def test_the_next_part_is_that_of_the_order(
    bench: Bench, order: Order, places: list[set[tuple[int, int]]]
) -> None:
    bench.put()
    bench.store.faults.delivery = Delivery.HELD
    read = bench.read(order=order)
    there: set[tuple[int, int]] = set()
    for part in places:
        assert bench.store.deliver() == 1
        there |= part
        everything = [(chunk, layer) for chunk in range(CHUNKS) for layer in range(LAYERS)]
        assert {place for place in everything if read.is_resident(*place)} == there
    assert bench.store.deliver(5) == 1
    assert read.wait().finished


def test_reads_are_delivered_one_after_another(bench: Bench) -> None:
    bench.put()
    bench.store.faults.delivery = Delivery.HELD
    first, second = bench.read(), bench.read()
    bench.store.deliver(CHUNKS + 1)
    assert first.finished
    assert [second.is_resident(chunk) for chunk in range(CHUNKS)] == [False, False, True]
    second.close()


def test_a_wait_brings_what_is_waited_for(bench: Bench) -> None:
    bench.put()
    bench.store.faults.delivery = Delivery.ON_WAIT
    read = bench.read()
    assert not any(read.is_resident(chunk) for chunk in range(CHUNKS))
    assert read.wait_for(1, 2)
    assert read.state(1, 1) is PENDING
    assert read.wait_layer(0)
    assert read.wait_for(0)
    assert not read.is_resident(2)
    assert read.wait().finished


def test_a_test_hears_of_waits_and_ends_them(bench: Bench) -> None:
    bench.put()
    waits: list[Wait] = []

    def on_wait(wait: Wait) -> bool:
        waits.append(wait)
        if wait.layer == 1:
            wait.deliver()
        return True

    bench.store.faults.delivery = Delivery.HELD
    bench.store.faults.on_wait = on_wait
    read = bench.read()
    assert not read.wait_for(2, 0, timeout_s=100.0)
    assert read.wait_layer(1)
    assert read.wait_layer(1)
    assert not read.wait().finished
    asked = [(wait.chunk, wait.layer, wait.timeout_s) for wait in waits]
    assert asked == [(2, 0, 100.0), (None, 1, None), (None, None, None)]
    assert {wait.read for wait in waits} == set(bench.store.reads)
    read.close()


def test_a_paced_read_arrives_by_itself(bench: Bench) -> None:
    bench.put()
    bench.store.faults.delivery = Delivery.PACED
    bench.store.faults.slice_delay_s = 0.01
    read = bench.read(order=Order.HEAD_FIRST)
    assert not read.finished
    assert read.wait_for(0)
    assert read.wait().resident == (True,) * CHUNKS


def test_lost_slices_are_missing(bench: Bench) -> None:
    bench.put()
    bench.store.faults.lost_slices = {(KEYS[1], 2)}
    read = bench.read(first_layer=1)
    assert read.wait().resident == (True, False, True)
    assert [read.state(1, layer) for layer in range(2)] == [RESIDENT, MISSING]
    bench.store.faults.lost_as = LATE
    assert bench.read().state(1, 2) is LATE


def test_what_is_not_there_is_overwritten_with_rubbish(bench: Bench) -> None:
    """Nobody may use what lies where a slice did not arrive."""
    bench.put()
    bench.target.view[:] = bench.source.view
    bench.store.faults.lost_slices = {(KEYS[1], 2)}
    bench.read()
    right = {(c, n): bench.is_right(c, n) for c in range(CHUNKS) for n in range(LAYERS)}
    assert [place for place, is_right in right.items() if not is_right] == [(1, 2)]


def test_a_hanging_read_is_over_when_it_is_cancelled(bench: Bench) -> None:
    bench.put()
    bench.store.faults.lost_slices = {(KEYS[0], 0)}
    bench.store.faults.reads_hang = True
    read = bench.read()
    assert read.is_resident(1)
    assert read.state(0, 0) is PENDING
    assert not read.wait(timeout_s=0.01).finished
    read.cancel()
    assert read.finished
    assert read.state(0, 0) is SKIPPED
    bench.store.faults.lost_slices.clear()
    whole = bench.read()
    assert whole.report().resident == (True,) * CHUNKS
    assert not whole.finished
    whole.close()


def test_a_store_may_keep_what_was_cancelled(bench: Bench) -> None:
    bench.put()
    bench.store.faults.delivery = Delivery.HELD
    bench.store.faults.keeps_cancelled = True
    read = bench.read()
    closing = threading.Thread(target=read.close)
    closing.start()
    (served,) = bench.store.reads
    wait_until(lambda: served.is_cancelled)
    assert closing.is_alive()
    served.finish()
    closing.join(30)
    assert not closing.is_alive()
    assert bench.store.boards_in_use == 0


def test_a_test_hears_of_a_close_that_waits(bench: Bench) -> None:
    bench.put()
    waits: list[Wait] = []

    def let_go(wait: Wait) -> bool:
        waits.append(wait)
        wait.read.finish()
        return False

    bench.store.faults.delivery = Delivery.HELD
    bench.store.faults.on_wait = let_go
    bench.read().close()
    assert waits == [], "what is cancelled is let go at once"
    bench.store.faults.keeps_cancelled = True
    bench.read().close()
    (wait,) = waits
    assert wait == Wait(read=bench.store.reads[1], chunk=None, layer=None, timeout_s=None)
    assert bench.store.boards_in_use == 0


def test_what_the_engine_computes_is_skipped(bench: Bench) -> None:
    bench.put()
    bench.store.faults.delivery = Delivery.HELD
    read = bench.read()
    for pointer in (1, 1, 2):
        read.advance(pointer)
    (served,) = bench.store.reads
    assert served.pointers == [1, 2]
    served.deliver()
    assert [read.state(chunk, 0) for chunk in range(CHUNKS)] == [SKIPPED, SKIPPED, RESIDENT]


def test_a_pointer_that_goes_back_is_seen(bench: Bench) -> None:
    """Bug: only larger ones were kept, so that ``pointers`` were sorted whatever the engine did."""
    bench.put()
    bench.store.faults.delivery = Delivery.HELD
    read = bench.read()
    read.advance(2)
    read.advance(1)
    assert bench.store.reads[0].pointers == [2, 1]
    read.close()


def test_what_does_not_come_in_time_is_late(bench: Bench) -> None:
    bench.put()
    bench.store.faults.delivery = Delivery.HELD
    # No time passes before the delivery, however long it takes; then the wait takes all of it.
    began_s, is_delivered = time.monotonic(), False
    bench.store.clock = lambda: time.monotonic() if is_delivered else began_s
    read = bench.read(timeout_ms=50)
    bench.store.reads[0].deliver(2)
    is_delivered = True
    assert read.wait().resident == (False, False, True)
    assert read.state(0, 0) is LATE
    assert bench.client.epoch == 1


def test_a_deadline_by_the_clock_of_the_test(layout: StateLayout) -> None:
    now_s = 0.0
    store = MemoryStore(faults=Faults(delivery=Delivery.HELD), clock=lambda: now_s)
    with MemoryClient(store, arena_bytes=ARENA_BYTES) as client:
        bench = Bench(store, client, layout)
        bench.put()
        read = bench.read(timeout_ms=5000)
        now_s = 4.9
        assert store.deliver() == 1
        now_s = 5.0
        assert store.deliver() == 0
        assert [read.state(chunk, 0) for chunk in range(CHUNKS)] == [LATE, LATE, RESIDENT]


def test_bytes_count_as_those_of_a_tier(bench: Bench) -> None:
    bench.put()
    payload_bytes = CHUNKS * bench.layout.chunk_bytes()
    report = bench.read().wait()
    assert (report.device_bytes, report.dram_bytes) == (0, payload_bytes)
    bench.store.faults.from_devices = True
    report = bench.read().wait()
    assert (report.device_bytes, report.dram_bytes) == (payload_bytes, 0)


LAYOUT = StateLayout(
    model="m", dtype="f", layers=(LayerState(StateKind.KV, 64),) * LAYERS, chunk_tokens=16
)
PLACES = [(chunk, layer) for chunk in range(CHUNKS) for layer in range(LAYERS)]


@settings(max_examples=60)
@given(data=st.data())
def test_what_is_resident_is_what_was_put(data: st.DataObject) -> None:
    """Whatever is lost, delivered, reached, cancelled, put again or killed, and when."""
    lost = data.draw(st.sets(st.sampled_from([(KEYS[c], layer) for c, layer in PLACES])))
    store = MemoryStore(
        faults=Faults(
            delivery=data.draw(st.sampled_from([Delivery.HELD, Delivery.AT_ONCE])),
            lost_slices=lost,
            lost_as=data.draw(st.sampled_from([MISSING, LATE])),
            reads_hang=data.draw(st.booleans()),
        )
    )
    with MemoryClient(store, arena_bytes=ARENA_BYTES) as client:
        bench = Bench(store, client, LAYOUT)
        bench.put()
        kept = bytes(bench.source.view)
        bench.source.view[:] = bytes(len(kept))
        bench.put()
        bench.source.view[:] = kept
        read = bench.read(order=data.draw(st.sampled_from(Order)))
        (served,) = store.reads
        for _ in range(data.draw(st.integers(0, 4))):
            step = data.draw(st.sampled_from(["deliver", "next", "advance", "cancel", "kill"]))
            if step == "deliver":
                served.deliver(*data.draw(st.sampled_from(PLACES)))
            elif step == "next":
                store.deliver()
            elif step == "advance":
                read.advance(data.draw(st.integers(served.pointer, CHUNKS)))
            elif step == "cancel":
                read.cancel()
            else:
                store.kill()
        read.close()
        for place in PLACES:
            state = read.state(*place)
            assert state is not PENDING
            if state is RESIDENT:
                assert bench.is_right(*place)
                assert (KEYS[place[0]], place[1]) not in lost
    assert store.boards_in_use == 0
