"""Loads of ranks that each have some columns of every layer input (HCache, section 5)."""

import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest
import torch
from torch import Tensor

from engine_adapters.device_copies.testing.delayed_copies import DelayedCopies
from engine_adapters.restore import ComputeCost, LoadClock, StepCosts
from engine_adapters.vllm.blocks.block_filler import PROJECTED_CHUNKS_MAX, BlockFiller
from engine_adapters.vllm.blocks.kv_blocks import KvBlocks
from engine_adapters.vllm.identity.chunk_keys import rank_key
from engine_adapters.vllm.messages.block_span import BlockSpan
from engine_adapters.vllm.messages.orders import LoadEnd, LoadOrder
from engine_adapters.vllm.worker_side.between_forwards import BetweenForwards
from engine_adapters.vllm.worker_side.load_job import LoadPlace
from engine_adapters.vllm.worker_side.loader import Loader
from engine_adapters.vllm.worker_side.meetings import Meetings
from kvstored_client import LayerState, Shard, SliceState, StateKind, StateLayout
from kvstored_client.testing import ServedRead, StoredChunk
from tests.engine_adapters.vllm.engine_client import EngineClient
from tests.engine_adapters.vllm.worker_side.thread_ranks import ThreadRanks, ranks_of
from tests.support.threads import together
from tests.support.waiting import wait_until

RANKS, BLOCK_TOKENS, CHUNK_BLOCKS, CHUNKS, WIDTH = 2, 4, 2, 6, 256
CHUNK_TOKENS = BLOCK_TOKENS * CHUNK_BLOCKS
PART = WIDTH // RANKS
LAYERS = (StateKind.HIDDEN, StateKind.KV, StateKind.HIDDEN)
CHAIN = tuple(bytes([chunk]) * 32 for chunk in range(CHUNKS))
BLOCK_IDS = tuple(range(3, 3 + CHUNKS * CHUNK_BLOCKS))
LOAD_ID, OTHER_ID = 1, 2
TOKENS = CHUNKS * CHUNK_TOKENS
COMPUTE_S = 1.0
"""What an engine would take to compute what is loaded."""


def states(layer: int) -> Tensor:
    """The states of all tokens, of all ranks."""
    generator = torch.Generator().manual_seed(layer)
    return torch.randn(TOKENS, WIDTH, generator=generator)


def part(layer: int, rank: int) -> Tensor:
    return states(layer)[:, rank * PART : (rank + 1) * PART].contiguous()


class Cache:
    """Projects an input to itself, which shows whether it was whole.

    Takes its time, and notes whether the loader stepped meanwhile.
    """

    def __init__(self, shape: tuple[int, ...], clock: "HandClock") -> None:
        self.was_disturbed = False
        self._clock = clock
        self.layers = {layer: torch.zeros(*shape, WIDTH) for layer in range(len(LAYERS))}

    def project(self, layer: int, inputs: Tensor, positions: Tensor, slots: Tensor) -> None:
        del positions
        looks = self._clock.look_count
        time.sleep(0.005)
        self.was_disturbed |= self._clock.look_count != looks
        self.layers[layer].view(-1, WIDTH)[slots] = inputs


class HandClock(LoadClock):
    """Goes on when a test moves it; ``look_count`` counts the loader's rounds."""

    def __init__(self) -> None:
        super().__init__()
        self.look_count = 0

    def advance(self, now_s: float, *, load_count: int) -> None:
        del now_s, load_count
        self.look_count += 1


class Rank:
    """One rank, with a store that holds its parts of all chunks."""

    def __init__(self, number: int, ranks: ThreadRanks) -> None:
        self.number = number
        self.clock = HandClock()
        compute = ComputeCost(step_s=0.0, token_s=COMPUTE_S / TOKENS, attention_s=0.0)
        self.client = EngineClient()
        self.layout = StateLayout(
            model="m",
            dtype="float32",
            layers=tuple(LayerState(kind, 4 * PART) for kind in LAYERS),
            chunk_tokens=CHUNK_TOKENS,
            shard=Shard(tensor_rank=number, tensor_size=RANKS),
        )
        for chunk, key in enumerate(CHAIN):
            rows = slice(chunk * CHUNK_TOKENS, (chunk + 1) * CHUNK_TOKENS)
            slices = [part(layer, number)[rows] for layer in range(len(LAYERS))]
            self.client.store.chunks[rank_key(key, self.layout.layout_id)] = StoredChunk(
                layout_id=self.layout.layout_id,
                slices=tuple(one.view(torch.uint8).numpy().tobytes() for one in slices),
                token_count=CHUNK_TOKENS,
            )
        self.meetings = Meetings(ranks)
        self.meetings.prepare(
            chunks_max=PROJECTED_CHUNKS_MAX,
            row_count_max=PROJECTED_CHUNKS_MAX * CHUNK_TOKENS,
            row_bytes=4 * PART,
            layer_count=LAYERS.count(StateKind.HIDDEN),
            device=torch.device("cpu"),
        )
        self.cache = Cache((20, BLOCK_TOKENS), self.clock)
        names = [f"layer{layer}" for layer in range(len(LAYERS))]
        blocks = {name: torch.zeros(20, BLOCK_TOKENS, PART) for name in names}
        self.own = blocks["layer1"]
        self.copies = DelayedCopies(delay_s=0.002)
        self.loader = Loader(
            LoadPlace(
                client=self.client,
                layout=self.layout,
                filler=BlockFiller(
                    KvBlocks(blocks, names, copies=self.copies),
                    self.layout,
                    block_tokens=BLOCK_TOKENS,
                    dtype=torch.float32,
                    projection=self.cache,
                ),
                between=BetweenForwards(),
                span_chunks=CHUNKS,
                timeout_s=600.0,
                costs=StepCosts(compute, step_tokens=TOKENS),
                clock=self.clock,
                meetings=self.meetings,
            )
        )
        self.ends: list[LoadEnd] = []

    @property
    def read(self) -> ServedRead:
        return self.nth_read(0)

    def nth_read(self, number: int) -> ServedRead:
        wait_until(lambda: len(self.client.store.reads) > number)
        return self.client.store.reads[number]

    def bring(self, *chunks: int) -> None:
        """Chunks arrive in this rank's arena."""
        for chunk in chunks:
            self.read.deliver(chunk)

    def until_ready(self) -> None:
        """Waits until the load has something for the next meeting."""
        wait_until(lambda: self.meetings.waits_for_engine(LOAD_ID))

    def pass_time(self, duration_s: float) -> None:
        """Time passes, and the loader sees that."""
        self.clock.now_s += duration_s
        looks = self.clock.look_count + 3
        wait_until(lambda: self.clock.look_count > looks)

    def step(self) -> None:
        """As the engine's thread does."""
        self.meetings.meet((LOAD_ID, OTHER_ID))
        self.loader.wait(0.001)
        self.ends += self.loader.take_ends()

    def right_chunks(self) -> set[int]:
        """Chunks whose blocks hold what was stored, in all layers."""
        right = set()
        for chunk in range(CHUNKS):
            blocks = list(BLOCK_IDS[chunk * CHUNK_BLOCKS : (chunk + 1) * CHUNK_BLOCKS])
            rows = slice(chunk * CHUNK_TOKENS, (chunk + 1) * CHUNK_TOKENS)
            found = [self.cache.layers[layer][blocks].view(-1, WIDTH) for layer in (0, 2)]
            expected = [states(layer)[rows] for layer in (0, 2)]
            is_right = all(map(torch.equal, found, expected))
            own = self.own[blocks].view(-1, PART)
            if is_right and torch.equal(own, part(1, self.number)[rows]):
                right.add(chunk)
        return right


def order_of(load_id: int) -> LoadOrder:
    return LoadOrder(
        load_id=load_id,
        request_id=f"request {load_id}",
        span=BlockSpan(first_block=0, block_ids=BLOCK_IDS, chunk_blocks=CHUNK_BLOCKS),
        chain_keys=CHAIN,
    )


@pytest.fixture
def ranks() -> Iterator[list[Rank]]:
    found = [Rank(number, group) for number, group in enumerate(ranks_of(RANKS))]
    for rank in found:
        rank.loader.start(order_of(LOAD_ID))
    yield found
    for rank in found:
        for read in rank.client.store.reads:
            read.finish()
        rank.loader.close()
        rank.client.close()


def run(ranks: list[Rank], until: Callable[[], bool]) -> None:
    def look() -> bool:
        together(*(rank.step for rank in ranks))
        return until()

    wait_until(look)


def run_to_end(ranks: list[Rank]) -> list[LoadEnd]:
    run(ranks, lambda: all(rank.ends for rank in ranks))
    assert all(len(rank.ends) == 1 for rank in ranks)
    return [rank.ends[0] for rank in ranks]


def test_every_rank_projects_whole_inputs(ranks: list[Rank]) -> None:
    """Though chunks come to each at another time."""
    ranks[0].bring(0, 1, 2, 3)
    ranks[1].bring(0)
    run(ranks, lambda: all(rank.right_chunks() == {0} for rank in ranks))
    ranks[1].bring(1, 2, 3, 4, 5)
    run(ranks, lambda: all(rank.right_chunks() == {0, 1, 2, 3} for rank in ranks))
    ranks[0].bring(4, 5)
    for end in run_to_end(ranks):
        assert end.loaded_blocks == len(BLOCK_IDS)
        assert end.lost_chunks == ()
    assert all(rank.right_chunks() == set(range(CHUNKS)) for rank in ranks)
    assert not any(rank.cache.was_disturbed for rank in ranks)
    assert all(rank.loader.take_bad_blocks() == set() for rank in ranks)


@pytest.mark.parametrize("loser", range(RANKS))
def test_what_one_rank_has_lost_is_loaded_by_none(ranks: list[Rank], loser: int) -> None:
    for rank in ranks:
        rank.bring(0, 1)
    run(ranks, lambda: all(rank.right_chunks() == {0, 1} for rank in ranks))
    ranks[1 - loser].bring(2, 3, 4, 5)
    ranks[loser].read.finish(SliceState.MISSING)
    for end in run_to_end(ranks):
        assert end.lost_chunks == (2,)
        assert end.loaded_blocks == 2 * CHUNK_BLOCKS
    for rank in ranks:
        assert rank.loader.take_bad_blocks() == set(BLOCK_IDS[2 * CHUNK_BLOCKS :])


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_blocks_of_a_cancelled_load_are_left_alone(ranks: list[Rank], is_cancelled: bool) -> None:
    """Though it has chunks ready when its request ends, before the loader knows of that."""
    for rank in ranks:
        rank.bring(*range(CHUNKS))
        rank.until_ready()

    def step(rank: Rank) -> None:
        with rank.meetings.turn:
            if is_cancelled:
                rank.loader.cancel(LOAD_ID)
            rank.meetings.meet((LOAD_ID,))

    together(*(partial(step, rank) for rank in ranks))
    for end in run_to_end(ranks):
        assert end.loaded_blocks == (0 if is_cancelled else len(BLOCK_IDS))
    whole = set() if is_cancelled else set(range(CHUNKS))
    assert all(rank.right_chunks() == whole for rank in ranks)


def test_a_rank_without_the_load_ends_it_in_the_others(ranks: list[Rank]) -> None:
    """As one whose daemon refused it a session."""
    ranks[0].read.finish()
    ranks[1].bring(0, 1, 2, 3, 4, 5)
    assert [end.lost_chunks for end in run_to_end(ranks)] == [(0,)] * RANKS
    assert all(not rank.right_chunks() for rank in ranks)


def test_a_long_step_is_no_time_of_a_load(ranks: list[Rank]) -> None:
    """Every rank waits for the engine then, and nobody for the store."""
    for rank in ranks:
        rank.bring(*range(CHUNKS))
        rank.until_ready()
        rank.pass_time(10 * COMPUTE_S)
    assert [end.lost_chunks for end in run_to_end(ranks)] == [()] * RANKS


def test_a_slow_store_of_one_rank_holds_nobody_longer_than_computing(ranks: list[Rank]) -> None:
    ranks[0].bring(*range(CHUNKS))
    ranks[1].bring(0)
    run(ranks, lambda: all(rank.right_chunks() == {0} for rank in ranks))
    ranks[1].clock.now_s += 10 * COMPUTE_S
    assert [end.lost_chunks for end in run_to_end(ranks)] == [(1,)] * RANKS


def test_ranks_that_lacked_different_loads_waited_until_the_timeout(ranks: list[Rank]) -> None:
    """Bug: what a load waited for other ranks was no time of any load, so no bound was reached."""
    for rank in ranks:
        assert rank.read
        rank.loader.start(order_of(OTHER_ID))
        assert rank.nth_read(1)
    for number, rank in enumerate(ranks):
        for chunk in range(CHUNKS):
            rank.nth_read(number).deliver(chunk)
    together(*(rank.step for rank in ranks))
    for rank in ranks:
        rank.pass_time(10 * COMPUTE_S)
    run(ranks, lambda: all(len(rank.ends) == 2 for rank in ranks))
    assert {end.lost_chunks for rank in ranks for end in rank.ends} == {(0,)}
