"""Computing and loading at once: in a simulation of the paper's platforms."""

from benchmarks.cake.run import BENCHMARK

__all__ = ["BENCHMARK"]
