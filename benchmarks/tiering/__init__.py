"""Which conversations stay: the product's own policies in simulations and over real traces."""

from benchmarks.tiering.run import BENCHMARK

__all__ = ["BENCHMARK"]
