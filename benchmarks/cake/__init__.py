"""Computing and loading at once: on this machine, and in a simulation of the paper's servers."""

from benchmarks.cake.run import BENCHMARK

__all__ = ["BENCHMARK"]
