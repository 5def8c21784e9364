"""Rows at scattered positions see what lies before them, whichever pass wrote it."""

from collections.abc import Callable

import pytest
import torch

from engine_adapters.runner.model.forward_pass import scattered_mask
from engine_adapters.runner.model.kv_cache import KvCache
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.model.step import NullSink, ScatteredSegment, Segment
from tests.engine_adapters.runner.step_log import StepLog

COUNT, FIRST_SLOT = 20, 5
SCATTERED = (range(2, 4), range(9, 10), range(15, COUNT))


def whole(token_count: int = COUNT) -> Segment:
    return Segment(
        request_id=1,
        first_row=0,
        token_count=token_count,
        first_position=0,
        first_slot=FIRST_SLOT,
    )


def scattered(ranges: tuple[range, ...], first_row: int = 0, first_key: int = 0) -> Segment:
    return ScatteredSegment.of(
        ranges, request_id=1, first_row=first_row, first_slot=FIRST_SLOT, first_key=first_key
    )


@pytest.fixture
def tokens(make_tokens: Callable[[int, int], list[int]]) -> list[int]:
    return make_tokens(COUNT, 3)


@pytest.fixture
def prefilled(model: Model, tokens: list[int]) -> tuple[KvCache, torch.Tensor]:
    cache = model.make_cache(COUNT + 2 * FIRST_SLOT)
    logits = model.forward(tokens, [whole()], cache=cache, sink=NullSink(), logit_rows=range(COUNT))
    return cache, logits


def test_a_segment_knows_its_rows() -> None:
    part = scattered(SCATTERED, first_row=3)
    assert part.token_count == 8
    assert part.rows == slice(3, 11)
    assert part.ranges == SCATTERED
    assert part.first_position == 2
    assert part.stop_position == part.stop_token == COUNT
    assert whole().ranges == (range(COUNT),)


def test_a_mask_shows_what_lies_before() -> None:
    mask = scattered_mask(torch.tensor([2, 5]), 1, 6)
    assert mask is not None
    assert mask.tolist() == [[True, True, False, False, False], [True] * 5]
    assert scattered_mask(torch.tensor([5]), 1, 6) is None


@pytest.mark.parametrize("ranges", [SCATTERED, (range(COUNT),), (range(COUNT - 1, COUNT),)])
def test_rows_that_are_computed_again_are_those_of_a_prefill(
    model: Model,
    tokens: list[int],
    prefilled: tuple[KvCache, torch.Tensor],
    ranges: tuple[range, ...],
) -> None:
    cache, expected = prefilled
    before = cache.keys.clone(), cache.values.clone()
    positions = [position for one in ranges for position in one]
    slots = torch.tensor(positions) + FIRST_SLOT
    # What they had does not count: all rows go into the cache first.
    cache.keys[:, slots] = 99.0
    cache.values[:, slots] = 99.0
    logits = model.forward(
        [tokens[position] for position in positions],
        [scattered(ranges)],
        cache=cache,
        sink=NullSink(),
        logit_rows=range(len(positions)),
    )
    assert (logits - expected[positions]).abs().max() < 1e-4
    assert (cache.keys - before[0]).abs().max() < 1e-5
    assert (cache.values - before[1]).abs().max() < 1e-5


def test_a_first_key_hides_what_lies_before_it(model: Model, tokens: list[int]) -> None:
    cache = model.make_cache(COUNT + FIRST_SLOT)
    cache.keys[:], cache.values[:] = 99.0, 99.0
    alone = model.make_cache(COUNT)
    first = 8
    expected = model.forward(
        tokens[first:],
        [
            Segment(
                request_id=1,
                first_row=0,
                token_count=COUNT - first,
                first_position=0,
                first_slot=0,
            )
        ],
        cache=alone,
        sink=NullSink(),
        logit_rows=[COUNT - first - 1],
    )
    logits = model.forward(
        tokens[first:],
        [scattered((range(first, COUNT),), first_key=first)],
        cache=cache,
        sink=NullSink(),
        logit_rows=[COUNT - first - 1],
    )
    # Only the differences of positions count.
    assert (logits - expected).abs().max() < 1e-4
    assert (cache.keys[:, : FIRST_SLOT + first] == 99.0).all()


def test_a_segment_sees_its_sequence_before_the_next_one_is_written(
    model: Model, tokens: list[int], prefilled: tuple[KvCache, torch.Tensor]
) -> None:
    cache, expected = prefilled
    logits = model.forward(
        [*tokens[10:], *([1] * 5)],
        [scattered((range(10, COUNT),)), scattered((range(5),), first_row=10)],
        cache=cache,
        sink=NullSink(),
        logit_rows=[9],
    )
    assert (logits[0] - expected[-1]).abs().max() < 1e-4


def test_no_sink_sees_scattered_rows(model: Model, tokens: list[int]) -> None:
    log = StepLog()
    cache = model.make_cache(COUNT + FIRST_SLOT)
    model.forward(
        [*tokens[:4], *tokens[:2]],
        [whole(4), scattered((range(2),), first_row=4)],
        cache=cache,
        sink=log,
        logit_rows=(),
    )
    assert log.steps == [[(1, 4)]]
