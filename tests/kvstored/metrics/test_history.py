from dataclasses import replace

import pytest

from kvstored.metrics.history import SAMPLES_MAX, History
from tests.kvstored.metrics.snapshots import DEVICE, snapshot_of


def look(read_bytes: int, **counters: int) -> object:
    device = replace(DEVICE, read_bytes=read_bytes, written_bytes=3 * read_bytes)
    return snapshot_of(devices=(device,), counters=counters)


def history_of(*looks: tuple[float, object]) -> History:
    history = History()
    for now_s, snapshot in looks:
        history.add(now_s, snapshot)  # type: ignore[arg-type]  # a snapshot
    return history


def test_before_the_second_look_nothing_is_known() -> None:
    assert History().series().read_bytes_per_s == {}
    series = history_of((1.0, look(5))).series()
    assert (series.read_bytes_per_s, series.hit_share) == ({"/d0": []}, [])


def test_rates_are_of_the_time_between_looks() -> None:
    series = history_of(
        (10.0, look(1000, dram_hit_chunks=1)),
        (12.0, look(3000, dram_hit_chunks=4, nvme_hit_chunks=3, missed_chunks=2)),
        (12.0, look(3000)),
        (16.0, look(3000, dram_hit_chunks=4, nvme_hit_chunks=3, missed_chunks=2)),
    ).series()
    # The look at the same time stands for the next one, too.
    assert series.read_bytes_per_s == {"/d0": [1000.0, 0.0]}
    assert series.written_bytes_per_s == {"/d0": [3000.0, 0.0]}
    assert series.restored_chunks_per_s[0] == 3.0
    assert series.hit_share[0] == pytest.approx(6 / 8)


def test_without_reads_there_is_no_share() -> None:
    series = history_of((0.0, look(0)), (1.0, look(0, put_stored_chunks=7))).series()
    assert (series.hit_share, series.stored_chunks_per_s) == ([None], [7.0])


def test_only_the_last_minutes_are_remembered() -> None:
    looks = [(float(number), look(number**2)) for number in range(SAMPLES_MAX + 10)]
    read = history_of(*looks).series().read_bytes_per_s["/d0"]
    assert len(read) == SAMPLES_MAX - 1
    assert read[-1] == (SAMPLES_MAX + 9) ** 2 - (SAMPLES_MAX + 8) ** 2
