import pytest

from engine_adapters.restore import LayerCosts, LayerRates, ReadMeter

TOKENS, KV_BYTES = 100, 8
COSTS = LayerCosts(io_hidden_s=1.0, io_kv_s=2.0, compute_s=1.0, project_s=1.0)


@pytest.fixture
def rates() -> LayerRates:
    return LayerRates(COSTS, TOKENS, hidden_bytes=4, kv_bytes=KV_BYTES)


def test_reads_count_while_only_the_store_holds_them_up(rates: LayerRates) -> None:
    meter = ReadMeter(rates, now_s=10.0)
    meter.observe(11.0, 1000, is_reading=True)
    # How long the first answer took says nothing of reading.
    assert rates.costs().io_kv_s == pytest.approx(2.0)
    for number in range(1, 200):
        meter.observe(11.0 + number, 1000 + 100 * number, is_reading=True)
    assert rates.costs().io_kv_s == pytest.approx(TOKENS * KV_BYTES / 100, rel=0.01)


@pytest.mark.parametrize(("before", "now"), [(True, False), (False, True)])
def test_a_time_in_which_nothing_was_asked_for_does_not_count(
    rates: LayerRates, before: bool, now: bool
) -> None:
    meter = ReadMeter(rates, now_s=0.0)
    meter.observe(1.0, 100, is_reading=before)
    meter.observe(1000.0, 200, is_reading=now)
    assert rates.costs().io_kv_s == pytest.approx(2.0)


def test_a_look_without_new_bytes_ends_no_time(rates: LayerRates) -> None:
    meter = ReadMeter(rates, now_s=0.0)
    meter.observe(1.0, 100, is_reading=True)
    meter.observe(2.0, 100, is_reading=True)
    meter.observe(5.0, 100_100, is_reading=True)
    assert rates.costs().io_kv_s == pytest.approx(TOKENS * KV_BYTES * 4.0 / 100_000, rel=0.05)


def test_without_rates_nothing_is_measured() -> None:
    ReadMeter(None, now_s=0.0).observe(1.0, 100, is_reading=True)


def test_costs_of_any_number_of_tokens(rates: LayerRates) -> None:
    assert rates.costs(2 * TOKENS).io_kv_s == pytest.approx(4.0)
    assert rates.costs(2 * TOKENS).compute_s == pytest.approx(2.0)
