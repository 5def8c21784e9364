import pytest

from benchmarks.pic.figures import (
    FIGURES,
    details_of,
    figures_of,
    linear_r2,
    quadratic_share,
    ttft_key,
)

LENGTHS = (1000, 2000, 4000)


def test_a_line_and_a_parabola() -> None:
    assert linear_r2(LENGTHS, [1.0, 2.0, 4.0]) == pytest.approx(1.0)
    assert linear_r2([1, 2, 3, 4], [1.0, 4.0, 9.0, 16.0]) == pytest.approx(1 - 4 / 129)
    assert quadratic_share(LENGTHS, [1.0, 2.0, 4.0]) == pytest.approx(0.0, abs=1e-6)
    assert quadratic_share([1, 2, 3, 4], [1.0, 4.0, 9.0, 16.0]) == pytest.approx(1.0)
    # Half of it is the square.
    assert quadratic_share([1, 2, 4], [5.0, 12.0, 32.0]) == pytest.approx(0.5)
    # A curve that bends down has no square.
    assert quadratic_share([1, 4, 9], [1.0, 2.0, 3.0]) == 0.0


def samples() -> dict[str, tuple[float, ...]]:
    found: dict[str, tuple[float, ...]] = {}
    for length in LENGTHS:
        found[ttft_key("attnlink16", "warm", length)] = (length / 1000, length / 500)
        found[ttft_key("cacheblend15", "warm", length)] = (length / 100, length / 50)
    found["attnlink16_cold_4000_over_bound"] = (1.5, 1.7)
    found["attnlink16_warm_4000_steps"] = (1.0, 1.0)
    return found


def test_every_figure_is_told() -> None:
    found = {one.key: one for one in figures_of(samples(), LENGTHS, equal=[True, True])}
    assert set(found) == set(FIGURES)
    assert all(one.is_figure for one in found.values())
    assert found["ttft_cacheblend15_over_attnlink16_x"].value == pytest.approx(10.0)
    assert found["ttft_attnlink_linear_r2"].value == pytest.approx(1.0)
    assert found["attnlink_vs_bound"].value == pytest.approx(1.6)
    assert found["tokens_equal"].value == 1.0


def test_one_other_token_is_told() -> None:
    found = {one.key: one for one in figures_of(samples(), LENGTHS, equal=[True, False])}
    assert found["tokens_equal"].value == 0.0


def test_times_have_a_least_and_a_most() -> None:
    found = {one.key: one.value for one in details_of(samples())}
    key = ttft_key("attnlink16", "warm", 1000)
    assert (found[f"{key}_min"], found[key], found[f"{key}_max"]) == (1.0, 1.5, 2.0)
    assert "attnlink16_warm_4000_steps_min" not in found
