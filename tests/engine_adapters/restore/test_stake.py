"""A restoration by layers takes at most 1.05 of computing everything, whatever the store does."""

from collections.abc import Callable

import pytest

from engine_adapters.restore import (
    LEAST_WAIT_S,
    ComputeCost,
    Stake,
    Verdict,
    first_span_chunks,
)
from engine_adapters.restore.stake import BLIND_SHARE, EVIDENCE_SHARE, STAKE_SHARE
from engine_adapters.restore.testing.virtual_spans import SpanOutcome, VirtualSpans, VirtualStore
from tests.support.untraced import UNTRACED

COMPUTE = ComputeCost(step_s=0.001, token_s=0.004, attention_s=5e-7)
CHUNKS = 32
TOKENS = 64 * CHUNKS
WHOLE_S = COMPUTE.compute_s(0, TOKENS, 512)
PROMISE = 1.05
FAST = 5.0
"""Times as fast as computing, which the device of the profile is."""

Pace = Callable[[float], float]


def steady(share: float) -> Pace:
    return lambda _: share * FAST * TOKENS / WHOLE_S


def stopping(at_share: float, *, share: float = 1.0) -> Pace:
    return lambda now_s: steady(share)(now_s) if now_s < at_share * WHOLE_S else 0.0


def fast_again(*, from_share: float, to_share: float) -> Pace:
    """Silent for a while."""
    return lambda now_s: 0.0 if from_share <= now_s / WHOLE_S < to_share else steady(1.0)(now_s)


def restored(
    pace: Pace, *, chunk_count: int = CHUNKS, opened_s: float = 0.0, take_share: float = 0.0
) -> SpanOutcome:
    store = VirtualStore(
        tokens_per_s=pace, opened_s=opened_s, take_token_s=take_share * WHOLE_S / TOKENS
    )
    return VirtualSpans(store, COMPUTE, chunk_count=chunk_count).run()


def over_computing(outcome: SpanOutcome, chunk_count: int = CHUNKS) -> float:
    return outcome.duration_s / COMPUTE.compute_s(0, 64 * chunk_count, 512)


PACES: dict[str, Pace] = {
    **{f"1/{part}": steady(1 / part) for part in (1, 2, 4, 8, 16, 64, 256)},
    "silent": steady(0.0),
    **{f"stops at {share}": stopping(share) for share in (0.01, 0.05, 0.1, 0.15, 0.19)},
    **{f"1/4 stops at {share}": stopping(share, share=1 / 4) for share in (0.1, 0.3, 0.5, 0.7)},
    "fast again": fast_again(from_share=0.05, to_share=0.3),
    "fast late": fast_again(from_share=0.0, to_share=0.5),
}


@UNTRACED
@pytest.mark.parametrize("take_share", [0.0, 0.1])
@pytest.mark.parametrize("chunk_count", [4, 16, 32, 128])
@pytest.mark.parametrize("name", PACES)
def test_a_slow_store_was_waited_for_thirty_seconds(
    name: str, chunk_count: int, take_share: float
) -> None:
    outcome = restored(PACES[name], chunk_count=chunk_count, take_share=take_share)
    assert over_computing(outcome, chunk_count) <= PROMISE
    tokens = sorted((*outcome.computed, *outcome.loaded), key=lambda part: part.first)
    assert [part.first for part in tokens] == [0, *(part.stop for part in tokens[:-1])]
    assert tokens[-1].stop == 64 * chunk_count


@pytest.mark.parametrize("opened_share", [0.005, 0.5, 100.0])
def test_a_store_that_does_not_say_what_it_has_is_left_after_the_stake(opened_share: float) -> None:
    outcome = restored(steady(1.0), opened_s=opened_share * WHOLE_S)
    assert over_computing(outcome) <= PROMISE
    assert bool(outcome.loaded) is (opened_share < BLIND_SHARE)


def test_a_fast_store_is_waited_for_to_the_end() -> None:
    outcome = restored(steady(1.0))
    assert not outcome.computed
    assert over_computing(outcome) == pytest.approx(1 / FAST, rel=0.02)


def test_a_store_a_little_faster_than_computing_saves_something() -> None:
    assert over_computing(restored(steady(1 / 4))) < 0.9


def test_what_comes_behind_a_silence_is_used() -> None:
    outcome = restored(PACES["fast late"])
    assert outcome.loaded
    assert over_computing(outcome) < 0.75


def test_a_slow_reader_is_given_up_before_the_stake_is_spent() -> None:
    stake = Stake(COMPUTE, TOKENS, step_tokens=512)
    span_s = stake.compute_s(0, 128)
    assert stake.verdict(0, 128, load_s=None) is Verdict.WAIT
    assert stake.verdict(0, 128, load_s=0.99 * span_s) is Verdict.WAIT
    assert stake.verdict(0, 128, load_s=1.01 * span_s) is Verdict.DROP


@pytest.mark.parametrize("opened_s", [0.0, 1e9])
def test_the_whole_stake_was_spent_on_a_store_that_brought_nothing(opened_s: float) -> None:
    """Bug: a silent store was waited for as long as one that keeps its pace."""
    outcome = restored(steady(0.0), opened_s=opened_s)
    assert over_computing(outcome) <= 1 + BLIND_SHARE + 0.001


def test_only_a_reader_that_keeps_up_is_waited_for_with_all_of_the_stake() -> None:
    stake = Stake(COMPUTE, TOKENS, step_tokens=512)
    span_s = stake.compute_s(0, 128)
    assert stake.look_s == pytest.approx(EVIDENCE_SHARE * WHOLE_S)
    stake.spend(1.001 * BLIND_SHARE * WHOLE_S)
    assert stake.look_s == pytest.approx(EVIDENCE_SHARE * WHOLE_S)
    assert stake.verdict(0, 128, load_s=None) is Verdict.COMPUTE
    assert stake.verdict(0, 128, load_s=1.01 * span_s) is Verdict.DROP
    assert stake.verdict(0, 128, load_s=0.99 * span_s) is Verdict.WAIT
    stake.spend((STAKE_SHARE - BLIND_SHARE) * WHOLE_S)
    assert stake.look_s == 0
    assert stake.verdict(0, 128, load_s=0.49 * span_s) is Verdict.COMPUTE


def test_a_slow_reader_was_waited_for_until_it_asked_for_more() -> None:
    """Bug: after a span that was dropped the rest of the stake was spent on opening the next."""
    stake = Stake(COMPUTE, TOKENS, step_tokens=512)
    chunk_s = stake.compute_s(0, 64)
    assert stake.opening(0, 64, load_s=None) is Verdict.WAIT
    assert stake.opening(0, 64, load_s=0.99 * chunk_s) is Verdict.WAIT
    assert stake.opening(0, 64, load_s=1.01 * chunk_s) is Verdict.COMPUTE


def test_what_was_loaded_pays_for_what_is_waited_for() -> None:
    stake = Stake(COMPUTE, TOKENS, step_tokens=512)
    assert stake.left_s == pytest.approx(STAKE_SHARE * WHOLE_S)
    assert stake.evidence_s == pytest.approx(EVIDENCE_SHARE * WHOLE_S)
    stake.spend(STAKE_SHARE * WHOLE_S)
    assert stake.left_s == 0
    assert stake.verdict(0, 128, load_s=None) is Verdict.COMPUTE
    stake.spend(1.0)
    assert stake.left_s == 0
    stake.gain(0, 512)
    assert stake.left_s == pytest.approx(stake.compute_s(0, 512) - 1.0)


def test_the_first_moments_are_free_however_little_there_is_to_compute() -> None:
    stake = Stake(COMPUTE, 64, step_tokens=512, least_wait_s=30.0)
    assert stake.verdict(0, 64, load_s=1e9) is Verdict.WAIT
    assert stake.evidence_s == stake.left_s == 30.0
    stake.spend(29.0)
    assert stake.verdict(0, 64, load_s=1e9) is Verdict.WAIT
    stake.spend(1.0)
    assert stake.verdict(0, 64, load_s=1e9) is Verdict.DROP
    assert stake.left_s == 0


SHORT_S = (0.45, 0.7, 1.0, 2.4)
"""What computing 1024 tokens takes where the least wait is a large part of the stake, or all."""


def short(pace: Pace, whole_s: float) -> float:
    """Over computing, of a restoration as the runner makes it."""
    compute = ComputeCost(step_s=0.0, token_s=whole_s / 1024, attention_s=0.0)
    store = VirtualStore(
        tokens_per_s=pace, opened_s=0.002 * whole_s, take_token_s=0.02 * compute.token_s
    )
    spans = VirtualSpans(store, compute, chunk_count=16, least_wait_s=LEAST_WAIT_S)
    return spans.run().duration_s / whole_s


@pytest.mark.parametrize("whole_s", SHORT_S)
@pytest.mark.parametrize("speed", [0.0, 0.02, 0.2, 0.5, 0.7, 0.83, 0.9, 0.95, 1.0, 1.05, 1.2, 1.5])
def test_the_least_wait_came_on_top_of_the_stake(whole_s: float, speed: float) -> None:
    """Bug: 50 ms and 3 % are more than 5 % of what takes less than 2.5 s to compute."""
    assert short(lambda _: speed * 1024 / whole_s, whole_s) <= PROMISE


@pytest.mark.parametrize("whole_s", SHORT_S[2:])
@pytest.mark.parametrize("speed", [2.0, 3.3, 6.0])
def test_a_store_twice_as_fast_as_computing_is_used_for_short_histories(
    whole_s: float, speed: float
) -> None:
    assert short(lambda _: speed * 1024 / whole_s, whole_s) <= 1 / speed + 0.03


@pytest.mark.parametrize(
    ("history_chunks", "span_chunks", "first"), [(1, 16, 1), (32, 16, 2), (1000, 16, 16), (0, 1, 1)]
)
def test_a_history_begins_with_a_small_part_of_it(
    history_chunks: int, span_chunks: int, first: int
) -> None:
    assert first_span_chunks(history_chunks, span_chunks=span_chunks) == first


def test_what_is_recovered_is_never_more_than_the_stake() -> None:
    stake = Stake(COMPUTE, TOKENS, step_tokens=512)
    first_s = stake.left_s
    stake.spend(0.5 * first_s)
    stake.recover(0.25 * STAKE_SHARE)
    assert stake.left_s == pytest.approx(0.75 * first_s)
    stake.recover(1.0)
    assert stake.left_s == first_s


def test_recovering_takes_nothing_of_what_was_gained() -> None:
    stake = Stake(COMPUTE, TOKENS, step_tokens=512)
    stake.gain(0, TOKENS)
    before_s = stake.left_s
    stake.recover(0.1)
    assert stake.left_s == before_s


def test_what_is_computed_alone_is_not_waited_for_longer_than_that_takes() -> None:
    scaled = COMPUTE.scaled(10)
    stake = Stake(scaled, TOKENS, step_tokens=512)
    stake.gain(0, TOKENS - 64)
    rest_s = COMPUTE.compute_s(TOKENS - 64, TOKENS, 512)
    assert stake.left_s > 10 * rest_s
    assert stake.verdict(TOKENS - 64, TOKENS, load_s=2 * rest_s) is Verdict.WAIT
    stake.settle(COMPUTE, TOKENS - 64, TOKENS)
    assert stake.left_s == pytest.approx(rest_s)
    assert stake.verdict(TOKENS - 64, TOKENS, load_s=2 * rest_s) is Verdict.DROP
    assert stake.verdict(TOKENS - 64, TOKENS, load_s=0.5 * rest_s) is Verdict.WAIT


def test_a_stake_that_is_spent_is_not_made_larger_by_what_is_left_to_compute() -> None:
    stake = Stake(COMPUTE, TOKENS, step_tokens=512)
    stake.spend(WHOLE_S)
    stake.settle(COMPUTE, 0, TOKENS)
    assert stake.left_s == 0
