import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_adapters.restore import Sample
from engine_adapters.restore.least_squares import fit

SIZES = (64, 128, 512, 1024, 4096)


def samples(constant: float, linear: float, square: float) -> list[Sample]:
    return [Sample(size, constant + linear * size + square * size**2) for size in SIZES]


@given(st.floats(0, 1e-2), st.floats(1e-6, 1e-3), st.floats(0, 1e-7))
def test_a_curve_is_found_again(constant: float, linear: float, square: float) -> None:
    curve = fit(samples(constant, linear, square), degree=2)
    for size in (64, 300, 2000, 4096):
        expected = constant + linear * size + square * size**2
        found = curve.constant + curve.linear * size + curve.square * size**2
        assert found == pytest.approx(expected, rel=1e-4)


def test_coefficients_of_exact_times() -> None:
    curve = fit(samples(1e-3, 2e-6, 3e-9), degree=2)
    assert curve.constant == pytest.approx(1e-3)
    assert curve.linear == pytest.approx(2e-6)
    assert curve.square == pytest.approx(3e-9)


def test_bytes_of_gigabytes_and_microseconds_of_latency() -> None:
    sizes = (2**18, 2**21, 2**24, 2**30)
    curve = fit([Sample(size, 1e-4 + size / 5e9) for size in sizes], degree=1)
    assert curve.constant == pytest.approx(1e-4)
    assert 1 / curve.linear == pytest.approx(5e9)


def test_noise_that_asks_for_a_negative_constant_gets_none() -> None:
    """The line through these cuts the axis below 0: no time is negative for few tokens."""
    noisy = [Sample(10, 0.5), Sample(20, 2.0), Sample(30, 3.5)]
    curve = fit(noisy, degree=1)
    assert curve.constant == 0
    assert 0.05 < curve.linear < 0.12


def test_times_that_fall_with_the_size_still_give_a_line_that_rises() -> None:
    curve = fit([Sample(10, 2.0), Sample(20, 1.0)], degree=2)
    assert (curve.constant, curve.square) == (0, 0)
    assert curve.linear > 0


def test_a_short_time_counts_as_much_as_a_long_one() -> None:
    """Absolute errors would make the long one exact and the short one 11 times too long."""
    curve = fit([Sample(1, 1.0), Sample(1000, 11000.0)], degree=1)
    assert 0 < curve.linear < 2


def test_one_measurement_is_taken_as_proportional() -> None:
    curve = fit([Sample(4, 2.0), Sample(4, 2.0)], degree=2)
    assert (curve.constant, curve.square) == (0.0, 0.0)
    assert curve.linear == pytest.approx(0.5)


def test_what_cannot_be_fitted() -> None:
    with pytest.raises(ValueError, match="at least one measurement"):
        fit([], degree=1)
    for degree in (0, 3):
        with pytest.raises(ValueError, match=f"not {degree}"):
            fit(samples(0, 1, 0), degree=degree)
    for size, seconds in ((0, 1.0), (1, 0.0), (1, float("nan"))):
        with pytest.raises(ValueError, match="is no measurement"):
            Sample(size, seconds)
