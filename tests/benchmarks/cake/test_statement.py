import pytest

from benchmarks.cake.statement import Statement, Unit


def statement(unit: Unit, paper: tuple[float, ...], ours: tuple[float, ...]) -> Statement:
    return Statement(key="key", section="5", text="text", unit=unit, paper=paper, ours=ours)


def test_percentages_differ_by_points_and_all_else_relatively() -> None:
    assert statement(Unit.SAVED, (50.0, 90.0), (40.0, 95.0)).differences == (-10.0, 5.0)
    assert statement(Unit.SHARE, (75.0,), (77.0,)).differences == (2.0,)
    assert statement(Unit.RATIO, (8.0,), (10.0,)).differences == (0.25,)
    assert statement(Unit.SECONDS, (8.0,), (6.0,)).differences == (-0.25,)


def test_a_saving_is_a_speed_up() -> None:
    """90 % less is 10x, 95 % less 20x."""
    saved = statement(Unit.SAVED, (90.0,), (95.0,))
    assert saved.speedup_differences == pytest.approx((1.0,))
    assert statement(Unit.SHARE, (90.0,), (95.0,)).speedup_differences == ()
