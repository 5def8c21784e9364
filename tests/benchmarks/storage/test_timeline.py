import pytest

from benchmarks.benchmark import BenchmarkError
from benchmarks.storage.clients import shares
from benchmarks.storage.mixed import under_puts
from benchmarks.storage.timeline import Timeline, overlap

EARLY = Timeline(((10.0, 0.0), (12.0, 4e9), (14.0, 4e9)))
LATE = Timeline(((11.0, 0.0), (13.0, 2e9), (16.0, 20e9)))


def test_the_rate_follows_the_points() -> None:
    assert EARLY.rate(10.0, 14.0) == pytest.approx(1e9)
    assert EARLY.rate(11.0, 13.0) == pytest.approx(1e9)
    assert EARLY.rate(12.0, 14.0) == 0.0
    assert EARLY.byte_count == 4e9


def test_the_overlap_is_when_all_ran() -> None:
    assert overlap([EARLY, LATE]) == (11.0, 14.0)


def test_what_never_overlaps_is_no_figure() -> None:
    later = Timeline(((14.0, 0.0), (15.0, 1e9)))
    with pytest.raises(BenchmarkError, match="did not run at the same time"):
        shares([EARLY, later])


def test_only_the_time_counts_in_which_all_clients_read() -> None:
    # From 11 to 14: 2 GB of the early one, 2 GB + 6 GB of the late one.
    assert shares([EARLY, LATE]) == pytest.approx(
        {"clients8": 10 / 3, "clients8_slowest": 2 / 3, "clients8_mean": 5 / 3}
    )


def test_puts_count_while_the_reads_ran() -> None:
    reads = Timeline(((11.0, 0.0), (13.0, 6e9)))
    assert under_puts(reads, EARLY) == pytest.approx(
        {"reads_under_puts": 3.0, "puts_under_reads": 1.0}
    )


@pytest.mark.parametrize("puts", [LATE, Timeline(((10.0, 0.0), (12.9, 1e9)))])
def test_puts_that_do_not_run_all_the_time_are_no_figure(puts: Timeline) -> None:
    reads = Timeline(((10.5, 0.0), (13.0, 6e9)))
    with pytest.raises(BenchmarkError, match="did not run as long"):
        under_puts(reads, puts)
