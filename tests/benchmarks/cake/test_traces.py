import pytest

from benchmarks.cake.traces import ComputeTrace, oracle_s

TRACE = ComputeTrace((1.0, 3.0), (4, 8))


@pytest.mark.parametrize(
    ("position", "expected_s"), [(0, 0.0), (1, 0.25), (4, 1.0), (6, 2.0), (8, 3.0)]
)
def test_tokens_are_computed_evenly_within_a_step(position: int, expected_s: float) -> None:
    assert TRACE.at_s(position) == pytest.approx(expected_s)


def test_nothing_is_said_of_what_was_not_computed() -> None:
    with pytest.raises(ValueError, match="ends at token 8, before 9"):
        TRACE.at_s(9)


@pytest.mark.parametrize(("times_s", "positions"), [((), ()), ((1.0,), (1, 2))])
def test_a_trace_has_times_and_positions(
    times_s: tuple[float, ...], positions: tuple[int, ...]
) -> None:
    with pytest.raises(ValueError, match="as many times as positions"):
        ComputeTrace(times_s, positions)


def test_the_oracle_meets_where_both_sides_end_together() -> None:
    # Four chunks of two tokens; loading takes a second each: three loaded, one computed.
    assert oracle_s(
        TRACE, [0.0, 0.5, 1.0, 1.5, 2.0], chunk_tokens=2, alone_s=9.0, rest_s=0.25
    ) == pytest.approx(1.0 + 0.25)


def test_the_oracle_computes_alone_where_that_is_faster() -> None:
    loaded_at_s = [0.0, 10.0, 20.0, 30.0, 40.0]
    assert oracle_s(TRACE, loaded_at_s, chunk_tokens=2, alone_s=3.1, rest_s=0.5) == 3.1


def test_the_oracle_loads_alone_where_computing_takes_forever() -> None:
    trace = ComputeTrace((100.0,), (8,))
    loaded_at_s = [0.0, 1.0, 2.0, 3.0, 4.0]
    assert oracle_s(trace, loaded_at_s, chunk_tokens=2, alone_s=100.0, rest_s=0.5) == 4.5
