from kvstored.call_times import BUCKETS_S
from kvstored.server.calls import Latencies


def test_calls_are_counted_by_verb_and_bucket() -> None:
    latencies = Latencies()
    for duration_s in (0.0001, BUCKETS_S[0], 0.0006, 100.0):
        latencies.add("Put", duration_s, is_refused=duration_s > 1)
    latencies.add("Match", 0.02, is_refused=False)
    times = latencies.times()
    assert sorted(times) == ["Match", "Put"]
    assert times["Put"].counts == (2, 1, *(0,) * (len(BUCKETS_S) - 2), 1)
    assert times["Put"].refused_count == 1
    assert times["Match"].refused_count == 0
    assert times["Match"].sum_s == 0.02
    assert sum(times["Match"].counts) == 1


def test_what_was_taken_does_not_change() -> None:
    latencies = Latencies()
    latencies.add("Put", 0.1, is_refused=False)
    before = latencies.times()["Put"]
    latencies.add("Put", 0.1, is_refused=False)
    assert sum(before.counts) == 1
