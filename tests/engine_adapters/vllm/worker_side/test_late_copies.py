"""Loads and saves of a device whose copies come late, in any order, and leave poison until then."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

from engine_adapters.device_copies.landing import Landing
from engine_adapters.device_copies.testing.delayed_copies import DelayedCopies
from engine_adapters.vllm.identity.chunk_keys import rank_key
from engine_adapters.vllm.messages.orders import SaveOrder, StepOrders
from engine_adapters.vllm.worker_side import side as side_module
from kvstored_client import StateKind
from tests.engine_adapters.vllm.engine_client import ROOM_BYTES, EngineClient
from tests.engine_adapters.vllm.worker_side.load_job_bench import (
    BLOCK_IDS,
    CHUNKS,
    Bench,
    client,
)
from tests.engine_adapters.vllm.worker_side.test_saver import order_of, saver_of
from tests.engine_adapters.vllm.worker_side.test_side import (
    LARGE_BYTES,
    LOAD,
    layout_of,
    side_of,
)
from tests.support.waiting import wait_until

__all__ = ["client"]
LATE_S = 0.02
STOPPED_S = 0.2
"""For how long copies are not made after what should wait for them has begun."""


@pytest.fixture
def copies() -> DelayedCopies:
    return DelayedCopies(delay_s=LATE_S)


def spoilt(bench: Bench, place: int) -> bool:
    """Whether a block of the load is neither as it was nor as it should be."""
    blocks = [cache[BLOCK_IDS[place]] for cache in bench.cache.values()]
    return any(bool(block.any()) for block in blocks) and place not in bench.filled


@contextmanager
def going_on_later(stopped: ExitStack) -> Iterator[None]:
    """Copies that were stopped are made only while the context is already waiting for them."""
    later = threading.Timer(STOPPED_S, stopped.close)
    later.start()
    try:
        yield
    finally:
        later.join()


@pytest.mark.parametrize("overtaken", [False, True])
@pytest.mark.parametrize("span_chunks", [2, CHUNKS])
def test_everything_lies_in_its_blocks_when_a_load_has_ended(
    client: EngineClient, copies: DelayedCopies, overtaken: bool, span_chunks: int
) -> None:
    """And every region was kept until its copies were over."""
    bench = Bench(client, overtaken=overtaken, copies=copies, span_chunks=span_chunks)
    delivered = 0

    def bring() -> bool:
        nonlocal delivered
        while delivered < len(bench.reads):
            bench.reads[delivered].deliver()
            delivered += 1
        first = bench.job.first_loaded
        if first is not None and overtaken:
            assert {place for place in range(12) if place >= 2 * first} <= bench.filled
        return bench.job.end is not None

    bench.run(bring)
    assert bench.filled == set(range(12))
    assert bench.job.end is not None
    assert bench.job.end.loaded_blocks == len(BLOCK_IDS)
    wait_until(lambda: bench.job.is_released)
    assert client.free_bytes == ROOM_BYTES


def test_the_region_of_a_load_is_kept_while_it_is_copied(
    client: EngineClient, copies: DelayedCopies
) -> None:
    bench = Bench(client, overtaken=False, copies=copies)
    bench.run_until_asked()
    with copies.stopped():
        bench.bring(*range(CHUNKS))
        bench.reads[0].finish()
        bench.run(lambda: spoilt(bench, 11))
        for _ in range(20):
            bench.job.step()
        assert bench.job.end is None
        assert client.free_bytes < ROOM_BYTES
    assert bench.run_to_end().loaded_blocks == len(BLOCK_IDS)


def test_chunks_are_told_when_they_lie_in_their_blocks(
    client: EngineClient, copies: DelayedCopies
) -> None:
    """The scheduler lets the request jump there."""
    bench = Bench(client, overtaken=True, copies=copies)
    bench.run_until_asked()
    with copies.stopped():
        bench.bring(5, 4)
        bench.run(lambda: spoilt(bench, 8))
        for _ in range(20):
            bench.job.step()
        assert bench.job.first_loaded is None
    bench.run(lambda: bench.job.first_loaded == 4)
    assert {8, 9, 10, 11} <= bench.filled


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_no_copy_is_on_its_way_to_blocks_that_computing_owns(
    client: EngineClient, copies: DelayedCopies, is_cancelled: bool
) -> None:
    bench = Bench(client, overtaken=True, copies=copies)
    bench.run_until_asked()
    with ExitStack() as stopped:
        stopped.enter_context(copies.stopped())
        bench.bring(5, 4)
        bench.run(lambda: spoilt(bench, 8))
        with going_on_later(stopped):
            if is_cancelled:
                bench.job.cancel()
            else:
                bench.job.claim(5)
            assert not any(spoilt(bench, place) for place in (8, 9))
    bench.bring(*range(4))
    assert bench.run_to_end().lost_chunks == ()
    assert not any(spoilt(bench, place) for place in range(12))


def test_blocks_that_the_engine_may_still_use_are_not_written(
    client: EngineClient, copies: DelayedCopies
) -> None:
    """Those of a request that ended in a step which has only been launched."""
    copies.delay_s = 0.0
    with copies.engine_lags():
        bench = Bench(client, overtaken=False, copies=copies)
        bench.run_until_asked()
        bench.bring(*range(CHUNKS))
        bench.run(lambda: bench.job._launched_chunks == CHUNKS)
        assert not bench.written
        assert bench.job.end is None
    bench.run_to_end()
    assert bench.filled == set(range(12))


def test_a_late_load_waits_for_its_copies(client: EngineClient, copies: DelayedCopies) -> None:
    bench = Bench(client, overtaken=False, copies=copies)
    bench.run_until_asked()
    with ExitStack() as stopped:
        stopped.enter_context(copies.stopped())
        bench.bring(0, 1, 2)
        bench.run(lambda: spoilt(bench, 5))
        bench.job._started_s -= 1000.0
        with going_on_later(stopped):
            assert bench.run_to_end().lost_chunks == (3,)
            assert bench.filled == set(range(6))
    assert bench.job.end is not None
    assert bench.job.end.loaded_blocks == 6


class Dying(DelayedCopies):
    """A device whose first copies fail late, and that has no memory for the next ones."""

    has_begun = False

    def scatter(
        self, parts: Sequence[Tensor], blocks: Tensor, block_ids: Sequence[int], *, after: Landing
    ) -> Landing:
        if self.has_begun:
            raise torch.OutOfMemoryError("no memory")
        return self._later(_fail)


def test_a_load_that_failed_twice_never_ended(client: EngineClient) -> None:
    """Bug: what was on its way failed when the load was given up, and ended the loader's thread."""
    copies = Dying()
    bench = Bench(client, overtaken=False, copies=copies)
    bench.run_until_asked()
    with copies.stopped():
        bench.bring(0)
        bench.run(lambda: bench.job._launched_chunks == 1)
        copies.has_begun = True
        bench.bring(1)
        with pytest.raises(torch.OutOfMemoryError):
            bench.job.step()
    bench.job.abandon()
    assert bench.job.end is not None
    assert bench.job.end.lost_chunks == (0,)
    assert bench.job.missing_block_ids == list(BLOCK_IDS)
    # The region stays the daemon's until the read into it is over.
    bench.reads[0].finish()
    wait_until(lambda: bench.job.is_released)
    assert client.free_bytes == ROOM_BYTES


@pytest.fixture
def late_side(monkeypatch: pytest.MonkeyPatch, copies: DelayedCopies) -> EngineClient:
    monkeypatch.setattr(side_module, "open_copies", lambda device: copies)
    return EngineClient(room_bytes=LARGE_BYTES)


def save_of(chunk: int, blocks: tuple[int, ...]) -> SaveOrder:
    return SaveOrder(
        request_id="a",
        first_chunk=chunk,
        parent_key=b"",
        chain_keys=(bytes([chunk]) * 32,),
        block_ids=blocks,
    )


def test_what_is_saved_is_what_was_computed(late_side: EngineClient, copies: DelayedCopies) -> None:
    """The next forward overwrites the blocks, and the region goes to others after the put."""
    blocks = torch.arange(4 * 4 * 256, dtype=torch.float32).view(4, 4, 256)
    before = blocks.clone()
    side = side_of(late_side, StateKind.KV, blocks)
    for chunk, ids in enumerate(((2, 3), (1, 0))):
        orders = StepOrders(fingerprint="m", saves=(save_of(chunk, ids),))
        side.begin_step(orders)
        side.end_forward(orders)
        blocks[list(ids)] = -1.0
    wait_until(lambda: not side.is_saving)
    layout = layout_of(StateKind.KV)
    for chunk, ids in enumerate(((2, 3), (1, 0))):
        stored = late_side.store.chunks[rank_key(bytes([chunk]) * 32, layout.layout_id)]
        assert bytes(stored.slices[0]) == before[list(ids)].numpy().tobytes()
    assert copies.pinned[0] is late_side.arena_memory
    side.close()


def test_a_request_runs_when_its_blocks_are_filled(
    late_side: EngineClient, copies: DelayedCopies
) -> None:
    layout = layout_of(StateKind.KV)
    late_side.keep(layout, rank_key(LOAD.chain_keys[0], layout.layout_id), fills=[7])
    blocks = torch.zeros(4, 4, 256)
    side = side_of(late_side, StateKind.KV, blocks)
    side.begin_step(StepOrders(fingerprint="m", loads=(LOAD,)))
    wait_until(lambda: bool(late_side.store.reads))
    (read,) = late_side.store.reads
    read.deliver()
    wait_until(lambda: side.take_finished(is_idle=False) == {"a"})
    assert bool((blocks[[0, 1]].view(torch.uint8) == 7).all())
    assert side.take_bad_blocks() == set()
    side.close()


class Full(DelayedCopies):
    """A device without memory for what is gathered of the second layer."""

    def __init__(self) -> None:
        super().__init__(delay_s=LATE_S)
        self.landings: list[Landing] = []

    def gather(self, blocks: Tensor, block_ids: Sequence[int], target: Tensor) -> Landing:
        if self.landings:
            raise torch.OutOfMemoryError("no memory")
        self.landings.append(super().gather(blocks, block_ids, target))
        return self.landings[0]


def test_a_save_without_memory_is_dropped_when_what_was_begun_is_over() -> None:
    """Its region goes to others."""
    client, copies = EngineClient(), Full()
    saver = saver_of(client, copies=copies)
    saver.save([order_of(1)])
    assert [landing.is_over for landing in copies.landings] == [True]
    assert saver.take_counts() == {"dropped_saves": 1}
    assert client.free_bytes == ROOM_BYTES
    saver.drain()


class Failing(DelayedCopies):
    """A device that copies nothing, and says so when somebody waits."""

    def gather(self, blocks: Tensor, block_ids: Sequence[int], target: Tensor) -> Landing:
        return self._later(_fail)


def _fail() -> None:
    raise RuntimeError("no copy")


class Checked:
    """A check of the first chunk, which is never reached."""

    compare: Any = None


def test_a_first_save_whose_copy_failed_ended_the_engine() -> None:
    """Bug: it was waited for once more before its region went, and raised into the engine."""
    client, given_up = EngineClient(), threading.Event()
    saver = saver_of(client, copies=Failing(delay_s=LATE_S), check=Checked(), give_up=given_up.set)
    saver.save([order_of(1)])
    assert given_up.is_set()
    assert saver.take_counts() == {"dropped_saves": 1}
    assert client.free_bytes == ROOM_BYTES
    saver.drain()
