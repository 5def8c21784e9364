"""The benchmarks by name. A module is imported when its benchmark is asked for."""

from importlib import import_module

from benchmarks.benchmark import Benchmark

MODULES = {
    "cake": "benchmarks.cake",
    "conversation": "benchmarks.conversation",
    "decode": "benchmarks.decode",
    "engines": "benchmarks.engines",
    "index_scale": "benchmarks.index_scale",
    "peers": "benchmarks.peers",
    "restore": "benchmarks.restore",
    "storage": "benchmarks.storage",
    "vllm": "benchmarks.vllm",
}
"""Every module has a ``BENCHMARK``."""


def find_benchmark(name: str) -> Benchmark:
    """The benchmark of this name; raises KeyError for a name that is not in MODULES."""
    benchmark = import_module(MODULES[name]).BENCHMARK
    assert isinstance(benchmark, Benchmark)
    return benchmark
