"""A load that a request waits for costs at most 1.05 of computing, whatever the store does."""

from collections.abc import Callable

import pytest

from engine_adapters.restore import ComputeCost, LoadLimit, TokenRange

COMPUTE = ComputeCost(step_s=0.001, token_s=0.004, attention_s=5e-7)
CHUNK_TOKENS, TOKEN_BYTES, STEP_TOKENS = 64, 1024, 512
PROMISE = 1.05
FAST = 5.0
"""Times as fast as computing."""
LOOKS = 2000
"""Looks while everything could be computed once."""

Pace = Callable[[float], float]
"""Of the time, as a share of computing everything; in bytes loaded while one is computed."""


def stopping(at: float, pace: float) -> Pace:
    return lambda share: pace if share < at else 0.0


PACES: dict[str, Pace] = {
    **{f"1/{part}": stopping(9.0, FAST / part) for part in (1, 2, 4, 8, 16, 64, 256)},
    "silent": stopping(0.0, FAST),
    **{f"stops at {at}": stopping(at, FAST) for at in (0.001, 0.01, 0.05, 0.1, 0.19)},
    **{f"1/4 stops at {at}": stopping(at, FAST / 4) for at in (0.1, 0.3, 0.5, 0.79)},
    "fast late": lambda share: 0.0 if share < 0.5 else FAST,
}


def over_computing(pace: Pace, tokens: TokenRange) -> tuple[float, int]:
    """How long a load and what is computed after it take, over computing; tokens loaded."""
    whole_s = COMPUTE.compute_s(*tokens, STEP_TOKENS)
    byte_count = tokens.token_count * TOKEN_BYTES
    limit = LoadLimit(
        COMPUTE,
        tokens,
        byte_count=byte_count,
        step_tokens=STEP_TOKENS,
        least_wait_s=0.0,
        now_s=100.0,
    )
    passed_s, arrived, loaded = 0.0, 0.0, tokens.first
    while loaded < tokens.stop:
        look_s = whole_s / LOOKS
        arrived += byte_count / LOOKS * pace(passed_s / whole_s)
        passed_s += look_s
        limit.look(100.0 + passed_s, int(min(byte_count, arrived)))
        chunks = int(arrived + 1e-6) // TOKEN_BYTES // CHUNK_TOKENS
        stop = min(tokens.stop, tokens.first + chunks * CHUNK_TOKENS)
        if stop > loaded:
            limit.gain(loaded, stop)
            loaded = stop
        elif not limit.is_waited_for(loaded, tokens.stop):
            break
    computed_s = COMPUTE.compute_s(loaded, tokens.stop, STEP_TOKENS)
    return (passed_s + computed_s) / whole_s, loaded - tokens.first


@pytest.mark.parametrize("first", [0, 1024])
@pytest.mark.parametrize("chunk_count", [4, 32, 128])
@pytest.mark.parametrize("name", PACES)
def test_a_load_was_waited_for_ten_seconds_whatever_computing_takes(
    name: str, chunk_count: int, first: int
) -> None:
    """Bug: vLLM's loads had a time-out of their own and compared nothing with computing."""
    tokens = TokenRange(first, first + chunk_count * CHUNK_TOKENS)
    assert over_computing(PACES[name], tokens)[0] <= PROMISE


@pytest.mark.parametrize(("part", "at_most"), [(1, 0.22), (2, 0.42), (4, 0.82)])
def test_a_store_that_is_faster_than_computing_is_waited_for_to_the_end(
    part: int, at_most: float
) -> None:
    tokens = TokenRange(0, 64 * CHUNK_TOKENS)
    over, loaded = over_computing(PACES[f"1/{part}"], tokens)
    assert loaded == tokens.token_count
    assert over <= at_most


def test_a_slow_store_is_left_before_it_has_brought_much() -> None:
    over, loaded = over_computing(PACES["1/16"], TokenRange(0, 64 * CHUNK_TOKENS))
    assert loaded <= CHUNK_TOKENS
    assert over <= PROMISE


def limit_of(tokens: TokenRange, **options: float) -> LoadLimit:
    return LoadLimit(
        COMPUTE, tokens, byte_count=64_000, step_tokens=STEP_TOKENS, now_s=0.0, **options
    )


def test_the_first_moments_are_waited_for_however_little_there_is_to_compute() -> None:
    limit = limit_of(TokenRange(0, 64), least_wait_s=30.0)
    assert 29.0 < limit.look_s <= 30.0
    limit.look(29.0, 0)
    assert limit.is_waited_for(0, 64)
    limit.look(31.0, 0)
    assert not limit.is_waited_for(0, 64)


def test_a_part_is_judged_by_its_own_bytes() -> None:
    """As the share of one process of a batch that all compute together."""
    limit = limit_of(TokenRange(0, 640), least_wait_s=0.0)
    limit.look(0.05, 6_400)
    assert limit.is_waited_for(0, 640, missing_bytes=6_400)
    assert not limit.is_waited_for(0, 64, missing_bytes=640_000)


def test_bytes_beside_the_states_are_not_missing() -> None:
    limit = limit_of(TokenRange(0, 640), least_wait_s=0.0)
    limit.look(0.01, 65_000)
    assert limit.is_waited_for(0, 64)


def test_others_that_were_waited_for_are_spent_and_say_nothing_of_the_store() -> None:
    """At first the pace of all that came, then nothing left of the stake."""
    tokens = TokenRange(0, 6400)
    silent, passed_over = (limit_of(tokens, least_wait_s=0.0) for _ in range(2))
    for limit in (silent, passed_over):
        limit.look(0.1, 6_400)
        assert limit.is_waited_for(0, 640, missing_bytes=6_400)
    passed_over.pass_over(5.0)
    for limit in (silent, passed_over):
        limit.gain(0, 1600)
        limit.look(5.1, 6_400)
    assert not silent.is_waited_for(0, 640, missing_bytes=6_400)
    assert passed_over.is_waited_for(0, 640, missing_bytes=6_400)
    passed_over.pass_over(50.0)
    passed_over.look(55.1, 6_400)
    assert not passed_over.is_waited_for(0, 640, missing_bytes=6_400)
