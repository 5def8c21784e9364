from dataclasses import replace

import pytest

from benchmarks.benchmark import Benchmark, BenchmarkError

BENCHMARK = Benchmark(
    name="storage",
    figures=("read", "put", "hit"),
    run=lambda settings: (),
    parts={"cold": ("read", "put"), "warm": ("hit",), "curve": ()},
)


def test_all_figures_are_promised_unless_parts_are_named() -> None:
    assert BENCHMARK.promised([]) == ("read", "put", "hit")
    assert BENCHMARK.promised(["warm", "curve", "warm"]) == ("hit",)


def test_a_quick_run_promises_no_slow_parts_unless_they_are_named() -> None:
    slow = replace(BENCHMARK, slow_parts=frozenset({"warm"}))
    assert slow.promised([]) == ("read", "put", "hit")
    assert slow.promised([], quick=True) == ("read", "put")
    assert slow.promised(["warm"], quick=True) == ("hit",)
    assert BENCHMARK.promised([], quick=True) == ("read", "put", "hit")


def test_an_unknown_part_is_refused_with_those_that_exist() -> None:
    with pytest.raises(BenchmarkError, match="no part 'hot'; its parts: cold, warm, curve"):
        BENCHMARK.promised(["hot"])
    whole = Benchmark(name="conversation", figures=("a",), run=lambda settings: ())
    with pytest.raises(BenchmarkError, match="it has none"):
        whole.promised(["cold"])
