from typing import Any
from unittest.mock import Mock

import pytest

from engine_adapters.vllm.identity.chunk_keys import KeyChain, RequestIdentity
from engine_adapters.vllm.messages.block_span import BlockSpan
from engine_adapters.vllm.messages.orders import LoadEnd
from engine_adapters.vllm.messages.tally import Tally
from engine_adapters.vllm.scheduler_side.found import Found
from engine_adapters.vllm.scheduler_side.loads import Loads
from engine_adapters.vllm.scheduler_side.overtaking import Overtaking
from engine_adapters.vllm.scheduler_side.pace import Pace
from engine_adapters.vllm.scheduler_side.request_track import RequestTrack

CHUNK_TOKENS = 64
CHUNKS = 3
SPAN = BlockSpan(first_block=4, block_ids=tuple(range(8)), chunk_blocks=4)
"""Of the second and the third chunk."""


def track(name: str = "a") -> RequestTrack:
    request: Any = Mock(request_id=name)
    return RequestTrack(request=request, identity=RequestIdentity(), chunk_tokens=CHUNK_TOKENS)


def found() -> Found:
    chain = KeyChain(
        namespace="n", fingerprint="m", identity=RequestIdentity(), chunk_tokens=CHUNK_TOKENS
    )
    chain.extend(range(CHUNKS * CHUNK_TOKENS))
    return Found(chain=chain, chunk_count=CHUNKS, leases=(Mock(),))


@pytest.fixture
def loads() -> Loads:
    return Loads(worker_count=2, block_tokens=16, is_projected=False, tally=Tally())


def ordered(loads: Loads, one: RequestTrack, *, is_overtaken: bool = False) -> int:
    what = found()
    loads.order(one, what, SPAN, what.chain_keys(SPAN.chunks), is_overtaken=is_overtaken)
    assert one.load is not None
    return one.load.load_id


def test_a_load_is_ordered_once_with_the_keys_of_its_chunks(loads: Loads) -> None:
    one, what = track(), found()
    assert not loads.has_orders
    loads.order(one, what, SPAN, what.chain_keys(SPAN.chunks), is_overtaken=True)
    assert loads.has_orders
    assert loads.is_ordered("a")
    (order,), cancels = loads.take()
    assert what.chain is not None
    assert order.chain_keys == tuple(what.chain.extend(()))[1:3]
    assert (order.request_id, order.overtaken, cancels) == ("a", True, frozenset())
    assert loads.take() == ((), frozenset())
    assert not loads.is_ordered("a")


def test_ids_of_loads_are_never_used_again(loads: Loads) -> None:
    ids = [ordered(loads, track(name)) for name in "aba"]
    assert ids == sorted(set(ids))


def test_a_cancelled_load_leaves_its_request(loads: Loads) -> None:
    one = track()
    load_id = ordered(loads, one, is_overtaken=True)
    one.overtaking = Overtaking(stop_token=192, chunk_tokens=CHUNK_TOKENS, pace=Pace())
    loads.cancel(one)
    assert one.load is None
    assert one.overtaking is None
    assert loads.take()[1] == {load_id}


def test_a_request_without_a_load_has_nothing_to_cancel(loads: Loads) -> None:
    """Its pointers stay: they clip the first step before there is a load."""
    one = track()
    one.overtaking = Overtaking(stop_token=192, chunk_tokens=CHUNK_TOKENS, pace=Pace())
    loads.cancel(one)
    assert one.overtaking is not None
    assert not loads.has_orders


def test_a_load_ends_when_it_has_ended_in_all_workers(loads: Loads) -> None:
    """Also one that was cancelled: its leases go back when no worker reads for it."""
    one = track()
    load_id = ordered(loads, one)
    loads.cancel(one)
    end = LoadEnd(load_id=load_id, loaded_blocks=8)
    first, second = loads.end(end), loads.end(end)
    assert first is second
    assert second is not None
    assert second.workers_left == 0
    assert second.found.leases
    assert loads.end(end) is None


def test_ends_are_counted_for_each_worker() -> None:
    tally = Tally()
    loads = Loads(worker_count=2, block_tokens=16, is_projected=True, tally=tally)
    end = LoadEnd(load_id=ordered(loads, track()), loaded_blocks=8)
    loads.end(end)
    assert tally.take() == {"loads": 1, "restored_tokens": 64, "projected_tokens": 64}


@pytest.mark.parametrize(
    ("worker_count", "is_projected", "meets"),
    [(2, True, True), (1, True, False), (2, False, False)],
)
def test_workers_with_parts_of_layer_inputs_meet_until_a_load_ends(
    worker_count: int, is_projected: bool, meets: bool
) -> None:
    loads = Loads(
        worker_count=worker_count, block_tokens=16, is_projected=is_projected, tally=Tally()
    )
    assert loads.meetings == ()
    end = LoadEnd(load_id=ordered(loads, track()), loaded_blocks=8)
    for _ in range(worker_count):
        assert loads.meetings == ((end.load_id,) if meets else ())
        loads.end(end)
    assert loads.meetings == ()


def test_a_load_that_is_stopped_stays_its_requests(loads: Loads) -> None:
    """The request still waits for the ends of all workers."""
    one = track()
    load_id = ordered(loads, one)
    loads.take()
    assert one.load is not None
    loads.stop(one.load)
    assert loads.take() == ((), frozenset({load_id}))
    assert one.load is not None
