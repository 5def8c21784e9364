from benchmarks.peers.series import FIGURES, series

RATES = {
    "put_durable": (4.0, 6.0, 5.0),
    "lmcache_raw_put": (2.0, 2.0, 2.0),
    "lmcache_raw_put_findable": (1.0, 1.0, 1.0),
    "fio_1mib_16_write": (1.0, 2.0, 1.0),
    "read_cold_tail_first": (3.0, 3.0, 3.0),
    "read_cold_layer_first": (2.0, 2.0, 2.0),
    "read_cold_head_first": (4.0, 4.0, 4.0),
    "lmcache_raw_read": (2.0, 1.0, 4.0),
    "fio_1mib_16_read": (1.0, 1.0, 1.0),
}


def test_ratios_are_formed_in_each_round_and_reads_are_judged_by_the_slowest_order() -> None:
    found = {one.key: one for one in series(RATES)}
    assert {key: one.value for key, one in found.items() if one.is_figure} == {
        "put_durable_vs_lmcache_raw": 2.5,
        "read_cold_vs_lmcache_raw": 1.0,
        "put_durable_vs_fio_1mib_16": 4.0,
        "read_cold_vs_fio_1mib_16": 2.0,
        "lmcache_raw_put_vs_fio_1mib_16": 2.0,
        "lmcache_raw_read_vs_fio_1mib_16": 2.0,
    }
    assert found["put_durable_vs_lmcache_raw_findable"].samples == (4.0, 6.0, 5.0)
    assert found["read_cold_vs_lmcache_raw"].samples == (1.0, 2.0, 0.5)


def test_every_rate_is_printed_and_every_figure_promised() -> None:
    found = series(RATES)
    assert sorted(one.key for one in found if one.is_figure) == sorted(FIGURES)
    rates = {one.key: one.samples for one in found if one.unit == "GB/s"}
    assert rates == {f"{name}_gb_per_s": samples for name, samples in RATES.items()}
