from benchmarks.storage.rates import highest, lowest, measured, ratio

RATES = {"ours": (2.0, 9.0), "peer": (1.0, 3.0), "slow": (1.0, 1.0)}


def test_a_ratio_is_formed_in_each_round() -> None:
    series = ratio("ours_vs_peer", RATES, "ours", "peer", is_figure=True)
    assert (series.samples, series.is_figure) == ((2.0, 3.0), True)


def test_rates_are_printed_under_their_names() -> None:
    assert [series.key for series in measured(RATES, ("ours", "slow"))] == [
        "ours_gb_per_s",
        "slow_gb_per_s",
    ]


def test_the_worse_of_several_is_published_under_a_key_of_its_own() -> None:
    fast, slow = ratio("fast", RATES, "ours", "peer"), ratio("slow", RATES, "slow", "peer")
    worst = lowest("read", [fast, slow], is_figure=True)
    assert (worst.key, worst.samples, worst.is_figure) == ("read", slow.samples, True)
    assert not slow.is_figure
    assert highest("cpu", [slow, fast], is_figure=True).samples == fast.samples
