import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.restore.token_partition.token_reads import round_count, slices_in_flight


@pytest.mark.parametrize(
    ("tokens", "byte_count", "rounds"),
    [(0, 0, 1), (100, 10, 1), (101, 10, 2), (100, 1001, 2), (301, 5001, 6)],
)
def test_a_round_exceeds_neither_bound(tokens: int, byte_count: int, rounds: int) -> None:
    assert round_count(tokens, byte_count, round_tokens=100, round_bytes=1000) == rounds


@pytest.mark.parametrize(
    ("hidden", "kv", "slices"),
    [
        (7, 10, (3, 4)),
        (1, 1, (4, 4)),
        (14, 2, (7, 1)),
        (5, 3, (5, 3)),
        (1, 100, (1, 7)),
        (100, 1, (7, 1)),
    ],
)
def test_worked_proportions(hidden: int, kv: int, slices: tuple[int, int]) -> None:
    assert slices_in_flight(hidden, kv, total=8) == slices


@given(st.integers(1, 40), st.integers(1, 40), st.integers(2, 12))
def test_hidden_states_come_first_where_the_proportion_cannot_be_met(
    hidden: int, kv: int, total: int
) -> None:
    hidden_slices, kv_slices = slices_in_flight(hidden, kv, total=total)
    assert min(hidden_slices, kv_slices) >= 1
    assert hidden_slices + kv_slices <= total
    if hidden <= kv * (total - 1):
        assert hidden_slices / kv_slices >= hidden / kv
    if hidden + kv <= total:
        assert hidden_slices * kv == hidden * kv_slices


def test_one_slice_cannot_be_shared() -> None:
    with pytest.raises(ValueError, match="two reads cannot share 1 slices"):
        slices_in_flight(1, 1, total=1)
