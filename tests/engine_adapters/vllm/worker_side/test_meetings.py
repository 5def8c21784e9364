"""Ranks that have parts of layer inputs, and bring them together."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from engine_adapters.device_copies.host_copies import OVER
from engine_adapters.device_copies.landing import Landing
from engine_adapters.vllm.worker_side.meetings import Join, Meetings, Offer
from tests.engine_adapters.vllm.worker_side.thread_ranks import ThreadRanks, ranks_of
from tests.support.threads import together

RANKS, LAYERS, CHUNK_TOKENS, WIDTH = 3, 2, 4, 6
CHUNKS_MAX = 5
PART = WIDTH // RANKS


def whole(load_id: int, layer: int) -> Tensor:
    """The inputs of a load's chunks."""
    generator = torch.Generator().manual_seed(10 * load_id + layer)
    return torch.randn(CHUNKS_MAX * CHUNK_TOKENS, WIDTH, generator=generator)


class Lagging:
    """A landing that is not over until somebody waits."""

    def __init__(self) -> None:
        self.is_over = False

    def wait(self) -> None:
        self.is_over = True

    def hold_engine(self) -> None:
        raise AssertionError("nobody asked for it")


class Rank:
    """One rank, which notes what it has brought of each load."""

    def __init__(self, number: int, ranks: ThreadRanks) -> None:
        self.ranks = ranks
        self.meetings = Meetings(ranks)
        self.meetings.prepare(
            chunks_max=CHUNKS_MAX,
            row_count_max=CHUNKS_MAX * CHUNK_TOKENS,
            row_bytes=4 * PART,
            layer_count=LAYERS,
            device=torch.device("cpu"),
        )
        self.brought: dict[int, list[Tensor]] = {}
        self.taken: dict[int, int] = {}
        self.fails_in: dict[int, int] = {}
        """By load, the layer in which bringing it fails."""
        self.landing: Landing = OVER
        self._columns = slice(number * PART, (number + 1) * PART)

    def offer(self, load_id: int, count: int, *, wanted: int | None = None) -> None:
        def fill(agreed: int, join: Join) -> Landing:
            layers = []
            for layer in range(LAYERS):
                if self.fails_in.get(load_id) == layer:
                    raise torch.OutOfMemoryError("no memory")
                inputs = whole(load_id, layer)[: agreed * CHUNK_TOKENS]
                layers.append(join(inputs[:, self._columns]))
            self.brought[load_id] = layers
            return self.landing

        offer = Offer(
            wanted=lambda: count if wanted is None else wanted,
            rows=lambda agreed: agreed * CHUNK_TOKENS,
            fill=fill,
            take=lambda agreed, _: self.taken.update({load_id: agreed}),
        )
        self.meetings.offer(load_id, offer)


@pytest.fixture
def ranks() -> list[Rank]:
    return [Rank(number, ranks) for number, ranks in enumerate(ranks_of(RANKS))]


def meet(ranks: Sequence[Rank], *load_ids: int) -> None:
    together(*(lambda rank=rank: rank.meetings.meet(load_ids) for rank in ranks))
    calls = [rank.ranks.calls for rank in ranks]
    assert calls[1:] == calls[:-1], "every rank makes the same calls"


def open_everywhere(ranks: Sequence[Rank], *load_ids: int) -> None:
    for rank in ranks:
        for load_id in load_ids:
            rank.meetings.open(load_id)


def test_every_rank_gets_whole_inputs_of_what_all_have(ranks: list[Rank]) -> None:
    open_everywhere(ranks, 7)
    for rank, count in zip(ranks, (3, 2, 4), strict=True):
        rank.offer(7, count)
    meet(ranks, 7)
    for rank in ranks:
        assert rank.taken == {7: 2}
        for layer, inputs in enumerate(rank.brought[7]):
            assert torch.equal(inputs, whole(7, layer)[: 2 * CHUNK_TOKENS])
        assert not rank.meetings.waits_for_engine(7)
        assert not rank.meetings.is_parted(7)


def test_nothing_is_brought_until_the_last_rank_has_it(ranks: list[Rank]) -> None:
    open_everywhere(ranks, 7)
    for rank in ranks[:2]:
        rank.offer(7, 1)
        assert rank.meetings.waits_for_engine(7)
    meet(ranks, 7)
    assert [rank.taken for rank in ranks] == [{}, {}, {}]
    for rank in ranks:
        rank.offer(7, 1)
    assert [rank.meetings.waits_for_engine(7) for rank in ranks] == [False] * RANKS, "but for one"
    meet(ranks, 7)
    assert [rank.taken for rank in ranks] == [{7: 1}] * RANKS


def test_chunks_that_nobody_wants_any_more_are_not_brought(ranks: list[Rank]) -> None:
    open_everywhere(ranks, 7)
    for rank in ranks:
        rank.offer(7, 3, wanted=0)
    meet(ranks, 7)
    assert [rank.taken for rank in ranks] == [{}] * RANKS


@pytest.mark.parametrize("was_open", [True, False])
def test_a_load_that_ended_in_one_rank_ends_in_all(ranks: list[Rank], was_open: bool) -> None:
    """Also where a rank is off, and has never known it."""
    open_everywhere(ranks if was_open else ranks[1:], 7)
    open_everywhere(ranks, 8)
    ranks[0].meetings.close(7)
    for rank in ranks[1:]:
        rank.offer(7, 1)
    for rank in ranks:
        rank.offer(8, 1)
    meet(ranks, 7, 8)
    assert [rank.meetings.is_parted(7) for rank in ranks] == [False, True, True]
    assert [rank.taken for rank in ranks] == [{8: 1}] * RANKS
    ranks[1].offer(7, 1)
    meet(ranks, 7)
    assert 7 not in ranks[1].taken


@pytest.mark.parametrize("layer", range(LAYERS))
def test_what_one_rank_cannot_bring_counts_for_none(ranks: list[Rank], layer: int) -> None:
    """And the others neither wait for it for ever nor take what it left in its room."""
    open_everywhere(ranks, 7, 8)
    ranks[1].fails_in[7] = layer
    for rank in ranks:
        rank.landing = Lagging()
        rank.offer(7, 2)
        rank.offer(8, 1)
    meet(ranks, 7, 8)
    assert [rank.taken for rank in ranks] == [{8: 1}] * RANKS
    assert all(rank.meetings.is_parted(7) for rank in ranks)
    assert [rank.landing.is_over for rank in ranks] == [True, False, True], "their blocks are free"


def test_a_meeting_brings_so_many_chunks_of_all_loads(ranks: list[Rank]) -> None:
    """Running requests wait for it."""
    open_everywhere(ranks, 7, 8, 9)
    for rank in ranks:
        rank.offer(7, 3)
        rank.offer(8, 4)
        rank.offer(9, 4)
    meet(ranks, 7, 8, 9)
    assert [rank.taken for rank in ranks] == [{7: 3, 8: CHUNKS_MAX - 3}] * RANKS
    assert all(rank.meetings.waits_for_engine(9) for rank in ranks), "it had no room"
    meet(ranks, 9)
    assert [rank.taken[9] for rank in ranks] == [4] * RANKS


def test_states_of_two_bytes_are_joined_by_rows(ranks: list[Rank]) -> None:
    states = torch.randn(CHUNK_TOKENS, WIDTH).to(torch.bfloat16)
    found: dict[int, Tensor] = {}
    open_everywhere(ranks, 7)
    for number, rank in enumerate(ranks):
        part = states[:, number * PART : (number + 1) * PART]
        rank.meetings.prepare(
            chunks_max=1,
            row_count_max=CHUNK_TOKENS,
            row_bytes=2 * PART,
            layer_count=1,
            device=torch.device("cpu"),
        )

        def fill(count: int, join: Join, number: int = number, part: Tensor = part) -> Landing:
            found[number] = join(part)
            return OVER

        rank.meetings.offer(
            7,
            Offer(
                wanted=lambda: 1,
                rows=lambda count: CHUNK_TOKENS,
                fill=fill,
                take=lambda count, landing: None,
            ),
        )
    meet(ranks, 7)
    assert len(found) == RANKS
    assert all(torch.equal(inputs, states) for inputs in found.values())


def test_a_load_that_is_not_known_is_neither_parted_nor_waiting(ranks: list[Rank]) -> None:
    assert not ranks[0].meetings.is_parted(7)
    assert not ranks[0].meetings.waits_for_engine(7)
